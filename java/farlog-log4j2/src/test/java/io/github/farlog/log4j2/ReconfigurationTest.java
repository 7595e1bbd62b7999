package io.github.farlog.log4j2;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.farlog.client.Result;
import io.github.farlog.log4j2.TestRing.Entry;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.Logger;
import org.apache.logging.log4j.core.Filter;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractManager;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.ConfigurationException;
import org.apache.logging.log4j.core.config.ConfigurationFactory;
import org.apache.logging.log4j.core.config.ConfigurationSource;
import org.apache.logging.log4j.core.config.LoggerConfig;
import org.apache.logging.log4j.core.filter.AbstractFilter;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Configurations that change while threads log: no event whose call returned is missing, in the order of its thread.
 */
class ReconfigurationTest {
    private static final long SIZE_BYTES = 32 << 20;
    private static final int THREAD_COUNT = 4;
    private final TestRing ring = TestRing.onTmpfs(SIZE_BYTES);
    private final TestRing other = TestRing.onTmpfs(SIZE_BYTES);

    @AfterEach
    void removeRings() {
        ring.close();
        other.close();
    }

    @Test
    void shouldKeepTheWriterOfTheSameRing() throws Exception {
        try (LoggerContext context = Contexts.of(Contexts.farlog(ring, "", ""))) {
            final int epoch = ring.epoch();
            final int[] counts = logWhile(context.getLogger("orders"), () -> {
                for (int i = 0; i < 20; i++) {
                    Contexts.reconfigure(context, Contexts.farlog(ring, "policy='block(" + (i + 1) + "s)'", ""));
                }
            });
            assertEquals(epoch, ring.epoch());
            shouldHold(counts, ring.entries(), List.of());
            assertTrue(ring.entries().stream().allMatch(entry -> entry.epoch() == epoch));
        }
    }

    @Test
    void shouldMoveToAnotherRingAfterTheEventsUnderWay() throws Exception {
        try (LoggerContext context = Contexts.of(Contexts.farlog(ring, "", ""))) {
            final int[] counts = logWhile(context.getLogger("orders"),
                () -> Contexts.reconfigure(context, Contexts.farlog(other, "", "")));
            assertFalse(AbstractManager.hasManager("farlog:" + ring.uri));
            assertFalse(other.entries().isEmpty());
            shouldHold(counts, ring.entries(), other.entries());
        }
    }

    @Test
    void shouldLeaveTheRunningConfigurationWhenTheNewOneIsRefused() throws Exception {
        try (LoggerContext context = Contexts.of(Contexts.farlog(ring, "", ""))) {
            final int[] counts = logWhile(context.getLogger("orders"), () -> {
                final String bad = Contexts.farlog(other, "", "").replace("name='farlog'", "name='started'")
                    + "<Farlog name='farlog' uri='mem:/no/ring'/>";
                assertThrows(ConfigurationException.class, () -> Contexts.reconfigure(context, bad));
                assertThrows(ConfigurationException.class,
                    () -> Contexts.reconfigure(context, Contexts.farlog(ring, "policy='what'", "")));
                assertThrows(ConfigurationException.class,
                    () -> Contexts.reconfigure(context,
                        Contexts.farlog(ring, "", "").replace("'visible'", "'persistent'")));
            });
            assertFalse(AbstractManager.hasManager("farlog:" + other.uri));
            shouldHold(counts, ring.entries(), List.of());
        }
    }

    @Test
    void shouldRaiseTheLevelOfARingThatIsOpen() throws Exception {
        try (TestRing file = TestRing.inFile(SIZE_BYTES);
            LoggerContext context = Contexts.of(Contexts.farlog(file, "", ""))) {
            final Logger logger = context.getLogger("orders");
            logger.info("visible");
            assertEquals("VISIBLE", RingStats.of(file.uri).getLastLevel());
            final int[] counts = logWhile(logger,
                () -> Contexts.reconfigure(context,
                    Contexts.farlog(file, "", "").replace("'visible'", "'persistent'")));
            logger.info("persistent");
            assertEquals("PERSISTENT", RingStats.of(file.uri).getLastLevel());
            final List<Entry> entries = file.entries();
            shouldHold(counts, entries.subList(1, entries.size() - 1), List.of());
            Contexts.reconfigure(context, Contexts.farlog(file, "", ""));
            logger.info("a lower level is served by the writer that is there");
            assertEquals("PERSISTENT", RingStats.of(file.uri).getLastLevel());
        }
    }

    @Test
    void shouldThrowWhenTheRingIsRemovedAndGoOnWhenItIsMadeAnew() throws Exception {
        try (LoggerContext context = Contexts.of(Contexts.farlog(ring, "policy='failStop'", ""))) {
            final Logger logger = context.getLogger("orders");
            logger.info("before");
            Files.delete(ring.path);
            final FarlogLoggingException refused = firstRefusal(logger);
            assertEquals(Result.NOT_FOUND, refused.result());
            assertTrue(refused.getMessage().endsWith("NOT_FOUND: the ring's file was removed or replaced"),
                refused.getMessage());
            assertThrows(ConfigurationException.class,
                () -> Contexts.reconfigure(context, Contexts.farlog(ring, "", "")));
            assertEquals(Result.NOT_FOUND, firstRefusal(logger).result());
            ring.format(SIZE_BYTES);
            Contexts.reconfigure(context, Contexts.farlog(ring, "policy='failStop'", ""));
            logger.info("after");
            assertEquals(List.of("after"), ring.texts());
        }
    }

    /** A call is inside such a logger while the configuration is replaced, and meets the appender only then. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void shouldWaitForTheCallsOfALoggerWhoseLevelWasSetAtRunTime(final boolean isVirtual) throws Exception {
        try (LoggerContext context = Contexts.of(Contexts.farlog(ring, "", ""))) {
            final Configuration first = context.getConfiguration();
            final CountDownLatch inside = new CountDownLatch(1);
            final AtomicReference<Throwable> thrown = new AtomicReference<>();
            setLevel(context, new AbstractFilter() {
                @Override
                public Result filter(final LogEvent event) {
                    inside.countDown();
                    while (context.getConfiguration() == first) {
                        LockSupport.parkNanos(1_000_000);
                    }
                    LockSupport.parkNanos(100_000_000); // the appenders would have been taken away long ago
                    return Result.NEUTRAL;
                }
            });
            final Thread late = (isVirtual ? Thread.ofVirtual() : Thread.ofPlatform())
                .uncaughtExceptionHandler((thread, e) -> thrown.set(e))
                .start(() -> context.getLogger("orders").info("late"));
            inside.await();
            Contexts.reconfigure(context, Contexts.farlog(ring, "", ""));
            late.join();
            assertNull(thrown.get());
            assertEquals(List.of("late"), ring.texts());
        }
    }

    @Test
    void shouldLoseNothingOfVirtualThreadsWhenLevelsAreSetAtRunTime() throws Exception {
        try (LoggerContext context = Contexts.of(Contexts.farlog(ring, "", ""))) {
            final int[] counts = logWhile(context.getLogger("orders"), () -> {
                for (int i = 0; i < 6; i++) {
                    setLevel(context, null);
                    LockSupport.parkNanos(20_000_000);
                    Contexts.reconfigure(context, Contexts.farlog(ring, "", ""));
                }
            }, Executors.newVirtualThreadPerTaskExecutor(), 200);
            shouldHold(counts, ring.entries(), List.of());
        }
    }

    /** As Configurator.setLevel does for a logger that the configuration does not name. */
    private static void setLevel(final LoggerContext context, final Filter filter) {
        final LoggerConfig added = new LoggerConfig("orders", Level.INFO, true);
        if (filter != null) {
            added.addFilter(filter);
        }
        context.getConfiguration().addLogger("orders", added);
        context.updateLoggers();
    }

    @Test
    void shouldFollowTheFileThatLog4jWatches() throws Exception {
        final Path file = Files.createDirectories(Path.of("target", "watched")).resolve("log4j2.xml");
        write(file, Contexts.farlog(ring, "", ""));
        try (LoggerContext context = new LoggerContext("watched")) {
            context.start(ConfigurationFactory.getInstance().getConfiguration(context,
                ConfigurationSource.fromUri(file.toUri())));
            final org.apache.logging.log4j.core.Logger logger = context.getLogger("orders");
            final var first = context.getConfiguration();
            try (StatusErrors errors = new StatusErrors()) {
                write(file, Contexts.farlog(ring, "policy='what'", ""));
                errors.await("policy=\"what\"");
            }
            assertSame(first, context.getConfiguration());
            logger.info("still here");
            final LoggerConfig before = logger.get(); // changes after the context's configuration
            write(file, Contexts.farlog(other, "", ""));
            final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (logger.get() == before && System.nanoTime() < end) {
                Thread.sleep(20);
            }
            logger.info("moved");
            assertEquals(List.of("still here"), ring.texts());
            assertEquals(List.of("moved"), other.texts());
        }
    }

    private static void write(final Path file, final String appenders) throws IOException {
        final long later = Files.exists(file) ? Files.getLastModifiedTime(file).toMillis() + 1000
            : System.currentTimeMillis() - 10_000;
        Files.writeString(file, "<Configuration status='off' shutdownHook='disable' monitorInterval='1'><Appenders>"
            + appenders
            + "</Appenders><Loggers><Root level='info'><AppenderRef ref='farlog'/></Root></Loggers></Configuration>");
        Files.setLastModifiedTime(file, FileTime.fromMillis(later));
    }

    /** The ring's file is looked at once a second. */
    private static FarlogLoggingException firstRefusal(final Logger logger) throws InterruptedException {
        final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (System.nanoTime() < end) {
            try {
                logger.info("into the void");
                Thread.sleep(10);
            } catch (final FarlogLoggingException e) {
                return e;
            }
        }
        throw new AssertionError("no event was refused");
    }

    /**
     * Lets threads log while something happens, and for a moment before and after it. Gives how many calls of each
     * returned.
     */
    private static int[] logWhile(final Logger logger, final Runnable change) throws Exception {
        return logWhile(logger, change, Executors.newFixedThreadPool(THREAD_COUNT), THREAD_COUNT);
    }

    private static int[] logWhile(final Logger logger, final Runnable change, final ExecutorService executor,
        final int threadCount)
        throws Exception {
        final int[] counts = new int[threadCount];
        final AtomicBoolean isDone = new AtomicBoolean();
        try (executor) {
            final List<Future<?>> threads = new ArrayList<>();
            for (int t = 0; t < threadCount; t++) {
                final int thread = t;
                threads.add(executor.submit(() -> {
                    while (!isDone.get()) {
                        if (counts[thread] < 160_000 / threadCount) { // then the ring is nearly full
                            logger.info("{} {}", thread, counts[thread]);
                            counts[thread]++;
                            if (threadCount > THREAD_COUNT) {
                                LockSupport.parkNanos(4_000_000); // so that they still log when the change is over
                            }
                        } else {
                            LockSupport.parkNanos(100_000);
                        }
                    }
                    logger.info("{} {}", thread, counts[thread]); // each thread logs at least once after the change
                    counts[thread]++;
                }));
            }
            Thread.sleep(20);
            change.run();
            Thread.sleep(20);
            isDone.set(true);
            for (final Future<?> each : threads) {
                each.get();
            }
        }
        return counts;
    }

    private static void shouldHold(final int[] counts, final List<Entry> first, final List<Entry> second) {
        final int[] next = new int[counts.length];
        for (final List<Entry> entries : List.of(first, second)) {
            for (final Entry entry : entries) {
                final String[] words = entry.text().split(" ");
                final int thread = Integer.parseInt(words[0]);
                assertEquals(next[thread]++, Integer.parseInt(words[1]), "order of thread " + thread);
            }
        }
        for (int thread = 0; thread < counts.length; thread++) {
            assertEquals(counts[thread], next[thread], "events of thread " + thread);
            assertTrue(counts[thread] > 0);
        }
    }
}
