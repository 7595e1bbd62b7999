package io.github.farlog.log4j2;

import io.github.farlog.client.Level;
import io.github.farlog.client.Position;
import io.github.farlog.client.RecordBuffer;
import io.github.farlog.client.RecordSink;
import io.github.farlog.client.Result;
import io.github.farlog.client.gap.UnknownRecord;
import io.github.farlog.client.gap.Gap;
import io.github.farlog.client.gap.GapLog;
import io.github.farlog.client.gap.ProcessEndHook;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractManager;
import org.apache.logging.log4j.core.config.ConfigurationException;

/**
 * The one writer of a ring, or route, in this process, shared by all appenders with the same URI and kept over
 * reconfigurations. It is opened by the first appender that starts and closed, after the appends under way, by the last
 * that stops.
 *
 * <p>Threads: any. {@link #append} blocks until the record is at its level, or up to the time to wait for room and the
 * deadline.
 */
final class FarlogManager extends AbstractManager {
    private static final long WATCH_INTERVAL_NANOS = TimeUnit.SECONDS.toNanos(1);
    private static final long PAUSE_NANOS = 50_000;
    /** The longest that a region has of its own. */
    private static final long REGION_DEADLINE_MAX_NANOS = TimeUnit.SECONDS.toNanos(1);
    private static final int SPIN_COUNT = 100;
    private static final int YIELD_COUNT = 200;
    private static final long JOIN_MILLIS = 1000;

    private final RingStats stats;
    private final GapLog gaps = new GapLog();
    private final GapSink gapSink = new GapSink();
    private final ReentrantLock reopening = new ReentrantLock();
    private final Thread watch;
    private final ProcessEndHook processEndHook;
    private volatile OpenRing ring;
    private volatile RingSettings settings;
    private volatile boolean isFileMissing;
    private volatile boolean isFenced;
    private volatile boolean isStopped;
    private volatile boolean isClosed;

    private FarlogManager(final LoggerContext context, final String name, final RingSettings settings) {
        super(context, name);
        this.settings = settings;
        this.ring = OpenRing.open(settings);
        this.stats = RingStats.of(settings.uri());
        this.watch = Thread.ofPlatform().daemon().name("farlog-log4j2-watch").start(this::watch);
        this.processEndHook = new ProcessEndHook("farlog-log4j2-end", this::writeLastGap);
        this.stats.opened(() -> ring.writer());
    }

    /**
     * The manager of a ring, opened when it is not. Give it back with {@link #close}.
     *
     * @param context that the appender belongs to
     * @param settings of the appender
     * @return the manager
     * @throws ConfigurationException saying why the ring cannot be had
     */
    static FarlogManager of(final LoggerContext context, final RingSettings settings) {
        return narrow(FarlogManager.class,
            AbstractManager.<AbstractManager, RingSettings>getManager("farlog:" + settings.uri(),
                (name, asked) -> new FarlogManager(context, name, asked), settings));
    }

    RingStats stats() {
        return stats;
    }

    /** Bytes of the longest payload. */
    int payloadMax() {
        return ring.payloadMax();
    }

    /**
     * Another appender wants the ring that is open. A writer that is at a lower level, or cannot write any more, is
     * replaced; appends under way wait for the new one.
     */
    @Override
    public void updateData(final Object data) {
        final RingSettings asked = (RingSettings) data;
        // The level of a route is null.
        final boolean isRaised = asked.level() != null && asked.level().compareTo(settings.level()) > 0;
        final Level level = isRaised ? asked.level() : settings.level();
        if (isRaised && level.compareTo(ring.writer().levelMax()) > 0) {
            throw new ConfigurationException(
                "ring \"" + asked.uri() + "\": level " + level + " is above what its region gives, "
                    + ring.writer().levelMax());
        }
        final RingSettings wanted = new RingSettings(asked.uri(), level, asked.deadline(), asked.epoch(),
            asked.createBytes(),
            asked.writerName(), asked.gapClass(), asked.spillDir());
        if (isRaised || isFenced || !ring.isInPlace()) {
            reopen(wanted);
        }
        settings = wanted;
    }

    /**
     * Writes one event.
     *
     * @param buffer the encoded event; its position is filled
     * @param classId of the record
     * @param criticality of the event, by which a route's legs choose
     * @param waitNanos how long to wait for room
     * @return OK: the record is at the asked level. UNKNOWN: it may or may not be there. Anything else: it is not
     */
    Result append(final EventBuffer buffer, final int classId, final Criticality criticality, final long waitNanos) {
        if (buffer.refusal() != Result.OK) {
            return buffer.refusal();
        }
        final long start = System.nanoTime();
        Result result = appendOnce(buffer, classId, criticality);
        if (result == Result.FULL) {
            stats.full.increment();
            result = waitForRoom(buffer, classId, criticality, start, waitNanos);
        }
        if (result == Result.OK) {
            stats.countAppended(buffer.len(), System.nanoTime() - start, buffer.position().level());
        }
        if (result == Result.FENCED) {
            isFenced = true;
        }
        return result;
    }

    /** Notes an event that was dropped; a record will tell it, or the status log when the ring is closed. */
    void drop(final LogEvent event, final Result cause) {
        final var when = event.getInstant();
        gaps.add(Instant.ofEpochSecond(when.getEpochSecond(), when.getNanoOfSecond()), cause);
        stats.dropped.increment();
        if (isClosed) { // asked after the event was noted: the closing thread looks for it after isClosed is set
            reportLastGap();
        }
    }

    private void reportLastGap() {
        final Gap unreported = gaps.takeUnreported();
        if (unreported != null) {
            LOGGER.error("ring \"{}\" is closed with events dropped that no record tells: {}", settings.uri(),
                unreported.text());
        }
    }

    private Result waitForRoom(final EventBuffer buffer, final int classId, final Criticality criticality,
        final long start, final long waitNanos) {
        Result result = Result.FULL;
        for (int turn = 0; result == Result.FULL && System.nanoTime() - start < waitNanos; turn++) {
            pause(turn);
            result = appendOnce(buffer, classId, criticality);
        }
        return result;
    }

    private static void pause(final int turn) {
        if (turn < SPIN_COUNT) {
            Thread.onSpinWait();
        } else if (turn < YIELD_COUNT || Thread.currentThread().isInterrupted()) {
            Thread.yield();
        } else {
            LockSupport.parkNanos(PAUSE_NANOS);
        }
    }

    /** An event does not pass the gap that is to stand before it. */
    private Result appendOnce(final EventBuffer buffer, final int classId, final Criticality criticality) {
        if (isFileMissing) {
            return Result.NOT_FOUND;
        }
        if (gaps.isPending()) {
            final Result result = flushGap();
            if (result != Result.OK) {
                return result == Result.UNKNOWN ? Result.FULL : result;
            }
        }
        return write(buffer.record(), classId, criticality, buffer.position(), null);
    }

    /**
     * After UNKNOWN asks once more: the writer that was used, for behind a writer opened since there may be another
     * ring or record.
     *
     * @param doubt notes the UNKNOWN; null = nobody asks a second time
     */
    private Result write(final RecordBuffer record, final int classId, final Criticality criticality,
        final Position position, final UnknownRecord doubt) {
        RecordSink writer = ring.writer();
        Result result = writer.append(record, classId, criticality.ordinal(), 0, position);
        while (result == Result.CLOSED) {
            final RecordSink next = writerAfter(writer);
            if (next == writer) {
                break;
            }
            writer = next;
            result = writer.append(record, classId, criticality.ordinal(), 0, position);
        }
        if (result == Result.UNKNOWN) {
            if (doubt != null) {
                doubt.set(writer, position);
            }
            stats.unknown.increment();
            result = resolve(writer, position);
        }
        if (result == Result.FENCED) {
            checkFile(); // a writer whose file has gone is fenced, mostly before the watch sees it
        }
        return result == Result.FENCED && isFileMissing ? Result.NOT_FOUND : result;
    }

    /**
     * The writer once no reopening is under way. CLOSED means that nothing was written, so that the same record may be
     * given to it.
     */
    private RecordSink writerAfter(final RecordSink closed) {
        reopening.lock();
        try {
            return isStopped ? closed : ring.writer();
        } finally {
            reopening.unlock();
        }
    }

    /**
     * What became of a record whose acknowledgement did not come. Blocks up to the deadline.
     *
     * @param writer that was given the record
     * @param position that came with UNKNOWN; it is filled again
     * @return OK: this very record is at the writer's level. UNKNOWN: anything else, a writer that was closed since as
     * well
     */
    static Result resolve(final RecordSink writer, final Position position) {
        return writer.resolve(position, 0) == Result.OK ? Result.OK : Result.UNKNOWN;
    }

    private Result flushGap() {
        final long deadlineNanos = settings.deadline().toNanos();
        return gaps.flush(gapSink,
            System.nanoTime() + (deadlineNanos == 0 ? REGION_DEADLINE_MAX_NANOS : deadlineNanos));
    }

    /** Used by one thread at a time: who tells. */
    private final class GapSink implements GapLog.Sink {
        private final UnknownRecord doubt = new UnknownRecord();

        @Override
        public Result write(final Gap gap) {
            final byte[] text = gap.text().getBytes(StandardCharsets.UTF_8);
            final RecordBuffer record = new RecordBuffer(text.length, text.length, 0);
            record.payload().put(text);
            return count(
                FarlogManager.this.write(record, settings.gapClass(), Criticality.CRITICAL, new Position(), doubt));
        }

        @Override
        public Result resolve() {
            return count(doubt.resolve(0));
        }

        private Result count(final Result result) {
            if (result == Result.OK) {
                stats.gaps.increment();
            }
            return result;
        }
    }

    private void reopen(final RingSettings wanted) {
        reopening.lock();
        try {
            ring.writer().close();
            ring = openOrRestore(wanted);
            isFileMissing = false;
            isFenced = false;
        } finally {
            reopening.unlock();
        }
    }

    /** A reconfiguration that is refused must leave the running one as it was. */
    private OpenRing openOrRestore(final RingSettings wanted) {
        try {
            return OpenRing.open(wanted);
        } catch (final ConfigurationException e) {
            if (!isFenced && ring.isInPlace()) {
                ring = OpenRing.open(settings);
            }
            throw e;
        }
    }

    /** Looks once a second whether the ring's file is still there, and tells gaps that no event follows. */
    private void watch() {
        while (!isStopped) {
            LockSupport.parkNanos(WATCH_INTERVAL_NANOS);
            checkFile();
            if (!isFileMissing && !isStopped && gaps.isPending()) {
                flushGap();
            }
        }
    }

    /** With Log4j's own hook disabled nobody stops the appender, and the watch may not come to it any more. */
    private void writeLastGap() {
        if (!isFileMissing && gaps.isPending()) {
            flushGap();
        }
    }

    private void checkFile() {
        reopening.lock(); // what is seen of the old file must not be said of the new one
        try {
            final boolean isMissing = !ring.isInPlace();
            if (isMissing && !isFileMissing) {
                LOGGER.error("ring \"{}\" is gone: its file was removed or replaced", settings.uri());
            }
            isFileMissing = isMissing;
        } finally {
            reopening.unlock();
        }
    }

    @Override
    protected boolean releaseSub(final long timeout, final TimeUnit timeUnit) {
        isStopped = true;
        LockSupport.unpark(watch);
        processEndHook.close();
        if (!isFileMissing) {
            flushGap();
        }
        ring.writer().close(); // events that wait for it are refused, and may become a gap, up to here
        isClosed = true;
        reportLastGap();
        stats.closed();
        return join();
    }

    private boolean join() {
        try {
            watch.join(JOIN_MILLIS);
        } catch (final InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        return !watch.isAlive();
    }
}
