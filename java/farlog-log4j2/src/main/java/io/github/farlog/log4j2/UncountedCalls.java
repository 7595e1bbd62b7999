package io.github.farlog.log4j2;

import io.github.farlog.client.gap.RunningCalls;
import java.lang.ref.WeakReference;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.logging.log4j.core.LifeCycle;
import org.apache.logging.log4j.core.Logger;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.DefaultReliabilityStrategy;
import org.apache.logging.log4j.core.config.LoggerConfig;
import org.apache.logging.log4j.spi.AbstractLogger;
import org.apache.logging.log4j.status.StatusLogger;

/**
 * Logging calls in flight that Log4j does not count. When a configuration stops, Log4j stops the appenders only when
 * each of its loggers has no call in flight. It does not count the calls of loggers that were added at run time, by
 * Configurator.setLevel or Spring Boot's actuator. Such a call finds a stopped appender, or none, and returns without
 * an error.
 */
final class UncountedCalls {
    /** Far longer than a virtual thread is unmounted between its logger and the appender. */
    private static final long LEAST_NANOS = TimeUnit.MILLISECONDS.toNanos(500);
    private static final Set<String> INSIDE = Set.of(AbstractLogger.class.getName(), Logger.class.getName(),
        LoggerConfig.class.getName());
    /** The configuration of the last wait: one wait is for all its appenders. */
    private static volatile WeakReference<Configuration> last = new WeakReference<>(null);

    private UncountedCalls() {
    }

    /**
     * Waits for these calls, while the appender still accepts events.
     *
     * @param configuration does not wait when null, or when it is not being stopped
     */
    static void await(final Configuration configuration) {
        if (configuration == null || configuration.getState() != LifeCycle.State.STOPPING
            || last.refersTo(configuration)
            || !hasUncounted(configuration)) {
            return;
        }
        final Set<Thread> left = RunningCalls.await(UncountedCalls::isInside, Set.of(), LEAST_NANOS);
        if (!left.isEmpty()) {
            StatusLogger.getLogger().error(
                "farlog: {} threads are still inside a logging call after {} s, and the appenders stop now: the events "
                    + "of these calls may be lost: {}",
                left.size(), RunningCalls.SECONDS_MAX, left);
        }
        last = new WeakReference<>(configuration);
    }

    private static boolean hasUncounted(final Configuration configuration) {
        for (final LoggerConfig each : configuration.getLoggers().values()) {
            if (each.getReliabilityStrategy() instanceof DefaultReliabilityStrategy) {
                return true;
            }
        }
        return false;
    }

    private static boolean isInside(final StackTraceElement[] frames) {
        for (final StackTraceElement frame : frames) {
            if (INSIDE.contains(frame.getClassName())) {
                return true;
            }
        }
        return false;
    }
}
