package io.github.farlog.orderpath.record;

/** A message is not known to be recorded, and so it must not go on. Says what was tried and what came of it. */
public final class NotRecordedException extends RuntimeException {
    private static final long serialVersionUID = 1;

    public NotRecordedException(final String message) {
        super(message);
    }

    public NotRecordedException(final String message, final Throwable cause) {
        super(message, cause);
    }
}
