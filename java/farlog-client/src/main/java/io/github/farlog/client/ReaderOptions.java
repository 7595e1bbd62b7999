package io.github.farlog.client;

import java.util.UUID;

/**
 * How a reader is opened. Immutable: each {@code with} gives a changed copy.
 *
 * @param start where to begin
 * @param draining take the ring's drain lock, so that {@link Reader#release} may be called
 * @param lsn for {@link Start#LSN}: a record's start, not below the head
 * @param ringUuid refuse any other ring; null = take what is there
 */
public record ReaderOptions(Start start, boolean draining, long lsn, UUID ringUuid) {
    private static final ReaderOptions DEFAULTS = new ReaderOptions(Start.HEAD, false, 0, null);

    /** Where a reader begins. */
    public enum Start {
        /** At the oldest record that is not drained. */
        HEAD,
        /** At a given position. */
        LSN,
        /** With what is appended from now on. */
        TAIL
    }

    /**
     * From the head, without the drain lock.
     *
     * @return the defaults
     */
    public static ReaderOptions defaults() {
        return DEFAULTS;
    }

    /**
     * Begins at a record.
     *
     * @param value where it begins, not below the head
     * @return changed copy
     */
    public ReaderOptions withLsn(final long value) {
        return new ReaderOptions(Start.LSN, draining, value, ringUuid);
    }

    /**
     * Begins with what is appended from now on.
     *
     * @return changed copy
     */
    public ReaderOptions withTail() {
        return new ReaderOptions(Start.TAIL, draining, 0, ringUuid);
    }

    /**
     * Takes the drain lock.
     *
     * @return changed copy
     */
    public ReaderOptions withDraining() {
        return new ReaderOptions(start, true, lsn, ringUuid);
    }

    /**
     * Refuses any ring but this.
     *
     * @param value null = take what is there
     * @return changed copy
     */
    public ReaderOptions withRingUuid(final UUID value) {
        return new ReaderOptions(start, draining, lsn, value);
    }
}
