package io.github.farlog.client.gap;

import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Predicate;

/**
 * Waits for the threads that are inside a call, by their stacks, where nothing counts them.
 *
 * <p>The stacks of virtual threads are not to be had: these get the least time that every wait lasts.
 *
 * <p>Cold: stops all threads of the process once, for as long as their stacks are taken.
 */
public final class UnderWay {
    /** The longest wait. */
    public static final long SECONDS_MAX = 5;
    private static final long PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(1);

    private UnderWay() {
    }

    /**
     * Waits until each platform thread of which this is true now has been seen otherwise; also on a thread that is
     * interrupted.
     *
     * @param isInside asked about a stack, innermost frame first
     * @param except threads that are not waited for
     * @param leastNanos to wait in any case
     * @return those of which it is still true after {@link #SECONDS_MAX}
     */
    public static Set<Thread> await(final Predicate<StackTraceElement[]> isInside, final Set<Thread> except,
        final long leastNanos) {
        final long start = System.nanoTime();
        final boolean isInterrupted = Thread.interrupted();
        final Set<Thread> left = new HashSet<>();
        Thread.getAllStackTraces().forEach((thread, frames) -> {
            if (thread != Thread.currentThread() && !except.contains(thread) && isInside.test(frames)) {
                left.add(thread);
            }
        });
        while (!isOver(System.nanoTime() - start, left, leastNanos)) {
            LockSupport.parkNanos(PAUSE_NANOS);
            left.removeIf(thread -> !isInside.test(thread.getStackTrace()));
        }
        if (isInterrupted) {
            Thread.currentThread().interrupt();
        }
        return left;
    }

    private static boolean isOver(final long waitedNanos, final Set<Thread> left, final long leastNanos) {
        return waitedNanos >= leastNanos && left.isEmpty() || waitedNanos >= TimeUnit.SECONDS.toNanos(SECONDS_MAX);
    }
}
