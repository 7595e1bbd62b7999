package io.github.farlog.client;

import static io.github.farlog.client.Structs.COUNTERS;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/** A writer's numbers at one moment. Immutable; any thread. */
public final class Counters {
    private final MemorySegment values; // on the heap
    private final long p50;
    private final long p99;
    private final long p999;
    private final long p9999;

    private Counters(final MemorySegment counters) {
        values = Cold.copy(counters);
        p50 = quantile(counters, 0.5);
        p99 = quantile(counters, 0.99);
        p999 = quantile(counters, 0.999);
        p9999 = quantile(counters, 0.9999);
    }

    /** Reads the exported counters of a ring; where they are private to the writer, what its cursors tell. */
    static Counters read(final String countersDir, final java.util.UUID ringUuid, final Cursors cursors, final Level level) {
        try (Arena arena = Arena.ofConfined()) {
            final MemorySegment counters = arena.allocate(COUNTERS);
            final MemorySegment error = arena.allocate(Structs.ERROR);
            final boolean isPrivate = countersDir != null && countersDir.isEmpty();
            final int code = isPrivate ? Result.NOT_FOUND.code()
                : (int) Native.COUNTERS_READ.invokeExact(Cold.text(arena, "counters folder", countersDir), Cold.uuid(arena, ringUuid),
                    counters.address(), error.address());
            if (code != 0) {
                counters.fill((byte) 0);
                set(counters, Counter.LEVEL, level.code());
                set(counters, Counter.PID, ProcessHandle.current().pid());
            }
            set(counters, Counter.APPENDED_LSN, cursors.appendedLsn());
            set(counters, Counter.DURABLE_LSN, cursors.durableLsn());
            set(counters, Counter.CREDIT_LSN, cursors.headLsn());
            set(counters, Counter.CAPACITY_BYTES, cursors.capacityBytes());
            set(counters, Counter.EPOCH, cursors.epoch());
            set(counters, Counter.PRESSURE, cursors.pressure());
            return new Counters(counters);
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    private static void set(final MemorySegment counters, final Counter counter, final long value) {
        Structs.setLong(counters, COUNTERS, counter.metric(), value);
    }

    private static long quantile(final MemorySegment counters, final double quantile) {
        try {
            return (long) Native.QUANTILE.invokeExact(counters.address(), quantile);
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
