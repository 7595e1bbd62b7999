package io.github.farlog.endtoend;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ch.qos.logback.classic.joran.JoranConfigurator;
import io.github.farlog.client.FarlogException;
import io.github.farlog.client.LegStats;
import io.github.farlog.client.Result;
import io.github.farlog.client.Route;
import io.github.farlog.client.RouteOptions;
import io.github.farlog.client.RoutePosition;
import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import javax.management.ObjectName;
import javax.management.openmbean.CompositeData;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.config.ConfigurationSource;
import org.apache.logging.log4j.core.config.xml.XmlConfiguration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * A route by its name, from the host agent: a program's own, then that of each appender. Its optional leg is a ring on
 * another host, whose target is stopped while records are appended: a call that waited for it would come back at its
 * deadline, and not with OK.
 */
@Timeout(1800)
class RouteTest {
    private static final String FAR = "target2";
    private static final int COUNT = 2000;
    private static final long LONG = TimeUnit.SECONDS.toNanos(60);

    private final List<String> orders = new ArrayList<>();
    private final List<String> alerts = new ArrayList<>();

    @Test
    void shouldTakeARoutesNameWhereAStreamsWas() throws Exception {
        try (Fabric fabric = new Fabric(Path.of("/dev/shm"), "storage1")) {
            fabric.addTarget(FAR, "storage2");
            fabric.stream("desk7/orders", "16MiB", "--target", "storage1", "--wait", "30s");
            fabric.stream("desk7/alerts", "1MiB", "--target", "storage1", "--wait", "30s");
            fabric.stream("desk7/audit", "4MiB", "--target", "storage2", "--wait", "30s");
            final String uri = fabric.route("desk7/all", "desk7/orders",
                "desk7/audit,optional,policy=drop,buffer=128KiB", "desk7/alerts,criticality=2");
            stopTheFarTarget(fabric, uri);
            logByLog4j2(uri);
            logByLogback(uri);
            assertEquals(orders, fabric.drained("desk7/orders").stream().map(Stored::text).toList());
            assertEquals(alerts, fabric.drained("desk7/alerts").stream().map(Stored::text).toList());
            final var absent = assertThrows(FarlogException.class,
                () -> Route.open(uri.replace("desk7/all", "desk7/none"), RouteOptions.defaults()));
            assertEquals(Result.NOT_FOUND, absent.result());
            assertTrue(absent.getMessage().contains("there is none of that name; there is desk7/all"),
                absent.getMessage());
        }
    }

    private void stopTheFarTarget(final Fabric fabric, final String uri) throws Exception {
        final RoutePosition position = new RoutePosition();
        try (Route route = Route.open(uri, RouteOptions.defaults().withName("e2e"))) {
            append(route, position, 0);
            assertEquals(Result.OK, route.catchUp(LONG));
            assertEquals(1, route.stats().get(1).acked());
            fabric.pause(FAR);
            for (int i = 1; i < COUNT; i++) {
                append(route, position, i);
            }
            final LegStats audit = route.stats().get(1);
            assertEquals("desk7/audit", audit.name());
            assertTrue(audit.dropped() > 0 && audit.dropped() < COUNT && position.isDropped(1), audit::toString);
            fabric.proceed(FAR);
            assertEquals(Result.OK, route.catchUp(LONG));
            assertEquals(1, route.stats().get(1).gaps());
            assertEquals(COUNT, audit.dropped() + route.stats().get(1).carried() - route.stats().get(1).gaps(),
                () -> route.stats().toString());
            assertEquals(COUNT, route.stats().get(0).acked());
        }
    }

    private void append(final Route route, final RoutePosition position, final int number) {
        final String text = "order " + number + "x".repeat(500);
        final byte[] data = text.getBytes(StandardCharsets.US_ASCII);
        assertEquals(Result.OK, route.append(data, 0, data.length, 1, null, 0, 0, 1, LONG, position),
            position::toString);
        assertTrue(position.isRequired(0) && position.isOptional(1) && !position.isRequired(2), position::toString);
        orders.add(text);
    }

    private void logByLog4j2(final String uri) throws Exception {
        final LoggerContext context = new LoggerContext("routes");
        try (context) {
            context.start(new XmlConfiguration(context, new ConfigurationSource(bytes("""
                <Configuration status="error" shutdownHook="disable">
                  <Appenders>
                    <Farlog name="farlog" uri="route:%s" deadline="30s">
                      <PatternLayout pattern="%%m"/><Class level="ERROR" id="7" criticality="critical"/>
                    </Farlog>
                  </Appenders>
                  <Loggers><Root level="info"><AppenderRef ref="farlog"/></Root></Loggers>
                </Configuration>
                """.formatted(uri)))));
            log("log4j2", context.getLogger("orders")::info, context.getLogger("orders")::error);
            assertLegs("Log4j2,ring=", uri);
        }
    }

    private void logByLogback(final String uri) throws Exception {
        final ch.qos.logback.classic.LoggerContext context = new ch.qos.logback.classic.LoggerContext();
        final JoranConfigurator configurator = new JoranConfigurator();
        configurator.setContext(context);
        try {
            configurator.doConfigure(bytes("""
                <configuration>
                  <appender name="FARLOG" class="io.github.farlog.logback.FarlogAppender">
                    <uri>route:%s</uri>
                    <deadline>30s</deadline>
                    <classOf>level:ERROR=7 critical</classOf>
                    <encoder><pattern>%%msg</pattern></encoder>
                  </appender>
                  <root level="info"><appender-ref ref="FARLOG"/></root>
                </configuration>
                """.formatted(uri)));
            log("logback", context.getLogger("orders")::info, context.getLogger("orders")::error);
            assertLegs("LogbackTarget,uri=", uri);
        } finally {
            context.stop();
        }
    }

    /** Critical events go to the leg for them as well. */
    private void log(final String who, final java.util.function.Consumer<String> info,
        final java.util.function.Consumer<String> error) {
        for (int i = 0; i < 10; i++) {
            info.accept(who + ' ' + i);
            orders.add(who + ' ' + i);
        }
        error.accept(who + " failed");
        orders.add(who + " failed");
        alerts.add(who + " failed");
    }

    /** As an operator's console shows them. */
    private static void assertLegs(final String type, final String uri) throws Exception {
        final ObjectName name = new ObjectName("io.github.farlog:type=" + type + ObjectName.quote("route:" + uri));
        final CompositeData[] legs = (CompositeData[]) ManagementFactory.getPlatformMBeanServer().getAttribute(name,
            "Legs");
        assertEquals(List.of("desk7/orders", "desk7/audit", "desk7/alerts"),
            Arrays.stream(legs).map(leg -> leg.get("name")).toList());
        assertEquals(List.of(11L, 11L, 1L), Arrays.stream(legs).map(leg -> leg.get("offered")).toList());
    }

    private static InputStream bytes(final String xml) {
        return new ByteArrayInputStream(xml.getBytes(StandardCharsets.UTF_8));
    }
}
