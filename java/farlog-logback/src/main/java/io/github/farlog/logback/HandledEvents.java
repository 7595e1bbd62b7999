package io.github.farlog.logback;

import ch.qos.logback.classic.spi.ILoggingEvent;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The last event of each thread that an appender or its successor of the same name and ring has handled: recorded,
 * dropped or passed to a fallback. While Logback is reconfigured, both may get the same event. Only these two share the
 * object: another appender with the same ring has its own.
 *
 * <p>Threads: any; no lock and no allocation outside a reconfiguration.
 */
final class HandledEvents {
    private static final long KEPT_MILLIS = 2000;

    /** Null outside a reconfiguration. */
    private volatile ConcurrentHashMap<Thread, ILoggingEvent> events;
    /** Guarded by this. */
    private int reconfigurations;

    synchronized void begin() {
        reconfigurations++;
        if (events == null) {
            events = new ConcurrentHashMap<>();
        }
    }

    /** Ends a reconfiguration, after a pause for slow threads that have found both appenders. */
    synchronized void end() {
        Thread.ofVirtual().name("farlog-forget-events").start(this::forgetLater);
    }

    private void forgetLater() {
        try {
            Thread.sleep(KEPT_MILLIS);
        } catch (final InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        synchronized (this) {
            reconfigurations--;
            events = reconfigurations > 0 ? events : null;
        }
    }

    /** Whether this event is the last one of this thread that was handled. */
    boolean contains(final ILoggingEvent event) {
        final ConcurrentHashMap<Thread, ILoggingEvent> current = events;
        return current != null && current.get(Thread.currentThread()) == event;
    }

    /** Marks the event as handled: it is in the ring, counted as dropped, or passed to a fallback. */
    void add(final ILoggingEvent event) {
        final ConcurrentHashMap<Thread, ILoggingEvent> current = events;
        if (current != null) {
            current.put(Thread.currentThread(), event);
        }
    }
}
