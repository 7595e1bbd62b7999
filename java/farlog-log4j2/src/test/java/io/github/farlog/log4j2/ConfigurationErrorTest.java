package io.github.farlog.log4j2;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.farlog.client.Level;
import io.github.farlog.client.SharedWriter;
import io.github.farlog.client.WriterOptions;
import java.nio.file.Files;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.config.ConfigurationException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * What cannot work is refused when the context starts, with a text that names the setting, and nothing of it stays
 * open.
 */
class ConfigurationErrorTest {
    private static final long SIZE_BYTES = 1 << 20;
    private final TestRing ring = TestRing.onTmpfs(SIZE_BYTES);

    @AfterEach
    void removeRing() {
        ring.close();
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', quoteCharacter = '"', value = {
        "name='farlog' uri='ftp:/tmp/x' level='visible' | ftp:/tmp/x",
        "name='farlog' uri='mem:/no/such/ring' level='visible' | a ring there: mkdir -p",
        "name='farlog' level='visible' | expected a uri",
        "uri='@' level='visible' | expected a name",
        "name='farlog' uri='@' level='eternal' | level=\"eternal\": expected posted, visible",
        "name='farlog' uri='@' level='persistent' | level PERSISTENT",
        "name='farlog' uri='@' | level PERSISTENT",
        "name='farlog' uri='@' level='visible' policy='shrug' | policy=\"shrug\": expected failStop, failover",
        "name='farlog' uri='@' level='visible' policy='block(soon)' | policy=\"soon\": expected a duration",
        "name='farlog' uri='@' level='visible' polcy='failStop' | unknown attribute or element polcy",
        "name='farlog' uri='@' level='visible' policy='failStop' ignoreExceptions='true' "
            + "| contradicts policy=\"failStop\"",
        "name='farlog' uri='@' level='visible' ignoreExceptions='true' | contradicts policy=\"block(1s)\"",
        "name='farlog' uri='@' level='visible' policy='failover' ignoreExceptions='true' "
            + "| contradicts policy=\"failover\"",
        "name='farlog' uri='@' level='visible' policy='failover' failoverRef='x' ignoreExceptions='true' "
            + "| contradicts policy=\"failover\"",
        "name='farlog' uri='@' level='visible' policy='failover' failoverRef='nobody' | failoverRef=\"nobody\"",
        "name='farlog' uri='@' level='visible' policy='failover' failoverRef='farlog' | failoverRef=\"farlog\"",
        "name='farlog' uri='@' level='visible' failoverRef='other' | needs policy=\"failover\"",
        "name='farlog' uri='@' level='visible' ignoreExceptions='maybe' | expected true or false",
        "name='farlog' uri='@' level='visible' classId='70000' | classId=\"70000\": expected a class from 0 to 65535",
        "name='farlog' uri='@' level='visible' criticality='vital' | criticality=\"vital\"",
        "name='farlog' uri='@' level='visible' deadline='1 fortnight' | deadline=\"1 fortnight\"",
        "name='farlog' uri='@' level='visible' deadline='9999999999999s' "
            + "| deadline=\"9999999999999s\": expected a duration",
        "name='farlog' uri='@' level='visible' epoch='old' | epoch=\"old\"",
        "name='farlog' uri='farlog://desk7/orders' createRing='8MiB' | createRing=\"8MiB\": makes one ring in a file",
        "name='farlog' uri='members:1 @ @' level='visible' createRing='8MiB' "
            + "| createRing=\"8MiB\": makes one ring in a file",
        "name='farlog' uri='route:farlog://desk7/all?agent=/tmp/no-agent-here' "
            + "| ring \"route:farlog://desk7/all?agent=/tmp/no-agent-here\": ",
        "name='farlog' uri='route:farlog://desk7/all' level='visible' "
            + "| names a route, whose legs have levels and grants of their own: expected no level",
        "name='farlog' uri='route:farlog://desk7/all' epoch='4' "
            + "| names a route, whose legs have levels and grants of their own: expected no level",
        "name='farlog' uri='@' level='visible' spillDir='/tmp/x' | spillDir=\"/tmp/x\" is for a route",
        "name='farlog' uri='@' level='visible' createRing='big' | createRing=\"big\": expected a size"})
    void shouldRefuseAttribute(final String attributes, final String expected) {
        shouldRefuse("<Farlog " + attributes.replace("@", ring.uri) + "><PatternLayout pattern='%m'/></Farlog>",
            expected);
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', quoteCharacter = '"', value = {
        "<PaternLayout pattern='%m'/> | unknown attribute or element PaternLayout",
        "<PatternLayout patern='%m'/> "
            + "| element PatternLayout: PatternLayout contains an invalid element or attribute \"patern\"",
        "<PatternLayout pattern='%m %qqq'/> | element PatternLayout: Unrecognized",
        "<PatternLayout><Patern>%m</Patern></PatternLayout> | invalid element or attribute \"Patern\"",
        "<PatternLayout charset='UTF-9'/> | element PatternLayout: Error while converting string [UTF-9]",
        "<ThresholdFilter levl='WARN'/> "
            + "| element ThresholdFilter: ThresholdFilter contains an invalid element or attribute \"levl\"",
        "<ThresholdFilter level='WRAN'/> | element ThresholdFilter: Error while converting string [WRAN]",
        "<ThresholdFilter level='WARN' onMatch='YES'/> | element ThresholdFilter: Error while converting string [YES]",
        "<Filters><ThresholdFilter levl='WARN'/></Filters> | element Filters: ThresholdFilter contains an invalid",
        "<PatternLayout pattern='%m'/><PatternLayout pattern='%d'/> | element PatternLayout is out of place",
        "<Console name='inner'/> | element Console is out of place",
        "<Class marker='ORDER'/> | Class: expected an id and a marker or a level",
        "<Class id='1'/> | Class: expected an id and a marker or a level",
        "<Class level='LOUD' id='1'/> | Class: level=\"LOUD\"",
        "<Class marker='ORDER' id='x'/> | Class id=\"x\"",
        "<Class marker='ORDER' id='1' critical='true'/> | Class: unknown attribute critical",
        "<Class marker='ORDER' id='1' criticality='so-so'/> | criticality=\"so-so\"",
        "<RegexFilter/> | element RegexFilter: A regular expression must be provided"})
    void shouldRefuseElement(final String elements, final String expected) {
        shouldRefuse("<Farlog name='farlog' uri='" + ring.uri + "' level='visible'>" + elements + "</Farlog>",
            expected);
    }

    @Test
    void shouldRefuseToIgnoreExceptionsOfCriticalClasses() {
        final String elements = "<Class level='ERROR' id='9' criticality='critical'/>";
        shouldRefuse(Contexts.farlog(ring, "policy='dropAndGap' ignoreExceptions='true'", elements),
            "contradicts policy=\"dropAndGap\"");
    }

    @Test
    void shouldRefuseToFailOverToAnAppenderThatHidesItsFailures() {
        final String appenders = Contexts.farlog(ring, "policy='failover' failoverRef='spare'", "");
        shouldRefuse(appenders + "<File name='spare' fileName='/dev/full'/>", "set ignoreExceptions=\"false\" on it");
        shouldRefuse(appenders + "<File name='spare' fileName='/dev/full' ignoreExceptions='true'/>",
            "failoverRef=\"spare\"");
    }

    @Test
    void shouldRefuseARingThatAnotherWriterHolds() throws Exception {
        try (SharedWriter other = SharedWriter.open(ring.uri, WriterOptions.defaults().withLevel(Level.VISIBLE))) {
            shouldRefuse(Contexts.farlog(ring, "", ""), ring.path.toString());
            assertEquals(Level.VISIBLE, other.contract().level());
        }
    }

    @Test
    void shouldRefuseAFileThatIsNoRing() throws Exception {
        Files.write(ring.path, new byte[1 << 16]);
        shouldRefuse(Contexts.farlog(ring, "", ""), ring.path.toString());
    }

    @Test
    void shouldStopWhatHadStartedBeforeTheRefusal() {
        final String good = Contexts.farlog(ring, "", "").replace("name='farlog'", "name='good'");
        shouldRefuse(good + "<Farlog name='farlog' uri='mem:/no/such/ring'/>", "/no/such/ring");
        assertFalse(org.apache.logging.log4j.core.appender.AbstractManager.hasManager("farlog:" + ring.uri));
    }

    @Test
    void shouldMakeTheRingWhenAskedTo() {
        try (TestRing fresh = TestRing.absent();
            LoggerContext context = Contexts.of(Contexts.farlog(fresh, "createRing='8MiB'", ""))) {
            context.getLogger("orders").info("first");
            context.getLogger("orders").info("x".repeat(900_000));
            assertEquals("first", fresh.texts().getFirst());
            context.stop();
            try (LoggerContext again = Contexts.of(Contexts.farlog(fresh, "createRing='8MiB'", ""))) {
                again.getLogger("orders").info("third");
                assertEquals("third", fresh.texts().getLast());
                assertEquals(3, fresh.texts().size());
            }
        }
    }

    @Test
    void shouldRefuseALoggerThatRefersToNoAppender() {
        shouldRefuse(Contexts.farlog(ring, "", "").replace("name='farlog'", "name='other'"),
            "logger \"root\" refers to appender \"farlog\", and there is none of that name: expected one of other");
    }

    private static void shouldRefuse(final String appenders, final String expected) {
        final var refused = assertThrows(ConfigurationException.class, () -> Contexts.of(appenders));
        assertTrue(refused.getMessage().contains(expected), refused.getMessage());
        assertTrue(refused.getMessage().startsWith("farlog refuses the configuration: appender \""),
            refused.getMessage());
    }
}
