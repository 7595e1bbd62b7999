package io.github.farlog.logback;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ch.qos.logback.classic.LoggerContext;
import java.io.IOException;
import java.nio.MappedByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Applications that end as they are asked to, in no haste, while ten threads log on: counted as {@link KillTest} does,
 * every event whose call returned is in the ring, whoever stops the context meanwhile.
 */
class EndTest {
    private static final int THREADS = 10;
    private static final int HOOK_MILLIS = 700;
    private static final int TERM = 128 + 15;
    private static final long PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(1);

    /** Usage: NOTES nobody|logback|application signal|exit: who stops the context, and what ends the process. */
    static final class Application {
        public static void main(final String[] arguments) throws Exception {
            final MappedByteBuffer returned = KillTest.map(Path.of(arguments[0]), THREADS);
            final Logger logger = LoggerFactory.getLogger("orders");
            Runtime.getRuntime().addShutdownHook(new Thread(() -> sleep(HOOK_MILLIS)));
            if (arguments[1].equals("application")) { // as Spring Boot does
                Runtime.getRuntime()
                    .addShutdownHook(new Thread(((LoggerContext) LoggerFactory.getILoggerFactory())::stop));
            }
            for (int t = 0; t < THREADS; t++) {
                final int thread = t;
                Thread.ofPlatform().start(() -> {
                    for (int i = 0;; i++) {
                        logger.info("run {} {}", thread, i);
                        logger.debug("run {} unwanted", thread);
                        returned.putInt(thread * KillTest.SLOT, i + 1);
                        LockSupport.parkNanos(PAUSE_NANOS);
                    }
                });
            }
            if (arguments[2].equals("exit")) {
                sleep(HOOK_MILLIS);
                System.exit(0);
            }
        }
    }

    /** Drops events until there is a gap to tell, says so, and waits for a signal. */
    static final class Dropping {
        public static void main(final String[] arguments) throws InterruptedException {
            final Logger logger = LoggerFactory.getLogger("orders");
            while (Target.all().getFirst().getDroppedCount() == 0) {
                logger.info("x".repeat(1000));
            }
            System.out.println("dropped");
            Thread.sleep(Long.MAX_VALUE);
        }
    }

    private static void sleep(final long millis) {
        try {
            Thread.sleep(millis);
        } catch (final InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    @ParameterizedTest
    @CsvSource({"nobody,signal", "logback,signal", "logback,exit", "application,signal"})
    void shouldHaveEveryEventWhoseCallReturnedWhenTheProcessEnds(final String who, final String how,
        @TempDir final Path folder)
        throws Exception {
        try (TestRing ring = new TestRing(64 << 20)) {
            final String hook = who.equals("logback") ? "<configuration><shutdownHook/>" : "<configuration>";
            final Path xml = Files.writeString(folder.resolve("logback.xml"),
                TestContext.xml(ring, "").replace("<configuration>", hook));
            final Path notes = folder.resolve("notes");
            final MappedByteBuffer returned = KillTest.map(notes, THREADS);
            final Path output = folder.resolve("output");
            final Process process = Child.command(xml, Application.class, notes.toString(), who, how)
                .redirectErrorStream(true)
                .redirectOutput(output.toFile()).start();
            final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (KillTest.sum(returned, THREADS) < 20 * THREADS) {
                assertTrue(process.isAlive() && System.nanoTime() < end, () -> KillTest.read(output));
                Thread.sleep(1);
            }
            final int before = KillTest.sum(returned, THREADS);
            if (how.equals("signal")) {
                process.destroy();
            }
            assertEquals(how.equals("signal") ? TERM : 0, process.waitFor(), () -> KillTest.read(output));
            final long events = KillTest.check(ring, "run", returned, THREADS);
            assertTrue(events > before + 10 * THREADS,
                () -> "hardly a thread logged while the process ended: " + before + ", " + events);
            assertFalse(KillTest.read(output).contains("Exception"), () -> KillTest.read(output));
        }
    }

    @Test
    void shouldTellAGapWhenTheProcessEnds(@TempDir final Path folder) throws IOException, InterruptedException {
        try (TestRing ring = new TestRing(1 << 20)) {
            final Path xml = Files.writeString(folder.resolve("logback.xml"),
                TestContext.xml(ring, "<policy>dropAndGap</policy>"));
            final Path output = folder.resolve("output");
            final Process process = Child.command(xml, Dropping.class).redirectErrorStream(true)
                .redirectOutput(output.toFile()).start();
            final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (!KillTest.read(output).contains("dropped")) {
                assertTrue(process.isAlive() && System.nanoTime() < end, () -> KillTest.read(output));
                Thread.sleep(1);
            }
            assertTrue(ring.drain().size() > 100);
            process.destroy();
            assertEquals(TERM, process.waitFor());
            final List<TestRing.Record> rest = ring.drain();
            assertEquals(1, rest.size(), rest::toString);
            assertTrue(rest.getFirst().text().startsWith("farlog.gap dropped=1 unknown=0 "), rest::toString);
        }
    }
}
