package io.github.farlog.endtoend;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ch.qos.logback.classic.joran.JoranConfigurator;
import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Predicate;
import javax.management.JMException;
import javax.management.ObjectName;
import javax.management.openmbean.CompositeData;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.config.ConfigurationSource;
import org.apache.logging.log4j.core.config.xml.XmlConfiguration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Both appenders on streams of the control plane with three targets, two of which an acknowledgement needs. One target
 * is killed while they log and comes back: no call throws, JMX tells of it, and everything is in the store, in order.
 */
@Timeout(1800)
class MembersTest {
    private static final String SECOND = "target2";

    /** One application: what it has logged, and where its counters are. */
    private record Lane(String stream, ObjectName counters, Consumer<String> logger, List<String> logged) {
        void log() {
            logger.accept(stream + ' ' + logged.size());
            logged.add(stream + ' ' + logged.size()); // the call has returned
        }

        /** As an operator's console shows them. */
        List<CompositeData> members() {
            try {
                return Arrays.asList(
                    (CompositeData[]) ManagementFactory.getPlatformMBeanServer().getAttribute(counters, "Members"));
            } catch (final JMException e) {
                throw new IllegalStateException(e);
            }
        }

        long count(final Predicate<CompositeData> wanted) {
            return members().stream().filter(wanted).count();
        }
    }

    @Test
    void shouldLoseNothingWhenOneOfThreeTargetsDies() throws Exception {
        try (Fabric fabric = new Fabric(Path.of("/dev/shm"), "storage1")) {
            fabric.addTarget(SECOND, "storage2");
            fabric.addTarget("target3", "storage3");
            final String[] options = {"--members", "3", "--needed", "2", "--wait", "30s"};
            final String log4j2 = fabric.stream("desk7/log4j2", "4MiB", options);
            final String logback = fabric.stream("desk7/logback", "4MiB", options);
            final ch.qos.logback.classic.LoggerContext second = new ch.qos.logback.classic.LoggerContext();
            try (LoggerContext first = log4j2(log4j2)) {
                configure(second, logback);
                final List<Lane> lanes = List.of(
                    new Lane("desk7/log4j2", name("Log4j2,ring=", log4j2), first.getLogger("orders")::info,
                        new ArrayList<>()),
                    new Lane("desk7/logback", name("LogbackTarget,uri=", logback), second.getLogger("orders")::info,
                        new ArrayList<>()));
                logUntil(lanes, 3, state("UP"));
                fabric.kill(SECOND);
                logUntil(lanes, 1, state("UP").negate()
                    .and(member -> (long) member.get("evictions") + (long) member.get("demotions") > 0));
                assertEquals(2, lanes.getFirst().count(state("UP")));
                fabric.start(SECOND);
                logUntil(lanes, 3, state("UP"));
                for (final Lane lane : lanes) {
                    assertEquals(lane.logged, fabric.drained(lane.stream).stream().map(Stored::text).toList());
                }
            } finally {
                second.stop();
            }
            fabric.farlog("verify", fabric.store().toString());
        }
    }

    private static Predicate<CompositeData> state(final String state) {
        return member -> member.get("state").equals(state);
    }

    /** Logs by both until so many members of each of them are as they should be. */
    private static void logUntil(final List<Lane> lanes, final int count, final Predicate<CompositeData> wanted)
        throws Exception {
        final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        for (final Lane lane : lanes) {
            while (lane.count(wanted) < count) {
                assertTrue(System.nanoTime() < end,
                    () -> lane.stream + " after " + lane.logged.size() + " events: " + lane.members());
                lanes.forEach(Lane::log);
                Thread.sleep(1);
            }
        }
    }

    private static ObjectName name(final String type, final String uri) throws Exception {
        return new ObjectName("io.github.farlog:type=" + type + ObjectName.quote(uri));
    }

    private static InputStream bytes(final String xml) {
        return new ByteArrayInputStream(xml.getBytes(StandardCharsets.UTF_8));
    }

    private static LoggerContext log4j2(final String uri) throws Exception {
        final LoggerContext context = new LoggerContext("members");
        context.start(new XmlConfiguration(context, new ConfigurationSource(bytes("""
            <Configuration status="error" shutdownHook="disable">
              <Appenders>
                <Farlog name="farlog" uri="%s" level="visible" policy="block(60s)" deadline="30s">
                  <PatternLayout pattern="%%m"/>
                </Farlog>
              </Appenders>
              <Loggers><Root level="info"><AppenderRef ref="farlog"/></Root></Loggers>
            </Configuration>
            """.formatted(uri)))));
        return context;
    }

    private static void configure(final ch.qos.logback.classic.LoggerContext context, final String uri)
        throws Exception {
        final JoranConfigurator configurator = new JoranConfigurator();
        configurator.setContext(context);
        configurator.doConfigure(bytes("""
            <configuration>
              <appender name="FARLOG" class="io.github.farlog.logback.FarlogAppender">
                <uri>%s</uri>
                <level>visible</level>
                <policy>block(60s)</policy>
                <deadline>30s</deadline>
                <encoder><pattern>%%msg</pattern></encoder>
              </appender>
              <root level="info"><appender-ref ref="FARLOG"/></root>
            </configuration>
            """.formatted(uri)));
    }
}
