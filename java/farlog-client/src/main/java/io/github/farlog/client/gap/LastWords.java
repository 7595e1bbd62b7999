package io.github.farlog.client.gap;

/**
 * Tells what is still to be told when the process begins to end and nobody stops the appender. The ring itself needs
 * nothing: it is as after a kill. Threads: any.
 */
public final class LastWords implements AutoCloseable {
    private final Thread hook;

    /**
     * Waits for the end of the process. In one that is ending already nothing comes of it.
     *
     * @param name of the thread
     * @param words tells; on a thread of its own, beside the other hooks and all other threads
     */
    public LastWords(final String name, final Runnable words) {
        hook = new Thread(words, name);
        try {
            Runtime.getRuntime().addShutdownHook(hook);
        } catch (final IllegalStateException e) {
            // Ending: the hooks run already.
        }
    }

    /** Whoever closes tells by himself. */
    @Override
    public void close() {
        try {
            Runtime.getRuntime().removeShutdownHook(hook);
        } catch (final IllegalStateException e) {
            // Ending: it runs.
        }
    }
}
