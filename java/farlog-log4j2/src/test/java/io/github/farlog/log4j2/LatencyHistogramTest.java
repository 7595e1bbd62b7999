package io.github.farlog.log4j2;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class LatencyHistogramTest {
    @Test
    void shouldCountEveryLatencyOfTenThreads() throws InterruptedException {
        final LatencyHistogram histogram = new LatencyHistogram();
        final int each = 100_000;
        final List<Thread> threads = new ArrayList<>();
        for (int t = 0; t < 10; t++) {
            threads.add(Thread.ofPlatform().start(() -> {
                for (int i = 0; i < each; i++) {
                    histogram.record(i);
                }
            }));
        }
        for (final Thread thread : threads) {
            thread.join();
        }
        assertEquals(10L * each, histogram.count());
        for (final double quantile : new double[] {0.01, 0.5, 0.99}) {
            final double exact = quantile * each;
            final long found = histogram.quantile(quantile);
            assertTrue(found >= exact - 1 && found <= exact * 1.063, quantile + ": " + found);
        }
        assertEquals(0, new LatencyHistogram().quantile(0.5));
    }
}
