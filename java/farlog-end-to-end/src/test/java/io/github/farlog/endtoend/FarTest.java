package io.github.farlog.endtoend;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.farlog.client.FarlogException;
import io.github.farlog.client.GrantToken;
import io.github.farlog.client.Level;
import io.github.farlog.client.Position;
import io.github.farlog.client.Result;
import io.github.farlog.client.SharedWriter;
import io.github.farlog.client.Writer;
import io.github.farlog.client.WriterOptions;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Rings on another host, by their streams' names: what was acknowledged is there although the target died in between.
 */
@Timeout(1800)
class FarTest {
    private static final int COUNT = 2000;

    @Test
    void shouldLoseNothingWhenTheTargetDies() throws Exception {
        try (Fabric fabric = new Fabric(Path.of("/tmp"), "trading1")) {
            final List<Long> acknowledged = new ArrayList<>();
            try (SharedWriter writer = SharedWriter.open(fabric.stream("desk7/orders", "16MiB"), options())) {
                assertEquals("target-cpu", writer.contract().flushMethod());
                assertEquals("desk7/orders", writer.ring().streamName());
                append(writer, acknowledged, COUNT);
                assertEquals(COUNT, acknowledged.size());
                fabric.kill(Fabric.TARGET);
                final Position position = new Position();
                assertEquals(Result.UNKNOWN, writer.append(new byte[100], 0, 100, 1, null, 0, 0, 1_000_000, position));
                fabric.start(Fabric.TARGET);
                final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
                Result resolved = Result.UNKNOWN;
                while (resolved == Result.UNKNOWN && System.nanoTime() < end) {
                    resolved = writer.resolve(position.lsn(), TimeUnit.SECONDS.toNanos(1), position);
                }
                assertEquals(Result.OK, resolved, "the writer connects again and sends what was not acknowledged");
                acknowledged.add(position.lsn());
                append(writer, acknowledged, COUNT);
            }
            assertEquals(2 * COUNT + 1, acknowledged.size());
            final Set<Long> there = fabric.drained("desk7/orders").stream().map(Stored::lsn)
                .collect(Collectors.toSet());
            assertTrue(there.containsAll(acknowledged),
                () -> acknowledged.stream().filter(lsn -> !there.contains(lsn)).count()
                    + " acknowledged records are lost");
        }
    }

    @Test
    void shouldTakeChangesInWhenTheStreamIsDeclaredAnew() throws Exception {
        try (Fabric fabric = new Fabric(Path.of("/dev/shm"), "trading1")) {
            final WriterOptions asDeclared = WriterOptions.defaults().withStreamLevel()
                .withDeadline(Duration.ofSeconds(30));
            final String uri = fabric.stream("desk7/orders", "16MiB", "--policy", "reject");
            try (SharedWriter writer = SharedWriter.open(uri, asDeclared)) {
                final Position position = new Position();
                assertEquals(Result.OK, writer.append(new byte[100], 0, 100, 1, null, 0, 0, 0, position));
                assertEquals(Level.VISIBLE, position.level());
                fabric.change("desk7/orders", "16MiB", "posted", "reject");
                final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
                while (position.level() != Level.POSTED && System.nanoTime() < end) {
                    assertEquals(Result.OK, writer.append(new byte[100], 0, 100, 1, null, 0, 0, 0, position));
                }
                assertEquals(Level.POSTED, position.level(),
                    "a writer that runs goes on at the level that its stream has by now");
            }
        }
    }

    @Test
    void shouldSayWhatIsWrong() {
        final var absent = assertThrows(FarlogException.class,
            () -> Writer.open("farlog://desk7/orders?agent=/tmp/no-agent-here", options()));
        assertEquals(Result.NOT_FOUND, absent.result());
        assertTrue(absent.getMessage().contains("/tmp/no-agent-here") && absent.getMessage().contains("farlogd host"),
            absent.getMessage());
        final GrantToken token = GrantToken.ofHex("00112233445566778899aabbccddeeff");
        final var given = assertThrows(FarlogException.class,
            () -> Writer.open("farlog://desk7/orders", options().withToken(token)));
        assertEquals(Result.INVALID, given.result());
        assertFalse(options().withToken(token).toString().contains("00112233"), "a secret in a text");
        assertThrows(IllegalArgumentException.class, () -> GrantToken.of(new byte[15]));
        final var bad = assertThrows(IllegalArgumentException.class,
            () -> GrantToken.ofHex("00112233445566778899aabbccddeefg"));
        assertFalse(bad.getMessage().contains("0011"), bad.getMessage());
    }

    private static WriterOptions options() {
        return WriterOptions.defaults().withLevel(Level.VISIBLE).withDeadline(Duration.ofSeconds(30));
    }

    private static void append(final SharedWriter writer, final List<Long> acknowledged, final int count) {
        final Position position = new Position();
        for (int i = 0; i < count; i++) {
            final byte[] data = ("order " + i).repeat(1 + i % 10).getBytes(StandardCharsets.US_ASCII);
            if (writer.append(data, 0, data.length, 1, null, 0, 0, 0, position) == Result.OK) {
                acknowledged.add(position.lsn());
            }
        }
    }
}
