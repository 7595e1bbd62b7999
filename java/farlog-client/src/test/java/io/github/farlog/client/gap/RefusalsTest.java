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

class RefusalsTest {
    @Test
    void shouldTellTheFirstAtOnceAndCountTheOthers() {
        final Refusals refusals = new Refusals();
        assertFalse(refusals.isTold());
        assertEquals(0, refusals.add());
        assertTrue(refusals.isTold());
        assertEquals(-1, refusals.add());
        assertEquals(-1, refusals.add());
        assertEquals(2, refusals.end());
        assertEquals(-1, refusals.end());
        assertEquals("; 2 more since the last such line", Refusals.more(2));
        assertEquals("", Refusals.more(0));
    }

    /** Whatever the threads and the pace: each event is either told or in a count that is told. */
    @Test
    void shouldCountEveryEventOnce() throws Exception {
        final Refusals refusals = new Refusals();
        final int threadCount = 4;
        final long end = System.nanoTime() + 1_200_000_000L;
        long added = 0;
        long told = 0;
        int lines = 0;
        try (ExecutorService executor = Executors.newFixedThreadPool(threadCount)) {
            final List<Future<long[]>> all = new ArrayList<>();
            for (int t = 0; t < threadCount; t++) {
                all.add(executor.submit(() -> addUntil(refusals, end)));
            }
            for (final Future<long[]> each : all) {
                added += each.get()[0];
                told += each.get()[1];
                lines += (int) each.get()[2];
            }
        }
        assertEquals(added, told + refusals.end());
        assertEquals(2, lines);
    }

    private static long[] addUntil(final Refusals refusals, final long end) {
        final long[] counts = new long[3];
        while (System.nanoTime() - end < 0) {
            counts[0]++;
            final long more = refusals.add();
            counts[1] += more >= 0 ? more + 1 : 0;
            counts[2] += more >= 0 ? 1 : 0;
        }
        return counts;
    }
}
