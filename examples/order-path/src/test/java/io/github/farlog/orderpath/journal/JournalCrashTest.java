package io.github.farlog.orderpath.journal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.farlog.client.Level;
import io.github.farlog.orderpath.book.Command;
import io.github.farlog.orderpath.book.OrderBook;
import io.github.farlog.orderpath.load.OrderFlow;
import io.github.farlog.orderpath.record.FarlogStream;
import io.github.farlog.orderpath.testkit.Child;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * The journal program is killed at random moments and started again, over and over. After each kill the journal must
 * hold every acknowledged command, and the book that it makes must be the one of the flow's first so many commands:
 * nothing missing in the middle, nothing twice, nothing torn. That acknowledgements lie in a mapped file lets them
 * survive the kill by themselves.
 */
final class JournalCrashTest {
    private static final int FARLOG_KILLS = Integer.getInteger("farlog.kills", 40);
    private static final int FILE_KILLS = FARLOG_KILLS / 4;
    private static final int LANES = 2;
    private static final int KILL_WITHIN_MS = 250;
    private static final long PATIENCE_MS = 20_000;
    private static final String RATE = "30000";

    @TempDir
    Path folder;

    @Test
    void shouldHoldEveryAcknowledgedOrderWhenKilledAtRandom() throws Exception {
        final Path ring = Path.of("/dev/shm", "order-path-" + ProcessHandle.current().pid());
        final List<Path> rings = List.of(Path.of(ring + ".0"), Path.of(ring + ".1"));
        try {
            final List<Thread> lanes = new ArrayList<>();
            final List<Throwable> failures = java.util.Collections.synchronizedList(new ArrayList<>());
            for (int lane = 0; lane < LANES; lane++) {
                final Path own = rings.get(lane);
                lanes
                    .add(Thread.ofPlatform().start(() -> run(new Lane("farlog", own), FARLOG_KILLS / LANES, failures)));
            }
            for (final Thread lane : lanes) {
                lane.join();
            }
            assertEquals(List.of(), failures);
        } finally {
            for (final Path path : rings) {
                Files.deleteIfExists(path);
            }
        }
    }

    @Test
    void shouldHoldEveryAcknowledgedOrderWhenTheFileJournallerIsKilled() throws Exception {
        final List<Throwable> failures = new ArrayList<>();
        run(new Lane("file", folder.resolve("journal")), FILE_KILLS, failures);
        assertEquals(List.of(), failures);
    }

    private static void run(final Lane lane, final int kills, final List<Throwable> failures) {
        try {
            for (int i = 0; i < kills; i++) {
                lane.killOnce();
            }
            System.out.printf(
                "%s: seed %d, %d kills, %d commands acknowledged; after %d kills the journal was ahead of that%n",
                lane.kind,
                lane.seed, kills, lane.acknowledged(), lane.aheadCount);
        } catch (final Exception | AssertionError e) {
            failures.add(new AssertionError(lane.kind + " seed " + lane.seed + ": " + e.getMessage(), e));
        }
    }

    /** One journal and what was acknowledged of it. */
    private final class Lane {
        private final String kind;
        private final Path journal;
        private final Path acks = folder.resolve("acks-" + System.identityHashCode(this));
        private final long seed = System.nanoTime();
        private final Random random = new Random(seed);
        private int aheadCount;

        Lane(final String kind, final Path journal) {
            this.kind = kind;
            this.journal = journal;
        }

        void killOnce() throws Exception {
            final long before = acknowledged();
            final Process child = start();
            try {
                awaitMore(child, before);
                Thread.sleep(random.nextInt(KILL_WITHIN_MS)); // draws the moment of the kill; waits for no condition
                assertTrue(child.isAlive(),
                    () -> "the child ended by itself: " + read(folder.resolve(acks.getFileName() + ".log")));
            } finally {
                child.destroyForcibly().waitFor(10, TimeUnit.SECONDS);
            }
            check();
        }

        private Process start() throws Exception {
            return Child.start(folder.resolve(acks.getFileName() + ".log"), "journal", "--journal", kind, "--ring",
                "mem:" + journal,
                "--size", "64MiB", "--file", journal.toString(), "--acks", acks.toString(), "--orders", "100000000",
                "--rate", RATE);
        }

        private void awaitMore(final Process child, final long before) throws Exception {
            for (long waited = 0; acknowledged() <= before && child.isAlive(); waited += 5) {
                assertTrue(waited < PATIENCE_MS, "no acknowledgement in " + PATIENCE_MS + " ms");
                Thread.sleep(5);
            }
        }

        private void check() throws Exception {
            final long acknowledged = acknowledged();
            final OrderBook remade = JournalProgram.newBook();
            final long found;
            try (Journal open = open()) {
                found = open.replay(command -> remade.apply(command, report -> {}));
            }
            assertTrue(found >= acknowledged, "acknowledged " + acknowledged + ", the journal has " + found);
            aheadCount += found > acknowledged ? 1 : 0;
            final OrderBook expected = JournalProgram.newBook();
            final OrderFlow flow = new OrderFlow(1);
            final Command command = new Command();
            for (long i = 0; i < found; i++) {
                flow.next(command);
                expected.apply(command, report -> {});
            }
            assertEquals(expected.checksum(), remade.checksum());
        }

        private Journal open() throws Exception {
            return "farlog".equals(kind) ? new FarlogJournal(new FarlogStream("mem:" + journal, Level.VISIBLE))
                : new RandomAccessFileJournal(journal, false);
        }

        long acknowledged() throws Exception {
            if (!Files.exists(acks) || Files.size(acks) < Long.BYTES) {
                return 0;
            }
            return ByteBuffer.wrap(Files.readAllBytes(acks)).order(ByteOrder.LITTLE_ENDIAN).getLong();
        }
    }

    private static String read(final Path path) {
        try {
            return Files.readString(path);
        } catch (final java.io.IOException e) {
            return e.toString();
        }
    }
}
