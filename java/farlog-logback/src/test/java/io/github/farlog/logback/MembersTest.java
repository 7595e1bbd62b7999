package io.github.farlog.logback;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ch.qos.logback.classic.Logger;
import io.github.farlog.client.MemberStatus;
import io.github.farlog.client.Ring;
import io.github.farlog.client.RingOptions;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import javax.management.ObjectName;
import javax.management.openmbean.CompositeData;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** A stream with three rings, two of which an acknowledgement needs; one is lost while the application logs. */
class MembersTest {
    private final List<TestRing> rings = new ArrayList<>();
    private String uri;

    @BeforeEach
    void format() throws Exception {
        for (int i = 0; i < 3; i++) {
            rings.add(new TestRing(
                Path.of("/dev/shm", "farlog-logback-" + ProcessHandle.current().pid() + "-member-" + i + ".ring")));
            Ring.format(rings.getLast().uri,
                RingOptions.defaults().withSizeBytes(1 << 20).withStreamName("desk7/orders").withSalt(7));
        }
        uri = "members:2 " + String.join(" ", rings.stream().map(ring -> ring.uri).toList());
    }

    @AfterEach
    void remove() {
        rings.forEach(TestRing::close);
    }

    @Test
    void shouldLoseNothingAndTellWhenAMemberIsLost() throws Exception {
        final var registry = new SimpleMeterRegistry();
        try (TestContext test = TestContext.of(configuration("30s"))) {
            new FarlogMeterBinder().bindTo(registry);
            final Logger logger = test.logger("orders");
            final List<String> logged = new ArrayList<>();
            awaitStates(logger, logged, "UP", "UP", "UP");
            Ring.fence(rings.get(1).uri, Ring.inspect(rings.get(1).uri).writerEpoch() + 1);
            awaitStates(logger, logged, "UP", "OUT", "UP");
            log(logger, logged); // what was stored before the fence was seen may be whole on the fenced member too
            assertEquals(logged, rings.get(0).texts());
            assertEquals(logged, rings.get(2).texts());
            assertTrue(rings.get(1).texts().size() < logged.size());
            // what is exported follows within a tick of the writer's thread
            final Gauge lag = registry.get("farlog.logback.member.lag").tags("uri", uri, "member", "2").gauge();
            final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            while (!(lag.value() > 0) && System.nanoTime() < end) {
                Thread.sleep(5);
            }
            assertTrue(lag.value() > 0);
            assertEquals(5,
                registry.get("farlog.logback.member.state").tags("uri", uri, "member", "2").gauge().value());
            assertEquals(1,
                registry.get("farlog.logback.member.state").tags("uri", uri, "member", "3").gauge().value());
            assertEquals(0, registry.get("farlog.logback.member.evictions").tags("uri", uri, "member", "2")
                .functionCounter().count());
        }
    }

    @Test
    void shouldThrowWhenTooFewMembersAreLeft() throws Exception {
        try (TestContext test = TestContext.of(configuration("1s"))) {
            final Logger logger = test.logger("orders");
            logger.info("first");
            Ring.fence(rings.get(1).uri, Ring.inspect(rings.get(1).uri).writerEpoch() + 1);
            Ring.fence(rings.get(2).uri, Ring.inspect(rings.get(2).uri).writerEpoch() + 1);
            final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            assertThrows(FarlogAppendException.class, () -> {
                while (System.nanoTime() < end) {
                    logger.info("on one member only");
                }
            });
        }
    }

    private String configuration(final String deadline) {
        return TestContext.xml(rings.getFirst(), "<policy>failStop</policy><deadline>" + deadline + "</deadline>")
            .replace(rings.getFirst().uri, uri);
    }

    /** Logs on until JMX says so. */
    private void awaitStates(final Logger logger, final List<String> logged, final String... expected)
        throws Exception {
        final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        List<Object> states;
        do {
            log(logger, logged);
            states = members().stream().map(member -> member.get("state")).toList();
        } while (!states.equals(List.of(expected)) && System.nanoTime() < end);
        assertEquals(List.of(expected), states);
    }

    private static void log(final Logger logger, final List<String> logged) {
        logged.add("event " + logged.size());
        logger.info(logged.getLast());
    }

    /** As an operator's console gets them. */
    private List<CompositeData> members() throws Exception {
        final ObjectName name = new ObjectName("io.github.farlog:type=LogbackTarget,uri=" + ObjectName.quote(uri));
        final List<CompositeData> members = Arrays
            .asList((CompositeData[]) ManagementFactory.getPlatformMBeanServer().getAttribute(name, "Members"));
        for (int i = 0; i < members.size(); i++) {
            assertEquals(i + 1, members.get(i).get("number"));
            // Throws for an unknown state; NONE until the writer has reported one.
            MemberStatus.State.valueOf((String) members.get(i).get("state"));
        }
        return members;
    }
}
