package io.github.farlog.logback;

/**
 * Carries a {@link FarlogAppendException} (its cause) past an appender that swallows exceptions.
 *
 * <p>Logback's {@code AppenderBase} and {@code UnsynchronizedAppenderBase} catch every {@code Exception} of what they
 * call. Where one of them, for example a SiftingAppender, stands between the logger and a FarlogAppender, an exception
 * would never reach the application and the event would be lost without a sound; an {@code Error} does reach it.
 */
public final class FarlogAppendError extends Error {
    private static final long serialVersionUID = 1L;

    FarlogAppendError(final FarlogAppendException cause) {
        super(cause.getMessage(), cause);
    }

    @Override
    public synchronized Throwable fillInStackTrace() {
        return this;
    }
}
