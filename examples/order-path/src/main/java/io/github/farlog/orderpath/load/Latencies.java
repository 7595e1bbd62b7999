package io.github.farlog.orderpath.load;

import org.HdrHistogram.Histogram;

/** What one load step measured, of all its pairs together. */
public final class Latencies {
    private static final long NS_MAX = 3_600_000_000_000L;
    private static final int DIGITS = 3;

    private final Histogram totalNs = histogram();
    private final Histogram processNs = histogram();
    private long wantedCount;
    private long answeredCount;

    static Histogram histogram() {
        return new Histogram(1, NS_MAX, DIGITS);
    }

    void add(final Histogram pairTotalNs, final Histogram pairProcessNs, final long wanted, final long answered) {
        totalNs.add(pairTotalNs);
        processNs.add(pairProcessNs);
        wantedCount += wanted;
        answeredCount += answered;
    }

    /** Adds another run of the same step. */
    public void add(final Latencies other) {
        add(other.totalNs, other.processNs, other.wantedCount, other.answeredCount);
    }

    /** From when an order was due to be sent until its last report was received; waiting behind a late one counts. */
    public Histogram totalNs() {
        return totalNs;
    }

    /** From when the engine took an order up until its last report was out. */
    public Histogram processNs() {
        return processNs;
    }

    /** Orders and requests that were due, warm-up included. */
    public long wantedCount() {
        return wantedCount;
    }

    /** Those that were answered before the step was given up. */
    public long answeredCount() {
        return answeredCount;
    }
}
