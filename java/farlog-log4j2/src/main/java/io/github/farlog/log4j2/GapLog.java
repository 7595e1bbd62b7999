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
 * <p>Threads: any. Blocks while another thread writes the gap record.
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

    private final ReentrantLock lock = new ReentrantLock();
    private volatile boolean isPending;
    private long droppedCount;
    private long unknownCount;
    private Instant first;
    private Instant last;
    private Result cause = Result.OK;

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
            first = first == null || when.isBefore(first) ? when : first;
            last = last == null || when.isAfter(last) ? when : last;
            cause = reason;
            droppedCount += reason == Result.UNKNOWN ? 0 : 1;
            unknownCount += reason == Result.UNKNOWN ? 1 : 0;
            isPending = true;
        } finally {
            lock.unlock();
        }
    }

    /** Writes the gap when there is one. OK: nothing is left to tell. Otherwise the gap is kept, and told again later. */
    Result flush(final Sink sink) {
        if (!isPending) {
            return Result.OK;
        }
        lock.lock();
        try {
            if (!isPending) {
                return Result.OK;
            }
            final Result result = sink.write(text().getBytes(StandardCharsets.UTF_8));
            if (result == Result.OK) {
                clear();
            }
            return result;
        } finally {
            lock.unlock();
        }
    }

    /** The gap in words when it can be told no other way; null when there is none. It is not told again. */
    String takeUntold() {
        lock.lock();
        try {
            if (!isPending) {
                return null;
            }
            final String text = text();
            clear();
            return text;
        } finally {
            lock.unlock();
        }
    }

    private String text() {
        return "farlog.gap dropped=" + droppedCount + " unknown=" + unknownCount + " from=" + first + " to=" + last + " cause=" + cause;
    }

    private void clear() {
        isPending = false;
        droppedCount = 0;
        unknownCount = 0;
        first = null;
        last = null;
        cause = Result.OK;
    }
}
