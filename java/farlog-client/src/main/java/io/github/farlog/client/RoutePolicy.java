package io.github.farlog.client;

/** What becomes of a record that a leg's ring cannot take. In the order of the C core's numbers. */
public enum RoutePolicy {
    /** A required leg's refusal is the result of the append. Of an optional leg it is {@link #DROP}. */
    FAIL,
    /**
     * A ring on this host keeps it, and it is carried to the leg's ring later, in order, none twice and none lost, also
     * by the next process that opens the spill.
     */
    SPILL,
    /**
     * Of optional legs: it waits in memory of this process. What finds no room there is counted, and a record with the
     * flag GAP says so.
     */
    DROP
}
