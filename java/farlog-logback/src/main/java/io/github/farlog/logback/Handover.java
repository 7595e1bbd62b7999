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
 * Carries events past a reconfiguration of Logback, which takes all appenders away, reads the configuration, and puts
 * the new ones in place one by one; what is logged meanwhile it drops.
 *
 * <ol> <li>The reset stops our appender: a gate (a turbo filter) holds the threads that begin to log now; for those
 * already past it the reset waits ({@link Callers}). <li>Logback takes the appenders away, then the turbo filters: when
 * it takes the gate, the former appender is put back behind a {@link Bridge}, and the threads go on. <li>The
 * configuration ends: the bridges are taken away, behind a gate once more, see {@link #detachBridges}, and the former
 * appenders let their rings go. Their successors hold them by then. A thread that meets both is heard once
 * ({@link Seen}). Logback's list of a logger's appenders is renewed once more, see {@link #renewLists}. </ol>
 *
 * <p>A context that is stopped because the process ends, by Logback's shutdown hook or another, is handed over to
 * nobody: the bridges stay, for the application's threads log on until all hooks are done.
 *
 * <p>Cold: nothing of this is there while Logback is not being reconfigured.
 */
final class Handover implements ConfigurationEventListener {
    /** How long the gate holds a call once those before it are done; far longer than a reset takes. */
    private static final long HELD_NANOS_MAX = TimeUnit.SECONDS.toNanos(5);
    private static final long LOOK_NANOS = TimeUnit.MILLISECONDS.toNanos(100);
    /** A reset that no configuration follows: then the former appenders stop. */
    private static final long MILLIS_MAX = 10_000;
    private static final Thread NO_HOOK = new Thread(() -> {}, "farlog-no-hook");
    private static final Map<LoggerContext, Handover> UNDER_WAY = new WeakHashMap<>();

    private final LoggerContext context;
    private final Map<String, Level> levels = new HashMap<>();
    private final Set<String> alone = new HashSet<>();
    /** Guarded by this. */
    private final List<Bridge> bridges = new ArrayList<>();
    /** Guarded by this. */
    private boolean isEnded;
    private volatile Gate gate;
    /**
     * Those who reset the context last, or have begun to configure it since; it is not another one who is done with it.
     * Guarded by UNDER_WAY.
     */
    private final Set<Thread> configuring = new HashSet<>();
    /** Guarded by UNDER_WAY. */
    private boolean isEnding;
    /** The process ends before this does. Guarded by UNDER_WAY. */
    private boolean isForever;
    private final CountDownLatch over = new CountDownLatch(1);
    /** Were inside a logging call all the time that the reset waited; nobody is held for them again. */
    private volatile Set<Thread> stuck = Set.of();

    private Handover(final LoggerContext context) {
        this.context = context;
        for (final Logger logger : context.getLoggerList()) {
            if (logger.getLevel() != null) {
                levels.put(logger.getName(), logger.getLevel());
            }
            if (!logger.isAdditive()) {
                alone.add(logger.getName());
            }
        }
    }

    /** Under way for this context; null when none is. */
    static Handover of(final Object context) {
        synchronized (UNDER_WAY) {
            final Handover found = UNDER_WAY.get(context);
            return found == null || found.isEnding ? null : found;
        }
    }

    /**
     * The one of this context, joined by a reset on this thread. One that is just ending is waited for: it takes its
     * appenders and its gate away, and would let threads pass that this reset has to hold.
     */
    private static Handover join(final LoggerContext loggers) {
        while (true) {
            final Handover last;
            synchronized (UNDER_WAY) {
                last = UNDER_WAY.computeIfAbsent(loggers, Handover::new);
                if (!last.isEnding) {
                    last.isForever |= isProcessEnding();
                    last.configuring.clear();
                    last.configuring.add(Thread.currentThread());
                    return last;
                }
            }
            awaitOver(last);
        }
    }

    private static void awaitOver(final Handover last) {
        boolean isInterrupted = false;
        while (true) {
            try {
                last.over.await();
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
     * Called on the thread that stops an appender. True: a reset does it, and the appender is to go on until
     * {@link #end}. False: it is to close now.
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
     * Whether this thread is in LoggerContext.reset, and not because the context is stopped for good in a process that
     * goes on.
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
                Thread.ofVirtual().name("farlog-handover").start(this::endLate);
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
                report(stuck.size() + " threads are inside a logging call for " + Callers.SECONDS_MAX
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
        Reports.whileReporting(() -> context.getStatusManager()
            .add(new ErrorStatus("farlog, while Logback is reconfigured: " + text, this)));
    }

    private synchronized void build(final Gate opened) {
        if (!isEnded) {
            for (final Bridge bridge : bridges) {
                bridge.attached.forEach(logger -> logger.addAppender(bridge));
            }
        }
        if (gate == opened) {
            gate = null;
        }
    }

    @Override
    public void listen(final ConfigurationEvent event) {
        switch (event.getEventType()) {
            case CONFIGURATION_STARTED -> {
                synchronized (UNDER_WAY) {
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

    private void endLate() {
        try {
            Thread.sleep(MILLIS_MAX);
            end();
        } catch (final InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private boolean isConfiguring() {
        synchronized (UNDER_WAY) {
            return configuring.contains(Thread.currentThread());
        }
    }

    private void end() {
        synchronized (UNDER_WAY) {
            if (isEnding || isForever) {
                return;
            }
            isEnding = true;
        }
        try {
            letGo();
        } finally {
            synchronized (UNDER_WAY) {
                UNDER_WAY.remove(context, this);
            }
            over.countDown();
        }
    }

    private void letGo() {
        synchronized (this) {
            isEnded = true;
            context.removeConfigurationEventListener(this);
        }
        detachBridges();
        final Set<Thread> left = Callers.await(Callers::isBeforeSuccessor, Set.of());
        renewLists();
        Callers.await(Callers::isBeforeSuccessor, left); // may have found a bridge in the list that was just renewed
        for (final Bridge bridge : bridges) {
            bridge.appender.release();
        }
    }

    /**
     * While nobody looks for the appenders of a logger. Else a thread that is just copying the list (see
     * {@link #renewLists}) could put the bridge back before one that has met the successor alone; when these have
     * different rings, a later event of a thread would be in the former ring and an earlier one only in the new.
     */
    private void detachBridges() {
        final Gate last = new Gate();
        try {
            last.close(stuck);
            for (final Bridge bridge : bridges) {
                bridge.attached.forEach(logger -> logger.detachAppender(bridge));
            }
        } finally {
            last.lift();
        }
    }

    /**
     * Logback keeps a copy of each logger's list of appenders. A thread that makes one while the list is changed may
     * mark the old copy as new, and then it stays: with the bridge for ever, or without the successor. Virtual threads
     * and those that are stuck may do so all the same. Once the threads from before the change are gone, another
     * change, even one that changes nothing, has the copy made again.
     */
    private void renewLists() {
        final Bridge nowhere = bridges.getFirst();
        for (final Logger logger : context.getLoggerList()) {
            logger.detachAppender(nowhere);
        }
    }

    /**
     * The former appender of this name, taken over for good: it is not released at the end. Null when there was none.
     */
    synchronized FarlogAppender adopt(final String name) {
        for (final Bridge bridge : bridges) {
            if (bridge.appender.getName() != null && bridge.appender.getName().equals(name)) {
                bridge.appender.retain();
                return bridge.appender;
            }
        }
        return null;
    }

    /** What the former appender of this name recorded, when it is this ring that it held. Null when there was none. */
    synchronized Seen seenBy(final String name, final Target target) {
        for (final Bridge bridge : bridges) {
            if (bridge.appender.getName() != null && bridge.appender.getName().equals(name)
                && bridge.appender.held() == target) {
                return bridge.appender.seen();
            }
        }
        return null;
    }

    /**
     * As the former configuration had it: level and additivity of the loggers between the event and where the appender
     * was attached.
     */
    private boolean admits(final ILoggingEvent event, final Set<Logger> attached) {
        String name = event.getLoggerName();
        Level level = null;
        boolean isReached = false;
        boolean isCut = false;
        while (true) {
            level = level == null ? levels.get(name) : level;
            isReached |= !isCut && isAmong(name, attached);
            isCut |= alone.contains(name);
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

    /** Holds who begins to log, until Logback takes it away. */
    final class Gate extends TurboFilter {
        private final Thread resetting = Thread.currentThread();
        private final CountDownLatch open = new CountDownLatch(1);
        private final AtomicLong expired = new AtomicLong();
        /**
         * In System.nanoTime; null while the reset waits for those who were before the gate, which has a bound of its
         * own.
         */
        private volatile Long end;

        /**
         * From now on holds who begins to log; waits for those who are past it.
         *
         * @param except not waited for
         * @return those who are past it still
         */
        Set<Thread> close(final Set<Thread> except) {
            Handover.this.context.getTurboFilterList().add(0, this);
            try {
                final boolean isOneLogger = loggersWithAppenders() <= 1;
                return Callers.await(frames -> Callers.isBeforeAppender(frames, isOneLogger), except);
            } finally {
                end = System.nanoTime() + HELD_NANOS_MAX;
            }
        }

        void lift() {
            Handover.this.context.getTurboFilterList().remove(this);
            open.countDown();
        }

        @Override
        public FilterReply decide(final Marker marker, final Logger logger, final Level level, final String format,
            final Object[] arguments, final Throwable thrown) {
            if (Thread.currentThread() != resetting && open.getCount() > 0) {
                pass();
            }
            return FilterReply.NEUTRAL;
        }

        private void pass() {
            boolean isInterrupted = false;
            boolean isOpen = false;
            while (!isOpen && !isExpired()) {
                try {
                    isOpen = open.await(LOOK_NANOS, TimeUnit.NANOSECONDS);
                } catch (final InterruptedException e) {
                    isInterrupted = true;
                }
            }
            if (!isOpen && open.getCount() > 0 && expired.incrementAndGet() == 1) {
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
            build(this);
            open.countDown();
            if (expired.get() > 0) {
                report(
                    expired + " logging calls were not held until the appenders were back; their events may be lost");
            }
        }
    }

    /** Stands in the place of the appender that was taken away. */
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
