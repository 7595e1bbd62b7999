package io.github.farlog.logback;

import io.github.farlog.client.Result;

/**
 * Thrown out of a logging call whose event did not reach the ring, under the policies failStop and block.
 *
 * <p>It has no stack trace: what there is to know is in its one line, and a ring that refuses a flood of events shall
 * not be answered with twenty lines for each.
 *
 * <p>{@link Result#UNKNOWN} means that it may be there nevertheless; with any other result it is not.
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
     * Why the ring did not take the event.
     *
     * @return null when it was not asked: the encoder threw, or the appender is not running
     */
    public Result result() {
        return result;
    }
}
