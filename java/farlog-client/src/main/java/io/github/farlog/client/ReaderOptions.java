package io.github.farlog.client;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.UUID;

/**
 * How a reader is opened. Immutable: each {@code with} gives a changed copy.
 *
 * @param start where to begin
 * @param draining take the ring's drain lock, so that {@link Reader#release} may be called
 * @param lsn for {@link Start#LSN}: a record's start, not below the head
 * @param ringUuids refuse any other ring, one for each member of a {@code members:} URI in its order, where null is
 * any; none = take what is there
 */
public record ReaderOptions(Start start, boolean draining, long lsn, List<UUID> ringUuids) {
    private static final ReaderOptions DEFAULTS = new ReaderOptions(Start.HEAD, false, 0, List.of());

    /** Copies the identities. */
    public ReaderOptions {
        ringUuids = Collections.unmodifiableList(new ArrayList<>(ringUuids)); // List.copyOf takes no null
    }

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
        return new ReaderOptions(Start.LSN, draining, value, ringUuids);
    }

    /**
     * Begins with what is appended from now on.
     *
     * @return changed copy
     */
    public ReaderOptions withTail() {
        return new ReaderOptions(Start.TAIL, draining, 0, ringUuids);
    }

    /**
     * Takes the drain lock.
     *
     * @return changed copy
     */
    public ReaderOptions withDraining() {
        return new ReaderOptions(start, true, lsn, ringUuids);
    }

    /**
     * Refuses any ring but this.
     *
     * @param value null = take what is there
     * @return changed copy
     */
    public ReaderOptions withRingUuid(final UUID value) {
        return withRingUuids(value == null ? List.of() : List.of(value));
    }

    /**
     * Refuses any members but these.
     *
     * @param values one for each URI of a {@code members:} URI, in its order; null = take what is there
     * @return changed copy
     */
    public ReaderOptions withRingUuids(final List<UUID> values) {
        return new ReaderOptions(start, draining, lsn, values);
    }
}
