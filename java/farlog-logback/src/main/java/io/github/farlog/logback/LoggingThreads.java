package io.github.farlog.logback;

import ch.qos.logback.classic.Logger;
import io.github.farlog.client.gap.RunningCalls;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;

/**
 * Finds the platform threads that are inside a logging call, by their stacks, so that an appender is not detached
 * before they have reached it.
 *
 * <p>The JVM gives no stacks of virtual threads: every wait lasts at least {@link #GRACE_NANOS}, for these. A stack
 * does not show which logger context a call belongs to, so the wait includes calls of other contexts.
 */
final class LoggingThreads {
    static final long SECONDS_MAX = RunningCalls.SECONDS_MAX;
    private static final long GRACE_NANOS = TimeUnit.MILLISECONDS.toNanos(100);
    private static final String LOGGER = Logger.class.getName();
    private static final String APPENDER = FarlogAppender.class.getName();
    private static final String GATE = Reconfiguration.Gate.class.getName();
    private static final String BRIDGE = Reconfiguration.Bridge.class.getName();

    private LoggingThreads() {
    }

    /**
     * Waits until each thread that is inside a call now has left it once. An interrupt does not end the wait.
     *
     * @param isUnderWay whether a stack, innermost frame first, is inside the call
     * @param except threads that are not waited for
     * @return the threads that are still inside after SECONDS_MAX
     */
    static Set<Thread> await(final Predicate<StackTraceElement[]> isUnderWay, final Set<Thread> except) {
        return RunningCalls.await(isUnderWay, except, GRACE_NANOS);
    }

    /**
     * Whether the thread is past the gate and may still search the appenders of a logger.
     *
     * @param isOneLogger only one logger has appenders: a thread inside an appender has found them all
     */
    static boolean isBeforeAppender(final StackTraceElement[] frames, final boolean isOneLogger) {
        for (final StackTraceElement frame : frames) {
            final String name = frame.getClassName();
            if (name.equals(GATE) || isOneLogger && name.equals(APPENDER)) {
                return false;
            }
            if (isLogging(frame)) {
                return true;
            }
        }
        return false;
    }

    /**
     * Whether the thread is in a bridge, or may have found a bridge among a logger's appenders and not reached the
     * successor yet.
     */
    static boolean isBeforeSuccessor(final StackTraceElement[] frames) {
        boolean isInAppender = false;
        for (final StackTraceElement frame : frames) {
            final String name = frame.getClassName();
            if (name.equals(BRIDGE)) {
                return true;
            }
            if (name.equals(GATE)) {
                return false;
            }
            if (isLogging(frame)) {
                return !isInAppender;
            }
            isInAppender |= name.equals(APPENDER);
        }
        return false;
    }

    /** Excludes calls that detach the appenders themselves. */
    private static boolean isLogging(final StackTraceElement frame) {
        return frame.getClassName().equals(LOGGER) && !frame.getMethodName().equals("recursiveReset")
            && !frame.getMethodName().equals("detachAndStopAllAppenders");
    }
}
