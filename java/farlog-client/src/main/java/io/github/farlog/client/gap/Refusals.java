package io.github.farlog.client.gap;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Which of an appender's refused events is told to its operator: the first, another after a second, two, four and so on
 * up to a minute, each with the count of those before it that were not told. Threads: any; nothing blocks or allocates.
 */
public final class Refusals {
    private static final long INTERVAL_MIN_NANOS = TimeUnit.SECONDS.toNanos(1);
    private static final long INTERVAL_MAX_NANOS = TimeUnit.MINUTES.toNanos(1);

    private final AtomicLong dueNanos = new AtomicLong(System.nanoTime());
    private final AtomicLong untold = new AtomicLong();
    private volatile long intervalNanos = INTERVAL_MIN_NANOS;
    private volatile boolean isTold;

    /** Of an appender that has refused nothing. */
    public Refusals() {
    }

    /**
     * One more event was refused.
     *
     * @return how many before it were not told, if this one is to be told now; -1 = it is counted, and told with a
     * later one
     */
    public long add() {
        final long due = dueNanos.get();
        final long now = System.nanoTime();
        final long interval = intervalNanos;
        if (now - due < 0 || !dueNanos.compareAndSet(due, now + interval)) {
            untold.incrementAndGet();
            return -1;
        }
        intervalNanos = Math.min(2 * interval, INTERVAL_MAX_NANOS);
        isTold = true;
        return untold.getAndSet(0);
    }

    /**
     * Whether anything was told since the last {@link #end}. A read of one word, for the path of every event.
     *
     * @return then {@link #end} is to be told when an event is taken again
     */
    public boolean isTold() {
        return isTold;
    }

    /**
     * An event was taken again.
     *
     * @return how many refused ones were not told; -1 = another thread tells
     */
    public synchronized long end() {
        if (!isTold) {
            return -1;
        }
        isTold = false;
        intervalNanos = INTERVAL_MIN_NANOS;
        return untold.getAndSet(0);
    }

    /**
     * The words for a count.
     *
     * @param count as {@link #add} or {@link #end} gave it
     * @return empty for 0
     */
    public static String more(final long count) {
        return count > 0 ? "; " + count + " more since the last such line" : "";
    }
}
