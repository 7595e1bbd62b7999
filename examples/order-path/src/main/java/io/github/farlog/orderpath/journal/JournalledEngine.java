package io.github.farlog.orderpath.journal;

import com.lmax.disruptor.BlockingWaitStrategy;
import com.lmax.disruptor.EventHandler;
import com.lmax.disruptor.ExceptionHandler;
import com.lmax.disruptor.RingBuffer;
import com.lmax.disruptor.TimeoutException;
import com.lmax.disruptor.dsl.Disruptor;
import com.lmax.disruptor.dsl.ProducerType;
import io.github.farlog.orderpath.book.Command;
import io.github.farlog.orderpath.book.OrderBook;
import io.github.farlog.orderpath.book.Report;
import io.github.farlog.orderpath.book.Reports;
import java.util.concurrent.TimeUnit;
import java.util.function.LongConsumer;

/**
 * The matching engine behind a journaller, both handlers of one Disruptor: the engine sees a command only when the
 * journaller has it safe, and a command is acknowledged only when the engine has answered it. What is acknowledged is
 * in the journal.
 *
 * <p>{@link #place} is for one thread. The first failure of the journal stops everything; {@link #place} and
 * {@link #drain} then throw it.
 */
public final class JournalledEngine implements AutoCloseable {
    private static final int COMMAND_COUNT = 1 << 12;

    private final Disruptor<Command> disruptor;
    private final OrderBook book;
    private final Journal journal;
    private final LongConsumer acknowledge;
    private final long replayedCount;
    private final Reports out = this::acknowledgeLast;
    private long answeredId; // the engine's thread alone
    private long placedCount; // the placing thread alone
    private volatile long answeredCount; // set by the engine's thread, read by the placing one
    private volatile Throwable failure; // set by the journaller's or the engine's thread

    /** @param acknowledge gets the id of each answered command, in order, on the engine's thread */
    public JournalledEngine(final OrderBook book, final Journal journal, final LongConsumer acknowledge) {
        this.book = book;
        this.journal = journal;
        this.acknowledge = acknowledge;
        replayedCount = book.appliedCount();
        disruptor = new Disruptor<>(Command::new, COMMAND_COUNT, JournalledEngine::newThread,
            ProducerType.SINGLE, new BlockingWaitStrategy());
        disruptor.setDefaultExceptionHandler(new StopAtFirstFailure());
        final EventHandler<Command> journaller = this::writeDown;
        final EventHandler<Command> engine = this::match;
        disruptor.handleEventsWith(journaller).then(engine);
        disruptor.start();
    }

    /** Hands a command in; waits while the queue is full. */
    public void place(final Command command) {
        final RingBuffer<Command> commands = disruptor.getRingBuffer();
        while (!commands.hasAvailableCapacity(1)) {
            throwFailure();
            Thread.yield();
        }
        throwFailure();
        final long slot = commands.next();
        commands.get(slot).copyFrom(command);
        commands.publish(slot);
        placedCount++;
    }

    /** Waits until all that was handed in is answered. */
    public void drain() {
        while (answeredCount != placedCount) {
            throwFailure();
            Thread.yield();
        }
        throwFailure();
    }

    /** Stops the threads; the journal stays open. */
    @Override
    public void close() {
        try {
            if (failure == null) {
                disruptor.shutdown(10, TimeUnit.SECONDS);
            }
        } catch (final TimeoutException e) {
            throw new IllegalStateException("the engine has not come to its end in 10 s", e);
        } finally {
            disruptor.halt();
        }
    }

    /** A thread that ends by a failure is silent: the failure is told by {@link #place}. */
    private static Thread newThread(final Runnable work) {
        return Thread.ofPlatform().daemon().uncaughtExceptionHandler((thread, thrown) -> {}).unstarted(work);
    }

    private void writeDown(final Command command, final long sequence, final boolean isEndOfBatch) {
        journal.append(command);
        if (isEndOfBatch) { // the engine may not go beyond what is published at the end of a batch
            journal.sync();
        }
    }

    private void match(final Command command, final long sequence, final boolean isEndOfBatch) {
        answeredId = command.id;
        book.apply(command, out);
        answeredCount = book.appliedCount() - replayedCount;
    }

    private void acknowledgeLast(final Report report) {
        if (report.isLast) {
            acknowledge.accept(answeredId);
        }
    }

    private void throwFailure() {
        if (failure != null) {
            throw new IllegalStateException("journalled engine stopped", failure);
        }
    }

    private final class StopAtFirstFailure implements ExceptionHandler<Command> {
        @Override
        public void handleEventException(final Throwable thrown, final long sequence, final Command command) {
            failure = thrown;
            throw new IllegalStateException("command " + command.id + " is not in the journal", thrown);
        }

        @Override
        public void handleOnStartException(final Throwable thrown) {
            failure = thrown;
        }

        @Override
        public void handleOnShutdownException(final Throwable thrown) {
            failure = thrown;
        }
    }
}
