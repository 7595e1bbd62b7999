package io.github.farlog.log4j2;

import io.github.farlog.client.gap.UnderWay;
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
 * The calls that a configuration which is being stopped has under way. Log4j counts them for each logger of the
 * configuration, and stops the appenders when there are none; but not for a logger that came at run time, by
 * Configurator.setLevel or Spring Boot's actuator. A call that such a logger has under way finds the appender stopped,
 * or no appender any more and returns as if it had met one.
 */
final class LateCalls {
    /** Far longer than a virtual thread is off its processor between its logger and the appender. */
    private static final long LEAST_NANOS = TimeUnit.MILLISECONDS.toNanos(500);
    private static final Set<String> INSIDE = Set.of(AbstractLogger.class.getName(), Logger.class.getName(),
        LoggerConfig.class.getName());
    /** Has been waited for: one wait is for all appenders of a configuration. */
    private static volatile WeakReference<Configuration> last = new WeakReference<>(null);

    private LateCalls() {
    }

    /**
     * Waits for them while the appender goes on taking events.
     *
     * @param configuration null, or one that is not being stopped: there is nothing to wait for
     */
    static void await(final Configuration configuration) {
        if (configuration == null || configuration.getState() != LifeCycle.State.STOPPING
            || last.refersTo(configuration)
            || !hasUncounted(configuration)) {
            return;
        }
        final Set<Thread> left = UnderWay.await(LateCalls::isInside, Set.of(), LEAST_NANOS);
        if (!left.isEmpty()) {
            StatusLogger.getLogger().error(
                "farlog: {} threads are inside a logging call for {} s, and the appenders are taken away: the events of these "
                    + "calls may be lost: {}",
                left.size(), UnderWay.SECONDS_MAX, left);
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
