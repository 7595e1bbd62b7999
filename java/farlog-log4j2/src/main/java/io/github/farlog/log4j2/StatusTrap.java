package io.github.farlog.log4j2;

import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.status.StatusData;
import org.apache.logging.log4j.status.StatusListener;
import org.apache.logging.log4j.status.StatusLogger;

/**
 * Hears the errors that Log4j tells of on this thread while it makes something: it goes on with a default for a value
 * that it cannot read, and without an attribute that it does not know.
 */
final class StatusTrap implements AutoCloseable {
    /** How Log4j begins the warning of a value that it cannot read; other warnings change nothing of what it makes. */
    private static final String UNREADABLE = "Error while converting string";

    private final Listener listener = new Listener();

    /** Hears until it is closed. */
    StatusTrap() {
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
        /** Of this thread alone. */
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
