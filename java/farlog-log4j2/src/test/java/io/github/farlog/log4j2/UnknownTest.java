package io.github.farlog.log4j2;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.farlog.client.FarlogException;
import io.github.farlog.client.Level;
import io.github.farlog.client.Position;
import io.github.farlog.client.Result;
import io.github.farlog.client.SharedWriter;
import io.github.farlog.client.WriterOptions;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.logging.log4j.core.LoggerContext;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/**
 * An acknowledgement that did not come becomes OK only by the word of the writer that was given the record, about that
 * record.
 */
class UnknownTest {
    private static final long SIZE_BYTES = 1 << 20;
    private static final byte[] TEXT = "buy 100".getBytes(StandardCharsets.UTF_8);
    private final TestRing ring = TestRing.inFile(SIZE_BYTES);
    private static final Pattern GAP = Pattern.compile("farlog\\.gap dropped=(\\d+) unknown=(\\d+) ");
    private final Position position = new Position();

    @AfterEach
    void removeRing() {
        ring.close();
    }

    @Test
    void shouldBelieveTheWriterThatWasGivenTheRecord() throws Exception {
        try (SharedWriter writer = open()) {
            Result result = Result.OK;
            for (int i = 0; i < 1000 && result == Result.OK; i++) {
                result = append(writer, 1, position);
            }
            assertEquals(Result.UNKNOWN, result);
            assertEquals(Result.OK, FarlogManager.resolve(writer, position));
        }
    }

    @Test
    void shouldNotKnowWhenThatWriterIsClosed() throws Exception {
        final SharedWriter writer = open();
        append(writer, 0, position);
        writer.close();
        assertEquals(Result.UNKNOWN, FarlogManager.resolve(writer, position));
    }

    @Test
    void shouldNotTakeTheRecordOfAnotherEpochForIt() throws Exception {
        try (SharedWriter writer = open()) {
            append(writer, 0, position);
        }
        ring.format(SIZE_BYTES);
        open().close(); // one epoch further than the first writer was
        try (SharedWriter writer = open()) {
            final Position later = new Position();
            for (int i = 0; i < 3 && later.lsn() < position.lsn(); i++) {
                append(writer, 0, later);
            }
            assertEquals(Result.OK, writer.resolve(position.lsn(), 0, later));
            assertEquals(Result.UNKNOWN, FarlogManager.resolve(writer, position));
        }
    }

    /**
     * The ring is replaced and opened again between UNKNOWN and the question: there is another record at the same
     * place, of the same epoch.
     */
    @Test
    void shouldAskTheWriterThatWasGivenTheRecordWhenAnotherIsOpen() throws Exception {
        final FarlogManager manager = FarlogManager.of(null, settings(Duration.ofNanos(1)));
        try {
            final EventBuffer buffer = new EventBuffer(1000);
            buffer.writeBytes(TEXT, 0, TEXT.length);
            final AtomicInteger epoch = new AtomicInteger();
            final Field unknown = RingStats.class.getDeclaredField("unknown");
            unknown.setAccessible(true);
            unknown.set(manager.stats(), new LongAdder() {
                @Override
                public void increment() { // after the one and before the other
                    super.increment();
                    if (epoch.compareAndSet(0, buffer.position().epoch())) {
                        replaceRing(manager, buffer.position().lsn());
                    }
                }
            });
            Result result = Result.OK;
            for (int i = 0; i < 1000 && epoch.get() == 0; i++) {
                ring.drain();
                result = manager.append(buffer, 1, Criticality.NORMAL, 0);
            }
            assertTrue(epoch.get() > 0, "no append was UNKNOWN");
            assertEquals(Result.UNKNOWN, result);
        } finally {
            manager.close();
        }
    }

    /**
     * With a deadline that hardly any record keeps: a gap that was written and may be there is asked for, and not told
     * once more.
     */
    @Test
    void shouldTellEveryDropOnceWhenGapsAreUnknown() throws Exception {
        final String appender = Contexts.farlog(ring, "policy='dropAndGap' deadline='1us'", "").replace("'visible'",
            "'persistent'");
        try (LoggerContext context = Contexts.of(appender)) {
            for (int i = 0; i < 300; i++) {
                context.getLogger("orders").info("event");
                LockSupport.parkNanos(100_000);
            }
            final long dropped = RingStats.of(ring.uri).getDropped();
            assertTrue(dropped > 0, "every acknowledgement came within a microsecond");
            final long end = System.nanoTime() + Duration.ofSeconds(30).toNanos();
            while (told() < dropped && System.nanoTime() < end) { // the watch tells the last one
                Thread.sleep(50);
            }
            context.stop();
            assertEquals(dropped, told());
        }
    }

    private long told() {
        long sum = 0;
        for (final String text : ring.texts()) {
            final Matcher gap = GAP.matcher(text);
            sum += gap.lookingAt() ? Long.parseLong(gap.group(1)) + Long.parseLong(gap.group(2)) : 0;
        }
        return sum;
    }

    private void replaceRing(final FarlogManager manager, final long lsn) {
        ring.close();
        ring.format(SIZE_BYTES);
        manager.updateData(settings(Duration.ofSeconds(1)));
        final EventBuffer other = new EventBuffer(1000);
        other.writeBytes(TEXT, 0, TEXT.length);
        do {
            assertEquals(Result.OK, manager.append(other, 2, Criticality.NORMAL, 0));
        } while (other.position().lsn() < lsn);
        assertEquals(lsn, other.position().lsn(), "records of one length");
    }

    private RingSettings settings(final Duration deadline) {
        return new RingSettings(ring.uri, Level.PERSISTENT, deadline, 0, 0, "test", 65535, null);
    }

    private SharedWriter open() throws FarlogException {
        return SharedWriter.open(ring.uri,
            WriterOptions.defaults().withLevel(Level.PERSISTENT).withDeadline(Duration.ofSeconds(1)));
    }

    private static Result append(final SharedWriter writer, final long deadlineNanos, final Position out) {
        return writer.append(TEXT, 0, TEXT.length, 1, null, 0, 0, deadlineNanos, out);
    }
}
