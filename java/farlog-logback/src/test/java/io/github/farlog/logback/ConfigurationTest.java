package io.github.farlog.logback;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.farlog.client.FarlogException;
import io.github.farlog.client.Ring;
import io.github.farlog.client.SharedWriter;
import io.github.farlog.client.WriterOptions;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What is wrong in a configuration is said and thrown when it is read, not at the first event. */
class ConfigurationTest {
    @ParameterizedTest
    @CsvSource(delimiter = '|', value = {
        "<policy>sometimes</policy>|policy \"sometimes\": expected failStop",
        "<policy>block</policy>|policy \"block\": expected failStop",
        "<policy>block(5)</policy>|policy \"block(5)\": expected failStop",
        "<policy>failover</policy>|expected an appender-ref",
        "<polcy>failStop</polcy>|unknown property [polcy]",
        "<level>durable</level>|level \"durable\": expected posted",
        "<level>stored</level>|visible",
        "<uri>mem:/dev/shm/farlog-no-such.ring</uri>"
            + "|make a ring there: farlog ring format 'mem:/dev/shm/farlog-no-such.ring' --size",
        "<uri>orders.ring</uri>|orders.ring",
        "<classId>70000</classId>|classId \"70000\": expected a class from 0 to 65535",
        "<classOf>marker:A=x</classOf>|expected a class from 0 to 65535",
        "<classOf>colour:A=1</classOf>|expected marker:NAME=CLASS",
        "<classOf>pair:A=1</classOf>|expected marker:NAME=CLASS",
        "<classOf>level:LOUD=1</classOf>|no level LOUD",
        "<deadline>fast</deadline>|deadline \"fast\": expected a time",
        // The test's configuration has a level.
        "<uri>route:farlog://desk7/all</uri>"
            + "|names a route, whose legs have levels and grants of their own: expected no level",
        "<spillDir>/tmp/x</spillDir>|spillDir \"/tmp/x\" is for a route: expected uri route:farlog://NAME",
        "<epoch>new</epoch>|epoch \"new\": expected a number",
        "<gapClass>-1</gapClass>|gapClass \"-1\": expected a class",
    })
    void shouldFailAtStartWhen(final String inside, final String expected) {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = new TestContext()) {
            final FarlogConfigurationError thrown = assertThrows(FarlogConfigurationError.class,
                () -> test.configure(TestContext.xml(ring, inside)));
            assertTrue(thrown.getMessage().contains("[FARLOG]") && thrown.getMessage().contains(expected),
                thrown.getMessage());
            assertEquals(thrown.getMessage(), test.errors().get(0));
        }
    }

    /** Logback tells of each and goes on. */
    @ParameterizedTest
    @CsvSource(delimiter = '|', value = {
        "<encoder><patern>%msg</patern></encoder>"
            + "|unknown property [patern] in [ch.qos.logback.classic.encoder.PatternLayoutEncoder]",
        "<encoder><pattern></pattern></encoder>|Empty or null pattern",
        "<encoder/>|Empty or null pattern",
        "<encoder><pattern>%nosuchword</pattern></encoder>|conversion word [nosuchword]",
        "<encoder><charset>UTF-9</charset><pattern>%msg</pattern></encoder>|UTF-9",
        "<encoder class='no.such.Encoder'><pattern>%msg</pattern></encoder>|no.such.Encoder",
        "<filter class='ch.qos.logback.classic.filter.ThresholdFilter'><levl>WARN</levl></filter>"
            + "<encoder><pattern>%m</pattern></encoder>"
            + "|unknown property [levl] in [ch.qos.logback.classic.filter.ThresholdFilter]",
        "<filter class='no.such.Filter'><level>WARN</level></filter>"
            + "<encoder><pattern>%m</pattern></encoder>|no.such.Filter",
    })
    void shouldFailAtStartWhenWhatIsInsideIsWrong(final String inside, final String expected) {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = new TestContext()) {
            final String xml = TestContext.xml(ring, inside);
            final String own = xml.substring(xml.lastIndexOf("<encoder>"), xml.indexOf("</appender>"));
            final FarlogConfigurationError thrown = assertThrows(FarlogConfigurationError.class,
                () -> test.configure(xml.replace(own, "")));
            assertTrue(thrown.getMessage().startsWith("Appender [FARLOG]: ") && thrown.getMessage().contains(expected),
                thrown.getMessage());
        }
    }

    /** What is wrong with others is theirs. */
    @Test
    void shouldStartBesideAnAppenderThatIsWrong() {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = new TestContext()) {
            final String other = "<appender name='OTHER' class='ch.qos.logback.core.ConsoleAppender'>"
                + "<no>1</no><encoder/></appender><appender name=\"FARLOG\"";
            test.configure(TestContext.xml(ring, "").replace("<appender name=\"FARLOG\"", other)
                .replace("</root>", "<appender-ref ref='OTHER'/><appender-ref ref='NOBODY'/></root>"));
            test.logger("x").info("one");
            assertEquals(java.util.List.of("one"), ring.texts());
        }
    }

    @Test
    void shouldFailAtStartWhenEncoderIsMissing() {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = new TestContext()) {
            final String xml = TestContext.xml(ring, "").replaceAll("<encoder>.*</encoder>", "");
            assertThrows(FarlogConfigurationError.class, () -> test.configure(xml));
        }
    }

    @Test
    void shouldFailAtStartWhenUriIsMissing() {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = new TestContext()) {
            final String xml = TestContext.xml(ring, "").replaceAll("<uri>.*</uri>", "");
            assertTrue(assertThrows(FarlogConfigurationError.class, () -> test.configure(xml)).getMessage()
                .contains("uri is missing"));
        }
    }

    @Test
    void shouldFailAtStartWhenAnotherHoldsTheRing() throws FarlogException {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = new TestContext();
            SharedWriter other = SharedWriter.open(ring.uri,
                WriterOptions.defaults().withLevel(io.github.farlog.client.Level.VISIBLE))) {
            final FarlogConfigurationError thrown = assertThrows(FarlogConfigurationError.class,
                () -> test.configure(TestContext.xml(ring, "")));
            assertTrue(thrown.getMessage().contains(ring.uri) || thrown.getMessage().contains(ring.path.toString()),
                thrown.getMessage());
            assertFalse(other.contract().kind().isEmpty());
        }
    }

    /** One writer, at the higher level, whoever comes first. */
    @ParameterizedTest
    @CsvSource({"posted,visible", "visible,posted"})
    void shouldServeTwoLevelsOfOneRingByTheHigher(final String one, final String other) {
        try (TestRing ring = new TestRing(1 << 20);
            TestContext first = TestContext.of(TestContext.xml(ring, "<level>" + one + "</level>"));
            TestContext second = TestContext.of(TestContext.xml(ring, "<level>" + other + "</level>"))) {
            assertEquals(java.util.List.of("VISIBLE"), Target.all().stream().map(Target::getLevel).toList());
            first.logger("x").info("one");
            second.logger("x").info("two");
            assertEquals(java.util.List.of("one", "two"), ring.texts());
        }
    }

    @Test
    void shouldFailAtStartWhenAnotherAsksForALevelAboveTheRegions() {
        try (TestRing ring = new TestRing(1 << 20); TestContext first = TestContext.of(TestContext.xml(ring, ""));
            TestContext second = new TestContext()) {
            final FarlogConfigurationError thrown = assertThrows(FarlogConfigurationError.class,
                () -> second.configure(TestContext.xml(ring, "<level>persistent</level>")));
            assertTrue(thrown.getMessage().contains("level PERSISTENT is above"), thrown.getMessage());
            first.logger("x").info("goes on");
            assertEquals("goes on", ring.texts().get(0));
        }
    }

    /** Logback passes nothing on of it. */
    @Test
    void shouldTakeAnEmptyElementForNone() {
        try (TestRing ring = new TestRing(1 << 20); TestContext test = TestContext
            .of(TestContext.xml(ring, "<classId>7</classId><classId/><policy></policy>"))) {
            test.logger("x").info("one");
            assertEquals(7, ring.drain().getFirst().classId());
        }
    }

    @Test
    void shouldShareOneWriterBetweenTwoContexts() throws FarlogException {
        try (TestRing ring = new TestRing(1 << 20); TestContext first = TestContext.of(TestContext.xml(ring, ""));
            TestContext second = TestContext.of(TestContext.xml(ring, ""))) {
            first.logger("x").info("one");
            second.logger("x").info("two");
            first.context.stop();
            assertTrue(Ring.inspect(ring.uri).writerHeld());
            second.logger("x").info("three");
            assertEquals(java.util.List.of("one", "two", "three"), ring.texts());
        }
    }

    /** Logback prints the exceptions of its first configuration and goes on; the application must not. */
    @Test
    void shouldStopTheApplicationAtItsFirstLoggerWhenTheConfigurationIsWrong(@TempDir final Path folder)
        throws IOException, InterruptedException {
        final Path xml = folder.resolve("logback.xml");
        try (TestRing ring = new TestRing(1 << 20)) {
            Files.writeString(xml, TestContext.xml(ring, "<policy>maybe</policy>"));
            final Path output = folder.resolve("output");
            final Process child = Child.command(xml, Application.class).redirectErrorStream(true)
                .redirectOutput(output.toFile()).start();
            assertNotEquals(0, child.waitFor());
            final String text = Files.readString(output);
            assertTrue(text.contains("FarlogConfigurationError: Appender [FARLOG]: policy \"maybe\""), text);
            assertFalse(text.contains("started"), text);
        }
    }

    /** An application. */
    static final class Application {
        private static final org.slf4j.Logger LOGGER = org.slf4j.LoggerFactory.getLogger(Application.class);

        public static void main(final String[] arguments) {
            LOGGER.info("first trade");
            System.out.println("started");
        }
    }
}
