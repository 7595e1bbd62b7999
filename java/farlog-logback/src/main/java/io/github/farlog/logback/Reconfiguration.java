package io.github.farlog.logback;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.LoggerContext;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.classic.turbo.TurboFilter;
import ch.qos.logback.core.UnsynchronizedAppenderBase;
import ch.qos.logback.core.spi.ConfigurationEvent;
import ch.qos.logback.core.spi.ConfigurationEventListener;
import ch.qos.logback.core.spi.FilterReply;
import ch.qos.logback.core.status.ErrorStatus;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.slf4j.Marker;

/**
 * Keeps events from being lost while Logback is reconfigured. Logback detaches all appenders, reads the configuration,
 * and attaches the new appenders one by one; it drops the events of this time.
 *
 * <ol> <li>The reset stops our appender. A {@link Gate} (a turbo filter) then holds the threads that begin to log. The
 * reset waits for the threads that are already past it ({@link LoggingThreads}). <li>Logback detaches the appenders,
 * then the turbo filters. When it removes the gate, the former appender is attached again through a {@link Bridge}, and
 * the threads continue. <li>The configuration ends. The bridges are detached, behind a second gate (see
 * {@link #detachBridges}), and the former appenders release their rings, which their successors have open by then. An
 * event that reaches both is recorded once ({@link HandledEvents}). Logback's lists of appenders are renewed once more
 * (see {@link #renewLists}). </ol>
 *
 * <p>When the context stops because the process ends, by Logback's shutdown hook or another, there is no successor: the
 * bridges stay, because the application's threads log until all hooks are done.
 *
 * <p>Exists only during a reconfiguration.
 */
final class Reconfiguration implements ConfigurationEventListener {
    /** How long the gate holds a call once the calls before it are done; far longer than a reset takes. */
    private static final long HELD_NANOS_MAX = TimeUnit.SECONDS.toNanos(5);
    private static final long POLL_NANOS = TimeUnit.MILLISECONDS.toNanos(100);
    /** After a reset without a configuration the former appenders stop by then. */
    private static final long MILLIS_MAX = 10_000;
    private static final Thread NO_HOOK = new Thread(() -> {}, "farlog-no-hook");
    private static final Map<LoggerContext, Reconfiguration> ACTIVE = new WeakHashMap<>();

    private final LoggerContext context;
    private final Map<String, Level> levels = new HashMap<>();
    private final Set<String> nonAdditive = new HashSet<>();
    /** Guarded by this. */
    private final List<Bridge> bridges = new ArrayList<>();
    /** Guarded by this. */
    private boolean isEnded;
    private volatile Gate gate;
    /**
     * The threads that reset the context last, or have begun to configure it since. Only the end of a configuration on
     * one of them ends this reconfiguration. Guarded by ACTIVE.
     */
    private final Set<Thread> configuring = new HashSet<>();
    /** Guarded by ACTIVE. */
    private boolean isEnding;
    /** The process is ending: the bridges stay. Guarded by ACTIVE. */
    private boolean isUntilProcessEnds;
    private final CountDownLatch ended = new CountDownLatch(1);
    /** Threads that did not leave their logging call while the reset waited; no later step waits for them. */
    private volatile Set<Thread> stuck = Set.of();

    private Reconfiguration(final LoggerContext context) {
        this.context = context;
        for (final Logger logger : context.getLoggerList()) {
            if (logger.getLevel() != null) {
                levels.put(logger.getName(), logger.getLevel());
            }
            if (!logger.isAdditive()) {
                nonAdditive.add(logger.getName());
            }
        }
    }

    /** The reconfiguration of this context that is under way; null when there is none. */
    static Reconfiguration of(final Object context) {
        synchronized (ACTIVE) {
            final Reconfiguration found = ACTIVE.get(context);
            return found == null || found.isEnding ? null : found;
        }
    }

    /**
     * The reconfiguration of this context, joined by a reset on this thread. Waits for one that is just ending: it
     * detaches its bridges and its gate, and would let threads pass that this reset has to hold.
     */
    private static Reconfiguration join(final LoggerContext loggers) {
        while (true) {
            final Reconfiguration last;
            synchronized (ACTIVE) {
                last = ACTIVE.computeIfAbsent(loggers, Reconfiguration::new);
                if (!last.isEnding) {
                    last.isUntilProcessEnds |= isProcessEnding();
                    last.configuring.clear();
                    last.configuring.add(Thread.currentThread());
                    return last;
                }
            }
            awaitEnd(last);
        }
    }

    private static void awaitEnd(final Reconfiguration last) {
        boolean isInterrupted = false;
        while (true) {
            try {
                last.ended.await();
                break;
            } catch (final InterruptedException e) {
                isInterrupted = true;
            }
        }
        if (isInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /**
     * Called on the thread that stops an appender. Returns true when a reset stops it: the appender then continues
     * until {@link #end}. Returns false when it has to close now.
     */
    static boolean suspend(final FarlogAppender appender, final Object context) {
        if (!(context instanceof final LoggerContext loggers) || !isReset()) {
            return false;
        }
        final List<Logger> attached = new ArrayList<>();
        for (final Logger logger : loggers.getLoggerList()) {
            if (logger.isAttached(appender)) {
                attached.add(logger);
            }
        }
        if (attached.isEmpty()) {
            return false;
        }
        return join(loggers).add(appender, attached);
    }

    /**
     * Whether this thread is in LoggerContext.reset; false when the context is stopped for good in a process that
     * continues.
     */
    private static boolean isReset() {
        return StackWalker.getInstance(StackWalker.Option.RETAIN_CLASS_REFERENCE).walk(frames -> {
            boolean isReset = false;
            for (final StackWalker.StackFrame frame : (Iterable<StackWalker.StackFrame>) frames::iterator) {
                if (LoggerContext.class.isAssignableFrom(frame.getDeclaringClass())) {
                    if (frame.getMethodName().equals("stop") && !isProcessEnding()) {
                        return false;
                    }
                    isReset |= frame.getMethodName().equals("reset");
                }
            }
            return isReset;
        });
    }

    private static boolean isProcessEnding() {
        try {
            Runtime.getRuntime().removeShutdownHook(NO_HOOK);
            return false;
        } catch (final IllegalStateException e) {
            return true;
        }
    }

    private boolean add(final FarlogAppender appender, final List<Logger> attached) {
        closeGate();
        synchronized (this) {
            if (isEnded) {
                return false;
            }
            for (final Bridge bridge : bridges) {
                if (bridge.appender == appender) {
                    bridge.attached.addAll(attached);
                    return true;
                }
            }
            if (bridges.isEmpty()) {
                context.addConfigurationEventListener(this);
                Thread.ofVirtual().name("farlog-reconfiguration").start(this::endAfterTimeout);
            }
            bridges.add(new Bridge(appender, new HashSet<>(attached)));
            return true;
        }
    }

    private void closeGate() {
        if (gate == null) {
            final Gate closed = new Gate();
            gate = closed;
            stuck = closed.close(Set.of());
            if (!stuck.isEmpty()) {
                report(stuck.size() + " threads are inside a logging call for " + LoggingThreads.SECONDS_MAX
                    + " s, and the appenders are taken away: "
                    + "the events of these calls may be lost: " + names(stuck));
            }
        }
    }

    private int loggersWithAppenders() {
        int count = 0;
        for (final Logger logger : context.getLoggerList()) {
            count += logger.iteratorForAppenders().hasNext() ? 1 : 0;
        }
        return count;
    }

    private static String names(final Set<Thread> threads) {
        return threads.stream().limit(10).map(Thread::getName)
            .collect(Collectors.joining(", ", "", threads.size() > 10 ? ", ..." : ""));
    }

    private void report(final String text) {
        StatusReports.run(() -> context.getStatusManager()
            .add(new ErrorStatus("farlog, while Logback is reconfigured: " + text, this)));
    }

    private synchronized void attachBridges(final Gate removed) {
        if (!isEnded) {
            for (final Bridge bridge : bridges) {
                bridge.attached.forEach(logger -> logger.addAppender(bridge));
            }
        }
        if (gate == removed) {
            gate = null;
        }
    }

    @Override
    public void listen(final ConfigurationEvent event) {
        switch (event.getEventType()) {
            case CONFIGURATION_STARTED -> {
                synchronized (ACTIVE) {
                    configuring.add(Thread.currentThread());
                }
            }
            case CONFIGURATION_ENDED_SUCCESSFULLY, CONFIGURATION_ENDED_WITH_XML_PARSING_ERRORS -> {
                if (isConfiguring()) {
                    end();
                }
            }
            default -> {
            }
        }
    }

    private void endAfterTimeout() {
        try {
            Thread.sleep(MILLIS_MAX);
            end();
        } catch (final InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private boolean isConfiguring() {
        synchronized (ACTIVE) {
            return configuring.contains(Thread.currentThread());
        }
    }

    private void end() {
        synchronized (ACTIVE) {
            if (isEnding || isUntilProcessEnds) {
                return;
            }
            isEnding = true;
        }
        try {
            releaseFormer();
        } finally {
            synchronized (ACTIVE) {
                ACTIVE.remove(context, this);
            }
            ended.countDown();
        }
    }

    private void releaseFormer() {
        synchronized (this) {
            isEnded = true;
            context.removeConfigurationEventListener(this);
        }
        detachBridges();
        final Set<Thread> left = LoggingThreads.await(LoggingThreads::isBeforeSuccessor, Set.of());
        renewLists();
        // A thread may have found a bridge in the list that was just renewed.
        LoggingThreads.await(LoggingThreads::isBeforeSuccessor, left);
        for (final Bridge bridge : bridges) {
            bridge.appender.release();
        }
    }

    /**
     * Detaches the bridges while no thread reads a logger's list of appenders. Otherwise a thread that is just copying
     * the list (see {@link #renewLists}) could bring a bridge back after another thread has found only the successor.
     * If these have different rings, the former ring could then have a later event of a thread than the new ring.
     */
    private void detachBridges() {
        final Gate last = new Gate();
        try {
            last.close(stuck);
            for (final Bridge bridge : bridges) {
                bridge.attached.forEach(logger -> logger.detachAppender(bridge));
            }
        } finally {
            last.open();
        }
    }

    /**
     * Makes Logback copy its lists of appenders again. Logback keeps a copy of each logger's list. A thread that copies
     * the list while it changes may mark the old copy as current, and it stays: with the bridge, or without the
     * successor. Virtual threads and stuck threads may still do so after {@link #detachBridges}. When the threads from
     * before the change are gone, a further change, even one that changes nothing, makes Logback copy the list again.
     */
    private void renewLists() {
        final Bridge nowhere = bridges.getFirst();
        for (final Logger logger : context.getLoggerList()) {
            logger.detachAppender(nowhere);
        }
    }

    /** The former appender of this name, kept by its successor: the end does not release it. Null if none. */
    synchronized FarlogAppender adopt(final String name) {
        for (final Bridge bridge : bridges) {
            if (bridge.appender.getName() != null && bridge.appender.getName().equals(name)) {
                bridge.appender.retain();
                return bridge.appender;
            }
        }
        return null;
    }

    /** The events that the former appender of this name handled, if it has the same ring. Null when there was none. */
    synchronized HandledEvents handledBy(final String name, final Target target) {
        for (final Bridge bridge : bridges) {
            if (bridge.appender.getName() != null && bridge.appender.getName().equals(name)
                && bridge.appender.openTarget() == target) {
                return bridge.appender.handledEvents();
            }
        }
        return null;
    }

    /**
     * Whether the former configuration passed the event to the appender, by the levels and additivity of the loggers
     * between the event's and those to which the appender was attached.
     */
    private boolean admits(final ILoggingEvent event, final Set<Logger> attached) {
        String name = event.getLoggerName();
        Level level = null;
        boolean isReached = false;
        boolean isCut = false;
        while (true) {
            level = level == null ? levels.get(name) : level;
            isReached |= !isCut && isAmong(name, attached);
            isCut |= nonAdditive.contains(name);
            if (name.equals(org.slf4j.Logger.ROOT_LOGGER_NAME)) {
                return isReached && (level == null || event.getLevel().isGreaterOrEqual(level));
            }
            final int dot = Math.max(name.lastIndexOf('.'), name.lastIndexOf('$'));
            name = dot < 0 ? org.slf4j.Logger.ROOT_LOGGER_NAME : name.substring(0, dot);
        }
    }

    private static boolean isAmong(final String name, final Set<Logger> loggers) {
        for (final Logger logger : loggers) {
            if (logger.getName().equals(name)) {
                return true;
            }
        }
        return false;
    }

    /** Holds threads that begin to log, until Logback removes the filter. */
    final class Gate extends TurboFilter {
        private final Thread resetting = Thread.currentThread();
        private final CountDownLatch opened = new CountDownLatch(1);
        private final AtomicLong expired = new AtomicLong();
        /**
         * End of the wait, in System.nanoTime; null while the reset waits for the threads that are past the gate, a
         * wait with a limit of its own.
         */
        private volatile Long end;

        /**
         * Holds threads that begin to log from now on, and waits for those that are past the gate.
         *
         * @param except threads that are not waited for
         * @return the threads that are still past the gate
         */
        Set<Thread> close(final Set<Thread> except) {
            Reconfiguration.this.context.getTurboFilterList().add(0, this);
            try {
                final boolean isOneLogger = loggersWithAppenders() <= 1;
                return LoggingThreads.await(frames -> LoggingThreads.isBeforeAppender(frames, isOneLogger), except);
            } finally {
                end = System.nanoTime() + HELD_NANOS_MAX;
            }
        }

        void open() {
            Reconfiguration.this.context.getTurboFilterList().remove(this);
            opened.countDown();
        }

        @Override
        public FilterReply decide(final Marker marker, final Logger logger, final Level level, final String format,
            final Object[] arguments, final Throwable thrown) {
            if (Thread.currentThread() != resetting && opened.getCount() > 0) {
                awaitOpen();
            }
            return FilterReply.NEUTRAL;
        }

        private void awaitOpen() {
            boolean isInterrupted = false;
            boolean isOpen = false;
            while (!isOpen && !isExpired()) {
                try {
                    isOpen = opened.await(POLL_NANOS, TimeUnit.NANOSECONDS);
                } catch (final InterruptedException e) {
                    isInterrupted = true;
                }
            }
            if (!isOpen && opened.getCount() > 0 && expired.incrementAndGet() == 1) {
                report("the appenders are not back after " + TimeUnit.NANOSECONDS.toSeconds(HELD_NANOS_MAX)
                    + " s; logging calls are held no longer, and their events may be lost");
            }
            if (isInterrupted) {
                Thread.currentThread().interrupt();
            }
        }

        private boolean isExpired() {
            final Long until = end;
            return until != null && System.nanoTime() - until >= 0;
        }

        @Override
        public void stop() {
            attachBridges(this);
            opened.countDown();
            if (expired.get() > 0) {
                report(
                    expired + " logging calls were not held until the appenders were back; their events may be lost");
            }
        }
    }

    /** Takes events for the appender that Logback has detached. */
    final class Bridge extends UnsynchronizedAppenderBase<ILoggingEvent> {
        private final FarlogAppender appender;
        private final Set<Logger> attached;

        private Bridge(final FarlogAppender appender, final Set<Logger> attached) {
            this.appender = appender;
            this.attached = attached;
            setContext(context);
            setName(appender.getName() + " until it is reconfigured");
            start();
        }

        @Override
        public void doAppend(final ILoggingEvent event) {
            if (admits(event, attached)) {
                appender.doAppend(event);
            }
        }

        @Override
        protected void append(final ILoggingEvent event) {
            doAppend(event);
        }

        /**
         * Logback resets once more before it was done, to fall back to the former configuration; or it stops for good.
         */
        @Override
        public void stop() {
            if (isReset()) {
                closeGate();
            } else {
                end();
            }
        }
    }
}
