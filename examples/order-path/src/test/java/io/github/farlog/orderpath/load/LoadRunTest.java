package io.github.farlog.orderpath.load;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.farlog.client.Level;
import io.github.farlog.client.SharedWriter;
import io.github.farlog.client.Writer;
import io.github.farlog.orderpath.book.Command;
import io.github.farlog.orderpath.book.OrderBook;
import io.github.farlog.orderpath.record.FarlogRecorder;
import io.github.farlog.orderpath.record.FarlogStream;
import io.github.farlog.orderpath.record.LocalDrain;
import io.github.farlog.orderpath.record.NotRecordedException;
import io.github.farlog.orderpath.record.OrderMessages;
import io.github.farlog.orderpath.record.Recorder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.ExecutionException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The order path as a whole: what is measured is what was recorded, and what cannot be recorded stops it. */
final class LoadRunTest {
    private final Path ring = Path.of("/dev/shm", "order-path-load-" + ProcessHandle.current().pid());
    private final LoadRun load = loadRun(Duration.ofSeconds(30));
    private FarlogStream stream;

    @BeforeEach
    void makeRing() throws Exception {
        stream = new FarlogStream("mem:" + ring, Level.VISIBLE).formatted("test/orders", 8 << 20);
    }

    @AfterEach
    void deleteRing() throws Exception {
        Files.deleteIfExists(ring);
    }

    @Test
    void shouldRecordEveryOrderAndReportWhenOnePairTrades() throws Exception {
        final long expected = messageCount(1, 2000);
        final LocalDrain drain = new LocalDrain(stream.uri());
        final Latencies latencies;
        try (drain) {
            latencies = load.run(LoadStep.parse("4k"),
                pairs -> List.of(new FarlogRecorder(Writer.open(stream.uri(), stream.writerOptions("test")))));
        }
        assertEquals("", drain.failure());
        assertEquals(2000, latencies.answeredCount());
        assertEquals(expected, drain.recordCount());
        assertEquals(1600, latencies.totalNs().getTotalCount(), "warm-up is not counted");
    }

    @Test
    void shouldRecordEveryOrderAndReportWhenPairsShareTheStream() throws Exception {
        final long expected = messageCount(1, 1000) + messageCount(2, 1000) + messageCount(3, 1000);
        final LocalDrain drain = new LocalDrain(stream.uri());
        try (drain) {
            final Latencies latencies = load.run(LoadStep.parse("3x2k"), pairs -> {
                final SharedWriter shared = SharedWriter.open(stream.uri(), stream.writerOptions("test"));
                return List.of(new FarlogRecorder(shared), new FarlogRecorder(shared), new FarlogRecorder(shared));
            });
            assertEquals(3000, latencies.answeredCount());
        }
        assertEquals("", drain.failure());
        assertEquals(expected, drain.recordCount());
    }

    @Test
    void shouldStopWhenAMessageIsNotRecorded() {
        final Throwable stopped = assertThrows(ExecutionException.class,
            () -> load.run(LoadStep.parse("4k"), pairs -> List.of(new RefusingAfter(100)))).getCause();
        assertInstanceOf(NotRecordedException.class, stopped.getCause());
    }

    @Test
    void shouldCountWaitingTimeWhenTheEngineIsOverloaded() throws Exception {
        final Latencies latencies = loadRun(Duration.ofMillis(500)).run(LoadStep.parse("20k"),
            pairs -> List.of(new Slow()));
        assertTrue(latencies.answeredCount() < latencies.wantedCount());
        assertEquals(8000, latencies.totalNs().getTotalCount(), "orders without an answer count too");
        assertTrue(latencies.totalNs().getValueAtPercentile(50) > 100_000_000,
            "an order that was due waits, whoever holds it up");
    }

    @Test
    void shouldReadStepsAndRefuseOthers() {
        assertEquals(List.of(new LoadStep(1, 1000), new LoadStep(6, 50_000)), LoadStep.parseList("1k, 6x50k"));
        for (final String bad : new String[] {"", "k", "0", "0x1k", "99x1k", "1m", "-1"}) {
            assertThrows(IllegalArgumentException.class, () -> LoadStep.parse(bad), bad);
        }
    }

    private static LoadRun loadRun(final Duration patience) {
        return new LoadRun(Duration.ofMillis(100), Duration.ofMillis(400), patience, Idle.YIELD, "TEST");
    }

    /** Orders and reports of the flow's first so many commands. */
    private static long messageCount(final long seed, final int commandCount) {
        final long[] count = new long[1];
        final OrderFlow flow = new OrderFlow(seed);
        final OrderBook book = new OrderBook(2 * OrderFlow.QUOTE_COUNT_MAX, OrderFlow.PRICE_MAX);
        final Command command = new Command();
        for (int i = 0; i < commandCount; i++) {
            flow.next(command);
            count[0]++;
            book.apply(command, report -> count[0]++);
        }
        return count[0];
    }

    /** Records so many messages, and then no more. */
    private static final class RefusingAfter implements Recorder {
        private int left;

        RefusingAfter(final int count) {
            left = count;
        }

        @Override
        public void record(final OrderMessages message) {
            if (--left < 0) {
                throw new NotRecordedException("refused");
            }
        }

        @Override
        public void close() {
            // Nothing is open.
        }
    }

    /** Takes half a millisecond for each message. */
    private static final class Slow implements Recorder {
        @Override
        public void record(final OrderMessages message) {
            for (final long until = System.nanoTime() + 500_000; System.nanoTime() < until;) {
                Thread.onSpinWait();
            }
        }

        @Override
        public void close() {
            // Nothing is open.
        }
    }
}
