package io.github.farlog.client;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemoryLayout.PathElement;
import java.lang.foreign.MemorySegment;
import java.util.Objects;

/**
 * What a route says of a record. Made once by the caller and filled by each call, so that appending allocates nothing.
 * Legs are numbered from 0, in the order in which the route has them.
 *
 * <p>Belongs to one thread at a time. Its values are those of the last call that was given it.
 */
public final class RoutePosition {
    private static final long LEVEL_OFF = Structs.off(Structs.ROUTE_POSITION, "level");
    private static final long REQUIRED_OFF = Structs.off(Structs.ROUTE_POSITION, "required");
    private static final long OPTIONAL_OFF = Structs.off(Structs.ROUTE_POSITION, "optional");
    private static final long DROPPED_OFF = Structs.off(Structs.ROUTE_POSITION, "dropped");
    private static final long LEGS_OFF = Structs.off(Structs.ROUTE_POSITION, "legs");
    private static final long LEG_LEN = Structs.ROUTE_RESULT.byteSize();
    private static final long RESULT_OFF = Structs.off(Structs.ROUTE_RESULT, "result");
    private static final long BUFFERED_OFF = Structs.off(Structs.ROUTE_RESULT, "is_buffered");
    private static final long POSITION_OFF = Structs.ROUTE_RESULT.byteOffset(PathElement.groupElement("position"));
    private static final long LSN_OFF = POSITION_OFF + Structs.off(Structs.POSITION, "lsn");
    private static final long SEQ_OFF = POSITION_OFF + Structs.off(Structs.POSITION, "seq");
    private static final long EPOCH_OFF = POSITION_OFF + Structs.off(Structs.POSITION, "epoch");
    private static final long REACHED_OFF = POSITION_OFF + Structs.off(Structs.POSITION, "level");
    private static final long COPIES_OFF = POSITION_OFF + Structs.off(Structs.POSITION, "copies");
    private static final long END_OFF = POSITION_OFF + Structs.off(Structs.POSITION, "end_lsn");

    /** C fills it in place: nothing is copied. Freed with the object. */
    private final MemorySegment memory = Arena.ofAuto().allocate(Structs.ROUTE_POSITION);
    /** Whose legs these are: another route has others. */
    private Route route;

    /** A position of nothing: no leg takes the record. */
    public RoutePosition() {
    }

    /**
     * The lowest level that a required leg reached.
     *
     * @return null: it was not written, or no required leg takes this record
     */
    public Level level() {
        return Level.of(memory.get(JAVA_INT, LEVEL_OFF));
    }

    /**
     * Whether a required leg takes the record. Without one nobody has acknowledged it, whatever the result.
     *
     * @return true: the result is that of the required legs
     */
    public boolean hasRequired() {
        return memory.get(JAVA_INT, REQUIRED_OFF) != 0;
    }

    /**
     * Whether this leg takes the record and had to be waited for.
     *
     * @param leg from 0
     * @return false also when there is no such leg
     */
    public boolean isRequired(final int leg) {
        return has(REQUIRED_OFF, leg);
    }

    /**
     * Whether this leg takes the record and was not waited for.
     *
     * @param leg from 0
     * @return false also when there is no such leg
     */
    public boolean isOptional(final int leg) {
        return has(OPTIONAL_OFF, leg);
    }

    /**
     * Whether this leg is optional, was to take the record, and has dropped it.
     *
     * @param leg from 0
     * @return true: a gap record in its stream will tell
     */
    public boolean isDropped(final int leg) {
        return has(DROPPED_OFF, leg);
    }

    /**
     * What this leg says of the record.
     *
     * @param leg from 0
     * @return {@link Result#NOT_FOUND}: it does not take it
     */
    public Result result(final int leg) {
        return takes(leg) ? Result.of(memory.get(JAVA_INT, off(leg) + RESULT_OFF)) : Result.NOT_FOUND;
    }

    /**
     * Whether the record is in this leg's spill, or in the memory of an optional leg, and will be carried to its ring.
     *
     * @param leg from 0
     * @return then {@link #position} is that in spill or memory
     */
    public boolean isBuffered(final int leg) {
        return takes(leg) && memory.get(JAVA_INT, off(leg) + BUFFERED_OFF) != 0;
    }

    /**
     * Where the record is in this leg.
     *
     * @param leg from 0
     * @param out is filled; all zero when the leg does not take the record
     * @return out
     */
    public Position position(final int leg, final Position out) {
        if (!takes(leg)) {
            out.clear();
            return out;
        }
        final long at = off(leg);
        out.set(memory.get(JAVA_LONG, at + LSN_OFF), memory.get(JAVA_LONG, at + SEQ_OFF),
            memory.get(JAVA_INT, at + EPOCH_OFF),
            memory.get(JAVA_BYTE, at + REACHED_OFF), memory.get(JAVA_BYTE, at + COPIES_OFF),
            memory.get(JAVA_LONG, at + END_OFF));
        return out;
    }

    /** Where the record is in the first required leg, at the lowest level that any of them reached. */
    void firstRequired(final Position out) {
        final int required = memory.get(JAVA_INT, REQUIRED_OFF);
        if (required == 0) {
            out.clear();
            return;
        }
        final long at = off(Integer.numberOfTrailingZeros(required));
        out.set(memory.get(JAVA_LONG, at + LSN_OFF), memory.get(JAVA_LONG, at + SEQ_OFF),
            memory.get(JAVA_INT, at + EPOCH_OFF),
            memory.get(JAVA_INT, LEVEL_OFF), memory.get(JAVA_BYTE, at + COPIES_OFF),
            memory.get(JAVA_LONG, at + END_OFF));
    }

    void set(final RoutePosition other) {
        route = other.route;
        memory.copyFrom(other.memory);
    }

    private boolean takes(final int leg) {
        return has(REQUIRED_OFF, leg) || has(OPTIONAL_OFF, leg);
    }

    private boolean has(final long maskOff, final int leg) {
        return leg >= 0 && leg < Structs.ROUTE_LEG_COUNT_MAX && (memory.get(JAVA_INT, maskOff) >>> leg & 1) != 0;
    }

    private static long off(final int leg) {
        return LEGS_OFF + leg * LEG_LEN;
    }

    /** Where C finds it; it stays there for as long as this object can be reached. */
    long address() {
        return memory.address();
    }

    /** C is about to fill it for this route. */
    void begin(final Route filledBy) {
        route = filledBy;
        clear();
    }

    boolean isOf(final Route asked) {
        return route == asked;
    }

    /** No leg, no level. */
    void clear() {
        memory.set(JAVA_INT, LEVEL_OFF, 0);
        memory.set(JAVA_INT, REQUIRED_OFF, 0);
        memory.set(JAVA_INT, OPTIONAL_OFF, 0);
        memory.set(JAVA_INT, DROPPED_OFF, 0);
    }

    @Override
    public String toString() {
        final StringBuilder text = new StringBuilder("level ").append(Objects.toString(level(), "none"));
        for (int leg = 0; leg < Structs.ROUTE_LEG_COUNT_MAX; leg++) {
            if (takes(leg)) {
                text.append(", leg ").append(leg).append(isRequired(leg) ? " required " : " optional ")
                    .append(result(leg))
                    .append(isDropped(leg) ? " dropped" : isBuffered(leg) ? " buffered" : "");
            }
        }
        return text.toString();
    }
}
