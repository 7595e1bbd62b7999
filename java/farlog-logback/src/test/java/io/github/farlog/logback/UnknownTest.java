package io.github.farlog.logback;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.farlog.client.FarlogException;
import io.github.farlog.client.Level;
import io.github.farlog.client.Position;
import io.github.farlog.client.Result;
import io.github.farlog.client.Ring;
import io.github.farlog.client.RingOptions;
import io.github.farlog.client.SharedWriter;
import io.github.farlog.client.WriterOptions;
import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.LongAdder;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * An acknowledgement that did not come becomes OK only by the word of the writer that was given the record, about that
 * record.
 */
class UnknownTest {
    private static final byte[] TEXT = "buy 100".getBytes(StandardCharsets.UTF_8);
    private static final long DEADLINE_NANOS = 1_000_000_000;
    private final Position position = new Position();
    @TempDir
    private Path folder;

    @BeforeEach
    void format() throws FarlogException {
        Ring.format(uri(), RingOptions.defaults().withSizeBytes(1 << 20).withForce(true));
    }

    private String uri() {
        return "mem:" + folder.resolve("ring");
    }

    private SharedWriter open() throws FarlogException {
        return SharedWriter.open(uri(),
            WriterOptions.defaults().withLevel(Level.VISIBLE).withDeadline(Duration.ofSeconds(1)));
    }

    private static Result append(final SharedWriter writer, final Position out) {
        return writer.append(TEXT, 0, TEXT.length, 1, null, 0, 0, DEADLINE_NANOS, out);
    }

    @Test
    void shouldBelieveTheWriterThatWasGivenTheRecord() throws FarlogException {
        try (SharedWriter writer = open()) {
            append(writer, position);
            assertEquals(Result.OK, Target.resolve(writer, position, DEADLINE_NANOS));
        }
    }

    @Test
    void shouldNotKnowWhenThatWriterIsClosed() throws FarlogException {
        final SharedWriter writer = open();
        append(writer, position);
        writer.close();
        assertEquals(Result.UNKNOWN, Target.resolve(writer, position, DEADLINE_NANOS));
    }

    @Test
    void shouldNotTakeTheRecordOfAnotherEpochForIt() throws FarlogException {
        try (SharedWriter writer = open()) {
            append(writer, position);
        }
        format();
        open().close(); // one epoch further than the first writer was
        try (SharedWriter writer = open()) {
            final Position later = new Position();
            for (int i = 0; i < 3 && later.lsn() < position.lsn(); i++) {
                append(writer, later);
            }
            assertEquals(Result.OK, writer.resolve(position.lsn(), DEADLINE_NANOS, later));
            assertEquals(Result.UNKNOWN, Target.resolve(writer, position, DEADLINE_NANOS));
        }
    }

    /**
     * The ring is made and opened again between UNKNOWN and the question: there is another record at the same place, of
     * the same epoch.
     */
    @Test
    void shouldAskTheWriterThatWasGivenTheRecordWhenAnotherIsOpen() throws Exception {
        final WriterOptions options = WriterOptions.defaults().withLevel(Level.PERSISTENT)
            .withDeadline(Duration.ofSeconds(1));
        final Target target = Target.acquire(uri(), options);
        try {
            final Scratch scratch = new Scratch();
            final AtomicInteger epoch = new AtomicInteger();
            final Field unknown = Target.class.getDeclaredField("unknown");
            unknown.setAccessible(true);
            unknown.set(target, new LongAdder() {
                @Override
                public void increment() { // after the one and before the other
                    super.increment();
                    if (epoch.compareAndSet(0, scratch.position.epoch())) {
                        replaceRing(target, options.withName("next"), scratch.position);
                    }
                }
            });
            Result result = Result.OK;
            for (int i = 0; i < 1000 && epoch.get() == 0; i++) {
                result = append(target, scratch, 1);
            }
            assertTrue(epoch.get() > 0, "no append was UNKNOWN");
            assertEquals(Result.UNKNOWN, result);
            assertEquals(1, target.getUnknownCount());
        } finally {
            target.release();
        }
    }

    /**
     * With a deadline that hardly any record keeps: a gap that was written and may be there is asked for, and not told
     * once more.
     */
    @Test
    void shouldTellEveryDropOnceWhenGapsAreUnknown() throws FarlogException {
        final Target target = Target.acquire(uri(),
            WriterOptions.defaults().withLevel(Level.PERSISTENT).withDeadline(Duration.ofSeconds(1)));
        try {
            final AtomicInteger told = new AtomicInteger();
            final Scratch scratch = new Scratch();
            final Target.GapRecord record = gap -> {
                told.addAndGet((int) gap.events());
                return TEXT;
            };
            for (int i = 0; i < 300; i++) {
                final Result result = target.append(TEXT, 1, 1, scratch, record, 9, 0, 1000);
                if (result != Result.OK) {
                    target.drop(i, result);
                }
            }
            assertTrue(target.getDroppedCount() > 0, "every acknowledgement came within a microsecond");
            while (target.closeGap(record, 9, System.nanoTime() + DEADLINE_NANOS, DEADLINE_NANOS) != Result.OK) {
                Thread.onSpinWait(); // bounded by what a disk takes
            }
            assertEquals(target.getDroppedCount(), told.get());
            assertEquals(0, target.getOpenGapEvents());
        } finally {
            target.release();
        }
    }

    private static Result append(final Target target, final Scratch scratch, final long deadlineNanos) {
        return target.append(TEXT, 1, 1, scratch, gap -> TEXT, 0, 0, deadlineNanos);
    }

    private void replaceRing(final Target target, final WriterOptions wanted, final Position lost) {
        try {
            Files.delete(folder.resolve("ring"));
            format();
            target.suspend(true);
            assertSame(target, Target.acquire(uri(), wanted)); // opens it again
            target.suspend(false);
            target.release();
            final Scratch other = new Scratch();
            do {
                assertEquals(Result.OK, append(target, other, DEADLINE_NANOS));
            } while (other.position.lsn() < lost.lsn());
            assertEquals(lost.lsn(), other.position.lsn(), "records of one length");
            assertEquals(lost.epoch(), other.position.epoch());
        } catch (final FarlogException | IOException e) {
            throw new IllegalStateException(e);
        }
    }
}
