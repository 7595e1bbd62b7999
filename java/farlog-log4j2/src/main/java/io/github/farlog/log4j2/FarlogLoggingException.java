package io.github.farlog.log4j2;

import io.github.farlog.client.Result;
import org.apache.logging.log4j.core.appender.AppenderLoggingException;

/**
 * An event is not in its ring, or, with {@link Result#UNKNOWN}, it may or may not be. Thrown to the application by the
 * logging call. It has no stack trace: what there is to know is in its one line, and a ring that refuses a flood of
 * events shall not be answered with twenty lines for each.
 */
public final class FarlogLoggingException extends AppenderLoggingException {
    private static final long serialVersionUID = 1L;

    /** Why. */
    private final Result result;

    /**
     * Made by the appender.
     *
     * @param result why
     * @param message one line
     */
    FarlogLoggingException(final Result result, final String message) {
        super(message);
        this.result = result;
    }

    @Override
    public synchronized Throwable fillInStackTrace() {
        return this;
    }

    /**
     * What to branch on.
     *
     * @return never {@link Result#OK}
     */
    public Result result() {
        return result;
    }
}
