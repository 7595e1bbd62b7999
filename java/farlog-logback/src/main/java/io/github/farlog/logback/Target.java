package io.github.farlog.logback;

import io.github.farlog.client.Counter;
import io.github.farlog.client.Counters;
import io.github.farlog.client.FarlogException;
import io.github.farlog.client.LegStats;
import io.github.farlog.client.Level;
import io.github.farlog.client.MemberStatus;
import io.github.farlog.client.Policy;
import io.github.farlog.client.Position;
import io.github.farlog.client.RecordSink;
import io.github.farlog.client.Result;
import io.github.farlog.client.RingFile;
import io.github.farlog.client.WriterOptions;
import io.github.farlog.client.gap.UnknownRecord;
import io.github.farlog.client.gap.Gap;
import io.github.farlog.client.gap.GapLog;
import java.lang.management.ManagementFactory;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import javax.management.JMException;
import javax.management.MBeanServerFactory;
import javax.management.ObjectName;

/**
 * One ring and its one writer, or one route, shared by all appenders of this class loader that name the same URI, and
 * by an appender and its successor while Logback is reconfigured: the ring is not closed and opened between them, so
 * nobody else can take it.
 *
 * <p>Appending: any thread, no lock, no allocation. Opening and closing: under one lock.
 */
final class Target implements TargetMXBean {
    private static final Map<String, Target> TARGETS = new HashMap<>();
    private static final String JMX_PROPERTY = "farlog.jmx";
    private static final long SLEEP_NANOS = 50_000;
    private static final long POLL_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final String uri;
    private final LongAdder appended = new LongAdder();
    private final LongAdder appendedBytes = new LongAdder();
    private final LongAdder failed = new LongAdder();
    private final LongAdder unknown = new LongAdder();
    final LongAdder refused = new LongAdder();
    final LongAdder failedOver = new LongAdder();
    private final LongAdder dropped = new LongAdder();
    private final LongAdder gaps = new LongAdder();
    private volatile Result lastFailure = Result.OK;

    /** Guarded by TARGETS. */
    private int references;
    /** Those of the references whose appenders only wait for their successors. Guarded by TARGETS. */
    private int suspended;

    private volatile Level level;
    private volatile WriterOptions options;
    /** Replaced under TARGETS; null while it is. */
    private volatile RecordSink writer;
    /** Of a route. */
    private final String spillDir;
    private volatile boolean isClosed;
    /** Of the writer. Written under TARGETS. */
    private volatile RingFile file;
    /** The file was removed or replaced, as was last seen. Written under TARGETS. */
    private volatile boolean isFileMissing;
    private Thread watch;

    private final GapLog gapLog = new GapLog();
    /** About the last record of a gap. Of who tells. */
    private final UnknownRecord unknownGap = new UnknownRecord();

    private Target(final String uri, final String spillDir) {
        this.uri = uri;
        this.spillDir = spillDir;
    }

    // ---------------------------------------------------------------- opening and closing

    static Target acquire(final String uri, final WriterOptions options) throws FarlogException {
        return acquire(uri, options, null);
    }

    /**
     * Opens the ring or route, or joins those who have it open, whose folder of spills stays. Blocks as RecordSink.open
     * does.
     */
    static Target acquire(final String uri, final WriterOptions options, final String spillDir) throws FarlogException {
        synchronized (TARGETS) {
            Target target = TARGETS.get(uri);
            if (target == null) {
                target = new Target(uri, spillDir);
                target.open(options);
                TARGETS.put(uri, target);
                target.register();
                target.watch = Thread.ofPlatform().daemon().name("farlog-logback-watch").start(target::watch);
            } else {
                target.join(options);
            }
            target.references++;
            return target;
        }
    }

    /**
     * A ring has one writer, at the highest level that was asked of it: a higher one replaces it, a lower one is served
     * by it. Under TARGETS.
     */
    private void join(final WriterOptions asked) throws FarlogException {
        final boolean isRaised = asked.level() != null && asked.level().compareTo(level) > 0; // a route has none
        if (isRaised && file.isInPlace() && asked.level().compareTo(writer.levelMax()) > 0) {
            throw new IllegalArgumentException(
                "level " + asked.level() + " is above what the region of " + uri + " gives, " + writer.levelMax());
        }
        final WriterOptions wanted = isRaised ? asked : asked.withLevel(level);
        if (isRaised || !file.isInPlace() || references == suspended && !serves(wanted)) {
            reopen(wanted);
        }
    }

    static List<Target> all() {
        synchronized (TARGETS) {
            return new ArrayList<>(TARGETS.values());
        }
    }

    /** An appender begins, or ends, to wait for its successor. */
    void suspend(final boolean isSuspended) {
        synchronized (TARGETS) {
            suspended += isSuspended ? 1 : -1;
        }
    }

    boolean isClosed() {
        return isClosed;
    }

    /** The last one closes the ring: what it has appended stays. Blocks as RecordSink.close does. */
    void release() {
        synchronized (TARGETS) {
            references--;
            if (references == 0) {
                TARGETS.remove(uri);
                isClosed = true;
                LockSupport.unpark(watch);
                unregister();
                writer.close();
            }
        }
    }

    private void open(final WriterOptions wanted) throws FarlogException {
        final RecordSink opened = RecordSink.open(uri, wanted.withPolicy(Policy.REJECT), spillDir);
        options = wanted;
        level = wanted.level();
        file = RingFile.of(uri);
        isFileMissing = false;
        writer = opened;
    }

    private void watch() {
        while (!isClosed) {
            LockSupport.parkNanos(POLL_NANOS);
            checkFile();
        }
    }

    private void checkFile() {
        final RingFile checked = file;
        final boolean isMissing = !checked.isInPlace();
        synchronized (TARGETS) {
            if (checked == file) { // else it was of the writer before
                isFileMissing = isMissing;
            }
        }
    }

    private boolean serves(final WriterOptions wanted) {
        return wanted.equals(options) && lastFailure != Result.FENCED && lastFailure != Result.CLOSED
            && file.isInPlace();
    }

    /** With what the new configuration asks for; with the former when that cannot be had. Appends wait meanwhile. */
    private void reopen(final WriterOptions wanted) throws FarlogException {
        final RecordSink old = writer;
        final WriterOptions former = options;
        writer = null;
        old.close();
        try {
            open(wanted);
            lastFailure = Result.OK;
        } catch (final FarlogException e) {
            try {
                open(former);
            } catch (final FarlogException again) {
                e.addSuppressed(again);
                isFileMissing = !file.isInPlace();
                writer = old; // closed: says CLOSED to everyone
            }
            throw e;
        }
    }

    private ObjectName objectName() throws JMException {
        return new ObjectName("io.github.farlog:type=LogbackTarget,uri=" + ObjectName.quote(uri));
    }

    /** Not at all when it is not wanted: to make the MBean server is a quarter of a process's start. */
    private void register() {
        if ("false".equals(System.getProperty(JMX_PROPERTY))) {
            return;
        }
        try {
            ManagementFactory.getPlatformMBeanServer().registerMBean(this, objectName());
        } catch (final JMException | RuntimeException e) {
            // Another class loader has it, or the application forbids it: counters are no reason not to log.
        }
    }

    private void unregister() {
        if (MBeanServerFactory.findMBeanServer(null).isEmpty()) {
            return;
        }
        try {
            ManagementFactory.getPlatformMBeanServer().unregisterMBean(objectName());
        } catch (final JMException | RuntimeException e) {
            // Was not registered.
        }
    }

    // ---------------------------------------------------------------- appending

    /**
     * Appends one record and waits until it is at the level; before it, the record of a gap when there is one. Full:
     * tries both again until waitNanos have passed since the call.
     *
     * @param criticality of the event, by which a route's legs choose
     * @param deadlineNanos for the level to be reached, once there was room
     */
    Result append(final byte[] data, final int classId, final int criticality, final Scratch scratch,
        final GapRecord gap, final int gapClass,
        final long waitNanos, final long deadlineNanos) {
        final long end = System.nanoTime() + waitNanos;
        Result result = closeGap(gap, gapClass, end + deadlineNanos, deadlineNanos);
        result = result == Result.OK ? appendOnce(data, classId, criticality, scratch, deadlineNanos, null) : result;
        if (result != Result.OK) {
            failed.increment();
        }
        for (int i = 0; result == Result.FULL && System.nanoTime() - end < 0; i++) {
            pause(i);
            result = closeGap(gap, gapClass, end, deadlineNanos);
            result = result == Result.OK ? appendOnce(data, classId, criticality, scratch, deadlineNanos, null)
                : result;
        }
        if (result == Result.OK) {
            appended.increment();
            appendedBytes.add(data.length);
        } else {
            lastFailure = result;
        }
        return result;
    }

    private static void pause(final int turn) {
        if (turn < 100) {
            Thread.onSpinWait();
        } else if (Thread.currentThread().isInterrupted()) {
            Thread.yield();
        } else {
            LockSupport.parkNanos(SLEEP_NANOS);
        }
    }

    /** With a doubt: notes there what was UNKNOWN. */
    private Result appendOnce(final byte[] data, final int classId, final int criticality, final Scratch scratch,
        final long deadlineNanos, final UnknownRecord doubt) {
        RecordSink current = writer;
        while (true) {
            if (current == null) {
                current = awaitWriter();
            }
            if (isFileMissing) {
                return Result.NOT_FOUND;
            }
            final Result result = current.append(data, 0, data.length, classId, scratch.key, 0, scratch.keyLen,
                criticality, deadlineNanos, scratch.position);
            if (result == Result.UNKNOWN) {
                if (doubt != null) {
                    doubt.set(current, scratch.position);
                }
                unknown.increment();
                return resolve(current, scratch.position, deadlineNanos);
            }
            if (result == Result.FENCED) {
                checkFile(); // a writer whose file has gone is fenced, mostly before the watch sees it
                return isFileMissing ? Result.NOT_FOUND : result;
            }
            if (result != Result.CLOSED || isClosed || current == writer) {
                return result;
            }
            current = writer;
        }
    }

    /**
     * The deadline has passed and the record may or may not be there: asks once more, the writer that was given it.
     *
     * @param position that came with UNKNOWN; it is filled again
     * @return OK: this very record is at the level. UNKNOWN: anything else
     */
    static Result resolve(final RecordSink current, final Position position, final long deadlineNanos) {
        return afterUnknown(current.resolve(position, deadlineNanos));
    }

    /** Only OK says where the record is. Also a writer fenced meanwhile may have left it in the ring. */
    static Result afterUnknown(final Result resolved) {
        return resolved == Result.OK ? resolved : Result.UNKNOWN;
    }

    private RecordSink awaitWriter() {
        synchronized (TARGETS) { // held by who reopens
            return writer;
        }
    }

    // ---------------------------------------------------------------- gaps

    /** Makes the record that tells of a gap. */
    interface GapRecord {
        byte[] encode(Gap gap);
    }

    boolean hasGap() {
        return gapLog.isPending();
    }

    /** One more event is not in the ring; with UNKNOWN it may be. */
    void drop(final long eventMillis, final Result cause) {
        dropped.increment();
        gapLog.add(Instant.ofEpochMilli(eventMillis), cause);
    }

    /**
     * Appends a record that tells of the gap, if there is one; does not wait for room.
     *
     * @param end in System.nanoTime: how long to wait for another thread that is just doing the same
     * @return OK: there is no gap any more. FULL also when the other thread was not done by the end, and when the gap's
     * record may or may not be in the ring: the event behind it is not
     */
    Result closeGap(final GapRecord record, final int classId, final long end, final long deadlineNanos) {
        final Result result = hasGap() ? gapLog.flush(new GapSink(record, classId, deadlineNanos), end) : Result.OK;
        return result == Result.UNKNOWN ? Result.FULL : result;
    }

    private final class GapSink implements GapLog.Sink {
        private final GapRecord record;
        private final int classId;
        private final long deadlineNanos;

        private GapSink(final GapRecord record, final int classId, final long deadlineNanos) {
            this.record = record;
            this.classId = classId;
            this.deadlineNanos = deadlineNanos;
        }

        @Override
        public Result write(final Gap gap) {
            final byte[] bytes = record.encode(gap);
            final Scratch scratch = Scratch.acquire();
            scratch.keyLen = 0;
            final Result result = appendOnce(bytes, classId, Classifier.CRITICALITY_MAX, scratch, deadlineNanos,
                unknownGap);
            scratch.release();
            return count(result);
        }

        @Override
        public Result resolve() {
            return count(unknownGap.resolve(deadlineNanos));
        }

        private Result count(final Result result) {
            if (result == Result.OK) {
                gaps.increment();
            } else {
                lastFailure = result;
            }
            return result;
        }
    }

    // ---------------------------------------------------------------- counters

    @Override
    public String getUri() {
        return uri;
    }

    @Override
    public String getLevel() {
        return level == null ? "" : level.name();
    }

    @Override
    public long getAppendedCount() {
        return appended.sum();
    }

    @Override
    public long getAppendedBytes() {
        return appendedBytes.sum();
    }

    @Override
    public long getFailedCount() {
        return failed.sum();
    }

    @Override
    public long getUnknownCount() {
        return unknown.sum();
    }

    @Override
    public long getRefusedCount() {
        return refused.sum();
    }

    @Override
    public long getFailedOverCount() {
        return failedOver.sum();
    }

    @Override
    public long getDroppedCount() {
        return dropped.sum();
    }

    @Override
    public long getGapCount() {
        return gaps.sum();
    }

    @Override
    public long getOpenGapEvents() {
        return gapLog.pendingEvents();
    }

    @Override
    public String getLastFailure() {
        return lastFailure.name();
    }

    @Override
    public long getLagBytes() {
        return counter(Counter.APPENDED_LSN) - counter(Counter.CREDIT_LSN);
    }

    @Override
    public int getPressure() {
        return (int) counter(Counter.PRESSURE);
    }

    @Override
    public List<MemberStatus> getMembers() {
        return MemberStatus.of(counters());
    }

    @Override
    public List<LegStats> getLegs() {
        final RecordSink current = writer;
        return current == null ? List.of() : current.legs();
    }

    private long counter(final Counter counter) {
        final Counters counters = counters();
        return counters == null ? 0 : counters.value(counter);
    }

    private Counters counters() {
        final RecordSink current = writer;
        return current == null ? null : current.counters();
    }
}
