package io.github.farlog.client;

/**
 * What a program says of a route that it opens by its name. Immutable; any thread.
 *
 * @param spillDir folder of the rings that keep what a leg that spills cannot take; made when it is missing. null = the
 * environment's FARLOG_SPILL_DIR
 * @param name of the writer, told to others who find a ring held; null = the program's name
 * @param countersDir folder of the counter files; null = the machine's common one; "" = counters private to this
 * process
 * @param spinning wait by spinning only: for a pinned thread on a core of its own
 */
public record RouteOptions(String spillDir, String name, String countersDir, boolean spinning) {
    private static final RouteOptions DEFAULTS = new RouteOptions(null, null, null, false);

    /**
     * Spills where the environment says, the program's name, the machine's counters.
     *
     * @return the defaults
     */
    public static RouteOptions defaults() {
        return DEFAULTS;
    }

    /**
     * Sets where the spills are.
     *
     * @param value a folder on a medium that gives the legs' levels; null = the environment's FARLOG_SPILL_DIR
     * @return changed copy
     */
    public RouteOptions withSpillDir(final String value) {
        return new RouteOptions(value, name, countersDir, spinning);
    }

    /**
     * Names the writer.
     *
     * @param value null = the program's name
     * @return changed copy
     */
    public RouteOptions withName(final String value) {
        return new RouteOptions(spillDir, value, countersDir, spinning);
    }

    /**
     * Sets the folder of the counter files.
     *
     * @param value null = the machine's common one; "" = counters private to this process
     * @return changed copy
     */
    public RouteOptions withCountersDir(final String value) {
        return new RouteOptions(spillDir, name, value, spinning);
    }

    /**
     * Waits by spinning only.
     *
     * @param value true for a pinned thread on a core of its own
     * @return changed copy
     */
    public RouteOptions withSpinning(final boolean value) {
        return new RouteOptions(spillDir, name, countersDir, value);
    }
}
