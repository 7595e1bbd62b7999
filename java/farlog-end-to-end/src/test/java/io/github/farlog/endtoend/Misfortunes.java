package io.github.farlog.endtoend;

import io.github.farlog.client.Ring;
import io.github.farlog.client.RingStatus;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/**
 * Kills and stops drain and target, one after another in an order drawn from a seed, until it is told to end. Then all
 * of them run.
 */
final class Misfortunes extends Thread {
    private enum Kind {
        DRAIN_KILLED, DRAIN_STOPPED, TARGET_KILLED, TARGET_STOPPED
    }

    private static final long FULL_BYTES = 1024;

    private final Fabric fabric;
    private final List<String> rings;
    private final Random random;
    private final Map<Kind, Integer> counts = new EnumMap<>(Kind.class);
    private volatile boolean isEnding;
    private int fullCount;
    private Exception failure;

    Misfortunes(final Fabric fabric, final List<String> rings, final Random random) {
        this.fabric = fabric;
        this.rings = rings;
        this.random = random;
        setDaemon(true);
    }

    @Override
    public void run() {
        final List<Kind> kinds = new ArrayList<>(List.of(Kind.values()));
        try {
            do {
                Collections.shuffle(kinds, random);
                for (final Kind kind : kinds) {
                    sleep(50 + random.nextInt(300));
                    befall(kind);
                    counts.merge(kind, 1, Integer::sum);
                }
            } while (!isEnding);
        } catch (final Exception e) {
            failure = e;
        }
    }

    private void befall(final Kind kind) throws Exception {
        switch (kind) {
            case DRAIN_KILLED -> {
                fabric.kill(Fabric.DRAIN);
                sleep(random.nextInt(300));
                fabric.start(Fabric.DRAIN);
            }
            case DRAIN_STOPPED -> {
                fabric.pause(Fabric.DRAIN);
                awaitFull();
                sleep(random.nextInt(200));
                fabric.proceed(Fabric.DRAIN);
            }
            case TARGET_KILLED -> {
                fabric.kill(Fabric.TARGET);
                sleep(random.nextInt(300));
                fabric.start(Fabric.TARGET);
            }
            case TARGET_STOPPED -> {
                fabric.pause(Fabric.TARGET);
                sleep(random.nextInt(400));
                fabric.proceed(Fabric.TARGET);
            }
        }
    }

    /** Until a ring takes no more; its application waits, or dies waiting. */
    private void awaitFull() throws Exception {
        final long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
        for (boolean isFull = false; !isFull && !isEnding && System.nanoTime() < end; sleep(10)) {
            for (final String ring : rings) {
                final RingStatus status = Ring.inspect(ring);
                isFull |= status.capacityBytes() - status.lagBytes() < FULL_BYTES;
            }
            fullCount += isFull ? 1 : 0;
        }
    }

    /** Ends with the turn of four that is under way. Gives what happened. */
    Map<String, Integer> end() throws Exception {
        isEnding = true;
        join();
        if (failure != null) {
            throw failure;
        }
        final Map<String, Integer> all = new TreeMap<>();
        counts.forEach((kind, count) -> all.put(kind.name(), count));
        all.put("RING_FULL", fullCount);
        return all;
    }
}
