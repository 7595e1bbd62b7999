package io.github.farlog.log4j2;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import org.apache.logging.log4j.Logger;
import org.apache.logging.log4j.Marker;
import org.apache.logging.log4j.MarkerManager;
import org.apache.logging.log4j.ThreadContext;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.test.junit.LoggerContextSource;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * With Log4j's garbage-free settings (log4j2.component.properties) an event allocates nothing: layout, class, key and
 * append included.
 */
@ExtendWith(RingExtension.class)
class AllocationTest {
    private static final int WARM_UP_COUNT = 30_000;
    private static final int COUNT = 10_000;
    /** Until the compiler has come to all of it, which takes long where other programs keep the processors busy. */
    private static final int ROUND_COUNT = 200;
    /** So many rounds on end are to be free of it. */
    private static final int LAST_COUNT = 3;

    @Test
    @LoggerContextSource("classes.xml")
    void shouldAllocateNothingAfterWarmUp(final LoggerContext context, final TestRing ring) {
        final ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        final Logger logger = context.getLogger("orders");
        final Marker order = MarkerManager.getMarker("ORDER");
        ThreadContext.put("ClOrdID", "id-7");
        log(logger, order, WARM_UP_COUNT);
        ring.drain();
        final List<Long> bytes = new ArrayList<>();
        for (int round = 0; round < ROUND_COUNT && !isSettled(bytes); round++) {
            final long before = threads.getCurrentThreadAllocatedBytes();
            log(logger, order, COUNT);
            bytes.add(threads.getCurrentThreadAllocatedBytes() - before);
            assertEquals(COUNT, ring.drain().size());
        }
        ThreadContext.clearAll();
        assertTrue(isSettled(bytes), () -> "bytes for " + COUNT + " events, round by round: " + bytes);
    }

    /** What some events allocate, and not only those before the compiler was done, shows in one of the last rounds. */
    private static boolean isSettled(final List<Long> bytes) {
        return bytes.size() >= LAST_COUNT
            && bytes.subList(bytes.size() - LAST_COUNT, bytes.size()).stream().allMatch(each -> each == 0);
    }

    private static void log(final Logger logger, final Marker order, final int count) {
        for (int i = 0; i < count; i++) {
            logger.info(order, "buy {} of {}", "100", "farlog \uD83D\uDCB0 \u00E9");
        }
    }
}
