package io.github.farlog.logback;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.classic.spi.LoggingEvent;
import ch.qos.logback.core.status.StatusListener;
import io.github.farlog.client.FarlogException;
import io.github.farlog.client.Result;
import io.github.farlog.client.Ring;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Objects;
import org.junit.jupiter.api.Test;
import org.slf4j.Marker;
import org.slf4j.helpers.BasicMarkerFactory;

/** An event, its bytes, its class and its key, from a logging call into the ring. */
class FarlogAppenderTest {
    private final BasicMarkerFactory markers = new BasicMarkerFactory();

    @Test
    void shouldRunWithTheVersionOfLogbackThatTheBuildNames() {
        final String version = System.getProperty("farlog.logback.version");
        final String source = Logger.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        assertTrue(version == null || source.contains(version), source);
    }

    @Test
    void shouldAppendWhatThePatternMakes() {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = TestContext.of("""
            <configuration>
              <appender name="FARLOG" class="io.github.farlog.logback.FarlogAppender">
                <uri>%s</uri>
                <level>Visible</level>
                <encoder><pattern>%%level %%logger{0} %%msg%%n%%ex{short}</pattern></encoder>
              </appender>
              <root level="debug"><appender-ref ref="FARLOG"/></root>
            </configuration>
            """.formatted(ring.uri))) {
            test.logger("a.b.Orders").info("order {} of {}", 7, "ACME");
            test.logger("a.b.Orders").error("refused", new IllegalStateException("no credit"));
            final List<String> texts = ring.texts();
            assertEquals("INFO Orders order 7 of ACME" + System.lineSeparator(), texts.get(0));
            assertTrue(texts.get(1).startsWith("ERROR Orders refused" + System.lineSeparator()
                + "java.lang.IllegalStateException: no credit"), texts.get(1));
            assertEquals(2, texts.size());
        }
    }

    @Test
    void shouldHonourAnEncoderThatIsNoPattern() {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = TestContext.of("""
            <configuration>
              <appender name="FARLOG" class="io.github.farlog.logback.FarlogAppender">
                <uri>%s</uri>
                <level>visible</level>
                <encoder class="ch.qos.logback.classic.encoder.JsonEncoder"/>
              </appender>
              <root level="info"><appender-ref ref="FARLOG"/></root>
            </configuration>
            """.formatted(ring.uri))) {
            test.logger("x").info("fill {}", 5);
            final String text = ring.texts().get(0);
            assertTrue(
                text.startsWith("{") && text.contains("\"message\":\"fill {}\"") && text.contains("\"level\":\"INFO\""),
                text);
        }
    }

    @Test
    void shouldGiveClassByPairMarkerAndLevel() {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = TestContext.of(TestContext.xml(ring, """
            <classId>1</classId>
            <classOf>marker:ORDER=10</classOf>
            <classOf>marker:FILL=11</classOf>
            <classOf>level:ERROR=2</classOf>
            <classOf>pair:event:cancel=12</classOf>
            <classOf>pair:class=*</classOf>
            """))) {
            final Logger logger = test.logger("x");
            final Marker outer = markers.getMarker("OUTER");
            outer.add(markers.getMarker("FILL"));
            logger.info("plain");
            logger.info(markers.getMarker("ORDER"), "marker");
            logger.info(outer, "nested");
            logger.error("level");
            logger.error(markers.getMarker("ORDER"), "marker before level");
            logger.atInfo().addMarker(markers.getMarker("ORDER")).addKeyValue("event", "cancel")
                .log("pair before marker");
            logger.atInfo().addKeyValue("class", 300).log("number");
            logger.atInfo().addKeyValue("class", "65535").log("digits");
            logger.atInfo().addKeyValue("class", 65536).log("no class");
            assertEquals(List.of(1, 10, 11, 2, 10, 12, 300, 65535, 1),
                ring.records().stream().map(TestRing.Record::classId).toList());
        }
    }

    @Test
    void shouldGiveKeyFromMdcThenFromPair() {
        try (TestRing ring = new TestRing(1 << 20);
            TestContext test = TestContext
                .of(TestContext.xml(ring, "<keyMdc>ClOrdID</keyMdc><keyPair>order</keyPair>"))) {
            final Logger logger = test.logger("x");
            logger.info("none");
            test.mdc.put("ClOrdID", "A-17");
            logger.info("mdc");
            logger.atInfo().addKeyValue("order", 5).log("mdc before pair");
            test.mdc.put("ClOrdID", "Zürich-\u20ac-\ud83d\ude80-\ud800".repeat(40));
            logger.info("wide");
            test.mdc.remove("ClOrdID");
            logger.atInfo().addKeyValue("order", 5).log("pair");
            assertEquals(List.of("", "A-17", "A-17", "Zürich-\u20ac-\ud83d\ude80-?".repeat(40), "5"),
                ring.records().stream().map(TestRing.Record::key).toList());
        }
    }

    @Test
    void shouldTakeMessageOfOneMebibyteAndWideCharacters() {
        try (TestRing ring = new TestRing(16 << 20, 3 << 20);
            TestContext test = TestContext.of(TestContext.xml(ring, ""))) {
            final String big = "0123456789abcdef".repeat(1 << 16);
            final String wide = "\ud83d\ude80 \u65e5\u672c\u8a9e \u0439 \u00e9 \ud840\udc00";
            test.logger("x").info(big);
            test.logger("x").info(wide);
            test.logger("x").info("");
            assertEquals(List.of(big, wide, ""), ring.texts());
        }
    }

    @Test
    void shouldRefuseRecordLongerThanTheRingTakes() {
        try (TestRing ring = new TestRing(1 << 20, 4096);
            TestContext test = TestContext.of(TestContext.xml(ring, ""))) {
            final FarlogAppendException thrown = assertThrows(FarlogAppendException.class,
                () -> test.logger("x").info("x".repeat(5000)));
            assertEquals(Result.TOO_LARGE, thrown.result());
            test.logger("x").info("next");
            assertEquals(List.of("next"), ring.texts());
        }
    }

    @Test
    void shouldLetTheRingGoWhenTheContextIsClosed() throws FarlogException {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = TestContext.of(TestContext.xml(ring, ""))) {
            final Logger logger = test.logger("x");
            final FarlogAppender appender = (FarlogAppender) test.logger(Logger.ROOT_LOGGER_NAME).getAppender("FARLOG");
            logger.info("before");
            assertTrue(Ring.inspect(ring.uri).writerHeld());
            test.context.stop();
            assertFalse(Ring.inspect(ring.uri).writerHeld());
            logger.info("after: Logback has taken the appender away");
            final ILoggingEvent late = new LoggingEvent("x", logger, ch.qos.logback.classic.Level.INFO, "late", null,
                null);
            assertThrows(FarlogAppendException.class, () -> appender.doAppend(late));
            assertEquals(List.of("before"), ring.texts());
        }
    }

    @Test
    void shouldKeepWhatAnArgumentLogsWhileItIsFormatted() {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = TestContext.of(TestContext.xml(ring, ""))) {
            final Logger logger = test.logger("x");
            final Object talkative = new Object() {
                @Override
                public String toString() {
                    logger.info("inner");
                    return "argument";
                }
            };
            logger.info("outer {}", talkative);
            assertEquals(List.of("inner", "outer argument"), ring.texts());
        }
    }

    @Test
    void shouldNotLogIntoItselfWhenAStatusListenerLogs() {
        try (TestRing ring = new TestRing(1 << 20, 4096);
            TestContext test = TestContext.of(TestContext.xml(ring, "<policy>dropAndGap</policy>"))) {
            final Logger logger = test.logger("x");
            final StatusListener listener = status -> {
                if (status.getLevel() >= ch.qos.logback.core.status.Status.INFO) {
                    logger.error("status: {}", "x".repeat(6000));
                }
            };
            test.context.getStatusManager().add(listener);
            logger.info("x".repeat(5000));
            test.context.getStatusManager().remove(listener);
            logger.info("next");
            final List<String> texts = ring.texts();
            assertEquals(2, texts.size(), texts::toString);
            assertTrue(texts.get(0).startsWith("farlog.gap dropped=1 unknown=0 from="), texts.get(0));
            assertEquals("next", texts.get(1));
        }
    }

    @Test
    void shouldDenyWhatAFilterDenies() {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = TestContext.of(TestContext.xml(ring, """
            <filter class="ch.qos.logback.classic.filter.ThresholdFilter"><level>WARN</level></filter>"""))) {
            test.logger("x").info("denied");
            test.logger("x").warn("taken");
            assertEquals(List.of("taken"), ring.texts());
        }
    }

    @Test
    void shouldRunTheExampleOfTheReadme() throws IOException {
        final String readme = Files.readString(Path.of("README.md"));
        final int start = readme.indexOf("<configuration>");
        final String xml = readme.substring(start,
            readme.indexOf("</configuration>", start) + "</configuration>".length());
        try (TestRing ring = new TestRing(1 << 20)) {
            final String here = xml.replace("mem:/dev/shm/orders.ring", ring.uri);
            assertFalse(Objects.equals(here, xml));
            try (TestContext test = TestContext.of(here)) {
                test.mdc.put("ClOrdID", "17");
                test.logger("x").info(markers.getMarker("ORDER"), "buy 100 ACME");
                final TestRing.Record record = ring.records().get(0);
                assertEquals(10, record.classId());
                assertEquals("17", record.key());
                assertTrue(record.text().contains("buy 100 ACME"), record.text());
                assertEquals(List.of(), test.errors());
            }
        }
    }

}
