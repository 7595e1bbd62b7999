package io.github.farlog.orderpath.record;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.github.farlog.client.Level;
import io.github.farlog.client.Writer;
import io.github.farlog.orderpath.book.Command;
import io.github.farlog.orderpath.book.OrderBook;
import io.github.farlog.orderpath.book.Reports;
import io.github.farlog.orderpath.load.OrderFlow;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

/**
 * Flow, book, messages and recording allocate nothing once they are warm: there is nothing to collect while orders
 * wait.
 */
final class AllocationTest {
    private static final int WARM_COUNT = 20_000;
    private static final int COUNT = 5_000;

    private final ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    private final OrderFlow flow = new OrderFlow(1);
    private final OrderBook book = new OrderBook(2 * OrderFlow.QUOTE_COUNT_MAX, OrderFlow.PRICE_MAX);
    private final OrderMessages messages = new OrderMessages("RUN-1A-", "FLGA");
    private final Command command = new Command();

    @Test
    void shouldAllocateNothingWhenOrdersAreRecordedAndMatched() throws Exception {
        final Path ring = Path.of("/dev/shm", "order-path-alloc-" + ProcessHandle.current().pid());
        final FarlogStream stream = new FarlogStream("mem:" + ring, Level.VISIBLE).formatted("test/orders", 64 << 20);
        try (Recorder recorder = new FarlogRecorder(Writer.open(stream.uri(), stream.writerOptions("test")))) {
            final Reports reports = report -> {
                messages.write(report);
                recorder.record(messages);
            };
            trade(WARM_COUNT, recorder, reports);
            final long own = allocatedByMeasuring();
            final long before = threads.getCurrentThreadAllocatedBytes();
            trade(COUNT, recorder, reports);
            assertEquals(own, threads.getCurrentThreadAllocatedBytes() - before, "bytes for " + COUNT + " orders");
        } finally {
            Files.deleteIfExists(ring);
        }
        assertTrue(book.appliedCount() == WARM_COUNT + COUNT);
    }

    private void trade(final int count, final Recorder recorder, final Reports reports) {
        for (int i = 0; i < count; i++) {
            flow.next(command);
            messages.write(command);
            recorder.record(messages);
            book.apply(command, reports);
        }
    }

    private long allocatedByMeasuring() {
        final long before = threads.getCurrentThreadAllocatedBytes();
        return threads.getCurrentThreadAllocatedBytes() - before;
    }
}
