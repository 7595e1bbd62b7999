package io.github.farlog.logback;

/**
 * Thrown by {@link FarlogAppender#start()} when the appender cannot serve: the application fails at its start, not at
 * its first trade.
 *
 * <p>An {@code Error}, because what configures Logback at an application's first {@code LoggerFactory.getLogger} prints
 * exceptions and goes on without the appender; errors it lets through.
 */
public final class FarlogConfigurationError extends Error {
    private static final long serialVersionUID = 1L;

    FarlogConfigurationError(final String message, final Throwable cause) {
        super(message, cause);
    }
}
