package io.github.farlog.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** What is appended comes back byte for byte, in every form and length. */
class PayloadTest {
    private final Position position = new Position();

    @Test
    void shouldGiveBackEveryForm() throws Exception {
        final byte[] data = TestRing.bytes("..8=FIX.4.4 \u20ac \u65e5\u672c\u8a9e \ud83d\ude80..");
        final byte[] key = TestRing.bytes("..ORD-\u00fc42..");
        final byte[] wantData = java.util.Arrays.copyOfRange(data, 2, data.length - 2);
        final byte[] wantKey = java.util.Arrays.copyOfRange(key, 2, key.length - 2);
        try (TestRing ring = TestRing.inMemory(1 << 20); Arena arena = Arena.ofShared()) {
            final ByteBuffer heap = ByteBuffer.wrap(data, 2, wantData.length);
            final ByteBuffer direct = ByteBuffer.allocateDirect(100).put(data).position(2).limit(data.length - 2);
            final ByteBuffer keyBuffer = ByteBuffer.wrap(key, 2, wantKey.length).asReadOnlyBuffer();
            final MemorySegment segment = arena.allocateFrom(ValueLayout.JAVA_BYTE, wantData);
            final MemorySegment keySegment = MemorySegment.ofArray(wantKey);
            try (Writer writer = ring.writer()) {
                assertEquals(Result.OK,
                    writer.append(data, 2, wantData.length, 9, key, 2, wantKey.length, 0, position));
                assertEquals(Result.OK, writer.append(heap, 9, keyBuffer, 0, position));
                assertEquals(Result.OK, writer.append(direct, 9, keyBuffer, 0, position));
                assertEquals(Result.OK, writer.append(segment, 9, keySegment, 0, position));
                assertEquals(Result.OK, writer.tryAppend(heap, 9, keyBuffer, position));
                assertEquals(Result.OK, writer.submit(segment, 9, keySegment, position));
                final MemorySegment claim = writer.claim(wantData.length, 9, key, 2, wantKey.length);
                claim.copyFrom(segment);
                assertEquals(Result.OK, writer.commit(0, position));
            }
            try (SharedWriter writer = ring.shared()) {
                assertEquals(Result.OK,
                    writer.append(data, 2, wantData.length, 9, key, 2, wantKey.length, 0, position));
                assertEquals(Result.OK, writer.append(direct, 9, keyBuffer, 0, position));
                assertEquals(Result.OK, writer.append(segment, 9, keySegment, 0, position));
            }
            assertEquals(2, heap.position(), "the caller's buffer stays as it is");
            final List<TestRing.Read> all = ring.drain();
            assertEquals(10, all.size());
            for (final TestRing.Read read : all) {
                assertArrayEquals(wantData, read.payload());
                assertArrayEquals(wantKey, read.key());
                assertEquals(9, read.classId());
            }
            assertEquals(0, ring.read().size());
        }
    }

    @Test
    void shouldCarryAMebibyte() throws Exception {
        final byte[] data = new byte[1 << 20];
        new Random(7).nextBytes(data);
        for (final TestRing made : List.of(
            TestRing.inMemory(RingOptions.defaults().withSizeBytes(16 << 20).withRecordLenMax(2 << 20)),
            TestRing
                .inMemory(RingOptions.defaults().withSizeBytes(16 << 20).withRecordLenMax(2 << 20).withAlign(4096)))) {
            try (TestRing ring = made) {
                try (Writer writer = ring.writer()) {
                    assertEquals(Result.OK, writer.append(data, 0, data.length, 65535, data, 0, 65535, 0, position));
                    final MemorySegment claim = writer.claim(data.length, 1, null, 0, 0);
                    MemorySegment.copy(data, 0, claim, ValueLayout.JAVA_BYTE, 0, data.length);
                    assertEquals(Result.OK, writer.commit(0, position));
                }
                try (SharedWriter writer = ring.shared()) {
                    assertEquals(Result.OK, writer.append(ByteBuffer.wrap(data), 1, null, 0, position));
                }
                final List<TestRing.Read> all = ring.read();
                assertEquals(3, all.size());
                for (final TestRing.Read read : all) {
                    assertArrayEquals(data, read.payload());
                }
                assertEquals(65535, all.getFirst().key().length);
            }
        }
    }

    @Test
    void shouldGrowTheBatchForALongRecord() throws Exception {
        try (TestRing ring = TestRing.inMemory(16 << 20); Writer writer = ring.writer();
            Reader reader = Reader.open(ring.uri, ReaderOptions.defaults().withTail())) {
            final Batch batch = new Batch(4096);
            assertEquals(Result.NOT_YET, reader.read(batch));
            assertEquals(Result.OK, writer.append(new byte[300_000], 0, 300_000, 1, null, 0, 0, 0, position));
            assertEquals(Result.OK, reader.read(batch));
            assertEquals(true, batch.next());
            assertEquals(300_000, batch.payload().byteSize());
            assertEquals(position.lsn(), batch.lsn());
        }
    }

    /**
     * Lengths at random over several turns of the ring, so that its end falls on every place; live tail and drain
     * beside the writer.
     */
    @Test
    void shouldFollowTheWriterAroundTheRing() throws Exception {
        final long seed = System.nanoTime();
        System.out.println("PayloadTest: seed=" + seed);
        final Random random = new Random(seed);
        try (TestRing ring = TestRing.inMemory(64 << 10); Writer writer = ring.writer();
            Reader tail = Reader.open(ring.uri, ReaderOptions.defaults().withTail());
            Reader drain = Reader.open(ring.uri, ReaderOptions.defaults().withDraining())) {
            final Batch seen = new Batch();
            final Batch drained = new Batch();
            for (long number = 1; number <= 20_000; number++) {
                final byte[] data = TestRing.numbered(3, number, random.nextInt(900) + 1);
                Result result = writer.tryAppend(data, 0, data.length, 1, null, 0, 0, position);
                while (result == Result.FULL) {
                    assertEquals(Result.OK, drain.read(drained));
                    assertEquals(Result.OK, drain.release(drained));
                    result = writer.tryAppend(data, 0, data.length, 1, null, 0, 0, position);
                }
                assertEquals(Result.OK, result, "seed=" + seed);
                assertEquals(Result.OK, tail.read(seen), "seed=" + seed);
                assertEquals(true, seen.nextPayload());
                assertArrayEquals(data, NativeCalls.bytes(seen.payload()), "seed=" + seed);
                assertEquals(position.lsn(), seen.lsn());
                assertEquals(position.seq(), seen.seq());
                assertEquals(false, seen.next());
            }
        }
    }

    @Test
    void shouldRefuseTheUseOfAClaimAfterClose() throws Exception {
        try (TestRing ring = TestRing.inMemory(1 << 20)) {
            final Writer writer = ring.writer();
            final MemorySegment claim = writer.claim(100, 1, null, 0, 0);
            writer.close();
            assertThrows(IllegalStateException.class, () -> claim.set(ValueLayout.JAVA_BYTE, 0, (byte) 1));
        }
    }
}
