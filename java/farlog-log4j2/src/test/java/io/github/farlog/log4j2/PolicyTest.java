package io.github.farlog.log4j2;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.farlog.client.Level;
import io.github.farlog.client.Result;
import io.github.farlog.client.Ring;
import io.github.farlog.log4j2.TestRing.Entry;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.logging.log4j.Logger;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AppenderLoggingException;
import org.apache.logging.log4j.core.impl.Log4jLogEvent;
import org.apache.logging.log4j.core.test.appender.ListAppender;
import org.apache.logging.log4j.message.SimpleMessage;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** A ring that nobody drains gets full: what each policy makes of it, and that what was acknowledged stays. */
class PolicyTest {
    private static final long SIZE_BYTES = 1 << 18;
    private static final int GAP_CLASS = 65535;
    private static final Pattern GAP = Pattern
        .compile("farlog\\.gap dropped=(\\d+) unknown=0 from=\\S+Z to=\\S+Z cause=FULL");
    private static final String PAYLOAD = "p".repeat(1000);
    private final TestRing ring = TestRing.onTmpfs(SIZE_BYTES);

    @AfterEach
    void removeRing() {
        ring.close();
    }

    @Test
    void shouldThrowAtOnceWhenFailStopFindsTheRingFull() {
        try (LoggerContext context = Contexts.of(Contexts.farlog(ring, "policy='failStop'", ""))) {
            final Logger logger = context.getLogger("orders");
            final int acknowledged = fill(logger);
            assertEquals(acknowledged, ring.entries().size());
            assertEquals(acknowledged, ring.drain().size());
            logger.info("room again");
            assertEquals(List.of("room again"), ring.texts());
        }
    }

    @Test
    void shouldWaitForRoomAndThenThrowWhenBlocking() throws Exception {
        try (LoggerContext context = Contexts.of(Contexts.farlog(ring, "policy='block(300ms)'", ""))) {
            final Logger logger = context.getLogger("orders");
            fill(logger);
            final long start = System.nanoTime();
            final var refused = assertThrows(FarlogLoggingException.class, () -> logger.info(PAYLOAD));
            final long waited = System.nanoTime() - start;
            assertEquals(Result.FULL, refused.result());
            assertTrue(waited >= TimeUnit.MILLISECONDS.toNanos(300), "waited " + waited + " ns");
        }
        // 60 s is longer than a thread waits for a processor on a loaded machine.
        try (LoggerContext context = Contexts.of(Contexts.farlog(ring, "policy='block(60s)'", ""))) {
            final Logger logger = context.getLogger("orders");
            final List<Entry> drained = new CopyOnWriteArrayList<>();
            final Thread drain = Thread.ofPlatform().start(() -> {
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(50));
                drained.addAll(ring.drain());
            });
            logger.info("after the drain");
            drain.join();
            drained.addAll(ring.entries());
            assertEquals("after the drain", drained.getLast().text());
        }
    }

    @Test
    void shouldHandToTheNamedAppender() throws Exception {
        final Path spare = Path.of("target", "spare.log");
        try (LoggerContext context = Contexts.of(failingOverTo(spare))) {
            final Logger logger = context.getLogger("orders");
            int count = 0;
            while (RingStats.of(ring.uri).getFailedOver() == 0) {
                logger.info("event {}", count++);
            }
            assertEquals(count - 1, ring.entries().size());
            assertEquals(List.of("event " + (count - 1)), Files.readAllLines(spare));
        }
    }

    /** It is in the ring, or the application is told. */
    @Test
    void shouldThrowForTheCriticalAndHandOverTheOthers() throws Exception {
        final Path spare = Path.of("target", "spare.log");
        final String critical = "<Class level='ERROR' id='9' criticality='critical'/></Farlog>";
        try (LoggerContext context = Contexts.of(failingOverTo(spare).replace("</Farlog>", critical))) {
            final Logger logger = context.getLogger("orders");
            while (RingStats.of(ring.uri).getFailedOver() == 0) {
                logger.info(PAYLOAD);
            }
            assertThrows(FarlogLoggingException.class, () -> logger.error(PAYLOAD));
            logger.info("{} handed over", PAYLOAD);
            final List<String> lines = Files.readAllLines(spare);
            assertEquals(2, lines.size());
            assertEquals(PAYLOAD + " handed over", lines.getLast());
        }
    }

    /**
     * A flood of refused events is a few lines, each with the count of those before it, and an exception of one line
     * each.
     */
    @Test
    void shouldTellOfAFloodInAFewLines() {
        try (StatusErrors errors = new StatusErrors();
            LoggerContext context = Contexts.of(Contexts.farlog(ring, "policy='failStop'", ""))) {
            final Logger logger = context.getLogger("orders");
            fill(logger);
            final int flood = 5000;
            for (int i = 0; i < flood; i++) {
                final var refused = assertThrows(FarlogLoggingException.class, () -> logger.info(PAYLOAD));
                assertEquals(0, refused.getStackTrace().length);
                assertTrue(refused.getMessage().contains(ring.uri) && refused.getMessage().contains("FULL"),
                    refused.getMessage());
            }
            final List<String> lines = errors.with("FULL");
            assertTrue(!lines.isEmpty() && lines.size() < 10, lines::toString);
            assertEquals(List.of(), errors.with("An exception occurred processing Appender"));
            ring.drain();
            logger.info("room");
            assertEquals(flood + 1, RingStats.of(ring.uri).getRefused());
            final long told = lines.size() + Stream.concat(lines.stream(), errors.with("takes events again").stream())
                .mapToLong(PolicyTest::moreOf).sum();
            assertEquals(flood + 1, told);
        }
    }

    private static long moreOf(final String line) {
        final Matcher matcher = Pattern.compile("; (\\d+) more since").matcher(line);
        return matcher.find() ? Long.parseLong(matcher.group(1)) : 0;
    }

    @Test
    void shouldThrowWhenTheNamedAppenderFailsToo() {
        try (LoggerContext context = Contexts.of(failingOverTo(Path.of("/dev/full")))) {
            final Logger logger = context.getLogger("orders");
            final List<String> returned = new ArrayList<>();
            assertThrows(AppenderLoggingException.class, () -> {
                for (int i = 0; i < 20_000; i++) {
                    logger.info("event {}", i);
                    returned.add("event " + i);
                }
            });
            assertEquals(returned, ring.texts());
        }
    }

    @Test
    void shouldLetTheFailoverAppenderTakeOver() {
        final String appenders = Contexts.farlog(ring, "policy='failover'", "").replace("name='farlog'",
            "name='primary'")
            + "<List name='list'/><Failover name='farlog' primary='primary'>"
            + "<Failovers><AppenderRef ref='list'/></Failovers></Failover>";
        try (LoggerContext context = Contexts.of(appenders)) {
            final ListAppender list = context.getConfiguration().getAppender("list");
            int count = 0;
            while (list.getEvents().isEmpty()) {
                context.getLogger("orders").info("event {}", count++);
            }
            assertEquals(count - 1, ring.entries().size());
            assertEquals("event " + (count - 1), list.getEvents().getFirst().getMessage().getFormattedMessage());
        }
    }

    @Test
    void shouldTellTheGapBeforeTheNextEvent() {
        try (LoggerContext context = Contexts.of(Contexts.farlog(ring, "policy='dropAndGap'", ""))) {
            final Logger logger = context.getLogger("orders");
            final int logged = 600;
            for (int i = 0; i < logged; i++) {
                logger.info("{} {}", i, PAYLOAD);
            }
            final List<Entry> all = new ArrayList<>(ring.drain());
            logger.info("after");
            all.addAll(ring.entries());
            // A gap record is short: it may fit behind the last event, where the next event did not. All gap records
            // precede this event.
            assertEquals("after", all.getLast().text());
            final long dropped = RingStats.of(ring.uri).getDropped();
            final List<Entry> gaps = all.stream().filter(entry -> entry.classId() == GAP_CLASS).toList();
            assertTrue(dropped > 0);
            assertEquals(logged + 1, all.size() - gaps.size() + dropped);
            assertEquals(dropped, gaps.stream().mapToLong(PolicyTest::droppedOf).sum());
            assertEquals(gaps.size(), RingStats.of(ring.uri).getGaps());
        }
    }

    @Test
    void shouldTellTheGapWhenNoEventFollows() throws Exception {
        try (LoggerContext context = Contexts.of(Contexts.farlog(ring, "policy='dropAndGap' gapClass='77'", ""))) {
            fillSilently(context.getLogger("orders"));
            final List<Entry> all = new ArrayList<>(ring.drain());
            final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (all.getLast().classId() != 77 && System.nanoTime() < end) {
                Thread.sleep(20);
                all.addAll(ring.drain());
            }
            assertEquals(1, droppedOf(all.getLast()));
        }
    }

    @Test
    void shouldTellTheGapAtTheLatestWhenItCloses() {
        final List<Entry> all = new ArrayList<>();
        try (LoggerContext context = Contexts.of(Contexts.farlog(ring, "policy='dropAndGap'", ""))) {
            fillSilently(context.getLogger("orders"));
            all.addAll(ring.drain());
        }
        all.addAll(ring.entries());
        assertEquals(1, droppedOf(all.getLast()));
    }

    @Test
    void shouldTellTheStatusLogWhatIsDroppedWhileItCloses() {
        final RingSettings settings = new RingSettings(ring.uri, Level.VISIBLE, Duration.ZERO, 0, 0, null, GAP_CLASS,
            null);
        try (StatusErrors errors = new StatusErrors()) {
            final FarlogManager manager = FarlogManager.of(null, settings);
            manager.stop(1, TimeUnit.SECONDS);
            // A thread that waited for room sees the writer closed, and drops its event after the last gap record.
            manager.drop(Log4jLogEvent.newBuilder().setMessage(new SimpleMessage("late")).build(), Result.CLOSED);
            assertEquals(1, errors
                .with(ring.uri + "\" is closed with events dropped that no record tells: farlog.gap dropped=1").size());
        }
    }

    @Test
    void shouldNeverDropACriticalEvent() {
        final String elements = "<Class level='ERROR' id='9' criticality='critical'/>";
        try (LoggerContext context = Contexts.of(Contexts.farlog(ring, "policy='dropAndGap'", elements))) {
            final Logger logger = context.getLogger("orders");
            fillSilently(logger);
            assertThrows(FarlogLoggingException.class, () -> logger.error(PAYLOAD));
        }
    }

    @Test
    void shouldDropWhatIsDroppableWhateverThePolicy() {
        final String elements = "<Class level='ERROR' id='9'/>";
        try (LoggerContext context = Contexts
            .of(Contexts.farlog(ring, "policy='block(60s)' criticality='droppable'", elements))) {
            final Logger logger = context.getLogger("orders");
            final long start = System.nanoTime();
            fillSilently(logger);
            assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(50));
            ring.drain();
            logger.error("kept");
            assertEquals("kept", ring.texts().getLast());
        }
    }

    @Test
    void shouldSayThatItDoesNotKnowWhenTheDeadlinePasses() {
        try (TestRing file = TestRing.inFile(SIZE_BYTES);
            LoggerContext context = Contexts
                .of(Contexts.farlog(file, "deadline='1ns'", "").replace("'visible'", "'persistent'"))) {
            final Logger logger = context.getLogger("orders");
            final List<String> acknowledged = new ArrayList<>();
            int unknownCount = 0;
            for (int i = 0; i < 100; i++) {
                try {
                    logger.info("{}", i);
                    acknowledged.add(Integer.toString(i));
                } catch (final FarlogLoggingException e) {
                    assertEquals(Result.UNKNOWN, e.result());
                    unknownCount++;
                }
            }
            assertTrue(unknownCount > 0);
            assertTrue(RingStats.of(file.uri).getUnknown() >= unknownCount);
            context.stop();
            // All were written in the end; without the word of the disk in time the appender said so.
            assertTrue(file.texts().containsAll(acknowledged));
            assertEquals(file.texts(), file.texts().stream().sorted(Comparator.comparing(Integer::valueOf)).toList());
        }
    }

    @Test
    void shouldThrowWhenTheWriterIsFenced() throws Exception {
        try (LoggerContext context = Contexts.of(Contexts.farlog(ring, "policy='failStop'", ""))) {
            final Logger logger = context.getLogger("orders");
            logger.info("before");
            Ring.fence(ring.uri, ring.epoch() + 1);
            final var refused = assertThrows(FarlogLoggingException.class, () -> logger.info("fenced"));
            assertEquals(Result.FENCED, refused.result());
            assertFalse(ring.texts().contains("fenced"));
            // Started again, it takes the next epoch.
            Contexts.reconfigure(context, Contexts.farlog(ring, "policy='failStop'", ""));
            logger.info("after");
            assertEquals(List.of("before", "after"), ring.texts());
        }
    }

    private String failingOverTo(final Path spare) {
        return Contexts.farlog(ring, "policy='failover' failoverRef='spare'", "") + "<File name='spare' fileName='"
            + spare
            + "' append='false' ignoreExceptions='false'><PatternLayout pattern='%m%n'/></File>";
    }

    /** Logs until the ring is full, and says how many were acknowledged. */
    private static int fill(final Logger logger) {
        int count = 0;
        try {
            while (true) {
                logger.info(PAYLOAD);
                count++;
            }
        } catch (final FarlogLoggingException e) {
            assertEquals(Result.FULL, e.result());
            return count;
        }
    }

    private static long droppedOf(final Entry gap) {
        final var matcher = GAP.matcher(gap.text());
        assertTrue(matcher.matches(), gap.text());
        return Long.parseLong(matcher.group(1));
    }

    private void fillSilently(final Logger logger) {
        while (RingStats.of(ring.uri).getDropped() == 0) {
            logger.info(PAYLOAD);
        }
    }
}
