package io.github.farlog.log4j2;

import java.util.concurrent.atomic.AtomicLongArray;

/**
 * Latencies in nanoseconds, 16 buckets an octave: a quantile is at most 6.3 % above the true one. Threads: any; nothing
 * allocates. Threads count in stripes of their own, as far as there are so many: ten that log share no line of memory
 * here.
 */
final class LatencyHistogram {
    private static final int SUB_BITS = 4;
    private static final int SUB_COUNT = 1 << SUB_BITS;
    private static final long NANOS_MAX = Long.MAX_VALUE >> 4;

    private static final int BUCKET_COUNT = Long.SIZE - SUB_BITS << SUB_BITS;
    private static final int STRIPE_BITS = 4;
    /** A multiplication by it spreads numbers that follow one another over the upper bits. */
    private static final long GOLDEN = 0x9E3779B97F4A7C15L;

    private final AtomicLongArray[] stripes = new AtomicLongArray[1 << STRIPE_BITS];

    LatencyHistogram() {
        for (int i = 0; i < stripes.length; i++) {
            stripes[i] = new AtomicLongArray(BUCKET_COUNT);
        }
    }

    void record(final long nanos) {
        final int stripe = (int) (Thread.currentThread().threadId() * GOLDEN >>> Long.SIZE - STRIPE_BITS);
        stripes[stripe].getAndIncrement(indexOf(Math.clamp(nanos, 0, NANOS_MAX)));
    }

    /** How many were recorded. */
    long count() {
        long total = 0;
        for (int i = 0; i < BUCKET_COUNT; i++) {
            total += inBucket(i);
        }
        return total;
    }

    private long inBucket(final int index) {
        long total = 0;
        for (final AtomicLongArray stripe : stripes) {
            total += stripe.get(index);
        }
        return total;
    }

    /** Upper bound of the bucket that holds the quantile, 0 when nothing was recorded. */
    long quantile(final double quantile) {
        final long total = count();
        final long rank = (long) Math.ceil(total * quantile);
        long seen = 0;
        for (int i = 0; i < BUCKET_COUNT && total > 0; i++) {
            seen += inBucket(i);
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
