package io.github.farlog.client.gap;

import io.github.farlog.client.Result;
import java.time.Instant;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * What was dropped since the last gap record. A gap stands in the ring before every event that a thread which saw the
 * drop logs afterwards: who appends calls {@link #flush} first.
 *
 * <p>Threads: any. {@link #add} waits for no record; the others wait while another thread writes the gap's.
 */
public final class GapLog {
    private static final int SPINS = 100;
    private static final long PAUSE_NANOS = 50_000;

    /** Held while a gap is told; taken before the lock. */
    private final ReentrantLock telling = new ReentrantLock();
    private final ReentrantLock lock = new ReentrantLock();
    /** The record of what is taken was written and may be in the ring. Guarded by telling. */
    private boolean isInDoubt;
    /** Guarded by lock. */
    private Gap noted = Gap.NONE;
    /** What is being told. Guarded by lock. */
    private Gap taken = Gap.NONE;
    /**
     * Of either kind there is one. Written under lock: read from two fields, a gap that moves from one to the other
     * could be missed.
     */
    private volatile boolean isPending;

    /** Makes one without a gap. */
    public GapLog() {
    }

    /** Writes one record. */
    @FunctionalInterface
    public interface Sink {
        /**
         * Writes the record of a gap.
         *
         * @param gap what it tells
         * @return OK when it is in the ring; UNKNOWN when it may be: it is not written again before {@link #resolve}
         * has told
         */
        Result write(Gap gap);

        /**
         * Asks what became of the record that was UNKNOWN.
         *
         * @return OK: it is in the ring. UNKNOWN: that is not known yet. Anything else: it is to be written again
         */
        default Result resolve() {
            return Result.NOT_FOUND;
        }
    }

    /**
     * Whether a gap is to be told.
     *
     * @return true also while it is being told
     */
    public boolean isPending() {
        return isPending;
    }

    /**
     * How many events no record tells of yet.
     *
     * @return dropped and unknown
     */
    public long pendingEvents() {
        lock.lock();
        try {
            return noted.events() + taken.events();
        } finally {
            lock.unlock();
        }
    }

    /**
     * Notes an event that is not in the ring.
     *
     * @param when its time
     * @param cause why; {@link Result#UNKNOWN}: it may be there
     */
    public void add(final Instant when, final Result cause) {
        lock.lock();
        try {
            noted = noted.with(when, cause);
            isPending = true;
        } finally {
            lock.unlock();
        }
    }

    /**
     * Writes the gap when there is one.
     *
     * @param sink writes it
     * @param end in {@link System#nanoTime}: how long to wait for another thread that is just doing the same
     * @return OK: what was noted before the call is told. FULL: the other thread was not done by the end. Anything else
     * comes from the sink, and the gap is kept and told again later
     */
    public Result flush(final Sink sink, final long end) {
        if (!isPending) {
            return Result.OK;
        }
        for (int turn = 0; !telling.tryLock(); turn++) {
            if (System.nanoTime() - end >= 0) {
                return Result.FULL;
            }
            pause(turn);
        }
        try {
            return tell(sink);
        } finally {
            telling.unlock();
        }
    }

    private Result tell(final Sink sink) {
        if (isInDoubt && !isResolved(sink)) {
            return Result.UNKNOWN;
        }
        final Gap gap = take();
        Result result = Result.IO; // should the sink throw
        try {
            result = gap == Gap.NONE ? Result.OK : sink.write(gap);
        } finally {
            isInDoubt = result == Result.UNKNOWN;
            if (!isInDoubt) {
                settle(result == Result.OK);
            }
        }
        return result;
    }

    private boolean isResolved(final Sink sink) {
        final Result result = sink.resolve();
        if (result != Result.UNKNOWN) {
            isInDoubt = false;
            settle(result == Result.OK);
        }
        return !isInDoubt;
    }

    private static void pause(final int turn) {
        if (turn < SPINS) {
            Thread.onSpinWait();
        } else if (Thread.currentThread().isInterrupted()) {
            Thread.yield();
        } else {
            LockSupport.parkNanos(PAUSE_NANOS);
        }
    }

    /**
     * The gap, when it can be told no other way; it is not told again. Waits while another thread writes its record.
     * One that was written and may be in the ring is part of it.
     *
     * @return null: there is none
     */
    public Gap takeUntold() {
        telling.lock();
        try {
            if (isInDoubt) {
                isInDoubt = false;
                settle(false);
            }
            final Gap gap = take();
            settle(true);
            return gap == Gap.NONE ? null : gap;
        } finally {
            telling.unlock();
        }
    }

    /** What is noted; events that are dropped from now on are another gap. */
    private Gap take() {
        lock.lock();
        try {
            taken = noted;
            noted = Gap.NONE;
            return taken;
        } finally {
            lock.unlock();
        }
    }

    private void settle(final boolean isTold) {
        lock.lock();
        try {
            if (!isTold) {
                noted = noted == Gap.NONE ? taken : taken.with(noted);
            }
            taken = Gap.NONE;
            isPending = noted != Gap.NONE;
        } finally {
            lock.unlock();
        }
    }
}
