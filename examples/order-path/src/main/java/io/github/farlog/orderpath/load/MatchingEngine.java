package io.github.farlog.orderpath.load;

import com.lmax.disruptor.EventHandler;
import com.lmax.disruptor.RingBuffer;
import io.github.farlog.orderpath.book.Command;
import io.github.farlog.orderpath.book.OrderBook;
import io.github.farlog.orderpath.book.Report;
import io.github.farlog.orderpath.book.Reports;
import io.github.farlog.orderpath.record.OrderMessages;
import io.github.farlog.orderpath.record.Recorder;
import org.HdrHistogram.Histogram;

/**
 * The matching engine: a Disruptor's one handler. Each command is recorded before it is matched, each report before it
 * is given out. A recorder that throws stops the engine with the message not given out.
 *
 * <p>The process latency of a command is from the moment in which the engine takes it up to that in which its last
 * report is out.
 */
final class MatchingEngine implements EventHandler<Command> {
    private final OrderBook book;
    private final OrderMessages messages;
    private final Recorder recorder;
    private final RingBuffer<Report> reports;
    private final Histogram processNs = Latencies.histogram();
    private final long measuredFromNs;
    private final Reports out = this::giveOut; // made once: a method reference made again allocates
    private volatile boolean isStopped; // set by the pair, read by the engine

    /** @param measuredFromNs what is taken up earlier is warm-up */
    MatchingEngine(final OrderBook book, final OrderMessages messages, final Recorder recorder,
        final RingBuffer<Report> reports,
        final long measuredFromNs) {
        this.book = book;
        this.messages = messages;
        this.recorder = recorder;
        this.reports = reports;
        this.measuredFromNs = measuredFromNs;
    }

    @Override
    public void onEvent(final Command command, final long sequence, final boolean isEndOfBatch) {
        if (isStopped) {
            return;
        }
        final long takenNs = System.nanoTime();
        messages.write(command);
        recorder.record(messages);
        book.apply(command, out);
        if (takenNs - measuredFromNs >= 0) {
            processNs.recordValue(System.nanoTime() - takenNs);
        }
    }

    private void giveOut(final Report report) {
        messages.write(report);
        recorder.record(messages);
        final long slot = reports.next();
        reports.get(slot).copyFrom(report);
        reports.publish(slot);
    }

    /** Lets the engine pass over what is still in its queue. */
    void stop() {
        isStopped = true;
    }

    /** To be read when the engine has stopped. */
    Histogram processNs() {
        return processNs;
    }
}
