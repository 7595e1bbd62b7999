package io.github.farlog.log4j2;

import java.util.concurrent.atomic.AtomicLongArray;

/**
 * Latencies in nanoseconds, 16 buckets an octave: a quantile is at most 6.3 % above the true one. Threads: any; nothing allocates.
 */
final class LatencyHistogram {
    private static final int SUB_BITS = 4;
    private static final int SUB_COUNT = 1 << SUB_BITS;
    private static final long NANOS_MAX = Long.MAX_VALUE >> 4;

    private final AtomicLongArray buckets = new AtomicLongArray(Long.SIZE - SUB_BITS << SUB_BITS);

    void record(final long nanos) {
        buckets.getAndIncrement(indexOf(Math.clamp(nanos, 0, NANOS_MAX)));
    }

    /** Upper bound of the bucket that holds the quantile, 0 when nothing was recorded. */
    long quantile(final double quantile) {
        long total = 0;
        for (int i = 0; i < buckets.length(); i++) {
            total += buckets.get(i);
        }
        final long rank = (long) Math.ceil(total * quantile);
        long seen = 0;
        for (int i = 0; i < buckets.length() && total > 0; i++) {
            seen += buckets.get(i);
            if (seen >= rank && seen > 0) {
                return upperBound(i);
            }
        }
        return 0;
    }

    static int indexOf(final long nanos) {
        if (nanos < SUB_COUNT) {
            return (int) nanos;
        }
        final int shift = Long.SIZE - 1 - Long.numberOfLeadingZeros(nanos) - SUB_BITS;
        return (shift + 1 << SUB_BITS) + (int) (nanos >>> shift) - SUB_COUNT;
    }

    static long upperBound(final int index) {
        if (index < SUB_COUNT) {
            return index;
        }
        final int shift = (index >> SUB_BITS) - 1;
        return ((long) (index & SUB_COUNT - 1) + SUB_COUNT + 1 << shift) - 1;
    }
}
