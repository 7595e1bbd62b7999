package io.github.farlog.log4j2;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.stream.IntStream;
import org.apache.logging.log4j.Logger;
import org.apache.logging.log4j.ThreadContext;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.async.AsyncLoggerContext;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Behind what Log4j puts between a logger and an appender: Routing, AsyncAppender, asynchronous loggers. */
class IndirectTest {
    private static final int COUNT = 5000;
    private final TestRing ring = TestRing.onTmpfs(8 << 20);
    private final TestRing other = TestRing.onTmpfs(8 << 20);
    private final List<String> expected = IntStream.range(0, COUNT).mapToObj(i -> "id" + i % 3 + " " + i).toList();

    @AfterEach
    void removeRings() {
        ring.close();
        other.close();
        ThreadContext.clearAll();
    }

    private void log(final Logger logger) {
        for (int i = 0; i < COUNT; i++) {
            ThreadContext.put("ClOrdID", "id" + i % 3);
            logger.info("id{} {}", i % 3, i);
        }
    }

    private void shouldHoldAllWithTheirKeys() {
        assertEquals(expected, ring.texts());
        assertTrue(ring.entries().stream().allMatch(entry -> entry.text().startsWith(entry.key() + " ")));
    }

    @Test
    void shouldRecordWhatAsyncLoggersHandOver() {
        try (LoggerContext context = Contexts.start(new AsyncLoggerContext("async"),
            Contexts.farlog(ring, "keyMdc='ClOrdID'", ""))) {
            log(context.getLogger("orders"));
            context.stop();
            shouldHoldAllWithTheirKeys();
        }
    }

    @Test
    void shouldRecordWhatMixedAsyncLoggersHandOver() {
        try (LoggerContext context = new LoggerContext("mixed")) {
            context.start(Contexts.configuration(context, Contexts.farlog(ring, "keyMdc='ClOrdID'", ""),
                "<AsyncLogger name='orders' level='trace' additivity='false'><AppenderRef ref='farlog'/></AsyncLogger>"
                    + "<Root level='off'/>"));
            log(context.getLogger("orders"));
            context.stop();
            shouldHoldAllWithTheirKeys();
        }
    }

    @Test
    void shouldRecordWhatTheAsyncAppenderHandsOver() {
        final String appenders = Contexts.farlog(ring, "keyMdc='ClOrdID'", "").replace("name='farlog'", "name='ring'")
            + "<Async name='farlog'><AppenderRef ref='ring'/></Async>";
        try (LoggerContext context = Contexts.of(appenders)) {
            log(context.getLogger("orders"));
            context.stop();
            shouldHoldAllWithTheirKeys();
        }
    }

    @Test
    void shouldRouteToRingsByReference() {
        final String appenders = Contexts.farlog(ring, "", "").replace("name='farlog'", "name='one'")
            + Contexts.farlog(other, "", "").replace("name='farlog'", "name='two'")
            + "<Routing name='farlog' ignoreExceptions='false'><Routes pattern='$${ctx:desk}'>"
            + "<Route key='a' ref='one'/><Route ref='two'/></Routes></Routing>";
        try (LoggerContext context = Contexts.of(appenders)) {
            ThreadContext.put("desk", "a");
            context.getLogger("orders").info("to one");
            ThreadContext.put("desk", "b");
            context.getLogger("orders").info("to two");
            assertEquals(List.of("to one"), ring.texts());
            assertEquals(List.of("to two"), other.texts());
        }
    }

    @Test
    void shouldRouteToARingThatTheEventNames() {
        final String appenders = "<Routing name='farlog' ignoreExceptions='false'><Routes pattern='$${ctx:ring}'>"
            + "<Route><Farlog name='${ctx:ring}' uri='mem:${ctx:ring}' level='visible'>"
            + "<PatternLayout pattern='%m'/></Farlog>"
            + "</Route></Routes></Routing>";
        try (LoggerContext context = Contexts.of(appenders)) {
            final Logger logger = context.getLogger("orders");
            ThreadContext.put("ring", ring.path.toString());
            logger.info("to one");
            ThreadContext.put("ring", other.path.toString());
            logger.info("to two");
            ThreadContext.put("ring", "/no/such/ring");
            assertThrows(RuntimeException.class, () -> logger.info("to none"));
            ThreadContext.put("ring", ring.path.toString());
            logger.info("to one again");
            assertEquals(List.of("to one", "to one again"), ring.texts());
            assertEquals(List.of("to two"), other.texts());
        }
    }
}
