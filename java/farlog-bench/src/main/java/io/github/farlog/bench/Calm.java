package io.github.farlog.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * How much of the machine other programs take. A fork that they disturbed says little about its tail; it is run again
 * as long as there is patience for it, and otherwise reported with what they took.
 */
final class Calm {
    /** Of one core: more disturbs. */
    static final double SHARE_MAX = 0.25;
    private static final double TICKS_PER_SECOND = 100;
    private static final long PROBE_NANOS = 1_500_000_000L;

    private long patienceNanos;
    private long startNanos;
    private double startOthers;

    Calm(final double patienceSeconds) {
        patienceNanos = (long) (patienceSeconds * 1e9);
    }

    /** Waits until others are quiet, or patience is at its end. */
    void await() throws IOException, InterruptedException {
        while (patienceNanos > 0) {
            start();
            Thread.sleep(PROBE_NANOS / 1_000_000);
            if (share() <= SHARE_MAX) {
                return;
            }
            patienceNanos -= PROBE_NANOS;
        }
    }

    void start() throws IOException {
        startNanos = System.nanoTime();
        startOthers = othersSeconds();
    }

    /** Cores that others took since start. */
    double share() throws IOException {
        return (othersSeconds() - startOthers) / ((System.nanoTime() - startNanos) / 1e9);
    }

    /** True: run it again; the time it took is taken from the patience. */
    boolean isWorthAgain(final double share) {
        patienceNanos -= share > SHARE_MAX ? System.nanoTime() - startNanos : 0;
        return share > SHARE_MAX && patienceNanos > 0;
    }

    /** Busy time of all cores less this process's and that of its children that have ended. */
    private static double othersSeconds() throws IOException {
        final String[] all = Files.readAllLines(Path.of("/proc/stat")).get(0).trim().split("\\s+");
        final String self = Files.readString(Path.of("/proc/self/stat"));
        final String[] own = self.substring(self.lastIndexOf(')') + 2).split(" ");
        double ticks = 0;
        for (final int busy : new int[] {1, 2, 3, 6, 7, 8}) { // user, nice, system, irq, softirq, steal
            ticks += Double.parseDouble(all[busy]);
        }
        for (final int used : new int[] {11, 12, 13, 14}) { // utime, stime, cutime, cstime
            ticks -= Double.parseDouble(own[used]);
        }
        return ticks / TICKS_PER_SECOND;
    }
}
