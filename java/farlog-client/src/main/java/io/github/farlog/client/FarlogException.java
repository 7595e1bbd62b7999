package io.github.farlog.client;

/**
 * A cold call (open, format, inspect) did not succeed. The message is one line that names the thing, its value and what
 * was expected.
 */
public final class FarlogException extends Exception {
    private static final long serialVersionUID = 1L;

    /** Which result it was. */
    private final Result result;

    /**
     * Made by this package.
     *
     * @param result why
     * @param message one line
     */
    FarlogException(final Result result, final String message) {
        super(message);
        this.result = result;
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
