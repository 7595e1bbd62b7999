package io.github.farlog.logback;

import ch.qos.logback.classic.Logger;
import io.github.farlog.client.gap.UnderWay;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;

/**
 * The platform threads that are inside a logging call, by their stacks. What they are on their way to is not to be
 * taken away before they are there.
 *
 * <p>The stacks of virtual threads are not to be had: these get {@link #GRACE_NANOS}, which every wait lasts at least.
 * The stacks do not tell which logger context a call belongs to, so calls of another one are waited for too.
 */
final class Callers {
    static final long SECONDS_MAX = UnderWay.SECONDS_MAX;
    private static final long GRACE_NANOS = TimeUnit.MILLISECONDS.toNanos(100);
    private static final String LOGGER = Logger.class.getName();
    private static final String APPENDER = FarlogAppender.class.getName();
    private static final String GATE = Handover.Gate.class.getName();
    private static final String BRIDGE = Handover.Bridge.class.getName();

    private Callers() {
    }

    /**
     * Waits until each thread of which this is true now has been seen otherwise; also on a thread that is interrupted.
     *
     * @param isUnderWay asked about a stack, innermost frame first
     * @param except threads that are not waited for
     * @return those of which it is still true after SECONDS_MAX
     */
    static Set<Thread> await(final Predicate<StackTraceElement[]> isUnderWay, final Set<Thread> except) {
        return UnderWay.await(isUnderWay, except, GRACE_NANOS);
    }

    /**
     * Whether the thread is past the gate's place and may still look for the appenders of a logger.
     *
     * @param isOneLogger only one has any: who is inside an appender has found them all
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
     * Whether the thread is in a bridge, or may have found one among a logger's appenders and not come to its successor
     * yet.
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

    /** Not one that takes its appenders away itself. */
    private static boolean isLogging(final StackTraceElement frame) {
        return frame.getClassName().equals(LOGGER) && !frame.getMethodName().equals("recursiveReset")
            && !frame.getMethodName().equals("detachAndStopAllAppenders");
    }
}
