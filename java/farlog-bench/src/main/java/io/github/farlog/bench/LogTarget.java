package io.github.farlog.bench;

import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.logging.log4j.core.Layout;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.Logger;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.appender.AppenderLoggingException;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.Configurator;
import org.apache.logging.log4j.core.config.Property;

/**
 * A logger of Log4j with one appender. The three of a context have the same layout, and differ only in where the bytes
 * go.
 */
final class LogTarget implements Target {
    private static final String CONFIGURATION = "bench-log4j2.xml";
    private static final int DRAIN_EVERY = 48_000;

    private final String name;
    private final Logger logger;
    private final int blockCount;
    private final FarlogTarget.Drain drain;
    private final String[] orders = new String[PAYLOAD_COUNT];
    private int sinceDrain;

    private LogTarget(final String name, final Logger logger, final int blockCount, final FarlogTarget.Drain drain) {
        this.name = name;
        this.logger = logger;
        this.blockCount = blockCount;
        this.drain = drain;
        for (int i = 0; i < PAYLOAD_COUNT; i++) {
            orders[i] = "ORD-20261121-" + (1_000_000 + i);
        }
    }

    /** Log4j with its three appenders, until it is closed. */
    static final class Context implements AutoCloseable {
        private final LoggerContext context;
        private final Path ring;
        private final FarlogTarget.Drain drain;

        Context(final Path folder) throws Exception {
            ring = FarlogTarget.ringFile("log4j2");
            System.setProperty("bench.ring", FarlogTarget.uriOf(ring));
            System.setProperty("bench.file", folder.resolve("log4j2.log").toString());
            context = Configurator.initialize("bench", LogTarget.class.getClassLoader(),
                LogTarget.class.getClassLoader().getResource(CONFIGURATION).toURI());
            final Configuration configuration = context.getConfiguration();
            final ForcedFileAppender forced = new ForcedFileAppender(configuration.getAppender("file").getLayout(),
                folder.resolve("log4j2-forced.log"));
            forced.start();
            configuration.addAppender(forced);
            configuration.getLoggerConfig("forced").addAppender(forced, null, null);
            context.updateLoggers();
            drain = new FarlogTarget.Drain(FarlogTarget.uriOf(ring));
        }

        LogTarget farlog() {
            return new LogTarget("log4j2.farlog", context.getLogger("farlog"), 2000, drain);
        }

        LogTarget file() {
            return new LogTarget("log4j2.file", context.getLogger("file"), 2000, null);
        }

        LogTarget forced() {
            return new LogTarget("log4j2.forced", context.getLogger("forced"), 50, null);
        }

        @Override
        public void close() throws Exception {
            drain.close();
            context.close();
            Files.deleteIfExists(ring);
        }
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public int blockCount() {
        return blockCount;
    }

    @Override
    public void append(final int i) {
        logger.info("order {} accepted: buy 1200 at 187.35, immediate or cancel", orders[i & 63]);
    }

    @Override
    public void rest(final int count) {
        sinceDrain += count;
        if (drain != null && sinceDrain >= DRAIN_EVERY) {
            drain.run();
            sinceDrain = 0;
        }
    }

    @Override
    public void close() {
        // The context closes what it opened.
    }

    /** What an application does without us when it must not lose an event: writes each one and forces it. */
    private static final class ForcedFileAppender extends AbstractAppender {
        private final FileChannel file;
        private final ByteBuffer buffer = ByteBuffer.allocateDirect(1 << 16);

        ForcedFileAppender(final Layout<? extends Serializable> layout, final Path path) throws IOException {
            super("forced", null, layout, false, Property.EMPTY_ARRAY);
            file = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.WRITE,
                StandardOpenOption.TRUNCATE_EXISTING);
        }

        @Override
        public synchronized void append(final LogEvent event) {
            try {
                buffer.clear().put(getLayout().toByteArray(event)).flip();
                while (buffer.hasRemaining()) {
                    file.write(buffer);
                }
                file.force(false);
            } catch (final IOException e) {
                throw new AppenderLoggingException("force", e);
            }
        }

        @Override
        public void stop() {
            super.stop();
            try {
                file.close();
            } catch (final IOException e) {
                throw new AppenderLoggingException("close", e);
            }
        }
    }
}
