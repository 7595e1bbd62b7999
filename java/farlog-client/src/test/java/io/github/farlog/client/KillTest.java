package io.github.farlog.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.ProcessBuilder.Redirect;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.HashMap;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;

/**
 * A JVM that appends is killed by SIGKILL at a random moment, over and over on the same ring. After each kill the ring
 * is read as another process finds it: every record whose append had returned is there, whole, at the position that was
 * named, each thread's in order and without a hole; at most one more of each thread is there, the one that was under
 * way. Repeat a run with {@code -Dfarlog.kill.seed=N}, make it longer with {@code -Dfarlog.kills=N}.
 */
class KillTest {
    private static final int KILLS = Integer.getInteger("farlog.kills", 40);
    private static final long SEED = Long.getLong("farlog.kill.seed", System.nanoTime());
    private static final int SILENT_MAX = 3; // kills that came before the first acknowledgement

    @Test
    void shouldHoldEveryAcknowledgedRecordAfterEachKill() throws Exception {
        System.out.println("KillTest: seed=" + SEED + " kills=" + KILLS);
        try (ExecutorService lanes = Executors.newFixedThreadPool(2)) {
            final List<Future<long[]>> results = new ArrayList<>();
            results.add(lanes.submit(() -> lane(TestRing.inMemory(64 << 20), KILLS / 2, new Random(SEED))));
            results.add(lanes.submit(() -> lane(TestRing.onDisk(16 << 20), KILLS - KILLS / 2, new Random(SEED + 1))));
            long kills = 0;
            long acknowledged = 0;
            for (final Future<long[]> result : results) {
                kills += result.get()[0];
                acknowledged += result.get()[1];
            }
            System.out.println("KillTest: " + kills + " kills, " + acknowledged + " acknowledged records, all there");
            assertEquals(KILLS, kills);
            assertTrue(acknowledged > KILLS * 10L, "so few acknowledgements prove little: " + acknowledged);
        }
    }

    private static long[] lane(final TestRing made, final int kills, final Random random) throws Exception {
        long acknowledged = 0;
        try (TestRing ring = made) {
            for (int kill = 0; kill < kills; kill++) {
                acknowledged += killOnce(ring, kill % 3 != 2, random);
            }
        }
        return new long[] {kills, acknowledged};
    }

    private static int killOnce(final TestRing ring, final boolean isShared, final Random random) throws Exception {
        final List<String> command = Programs.java("-cp", System.getProperty("java.class.path"),
            KillChild.class.getName(), ring.uri,
            ring.options().level().name(), Boolean.toString(isShared));
        command.add(1, "-D" + NativeLibrary.PATH_PROPERTY + "=" + System.getProperty(NativeLibrary.PATH_PROPERTY));
        final Process child = new ProcessBuilder(command).redirectError(Redirect.INHERIT).start();
        final ByteArrayOutputStream acks = new ByteArrayOutputStream();
        final InputStream in = child.getInputStream();
        final boolean isEarly = random.nextInt(SILENT_MAX * 10) == 0; // while it starts, opens, recovers
        if (!isEarly) {
            acks.write(in.readNBytes(KillChild.ACK_LEN));
        }
        final long delay = isEarly ? 20_000_000L + random.nextInt(200_000_000) : random.nextInt(20_000_000);
        final Thread killer = Thread.ofPlatform().start(() -> {
            java.util.concurrent.locks.LockSupport.parkNanos(delay);
            child.toHandle().destroyForcibly(); // by the handle: the process object would close its streams too
        });
        in.transferTo(acks);
        killer.join();
        assertEquals(128 + 9, child.waitFor(), "seed=" + SEED + ": the child ended by itself");
        return check(ring.drain(), acks.toByteArray());
    }

    private static int check(final List<TestRing.Read> records, final byte[] acks) throws IOException {
        final long[] last = new long[KillChild.THREADS];
        final Map<Long, TestRing.Read> byLsn = new HashMap<>();
        for (final TestRing.Read record : records) {
            final ByteBuffer data = ByteBuffer.wrap(record.payload());
            final int thread = data.getInt();
            final long number = data.getLong();
            assertEquals(last[thread] + 1, number,
                "seed=" + SEED + ": thread " + thread + " is out of order or has a hole");
            assertArrayEquals(TestRing.numbered(thread, number, KillChild.FILLER_MAX), record.payload(),
                "seed=" + SEED);
            last[thread] = number;
            byLsn.put(record.lsn(), record);
        }
        assertEquals(0, acks.length % KillChild.ACK_LEN, "a torn line of the pipe");
        final ByteBuffer acknowledged = ByteBuffer.wrap(acks);
        final long[] lastAcknowledged = new long[KillChild.THREADS];
        while (acknowledged.hasRemaining()) {
            final int thread = acknowledged.getInt();
            final long number = acknowledged.getLong();
            final TestRing.Read record = byLsn.get(acknowledged.getLong());
            assertTrue(record != null, "seed=" + SEED + ": lost: thread " + thread + " number " + number);
            assertEquals(number, ByteBuffer.wrap(record.payload()).getLong(4), "seed=" + SEED);
            lastAcknowledged[thread] = number;
        }
        for (int thread = 0; thread < KillChild.THREADS; thread++) {
            assertTrue(last[thread] <= lastAcknowledged[thread] + 1, "seed=" + SEED + ": more than one was under way");
        }
        return acks.length / KillChild.ACK_LEN;
    }
}
