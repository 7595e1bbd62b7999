package io.github.farlog.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

/**
 * A record that is filled in place: what lies in it arrives, however it grew, and its memory stays as long as C may
 * read it.
 */
class RecordBufferTest {
    private static final int GC_MAX = 100;
    private final Position position = new Position();

    @Test
    void shouldGiveBackWhatWasPut() throws Exception {
        final RecordBuffer record = new RecordBuffer(0, 1 << 20, 0);
        final byte[] data = new byte[1 << 20];
        final byte[] key = new byte[65535];
        new Random(7).nextBytes(data);
        new Random(8).nextBytes(key);
        try (TestRing ring = TestRing
            .inMemory(RingOptions.defaults().withSizeBytes(16 << 20).withRecordLenMax(2 << 20))) {
            try (SharedWriter writer = ring.shared()) {
                for (final int len : new int[] {0, 1, 200, data.length}) {
                    record.clear();
                    fill(record, data, len, key, Math.min(len, key.length));
                    assertEquals(Result.OK, writer.append(record, 7, 0, position));
                    assertEquals(Level.VISIBLE, position.level());
                }
            }
            final List<TestRing.Read> all = ring.read();
            assertEquals(4, all.size());
            for (final TestRing.Read read : all) {
                final int len = read.payload().length;
                assertArrayEquals(java.util.Arrays.copyOf(data, len), read.payload());
                assertArrayEquals(java.util.Arrays.copyOf(key, Math.min(len, key.length)), read.key());
                assertEquals(7, read.classId());
            }
            assertEquals(data.length, all.getLast().payload().length);
        }
    }

    private static void fill(final RecordBuffer record, final byte[] data, final int len, final byte[] key,
        final int keyLen) {
        for (int i = 0; i < len; i++) {
            final ByteBuffer room = record.payload();
            (room.hasRemaining() ? room : record.grow()).put(data[i]);
        }
        for (int i = 0; i < keyLen; i++) {
            final ByteBuffer room = record.key();
            (room.hasRemaining() ? room : record.growKey()).put(key[i]);
        }
    }

    @Test
    void shouldGrowNoFurtherThanItMay() {
        final RecordBuffer record = new RecordBuffer(100, 250, 0);
        assertEquals(100, record.payload().capacity());
        assertEquals(200, record.grow().capacity());
        assertEquals(250, record.grow().capacity());
        assertNull(record.grow());
        ByteBuffer key = record.key();
        for (ByteBuffer larger = key; larger != null; larger = record.growKey()) {
            key = larger;
        }
        assertEquals(65535, key.capacity());
        assertThrows(IllegalArgumentException.class, () -> new RecordBuffer(2, 1, 0));
        assertThrows(IllegalArgumentException.class, () -> new RecordBuffer(-1, 1, 0));
        assertThrows(IllegalArgumentException.class, () -> new RecordBuffer(0, 1, 65536));
    }

    @Test
    void shouldRefuseWhatIsOutOfRange() throws Exception {
        try (TestRing ring = TestRing.inMemory(1 << 20)) {
            final SharedWriter writer = ring.shared();
            final RecordBuffer record = new RecordBuffer(10, 1 << 20, 0);
            assertEquals(Result.INVALID, writer.append(record, 65536, 0, position));
            assertEquals(Result.INVALID, writer.append(record, -1, 0, position));
            assertEquals(Result.INVALID, writer.append((RecordBuffer) null, 1, 0, position));
            while (record.grow() != null) {
                continue;
            }
            record.payload().position(1 << 20);
            assertEquals(Result.TOO_LARGE, writer.append(record, 1, 0, position));
            writer.close();
            assertEquals(Result.CLOSED, writer.append(record, 1, 0, position));
            assertEquals(0, ring.read().size());
        }
    }

    /**
     * A thread that grows a buffer which another thread is just appending must not take the memory away from under it.
     */
    @Test
    void shouldKeepMemoryThatACallHas() throws Exception {
        final CallFrame frame = new CallFrame(1 << 20);
        final RecordBuffer record = new RecordBuffer(100, 1000, 10);
        final WeakReference<RecordBuffer.Piece> lent = new WeakReference<>(record.payloadPiece());
        final WeakReference<RecordBuffer.Piece> lentKey = new WeakReference<>(record.keyPiece());
        frame.putBorrowed(record, 1);
        record.grow();
        record.growKey();
        System.gc();
        assertNotNull(lent.get());
        assertNotNull(lentKey.get());
        frame.releaseBorrowed();
        for (int i = 0; i < GC_MAX && (lent.get() != null || lentKey.get() != null); i++) {
            System.gc();
            Thread.sleep(1);
        }
        assertNull(lent.get());
        assertNull(lentKey.get());
    }
}
