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
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.slf4j.Marker;

/**
 * Carries events past a reconfiguration of Logback, which takes all appenders away, reads the configuration, and puts the new ones in
 * place one by one; what is logged meanwhile it drops.
 *
 * <ol>
 * <li>The reset stops our appender: a gate (a turbo filter) holds the threads that begin to log now; those already past it get
 * {@link #GRACE_NANOS} to reach the appender.
 * <li>Logback takes the appenders away, then the turbo filters: when it takes the gate, the former appender is put back behind a
 * {@link Bridge}, and the threads go on.
 * <li>The configuration ends: the bridges are taken away and the former appenders let their rings go. Their successors hold them by then.
 * A thread that meets both is heard once ({@link Seen}).
 * </ol>
 *
 * <p>Cold: nothing of this is there while Logback is not being reconfigured.
 */
final class Handover implements ConfigurationEventListener {
    static final long GRACE_NANOS = 100_000_000;
    private static final long HELD_MILLIS_MAX = 5000;
    /** A reset that no configuration follows: then the former appenders stop. */
    private static final long MILLIS_MAX = 10_000;
    private static final Map<LoggerContext, Handover> UNDER_WAY = new WeakHashMap<>();

    private final LoggerContext context;
    private final Map<String, Level> levels = new HashMap<>();
    private final Set<String> alone = new HashSet<>();
    /** Guarded by this. */
    private final List<Bridge> bridges = new ArrayList<>();
    /** Guarded by this. */
    private boolean isEnded;
    private volatile Gate gate;

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
            return UNDER_WAY.get(context);
        }
    }

    /**
     * Called on the thread that stops an appender. True: a reset does it, and the appender is to go on until {@link #end}. False: it is
     * to close now.
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
        final Handover handover;
        synchronized (UNDER_WAY) {
            handover = UNDER_WAY.computeIfAbsent(loggers, Handover::new);
        }
        return handover.add(appender, attached);
    }

    /** Whether this thread is in LoggerContext.reset, and not because the context is stopped for good. */
    private static boolean isReset() {
        return StackWalker.getInstance(StackWalker.Option.RETAIN_CLASS_REFERENCE).walk(frames -> {
            boolean isReset = false;
            for (final StackWalker.StackFrame frame : (Iterable<StackWalker.StackFrame>) frames::iterator) {
                if (LoggerContext.class.isAssignableFrom(frame.getDeclaringClass())) {
                    if (frame.getMethodName().equals("stop")) {
                        return false;
                    }
                    isReset |= frame.getMethodName().equals("reset");
                }
            }
            return isReset;
        });
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
            gate = new Gate();
            context.getTurboFilterList().add(0, gate);
            awaitGrace();
        }
    }

    /** Also on a thread that is interrupted. */
    private static void awaitGrace() {
        final long start = System.nanoTime();
        long left = GRACE_NANOS;
        while (left > 0) {
            LockSupport.parkNanos(left);
            Thread.yield();
            left = GRACE_NANOS - (System.nanoTime() - start);
        }
    }

    private synchronized void build(final Gate opened) {
        for (final Bridge bridge : bridges) {
            bridge.attached.forEach(logger -> logger.addAppender(bridge));
        }
        if (gate == opened) {
            gate = null;
        }
    }

    @Override
    public void listen(final ConfigurationEvent event) {
        switch (event.getEventType()) {
            case CONFIGURATION_ENDED_SUCCESSFULLY, CONFIGURATION_ENDED_WITH_XML_PARSING_ERRORS -> end();
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

    private void end() {
        synchronized (UNDER_WAY) {
            UNDER_WAY.remove(context, this);
        }
        synchronized (this) {
            if (isEnded) {
                return;
            }
            isEnded = true;
            context.removeConfigurationEventListener(this);
            for (final Bridge bridge : bridges) {
                bridge.attached.forEach(logger -> logger.detachAppender(bridge));
            }
        }
        awaitGrace(); // for who is in a bridge or between it and the successor
        for (final Bridge bridge : bridges) {
            bridge.appender.release();
        }
    }

    /** The former appender of this name, taken over for good: it is not released at the end. Null when there was none. */
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
            if (bridge.appender.getName() != null && bridge.appender.getName().equals(name) && bridge.appender.held() == target) {
                return bridge.appender.seen();
            }
        }
        return null;
    }

    /** As the former configuration had it: level and additivity of the loggers between the event and where the appender was attached. */
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
    private final class Gate extends TurboFilter {
        private final Thread resetting = Thread.currentThread();
        private final CountDownLatch open = new CountDownLatch(1);

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
            final long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(HELD_MILLIS_MAX);
            while (true) {
                try {
                    open.await(end - System.nanoTime(), TimeUnit.NANOSECONDS);
                    break;
                } catch (final InterruptedException e) {
                    isInterrupted = true;
                }
            }
            if (isInterrupted) {
                Thread.currentThread().interrupt();
            }
        }

        @Override
        public void stop() {
            build(this);
            open.countDown();
        }
    }

    /** Stands in the place of the appender that was taken away. */
    private final class Bridge extends UnsynchronizedAppenderBase<ILoggingEvent> {
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

        /** Logback resets once more before it was done, to fall back to the former configuration; or it stops for good. */
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
