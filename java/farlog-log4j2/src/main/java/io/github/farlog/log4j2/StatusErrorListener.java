package io.github.farlog.log4j2;

import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.status.StatusData;
import org.apache.logging.log4j.status.StatusListener;
import org.apache.logging.log4j.status.StatusLogger;

/**
 * Collects the errors that Log4j reports on this thread while it builds a plugin. Log4j itself continues: with a
 * default for a value that it cannot convert, and without an attribute that it does not know.
 */
final class StatusErrorListener implements AutoCloseable {
    /** How Log4j's warning of a value that it cannot convert begins; other warnings do not change the plugin. */
    private static final String UNREADABLE = "Error while converting string";

    private final Listener listener = new Listener();

    /** Listens until it is closed. */
    StatusErrorListener() {
        StatusLogger.getLogger().registerListener(listener);
    }

    /** The first error; null when there was none. */
    String first() {
        return listener.first;
    }

    @Override
    public void close() {
        StatusLogger.getLogger().removeListener(listener);
    }

    private static final class Listener implements StatusListener {
        private final Thread thread = Thread.currentThread();
        /** Owned by this thread. */
        private String first;

        @Override
        public void log(final StatusData data) {
            if (Thread.currentThread() == thread && first == null) {
                final String text = data.getMessage().getFormattedMessage();
                first = data.getLevel().isMoreSpecificThan(Level.ERROR) || text.startsWith(UNREADABLE) ? text : null;
            }
        }

        @Override
        public Level getStatusLevel() {
            return Level.WARN;
        }

        @Override
        public void close() {
            // nothing is held
        }
    }
}
