package io.github.farlog.log4j2;

import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.ConfigurationException;
import org.apache.logging.log4j.core.impl.Log4jContextFactory;
import org.apache.logging.log4j.core.util.ShutdownCallbackRegistry;

/**
 * Log4j's shutdown hook, which is on by default, stops all appenders when the process begins to end, by SIGTERM or
 * System.exit, while the application's threads still log: their calls return, and their events are lost. No appender
 * can prevent this once the hook is registered.
 */
final class ShutdownHook {
    private ShutdownHook() {
    }

    /**
     * Rejects a configuration with which events would be lost at the end of the process.
     *
     * @param configuration that the appender is in; null for one made by hand
     * @throws ConfigurationException saying what to set
     */
    static void check(final Configuration configuration) {
        if (configuration == null || !isRegistering()) {
            return;
        }
        if (configuration.isShutdownHookEnabled()) {
            throw new ConfigurationException(
                "Log4j's shutdown hook is on: when the process is asked to exit, the hook removes the appender while "
                    + "threads still log, and their events would be lost without an error; set "
                    + "shutdownHook=\"disable\" on Configuration (an event is recorded when its call returns, nothing "
                    + "waits to be flushed)");
        }
        final LoggerContext context = configuration.getLoggerContext();
        if (context != null && context.isStarted() && context.getConfiguration().isShutdownHookEnabled()) {
            throw new ConfigurationException(
                "Log4j's shutdown hook was registered by the configuration that runs, and a later "
                    + "shutdownHook=\"disable\" does not unregister it: start the process with this configuration, or "
                    + "with -Dlog4j2.shutdownHookEnabled=false");
        }
    }

    /** Whether a context of this process registers the hook at all. */
    private static boolean isRegistering() {
        final var factory = LogManager.getFactory();
        return factory instanceof ShutdownCallbackRegistry
            && !(factory instanceof final Log4jContextFactory log4j && !log4j.isShutdownHookEnabled());
    }
}
