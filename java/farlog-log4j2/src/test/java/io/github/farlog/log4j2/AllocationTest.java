package io.github.farlog.log4j2;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import org.apache.logging.log4j.Logger;
import org.apache.logging.log4j.Marker;
import org.apache.logging.log4j.MarkerManager;
import org.apache.logging.log4j.ThreadContext;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.test.junit.LoggerContextSource;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** With Log4j's garbage-free settings (log4j2.component.properties) an event allocates nothing: layout, class, key and append included. */
@ExtendWith(RingExtension.class)
class AllocationTest {
    private static final int WARM_UP_COUNT = 30_000;
    private static final int COUNT = 10_000;
    /** Until the compiler has come to all of it, which takes long where other programs keep the processors busy. */
    private static final int ROUND_COUNT = 200;

    @Test
    @LoggerContextSource("classes.xml")
    void shouldAllocateNothingAfterWarmUp(final LoggerContext context, final TestRing ring) {
        final ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        final Logger logger = context.getLogger("orders");
        final Marker order = MarkerManager.getMarker("ORDER");
        ThreadContext.put("ClOrdID", "id-7");
        log(logger, order, WARM_UP_COUNT);
        ring.drain();
        long least = Long.MAX_VALUE;
        for (int round = 0; round < ROUND_COUNT && least > 0; round++) {
            final long before = threads.getCurrentThreadAllocatedBytes();
            log(logger, order, COUNT);
            least = Math.min(least, threads.getCurrentThreadAllocatedBytes() - before);
            assertEquals(COUNT, ring.drain().size());
        }
        ThreadContext.clearAll();
        // The compiler may change the code in one round; what an event allocates it allocates in every round.
        assertEquals(0, least, "bytes for " + COUNT + " events");
    }

    private static void log(final Logger logger, final Marker order, final int count) {
        for (int i = 0; i < count; i++) {
            logger.info(order, "buy {} of {}", "100", "farlog \uD83D\uDCB0 \u00E9");
        }
    }
}
