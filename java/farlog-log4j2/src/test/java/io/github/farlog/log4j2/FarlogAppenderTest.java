package io.github.farlog.log4j2;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.farlog.client.Result;
import io.github.farlog.log4j2.TestRing.Entry;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadFactory;
import javax.management.ObjectName;
import org.apache.logging.log4j.Logger;
import org.apache.logging.log4j.Marker;
import org.apache.logging.log4j.MarkerManager;
import org.apache.logging.log4j.ThreadContext;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.impl.Log4jLogEvent;
import org.apache.logging.log4j.core.test.junit.LoggerContextSource;
import org.apache.logging.log4j.message.Message;
import org.apache.logging.log4j.message.SimpleMessage;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * The appender in contexts that Log4j's test kit starts; what it wrote is read back from the ring, while the context
 * runs.
 */
@ExtendWith(RingExtension.class)
class FarlogAppenderTest {
    private static final int MIB = 1 << 20;

    @Test
    @LoggerContextSource("three-lines.xml")
    void shouldRecordBeforeTheCallReturns(final LoggerContext context, final TestRing ring) {
        final Logger logger = context.getLogger("orders");
        for (int i = 0; i < 10; i++) {
            logger.info("buy {}", i);
            assertEquals(i + 1, ring.entries().size());
        }
        assertEquals("buy 9", ring.texts().getLast());
    }

    @Test
    @LoggerContextSource("three-lines.yaml")
    void shouldReadYaml(final LoggerContext context, final TestRing ring) {
        shouldBeConfiguredAlike(context, ring);
    }

    @Test
    @LoggerContextSource("three-lines.properties")
    void shouldReadProperties(final LoggerContext context, final TestRing ring) {
        shouldBeConfiguredAlike(context, ring);
    }

    @Test
    @LoggerContextSource("classes.xml")
    void shouldReadXml(final LoggerContext context, final TestRing ring) {
        shouldBeConfiguredAlike(context, ring);
    }

    private static void shouldBeConfiguredAlike(final LoggerContext context, final TestRing ring) {
        final Logger logger = context.getLogger("orders");
        final Marker order = MarkerManager.getMarker("ORDER");
        final Marker cancel = MarkerManager.getMarker("CANCEL").setParents(order);
        ThreadContext.put("ClOrdID", "id-7");
        logger.info(order, "a");
        ThreadContext.remove("ClOrdID");
        logger.info(cancel, "b");
        logger.error(order, "c");
        logger.error("d");
        logger.fatal("e");
        logger.info("f");
        final List<Entry> entries = ring.entries();
        assertEquals(List.of("orders a", "orders b", "orders c", "orders d", "orders e", "orders f"), ring.texts());
        assertEquals(List.of(1, 1, 1, 9, 9, 3), entries.stream().map(Entry::classId).toList());
        assertEquals(List.of("id-7", "", "", "", "", ""), entries.stream().map(Entry::key).toList());
    }

    @Test
    @LoggerContextSource("three-lines.xml")
    void shouldKeepWideCharacters(final LoggerContext context, final TestRing ring) {
        final StringBuilder every = new StringBuilder();
        for (int point = 0x20; point < 0x11000; point += 37) {
            if (!Character.isSurrogate((char) point) || point > 0xFFFF) {
                every.appendCodePoint(point);
            }
        }
        final List<String> texts = List.of("Käse 買い \uD83D\uDCB0", "x".repeat(1023) + "\uD83D\uDCB0",
            "\uD83D\uDCB0".repeat(5000),
            every.toString());
        texts.forEach(context.getLogger("orders")::info);
        assertEquals(texts, ring.texts());
    }

    @Test
    @LoggerContextSource("classes.xml")
    void shouldEncodeKeysAsUtf8(final LoggerContext context, final TestRing ring) {
        final List<String> keys = List.of("é", "買い", "\uD83D\uDCB0x", "k".repeat(65535));
        for (final String key : keys) {
            ThreadContext.put("ClOrdID", key);
            context.getLogger("orders").info("x");
        }
        ThreadContext.put("ClOrdID", "lone \uD83D surrogate");
        context.getLogger("orders").info("x");
        ThreadContext.put("ClOrdID", "k".repeat(65536));
        final var refused = assertThrows(FarlogLoggingException.class,
            () -> context.getLogger("orders").info("too long a key"));
        ThreadContext.clearAll();
        assertEquals(Result.INVALID, refused.result());
        assertTrue(refused.getMessage().endsWith("thread context value \"ClOrdID\", takes more than 65535 bytes"),
            refused.getMessage());
        final List<String> written = ring.entries().stream().map(Entry::key).toList();
        assertEquals(keys, written.subList(0, keys.size()));
        assertEquals("lone ? surrogate", written.getLast());
    }

    @Test
    @LoggerContextSource("three-lines.xml")
    void shouldTakeOneMebibyteAndRefuseWhatIsLongerThanARecord(final LoggerContext context, final TestRing ring) {
        final Logger logger = context.getLogger("orders");
        final String wide = "\u00E9".repeat(MIB / 2);
        logger.info("y".repeat(MIB));
        logger.info(wide);
        final var refused = assertThrows(FarlogLoggingException.class, () -> logger.info("z".repeat(5 * MIB)));
        logger.info("after");
        assertEquals(Result.TOO_LARGE, refused.result());
        assertTrue(refused.getMessage().endsWith(" bytes that a record of this ring may have"), refused.getMessage());
        assertEquals(List.of("y".repeat(MIB), wide, "after"), ring.texts());
    }

    @Test
    @LoggerContextSource("three-lines.xml")
    void shouldKeepTheOrderOfTenThreads(final LoggerContext context, final TestRing ring) throws Exception {
        shouldKeepOrder(context.getLogger("orders"), ring, Thread.ofPlatform().factory(), 10, 2000);
    }

    @Test
    @LoggerContextSource("three-lines.xml")
    void shouldKeepTheOrderOfVirtualThreads(final LoggerContext context, final TestRing ring) throws Exception {
        shouldKeepOrder(context.getLogger("orders"), ring, Thread.ofVirtual().factory(), 500, 40);
    }

    private static void shouldKeepOrder(final Logger logger, final TestRing ring, final ThreadFactory factory,
        final int threadCount,
        final int eventCount) throws Exception {
        try (ExecutorService executor = Executors.newThreadPerTaskExecutor(factory)) {
            final List<Future<?>> done = new ArrayList<>();
            for (int t = 0; t < threadCount; t++) {
                final int thread = t;
                done.add(executor.submit(() -> {
                    for (int i = 0; i < eventCount; i++) {
                        logger.info("{} {}", thread, i);
                    }
                }));
            }
            for (final Future<?> each : done) {
                each.get();
            }
        }
        final int[] next = new int[threadCount];
        for (final String text : ring.texts()) {
            final int blank = text.indexOf(' ');
            final int thread = Integer.parseInt(text.substring(0, blank));
            assertEquals(next[thread]++, Integer.parseInt(text.substring(blank + 1)), "order of thread " + thread);
        }
        for (final int count : next) {
            assertEquals(eventCount, count);
        }
    }

    @Test
    @LoggerContextSource("three-lines.xml")
    void shouldRefuseAnEventLoggedWhileItIsLogging(final LoggerContext context, final TestRing ring) {
        final FarlogAppender appender = context.getConfiguration().getAppender("farlog");
        final Logger logger = context.getLogger("orders");
        // The layout formats this message inside the appender. Log4j drops events that its own loggers get meanwhile;
        // the appender rejects an event that reaches it directly.
        final Message chatty = new SimpleMessage("outer") {
            private static final long serialVersionUID = 1L;

            @Override
            public void formatTo(final StringBuilder buffer) {
                logger.info("inner");
                final var refused = assertThrows(FarlogLoggingException.class, () -> appender.append(event("inner")));
                buffer.append("refused ").append(refused.result());
            }
        };
        logger.info(chatty);
        logger.info("after");
        assertEquals(List.of("refused INVALID", "after"), ring.texts());
    }

    @Test
    @LoggerContextSource("three-lines.xml")
    void shouldEndQuietlyWithItsContext(final LoggerContext context, final TestRing ring) {
        final Logger logger = context.getLogger("orders");
        logger.info("before");
        final FarlogAppender appender = context.getConfiguration().getAppender("farlog");
        context.stop();
        logger.info("after: Log4j has no appender for it");
        final var closed = assertThrows(FarlogLoggingException.class,
            () -> appender.append(event("late")));
        assertEquals(Result.CLOSED, closed.result());
        appender.stop();
        assertEquals(List.of("before"), ring.texts());
        assertFalse(ManagementFactory.getPlatformMBeanServer().isRegistered(objectName(ring)));
    }

    @Test
    @LoggerContextSource("three-lines.xml")
    void shouldCountOverJmxAndMicrometer(final LoggerContext context, final TestRing ring) throws Exception {
        final var registry = new io.micrometer.core.instrument.simple.SimpleMeterRegistry();
        try (FarlogMetrics metrics = new FarlogMetrics()) {
            metrics.bindTo(registry);
            for (int i = 0; i < 100; i++) {
                context.getLogger("orders").info("0123456789");
            }
            final var server = ManagementFactory.getPlatformMBeanServer();
            assertEquals(100L, server.getAttribute(objectName(ring), "Appended"));
            assertEquals(1000L, server.getAttribute(objectName(ring), "Bytes"));
            assertEquals("VISIBLE", server.getAttribute(objectName(ring), "LastLevel"));
            assertTrue((Long) server.getAttribute(objectName(ring), "LatencyP99Nanos") > 0);
            assertEquals(100, registry.get("farlog.log4j2.records").tag("ring", ring.uri).functionCounter().count());
            assertEquals(1000, registry.get("farlog.log4j2.payload").tag("ring", ring.uri).functionCounter().count());
            assertEquals(2, registry.get("farlog.log4j2.level").tag("ring", ring.uri).gauge().value());
            assertTrue(registry.get("farlog.log4j2.append.p99").tag("ring", ring.uri).gauge().value() > 0);
        }
    }

    @Test
    void shouldLeaveOutJmxWhenItIsNotWanted() throws Exception {
        final var server = ManagementFactory.getPlatformMBeanServer();
        System.setProperty("farlog.jmx", "false");
        try (TestRing ring = TestRing.absent()) {
            final RingStats stats = RingStats.of(ring.uri);
            stats.opened(() -> null);
            assertFalse(server.isRegistered(objectName(ring)));
            System.clearProperty("farlog.jmx");
            stats.opened(() -> null);
            assertTrue(server.isRegistered(objectName(ring)));
            stats.closed();
            assertFalse(server.isRegistered(objectName(ring)));
        } finally {
            System.clearProperty("farlog.jmx");
        }
    }

    private static Log4jLogEvent event(final String text) {
        return Log4jLogEvent.newBuilder().setMessage(new SimpleMessage(text)).build();
    }

    private static ObjectName objectName(final TestRing ring) {
        try {
            return new ObjectName("io.github.farlog:type=Log4j2,ring=" + ObjectName.quote(ring.uri));
        } catch (final javax.management.MalformedObjectNameException e) {
            throw new IllegalStateException(e);
        }
    }
}
