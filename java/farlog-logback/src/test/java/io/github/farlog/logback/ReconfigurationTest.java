package io.github.farlog.logback;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.joran.JoranConfigurator;
import ch.qos.logback.classic.spi.LoggingEvent;
import io.github.farlog.client.FarlogException;
import io.github.farlog.client.Result;
import io.github.farlog.client.Ring;
import io.github.farlog.client.RingOptions;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicIntegerArray;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Logback takes its appenders away and makes new ones while the application logs on. */
@Timeout(1800)
class ReconfigurationTest {
    private static final int RESETS = Integer.getInteger("farlog.resets", 20);
    private static final int THREADS = 4;
    private static final String UNWANTED = "unwanted";

    /** Threads that log without a pause until they are stopped, and how many of each one's calls returned. */
    private static final class Load implements AutoCloseable {
        final AtomicIntegerArray returned = new AtomicIntegerArray(THREADS);
        final List<Throwable> thrown = new ArrayList<>();
        private final AtomicBoolean isStopped = new AtomicBoolean();
        private final List<Thread> threads = new ArrayList<>();

        Load(final Logger logger) throws InterruptedException {
            final CountDownLatch running = new CountDownLatch(THREADS);
            for (int t = 0; t < THREADS; t++) {
                final int thread = t;
                threads.add(Thread.ofPlatform().start(() -> {
                    try {
                        for (int i = 0; !isStopped.get(); i++) {
                            logger.info("{} {}", thread, i);
                            returned.set(thread, i + 1);
                            logger.debug(UNWANTED);
                            running.countDown();
                            Thread.sleep(0, 20_000);
                        }
                    } catch (final Exception | Error e) {
                        synchronized (thrown) {
                            thrown.add(e);
                        }
                    }
                }));
            }
            running.await();
        }

        @Override
        public void close() {
            isStopped.set(true);
            for (final Thread thread : threads) {
                try {
                    thread.join();
                } catch (final InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }
        }
    }

    private static void shouldHaveAll(final TestRing ring, final Load load) {
        assertEquals(List.of(), load.thrown);
        // In the moment in which Logback has the root's level reset, it may let an event through that nobody asked for.
        final Map<String, Integer> found = ThreadsTest
            .count(ring.texts().stream().filter(text -> !text.equals(UNWANTED)).toList());
        for (int t = 0; t < THREADS; t++) {
            assertEquals(load.returned.get(t), found.get(Integer.toString(t)), "thread " + t);
        }
    }

    @Test
    void shouldLoseAndDoubleNothingWhenResetUnderLoad() throws InterruptedException, FarlogException {
        try (TestRing ring = new TestRing(64 << 20); TestContext test = TestContext.of(TestContext.xml(ring, ""))) {
            final int epoch = Ring.inspect(ring.uri).writerEpoch();
            final Load load = new Load(test.logger("a.b"));
            try (load) {
                for (int i = 0; i < RESETS; i++) {
                    test.reconfigure(TestContext.xml(ring, "<classId>" + i + "</classId>"));
                }
            }
            test.logger("a.b").info("last 0");
            shouldHaveAll(ring, load);
            assertEquals(epoch, Ring.inspect(ring.uri).writerEpoch(), "the same writer all along");
            assertTrue(ring.records().stream().anyMatch(record -> record.classId() == RESETS - 1));
            assertEquals(List.of(), test.errors());
        }
    }

    /**
     * Logback's watcher may see another change while the last one is being put in place: the new configuration has
     * begun to watch before it was done. A thread that logs at the wrong moment then has Logback copy an empty list of
     * appenders, and all threads lose what they log until it changes again.
     */
    @Test
    void shouldLoseNothingWhenItIsResetBeforeTheLastResetIsOver() throws Exception {
        try (TestRing ring = new TestRing(64 << 20); TestContext test = TestContext.of(TestContext.xml(ring, ""))) {
            final Load load = new Load(test.logger("a.b"));
            try (load) {
                for (int i = 0; i < RESETS / 2; i++) {
                    final String xml = TestContext.xml(ring, "<classId>" + i + "</classId>");
                    final Thread first = Thread.ofPlatform().start(() -> test.reconfigure(xml));
                    awaitEnding(first);
                    test.reconfigure(xml);
                    assertFalse(isEnding(first), "a reset while the last one's appenders are still being taken away");
                    first.join();
                }
            }
            shouldHaveAll(ring, load);
            assertEquals(List.of(), test.errors());
        }
    }

    private static boolean isEnding(final Thread reconfiguring) {
        return Arrays.stream(reconfiguring.getStackTrace()).anyMatch(frame -> frame.getMethodName().equals("letGo"));
    }

    private static void awaitEnding(final Thread reconfiguring) throws InterruptedException {
        while (reconfiguring.isAlive() && !isEnding(reconfiguring)) {
            Thread.sleep(1);
        }
    }

    @Test
    void shouldKeepBothRecordsOfTwoAppendersOfOneRingWhenReset() {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = TestContext.of(two(ring))) {
            test.logger("x").info("one");
            test.reconfigure(two(ring));
            test.logger("x").info("two");
            test.reconfigure(two(ring));
            test.logger("x").info("three");
            assertEquals(List.of("1 one", "2 one", "1 two", "2 two", "1 three", "2 three"),
                ring.records().stream().map(record -> record.classId() + " " + record.text()).toList());
        }
    }

    private static String two(final TestRing ring) {
        final String one = TestContext.xml(ring, "<classId>1</classId>");
        final String element = one.substring(one.indexOf("<appender "), one.indexOf("<root"));
        return one
            .replace("<root level=\"info\">", element.replace("FARLOG", "OTHER").replace("<classId>1", "<classId>2")
                + "<root level=\"info\">")
            .replace("</root>", "<appender-ref ref=\"OTHER\"/></root>");
    }

    @Test
    void shouldRecordAnEventThatIsTriedAgainAfterItFailedWhenReset() {
        try (TestRing ring = new TestRing(256 << 10);
            TestContext test = TestContext.of(TestContext.xml(ring, "<policy>failStop</policy>"))) {
            test.reconfigure(TestContext.xml(ring, "<policy>failStop</policy>"));
            final Logger logger = test.logger("x");
            final FarlogAppender appender = (FarlogAppender) test.logger(Logger.ROOT_LOGGER_NAME).getAppender("FARLOG");
            LoggingEvent refused = null;
            for (int i = 0; refused == null; i++) {
                final LoggingEvent event = new LoggingEvent("x", logger, Level.INFO, "event " + i + "x".repeat(1000),
                    null, null);
                try {
                    appender.doAppend(event);
                } catch (final FarlogAppendException e) {
                    refused = event;
                }
            }
            final LoggingEvent again = refused;
            assertThrows(FarlogAppendException.class, () -> appender.doAppend(again));
            ring.drain();
            appender.doAppend(again);
            assertEquals(List.of(again.getFormattedMessage()), ring.texts());
        }
    }

    @Test
    void shouldReopenTheRingAtANewLevelUnderLoad() throws InterruptedException, FarlogException {
        try (TestRing ring = new TestRing(64 << 20); TestContext test = TestContext.of(TestContext.xml(ring, ""))) {
            final int epoch = Ring.inspect(ring.uri).writerEpoch();
            final Load load = new Load(test.logger("x"));
            try (load) {
                test.reconfigure(TestContext.xml(ring, "<deadline>2s</deadline>"));
            }
            shouldHaveAll(ring, load);
            assertEquals(epoch + 1, Ring.inspect(ring.uri).writerEpoch());
        }
    }

    @Test
    void shouldGoOnAsBeforeWhenTheNewConfigurationIsWrong() throws InterruptedException {
        try (TestRing ring = new TestRing(64 << 20); TestContext test = TestContext.of(TestContext.xml(ring, ""))) {
            final Load load = new Load(test.logger("x"));
            try (load) {
                test.reconfigure(TestContext.xml(ring, "<policy>maybe</policy>"));
                assertTrue(test.errors().get(0).contains("goes on as it was configured before"),
                    test.errors()::toString);
                Thread.sleep(20);
                test.reconfigure(TestContext.xml(ring, "<level>stored</level>"));
                Thread.sleep(20);
                test.reconfigure(TestContext.xml(ring, ""));
            }
            shouldHaveAll(ring, load);
        }
    }

    @Test
    void shouldLetTheRingGoWhenTheNewConfigurationDoesNotNameIt() throws FarlogException {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = TestContext.of(TestContext.xml(ring, ""))) {
            test.reconfigure("<configuration><root level='info'/></configuration>");
            assertFalse(Ring.inspect(ring.uri).writerHeld());
            assertNull(Reconfiguration.of(test.context));
            test.logger("x").info("nobody listens");
            assertEquals(List.of(), ring.texts());
        }
    }

    @Test
    void shouldMoveToAnotherRingUnderLoad() throws InterruptedException {
        try (TestRing one = new TestRing(64 << 20); TestRing two = new TestRing(64 << 20);
            TestContext test = TestContext.of(TestContext.xml(one, ""))) {
            final Load load = new Load(test.logger("x"));
            try (load) {
                Thread.sleep(20);
                test.reconfigure(TestContext.xml(two, ""));
                Thread.sleep(20);
            }
            assertEquals(List.of(), load.thrown);
            assertEquals(List.of(), test.errors());
            // A call that met both appenders is in both rings. A call in the second ring alone has no later call of its
            // thread in the first.
            final LinkedHashSet<String> both = new LinkedHashSet<>(one.texts());
            assertTrue(both.addAll(two.texts()));
            both.remove(UNWANTED);
            ThreadsTest.count(new ArrayList<>(both))
                .forEach((thread, count) -> assertEquals(load.returned.get(Integer.parseInt(thread)), count));
        }
    }

    /** The queue's thread stops the appender: the ring is closed and opened again. */
    @Test
    void shouldTakeTheRingAgainBelowAnAsyncAppender() {
        try (TestRing ring = new TestRing(4 << 20)) {
            final String xml = PolicyTest.ASYNC.formatted(ring.uri, "failStop");
            final List<String> expected = new ArrayList<>();
            try (TestContext test = TestContext.of(xml)) {
                for (int i = 0; i < 500; i++) {
                    test.logger("x").warn("event {}", i);
                    expected.add("event " + i);
                    if (i % 100 == 50) {
                        test.reconfigure(xml);
                    }
                }
                assertEquals(List.of(), test.errors());
            }
            assertEquals(expected, ring.texts());
        }
    }

    @Test
    void shouldTakeAFenceBackWhenItIsReconfigured() throws FarlogException {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = TestContext.of(TestContext.xml(ring, ""))) {
            test.logger("x").info("one");
            Ring.fence(ring.uri, 40);
            assertThrows(FarlogAppendException.class, () -> test.logger("x").info("fenced"));
            test.reconfigure(TestContext.xml(ring, "<epoch>40</epoch>"));
            test.logger("x").info("two");
            assertEquals(List.of("one", "two"), ring.texts());
            assertEquals(40, ring.records().get(1).epoch());
        }
    }

    @Test
    void shouldThrowWhenTheRingIsRemovedAndGoOnWhenItIsMadeAnew() throws Exception {
        final String failing = "<policy>failStop</policy>";
        try (TestRing ring = new TestRing(1 << 20); TestContext test = TestContext.of(TestContext.xml(ring, failing))) {
            final Logger logger = test.logger("x");
            logger.info("before");
            Files.delete(ring.path);
            assertTrue(
                firstRefusal(logger).getMessage().endsWith("NOT_FOUND: the ring's file was removed or replaced"));
            test.reconfigure(TestContext.xml(ring, failing));
            assertEquals(Result.NOT_FOUND, firstRefusal(logger).result());
            Ring.format(ring.uri, RingOptions.defaults().withSizeBytes(1 << 20));
            test.reconfigure(TestContext.xml(ring, failing));
            logger.info("after");
            assertEquals(List.of("after"), ring.texts());
        }
    }

    @Test
    void shouldOpenTheRingThatWasPutInThePlaceOfItsOwnWhenReset() throws Exception {
        try (TestRing ring = new TestRing(1 << 20); TestRing other = new TestRing(1 << 20);
            TestContext test = TestContext.of(TestContext.xml(ring, ""))) {
            test.logger("x").info("before");
            Files.move(other.path, ring.path, StandardCopyOption.ATOMIC_MOVE);
            test.reconfigure(TestContext.xml(ring, "")); // before it was noticed
            test.logger("x").info("after");
            assertEquals(List.of("after"), ring.texts());
        }
    }

    /** The ring's file is looked at once a second. */
    private static FarlogAppendException firstRefusal(final Logger logger) throws InterruptedException {
        while (true) { // bounded by the test's time
            try {
                logger.info("into the void");
                Thread.sleep(10);
            } catch (final FarlogAppendException e) {
                return e;
            }
        }
    }

    /** Logback's own watcher of the file, which reconfigures on a thread of its own. */
    @Test
    void shouldLoseNothingWhenTheFileIsScanned(@TempDir final Path folder) throws Exception {
        final Path file = folder.resolve("logback.xml");
        try (TestRing ring = new TestRing(64 << 20); TestContext test = new TestContext()) {
            final String xml = TestContext.xml(ring, "")
                .replace("<configuration>", "<configuration scan='true' scanPeriod='100 milliseconds'>");
            Files.writeString(file, xml);
            final JoranConfigurator configurator = new JoranConfigurator();
            configurator.setContext(test.context);
            configurator.doConfigure(file.toFile());
            final Load load = new Load(test.logger("x"));
            try (load) {
                replace(file, xml.replace("<level>visible", "<classId>7</classId><level>visible"), 2000);
                awaitClass(ring, 7);
                // Not well-formed XML: Logback falls back to the last configuration that worked.
                replace(file, xml.replace("</appender>", ""), 4000);
                Thread.sleep(500);
            }
            shouldHaveAll(ring, load);
        }
    }

    private static void replace(final Path file, final String text, final int laterMillis) throws java.io.IOException {
        final Path next = file.resolveSibling("next");
        Files.writeString(next, text);
        Files.setLastModifiedTime(next, FileTime.fromMillis(System.currentTimeMillis() + laterMillis));
        Files.move(next, file, StandardCopyOption.ATOMIC_MOVE);
    }

    private static void awaitClass(final TestRing ring, final int classId) throws InterruptedException {
        while (ring.records().stream().noneMatch(record -> record.classId() == classId)) {
            Thread.sleep(20);
        }
    }
}
