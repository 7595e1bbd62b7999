package io.github.farlog.logback;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** Who is telling Logback's status now: a listener to our status may log, and what it logs then is not for us. */
final class Reports {
    /** Counted, so that nobody asks while nothing is told. */
    private static final AtomicInteger COUNT = new AtomicInteger();
    private static final Set<Thread> REPORTING = ConcurrentHashMap.newKeySet();

    private Reports() {
    }

    /** Whether this thread is inside a report. Any thread, no lock, no allocation. */
    static boolean isReporting() {
        return COUNT.get() > 0 && REPORTING.contains(Thread.currentThread());
    }

    /** Runs what tells a status; nothing when this thread is telling one. */
    static void whileReporting(final Runnable report) {
        if (!REPORTING.add(Thread.currentThread())) {
            return;
        }
        COUNT.incrementAndGet();
        try {
            report.run();
        } finally {
            COUNT.decrementAndGet();
            REPORTING.remove(Thread.currentThread());
        }
    }
}
