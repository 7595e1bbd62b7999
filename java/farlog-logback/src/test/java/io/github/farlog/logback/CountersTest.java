package io.github.farlog.logback;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.classic.spi.LoggingEvent;
import ch.qos.logback.core.encoder.EncoderBase;
import com.sun.management.ThreadMXBean;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.lang.management.ManagementFactory;
import java.util.Map;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.junit.jupiter.api.Test;
import org.slf4j.helpers.BasicMarkerFactory;

/** The numbers that an appender tells, and the bytes that it does not allocate. */
class CountersTest {
    /**
     * Ten times as many as are measured. Each method that turns out to be hot is compiled at the request of the thread
     * that calls it, and there the JVM looks up the classes in its signature by name: two strings for a class, and with
     * some hundred bytes a method that was all that a shorter warm-up let through.
     */
    private static final int WARM_UP_ROUNDS = 10;
    private static final int MEASURED = 20_000;

    @Test
    void shouldTellCountersByJmx() throws JMException {
        final MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        try (TestRing ring = new TestRing(1 << 20, 4096);
            TestContext test = TestContext.of(TestContext.xml(ring, ""))) {
            final ObjectName name = new ObjectName(
                "io.github.farlog:type=LogbackTarget,uri=" + ObjectName.quote(ring.uri));
            test.logger("x").info("12345");
            assertThrows(FarlogAppendException.class, () -> test.logger("x").info("x".repeat(5000)));
            final Map<String, Object> expected = Map.of("Uri", ring.uri, "Level", "VISIBLE", "AppendedCount", 1L,
                "AppendedBytes", 5L,
                "FailedCount", 1L, "RefusedCount", 1L, "UnknownCount", 0L, "DroppedCount", 0L, "LastFailure",
                "TOO_LARGE", "Pressure", 0);
            for (final Map.Entry<String, Object> attribute : expected.entrySet()) {
                assertEquals(attribute.getValue(), server.getAttribute(name, attribute.getKey()), attribute.getKey());
            }
            assertTrue((Long) server.getAttribute(name, "LagBytes") > 0);
            test.context.stop();
            assertFalse(server.isRegistered(name));
        }
    }

    @Test
    void shouldLeaveOutJmxWhenItIsNotWanted() throws JMException {
        System.setProperty("farlog.jmx", "false");
        try (TestRing ring = new TestRing(1 << 20); TestContext test = TestContext.of(TestContext.xml(ring, ""))) {
            test.logger("x").info("12345");
            final ObjectName name = new ObjectName(
                "io.github.farlog:type=LogbackTarget,uri=" + ObjectName.quote(ring.uri));
            assertFalse(ManagementFactory.getPlatformMBeanServer().isRegistered(name));
        } finally {
            System.clearProperty("farlog.jmx");
        }
    }

    @Test
    void shouldTellCountersByMicrometer() {
        final SimpleMeterRegistry registry = new SimpleMeterRegistry();
        try (TestRing ring = new TestRing(1 << 20); TestContext test = TestContext.of(TestContext.xml(ring, ""))) {
            new FarlogMeterBinder().bindTo(registry);
            test.logger("x").info("12345");
            assertEquals(1, registry.get("farlog.logback.appended").tag("uri", ring.uri).functionCounter().count());
            assertEquals(5,
                registry.get("farlog.logback.appended.bytes").tag("uri", ring.uri).functionCounter().count());
            assertTrue(registry.get("farlog.logback.lag").tag("uri", ring.uri).gauge().value() > 0);
        }
    }

    /** Gives the same bytes each time, so that what is allocated below it is the appender's. */
    public static final class SameBytesEncoder extends EncoderBase<ILoggingEvent> {
        private final byte[] bytes = new byte[192];

        @Override
        public byte[] headerBytes() {
            return null;
        }

        @Override
        public byte[] encode(final ILoggingEvent event) {
            return bytes;
        }

        @Override
        public byte[] footerBytes() {
            return null;
        }
    }

    /**
     * Everything but the encoder: filter chain, class by pair, marker and level, key from the MDC, append, counters.
     */
    @Test
    void shouldAllocateNothingOfItsOwnForAnEvent() {
        final ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        try (TestRing ring = new TestRing(64 << 20); TestContext test = TestContext.of(TestContext.xml(ring, """
            <classOf>pair:class=*</classOf><classOf>marker:ORDER=10</classOf><classOf>level:ERROR=2</classOf>
            <keyMdc>ClOrdID</keyMdc>
            """).replace("<encoder>", "<encoder class=\"" + SameBytesEncoder.class.getName() + "\">")
            .replaceAll("<pattern>.*</pattern>", ""))) {
            final Logger logger = test.logger("x");
            final FarlogAppender appender = (FarlogAppender) test.logger(Logger.ROOT_LOGGER_NAME).getAppender("FARLOG");
            final LoggingEvent event = new LoggingEvent("x", logger, ch.qos.logback.classic.Level.ERROR, "order", null,
                null);
            event.addMarker(new BasicMarkerFactory().getMarker("OTHER"));
            event.setMDCPropertyMap(Map.of("ClOrdID", "ORDER-\u20ac-123456"));
            for (int round = 0; round < WARM_UP_ROUNDS; round++) {
                append(appender, event);
                ring.drain();
            }
            final long id = Thread.currentThread().threadId();
            threads.getThreadAllocatedBytes(id);
            final long before = threads.getThreadAllocatedBytes(id);
            append(appender, event);
            final long allocated = threads.getThreadAllocatedBytes(id) - before;
            // The measurement itself takes some bytes; one byte an event would be twenty thousand.
            assertTrue(allocated < 1000, () -> allocated + " bytes for " + MEASURED + " events");
        }
    }

    private static void append(final FarlogAppender appender, final LoggingEvent event) {
        for (int i = 0; i < MEASURED; i++) {
            appender.doAppend(event);
        }
    }
}
