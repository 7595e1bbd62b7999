package io.github.farlog.log4j2;

import io.github.farlog.client.Result;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.logging.log4j.core.LogEvent;

/**
 * What was dropped since the last gap record, and the text that tells it:
 * {@code farlog.gap dropped=3 unknown=0 from=2026-01-01T00:00:00.000000001Z to=... cause=FULL}. A gap stands in the ring before every
 * event that a thread which saw the drop logs afterwards.
 *
 * <p>Threads: any. {@link #add} does not wait for a record; the others wait while another thread writes the gap record.
 */
final class GapLog {
    /** Writes one record. */
    @FunctionalInterface
    interface Sink {
        /**
         * Writes the text of a gap.
         *
         * @param text UTF-8
         * @return OK when it is in the ring
         */
        Result write(byte[] text);
    }

    /** Held while a gap is told; taken before the lock. */
    private final ReentrantLock telling = new ReentrantLock();
    private final ReentrantLock lock = new ReentrantLock();
    /** Guarded by lock. */
    private Gap noted = new Gap();
    /** A gap is noted, or being told. */
    private volatile boolean isPending;

    /** Events that were dropped. */
    private static final class Gap {
        private long droppedCount;
        private long unknownCount;
        private Instant first = Instant.MAX;
        private Instant last = Instant.MIN;
        private Result cause = Result.OK;

        boolean isEmpty() {
            return droppedCount + unknownCount == 0;
        }

        void add(final Instant when, final Result reason) {
            first = when.isBefore(first) ? when : first;
            last = when.isAfter(last) ? when : last;
            cause = reason;
            droppedCount += reason == Result.UNKNOWN ? 0 : 1;
            unknownCount += reason == Result.UNKNOWN ? 1 : 0;
        }

        /** Takes an earlier one in, which could not be told. */
        void addEarlier(final Gap earlier) {
            first = earlier.first.isBefore(first) ? earlier.first : first;
            last = earlier.last.isAfter(last) ? earlier.last : last;
            cause = isEmpty() ? earlier.cause : cause;
            droppedCount += earlier.droppedCount;
            unknownCount += earlier.unknownCount;
        }

        String text() {
            return "farlog.gap dropped=" + droppedCount + " unknown=" + unknownCount + " from=" + first + " to=" + last + " cause=" + cause;
        }
    }

    /** Whether a gap is still to be told. */
    boolean isPending() {
        return isPending;
    }

    /** Notes a dropped event. */
    void add(final LogEvent event, final Result reason) {
        final var instant = event.getInstant();
        final Instant when = Instant.ofEpochSecond(instant.getEpochSecond(), instant.getNanoOfSecond());
        lock.lock();
        try {
            noted.add(when, reason);
            isPending = true;
        } finally {
            lock.unlock();
        }
    }

    /** Writes the gap when there is one. OK: what was noted before the call is told. Otherwise the gap is kept, and told again later. */
    Result flush(final Sink sink) {
        if (!isPending) {
            return Result.OK;
        }
        telling.lock();
        try {
            final Gap gap = take();
            if (gap == null) {
                return Result.OK;
            }
            Result result = Result.UNKNOWN; // should the sink throw
            try {
                result = sink.write(gap.text().getBytes(StandardCharsets.UTF_8));
            } finally {
                settle(gap, result == Result.OK);
            }
            return result;
        } finally {
            telling.unlock();
        }
    }

    /** The gap in words when it can be told no other way; null when there is none. It is not told again. */
    String takeUntold() {
        telling.lock();
        try {
            final Gap gap = take();
            if (gap == null) {
                return null;
            }
            settle(gap, true);
            return gap.text();
        } finally {
            telling.unlock();
        }
    }

    /** What is noted; events that are dropped from now on are another gap. Null: nothing is. */
    private Gap take() {
        lock.lock();
        try {
            if (noted.isEmpty()) {
                return null;
            }
            final Gap taken = noted;
            noted = new Gap();
            return taken;
        } finally {
            lock.unlock();
        }
    }

    private void settle(final Gap taken, final boolean isTold) {
        lock.lock();
        try {
            if (!isTold) {
                noted.addEarlier(taken);
            }
            isPending = !noted.isEmpty();
        } finally {
            lock.unlock();
        }
    }
}
