package io.github.farlog.logback;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ch.qos.logback.classic.AsyncAppender;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import io.github.farlog.client.FarlogException;
import io.github.farlog.client.Result;
import io.github.farlog.client.Ring;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.slf4j.helpers.BasicMarkerFactory;

/**
 * What becomes of an event that the ring does not take: ring full, writer fenced; below each kind of Logback's own
 * appenders.
 */
class PolicyTest {
    private static final String FAILOVER = """
        <configuration>
          <appender name="LIST" class="ch.qos.logback.core.read.ListAppender"/>
          <appender name="FARLOG" class="io.github.farlog.logback.FarlogAppender">
            <uri>%s</uri>
            <level>visible</level>
            <policy>failover</policy>
            <appender-ref ref="LIST"/>
            <encoder><pattern>%%msg</pattern></encoder>
          </appender>
          <root level="info"><appender-ref ref="FARLOG"/></root>
        </configuration>
        """;
    static final String ASYNC = """
        <configuration>
          <appender name="FARLOG" class="io.github.farlog.logback.FarlogAppender">
            <uri>%s</uri>
            <level>visible</level>
            <policy>%s</policy>
            <encoder><pattern>%%msg</pattern></encoder>
          </appender>
          <appender name="ASYNC" class="ch.qos.logback.classic.AsyncAppender">
            <maxFlushTime>10000</maxFlushTime>
            <appender-ref ref="FARLOG"/>
          </appender>
          <root level="info"><appender-ref ref="ASYNC"/></root>
        </configuration>
        """;
    private static final String SIFT = """
        <configuration>
          <appender name="SIFT" class="ch.qos.logback.classic.sift.SiftingAppender">
            <discriminator><key>desk</key><defaultValue>a</defaultValue></discriminator>
            <sift>
              <appender name="FARLOG-${desk}" class="io.github.farlog.logback.FarlogAppender">
                <uri>%s${desk}</uri>
                <level>visible</level>
                <encoder><pattern>%%msg</pattern></encoder>
              </appender>
            </sift>
          </appender>
          <root level="info"><appender-ref ref="SIFT"/></root>
        </configuration>
        """;

    /** Logs until the ring is full; the numbers of the events that the ring took. */
    private static int fill(final Logger logger) {
        for (int i = 0;; i++) {
            try {
                logger.info("event {} {}", i, "x".repeat(100));
            } catch (final FarlogAppendException e) {
                assertEquals(Result.FULL, e.result());
                return i;
            }
        }
    }

    private static String number(final String text) {
        return text.replaceAll("event (\\d+) x+", "$1");
    }

    @Test
    void shouldThrowToTheCallerWhenFullAndTakeEventsAgainWhenDrained() {
        try (TestRing ring = new TestRing(256 << 10); TestContext test = TestContext.of(TestContext.xml(ring, ""))) {
            final Logger logger = test.logger("x");
            final int taken = fill(logger);
            assertThrows(FarlogAppendException.class, () -> logger.info("event {} {}", taken, "x".repeat(100)));
            assertEquals(taken, ring.drain().size());
            logger.info("next");
            assertEquals(List.of("next"), ring.texts());
            assertTrue(test.errors().get(0).contains("FULL"), test.errors()::toString);
            assertTrue(test.errors().size() <= 2, "two events were refused, a second apart");
        }
    }

    /**
     * A flood of refused events is a few lines, each with the count of those before it, and an exception of one line
     * each.
     */
    @Test
    void shouldTellOfAFloodInAFewLines() {
        try (TestRing ring = new TestRing(1 << 20);
            TestContext test = TestContext.of(TestContext.xml(ring, "<policy>failStop</policy>"))) {
            final ch.qos.logback.classic.Logger logger = test.logger("x");
            int refused = 0;
            for (int i = 0; i < 5000 || refused == 0; i++) {
                try {
                    logger.info("p".repeat(1000));
                } catch (final FarlogAppendException e) {
                    refused++;
                    assertEquals(0, e.getStackTrace().length);
                    assertTrue(e.getMessage().contains(ring.uri) && e.getMessage().contains("FULL"), e.getMessage());
                }
            }
            assertTrue(refused > 1000, "refused " + refused);
            final List<String> lines = test.errors().stream().filter(line -> line.contains("FULL")).toList();
            assertTrue(!lines.isEmpty() && lines.size() < 10, lines::toString);
            ring.drain();
            logger.info("room");
            final long told = lines.size() + test.all().stream().mapToLong(PolicyTest::moreOf).sum();
            assertEquals(refused, told);
            assertEquals(refused, Target.all().getFirst().getRefusedCount());
        }
    }

    private static long moreOf(final String line) {
        final java.util.regex.Matcher matcher = java.util.regex.Pattern.compile("; (\\d+) more since").matcher(line);
        return matcher.find() ? Long.parseLong(matcher.group(1)) : 0;
    }

    @Test
    void shouldThrowToTheCallerWhenFenced() throws FarlogException {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = TestContext.of(TestContext.xml(ring, ""))) {
            final Logger logger = test.logger("x");
            logger.info("before");
            Ring.fence(ring.uri, 1000);
            assertEquals(Result.FENCED,
                assertThrows(FarlogAppendException.class, () -> logger.info("fenced")).result());
            assertEquals(List.of("before"), ring.texts());
        }
    }

    @Test
    void shouldGiveToTheAppenderInsideWhenFullAndWhenFenced() throws FarlogException {
        try (TestRing ring = new TestRing(256 << 10); TestContext test = TestContext.of(FAILOVER.formatted(ring.uri))) {
            final Logger logger = test.logger("x");
            final FarlogAppender appender = (FarlogAppender) test.logger(Logger.ROOT_LOGGER_NAME).getAppender("FARLOG");
            final ListAppender<ILoggingEvent> list = (ListAppender<ILoggingEvent>) appender.getAppender("LIST");
            final List<String> expected = new ArrayList<>();
            for (int i = 0; i < 2000; i++) {
                logger.info("event {} {}", i, "x".repeat(100));
                expected.add(Integer.toString(i));
            }
            final List<String> found = new ArrayList<>(
                ring.drain().stream().map(record -> number(record.text())).toList());
            assertFalse(found.isEmpty());
            list.list.forEach(event -> found.add(number(event.getFormattedMessage())));
            assertEquals(expected, found);
            list.list.clear();
            logger.info("drained");
            Ring.fence(ring.uri, 1000);
            logger.info("fenced");
            assertEquals(List.of("drained"), ring.texts());
            assertEquals(List.of("fenced"), list.list.stream().map(ILoggingEvent::getFormattedMessage).toList());
        }
    }

    @Test
    void shouldThrowForTheCriticalAndWhenNoAppenderInsideRuns() throws FarlogException {
        final String rule = "<classOf>marker:ORDER=2 critical</classOf>";
        try (TestRing ring = new TestRing(1 << 20);
            TestContext test = TestContext.of(FAILOVER.formatted(ring.uri).replace("<policy>", rule + "<policy>"))) {
            final Logger logger = test.logger("x");
            final FarlogAppender appender = (FarlogAppender) test.logger(Logger.ROOT_LOGGER_NAME).getAppender("FARLOG");
            final ListAppender<ILoggingEvent> list = (ListAppender<ILoggingEvent>) appender.getAppender("LIST");
            Ring.fence(ring.uri, 1000);
            assertThrows(FarlogAppendException.class,
                () -> logger.info(new BasicMarkerFactory().getMarker("ORDER"), "order"));
            logger.info("plain");
            list.stop();
            assertThrows(FarlogAppendException.class, () -> logger.info("nowhere"));
            assertEquals(List.of("plain"), list.list.stream().map(ILoggingEvent::getFormattedMessage).toList());
        }
    }

    @Test
    void shouldRefuseToStartWithAnAppenderInsideThatIsMissingOrNotStarted() {
        try (TestRing ring = new TestRing(1 << 20)) {
            final String good = FAILOVER.formatted(ring.uri);
            assertThrows(FarlogConfigurationError.class,
                () -> TestContext.of(good.replace("ref=\"LIST\"", "ref=\"LOST\"")));
            // A FileAppender without a file does not start.
            final String file = "<appender name=\"LIST\" class=\"ch.qos.logback.core.FileAppender\"/>";
            assertThrows(FarlogConfigurationError.class,
                () -> TestContext.of(good.replaceFirst("<appender name=\"LIST\"[^>]*/>", file)));
        }
    }

    @Test
    void shouldWaitForRoomUntilItsTimeAndThenThrow() throws InterruptedException {
        try (TestRing ring = new TestRing(256 << 10);
            TestContext test = TestContext.of(TestContext.xml(ring, "<policy>block(300ms)</policy>"))) {
            final Logger logger = test.logger("x");
            final int taken = fill(logger);
            final long start = System.nanoTime();
            assertThrows(FarlogAppendException.class, () -> logger.info("event {} {}", taken, "x".repeat(100)));
            assertTrue(System.nanoTime() - start >= 300_000_000L);
            // Longer than a thread waits for a processor on a loaded machine.
            test.reconfigure(TestContext.xml(ring, "<policy>block(60s)</policy>"));
            final List<Object> thrown = new ArrayList<>();
            final Thread waiting = Thread.ofVirtual().start(() -> {
                try {
                    logger.info("event {} {}", 9999, "x".repeat(100));
                } catch (final FarlogAppendException e) {
                    thrown.add(e);
                }
            });
            Thread.sleep(50);
            assertTrue(waiting.isAlive());
            // May already drain the waiting record, for which it frees space.
            final List<TestRing.Record> all = new ArrayList<>(ring.drain());
            waiting.join();
            assertEquals(List.of(), thrown);
            all.addAll(ring.records());
            assertEquals(taken + 1, all.size());
            assertEquals("9999", number(all.getLast().text()));
        }
    }

    @Test
    void shouldWaitNoLongerThanItsTimeWhenManyThreadsFindAGap() throws InterruptedException {
        final String rules = "<classOf>marker:NOISE=1 droppable</classOf><policy>block(2s)</policy>";
        try (TestRing ring = new TestRing(256 << 10); TestContext test = TestContext.of(TestContext.xml(ring, rules))) {
            final Logger logger = test.logger("x");
            fill(logger);
            logger.info(new BasicMarkerFactory().getMarker("NOISE"), "x".repeat(100));
            final long[] millis = new long[6];
            final List<Thread> threads = new ArrayList<>();
            for (int t = 0; t < millis.length; t++) {
                final int thread = t;
                threads.add(Thread.ofPlatform().start(() -> {
                    final long start = System.nanoTime();
                    assertThrows(FarlogAppendException.class,
                        () -> logger.info("event {} {}", thread, "x".repeat(100)));
                    millis[thread] = (System.nanoTime() - start) / 1_000_000;
                }));
            }
            for (final Thread thread : threads) {
                thread.join();
            }
            for (final long waited : millis) {
                assertTrue(waited >= 2000 && waited < 6000, () -> waited + " ms");
            }
        }
    }

    /**
     * A thread waits for room with a gap to be told before its event; when three quarters of its time are over another
     * one begins to write that gap and is stuck. The time is that of the call, not of each try.
     */
    @Test
    void shouldWaitNoLongerThanItsTimeWhenAnotherThreadHasTheGap() throws Exception {
        final long wait = TimeUnit.SECONDS.toNanos(4);
        final long deadline = TimeUnit.SECONDS.toNanos(10);
        try (TestRing ring = new TestRing(256 << 10);
            TestContext test = TestContext.of(TestContext.xml(ring, "<policy>failStop</policy>"))) {
            fill(test.logger("x"));
            final Target target = Target.all().stream().filter(each -> each.getUri().equals(ring.uri)).findFirst()
                .orElseThrow();
            target.drop(1, Result.FULL);
            final CountDownLatch isLate = new CountDownLatch(1);
            final CountDownLatch isStuck = new CountDownLatch(1);
            final CountDownLatch isOver = new CountDownLatch(1);
            final byte[] big = new byte[1000];
            final Thread other = Thread.ofPlatform().start(() -> {
                ReconfigurationThreadsTest.await(isLate);
                target.closeGap(gap -> {
                    isStuck.countDown();
                    ReconfigurationThreadsTest.await(isOver);
                    return big;
                }, 9, System.nanoTime() + deadline, deadline);
            });
            final long start = System.nanoTime();
            final Result result = target.append(big, 1, 1, new Scratch(), gap -> {
                if (System.nanoTime() - start > wait * 3 / 4) {
                    isLate.countDown();
                }
                return big;
            }, 9, wait, deadline);
            final long waited = System.nanoTime() - start;
            final long stuck = isStuck.getCount();
            isOver.countDown();
            other.join();
            assertEquals(Result.FULL, result);
            assertEquals(0, stuck, "the other thread had the gap meanwhile");
            assertTrue(waited >= wait && waited < wait * 13 / 8, () -> waited + " ns");
        }
    }

    @Test
    void shouldStayUnknownUnlessTheRecordWasFound() {
        for (final Result resolved : Result.values()) {
            assertEquals(resolved == Result.OK ? Result.OK : Result.UNKNOWN, Target.afterUnknown(resolved));
        }
    }

    @Test
    void shouldDropCountAndTellTheGap() {
        try (TestRing ring = new TestRing(256 << 10);
            TestContext test = TestContext
                .of(TestContext.xml(ring, "<policy>dropAndGap</policy><gapClass>99</gapClass>"))) {
            final Logger logger = test.logger("x");
            for (int i = 0; i < 2000; i++) {
                logger.info("event {} {}", i, "x".repeat(100));
            }
            final List<TestRing.Record> first = ring.drain();
            assertTrue(first.size() < 2000);
            logger.info("again");
            final List<TestRing.Record> second = ring.records();
            final Matcher gap = Pattern
                .compile("farlog\\.gap dropped=(\\d+) unknown=0 from=(20\\S+Z) to=(20\\S+Z) cause=FULL")
                .matcher(second.get(0).text());
            assertTrue(gap.matches(), second.get(0).text());
            assertEquals(2000 - first.size(), Integer.parseInt(gap.group(1)));
            assertFalse(Instant.parse(gap.group(2)).isAfter(Instant.parse(gap.group(3))), second.get(0).text());
            assertEquals(99, second.get(0).classId());
            assertEquals("again", second.get(1).text());
            assertEquals(2, second.size());
        }
    }

    @Test
    void shouldTellTheGapAtLastWhenItStops() {
        try (TestRing ring = new TestRing(1 << 20, 4096);
            TestContext test = TestContext.of(TestContext.xml(ring, "<policy>dropAndGap</policy>"))) {
            test.logger("x").info("x".repeat(5000));
            test.context.stop();
            assertTrue(ring.texts().get(0).startsWith("farlog.gap dropped=1 "), ring.texts()::toString);
        }
    }

    @Test
    void shouldDropTheDroppableAndThrowForTheCriticalWhateverThePolicy() {
        final BasicMarkerFactory markers = new BasicMarkerFactory();
        final String rules = "<classOf>marker:NOISE=1 droppable</classOf><classOf>marker:ORDER=2 critical</classOf>";
        try (TestRing strict = new TestRing(256 << 10);
            TestContext one = TestContext.of(TestContext.xml(strict, rules));
            TestRing loose = new TestRing(1 << 20, 4096);
            TestContext two = TestContext.of(TestContext.xml(loose, rules + "<policy>dropAndGap</policy>"))) {
            final String big = "x".repeat(5000);
            final int taken = fill(one.logger("x"));
            one.logger("x").info(markers.getMarker("NOISE"), "noise {}", big);
            assertThrows(FarlogAppendException.class, () -> one.logger("x").info("plain {}", big));
            assertEquals(taken, strict.drain().size());
            one.logger("x").info("after");
            assertTrue(strict.texts().get(0).startsWith("farlog.gap dropped=1 "), strict.texts()::toString);
            two.logger("x").info(big);
            assertThrows(FarlogAppendException.class, () -> two.logger("x").info(markers.getMarker("ORDER"), big));
        }
    }

    @Test
    void shouldThrowToTheCallerPastASiftingAppenderThatSwallowsExceptions() {
        try (TestRing ring = new TestRing(256 << 10)) {
            final String desk = ring.uri.substring(ring.uri.length() - 1);
            final String stem = ring.uri.substring(0, ring.uri.length() - 1);
            // The last sign of the URI is the desk: what the discriminator finds is part of the ring's name.
            try (TestContext test = TestContext
                .of(SIFT.formatted(stem).replace("<defaultValue>a", "<defaultValue>" + desk))) {
                final Logger logger = test.logger("x");
                int taken = 0;
                FarlogAppendError thrown = null;
                while (thrown == null) {
                    try {
                        logger.info("event {} {}", taken, "x".repeat(100));
                        taken++;
                    } catch (final FarlogAppendError e) {
                        thrown = e;
                    }
                }
                assertEquals(Result.FULL, assertInstanceOf(FarlogAppendException.class, thrown.getCause()).result());
                assertEquals(taken, ring.drain().size());
            }
        }
    }

    @Test
    void shouldSiftIntoARingForEachValueAndRefuseAMissingOne() {
        try (TestRing ring = new TestRing(1 << 20);
            TestContext test = TestContext.of(SIFT.formatted("mem:" + ring.path.getParent() + "/"))) {
            final Logger logger = test.logger("x");
            test.mdc.put("desk", ring.path.getFileName().toString());
            logger.info("one");
            logger.info("two");
            test.mdc.put("desk", "farlog-no-such.ring");
            assertThrows(FarlogConfigurationError.class, () -> logger.info("nowhere"));
            assertEquals(List.of("one", "two"), ring.texts());
        }
    }

    @Test
    void shouldTakeEverythingFromAnAsyncAppenderThatIsStopped() {
        try (TestRing ring = new TestRing(4 << 20)) {
            final List<String> expected = new ArrayList<>();
            try (TestContext test = TestContext.of(ASYNC.formatted(ring.uri, "failStop"))) {
                for (int i = 0; i < 5000; i++) {
                    test.logger("x").warn("event {} xxx", i);
                    expected.add(Integer.toString(i));
                }
            }
            assertEquals(expected, ring.texts().stream().map(PolicyTest::number).toList());
        }
    }

    @Test
    @Timeout(1800)
    void shouldHoldTheQueueOfAnAsyncAppenderUntilThereIsRoom() throws InterruptedException {
        try (TestRing ring = new TestRing(256 << 10);
            TestContext test = TestContext.of(ASYNC.formatted(ring.uri, "block(60s)"))) {
            final AsyncAppender async = (AsyncAppender) test.logger(Logger.ROOT_LOGGER_NAME).getAppender("ASYNC");
            final List<String> found = new ArrayList<>();
            final Thread logging = Thread.ofPlatform().start(() -> {
                for (int i = 0; i < 5000; i++) {
                    test.logger("x").warn("event {} {}", i, "x".repeat(100));
                }
            });
            while (found.size() < 5000) {
                assertTrue(async.isStarted());
                ring.drain().forEach(record -> found.add(number(record.text())));
                Thread.onSpinWait();
            }
            logging.join();
            assertEquals(5000, found.size());
            assertEquals("4999", found.get(4999));
        }
    }
}
