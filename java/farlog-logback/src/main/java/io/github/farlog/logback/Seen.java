package io.github.farlog.logback;

import ch.qos.logback.classic.spi.ILoggingEvent;
import java.util.concurrent.ConcurrentHashMap;

/**
 * What an appender and its successor of the same name and ring are done with, each thread's last event, recorded,
 * dropped or given to another: while Logback is reconfigured a thread may meet both with one event. Shared by these two
 * and by nobody else: another appender of the same ring has its own record of it.
 *
 * <p>Any thread; no lock and no allocation when nothing is being handed over.
 */
final class Seen {
    private static final long KEPT_MILLIS = 2000;

    /** Null when nothing is being handed over. */
    private volatile ConcurrentHashMap<Thread, ILoggingEvent> events;
    /** Guarded by this. */
    private int handovers;

    synchronized void begin() {
        handovers++;
        if (events == null) {
            events = new ConcurrentHashMap<>();
        }
    }

    /** The handover is over; a thread may have met both appenders and be slow. */
    synchronized void end() {
        Thread.ofVirtual().name("farlog-forget").start(this::forgetLater);
    }

    private void forgetLater() {
        try {
            Thread.sleep(KEPT_MILLIS);
        } catch (final InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        synchronized (this) {
            handovers--;
            events = handovers > 0 ? events : null;
        }
    }

    /** Whether the last event that this thread is done with is this very one. */
    boolean has(final ILoggingEvent event) {
        final ConcurrentHashMap<Thread, ILoggingEvent> current = events;
        return current != null && current.get(Thread.currentThread()) == event;
    }

    /** The event is in the ring, or told of as dropped, or with who takes it over. */
    void put(final ILoggingEvent event) {
        final ConcurrentHashMap<Thread, ILoggingEvent> current = events;
        if (current != null) {
            current.put(Thread.currentThread(), event);
        }
    }
}
