package io.github.farlog.client.gap;

import io.github.farlog.client.Result;
import java.time.Instant;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * What was dropped since the last gap record. In the ring, a gap record precedes every event that a thread logs after
 * it saw the drop: an appender calls {@link #flush} before each append.
 *
 * <p>Threads: any. {@link #add} waits for no record; the other methods wait while another thread writes the gap record.
 */
public final class GapLog {
    private static final int SPINS = 100;
    private static final long PAUSE_NANOS = 50_000;

    /** Held while a gap record is written; acquired before {@link #lock}. */
    private final ReentrantLock writing = new ReentrantLock();
    private final ReentrantLock lock = new ReentrantLock();
    /** The append of inWrite's record returned UNKNOWN: it may be in the ring. Guarded by writing. */
    private boolean isUnknown;
    /** Guarded by lock. */
    private Gap pending = Gap.NONE;
    /** What the record under way says. Guarded by lock. */
    private Gap inWrite = Gap.NONE;
    /**
     * Whether pending or inWrite is a gap. Written under lock: a reader of both fields could miss a gap that moves from
     * one to the other.
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
         * @param gap what the record says
         * @return OK when it is in the ring; UNKNOWN when it may be: it is not written again before {@link #resolve}
         * has returned another result
         */
        Result write(Gap gap);

        /**
         * Finds out whether the record that was UNKNOWN was written.
         *
         * @return OK: it is in the ring. UNKNOWN: still not known. Anything else: it is to be written again
         */
        default Result resolve() {
            return Result.NOT_FOUND;
        }
    }

    /**
     * Whether a gap record is to be written.
     *
     * @return true also while it is being written
     */
    public boolean isPending() {
        return isPending;
    }

    /**
     * How many events no gap record counts yet.
     *
     * @return dropped and unknown
     */
    public long pendingEvents() {
        lock.lock();
        try {
            return pending.events() + inWrite.events();
        } finally {
            lock.unlock();
        }
    }

    /**
     * Counts an event that is not in the ring.
     *
     * @param when its time
     * @param cause why; {@link Result#UNKNOWN}: it may be there
     */
    public void add(final Instant when, final Result cause) {
        lock.lock();
        try {
            pending = pending.with(when, cause);
            isPending = true;
        } finally {
            lock.unlock();
        }
    }

    /**
     * Writes the gap record when one is pending.
     *
     * @param sink writes it
     * @param end in {@link System#nanoTime}: until when to wait for another thread that writes it
     * @return OK: a record in the ring counts every event added before the call. FULL: the other thread was not done by
     * the end. Any other result comes from the sink; the gap is kept and written later
     */
    public Result flush(final Sink sink, final long end) {
        if (!isPending) {
            return Result.OK;
        }
        for (int turn = 0; !writing.tryLock(); turn++) {
            if (System.nanoTime() - end >= 0) {
                return Result.FULL;
            }
            pause(turn);
        }
        try {
            return writeGap(sink);
        } finally {
            writing.unlock();
        }
    }

    private Result writeGap(final Sink sink) {
        if (isUnknown && !isResolved(sink)) {
            return Result.UNKNOWN;
        }
        final Gap gap = beginWrite();
        Result result = Result.IO; // should the sink throw
        try {
            result = gap == Gap.NONE ? Result.OK : sink.write(gap);
        } finally {
            isUnknown = result == Result.UNKNOWN;
            if (!isUnknown) {
                finishWrite(result == Result.OK);
            }
        }
        return result;
    }

    private boolean isResolved(final Sink sink) {
        final Result result = sink.resolve();
        if (result != Result.UNKNOWN) {
            isUnknown = false;
            finishWrite(result == Result.OK);
        }
        return !isUnknown;
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
     * Removes the pending gap, for a caller that reports it elsewhere because the ring is closed. Waits while another
     * thread writes the gap record. A gap whose record may be in the ring is part of it.
     *
     * @return null when there is none
     */
    public Gap takeUnreported() {
        writing.lock();
        try {
            if (isUnknown) {
                isUnknown = false;
                finishWrite(false);
            }
            final Gap gap = beginWrite();
            finishWrite(true);
            return gap == Gap.NONE ? null : gap;
        } finally {
            writing.unlock();
        }
    }

    /** Moves the pending gap to inWrite; events that are dropped from now on are another gap. */
    private Gap beginWrite() {
        lock.lock();
        try {
            inWrite = pending;
            pending = Gap.NONE;
            return inWrite;
        } finally {
            lock.unlock();
        }
    }

    private void finishWrite(final boolean isWritten) {
        lock.lock();
        try {
            if (!isWritten) {
                pending = pending == Gap.NONE ? inWrite : inWrite.with(pending);
            }
            inWrite = Gap.NONE;
            isPending = pending != Gap.NONE;
        } finally {
            lock.unlock();
        }
    }
}
