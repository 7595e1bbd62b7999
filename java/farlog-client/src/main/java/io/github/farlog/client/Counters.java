package io.github.farlog.client;

import static io.github.farlog.client.Structs.COUNTERS;
import static io.github.farlog.client.Structs.MEMBER_COUNTERS;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.UUID;

/** A writer's numbers at one moment. Immutable; any thread. */
public final class Counters {
    private final MemorySegment values; // on the heap
    private final List<Member> members;
    private final long p50;
    private final long p99;
    private final long p999;
    private final long p9999;

    /** What the writer keeps of one ring of its stream. */
    public static final class Member {
        private final MemorySegment values; // on the heap

        private Member(final MemorySegment counters) {
            values = NativeCalls.copy(counters);
        }

        /**
         * One of the numbers.
         *
         * @param counter which
         * @return its value
         */
        public long value(final MemberCounter counter) {
            return Structs.getLong(values, MEMBER_COUNTERS, counter.metric());
        }
    }

    private Counters(final MemorySegment counters, final List<Member> members) {
        values = NativeCalls.copy(counters);
        this.members = members;
        p50 = quantile(counters, 0.5);
        p99 = quantile(counters, 0.99);
        p999 = quantile(counters, 0.999);
        p9999 = quantile(counters, 0.9999);
    }

    /** Reads the exported counters of a ring; where they are private to the writer, what its cursors tell. */
    static Counters read(final String countersDir, final UUID ringUuid, final Cursors cursors, final Level level) {
        try (Arena arena = Arena.ofConfined()) {
            final MemorySegment counters = arena.allocate(COUNTERS);
            final MemorySegment error = arena.allocate(Structs.ERROR);
            final boolean isPrivate = countersDir != null && countersDir.isEmpty();
            final int code = isPrivate ? Result.NOT_FOUND.code()
                : (int) Native.Counts.READ.invokeExact(NativeCalls.text(arena, "counters folder", countersDir),
                    NativeCalls.uuid(arena, ringUuid),
                    counters.address(), error.address());
            if (code != 0) {
                counters.fill((byte) 0);
                set(counters, Counter.LEVEL, level == null ? 0 : level.code());
                set(counters, Counter.PID, ProcessHandle.current().pid());
            }
            set(counters, Counter.APPENDED_LSN, cursors.appendedLsn());
            set(counters, Counter.DURABLE_LSN, cursors.durableLsn());
            set(counters, Counter.CREDIT_LSN, cursors.headLsn());
            set(counters, Counter.CAPACITY_BYTES, cursors.capacityBytes());
            set(counters, Counter.EPOCH, cursors.epoch());
            set(counters, Counter.PRESSURE, cursors.pressure());
            return new Counters(counters, isPrivate ? List.of() : readMembers(arena, countersDir, ringUuid));
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    private static List<Member> readMembers(final Arena arena, final String countersDir, final UUID ringUuid)
        throws Throwable {
        final MemorySegment seen = arena.allocate(MEMBER_COUNTERS, Structs.MEMBER_COUNT_MAX);
        final MemorySegment count = arena.allocate(ValueLayout.JAVA_INT);
        final MemorySegment error = arena.allocate(Structs.ERROR);
        final int code = (int) Native.Counts.READ_MEMBERS.invokeExact(
            NativeCalls.text(arena, "counters folder", countersDir),
            NativeCalls.uuid(arena, ringUuid),
            seen.address(), Structs.MEMBER_COUNT_MAX, count.address(), error.address());
        return code == 0
            ? seen.elements(MEMBER_COUNTERS).limit(count.get(ValueLayout.JAVA_INT, 0)).map(Member::new).toList()
            : List.of();
    }

    private static void set(final MemorySegment counters, final Counter counter, final long value) {
        Structs.setLong(counters, COUNTERS, counter.metric(), value);
    }

    private static long quantile(final MemorySegment counters, final double quantile) {
        try {
            return (long) Native.Counts.QUANTILE.invokeExact(counters.address(), quantile);
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    /**
     * One of the numbers.
     *
     * @param counter which
     * @return its value; 0 when the writer keeps its counters private and its cursors do not tell
     */
    public long value(final Counter counter) {
        return Structs.getLong(values, COUNTERS, counter.metric());
    }

    /**
     * What the writer keeps of each ring of its stream.
     *
     * @return in the order of the URI; empty of a stream with one ring, and when the writer keeps its counters private
     */
    public List<Member> members() {
        return members;
    }

    /**
     * How many appends were timed.
     *
     * @return count
     */
    public long latencyCount() {
        return Structs.getLong(values, COUNTERS, "latency_count");
    }

    /**
     * Sum of the timed appends.
     *
     * @return nanoseconds
     */
    public long latencySumNanos() {
        return Structs.getLong(values, COUNTERS, "latency_sum_ns");
    }

    /**
     * The longest append.
     *
     * @return nanoseconds
     */
    public long latencyMaxNanos() {
        return Structs.getLong(values, COUNTERS, "latency_max_ns");
    }

    /**
     * Median latency of an append inside the library.
     *
     * @return nanoseconds, 3.2 % at most too high
     */
    public long latencyP50Nanos() {
        return p50;
    }

    /**
     * The 99th percentile.
     *
     * @return nanoseconds
     */
    public long latencyP99Nanos() {
        return p99;
    }

    /**
     * The 99.9th percentile.
     *
     * @return nanoseconds
     */
    public long latencyP999Nanos() {
        return p999;
    }

    /**
     * The 99.99th percentile.
     *
     * @return nanoseconds
     */
    public long latencyP9999Nanos() {
        return p9999;
    }
}
