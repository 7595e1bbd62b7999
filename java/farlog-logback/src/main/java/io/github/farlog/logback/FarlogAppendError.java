package io.github.farlog.logback;

import ch.qos.logback.core.AppenderBase;
import ch.qos.logback.core.UnsynchronizedAppenderBase;
import io.github.farlog.client.Result;

/**
 * Carries a {@link FarlogAppendException} (its cause) past an appender that swallows exceptions.
 *
 * <p>Logback's {@code AppenderBase} and {@code UnsynchronizedAppenderBase} catch every {@code Exception} of what they
 * call. Where one of them, for example a SiftingAppender, stands between the logger and a FarlogAppender, an exception
 * would never reach the application, and the event would be lost without an error; an {@code Error} does reach it.
 */
public final class FarlogAppendError extends Error {
    private static final long serialVersionUID = 1L;

    FarlogAppendError(final FarlogAppendException cause) {
        super(cause.getMessage(), cause);
    }

    /**
     * Throws a {@link FarlogAppendException}, inside this error when a base class of Logback that catches exceptions is
     * between this append and the logger.
     */
    static void raise(final String text, final Result result, final Throwable cause) {
        final FarlogAppendException thrown = new FarlogAppendException(text, result, cause);
        if (isSwallowed()) {
            throw new FarlogAppendError(thrown);
        }
        throw thrown;
    }

    private static boolean isSwallowed() {
        return StackWalker.getInstance(StackWalker.Option.RETAIN_CLASS_REFERENCE).walk(frames -> frames.anyMatch(
            frame -> frame.getMethodName().equals("doAppend")
                && (frame.getDeclaringClass() == AppenderBase.class
                    || frame.getDeclaringClass() == UnsynchronizedAppenderBase.class)));
    }

    @Override
    public synchronized Throwable fillInStackTrace() {
        return this;
    }
}
