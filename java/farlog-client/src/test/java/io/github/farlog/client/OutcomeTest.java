package io.github.farlog.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Every outcome of a call, made to happen on a real ring. */
class OutcomeTest {
    private static final byte[] DATA = new byte[192];
    private static final long SMALL = 3 * 4096 + (64 << 10);

    private final Position position = new Position();

    private Result append(final Writer writer, final long deadlineNanos) {
        return writer.append(DATA, 0, DATA.length, 1, null, 0, 0, deadlineNanos, position);
    }

    private Result append(final SharedWriter writer, final long deadlineNanos) {
        return writer.append(DATA, 0, DATA.length, 1, null, 0, 0, deadlineNanos, position);
    }

    private void fill(final Writer writer) {
        Result result = Result.OK;
        while (result == Result.OK) {
            result = writer.tryAppend(DATA, 0, DATA.length, 1, null, 0, 0, position);
        }
        assertEquals(Result.FULL, result);
    }

    @Test
    void shouldAcknowledgeAtTheLevelAskedFor() throws Exception {
        try (TestRing ring = TestRing.inMemory(1 << 20); Writer writer = ring.writer()) {
            assertEquals(Result.OK, append(writer, 0));
            assertEquals(Level.VISIBLE, position.level());
            assertEquals(1, position.seq());
            assertEquals(1, position.epoch());
            assertEquals(1, position.copies());
            assertEquals(position.lsn() + 256, position.endLsn());
        }
        try (TestRing ring = TestRing.onDisk(1 << 20); Writer writer = ring.writer()) {
            assertEquals(Result.OK, append(writer, 0));
            assertEquals(Level.PERSISTENT, position.level());
        }
    }

    @Test
    void shouldReturnFullAtOnceWhenPolicyIsReject() throws Exception {
        try (TestRing ring = TestRing.inMemory(SMALL);
            Writer writer = Writer.open(ring.uri, ring.options().withPolicy(Policy.REJECT))) {
            fill(writer);
            final long start = System.nanoTime();
            assertEquals(Result.FULL, append(writer, 1_000_000_000L));
            assertTrue(System.nanoTime() - start < 500_000_000L);
            assertEquals(0, position.lsn());
            ring.empty();
            assertEquals(Result.OK, append(writer, 0));
        }
    }

    @Test
    void shouldWaitForTheDeadlineWhenRingIsFull() throws Exception {
        try (TestRing ring = TestRing.inMemory(SMALL); Writer writer = ring.writer()) {
            fill(writer);
            assertWaits(80_000_000L, () -> append(writer, 80_000_000L));
            final long start = System.nanoTime();
            assertEquals(Result.FULL, append(writer, -1));
            assertTrue(System.nanoTime() - start < 50_000_000L, "a deadline in the past waits for nothing");
        }
        try (TestRing ring = TestRing.inMemory(SMALL);
            SharedWriter writer = SharedWriter.open(ring.uri, ring.options().withDeadline(Duration.ofMillis(60)))) {
            Result result = Result.OK;
            while (result == Result.OK) {
                result = append(writer, -1);
            }
            assertEquals(Result.FULL, result);
            assertWaits(80_000_000L, () -> append(writer, 80_000_000L));
            assertWaits(60_000_000L, () -> append(writer, 0));
        }
    }

    private static void assertWaits(final long nanos, final java.util.function.Supplier<Result> call) {
        final long start = System.nanoTime();
        assertEquals(Result.FULL, call.get());
        final long took = System.nanoTime() - start;
        assertTrue(took >= nanos, took + " ns");
        assertTrue(took < nanos + 2_000_000_000L, took + " ns");
    }

    @Test
    void shouldGoOnWhenTheDrainGivesSpaceWhileItWaits() throws Exception {
        try (TestRing ring = TestRing.inMemory(SMALL); Writer writer = ring.writer()) {
            fill(writer);
            final Thread drain = Thread.ofPlatform().start(() -> {
                try {
                    Thread.sleep(30);
                    ring.empty();
                } catch (final FarlogException | InterruptedException e) {
                    throw new AssertionError(e);
                }
            });
            assertEquals(Result.OK, append(writer, 20_000_000_000L));
            drain.join();
        }
    }

    @Test
    void shouldReturnFencedWithTheEpochThatFenced() throws Exception {
        try (TestRing ring = TestRing.inMemory(1 << 20); Writer writer = ring.writer()) {
            Ring.fence(ring.uri, 9);
            assertEquals(Result.FENCED, append(writer, 0));
            assertEquals(9, position.epoch());
            assertNull(writer.claim(10, 1, null, 0, 0));
            assertEquals(Result.FENCED, writer.lastResult());
            assertEquals(Result.FENCED, writer.submit(DATA, 0, 10, 1, null, 0, 0, position));
        }
    }

    @Test
    void shouldReturnTooLargeAndGoOn() throws Exception {
        try (TestRing ring = TestRing.inMemory(RingOptions.defaults().withSizeBytes(1 << 20).withRecordLenMax(4096));
            Writer writer = ring.writer()) {
            final byte[] large = new byte[4097];
            assertEquals(Result.TOO_LARGE, writer.append(large, 0, large.length, 1, DATA, 0, 10, 0, position));
            assertEquals(Result.TOO_LARGE,
                writer.append(ByteBuffer.wrap(large), 1, ByteBuffer.wrap(DATA), 0, position));
            assertEquals(Result.TOO_LARGE, writer.append(MemorySegment.ofArray(large), 1, null, 0, position));
            assertNull(writer.claim(5000, 1, null, 0, 0));
            assertEquals(Result.TOO_LARGE, writer.lastResult());
            assertEquals(Result.OK, writer.append(large, 0, 4096 - 64, 1, null, 0, 0, 0, position));
            assertEquals(1, ring.read().size());
        }
    }

    @Test
    void shouldReturnInvalidAndThrowNothingWhenArgumentsAreBad() throws Exception {
        try (TestRing ring = TestRing.inMemory(1 << 20); Writer writer = ring.writer()) {
            final List<Result> results = new ArrayList<>();
            results.add(writer.append((byte[]) null, 0, 0, 1, null, 0, 0, 0, position));
            results.add(writer.append(DATA, -1, 5, 1, null, 0, 0, 0, position));
            results.add(writer.append(DATA, 0, -5, 1, null, 0, 0, 0, position));
            results.add(writer.append(DATA, 190, 5, 1, null, 0, 0, 0, position));
            results.add(writer.append(DATA, Integer.MAX_VALUE, Integer.MAX_VALUE, 1, null, 0, 0, 0, position));
            results.add(writer.append(DATA, 0, 5, 65536, null, 0, 0, 0, position));
            results.add(writer.append(DATA, 0, 5, -1, null, 0, 0, 0, position));
            results.add(writer.append(DATA, 0, 5, 1, null, 0, 5, 0, position));
            results.add(writer.append(DATA, 0, 5, 1, DATA, 190, 5, 0, position));
            results.add(writer.append(DATA, 0, 5, 1, DATA, 0, -1, 0, position));
            results.add(writer.append((ByteBuffer) null, 1, null, 0, position));
            results.add(writer.append((MemorySegment) null, 1, null, 0, null));
            results.add(writer.append(MemorySegment.ofArray(DATA), 1, MemorySegment.ofArray(new byte[65536]), 0, null));
            results.add(writer.append(closedSegment(), 1, null, 0, position));
            results.add(writer.append(closedSegment().asSlice(0, 0), 1, closedSegment(), 0, position));
            results.add(writer.commit(0, position));
            results.add(writer.await(1L << 40, 0));
            assertNull(writer.claim(-1, 1, null, 0, 0));
            results.add(writer.lastResult());
            assertNull(writer.claim(1, 1, null, 0, 3));
            results.add(writer.lastResult());
            assertTrue(results.stream().allMatch(r -> r == Result.INVALID), results::toString);
            assertEquals(Result.OK, append(writer, 0));
            assertEquals(Result.OK, writer.append(new byte[0], 0, 0, 0, null, 0, 0, 0, null));
            assertEquals(2, ring.read().size());
        }
    }

    private static MemorySegment closedSegment() {
        final Arena arena = Arena.ofConfined();
        final MemorySegment segment = arena.allocate(100);
        arena.close();
        return segment;
    }

    @Test
    void shouldResolveWhatWasUnknown() throws Exception {
        try (TestRing ring = TestRing.onDisk(1 << 20); Writer writer = ring.writer()) {
            Result result = Result.OK;
            for (int i = 0; i < 1000 && result == Result.OK; i++) {
                result = append(writer, -1); // the disk may be faster than the first look at the clock
            }
            assertEquals(Result.UNKNOWN, result);
            final long lsn = position.lsn();
            assertNotEquals(0, lsn);
            assertEquals(Result.OK, writer.resolve(lsn, 5_000_000_000L, position));
            assertEquals(lsn, position.lsn());
            assertEquals(Result.NOT_FOUND, writer.resolve(lsn + 64, 5_000_000_000L, position));
            assertEquals(Result.NOT_FOUND, writer.resolve(1L << 40, 5_000_000_000L, null));
        }
        try (TestRing ring = TestRing.onDisk(1 << 20); SharedWriter writer = ring.shared()) {
            Result result = Result.OK;
            for (int i = 0; i < 1000 && result == Result.OK; i++) {
                result = append(writer, -1);
            }
            assertEquals(Result.UNKNOWN, result);
            assertEquals(Result.OK, writer.resolve(position.lsn(), 5_000_000_000L, position));
        }
    }

    @Test
    void shouldMakeDurableWhatWasSubmitted() throws Exception {
        try (TestRing ring = TestRing.onDisk(1 << 20); Writer writer = ring.writer()) {
            for (int i = 0; i < 5; i++) {
                assertEquals(Result.OK, writer.submit(ByteBuffer.wrap(DATA), 1, null, position));
                assertEquals(Level.POSTED, position.level());
            }
            final long end = position.endLsn();
            assertEquals(Result.OK, writer.poll());
            assertEquals(Result.OK, writer.await(end, 5_000_000_000L));
            assertEquals(Result.OK, writer.poll());
            assertTrue(writer.durableLsn() >= end);
            assertEquals(Result.OK, writer.heartbeat(5_000_000_000L, position));
            assertEquals(Result.OK, writer.closeWithResult());
        }
    }

    @Test
    void shouldReturnClosedFromEveryCallAfterClose() throws Exception {
        try (TestRing ring = TestRing.inMemory(1 << 20)) {
            final Writer writer = ring.writer();
            writer.close();
            writer.close();
            assertEquals(Result.CLOSED, append(writer, 0));
            assertEquals(Result.CLOSED, writer.append(ByteBuffer.wrap(DATA), 1, null, 0, position));
            assertEquals(Result.CLOSED, writer.append(MemorySegment.ofArray(DATA), 1, null, 0, position));
            assertEquals(Result.CLOSED, writer.tryAppend(DATA, 0, 1, 1, null, 0, 0, null));
            assertEquals(Result.CLOSED, writer.submit(DATA, 0, 1, 1, null, 0, 0, null));
            assertEquals(Result.CLOSED, writer.poll());
            assertEquals(Result.CLOSED, writer.await(0, 0));
            assertNull(writer.claim(1, 1, null, 0, 0));
            assertEquals(Result.CLOSED, writer.lastResult());
            assertEquals(Result.CLOSED, writer.commit(0, null));
            assertEquals(Result.CLOSED, writer.resolve(0, 0, null));
            assertEquals(Result.CLOSED, writer.heartbeat(0, null));
            assertNull(writer.counters());
            final SharedWriter shared = ring.shared();
            shared.close();
            shared.close();
            assertEquals(Result.CLOSED, append(shared, 0));
            assertEquals(Result.CLOSED, shared.resolve(0, 0, null));
            assertNull(shared.counters());
            final Reader reader = Reader.open(ring.uri, ReaderOptions.defaults());
            reader.close();
            reader.close();
            assertEquals(Result.CLOSED, reader.read(new Batch()));
            assertEquals(Result.CLOSED, reader.release(new Batch()));
            assertNull(reader.status());
        }
    }

    @Test
    void shouldRefuseASecondWriterAndNameTheHolder() throws Exception {
        try (TestRing ring = TestRing.inMemory(1 << 20);
            Writer first = Writer.open(ring.uri, ring.options().withName("matching-engine-7"))) {
            assertEquals(Result.OK, append(first, 0));
            final FarlogException held = assertThrows(FarlogException.class,
                () -> Writer.open(ring.uri, ring.options()));
            assertEquals(Result.HELD, held.result());
            assertTrue(held.getMessage().contains("matching-engine-7"), held.getMessage());
            assertThrows(FarlogException.class, () -> SharedWriter.open(ring.uri, ring.options()));
            assertEquals(Result.OK, append(first, 0));
            assertTrue(Ring.inspect(ring.uri).writerHeld());
        }
    }

    @Test
    void shouldRefuseAtOpenWhatCannotBeGiven() throws Exception {
        try (TestRing ring = TestRing.inMemory(1 << 20)) {
            final FarlogException level = assertThrows(FarlogException.class,
                () -> Writer.open(ring.uri, ring.options().withLevel(Level.PERSISTENT)));
            assertEquals(Result.LEVEL, level.result());
            assertEquals(Result.EXISTS, assertThrows(FarlogException.class,
                () -> Ring.format(ring.uri, RingOptions.defaults().withSizeBytes(1 << 20))).result());
            assertEquals(Result.NOT_A_RING, assertThrows(FarlogException.class,
                () -> Writer.open(ring.uri, ring.options().withRingUuid(new java.util.UUID(1, 2)))).result());
            try (Writer writer = Writer.open(ring.uri,
                ring.options().withEpoch(5).withRingUuid(Ring.inspect(ring.uri).ringUuid()))) {
                assertEquals(5, writer.recovery().epoch());
            }
            assertEquals(Result.FENCED, assertThrows(FarlogException.class,
                () -> Writer.open(ring.uri, ring.options().withEpoch(4))).result());
        }
        final FarlogException missing = assertThrows(FarlogException.class,
            () -> Reader.open("mem:/dev/shm/none/at/all", ReaderOptions.defaults()));
        assertEquals(Result.NOT_FOUND, missing.result());
        assertTrue(missing.getMessage().endsWith("farlog ring format 'mem:/dev/shm/none/at/all' --size 64MiB"),
            missing.getMessage());
        assertEquals(Result.INVALID, assertThrows(FarlogException.class, () -> Ring.probe("nothing:here")).result());
    }

    @Test
    void shouldKeepTheClaimWhenRingIsFull() throws Exception {
        try (TestRing ring = TestRing.inMemory(SMALL); Writer writer = ring.writer()) {
            fill(writer);
            final MemorySegment claim = writer.claim(DATA.length, 4, null, 0, 0);
            MemorySegment.copy(MemorySegment.ofArray(TestRing.bytes("kept")), 0, claim, 0, 4);
            assertEquals(Result.FULL, writer.commit(20_000_000L, position));
            ring.empty();
            assertEquals(Result.OK, writer.commit(0, position));
            final TestRing.Read read = ring.read().getLast();
            assertEquals(4, read.classId());
            assertArrayEquals(TestRing.bytes("kept"), java.util.Arrays.copyOf(read.payload(), 4));
        }
    }

    @Test
    void shouldRefuseATextWithANulByte() throws Exception {
        try (TestRing ring = TestRing.inMemory(SMALL)) {
            final String uri = ring.uri + "\0.old"; // C would open what is before it
            final List<Executable> calls = List.of(() -> Ring.inspect(uri),
                () -> Ring.format(uri, RingOptions.defaults().withForce(true)),
                () -> Writer.open(uri, ring.options()), () -> SharedWriter.open(uri, ring.options()),
                () -> Reader.open(uri, ReaderOptions.defaults()),
                () -> Writer.open(ring.uri, ring.options().withCountersDir("a\0b")));
            for (final Executable call : calls) {
                final FarlogException refused = assertThrows(FarlogException.class, call);
                assertEquals(Result.INVALID, refused.result());
                assertTrue(refused.getMessage().contains("has a NUL byte at "), refused.getMessage());
            }
            assertTrue(assertThrows(FarlogException.class, () -> Ring.inspect(uri)).getMessage()
                .contains(ring.uri + "\\0.old"));
        }
    }

    @Test
    void shouldTellCounters() throws Exception {
        try (TestRing ring = TestRing.inMemory(1 << 20);
            Writer writer = Writer.open(ring.uri, ring.options().withCountersDir(null))) {
            for (int i = 0; i < 100; i++) {
                append(writer, 0);
            }
            final Counters counters = writer.counters();
            assertEquals(100, counters.value(Counter.RECORD_COUNT));
            assertEquals(100 * 192 + 32, counters.value(Counter.PAYLOAD_BYTES));
            assertEquals(writer.cursors().appendedLsn(), counters.value(Counter.APPENDED_LSN));
            assertTrue(counters.latencyCount() >= 100);
            assertTrue(counters.latencyP50Nanos() > 0 && counters.latencyMaxNanos() >= counters.latencyP99Nanos());
        }
    }
}
