package io.github.farlog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Many threads on one writer: all that was acknowledged is there, each thread's records in the order of its calls;
 * closing is safe.
 */
@Timeout(1800)
class ThreadsTest {
    /** Who is waited for may need this processor. */
    private static final long WAIT_NANOS = 20_000;
    private static final long DEADLINE_NANOS = 20_000_000_000L;

    private static Result append(final SharedWriter writer, final int thread, final long number, final Position out) {
        return append(writer, thread, number, DEADLINE_NANOS, out);
    }

    private static Result append(final SharedWriter writer, final int thread, final long number,
        final long deadlineNanos,
        final Position out) {
        final byte[] data = TestRing.numbered(thread, number, 200);
        return switch ((int) (number % 4)) {
            case 0 -> writer.append(data, 0, data.length, 1, null, 0, 0, deadlineNanos, out);
            case 1 -> writer.append(ByteBuffer.wrap(data), 1, null, deadlineNanos, out);
            case 2 -> {
                final RecordBuffer record = new RecordBuffer(data.length, data.length, 0);
                record.payload().put(data);
                yield writer.append(record, 1, deadlineNanos, out);
            }
            default -> writer.append(MemorySegment.ofArray(data), 1, null, deadlineNanos, out);
        };
    }

    private static void run(final TestRing ring, final Thread.Builder builder, final int threads, final int appends)
        throws Exception {
        final AtomicReference<Throwable> failed = new AtomicReference<>();
        try (SharedWriter writer = ring.shared()) {
            final List<Thread> all = new ArrayList<>();
            for (int t = 0; t < threads; t++) {
                final int thread = t;
                all.add(builder.start(() -> {
                    try {
                        final Position position = new Position();
                        long last = -1;
                        for (long number = 1; number <= appends; number++) {
                            assertEquals(Result.OK, append(writer, thread, number, position));
                            assertTrue(position.lsn() > last);
                            last = position.lsn();
                        }
                    } catch (final Throwable e) {
                        failed.set(e);
                    }
                }));
            }
            for (final Thread thread : all) {
                thread.join();
            }
        }
        if (failed.get() != null) {
            throw new AssertionError(failed.get());
        }
        assertInOrder(ring.read(), threads, appends);
    }

    private static void assertInOrder(final List<TestRing.Read> records, final int threads, final int appends) {
        final long[] last = new long[threads];
        for (final TestRing.Read record : records) {
            final ByteBuffer data = ByteBuffer.wrap(record.payload());
            final int thread = data.getInt();
            final long number = data.getLong();
            assertEquals(last[thread] + 1, number, "thread " + thread);
            assertEquals(ByteBuffer.wrap(TestRing.numbered(thread, number, 200)), data.rewind());
            last[thread] = number;
        }
        for (final long number : last) {
            assertEquals(appends, number);
        }
    }

    @Test
    void shouldKeepTheOrderOfTenThreads() throws Exception {
        try (TestRing ring = TestRing.inMemory(64 << 20)) {
            run(ring, Thread.ofPlatform(), 10, 3_000);
        }
    }

    @Test
    void shouldKeepTheOrderOfAThousandVirtualThreads() throws Exception {
        try (TestRing ring = TestRing.inMemory(64 << 20)) {
            run(ring, Thread.ofVirtual(), 1000, 100);
        }
    }

    @Test
    void shouldKeepTheOrderOnADisk() throws Exception {
        try (TestRing ring = TestRing.onDisk(8 << 20)) {
            run(ring, Thread.ofPlatform(), 10, 50);
            ring.empty();
            run(ring, Thread.ofVirtual(), 200, 3);
        }
    }

    /** A full ring, threads that wait for room, a garbage collection meanwhile: it must not wait for them. */
    @Test
    void shouldNotHoldUpTheCollectorWhileItWaitsForRoom() throws Exception {
        try (TestRing ring = TestRing.inMemory(64 << 10); SharedWriter writer = ring.shared()) {
            final Position position = new Position();
            while (writer.append(new byte[500], 0, 500, 1, null, 0, 0, -1, position) == Result.OK) {
                continue;
            }
            final CountDownLatch inside = new CountDownLatch(4);
            final AtomicInteger acknowledged = new AtomicInteger();
            final List<Thread> all = new ArrayList<>();
            for (int t = 0; t < 4; t++) {
                all.add(Thread.ofPlatform().start(() -> {
                    inside.countDown();
                    if (writer.append(new byte[500], 0, 500, 1, null, 0, 0, DEADLINE_NANOS, new Position())
                        == Result.OK) {
                        acknowledged.incrementAndGet();
                    }
                }));
            }
            inside.await();
            final long start = System.nanoTime();
            for (int i = 0; i < 5; i++) {
                System.gc();
            }
            assertTrue(System.nanoTime() - start < DEADLINE_NANOS / 2, "a collection waited for an append");
            ring.empty();
            for (final Thread thread : all) {
                thread.join();
            }
            assertEquals(4, acknowledged.get());
        }
    }

    /**
     * Over and over: threads append, another closes in the middle. Each gets CLOSED, the JVM lives, and what was
     * acknowledged is there.
     */
    @Test
    void shouldCloseWhileOthersAppend() throws Exception {
        for (int round = 0; round < 60; round++) {
            try (TestRing ring = round % 6 == 5 ? TestRing.onDisk(1 << 20) : TestRing.inMemory(8 << 20)) {
                final Thread.Builder builder = round % 2 == 0 ? Thread.ofPlatform() : Thread.ofVirtual();
                closeWhileOthersAppend(ring, builder, round);
            }
        }
    }

    private static void closeWhileOthersAppend(final TestRing ring, final Thread.Builder builder, final int round)
        throws Exception {
        final AtomicInteger acknowledged = new AtomicInteger();
        final AtomicInteger unknown = new AtomicInteger();
        final List<Result> ends = new ArrayList<>();
        final SharedWriter writer = ring.shared();
        final List<Thread> all = new ArrayList<>();
        for (int t = 0; t < 6; t++) {
            final int thread = t;
            all.add(builder.start(() -> {
                final Position position = new Position();
                Result result = Result.OK;
                // The ring may be full before the writer closes, and a busy disk may take longer than the deadline.
                for (long number = 1; result == Result.OK || result == Result.FULL
                    || result == Result.UNKNOWN; number++) {
                    result = append(writer, thread, number, 0, position);
                    acknowledged.addAndGet(result == Result.OK ? 1 : 0);
                    unknown.addAndGet(result == Result.UNKNOWN ? 1 : 0);
                }
                synchronized (ends) {
                    ends.add(result);
                }
            }));
        }
        while (acknowledged.get() < 10 + round * 5) {
            LockSupport.parkNanos(WAIT_NANOS);
        }
        final Thread other = Thread.ofVirtual().start(writer::close);
        writer.close();
        other.join();
        for (final Thread thread : all) {
            thread.join();
        }
        assertEquals(java.util.Collections.nCopies(6, Result.CLOSED), ends);
        final int present = ring.read().size();
        assertTrue(present >= acknowledged.get() && present <= acknowledged.get() + unknown.get(),
            () -> present + " records, " + acknowledged + " acknowledged, of " + unknown + " nothing is known");
    }

    @Test
    void shouldCloseAWriterThatAnotherThreadUses() throws Exception {
        for (int round = 0; round < 60; round++) {
            try (TestRing ring = TestRing.inMemory(1 << 20)) {
                final Writer writer = ring.writer();
                final AtomicInteger acknowledged = new AtomicInteger();
                final AtomicReference<Result> end = new AtomicReference<>();
                final Thread appender = Thread.ofPlatform().start(() -> {
                    final byte[] data = new byte[100];
                    Result result = Result.OK;
                    while (result == Result.OK || result == Result.FULL) {
                        result = writer.append(data, 0, 100, 1, null, 0, 0, 0, null);
                        acknowledged.addAndGet(result == Result.OK ? 1 : 0);
                    }
                    end.set(result);
                });
                while (acknowledged.get() < 100) {
                    LockSupport.parkNanos(WAIT_NANOS);
                }
                assertNotNull(writer.counters());
                writer.close();
                appender.join();
                assertEquals(Result.CLOSED, end.get());
                assertEquals(acknowledged.get(), ring.read().size());
            }
        }
    }

    /**
     * Another thread asks something of a writer that is appended to without a break, on a machine whose every processor
     * is wanted: it gets in between two calls or a few more, and not at some time by chance. What is counted is calls,
     * however long each took.
     */
    @Test
    void shouldLetAnotherThreadInWhenThereIsNoProcessorForBoth() throws Exception {
        final CallFrame frame = new CallFrame(1000);
        final AtomicBoolean isOver = new AtomicBoolean();
        final AtomicLong calls = new AtomicLong();
        final List<Thread> all = new ArrayList<>();
        for (int i = 0; i < 3 * Runtime.getRuntime().availableProcessors(); i++) {
            all.add(Thread.ofPlatform().start(() -> spinUntil(isOver::get)));
        }
        all.add(Thread.ofPlatform().start(() -> {
            while (frame.enter()) {
                final long end = System.nanoTime() + 100_000;
                spinUntil(() -> System.nanoTime() - end >= 0);
                calls.incrementAndGet();
                frame.leave();
            }
        }));
        final int asks = 10;
        long waitedFor = 0;
        for (int ask = 0; ask < asks; ask++) {
            final long from = calls.get() + 3;
            spinUntil(() -> calls.get() >= from); // it is in its stride again
            final long before = calls.get();
            assertTrue(frame.enter());
            waitedFor += calls.get() - before;
            frame.leave();
        }
        frame.close();
        isOver.set(true);
        for (final Thread thread : all) {
            thread.join();
        }
        assertTrue(waitedFor < 100 * asks,
            waitedFor + " calls were made while another thread wanted to be let in " + asks + " times");
    }

    private static void spinUntil(final BooleanSupplier isDone) {
        while (!isDone.getAsBoolean()) {
            Thread.onSpinWait();
        }
    }

    @Test
    void shouldCloseAReaderThatAnotherThreadUses() throws Exception {
        try (TestRing ring = TestRing.inMemory(1 << 20); Writer writer = ring.writer()) {
            for (int round = 0; round < 50; round++) {
                final Reader reader = Reader.open(ring.uri, ReaderOptions.defaults());
                final AtomicInteger reads = new AtomicInteger();
                final Thread polling = Thread.ofPlatform().start(() -> {
                    final Batch batch = new Batch();
                    while (reader.read(batch) != Result.CLOSED) {
                        reads.incrementAndGet();
                    }
                });
                writer.heartbeat(0, null);
                assertNotNull(reader.status());
                while (reads.get() < 100) {
                    LockSupport.parkNanos(WAIT_NANOS);
                }
                reader.close();
                polling.join();
            }
        }
    }

    @Test
    void shouldAppendByItsDeadlineHoweverManyCallsAreUnderWay() throws Exception {
        try (TestRing ring = TestRing.inMemory(1 << 20); SharedWriter writer = ring.shared()) {
            final List<CallFrame> underWay = new ArrayList<>();
            for (int i = 0; i < 1100; i++) {
                underWay.add(writer.enterFrame());
            }
            assertEquals(Result.OK, append(writer, 0, 1, null));
            underWay.forEach(CallFrame::leave);
            assertEquals(Result.OK, append(writer, 0, 2, null));
        }
    }
}
