package io.github.farlog.log4j2;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.status.StatusData;
import org.apache.logging.log4j.status.StatusListener;
import org.apache.logging.log4j.status.StatusLogger;

/** The errors that Log4j's status logger is told while this is open. */
final class StatusErrors implements AutoCloseable {
    private static final long WAIT_SECONDS = 60;
    private final List<String> texts = new CopyOnWriteArrayList<>();
    private final StatusListener listener = new Listener();

    StatusErrors() {
        StatusLogger.getLogger().registerListener(listener);
    }

    /** Those that contain a text. */
    List<String> with(final String part) {
        return texts.stream().filter(text -> text.contains(part)).toList();
    }

    /** Waits until one contains a text. */
    void await(final String part) throws InterruptedException {
        final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
        while (with(part).isEmpty()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("no error contains " + part + ": " + texts);
            }
            Thread.sleep(20);
        }
    }

    @Override
    public void close() {
        StatusLogger.getLogger().removeListener(listener);
    }

    private final class Listener implements StatusListener {
        @Override
        public void log(final StatusData data) {
            texts.add(data.getMessage().getFormattedMessage());
        }

        @Override
        public Level getStatusLevel() {
            return Level.ERROR;
        }

        @Override
        public void close() {
            // nothing is held
        }
    }
}
