package io.github.farlog.logback;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.slf4j.LoggerFactory;

/**
 * Kills applications with SIGKILL at random moments, a hundred and more in all. Each logs from several threads by a
 * real logback.xml, and notes in shared memory, which outlives it, how many calls of each thread have returned.
 * Afterwards every one of those events is in the ring, and each thread's events, returned or not, are there in order
 * without one missing before another. One ring serves all applications of a lane: each recovers what the one before it
 * left.
 */
class KillTest {
    private static final int KILLS = Integer.getInteger("farlog.kills", 40);
    private static final int LANES = 4;
    private static final int THREADS = 3;
    static final int SLOT = 64;

    /** The application that is killed. */
    static final class Application {
        public static void main(final String[] arguments) throws IOException {
            if (arguments.length == 0) {
                LoggerFactory.getLogger("warm-up").info("warm-up {}", 0);
                return; // made the archive of its classes
            }
            final int threadCount = arguments.length > 2 ? Integer.parseInt(arguments[2]) : THREADS;
            final MappedByteBuffer returned = map(Path.of(arguments[0]), threadCount);
            final org.slf4j.Logger logger = LoggerFactory.getLogger("orders");
            for (int t = 0; t < threadCount; t++) {
                final int thread = t;
                Thread.ofPlatform().start(() -> {
                    for (int i = 0;; i++) {
                        logger.info("{} {} {}", arguments[1], thread, i);
                        returned.putInt(thread * SLOT, i + 1);
                        if (threadCount > THREADS) {
                            LockSupport.parkNanos(50_000); // else the ring is full before it is in its stride
                        }
                    }
                });
            }
        }
    }

    /** Where an application notes how many calls of each thread have returned. */
    static MappedByteBuffer map(final Path path, final int threadCount) throws IOException {
        try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw")) {
            final MappedByteBuffer buffer = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0,
                (long) threadCount * SLOT);
            buffer.order(ByteOrder.nativeOrder());
            return buffer;
        }
    }

    static int sum(final ByteBuffer returned, final int threadCount) {
        int sum = 0;
        for (int t = 0; t < threadCount; t++) {
            sum += returned.getInt(t * SLOT);
        }
        return sum;
    }

    /** One ring, one application after another. */
    private static final class Lane implements Runnable {
        private final int number;
        private final Random random;
        private final Path folder;
        private final String classPath;
        volatile Throwable failure;
        volatile int kills;
        volatile long events;

        Lane(final int number, final long seed, final Path folder, final String classPath) {
            this.number = number;
            random = new Random(seed + number);
            this.folder = folder;
            this.classPath = classPath;
        }

        @Override
        public void run() {
            final Path notes = Path.of("/dev/shm",
                "farlog-logback-" + ProcessHandle.current().pid() + "-notes-" + number);
            try (TestRing ring = new TestRing(64 << 20)) {
                final Path xml = folder.resolve("logback-" + number + ".xml");
                Files.writeString(xml, TestContext.xml(ring, ""));
                for (int i = 0; i < KILLS / LANES; i++) {
                    killOne(ring, xml, notes, number + "-" + i);
                }
            } catch (final Exception | AssertionError e) {
                failure = e;
            } finally {
                notes.toFile().delete();
            }
        }

        private void killOne(final TestRing ring, final Path xml, final Path notes, final String run)
            throws IOException, InterruptedException {
            Files.deleteIfExists(notes);
            final MappedByteBuffer returned = map(notes, THREADS);
            final Path output = folder.resolve("output-" + number);
            final Process child = child(xml, folder, classPath, notes.toString(), run).redirectErrorStream(true)
                .redirectOutput(output.toFile())
                .start();
            final int least = random.nextInt(1500);
            final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(120);
            while (sum(returned, THREADS) < least + 1 && child.isAlive() && System.nanoTime() < end) {
                Thread.sleep(0, 200_000);
            }
            Thread.sleep(0, random.nextInt(1_000_000));
            assertTrue(child.isAlive(), () -> read(output));
            assertTrue(sum(returned, THREADS) > 0, () -> run + ": no call returned in 120 s: " + read(output));
            child.destroyForcibly();
            assertEquals(128 + 9, child.waitFor());
            events += check(ring, run, returned, THREADS);
            kills++;
        }
    }

    /**
     * Drains the ring. Gives how many events were there, after it has found every one whose call returned, in the order
     * of its thread.
     */
    static long check(final TestRing ring, final String run, final ByteBuffer returned, final int threadCount) {
        final Map<Integer, Integer> next = new HashMap<>();
        long events = 0;
        for (final TestRing.Record record : ring.drain()) {
            final String[] words = record.text().split(" ");
            assertEquals(run, words[0]);
            final int thread = Integer.parseInt(words[1]);
            assertEquals(next.getOrDefault(thread, 0), Integer.parseInt(words[2]), () -> run + ", thread " + thread);
            next.merge(thread, 1, Integer::sum);
            events++;
        }
        for (int t = 0; t < threadCount; t++) {
            final int acknowledged = returned.getInt(t * SLOT);
            final int found = next.getOrDefault(t, 0);
            // One more than returned at most: the call that was under way.
            assertTrue(found == acknowledged || found == acknowledged + 1,
                run + ", thread " + t + ": " + acknowledged + " calls returned, " + found + " events are in the ring");
        }
        return events;
    }

    private static ProcessBuilder child(final Path xml, final Path folder, final String classPath,
        final String... arguments) {
        final ProcessBuilder builder = Child.command(xml, classPath, Application.class, arguments);
        builder.command().add(1, "-XX:SharedArchiveFile=" + folder.resolve("classes.jsa"));
        builder.command().add(2, "-Xlog:disable");
        return builder;
    }

    static String read(final Path path) {
        try {
            return Files.readString(path);
        } catch (final IOException e) {
            return e.toString();
        }
    }

    @Test
    void shouldHaveEveryEventWhoseCallReturnedWhenTheJvmIsKilled(@TempDir final Path folder)
        throws IOException, InterruptedException {
        final long seed = Long.getLong("farlog.seed", System.nanoTime());
        System.out.println("kill: seed " + seed + " (repeat with -Dfarlog.seed=" + seed + ")");
        final String classPath = Child.packedClassPath(folder);
        // Makes an archive of the application's classes, with which a child starts twice as fast.
        try (TestRing ring = new TestRing(1 << 20)) {
            final Path xml = folder.resolve("logback.xml");
            Files.writeString(xml, TestContext.xml(ring, ""));
            final ProcessBuilder first = Child.command(xml, classPath, Application.class);
            first.command().add(1, "-XX:ArchiveClassesAtExit=" + folder.resolve("classes.jsa"));
            first.redirectErrorStream(true).redirectOutput(folder.resolve("output").toFile());
            assertEquals(0, first.start().waitFor(), () -> read(folder.resolve("output")));
        }
        final List<Lane> lanes = new ArrayList<>();
        final List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < LANES; i++) {
            lanes.add(new Lane(i, seed, folder, classPath));
            threads.add(Thread.ofPlatform().start(lanes.get(i)));
        }
        for (final Thread thread : threads) {
            thread.join();
        }
        for (final Lane lane : lanes) {
            if (lane.failure != null) {
                throw new AssertionError("lane " + lane.number + ", seed " + seed, lane.failure);
            }
        }
        final int kills = lanes.stream().mapToInt(lane -> lane.kills).sum();
        final long events = lanes.stream().mapToLong(lane -> lane.events).sum();
        System.out.println("kill: " + kills + " applications killed, " + events + " events found, none missing");
        assertEquals(KILLS / LANES * LANES, kills);
        assertTrue(kills > 0 && events >= 100L * kills, () -> "too few events to tell anything: " + events);
    }

    /**
     * The same with ten threads after so many events that the code is compiled as it stays: the test above kills what
     * is still interpreted.
     */
    @Test
    void shouldHaveEveryEventWhoseCallReturnedWhenTheJvmIsKilledInItsStride(@TempDir final Path folder)
        throws IOException, InterruptedException {
        final int threadCount = 10;
        try (TestRing ring = new TestRing(512 << 20)) {
            final Path xml = Files.writeString(folder.resolve("logback.xml"), TestContext.xml(ring, ""));
            for (int kill = 0; kill < 2; kill++) {
                final Path notes = folder.resolve("notes-" + kill);
                final Path output = folder.resolve("output-" + kill);
                final MappedByteBuffer returned = map(notes, threadCount);
                final ProcessBuilder builder = Child.command(xml, Application.class, notes.toString(), "stride-" + kill,
                    Integer.toString(threadCount));
                builder.command().add(builder.command().indexOf("-cp"), "-XX:TieredStopAtLevel=4");
                final Process child = builder.redirectErrorStream(true).redirectOutput(output.toFile()).start();
                final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(120);
                while (sum(returned, threadCount) < 40_000 && child.isAlive() && System.nanoTime() < end) {
                    Thread.sleep(1);
                }
                Thread.sleep(ThreadLocalRandom.current().nextInt(100));
                assertTrue(child.isAlive(), () -> read(output));
                child.destroyForcibly();
                assertEquals(128 + 9, child.waitFor());
                final long events = check(ring, "stride-" + kill, returned, threadCount);
                assertTrue(events >= 40_000, () -> "too few events in two minutes: " + events);
            }
        }
    }
}
