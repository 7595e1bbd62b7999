package io.github.farlog.bench;

import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.HdrHistogram.Histogram;

/**
 * One JVM of a run: measures one group of targets, whose blocks alternate, and prints a line for each. Started by
 * {@link Bench}.
 */
public final class Fork {
    /** Begins the lines that are results; libraries print as well. */
    static final String MARK = "@@";
    /** Appends a second of the paced runs, and bytes of garbage that come with each. */
    static final int PACED_RATE = 50_000;
    static final int LOG_RATE = 20_000;
    static final int GARBAGE_BYTES = 4096;

    private static final int PAYLOAD_LEN = 192;
    private static final long HIGHEST_NANOS = 60_000_000_000L;
    private static final int ALLOC_COUNT = 40_000;
    private static final int ALLOC_PASSES = 10;
    private static final long ALLOC_WARM_NANOS = 2_000_000_000L;

    private final Path folder;
    private final double seconds;
    private final double warmSeconds;

    private Fork(final Path folder, final double seconds) {
        this.folder = folder;
        this.seconds = seconds;
        warmSeconds = Math.min(2.0, Math.max(seconds / 2, 0.05));
    }

    /**
     * Measures.
     *
     * @param args group, folder for files on a disk, seconds for each target
     * @throws Throwable whatever a target throws
     */
    public static void main(final String[] args) throws Throwable {
        final Path folder = Path.of(args[1]);
        Files.createDirectories(folder);
        new Fork(folder, Double.parseDouble(args[2])).run(args[0]);
        System.out.flush();
        Runtime.getRuntime().halt(0); // some libraries leave threads behind
    }

    private void run(final String group) throws Throwable {
        switch (group) {
            case "append" -> closedLoop(appends());
            case "append.open" ->
                openLoop(List.of(new NativeTarget("c", PAYLOAD_LEN), segment()), PACED_RATE, GARBAGE_BYTES);
            case "alloc" -> allocations();
            case "log4j2" -> log(this::closedLoop);
            case "log4j2.open" -> log(targets -> openLoop(targets.subList(0, 2), LOG_RATE, GARBAGE_BYTES));
            case "log4j2.open.bare" -> log(targets -> openLoop(targets.subList(0, 2), LOG_RATE, 0));
            default -> closedLoop(List.of(neighbour(group, folder)));
        }
    }

    /** All groups that measure one system alone. */
    static List<String> neighbours() {
        return List.of("farlog", "chronicle", "aeron", "disruptor", "farlog.msync", "chronicle.sync", "aeron.sync",
            "disruptor.force");
    }

    static Target neighbour(final String name, final Path folder) throws Exception {
        return switch (name) {
            case "farlog" -> FarlogTarget.inMemory(name, FarlogTarget.Form.BYTES, Target.RECORD_LEN);
            case "farlog.msync" -> FarlogTarget.onDisk(name, folder, Target.RECORD_LEN);
            case "chronicle" -> new ChronicleTarget(name, folder, false);
            case "chronicle.sync" -> new ChronicleTarget(name, folder, true);
            case "aeron" -> new AeronTarget(name, folder, false);
            case "aeron.sync" -> new AeronTarget(name, folder, true);
            case "disruptor" -> new DisruptorTarget(name, folder, false);
            case "disruptor.force" -> new DisruptorTarget(name, folder, true);
            default -> throw new IllegalArgumentException("no such group: " + name);
        };
    }

    private static FarlogTarget segment() throws Exception {
        return FarlogTarget.inMemory("segment", FarlogTarget.Form.SEGMENT, PAYLOAD_LEN);
    }

    private static List<Target> javaAppends() throws Exception {
        return List.of(segment(), FarlogTarget.inMemory("bytes", FarlogTarget.Form.BYTES, PAYLOAD_LEN),
            FarlogTarget.inMemory("claim", FarlogTarget.Form.CLAIM, PAYLOAD_LEN));
    }

    private static List<Target> appends() throws Throwable {
        final List<Target> targets = new ArrayList<>();
        if (System.getProperty(NativeTarget.PROPERTY) != null) {
            targets.add(new NativeTarget("c", PAYLOAD_LEN));
        }
        targets.addAll(javaAppends());
        return targets;
    }

    /** How targets are measured. */
    private interface Loop {
        void run(List<? extends Target> targets) throws Exception;
    }

    private void log(final Loop loop) throws Exception {
        try (LogTarget.Context context = new LogTarget.Context(folder)) {
            loop.run(List.of(context.farlog(), context.file(), context.forced()));
        }
    }

    private void closedLoop(final List<? extends Target> targets) throws Exception {
        measure(targets, new Turn() {
            @Override
            public int count(final Target target) {
                return target.blockCount();
            }

            @Override
            public void run(final Target target, final long[] samples, final int count) throws Exception {
                target.block(samples, count);
            }
        });
    }

    /**
     * Turns of a second, each behind a collection of its own: every turn has the same room to fill, and so as many
     * collections as any other. With short turns, in which the few collections of a fork come to one rival or the other
     * by chance, the tail says who had more of them.
     */
    private void openLoop(final List<? extends Target> targets, final int rate, final int garbageBytes)
        throws Exception {
        final Garbage garbage = new Garbage(garbageBytes);
        final int turnCount = (int) (rate * Math.min(1.0, seconds));
        measure(targets, new Turn() {
            @Override
            public int count(final Target target) {
                return turnCount;
            }

            @Override
            public void run(final Target target, final long[] samples, final int count) throws Exception {
                System.gc();
                target.paced(samples, count, 1_000_000_000L / rate, garbage);
            }
        });
    }

    /** What a target does when it is its turn. */
    private interface Turn {
        int count(Target target);

        void run(Target target, long[] samples, int count) throws Exception;
    }

    private void measure(final List<? extends Target> targets, final Turn turn) throws Exception {
        final List<Histogram> histograms = new ArrayList<>();
        targets.forEach(target -> histograms.add(new Histogram(HIGHEST_NANOS, 3)));
        alternate(targets, histograms, turn, warmSeconds);
        histograms.forEach(Histogram::reset);
        final long collected = collections();
        alternate(targets, histograms, turn, seconds);
        final long collectionCount = collections() - collected;
        for (int i = 0; i < targets.size(); i++) {
            print(targets.get(i).name(), histograms.get(i), collectionCount);
        }
        for (final Target target : targets) {
            target.close();
        }
    }

    /** One after the other; the first twentieth of a turn pays for what ran before it. */
    private static void alternate(final List<? extends Target> targets, final List<Histogram> histograms,
        final Turn turn,
        final double secondsEach) throws Exception {
        final long[] samples = new long[targets.stream().mapToInt(turn::count).max().orElse(0)];
        final long end = System.nanoTime() + (long) (secondsEach * targets.size() * 1e9);
        while (System.nanoTime() < end) {
            for (int i = 0; i < targets.size(); i++) {
                final Target target = targets.get(i);
                final int count = turn.count(target);
                turn.run(target, samples, count);
                for (int j = count / 20; j < count; j++) {
                    histograms.get(i).recordValue(Math.clamp(samples[j], 0, HIGHEST_NANOS));
                }
                target.rest(count);
            }
        }
    }

    private static long collections() {
        return ManagementFactory.getGarbageCollectorMXBeans().stream()
            .mapToLong(GarbageCollectorMXBean::getCollectionCount).sum();
    }

    private static void print(final String name, final Histogram histogram, final long collectionCount) {
        System.out.printf("%s %s %d %d %d %d %d %d %d%n", MARK, name, histogram.getValueAtPercentile(50),
            histogram.getValueAtPercentile(99), histogram.getValueAtPercentile(99.9),
            histogram.getValueAtPercentile(99.99),
            histogram.getMaxValue(), histogram.getTotalCount(), collectionCount);
    }

    /**
     * What the appending thread allocates, by the JVM's own count, when everything is warm; printed in the place of the
     * median.
     */
    private void allocations() throws Exception {
        for (final Target target : javaAppends()) {
            final long warmEnd = System.nanoTime() + ALLOC_WARM_NANOS;
            while (System.nanoTime() < warmEnd) {
                allocated(target);
            }
            long bytes = 0;
            for (int i = 0; i < ALLOC_PASSES; i++) {
                bytes += allocated(target);
            }
            System.out.printf("%s %s %d %d %d %d %d %d 0%n", MARK, target.name(), bytes, bytes, bytes, bytes, bytes,
                ALLOC_PASSES * ALLOC_COUNT);
            target.close();
        }
    }

    private static long allocated(final Target target) throws Exception {
        final var threads = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
        final long before = threads.getCurrentThreadAllocatedBytes();
        for (int i = 0; i < ALLOC_COUNT; i++) {
            target.append(i);
        }
        final long bytes = threads.getCurrentThreadAllocatedBytes() - before;
        for (int i = 0; i < ALLOC_COUNT; i += target.blockCount()) {
            target.rest(target.blockCount());
        }
        return bytes;
    }
}
