package io.github.farlog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * Two real rings and one append: which takes what, what a ring that is away costs the other, and what is told of it.
 */
@Timeout(1800)
class RouteTest {
    private static final long LONG = TimeUnit.SECONDS.toNanos(30);
    /** Of an optional leg's memory: the least ring, which a few hundred records fill. */
    private static final int LITTLE = 3 * 4096 + (64 << 10);
    private static final int ORDERS = 0;
    private static final int AUDIT = 1;
    private static final byte[] DATA = TestRing.bytes("buy 100");

    private final RoutePosition position = new RoutePosition();
    private TestRing orders;
    private TestRing audit;

    @BeforeEach
    void format() throws Exception {
        orders = TestRing.inMemory(4 << 20);
        audit = TestRing.inMemory(4 << 20);
    }

    @AfterEach
    void remove() throws Exception {
        orders.close();
        audit.close();
    }

    private RouteLeg orders() {
        return RouteLeg.required("orders", orders.uri, orders.options().withDeadline(Duration.ofSeconds(30)));
    }

    private RouteLeg audit() {
        return RouteLeg.optional("audit", audit.uri, audit.options());
    }

    private Result append(final Route route, final byte[] data, final int classId, final int criticality) {
        return route.append(data, 0, data.length, classId, null, 0, 0, criticality, LONG, position);
    }

    private static LegStats stats(final Route route, final int leg) {
        return route.stats().get(leg);
    }

    private static void await(final Route route, final LegStats.State state) {
        final long end = System.nanoTime() + LONG;
        while (stats(route, AUDIT).state() != state) {
            assertTrue(System.nanoTime() < end, () -> "the leg is not " + state + ": " + stats(route, AUDIT));
            Thread.onSpinWait();
        }
    }

    @Test
    void shouldGoToTheLegsThatTakeClassAndCriticality() throws Exception {
        final List<RouteLeg> legs = List.of(
            orders().withClasses(new RouteLeg.Classes(1, 3), new RouteLeg.Classes(9, 9)),
            RouteLeg.required("audit", audit.uri, audit.options()).withCriticalityMin(2)
                .withClasses(new RouteLeg.Classes(3, 9)));
        final Position place = new Position();
        try (Route route = Route.open("desk7", legs)) {
            assertEquals(Result.OK, append(route, DATA, 1, 5));
            assertTrue(position.isRequired(ORDERS) && !position.isRequired(AUDIT)
                && position.result(AUDIT) == Result.NOT_FOUND, position::toString);
            assertEquals(Result.OK, append(route, DATA, 3, 2));
            assertEquals(Level.VISIBLE, position.level());
            assertEquals(Result.OK, position.result(AUDIT));
            assertEquals(1, position.position(AUDIT, place).seq(), "behind the EPOCH record");
            assertEquals(2, position.position(ORDERS, place).seq());
            assertEquals(1, place.copies());
            assertEquals(Result.NOT_FOUND, append(route, DATA, 4, 1), "no leg takes it");
            assertNull(position.level());
            assertFalse(position.hasRequired());
            assertEquals(2, stats(route, ORDERS).acked());
            assertEquals(LegStats.State.DIRECT, stats(route, AUDIT).state());
        }
        assertEquals(List.of("buy 100", "buy 100"), orders.read().stream().map(TestRing.Read::text).toList());
        assertEquals(1, audit.read().size());
    }

    @Test
    void shouldTakeARecordInEveryForm() throws Exception {
        final byte[] key = TestRing.bytes("k1");
        final RecordBuffer record = new RecordBuffer(16, 16, 2);
        record.payload().put(DATA);
        record.key().put(key);
        try (Route route = Route.open("desk7", List.of(orders()))) {
            assertEquals(Result.OK, route.append(DATA, 0, DATA.length, 1, key, 0, 2, 0, LONG, null));
            assertEquals(Result.OK, route.append(ByteBuffer.wrap(DATA), 1, ByteBuffer.wrap(key), 0, LONG, position));
            assertEquals(Result.OK,
                route.append(MemorySegment.ofArray(DATA), 1, MemorySegment.ofArray(key), 0, LONG, position));
            assertEquals(Result.OK, route.append(record, 1, 0, LONG, position));
            assertEquals(Result.INVALID, route.append(record, 65536, 0, LONG, position));
            assertEquals(Result.INVALID, route.append(DATA, 0, DATA.length, 1, null, 0, 0, -1, LONG, position));
            final byte[] long1 = new byte[2 << 20];
            assertEquals(Result.TOO_LARGE, append(route, long1, 1, 0));
        }
        assertEquals(Collections.nCopies(4, "buy 100 k1"),
            orders.read().stream().map(read -> read.text() + ' ' + new String(read.key())).toList());
    }

    /**
     * The optional leg's ring is another writer's all the while: an append that waited for it would come back UNKNOWN
     * at its deadline, if at all. What memory has no room for is counted, and told in the stream when the ring is free.
     */
    @Test
    void shouldNotWaitForAnOptionalLegAndCountItsGap() throws Exception {
        final int count = 5000;
        final Writer holder = audit.writer();
        final long dropped;
        try (Route route = Route.open("desk7", List.of(orders(), audit().withBufferBytes(LITTLE)))) {
            int droppedSeen = 0;
            for (int i = 0; i < count; i++) {
                assertEquals(Result.OK, append(route, TestRing.numbered(0, i, 100), 1, 0));
                assertTrue(position.isOptional(AUDIT) && position.hasRequired() && position.level() == Level.VISIBLE,
                    position::toString);
                droppedSeen += position.isDropped(AUDIT) ? 1 : 0;
            }
            await(route, LegStats.State.AWAY);
            assertTrue(stats(route, AUDIT).text().contains("has a living writer"),
                () -> stats(route, AUDIT).toString());
            dropped = stats(route, AUDIT).dropped();
            assertEquals(droppedSeen, dropped);
            assertTrue(dropped > 0 && dropped < count, () -> stats(route, AUDIT).toString());
            assertEquals(Result.UNKNOWN, route.catchUp(1), "nothing is carried to a ring that another has");
            holder.close();
            assertEquals(Result.OK, route.catchUp(LONG));
            assertEquals(count, stats(route, ORDERS).acked());
            assertEquals(1, stats(route, AUDIT).gaps());
            assertEquals(0, stats(route, AUDIT).behindBytes());
        }
        assertEquals(count, orders.read().size());
        assertEquals(dropped, gap(count - dropped));
    }

    /**
     * How many records the only GAP record tells of; behind so many of the application's, the first ones in their
     * order.
     */
    private long gap(final long before) throws Exception {
        final Batch batch = new Batch();
        long missing = 0;
        long seen = 0;
        try (Reader reader = Reader.open(audit.uri, ReaderOptions.defaults())) {
            while (reader.read(batch) == Result.OK) {
                while (batch.next()) {
                    if (batch.flags() == RecordView.FLAG_GAP) {
                        assertEquals(before, seen);
                        missing += batch.payload().get(ValueLayout.JAVA_LONG_UNALIGNED, 8);
                    } else if (batch.flags() == 0) {
                        assertEquals(-1,
                            MemorySegment.ofArray(TestRing.numbered(0, seen++, 100)).mismatch(batch.payload()));
                    }
                }
            }
        }
        assertEquals(before, seen);
        return missing;
    }

    /**
     * A required leg that spills goes on while its ring is away, and the next route with that spill carries what is
     * left, once and in order.
     */
    @Test
    void shouldSpillAndCarryOnInTheNextRoute(@TempDir final Path folder) throws Exception {
        final RouteLeg spilling = RouteLeg
            .required("audit", audit.uri, audit.options().withDeadline(Duration.ofMillis(1)))
            .withSpill("mem:/dev/shm/" + folder.getFileName() + ".spill", Level.VISIBLE).withBufferBytes(1 << 20);
        final Path spill = Path.of(spilling.spillUri().substring("mem:".length()));
        final List<String> expected = new ArrayList<>();
        try {
            try (Writer holder = audit.writer(); Route route = Route.open("desk7", List.of(orders(), spilling))) {
                assertTrue(holder.ring().recordLenMax() > 0);
                for (int i = 0; i < 100; i++) {
                    assertEquals(Result.OK, append(route, TestRing.bytes("order " + i), 1, 0));
                    assertTrue(position.isBuffered(AUDIT) && !position.isBuffered(ORDERS), position::toString);
                    expected.add("order " + i);
                }
                assertEquals(Result.UNKNOWN, route.close(1), "something is left in the spill");
                assertEquals(100, stats(route, AUDIT).spilled());
            }
            try (Route route = Route.open("desk7", List.of(orders(), spilling))) {
                assertEquals(Result.OK, append(route, TestRing.bytes("order 100"), 1, 0));
                expected.add("order 100");
                assertEquals(Result.OK, route.catchUp(LONG));
                assertEquals(Result.OK, route.close(LONG));
            }
            assertEquals(expected, audit.read().stream().map(TestRing.Read::text).toList());
            assertEquals(expected, orders.read().stream().map(TestRing.Read::text).toList());
        } finally {
            Files.deleteIfExists(spill);
        }
    }

    /** A full required leg: the record is nowhere, in no other leg either. */
    @Test
    void shouldBeNowhereWhenARequiredLegRefuses() throws Exception {
        try (TestRing small = TestRing.inMemory(LITTLE);
            Route route = Route.open("desk7",
                List.of(orders(), RouteLeg.required("small", small.uri, small.options().withPolicy(Policy.REJECT))))) {
            int count = 0;
            Result result = Result.OK;
            while (result == Result.OK) {
                result = append(route, DATA, 1, 0);
                count++;
            }
            assertEquals(Result.FULL, result);
            assertEquals(Result.FULL, position.result(1));
            assertEquals(count - 1, orders.read().size());
            small.empty();
            assertEquals(Result.OK, append(route, DATA, 1, 0));
            assertEquals(Result.OK, route.resolve(position, LONG));
            assertEquals(count, orders.read().size());
            assertEquals(Result.INVALID, route.resolve(new RoutePosition(), LONG), "of no append of this route");
        }
    }

    /**
     * They take turns; each one's records stay in its order, and what is acknowledged is there although the route is
     * closed meanwhile.
     */
    @Test
    void shouldServeManyThreadsUntilItIsClosed() throws Exception {
        final int threads = 4;
        final long[] acked = new long[threads];
        final Result[] lastOf = new Result[threads];
        final Route route = Route.open("desk7", List.of(orders(), audit()));
        final List<Thread> all = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
            final int thread = t;
            all.add((t % 2 == 0 ? Thread.ofPlatform() : Thread.ofVirtual()).start(() -> {
                final RoutePosition own = new RoutePosition();
                Result result = Result.OK;
                while (result == Result.OK && acked[thread] < 5000) {
                    final byte[] data = TestRing.numbered(thread, acked[thread], 20);
                    result = route.append(data, 0, data.length, 1, null, 0, 0, 0, LONG, own);
                    acked[thread] += result == Result.OK ? 1 : 0;
                }
                lastOf[thread] = result;
            }));
        }
        final long end = System.nanoTime() + LONG;
        while (stats(route, ORDERS).acked() < 1000) {
            assertTrue(System.nanoTime() < end);
            Thread.onSpinWait();
        }
        assertEquals(Result.OK, route.close(LONG));
        for (final Thread thread : all) {
            thread.join();
        }
        assertEquals(Result.CLOSED, append(route, DATA, 1, 0));
        assertEquals(Result.CLOSED, route.catchUp(LONG));
        assertEquals(Result.OK, route.close(0), "closing again changes nothing");
        final long[] next = new long[threads];
        for (final TestRing.Read read : orders.read()) {
            final ByteBuffer data = ByteBuffer.wrap(read.payload());
            assertEquals(next[data.getInt()]++, data.getLong());
        }
        assertEquals(acked[0] + acked[1] + acked[2] + acked[3], next[0] + next[1] + next[2] + next[3]);
        for (int t = 0; t < threads; t++) {
            assertEquals(acked[t], next[t]);
            assertTrue(lastOf[t] == Result.OK && acked[t] == 5000 || lastOf[t] == Result.CLOSED,
                lastOf[t] + " after " + acked[t]);
        }
        assertSame(route.stats(), route.stats());
        assertEquals(stats(route, ORDERS).acked(), stats(route, AUDIT).carried());
    }

    @Test
    void shouldSayWhatIsWrong() {
        shouldRefuse(Result.INVALID, "route \"desk7\" has 0 legs; expected 1 to 16");
        shouldRefuse(Result.INVALID, "route \"desk7\": leg \"orders\": another leg has this name", orders(), orders());
        final RouteLeg drops = orders();
        shouldRefuse(Result.INVALID, "is_required with policy drop; expected policy fail or spill",
            new RouteLeg(drops.name(), drops.uri(), true, RoutePolicy.DROP,
                List.of(), 0, null, null, 0, drops.options()));
        shouldRefuse(Result.NOT_FOUND, "mem:/dev/shm/no-such.ring",
            RouteLeg.required("orders", "mem:/dev/shm/no-such.ring", orders.options()));
        shouldRefuse(Result.INVALID, "NUL byte", RouteLeg.required("or\0ders", orders.uri, orders.options()));
        assertThrows(IllegalArgumentException.class, () -> new RouteLeg.Classes(7, 3));
        assertThrows(IllegalArgumentException.class, () -> orders().withCriticalityMin(-1));
        final var absent = assertThrows(FarlogException.class,
            () -> Route.open("farlog://desk7/all?agent=/tmp/no-agent-here", RouteOptions.defaults()));
        assertEquals(Result.NOT_FOUND, absent.result());
        assertTrue(absent.getMessage().contains("/tmp/no-agent-here"), absent.getMessage());
    }

    private static void shouldRefuse(final Result result, final String part, final RouteLeg... legs) {
        final var thrown = assertThrows(FarlogException.class, () -> Route.open("desk7", List.of(legs)));
        assertEquals(result, thrown.result(), thrown.getMessage());
        assertTrue(thrown.getMessage().contains(part), thrown.getMessage());
        assertEquals(1, thrown.getMessage().lines().count());
    }
}
