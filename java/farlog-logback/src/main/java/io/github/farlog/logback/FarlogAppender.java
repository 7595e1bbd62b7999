package io.github.farlog.logback;

import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.Appender;
import ch.qos.logback.core.AppenderBase;
import ch.qos.logback.core.Context;
import ch.qos.logback.core.UnsynchronizedAppenderBase;
import ch.qos.logback.core.encoder.Encoder;
import ch.qos.logback.core.joran.util.PropertySetter;
import ch.qos.logback.core.model.processor.ImplicitModelHandler;
import ch.qos.logback.core.spi.AppenderAttachable;
import ch.qos.logback.core.spi.AppenderAttachableImpl;
import ch.qos.logback.core.spi.FilterReply;
import ch.qos.logback.core.status.Status;
import io.github.farlog.client.FarlogException;
import io.github.farlog.client.Level;
import io.github.farlog.client.RecordSink;
import io.github.farlog.client.Result;
import io.github.farlog.client.WriterOptions;
import io.github.farlog.client.gap.LastWords;
import io.github.farlog.client.gap.Refusals;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;

/**
 * Appends every event to a farlog ring, synchronously: when the logging call returns, the event is there at the
 * appender's level.
 *
 * <p>Threads: any, platform or virtual; an event's thread waits for its own event, and events of one thread stand in
 * the ring in the order in which it logged them. Blocking: until the level is reached, at most {@code deadline}; with
 * {@code block(T)} until there is room, at most T. Durability: {@code level}. Memory: the encoder's bytes and what
 * Logback makes for an event; the appender itself allocates nothing.
 *
 * <p>Unlike Logback's own base classes it lets an exception out to the caller: an event that did not reach the ring is
 * never lost without a sound, see {@link AppenderPolicy}.
 */
public final class FarlogAppender extends UnsynchronizedAppenderBase<ILoggingEvent>
    implements AppenderAttachable<ILoggingEvent> {
    private static final byte[] NOTHING = {};

    /** What the context told of last before this element was read. */
    private Status lastBefore;
    private final AppenderAttachableImpl<ILoggingEvent> fallbacks = new AppenderAttachableImpl<>();
    private final List<String> classRules = new ArrayList<>();
    private String uri;
    private String level;
    private String spillDir;
    private String policyText = "block(1s)";
    private String deadlineText = "1s";
    private String classText = "0";
    private String gapClassText = "65535";
    private String keyMdc;
    private String keyPair;
    private String writerName;
    private int epoch;
    private String epochText = "0";
    private Encoder<ILoggingEvent> encoder;

    private AppenderPolicy policy;
    private long waitNanos;
    private long deadlineNanos;
    private int gapClass;
    private Classifier classifier;
    private KeySource keySource;
    private Target.GapRecord gapRecord;

    /** Null before start and after the ring was let go. */
    private volatile Target target;
    /**
     * The ring that a successor has taken over: for a thread that was on its way here when this appender was let go.
     */
    private volatile Target late;
    /** Shared with the one of the same name before and after this one, when it is the same ring. */
    private volatile Seen seen = new Seen();
    /** Null while there is no ring of its own. */
    private LastWords lastWords;
    private boolean isSuspended;
    private boolean isRetained;
    /** What is wrong with a configuration that came at run time; null when nothing is. */
    private volatile String problem;
    /** Goes on in the place of this one, whose configuration is wrong. */
    private volatile FarlogAppender former;
    private final Refusals refusals = new Refusals();

    /** Made by Logback's configurator, or by hand: set, start, attach. */
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
        uri = value.trim();
    }

    /**
     * Sets where a route's legs that spill keep what their rings cannot take.
     *
     * @param value a folder; the environment's FARLOG_SPILL_DIR by default
     */
    public void setSpillDir(final String value) {
        spillDir = value.trim();
    }

    /**
     * Sets what is reached when a logging call returns. Not of a route, whose legs have levels of their own.
     *
     * @param value posted, visible, persistent (the default); in any case
     */
    public void setLevel(final String value) {
        level = value.trim();
    }

    /**
     * Sets what happens to an event that the ring does not take.
     *
     * @param value block(1s) (the default), failStop, failover, dropAndGap
     */
    public void setPolicy(final String value) {
        policyText = value.trim();
    }

    /**
     * Sets how long a call waits for the level, once there was room.
     *
     * @param value a time with its unit; default 1s
     */
    public void setDeadline(final String value) {
        deadlineText = value.trim();
    }

    /**
     * Sets the class of events for which no rule speaks.
     *
     * @param value from 0 to 65535; default 0
     */
    public void setClassId(final String value) {
        classText = value;
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
        classRules.add(value.trim());
    }

    /**
     * Sets the class of the records that tell of a gap.
     *
     * @param value from 0 to 65535; default 65535
     */
    public void setGapClass(final String value) {
        gapClassText = value;
    }

    /**
     * Sets which MDC value becomes the record's key.
     *
     * @param value as in {@code ClOrdID}; none by default
     */
    public void setKeyMdc(final String value) {
        keyMdc = value.trim();
    }

    /**
     * Sets which SLF4J key-value pair becomes the record's key when the MDC has none.
     *
     * @param value the pair's key; none by default
     */
    public void setKeyPair(final String value) {
        keyPair = value.trim();
    }

    /**
     * Names the writer to others who find the ring held.
     *
     * @param value the program's name by default
     */
    public void setWriterName(final String value) {
        writerName = value.trim();
    }

    /**
     * Sets the epoch of a grant.
     *
     * @param value 0 (the default) = one more than the ring's last
     */
    public void setEpoch(final String value) {
        epochText = value.trim();
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
     * Checks the configuration and opens the ring. Blocks as the opening of a ring does. What is wrong is said as a
     * status and thrown, so that the application does not start without its log. In a reconfiguration at run time
     * nothing is thrown: the appender of that name goes on as it was configured before; when there was none, the policy
     * is applied to each event.
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
            final Target opened = open();
            final Handover handover = Handover.of(getContext());
            final Seen before = handover == null ? null : handover.seenBy(name, opened);
            seen = before == null ? seen : before;
            lastWords = new LastWords("farlog-logback-end", () -> tellGapAtLast(opened));
            target = opened;
        } catch (final IllegalArgumentException | FarlogException e) {
            refuseToStart("Appender [" + name + "]: " + e.getMessage(), e);
        }
        super.start();
    }

    private void configure() {
        refuseWhatLogbackPassesOver();
        policy = AppenderPolicy.parse(policyText);
        final Classifier rules = new Classifier(Classifier.parse("classId", classText));
        classRules.forEach(rules::add);
        classifier = rules;
        waitNanos = policy.patience().toNanos();
        deadlineNanos = AppenderPolicy.parseDuration("deadline", deadlineText).toNanos();
        gapClass = Classifier.parse("gapClass", gapClassText);
        if (uri == null || uri.isEmpty()) {
            throw new IllegalArgumentException("uri is missing: expected one as in mem:/dev/shm/orders.ring");
        }
        if (encoder == null) {
            throw new IllegalArgumentException("encoder is missing");
        }
        if (!encoder.isStarted()) {
            throw new IllegalArgumentException("encoder is not started: see its own status");
        }
        keySource = new KeySource(keyMdc, keyPair);
        gapRecord = new GapEvent(getContext(), encoder);
        final boolean isFailover = policy.kind() == AppenderPolicy.Kind.FAILOVER;
        if (isFailover != fallbacks.iteratorForAppenders().hasNext()) {
            throw new IllegalArgumentException(
                isFailover ? "policy failover: expected an appender-ref to what shall take the events"
                    : "an appender-ref inside is for policy failover; the policy is " + policyText);
        }
        fallbacks.iteratorForAppenders().forEachRemaining(fallback -> {
            if (!fallback.isStarted()) {
                throw new IllegalArgumentException(
                    "policy failover: appender [" + fallback.getName() + "] is not started: see its own status");
            }
        });
    }

    /**
     * Logback warns of what it does not know inside this element, or cannot make of it, and goes on; a misspelt policy
     * would be another policy, a filter without its level another filter, and an encoder without its pattern gives
     * events of no bytes.
     */
    private void refuseWhatLogbackPassesOver() {
        if (getContext() == null) {
            return;
        }
        final List<Status> all = getContext().getStatusManager().getCopyOfStatusList();
        for (final Status status : all.subList(all.indexOf(lastBefore) + 1, all.size())) {
            final String text = status.getMessage();
            if (text != null && !(status.getOrigin() instanceof Appender) && (status.getLevel() == Status.ERROR
                || status.getOrigin() instanceof PropertySetter
                || text.startsWith(ImplicitModelHandler.IGNORING_UNKNOWN_PROP))) {
                throw new IllegalArgumentException(
                    text.replace(ImplicitModelHandler.IGNORING_UNKNOWN_PROP, "unknown property"));
            }
        }
    }

    /** Logback gives it first of all. */
    @Override
    public void setContext(final Context context) {
        super.setContext(context);
        final List<Status> all = context == null ? List.of() : context.getStatusManager().getCopyOfStatusList();
        lastBefore = all.isEmpty() ? null : all.getLast();
    }

    private Target open() throws FarlogException {
        final Level wanted;
        refuseWhatRoutesHaveOfTheirOwn();
        try {
            wanted = RecordSink.isRoute(uri) ? null
                : Level.valueOf(level == null ? "PERSISTENT" : level.toUpperCase(Locale.ROOT));
            epoch = Integer.parseInt(epochText);
        } catch (final NumberFormatException e) {
            throw new IllegalArgumentException("epoch \"" + epochText + "\": expected a number", e);
        } catch (final IllegalArgumentException e) {
            throw new IllegalArgumentException("level \"" + level + "\": expected posted, visible or persistent", e);
        }
        final WriterOptions options = WriterOptions.defaults().withLevel(wanted).withName(writerName).withEpoch(epoch)
            .withDeadline(Duration.ofNanos(deadlineNanos));
        try {
            return Target.acquire(uri, options, spillDir);
        } catch (final LinkageError e) {
            throw new IllegalArgumentException("no native library: " + e.getMessage(), e);
        }
    }

    private void refuseWhatRoutesHaveOfTheirOwn() {
        final boolean isRoute = RecordSink.isRoute(uri);
        if (isRoute && (level != null || !"0".equals(epochText))) {
            throw new IllegalArgumentException("uri \"" + uri
                + "\" names a route, whose legs have levels and grants of their own: expected no level and no epoch");
        }
        if (!isRoute && spillDir != null) {
            throw new IllegalArgumentException(
                "spillDir \"" + spillDir + "\" is for a route: expected uri route:farlog://NAME");
        }
    }

    private void refuseToStart(final String text, final Exception cause) {
        final Handover handover = Handover.of(getContext());
        former = handover == null ? null : handover.adopt(name);
        report(former == null ? text : text + "; goes on as it was configured before", cause);
        if (handover == null) {
            throw new FarlogConfigurationError(text, cause);
        }
        policy = policy == null ? AppenderPolicy.parse("failStop") : policy;
        problem = text;
    }

    /**
     * Lets the ring go; the last appender of a ring closes it. What has been appended stays. In a reset of the context
     * the ring is held until the new configuration is in place; in a stop of the context at the end of the process,
     * until the process is no more.
     */
    @Override
    public void stop() {
        super.stop();
        if (held() == null) {
            return;
        }
        final boolean isLater = Handover.suspend(this, getContext());
        synchronized (this) {
            if (isLater && !isSuspended && held() != null) {
                isSuspended = true;
                held().suspend(true);
                seen().begin();
            }
        }
        if (!isLater) {
            release();
        }
    }

    /**
     * The ring that its events go to: its own, or that of the one that goes on in its place. Null when there is none.
     */
    Target held() {
        final FarlogAppender delegate = former;
        return delegate == null ? target : delegate.held();
    }

    /** What it has recorded, or the one that goes on in its place. */
    Seen seen() {
        final FarlogAppender delegate = former;
        return delegate == null ? seen : delegate.seen();
    }

    /** Not to be released when the handover ends, but when its successor stops. */
    synchronized void retain() {
        isRetained = true;
    }

    /** Lets the ring go for good. Twice is as once. */
    void release() {
        final Target let;
        final FarlogAppender delegate;
        synchronized (this) {
            if (isSuspended) {
                isSuspended = false;
                late = target;
                held().suspend(false);
                seen().end();
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
            lastWords.close();
            tellGapAtLast(let);
            let.release();
            fallbacks.detachAndStopAllAppenders();
        }
    }

    private void tellGapAtLast(final Target let) {
        if (let.hasGap()
            && let.closeGap(gapRecord, gapClass, System.nanoTime() + deadlineNanos, deadlineNanos) != Result.OK) {
            report("Appender [" + name + "] ends with " + let.getOpenGapEvents()
                + " dropped events that the ring could not be told of: "
                + let.getLastFailure(), null);
        }
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
        if (Reports.isReporting()) {
            return;
        }
        if (getFilterChainDecision(event) != FilterReply.DENY) {
            append(event);
        }
    }

    @Override
    protected void append(final ILoggingEvent event) {
        final Target current = target != null ? target : late;
        if (current == null || current.isClosed()) {
            appendElsewhere(event);
            return;
        }
        if (seen.has(event)) {
            return;
        }
        final byte[] bytes;
        try {
            bytes = encoder.encode(event);
        } catch (final RuntimeException e) {
            onFailure(current, event, classifier.classOf(event), null, e);
            return;
        }
        final int kind = classifier.classOf(event);
        final Result result = put(current, event, bytes == null ? NOTHING : bytes, kind);
        if (result == Result.OK) {
            seen.put(event);
            recover();
        } else {
            onFailure(current, event, kind, result, null);
        }
    }

    private Result put(final Target current, final ILoggingEvent event, final byte[] bytes, final int kind) {
        final long patience = (kind & Classifier.DROPPABLE) == 0 ? waitNanos : 0;
        final Scratch scratch = Scratch.take();
        try {
            scratch.setKey(keySource.of(event));
            return current.append(bytes, kind & Classifier.CLASS_MAX, Classifier.criticalityOf(kind), scratch,
                gapRecord, gapClass, patience, deadlineNanos);
        } finally {
            scratch.giveBack();
        }
    }

    /** The appender is not running: never started, stopped, or its new configuration is wrong. */
    private void appendElsewhere(final ILoggingEvent event) {
        final FarlogAppender delegate = former;
        if (delegate != null) {
            delegate.append(event);
        } else if (problem == null || classifier == null || !failOver(event, classifier.classOf(event))) {
            throwOut("Appender [" + name + "] " + (problem == null ? "is not running" : "has no ring: " + problem),
                null, null);
        }
    }

    private void onFailure(final Target current, final ILoggingEvent event, final int kind, final Result result,
        final RuntimeException cause) {
        final String text = "Appender [" + name + "]: " + uri + ": "
            + (result == null ? "the encoder failed: " + cause : describe(result));
        final long more = refusals.add();
        if (more >= 0) {
            report(text + "; policy " + policyText + Refusals.more(more), null);
        }
        final boolean isDroppable = (kind & Classifier.DROPPABLE) != 0
            || policy.kind() == AppenderPolicy.Kind.DROP_AND_GAP && (kind & Classifier.CRITICAL) == 0;
        if (failOver(event, kind)) {
            current.failedOver.increment();
            seen.put(event);
        } else if (isDroppable) {
            current.drop(event.getTimeStamp(), result == null ? Result.INVALID : result);
            seen.put(event);
        } else {
            current.refused.increment();
            throwOut(text, result, cause);
        }
    }

    private String describe(final Result result) {
        final String notFound = RecordSink.isRoute(uri) ? "no leg of the route takes its class and criticality"
            : "the ring's file was removed or replaced";
        return result.name() + ": " + (result == Result.NOT_FOUND ? notFound : result.text());
    }

    /** False: the policy is another, the event is critical, or none of the appenders inside runs. */
    private boolean failOver(final ILoggingEvent event, final int kind) {
        boolean isGiven = false;
        if (policy.kind() == AppenderPolicy.Kind.FAILOVER && (kind & Classifier.CRITICAL) == 0) {
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
        final long more = refusals.isTold() ? refusals.end() : -1;
        if (more >= 0) {
            addInfoGuarded("Appender [" + name + "]: " + uri + ": takes events again" + Refusals.more(more));
        }
    }

    private static void throwOut(final String text, final Result result, final RuntimeException cause) {
        final FarlogAppendException thrown = new FarlogAppendException(text, result, cause);
        if (isSwallowed()) {
            throw new FarlogAppendError(thrown);
        }
        throw thrown;
    }

    /** Whether a base class of Logback that catches exceptions stands between this append and the logger. */
    private static boolean isSwallowed() {
        return StackWalker.getInstance(StackWalker.Option.RETAIN_CLASS_REFERENCE).walk(frames -> frames.anyMatch(
            frame -> frame.getMethodName().equals("doAppend")
                && (frame.getDeclaringClass() == AppenderBase.class
                    || frame.getDeclaringClass() == UnsynchronizedAppenderBase.class)));
    }

    // ---------------------------------------------------------------- status

    private void report(final String text, final Throwable cause) {
        Reports.whileReporting(() -> addError(text, cause));
    }

    private void addInfoGuarded(final String text) {
        Reports.whileReporting(() -> addInfo(text));
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
