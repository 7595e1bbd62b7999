package io.github.farlog.logback;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** The threads that report a status to Logback: a status listener may log, and our appender ignores such events. */
final class StatusReports {
    /** The number of threads in REPORTING, so that the usual case costs one read. */
    private static final AtomicInteger COUNT = new AtomicInteger();
    private static final Set<Thread> REPORTING = ConcurrentHashMap.newKeySet();

    private StatusReports() {
    }

    /** Whether this thread is inside a report. Any thread, no lock, no allocation. */
    static boolean isReporting() {
        return COUNT.get() > 0 && REPORTING.contains(Thread.currentThread());
    }

    /** Runs a report; does nothing when this thread is inside a report already. */
    static void run(final Runnable report) {
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
