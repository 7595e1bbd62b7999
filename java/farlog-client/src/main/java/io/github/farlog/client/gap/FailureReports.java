package io.github.farlog.client.gap;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Limits the rate at which an appender reports failed events: it reports the first, another after a second, two, four
 * and so on up to a minute, each with the number of unreported failures before it. Threads: any; nothing blocks or
 * allocates.
 */
public final class FailureReports {
    private static final long INTERVAL_MIN_NANOS = TimeUnit.SECONDS.toNanos(1);
    private static final long INTERVAL_MAX_NANOS = TimeUnit.MINUTES.toNanos(1);

    private final AtomicLong dueNanos = new AtomicLong(System.nanoTime());
    private final AtomicLong unreported = new AtomicLong();
    private volatile long intervalNanos = INTERVAL_MIN_NANOS;
    private volatile boolean hasReported;

    /** Makes one without failures. */
    public FailureReports() {
    }

    /**
     * Counts a failed event.
     *
     * @return how many failures before it were not reported, when this failure is to be reported now; -1 = not now: a
     * later report counts it
     */
    public long recordFailure() {
        final long due = dueNanos.get();
        final long now = System.nanoTime();
        final long interval = intervalNanos;
        if (now - due < 0 || !dueNanos.compareAndSet(due, now + interval)) {
            unreported.incrementAndGet();
            return -1;
        }
        intervalNanos = Math.min(2 * interval, INTERVAL_MAX_NANOS);
        hasReported = true;
        return unreported.getAndSet(0);
    }

    /**
     * Whether a failure was reported since the last {@link #recordSuccess}. Reads one word; every event may call it.
     *
     * @return true: the next event that succeeds calls {@link #recordSuccess} and is reported
     */
    public boolean hasReported() {
        return hasReported;
    }

    /**
     * An event succeeded after a failure.
     *
     * @return how many failures were not reported; -1 = another thread reports it
     */
    public synchronized long recordSuccess() {
        if (!hasReported) {
            return -1;
        }
        hasReported = false;
        intervalNanos = INTERVAL_MIN_NANOS;
        return unreported.getAndSet(0);
    }

    /**
     * The text for a count.
     *
     * @param count as {@link #recordFailure} or {@link #recordSuccess} gave it
     * @return empty for 0
     */
    public static String more(final long count) {
        return count > 0 ? "; " + count + " more since the last such line" : "";
    }
}
