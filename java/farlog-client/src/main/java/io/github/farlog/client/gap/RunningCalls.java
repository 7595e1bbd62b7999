package io.github.farlog.client.gap;

import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Predicate;

/**
 * Waits for the threads that are inside a call, by their stacks, where no counter of calls exists.
 *
 * <p>The JVM gives no stacks of virtual threads: every wait lasts a minimum time, for these.
 *
 * <p>Stops all threads of the process once, while the JVM collects their stacks.
 */
public final class RunningCalls {
    /** The longest wait. */
    public static final long SECONDS_MAX = 5;
    private static final long PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(1);

    private RunningCalls() {
    }

    /**
     * Waits until each platform thread that is inside the call now has left it once. An interrupt does not end the
     * wait.
     *
     * @param isInside whether a stack, innermost frame first, is inside the call
     * @param except threads that are not waited for
     * @param leastNanos minimum time to wait
     * @return the threads that are still inside after {@link #SECONDS_MAX}
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
