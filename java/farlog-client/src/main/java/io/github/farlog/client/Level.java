package io.github.farlog.client;

/**
 * How durable a record is, weakest first. What each level means on each kind of region: docs/explanation/durability.md.
 */
public enum Level {
    /** Handed over; survives nothing yet. */
    POSTED,
    /** Survives the death of this process. */
    VISIBLE,
    /** Survives a power cut. */
    PERSISTENT,
    /** In the central store, synced. */
    STORED,
    /** In the archive. */
    ARCHIVED;

    private static final Level[] ALL = values();

    /** The number of the C core. */
    int code() {
        return ordinal() + 1;
    }

    /** The level with the C core's number; null for 0, which is no level. */
    static Level of(final int code) {
        return code > 0 && code <= ALL.length ? ALL[code - 1] : null;
    }
}
