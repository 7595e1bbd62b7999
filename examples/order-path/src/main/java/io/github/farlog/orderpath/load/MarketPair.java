package io.github.farlog.orderpath.load;

import com.lmax.disruptor.EventPoller;
import com.lmax.disruptor.ExceptionHandler;
import com.lmax.disruptor.RingBuffer;
import com.lmax.disruptor.dsl.Disruptor;
import com.lmax.disruptor.dsl.ProducerType;
import io.github.farlog.orderpath.book.Command;
import io.github.farlog.orderpath.book.OrderBook;
import io.github.farlog.orderpath.book.Report;
import io.github.farlog.orderpath.record.OrderMessages;
import io.github.farlog.orderpath.record.Recorder;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicReference;

/**
 * One instrument: a sender and a matching engine, joined by two Disruptor rings. Two threads: whoever calls
 * {@link #run} sends and receives, one of the Disruptor's matches.
 */
final class MarketPair {
    private static final int COMMAND_COUNT = 1 << 14;
    private static final int REPORT_COUNT = 1 << 16;
    private static final Duration JOIN_INTERVAL = Duration.ofMillis(1);

    private final OrderSender sender;
    private final MatchingEngine engine;
    private final Disruptor<Command> disruptor;
    private final OrderSender.Schedule schedule;
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private Thread engineThread;

    MarketPair(final OrderFlow flow, final OrderMessages messages, final Recorder recorder, final Idle idle,
        final OrderSender.Schedule schedule) {
        this.schedule = schedule;
        final RingBuffer<Report> reports = RingBuffer.createSingleProducer(Report::new, REPORT_COUNT,
            idle.waitStrategy());
        final EventPoller<Report> received = reports.newPoller();
        reports.addGatingSequences(received.getSequence());
        disruptor = new Disruptor<>(Command::new, COMMAND_COUNT, this::newThread, ProducerType.SINGLE,
            idle.waitStrategy());
        final OrderBook book = new OrderBook(2 * OrderFlow.QUOTE_COUNT_MAX, OrderFlow.PRICE_MAX);
        engine = new MatchingEngine(book, messages, recorder, reports, schedule.measuredFromNs());
        disruptor.setDefaultExceptionHandler(new StopAtFirstFailure());
        disruptor.handleEventsWith(engine);
        sender = new OrderSender(flow, disruptor.getRingBuffer(), received, idle);
    }

    /**
     * Blocks until the schedule is done; then the engine has stopped. What stopped the engine before that is thrown.
     */
    void run() throws Exception {
        disruptor.start();
        sender.run(schedule, () -> failure.get() != null);
        stop();
        if (failure.get() != null) {
            throw new IllegalStateException("matching engine stopped", failure.get());
        }
    }

    private void stop() throws Exception {
        engine.stop();
        disruptor.halt();
        while (!engineThread.join(JOIN_INTERVAL)) {
            sender.discardReports();
        }
    }

    /** A thread that ends by a failure is silent: the failure is told by {@link #run}. */
    private Thread newThread(final Runnable work) {
        engineThread = Thread.ofPlatform().daemon().name("matching-engine")
            .uncaughtExceptionHandler((thread, thrown) -> {}).unstarted(work);
        return engineThread;
    }

    void addTo(final Latencies latencies) {
        latencies.add(sender.totalNs(), engine.processNs(), schedule.count(), sender.answeredCount());
    }

    /** An order path that cannot record must not go on: the first failure ends the engine's thread. */
    private final class StopAtFirstFailure implements ExceptionHandler<Command> {
        @Override
        public void handleEventException(final Throwable thrown, final long sequence, final Command command) {
            failure.compareAndSet(null, thrown);
            throw new IllegalStateException("order " + command.id + " is not recorded", thrown);
        }

        @Override
        public void handleOnStartException(final Throwable thrown) {
            failure.compareAndSet(null, thrown);
        }

        @Override
        public void handleOnShutdownException(final Throwable thrown) {
            failure.compareAndSet(null, thrown);
        }
    }
}
