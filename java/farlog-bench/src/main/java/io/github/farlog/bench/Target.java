package io.github.farlog.bench;

/**
 * Something that acknowledges records. One thread.
 *
 * <p>Every record is timed by two readings of {@link System#nanoTime}; samples are kept in an array, so that nothing
 * else happens between them.
 */
interface Target extends AutoCloseable {
    /** Bytes of a record that is compared with another system's. */
    int RECORD_LEN = 256;
    /** Different payloads: they change from record to record, as real ones do, and stay in the cache. */
    int PAYLOAD_COUNT = 64;

    /** As in the table. */
    String name();

    /** Records in a block; blocks of rivals alternate. About 1 to 10 ms. */
    default int blockCount() {
        return 2000;
    }

    /** Returns when the record is acknowledged. */
    void append(int i) throws Exception;

    /** Outside the clock, after each block of so many records. */
    default void rest(final int count) throws Exception {
    }

    /** As many records, back to back. */
    default void block(final long[] samples, final int count) throws Exception {
        for (int i = 0; i < count; i++) {
            final long before = System.nanoTime();
            append(i);
            samples[i] = System.nanoTime() - before;
        }
    }

    /**
     * As many records, due at fixed times: a late one counts from its due time, so that a stall is felt by all that it
     * delayed. Garbage is made before each, so that collections happen meanwhile.
     */
    default void paced(final long[] samples, final int count, final long intervalNanos, final Garbage garbage)
        throws Exception {
        long due = System.nanoTime() + intervalNanos;
        for (int i = 0; i < count; i++, due += intervalNanos) {
            garbage.make();
            while (System.nanoTime() < due) {
                Thread.onSpinWait();
            }
            append(i);
            samples[i] = System.nanoTime() - due;
        }
    }

    @Override
    void close() throws Exception;

    /** The payloads, all of one length. */
    static byte[][] payloads(final int len) {
        final byte[][] payloads = new byte[PAYLOAD_COUNT][len];
        for (int i = 0; i < PAYLOAD_COUNT; i++) {
            for (int j = 0; j < len; j++) {
                payloads[i][j] = (byte) (i * 7 + j * 31);
            }
        }
        return payloads;
    }
}
