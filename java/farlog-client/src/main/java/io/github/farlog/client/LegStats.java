package io.github.farlog.client;

import static io.github.farlog.client.Structs.LEG_STATS;

import java.lang.foreign.MemorySegment;

/**
 * How one leg of a route stands, as JMX and other monitoring take it. Counts are of records, since the route was
 * opened. Immutable; any thread.
 *
 * @param name of the leg
 * @param state how it stands
 * @param required whether appends wait for it
 * @param offered records that it was to take
 * @param acked acknowledged by its ring, carried ones too
 * @param unknown whose outcome in its ring was unknown at their deadline
 * @param spilled put into the spill
 * @param carried from spill or memory to the ring, by this process
 * @param dropped lost to this leg; a gap record in its stream tells of them
 * @param gaps GAP records offered to it for dropped records
 * @param doubts carried although the ring may have had them already
 * @param reopens times its ring was opened again
 * @param behindBytes in spill or memory, not yet in the ring
 * @param text what went wrong last with its ring; "" = nothing
 */
public record LegStats(String name, State state, boolean required, long offered, long acked, long unknown, long spilled,
    long carried, long dropped,
    long gaps, long doubts, long reopens, long behindBytes, String text) {

    /** In the order of the C core's numbers. */
    public enum State {
        /** Not told. */
        NONE,
        /** Required: records go straight to its ring. */
        DIRECT,
        /** Its thread has the ring open and carries records to it. */
        CARRYING,
        /** Its ring cannot be opened; it is tried again. {@link LegStats#text} says why. */
        AWAY,
        /** Another writer has its stream: nothing more is carried by this route. */
        FENCED
    }

    private static final State[] STATES = State.values();

    static LegStats of(final MemorySegment s) {
        final int state = Structs.getInt(s, LEG_STATS, "state");
        return new LegStats(Structs.getText(s, LEG_STATS, "name"),
            state < 0 || state >= STATES.length ? State.NONE : STATES[state],
            Structs.getInt(s, LEG_STATS, "is_required") != 0, Structs.getLong(s, LEG_STATS, "offered_count"),
            Structs.getLong(s, LEG_STATS, "acked_count"),
            Structs.getLong(s, LEG_STATS, "unknown_count"), Structs.getLong(s, LEG_STATS, "spilled_count"),
            Structs.getLong(s, LEG_STATS, "carried_count"),
            Structs.getLong(s, LEG_STATS, "dropped_count"), Structs.getLong(s, LEG_STATS, "gap_count"),
            Structs.getLong(s, LEG_STATS, "doubt_count"),
            Structs.getLong(s, LEG_STATS, "reopen_count"), Structs.getLong(s, LEG_STATS, "behind_bytes"),
            Structs.getText(s, LEG_STATS, "text"));
    }
}
