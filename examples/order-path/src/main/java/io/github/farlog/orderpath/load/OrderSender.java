package io.github.farlog.orderpath.load;

import com.lmax.disruptor.EventPoller;
import com.lmax.disruptor.RingBuffer;
import io.github.farlog.orderpath.book.Command;
import io.github.farlog.orderpath.book.Report;
import java.util.function.BooleanSupplier;
import org.HdrHistogram.Histogram;

/**
 * Sends the flow open loop and receives the reports, on one thread. Order {@code i} is due at {@code start + i / rate}
 * whatever became of those before it, and its total latency counts from then: a system that stalls cannot hide the
 * orders that it kept waiting. What is due while the engine's queue is full is sent as soon as there is room.
 */
final class OrderSender {
    private final OrderFlow flow;
    private final RingBuffer<Command> commands;
    private final EventPoller<Report> reports;
    private final Idle idle;
    private final Histogram totalNs = Latencies.histogram();
    private final EventPoller.Handler<Report> receiver = this::receive; // once: each method reference allocates
    private long sentCount;
    private long answeredCount;
    private long measuredFromNs;

    OrderSender(final OrderFlow flow, final RingBuffer<Command> commands, final EventPoller<Report> reports,
        final Idle idle) {
        this.flow = flow;
        this.commands = commands;
        this.reports = reports;
        this.idle = idle;
    }

    /** The times of a run, by {@link System#nanoTime}. */
    record Schedule(long startNs, long measuredFromNs, long giveUpNs, int ratePerSecond, long count) {
        long dueNs(final long index) {
            return startNs + (long) (index * (1e9 / ratePerSecond));
        }
    }

    /**
     * Runs until every order is answered, the schedule's time is over, or the engine has failed. An order without an
     * answer then counts with the time that it has waited: its latency is at least that.
     */
    void run(final Schedule schedule, final BooleanSupplier hasFailed) throws Exception {
        measuredFromNs = schedule.measuredFromNs();
        sendAndReceive(schedule, hasFailed);
        for (long i = answeredCount; i < schedule.count(); i++) { // answers come in the order of the orders
            if (schedule.dueNs(i) - measuredFromNs >= 0) {
                totalNs.recordValue(schedule.giveUpNs() - schedule.dueNs(i));
            }
        }
    }

    private void sendAndReceive(final Schedule schedule, final BooleanSupplier hasFailed) throws Exception {
        while (answeredCount < schedule.count()) {
            final boolean hasSent = sentCount < schedule.count() && sendWhenDue(schedule.dueNs(sentCount));
            final boolean hasReceived = reports.poll(receiver) == EventPoller.PollState.PROCESSING;
            if (!hasSent && !hasReceived) {
                if (hasFailed.getAsBoolean() || System.nanoTime() - schedule.giveUpNs() > 0) {
                    return;
                }
                idle.pause();
            } else if (System.nanoTime() - schedule.giveUpNs() > 0) {
                return;
            }
        }
    }

    /** Takes what is still given out, so that an engine that waits for room can come to its end. */
    void discardReports() throws Exception {
        reports.poll((report, sequence, isEndOfBatch) -> true);
    }

    Histogram totalNs() {
        return totalNs;
    }

    long answeredCount() {
        return answeredCount;
    }

    private boolean sendWhenDue(final long dueNs) {
        if (System.nanoTime() - dueNs < 0 || !commands.hasAvailableCapacity(1)) {
            return false;
        }
        final long slot = commands.next();
        final Command command = commands.get(slot);
        flow.next(command);
        command.dueNs = dueNs;
        commands.publish(slot);
        sentCount++;
        return true;
    }

    private boolean receive(final Report report, final long sequence, final boolean isEndOfBatch) {
        if (report.isLast) {
            answeredCount++;
            if (report.dueNs - measuredFromNs >= 0) {
                totalNs.recordValue(Math.max(0, System.nanoTime() - report.dueNs));
            }
        }
        return true;
    }
}
