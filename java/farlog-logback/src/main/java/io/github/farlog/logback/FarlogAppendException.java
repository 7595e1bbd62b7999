package io.github.farlog.logback;

import io.github.farlog.client.Result;

/**
 * Thrown out of a logging call whose event did not reach the ring, under the policies failStop and block.
 *
 * <p>It has no stack trace: its message says everything, and a full ring would otherwise log twenty lines for each
 * event.
 *
 * <p>{@link Result#UNKNOWN} means that the event may be in the ring; with any other result it is not.
 */
public final class FarlogAppendException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** Why; null when the event could not be encoded. */
    private final Result result;

    FarlogAppendException(final String message, final Result result, final Throwable cause) {
        super(message, cause);
        this.result = result;
    }

    @Override
    public synchronized Throwable fillInStackTrace() {
        return this;
    }

    /**
     * Why the append failed.
     *
     * @return null when there was no append: the encoder threw, or the appender is not running
     */
    public Result result() {
        return result;
    }
}
