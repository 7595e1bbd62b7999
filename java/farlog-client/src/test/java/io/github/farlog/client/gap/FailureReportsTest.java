package io.github.farlog.client.gap;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
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

    /** Whatever the threads and the pace: each event is either told or in a count that is told. */
    @Test
    void shouldCountEveryEventOnce() throws Exception {
        final FailureReports failures = new FailureReports();
        final int threadCount = 4;
        final long end = System.nanoTime() + 1_200_000_000L;
        long added = 0;
        long told = 0;
        int lines = 0;
        try (ExecutorService executor = Executors.newFixedThreadPool(threadCount)) {
            final List<Future<long[]>> all = new ArrayList<>();
            for (int t = 0; t < threadCount; t++) {
                all.add(executor.submit(() -> addUntil(failures, end)));
            }
            for (final Future<long[]> each : all) {
                added += each.get()[0];
                told += each.get()[1];
                lines += (int) each.get()[2];
            }
        }
        assertEquals(added, told + failures.recordSuccess());
        assertEquals(2, lines);
    }

    private static long[] addUntil(final FailureReports failures, final long end) {
        final long[] counts = new long[3];
        while (System.nanoTime() - end < 0) {
            counts[0]++;
            final long more = failures.recordFailure();
            counts[1] += more >= 0 ? more + 1 : 0;
            counts[2] += more >= 0 ? 1 : 0;
        }
        return counts;
    }
}
