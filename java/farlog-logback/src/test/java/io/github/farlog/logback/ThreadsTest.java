package io.github.farlog.logback;

import static org.junit.jupiter.api.Assertions.assertEquals;

import ch.qos.logback.classic.Logger;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadFactory;
import org.junit.jupiter.api.Test;

/** Many threads at once: nothing is lost, and each thread's events are in the order in which it logged them. */
class ThreadsTest {
    private static void log(final Logger logger, final ThreadFactory factory, final int threads, final int events)
        throws InterruptedException {
        final List<Thread> all = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
            final int thread = t;
            all.add(factory.newThread(() -> {
                for (int i = 0; i < events; i++) {
                    logger.info("{} {}", thread, i);
                }
            }));
        }
        all.forEach(Thread::start);
        for (final Thread thread : all) {
            thread.join();
        }
    }

    /** How many events of each thread; fails when one is missing, doubled or out of order. */
    static Map<String, Integer> count(final List<String> texts) {
        final Map<String, Integer> next = new HashMap<>();
        for (final String text : texts) {
            final String[] words = text.split(" ");
            assertEquals(next.getOrDefault(words[0], 0), Integer.parseInt(words[1]), () -> "thread " + words[0]);
            next.merge(words[0], 1, Integer::sum);
        }
        return next;
    }

    private static void shouldKeepAll(final ThreadFactory factory, final int threads, final int events)
        throws InterruptedException {
        try (TestRing ring = new TestRing(64 << 20); TestContext test = TestContext.of(TestContext.xml(ring, ""))) {
            log(test.logger("x"), factory, threads, events);
            final Map<String, Integer> found = count(ring.texts());
            assertEquals(threads, found.size());
            found.forEach((thread, count) -> assertEquals(events, count, () -> "thread " + thread));
        }
    }

    @Test
    void shouldKeepAllOfTenThreads() throws InterruptedException {
        shouldKeepAll(Thread.ofPlatform().factory(), 10, 5000);
    }

    @Test
    void shouldKeepAllOfThousandVirtualThreads() throws InterruptedException {
        shouldKeepAll(Thread.ofVirtual().factory(), 1000, 50);
    }

    /** A file on a disk, each call waits for msync: many threads share one. */
    @Test
    void shouldKeepAllAtLevelPersistentOnAFile() throws Exception {
        final Path file = Path.of("target", "persistent-" + ProcessHandle.current().pid() + ".ring").toAbsolutePath();
        io.github.farlog.client.Ring.format("mem:" + file,
            io.github.farlog.client.RingOptions.defaults().withSizeBytes(8 << 20));
        try (TestRing ring = new TestRing(1 << 20);
            TestContext test = TestContext.of(
                TestContext.xml(ring,
                    "<uri>mem:" + file + "</uri><level>persistent</level><deadline>30s</deadline>"))) {
            log(test.logger("x"), Thread.ofPlatform().factory(), 10, 20);
            assertEquals(0, ring.texts().size());
            try (TestRing there = new TestRing(file)) {
                assertEquals(10, count(there.texts()).size());
                assertEquals(200, there.texts().size());
            }
        } finally {
            Files.deleteIfExists(file);
        }
    }
}
