package io.github.farlog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.sun.management.ThreadMXBean;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntFunction;
import org.junit.jupiter.api.Test;

/**
 * That appending allocates not one byte on the heap once it is warm: the JVM's own count for the thread over a million
 * appends in three rounds, for each form of the call.
 */
class AllocationTest {
    private static final int APPENDS = 350_000;
    private static final int WARM_UP = 100_000;
    private static final int CHUNK = 50_000;
    /**
     * Where compiling takes longer than the warm-up, a frame that is compiled again makes, once, the objects it had
     * done without.
     */
    private static final int ROUNDS = 100;
    private static final int LAST_ROUNDS = 3;
    private static final byte[] DATA = new byte[192];
    private static final byte[] KEY = TestRing.bytes("ORD-00000042");
    private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

    private final Position position = new Position();

    private void assertAllocatesNothing(final TestRing ring, final IntFunction<Result> call) throws FarlogException {
        run(ring, call, WARM_UP);
        final List<Long> bytes = new ArrayList<>();
        // Rounds in succession without allocation. Appends before the compiler was done may allocate; an append that
        // allocates now and then shows in one of the last rounds.
        int free = 0;
        for (int round = 0; round < ROUNDS && free < LAST_ROUNDS; round++) {
            bytes.add(run(ring, call, APPENDS));
            free = bytes.getLast() == 0 ? free + 1 : 0;
        }
        assertEquals(LAST_ROUNDS, free, () -> "bytes allocated by " + APPENDS + " appends, round by round: " + bytes);
    }

    private static long run(final TestRing ring, final IntFunction<Result> call, final int count)
        throws FarlogException {
        long allocated = 0;
        for (int done = 0; done < count; done += CHUNK) {
            ring.empty();
            int failed = 0;
            final long before = THREADS.getCurrentThreadAllocatedBytes();
            for (int i = 0; i < CHUNK; i++) {
                if (call.apply(i) != Result.OK) {
                    failed++;
                }
            }
            allocated += THREADS.getCurrentThreadAllocatedBytes() - before;
            assertEquals(0, failed);
        }
        return allocated;
    }

    @Test
    void shouldAllocateNothingWhenOneThreadAppends() throws Exception {
        try (TestRing ring = TestRing.inMemory(64 << 20); Writer writer = ring.writer();
            Arena arena = Arena.ofConfined()) {
            final ByteBuffer heap = ByteBuffer.wrap(DATA);
            final ByteBuffer direct = ByteBuffer.allocateDirect(192);
            final ByteBuffer key = ByteBuffer.wrap(KEY).asReadOnlyBuffer();
            final MemorySegment segment = arena.allocate(192);
            final MemorySegment array = MemorySegment.ofArray(DATA);
            assertAllocatesNothing(ring, i -> writer.append(DATA, 0, 192, 1, KEY, 0, KEY.length, 0, position));
            assertAllocatesNothing(ring, i -> writer.append(heap, 1, key, 0, position));
            assertAllocatesNothing(ring, i -> writer.append(direct, 1, null, 0, position));
            assertAllocatesNothing(ring, i -> writer.append(segment, 1, null, 0, position));
            assertAllocatesNothing(ring, i -> writer.append(array, 1, segment, 0, position));
            assertAllocatesNothing(ring, i -> writer.submit(DATA, 0, 192, 1, null, 0, 0, position));
        }
    }

    @Test
    void shouldAllocateNothingWhenClaiming() throws Exception {
        try (TestRing ring = TestRing.inMemory(64 << 20); Writer writer = ring.writer()) {
            assertAllocatesNothing(ring, i -> {
                final MemorySegment claim = writer.claim(100 + i % 200, 1, KEY, 0, KEY.length);
                MemorySegment.copy(DATA, 0, claim, java.lang.foreign.ValueLayout.JAVA_BYTE, 0, 100);
                return writer.commit(0, position);
            });
        }
    }

    @Test
    void shouldAllocateNothingWhenTheWriterIsShared() throws Exception {
        try (TestRing ring = TestRing.inMemory(64 << 20); SharedWriter writer = ring.shared();
            Arena arena = Arena.ofConfined()) {
            final ByteBuffer heap = ByteBuffer.wrap(DATA);
            final ByteBuffer direct = ByteBuffer.allocateDirect(192);
            final MemorySegment segment = arena.allocate(192);
            assertAllocatesNothing(ring, i -> writer.append(DATA, 0, 192, 1, KEY, 0, KEY.length, 0, position));
            assertAllocatesNothing(ring, i -> writer.append(heap, 1, null, 0, position));
            assertAllocatesNothing(ring, i -> writer.append(direct, 1, null, 0, position));
            assertAllocatesNothing(ring, i -> writer.append(segment, 1, null, 0, null));
            final RecordBuffer record = new RecordBuffer(192, 192, KEY.length);
            assertAllocatesNothing(ring, i -> {
                record.clear();
                record.payload().put(DATA);
                record.key().put(KEY);
                return writer.append(record, 1, 0, position);
            });
        }
    }

    @Test
    void shouldAllocateNothingWhenARouteAppends() throws Exception {
        try (TestRing ring = TestRing.inMemory(64 << 20);
            Route route = Route.open("desk7", List.of(RouteLeg.required("orders", ring.uri, ring.options())))) {
            final RoutePosition placed = new RoutePosition();
            assertAllocatesNothing(ring, i -> route.append(DATA, 0, 192, 1, KEY, 0, KEY.length, 0, 0, placed));
        }
    }

    @Test
    void shouldAllocateNothingWhenResultsAreBad() throws Exception {
        try (TestRing ring = TestRing.inMemory(1 << 20);
            Writer writer = Writer.open(ring.uri, ring.options().withPolicy(Policy.REJECT))) {
            while (writer.append(DATA, 0, 192, 1, null, 0, 0, 0, position) == Result.OK) {
                continue;
            }
            final byte[] large = new byte[1 << 20];
            long allocated = 0;
            for (int i = 0; i < 2 * WARM_UP; i++) {
                final long before = THREADS.getCurrentThreadAllocatedBytes();
                writer.append(DATA, 0, 192, 1, null, 0, 0, 0, position);
                writer.append(large, 0, large.length, 1, null, 0, 0, 0, position);
                writer.append(DATA, 0, 193, 1, null, 0, 0, 0, position);
                allocated += i < WARM_UP ? 0 : THREADS.getCurrentThreadAllocatedBytes() - before;
            }
            assertEquals(0, allocated);
        }
    }
}
