package io.github.farlog.client.gap;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class FailureReportsTest {
    @Test
    void shouldTellTheFirstAtOnceAndCountTheOthers() {
        final FailureReports failures = new FailureReports();
        assertFalse(failures.hasReported());
        assertEquals(0, failures.recordFailure());
        assertTrue(failures.hasReported());
        assertEquals(-1, failures.recordFailure());
        assertEquals(-1, failures.recordFailure());
        assertEquals(2, failures.recordSuccess());
        assertEquals(-1, failures.recordSuccess());
        assertEquals("; 2 more since the last such line", FailureReports.more(2));
        assertEquals("", FailureReports.more(0));
    }

    /** Whatever the threads and the pace: each event is either told or in a count that is told, a second apart. */
    @Test
    void shouldCountEveryEventOnce() throws Exception {
        final FailureReports failures = new FailureReports();
        final int threadCount = 4;
        final AtomicInteger lines = new AtomicInteger();
        final long start = System.nanoTime();
        long added = 0;
        long told = 0;
        try (ExecutorService executor = Executors.newFixedThreadPool(threadCount)) {
            final List<Future<long[]>> all = new ArrayList<>();
            for (int t = 0; t < threadCount; t++) {
                all.add(executor.submit(() -> addUntilSecondLine(failures, lines)));
            }
            for (final Future<long[]> each : all) {
                added += each.get()[0];
                told += each.get()[1];
            }
        }
        final long seconds = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - start);
        assertEquals(added, told + failures.recordSuccess());
        assertTrue(seconds >= 1 && lines.get() <= seconds + 1, lines + " lines in " + seconds + " s");
    }

    private static long[] addUntilSecondLine(final FailureReports failures, final AtomicInteger lines) {
        final long[] counts = new long[2];
        while (lines.get() < 2) {
            counts[0]++;
            final long more = failures.recordFailure();
            if (more >= 0) {
                counts[1] += more + 1;
                lines.incrementAndGet();
            }
        }
        return counts;
    }
}
