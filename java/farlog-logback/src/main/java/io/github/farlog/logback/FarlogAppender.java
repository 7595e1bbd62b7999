package io.github.farlog.logback;

import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.Appender;
import ch.qos.logback.core.Context;
import ch.qos.logback.core.UnsynchronizedAppenderBase;
import ch.qos.logback.core.encoder.Encoder;
import ch.qos.logback.core.spi.AppenderAttachable;
import ch.qos.logback.core.spi.AppenderAttachableImpl;
import ch.qos.logback.core.spi.FilterReply;
import io.github.farlog.client.FarlogException;
import io.github.farlog.client.Result;
import io.github.farlog.client.gap.ProcessEndHook;
import io.github.farlog.client.gap.FailureReports;
import java.util.Iterator;

/**
 * Appends every event to a farlog ring, synchronously: when the logging call returns, the event is in the ring at the
 * appender's level.
 *
 * <p>Threads: any, platform or virtual. A thread waits for its own event only; events of one thread are in the ring in
 * the order in which it logged them. Blocking: until the level is reached, at most {@code deadline}; with
 * {@code block(T)} until the ring has space, at most T. Durability: {@code level}. Memory: the encoder's bytes and what
 * Logback allocates for an event; the appender itself allocates nothing.
 *
 * <p>Unlike Logback's own base classes it throws exceptions to the caller: no event is lost without an error, see
 * {@link AppenderPolicy}.
 */
public final class FarlogAppender extends UnsynchronizedAppenderBase<ILoggingEvent>
    implements AppenderAttachable<ILoggingEvent> {
    private static final byte[] NOTHING = {};

    private final AppenderConfiguration configuration = new AppenderConfiguration();
    private final AppenderAttachableImpl<ILoggingEvent> fallbacks = new AppenderAttachableImpl<>();
    private Encoder<ILoggingEvent> encoder;
    private Target.GapRecord gapRecord;

    /** Null before start and after {@link #release}. */
    private volatile Target target;
    /** The target after {@link #release}, while a successor has it open: for threads that found this appender. */
    private volatile Target lateTarget;
    /** Shared with the appenders of the same name and ring before and after this one. */
    private volatile HandledEvents handled = new HandledEvents();
    /** Null while this appender has no target of its own. */
    private ProcessEndHook processEndHook;
    private boolean isSuspended;
    private boolean isRetained;
    /** What is wrong with a configuration that was loaded at run time; null when it is right. */
    private volatile String problem;
    /** The appender of the previous configuration, which takes the events while this one's configuration is wrong. */
    private volatile FarlogAppender former;
    private final FailureReports failures = new FailureReports();

    /** For Logback's configurator, or for a program: set, start, attach. */
    public FarlogAppender() {
    }

    // ---------------------------------------------------------------- configuration

    /**
     * Sets where the ring is, or which route takes the events. Required.
     *
     * @param value as in {@code mem:/dev/shm/orders.ring}, {@code farlog://desk7/orders} or
     * {@code route:farlog://desk7/all}
     */
    public void setUri(final String value) {
        configuration.uri = value.trim();
    }

    /**
     * Sets where a route's legs spill records that their rings cannot take.
     *
     * @param value a folder; the environment's FARLOG_SPILL_DIR by default
     */
    public void setSpillDir(final String value) {
        configuration.spillDir = value.trim();
    }

    /**
     * Sets the durability level that an event has when its logging call returns. Not for a route, whose legs have
     * levels of their own.
     *
     * @param value posted, visible, persistent (the default); in any case
     */
    public void setLevel(final String value) {
        configuration.level = value.trim();
    }

    /**
     * Sets what happens to an event that the ring does not take.
     *
     * @param value block(1s) (the default), failStop, failover, dropAndGap
     */
    public void setPolicy(final String value) {
        configuration.policyText = value.trim();
    }

    /**
     * Sets how long a call waits for the level once the ring had space.
     *
     * @param value a time with its unit; default 1s
     */
    public void setDeadline(final String value) {
        configuration.deadlineText = value.trim();
    }

    /**
     * Sets the class of events to which no rule applies.
     *
     * @param value from 0 to 65535; default 0
     */
    public void setClassId(final String value) {
        configuration.classText = value;
    }

    /**
     * Adds a rule that gives events a class and, after a blank, their criticality: {@code droppable} (may be dropped
     * with a gap record whatever the policy), {@code critical} (is not dropped even by policy dropAndGap: the logging
     * call throws), none: as the policy says.
     *
     * @param value {@code marker:NAME=CLASS}, {@code level:NAME=CLASS}, {@code pair:KEY:VALUE=CLASS} or
     * {@code pair:KEY=*}
     */
    public void addClassOf(final String value) {
        configuration.classRules.add(value.trim());
    }

    /**
     * Sets the class of gap records.
     *
     * @param value from 0 to 65535; default 65535
     */
    public void setGapClass(final String value) {
        configuration.gapClassText = value;
    }

    /**
     * Sets which MDC value becomes the record's key.
     *
     * @param value as in {@code ClOrdID}; none by default
     */
    public void setKeyMdc(final String value) {
        configuration.keyMdc = value.trim();
    }

    /**
     * Sets which SLF4J key-value pair becomes the record's key when the MDC has none.
     *
     * @param value the pair's key; none by default
     */
    public void setKeyPair(final String value) {
        configuration.keyPair = value.trim();
    }

    /**
     * Sets the writer's name, which other writers see while this one holds the ring.
     *
     * @param value the program's name by default
     */
    public void setWriterName(final String value) {
        configuration.writerName = value.trim();
    }

    /**
     * Sets the epoch of a grant.
     *
     * @param value 0 (the default) = one more than the ring's last
     */
    public void setEpoch(final String value) {
        configuration.epochText = value.trim();
    }

    /**
     * Sets what makes an event's bytes. Required. Its header and footer, made for files, are not written.
     *
     * @param value any encoder of Logback or the application
     */
    public void setEncoder(final Encoder<ILoggingEvent> value) {
        encoder = value;
    }

    // ---------------------------------------------------------------- life

    /**
     * Checks the configuration and opens the ring. Blocks as the opening of a ring does. Reports an error as a status
     * and throws it, so that the application does not start without its log. In a reconfiguration at run time it does
     * not throw: the appender of that name continues with its previous configuration; if there is none, the policy
     * applies to each event.
     *
     * @throws FarlogConfigurationError an encoder, URI, level, policy or class is missing or wrong, a property is not
     * known, there is no ring, it is held by another process, or its region cannot give the level
     */
    @Override
    public void start() {
        if (isStarted()) {
            return;
        }
        try {
            configure();
            final Target opened = configuration.open();
            final Reconfiguration current = Reconfiguration.of(getContext());
            final HandledEvents before = current == null ? null : current.handledBy(name, opened);
            handled = before == null ? handled : before;
            processEndHook = new ProcessEndHook("farlog-logback-end", () -> writeLastGap(opened));
            target = opened;
        } catch (final IllegalArgumentException | FarlogException e) {
            failStart("Appender [" + name + "]: " + e.getMessage(), e);
        }
        super.start();
    }

    private void configure() {
        configuration.parse(getContext());
        if (encoder == null) {
            throw new IllegalArgumentException("encoder is missing");
        }
        if (!encoder.isStarted()) {
            throw new IllegalArgumentException("encoder is not started: see its own status");
        }
        gapRecord = new GapEvent(getContext(), encoder);
        final boolean isFailover = configuration.policyKind() == AppenderPolicy.Kind.FAILOVER;
        if (isFailover != fallbacks.iteratorForAppenders().hasNext()) {
            throw new IllegalArgumentException(
                isFailover ? "policy failover: expected an appender-ref to the appender that takes over"
                    : "an appender-ref inside is for policy failover; the policy is " + configuration.policyText);
        }
        fallbacks.iteratorForAppenders().forEachRemaining(fallback -> {
            if (!fallback.isStarted()) {
                throw new IllegalArgumentException(
                    "policy failover: appender [" + fallback.getName() + "] is not started: see its own status");
            }
        });
    }

    /** Logback calls this before it sets any property. */
    @Override
    public void setContext(final Context context) {
        super.setContext(context);
        configuration.begin(context);
    }

    private void failStart(final String text, final Exception cause) {
        final Reconfiguration current = Reconfiguration.of(getContext());
        former = current == null ? null : current.adopt(name);
        report(former == null ? text : text + "; goes on as it was configured before", cause);
        if (current == null) {
            throw new FarlogConfigurationError(text, cause);
        }
        configuration.setPolicyOfWrongConfiguration();
        problem = text;
    }

    /**
     * Releases the ring; the last appender of a ring closes it. Appended records stay. In a reset of the context the
     * ring is held until the new configuration is in place; in a stop of the context at the end of the process, until
     * the process has ended.
     */
    @Override
    public void stop() {
        super.stop();
        if (openTarget() == null) {
            return;
        }
        final boolean isLater = Reconfiguration.suspend(this, getContext());
        synchronized (this) {
            if (isLater && !isSuspended && openTarget() != null) {
                isSuspended = true;
                openTarget().suspend(true);
                handledEvents().begin();
            }
        }
        if (!isLater) {
            release();
        }
    }

    /** The ring that its events go to: its own or the former appender's. Null when there is none. */
    Target openTarget() {
        final FarlogAppender delegate = former;
        return delegate == null ? target : delegate.openTarget();
    }

    /** The events that it, or the former appender in its place, has handled. */
    HandledEvents handledEvents() {
        final FarlogAppender delegate = former;
        return delegate == null ? handled : delegate.handledEvents();
    }

    /** Makes {@link #release} wait for the stop of its successor, past the end of the reconfiguration. */
    synchronized void retain() {
        isRetained = true;
    }

    /** Releases the ring for good. Idempotent. */
    void release() {
        final Target let;
        final FarlogAppender delegate;
        synchronized (this) {
            if (isSuspended) {
                isSuspended = false;
                lateTarget = target;
                openTarget().suspend(false);
                handledEvents().end();
            }
            if (isRetained) {
                isRetained = false;
                return;
            }
            let = target;
            delegate = former;
            target = null;
            former = null;
        }
        if (delegate != null) {
            delegate.release();
        }
        if (let != null) {
            processEndHook.close();
            writeLastGap(let);
            let.release();
            fallbacks.detachAndStopAllAppenders();
        }
    }

    private void writeLastGap(final Target let) {
        if (let.hasGap()
            && closeGap(let) != Result.OK) {
            report("Appender [" + name + "] stops with " + let.getOpenGapEvents()
                + " dropped events for which no gap record could be written: " + let.getLastFailure(), null);
        }
    }

    private Result closeGap(final Target let) {
        final long deadlineNanos = configuration.deadlineNanos();
        return let.closeGap(gapRecord, configuration.gapClass(), System.nanoTime() + deadlineNanos, deadlineNanos);
    }

    // ---------------------------------------------------------------- appending

    /**
     * Appends one event and returns when it is at the level.
     *
     * @throws FarlogAppendException it did not reach the ring (policies failStop and block; any policy when the
     * appender is not running)
     * @throws FarlogAppendError the same, below an appender that would swallow the exception
     */
    @Override
    public void doAppend(final ILoggingEvent event) {
        if (StatusReports.isReporting()) {
            return;
        }
        if (getFilterChainDecision(event) != FilterReply.DENY) {
            append(event);
        }
    }

    @Override
    protected void append(final ILoggingEvent event) {
        final Target current = target != null ? target : lateTarget;
        if (current == null || current.isClosed()) {
            appendElsewhere(event);
            return;
        }
        if (handled.contains(event)) {
            return;
        }
        final byte[] bytes;
        try {
            bytes = encoder.encode(event);
        } catch (final RuntimeException e) {
            onFailure(current, event, configuration.classifier().classOf(event), null, e);
            return;
        }
        final int kind = configuration.classifier().classOf(event);
        final Result result = put(current, event, bytes == null ? NOTHING : bytes, kind);
        if (result == Result.OK) {
            handled.add(event);
            recover();
        } else {
            onFailure(current, event, kind, result, null);
        }
    }

    private Result put(final Target current, final ILoggingEvent event, final byte[] bytes, final int kind) {
        final long patience = (kind & Classifier.DROPPABLE) == 0 ? configuration.waitNanos() : 0;
        final Scratch scratch = Scratch.acquire();
        try {
            scratch.setKey(configuration.keySource().of(event));
            return current.append(bytes, kind & Classifier.CLASS_MAX, Classifier.criticalityOf(kind), scratch,
                gapRecord, configuration.gapClass(), patience, configuration.deadlineNanos());
        } finally {
            scratch.release();
        }
    }

    /** For an appender that was never started, was stopped, or has a wrong configuration. */
    private void appendElsewhere(final ILoggingEvent event) {
        final FarlogAppender delegate = former;
        if (delegate != null) {
            delegate.append(event);
        } else if (problem == null || configuration.classifier() == null
            || !failOver(event, configuration.classifier().classOf(event))) {
            FarlogAppendError.raise(
                "Appender [" + name + "] " + (problem == null ? "is not running" : "has no ring: " + problem),
                null, null);
        }
    }

    private void onFailure(final Target current, final ILoggingEvent event, final int kind, final Result result,
        final RuntimeException cause) {
        final String text = "Appender [" + name + "]: " + configuration.uri + ": "
            + (result == null ? "the encoder failed: " + cause : configuration.describe(result));
        final long more = failures.recordFailure();
        if (more >= 0) {
            report(text + "; policy " + configuration.policyText + FailureReports.more(more), null);
        }
        final boolean isDroppable = (kind & Classifier.DROPPABLE) != 0
            || configuration.policyKind() == AppenderPolicy.Kind.DROP_AND_GAP && (kind & Classifier.CRITICAL) == 0;
        if (failOver(event, kind)) {
            current.failedOver.increment();
            handled.add(event);
        } else if (isDroppable) {
            current.drop(event.getTimeStamp(), result == null ? Result.INVALID : result);
            handled.add(event);
        } else {
            current.refused.increment();
            FarlogAppendError.raise(text, result, cause);
        }
    }

    /** Returns false if the policy is another, the event is critical, or none of the appenders inside runs. */
    private boolean failOver(final ILoggingEvent event, final int kind) {
        boolean isGiven = false;
        if (configuration.policyKind() == AppenderPolicy.Kind.FAILOVER && (kind & Classifier.CRITICAL) == 0) {
            for (final Iterator<Appender<ILoggingEvent>> all = fallbacks.iteratorForAppenders(); all.hasNext();) {
                final Appender<ILoggingEvent> fallback = all.next();
                if (fallback.isStarted()) {
                    fallback.doAppend(event);
                    isGiven = true;
                }
            }
        }
        return isGiven;
    }

    private void recover() {
        final long more = failures.hasReported() ? failures.recordSuccess() : -1;
        if (more >= 0) {
            final String text = "Appender [" + name + "]: " + configuration.uri + ": takes events again";
            StatusReports.run(() -> addInfo(text + FailureReports.more(more)));
        }
    }

    // ---------------------------------------------------------------- status

    private void report(final String text, final Throwable cause) {
        StatusReports.run(() -> addError(text, cause));
    }

    // ---------------------------------------------------------------- appenders inside, for failover

    @Override
    public void addAppender(final Appender<ILoggingEvent> appender) {
        fallbacks.addAppender(appender);
    }

    @Override
    public Iterator<Appender<ILoggingEvent>> iteratorForAppenders() {
        return fallbacks.iteratorForAppenders();
    }

    @Override
    public Appender<ILoggingEvent> getAppender(final String appenderName) {
        return fallbacks.getAppender(appenderName);
    }

    @Override
    public boolean isAttached(final Appender<ILoggingEvent> appender) {
        return fallbacks.isAttached(appender);
    }

    @Override
    public void detachAndStopAllAppenders() {
        fallbacks.detachAndStopAllAppenders();
    }

    @Override
    public boolean detachAppender(final Appender<ILoggingEvent> appender) {
        return fallbacks.detachAppender(appender);
    }

    @Override
    public boolean detachAppender(final String appenderName) {
        return fallbacks.detachAppender(appenderName);
    }
}
