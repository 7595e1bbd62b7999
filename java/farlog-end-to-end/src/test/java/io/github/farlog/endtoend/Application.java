package io.github.farlog.endtoend;

import ch.qos.logback.classic.joran.JoranConfigurator;
import ch.qos.logback.core.joran.spi.JoranException;
import io.github.farlog.client.Result;
import io.github.farlog.log4j2.FarlogLoggingException;
import io.github.farlog.logback.FarlogAppendException;
import java.io.IOException;
import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LoggerContext;
import org.slf4j.LoggerFactory;

/**
 * An application that logs from three threads, while its configuration is read again and again, until it is killed.
 * Usage: Application log4j2|logback RUN NOTES.
 */
final class Application {
    private static final int FILLER_MAX = 200;
    private static final long PAUSE_NANOS = 100_000;
    private static final long RECONFIGURE_NANOS = 150_000_000;

    private final boolean isLogback;
    private final String run;

    private Application(final String framework, final String run) {
        isLogback = "logback".equals(framework);
        this.run = run;
    }

    public static void main(final String[] arguments) throws IOException, JoranException {
        final Application application = new Application(arguments[0], arguments[1]);
        if (arguments.length < 3) {
            application.log("warm-up");
            return; // made the archive of its classes
        }
        final Notes notes = new Notes(Path.of(arguments[2]));
        // Before there are threads: SLF4J keeps the events of other threads in memory while the first makes its logger.
        application.configure();
        for (int t = 0; t < Notes.THREADS; t++) {
            final int thread = t;
            Thread.ofPlatform().start(() -> application.logOn(thread, notes));
        }
        while (true) {
            LockSupport.parkNanos(RECONFIGURE_NANOS);
            application.reconfigure();
            notes.countReconfiguration();
        }
    }

    private void logOn(final int thread, final Notes notes) {
        for (int i = 0; i < Notes.EVENTS_MAX; i++) {
            notes.put(thread, i, outcomeOf(event(run, thread, i)));
            LockSupport.parkNanos(PAUSE_NANOS);
        }
    }

    /** The text of an event; its length follows from its number. */
    static String event(final String run, final int thread, final int number) {
        return run + ' ' + thread + ' ' + number + ' ' + "x".repeat((number * 37 + thread) % FILLER_MAX);
    }

    private byte outcomeOf(final String text) {
        try {
            log(text);
            return Notes.RETURNED;
        } catch (final FarlogLoggingException e) {
            return e.result() == Result.UNKNOWN ? Notes.UNKNOWN : Notes.REFUSED;
        } catch (final FarlogAppendException e) {
            return e.result() == Result.UNKNOWN ? Notes.UNKNOWN : Notes.REFUSED;
        }
    }

    private void configure() {
        final Object first = isLogback ? LoggerFactory.getLogger("orders") : LogManager.getLogger("orders");
        if (first instanceof org.slf4j.helpers.SubstituteLogger) {
            throw new IllegalStateException("not configured");
        }
    }

    private void log(final String text) {
        if (isLogback) {
            LoggerFactory.getLogger("orders").info(text);
        } else {
            LogManager.getLogger("orders").info(text);
        }
    }

    /** As the frameworks do it when the file has changed. */
    private void reconfigure() throws JoranException {
        if (isLogback) {
            final var context = (ch.qos.logback.classic.LoggerContext) LoggerFactory.getILoggerFactory();
            context.reset();
            final JoranConfigurator configurator = new JoranConfigurator();
            configurator.setContext(context);
            configurator.doConfigure(System.getProperty("logback.configurationFile"));
        } else {
            ((LoggerContext) LogManager.getContext(false)).reconfigure();
        }
    }
}
