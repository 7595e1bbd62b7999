package io.github.farlog.client.gap;

/**
 * A shutdown hook for an appender that nothing stops before the process ends. It writes the pending gap record; the
 * ring itself needs no hook, since it survives a kill. Threads: any.
 */
public final class ProcessEndHook implements AutoCloseable {
    private final Thread hook;

    /**
     * Registers the hook. Does nothing when the process is ending already.
     *
     * @param name of the hook's thread
     * @param action runs in that thread, concurrently with the other hooks and all other threads
     */
    public ProcessEndHook(final String name, final Runnable action) {
        hook = new Thread(action, name);
        try {
            Runtime.getRuntime().addShutdownHook(hook);
        } catch (final IllegalStateException e) {
            // Ending: the hooks run already.
        }
    }

    /** Unregisters the hook: the caller does the action itself. */
    @Override
    public void close() {
        try {
            Runtime.getRuntime().removeShutdownHook(hook);
        } catch (final IllegalStateException e) {
            // Ending: it runs.
        }
    }
}
