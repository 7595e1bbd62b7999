package io.github.farlog.log4j2;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.farlog.log4j2.TestRing.Entry;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.ConfigurationException;
import org.apache.logging.log4j.core.config.ConfigurationSource;
import org.apache.logging.log4j.core.config.DefaultConfiguration;
import org.apache.logging.log4j.core.config.xml.XmlConfiguration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Processes that end as they are asked to, while ten threads log: counted as {@link CrashTest} does, every event whose
 * call returned is in the ring. What would take the appender away before the threads are gone is refused at the start.
 */
class EndTest {
    private static final Path WORK = Path.of("target", "end").toAbsolutePath();
    private static final int THREAD_COUNT = 10;
    private static final int TERM = 128 + 15;

    @ParameterizedTest
    @ValueSource(strings = {"signal", "exit"})
    void shouldHoldEveryEventWhoseCallReturnedWhenTheProcessEnds(final String how) throws Exception {
        final ChildJvm jvm = new ChildJvm(WORK);
        try (TestRing ring = TestRing.onTmpfs(256 << 20)) {
            final Path counts = Files.write(WORK.resolve("counts-" + how), new byte[THREAD_COUNT * CrashMain.STRIDE]);
            final Process process = jvm.start(how, EndMain.class, CrashTest.options(ring, "visible"), counts.toString(),
                Integer.toString(THREAD_COUNT), how);
            CrashTest.awaitFirst(process, counts, jvm.output(how));
            final long[] before = CrashTest.readCounts(counts, THREAD_COUNT);
            if (how.equals("signal")) {
                process.destroy();
            }
            assertEquals(how.equals("signal") ? TERM : 0, process.waitFor(), "see " + jvm.output(how));
            final long[] after = CrashTest.readCounts(counts, THREAD_COUNT);
            final long events = CrashTest.check(ring.drain(), after);
            assertTrue(events > Arrays.stream(before).sum() + THREAD_COUNT, "no thread logged while the process ended");
            assertFalse(Files.readString(jvm.output(how)).contains("Exception"),
                () -> "a logging call threw, see " + jvm.output(how));
        }
    }

    @Test
    void shouldTellAGapWhenTheProcessEnds() throws Exception {
        final ChildJvm jvm = new ChildJvm(WORK);
        try (TestRing ring = TestRing.onTmpfs(1 << 20)) {
            final List<String> options = List.of("-Dlog4j2.configurationFile=drop.xml",
                "-Dfarlog.test.uri=" + ring.uri);
            final Process process = jvm.start("drop", EndMain.class, options, "drop");
            final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (!Files.readString(jvm.output("drop")).contains("dropped")) {
                assertTrue(process.isAlive() && System.nanoTime() < end,
                    () -> "nothing was dropped, see " + jvm.output("drop"));
                Thread.sleep(1);
            }
            final List<Entry> events = ring.drain();
            process.destroy();
            assertEquals(TERM, process.waitFor());
            assertTrue(events.size() > 100);
            final List<Entry> rest = ring.drain();
            assertEquals(1, rest.size(), rest::toString);
            assertTrue(rest.getFirst().text().startsWith("farlog.gap dropped=1 unknown=0 "), rest::toString);
        }
    }

    @Test
    void shouldRefuseTheShutdownHookOfLog4j() {
        try (TestRing ring = TestRing.onTmpfs(1 << 20); LoggerContext context = new LoggerContext("test")) {
            final var refused = assertThrows(ConfigurationException.class,
                () -> context.start(withHook(context, ring)));
            assertTrue(refused.getMessage().contains("set shutdownHook=\"disable\" on Configuration"),
                refused.getMessage());
        }
    }

    @Test
    void shouldRefuseToJoinAContextWhoseShutdownHookIsThereAlready() {
        try (TestRing ring = TestRing.onTmpfs(1 << 20); LoggerContext context = new LoggerContext("test")) {
            context.start(new DefaultConfiguration());
            final var refused = assertThrows(ConfigurationException.class,
                () -> Contexts.reconfigure(context, Contexts.farlog(ring, "", "")));
            assertTrue(refused.getMessage().contains("was registered by the configuration that runs"),
                refused.getMessage());
        }
    }

    @Test
    void shouldTakeTheHookThatThePropertyDisables() throws Exception {
        final ChildJvm jvm = new ChildJvm(WORK);
        try (TestRing ring = TestRing.onTmpfs(1 << 20)) {
            final Path xml = Files.writeString(WORK.resolve("hook.xml"), xml(ring));
            final List<String> options = List.of("-Dlog4j2.configurationFile=" + xml,
                "-Dlog4j2.shutdownHookEnabled=false");
            assertEquals(0, jvm.start("property", StartMain.class, options).waitFor(),
                () -> "see " + jvm.output("property"));
            assertEquals(List.of("the first trade"), ring.texts());
        }
    }

    private static Configuration withHook(final LoggerContext context, final TestRing ring) throws IOException {
        return new XmlConfiguration(context,
            new ConfigurationSource(new ByteArrayInputStream(xml(ring).getBytes(StandardCharsets.UTF_8))));
    }

    private static String xml(final TestRing ring) {
        return "<Configuration status='off'><Appenders>" + Contexts.farlog(ring, "", "")
            + "</Appenders><Loggers><Root level='info'><AppenderRef ref='farlog'/></Root></Loggers></Configuration>";
    }
}
