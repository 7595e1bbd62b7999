package io.github.farlog.log4j2;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.farlog.log4j2.TestRing.Entry;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * An application with a real log4j2 configuration is killed by SIGKILL at random, again and again on the same ring.
 * After each death the ring holds every event whose logging call had returned, in the order of its thread, and at most
 * one more of each: the call under way.
 */
class CrashTest {
    private static final int KILL_COUNT = Integer.getInteger("farlog.kills", 40);
    private static final int RUNNER_COUNT = 2;
    private static final int KILL_NANOS_MAX = 60_000_000;
    private static final long SIZE_BYTES = 64 << 20;
    private static final Path WORK = Path.of("target", "crash").toAbsolutePath();

    @Test
    void shouldHoldEveryEventWhoseCallReturnedWhenTheProcessIsKilled() throws Exception {
        final long seed = Long.getLong("farlog.test.seed", System.nanoTime());
        System.out.println("CrashTest: seed " + seed + " (-Dfarlog.test.seed)");
        final ChildJvm jvm = new ChildJvm(WORK);
        train(jvm);
        long eventCount = 0;
        try (ExecutorService executor = Executors.newFixedThreadPool(RUNNER_COUNT)) {
            final List<Future<Long>> runners = new ArrayList<>();
            for (int r = 0; r < RUNNER_COUNT; r++) {
                final int runner = r;
                runners.add(executor.submit(() -> killAgainAndAgain(jvm, runner, new Random(seed + runner))));
            }
            for (final Future<Long> each : runners) {
                eventCount += each.get();
            }
        }
        System.out.println("CrashTest: " + KILL_COUNT + " kills, " + eventCount + " acknowledged events, none missing");
    }

    /**
     * The same after so many events that the code is compiled as it stays: the test above kills what is still
     * interpreted.
     */
    @ParameterizedTest
    @CsvSource({"10,50000,platform,3,40000", "100,10000000,virtual,1,12000"})
    void shouldHoldEveryEventWhoseCallReturnedWhenTheProcessIsKilledInItsStride(final int threadCount,
        final String pauseNanos,
        final String kind, final int killCount, final long leastCount) throws Exception {
        final ChildJvm jvm = new ChildJvm(WORK.resolve(kind));
        final Path counts = WORK.resolve("stride-" + kind);
        try (TestRing ring = TestRing.onTmpfs(512 << 20)) {
            final List<String> options = new ArrayList<>(options(ring, "visible"));
            options.add("-XX:TieredStopAtLevel=4");
            for (int kill = 0; kill < Math.clamp(KILL_COUNT / 8, 1, killCount); kill++) {
                Files.write(counts, new byte[threadCount * CrashMain.STRIDE]);
                final List<String> words = new ArrayList<>(
                    List.of(counts.toString(), Integer.toString(threadCount), pauseNanos));
                if (kind.equals("virtual")) {
                    words.add(kind);
                }
                final Process process = jvm.start("stride", CrashMain.class, options, words.toArray(String[]::new));
                await(process, counts, threadCount, leastCount, jvm.output("stride"));
                TimeUnit.MILLISECONDS.sleep(ThreadLocalRandom.current().nextInt(100));
                process.destroyForcibly();
                assertEquals(128 + 9, process.waitFor(), () -> "ended by itself: see " + jvm.output("stride"));
                final long eventCount = check(ring.drain(), readCounts(counts, threadCount));
                System.out.println("CrashTest: killed with " + threadCount + ' ' + kind + " threads after " + eventCount
                    + " events, none missing");
            }
        }
    }

    /** One run that ends by itself, for the archive of classes; its one event is there as well. */
    private static void train(final ChildJvm jvm) throws Exception {
        try (TestRing ring = TestRing.onTmpfs(SIZE_BYTES)) {
            final Path counts = Files.write(WORK.resolve("counts"), new byte[CrashMain.STRIDE]);
            assertEquals(0, jvm.train(CrashMain.class, options(ring, "visible"), counts.toString(), "0"),
                "see " + jvm.output("train"));
            assertEquals(List.of("started"), ring.texts());
        }
    }

    /** One runner kills on a ring in tmpfs, the other on one in a plain file. */
    private static long killAgainAndAgain(final ChildJvm jvm, final int runner, final Random random) throws Exception {
        long eventCount = 0;
        try (TestRing ring = runner == 0 ? TestRing.onTmpfs(SIZE_BYTES) : TestRing.inFile(SIZE_BYTES)) {
            final String level = runner == 0 ? "visible" : "persistent";
            for (int kill = 0; kill < KILL_COUNT / RUNNER_COUNT; kill++) {
                final int threadCount = 1 + random.nextInt(4);
                final Path counts = Files.write(WORK.resolve("counts-" + runner),
                    new byte[threadCount * CrashMain.STRIDE]);
                runAndKill(jvm, ring, level, counts, threadCount, random.nextInt(KILL_NANOS_MAX));
                eventCount += check(ring.drain(), readCounts(counts, threadCount));
            }
        }
        return eventCount;
    }

    static List<String> options(final TestRing ring, final String level) {
        return List.of("-Dlog4j2.configurationFile=crash.xml", "-Dfarlog.test.uri=" + ring.uri,
            "-Dfarlog.test.level=" + level);
    }

    private static void runAndKill(final ChildJvm jvm, final TestRing ring, final String level, final Path counts,
        final int threadCount,
        final long nanos) throws IOException, InterruptedException {
        final String name = counts.getFileName().toString();
        final Process process = jvm.start(name, CrashMain.class, options(ring, level), counts.toString(),
            Integer.toString(threadCount));
        final Path log = jvm.output(name);
        awaitFirst(process, counts, log);
        TimeUnit.NANOSECONDS.sleep(nanos);
        assertTrue(process.isAlive(), () -> "ended by itself: see " + log);
        process.destroyForcibly();
        assertEquals(128 + 9, process.waitFor());
    }

    static void awaitFirst(final Process process, final Path counts, final Path log)
        throws IOException, InterruptedException {
        await(process, counts, 1, 1, log);
    }

    private static void await(final Process process, final Path counts, final int threadCount, final long least,
        final Path log)
        throws IOException, InterruptedException {
        final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(120);
        while (Arrays.stream(readCounts(counts, threadCount)).sum() < least) {
            assertTrue(process.isAlive() && System.nanoTime() < end,
                () -> "fewer than " + least + " events from " + process + ", see " + log);
            Thread.sleep(1);
        }
    }

    static long[] readCounts(final Path counts, final int threadCount) throws IOException {
        final ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(counts)).order(ByteOrder.nativeOrder());
        final long[] result = new long[threadCount];
        for (int t = 0; t < threadCount; t++) {
            result[t] = bytes.getLong(t * CrashMain.STRIDE);
        }
        return result;
    }

    /** Gives the sum of what was acknowledged. */
    static long check(final List<Entry> entries, final long[] acknowledged) {
        final long[] next = new long[acknowledged.length];
        for (final Entry entry : entries) {
            final String[] words = entry.text().split(" ", 3);
            final int thread = Integer.parseInt(words[0]);
            assertEquals(next[thread]++, Long.parseLong(words[1]), "order of thread " + thread);
            assertEquals("x".repeat(thread * 37), words[2]);
        }
        long total = 0;
        for (int t = 0; t < acknowledged.length; t++) {
            final long more = next[t] - acknowledged[t];
            assertTrue(more == 0 || more == 1,
                "thread " + t + ": " + acknowledged[t] + " acknowledged, " + next[t] + " in the ring");
            total += acknowledged[t];
        }
        return total;
    }
}
