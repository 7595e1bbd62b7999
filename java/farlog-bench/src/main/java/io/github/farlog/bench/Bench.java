package io.github.farlog.bench;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The whole run: rounds of forks, then the table. In a round every group gets one JVM, in an order that turns from
 * round to round, so that a noisy neighbour meets all; a ratio is taken inside a round, and the median of the rounds is
 * reported.
 */
public final class Bench {
    private static final List<String> COLLECTORS = List.of("g1", "zgc");

    private final Path folder;
    private final Path log;
    private final int forkCount;
    private final double seconds;
    private final String only;
    private final Calm calm;
    /** Group and target, to what each round said. */
    private final Map<String, List<Sample>> samples = new LinkedHashMap<>();
    private double othersMax;

    private Bench(final Path folder, final int forkCount, final double seconds, final double patience,
        final String only) {
        this.folder = folder;
        this.forkCount = forkCount;
        this.seconds = seconds;
        this.only = only;
        calm = new Calm(patience);
        log = folder.resolve("forks.log");
    }

    /**
     * Measures and reports.
     *
     * @param args folder for files on a disk, result file, forks, seconds, seconds of patience; then how the names of
     * the wanted groups begin, with commas between them
     * @throws Exception when a fork fails
     */
    public static void main(final String[] args) throws Exception {
        final Path folder = Path.of(args[0]);
        Files.createDirectories(folder);
        final Bench bench = new Bench(folder, Integer.parseInt(args[2]), Double.parseDouble(args[3]),
            Double.parseDouble(args[4]),
            args.length > 5 ? args[5] : "");
        bench.rounds();
        System.err.printf("at most %.2f cores were taken by other programs during a fork%n", bench.othersMax);
        final Map<String, double[]> jmh = bench.isWanted("jmh") ? Jmh.run(bench.forkCount, bench.log) : Map.of();
        new Report(Path.of(args[1]), bench.samples, jmh, bench.forkCount).write();
    }

    private static List<String> groups() {
        final List<String> groups = new ArrayList<>(List.of("append", "alloc"));
        for (final String collector : COLLECTORS) {
            groups.add("append.open." + collector);
        }
        groups.add("log4j2");
        for (final String collector : COLLECTORS) {
            groups.add("log4j2.open." + collector);
            groups.add("log4j2.open.bare." + collector);
        }
        groups.addAll(Fork.neighbours());
        return groups;
    }

    private void rounds() throws IOException, InterruptedException {
        final List<String> groups = groups().stream().filter(this::isWanted).toList();
        Files.deleteIfExists(log);
        for (int round = 0; round < forkCount; round++) {
            final List<String> turned = new ArrayList<>(groups);
            Collections.rotate(turned, -round * 5);
            for (int i = 0; i < turned.size(); i++) {
                System.err.printf("round %d of %d, %2d of %d: %s%n", round + 1, forkCount, i + 1, turned.size(),
                    turned.get(i));
                calmFork(turned.get(i));
            }
        }
    }

    private boolean isWanted(final String group) {
        return Arrays.stream(only.split(",")).anyMatch(group::startsWith);
    }

    private void calmFork(final String group) throws IOException, InterruptedException {
        List<Sample> found;
        double share;
        do {
            calm.await();
            calm.start();
            found = fork(group);
            share = calm.share();
        } while (calm.isWorthAgain(share));
        for (final Sample sample : found) {
            samples.computeIfAbsent(group + "/" + sample.name(), key -> new ArrayList<>()).add(sample);
        }
        if (share > Calm.SHARE_MAX) {
            System.err.printf("  other programs took %.2f cores meanwhile%n", share);
        }
        othersMax = Math.max(othersMax, share);
    }

    private List<Sample> fork(final String group) throws IOException, InterruptedException {
        final Path files = folder.resolve("files");
        remove(files);
        final String collector = group.endsWith(".zgc") ? "zgc" : "g1";
        final String plain = group.replace("." + collector, "");
        final List<String> command = new ArrayList<>(javaCommand());
        command.addAll(collector.equals("zgc") ? List.of("-XX:+UseZGC", "-Xms512m", "-Xmx512m")
            : List.of("-XX:+UseG1GC", "-Xms512m", "-Xmx512m", "-Xmn64m"));
        command.addAll(List.of(Fork.class.getName(), plain, files.toString(), Double.toString(seconds)));
        final Process process = new ProcessBuilder(command)
            .redirectError(ProcessBuilder.Redirect.appendTo(log.toFile())).start();
        final Thread undo = new Thread(() -> {
            process.destroyForcibly().onExit().join();
            removeRings(process.pid());
        });
        Runtime.getRuntime().addShutdownHook(undo);
        final List<Sample> found = new ArrayList<>();
        try (var lines = process.inputReader()) {
            lines.lines().map(Sample::parse).filter(sample -> sample != null).forEach(found::add);
        }
        final int exit = process.waitFor();
        Runtime.getRuntime().removeShutdownHook(undo);
        removeRings(process.pid());
        if (exit != 0 || found.isEmpty()) {
            throw new IllegalStateException(
                group + ": exit code " + exit + ", " + found.size() + " results; see " + log);
        }
        remove(files);
        return found;
    }

    /** This JVM's own command, with the flags it was given. */
    static List<String> javaCommand() {
        final List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments());
        command.add("-cp");
        command.add(System.getProperty("java.class.path"));
        return command;
    }

    /** What a fork that was killed has left in memory. */
    private static void removeRings(final long pid) {
        try (DirectoryStream<Path> left = Files.newDirectoryStream(FarlogTarget.MEMORY, "farlog-bench-" + pid + "-*")) {
            for (final Path path : left) {
                remove(path);
            }
        } catch (final IOException e) {
            System.err.println("bench-java: " + e);
        }
    }

    static void remove(final Path tree) throws IOException {
        if (!Files.exists(tree)) {
            return;
        }
        Files.walkFileTree(tree, new SimpleFileVisitor<>() {
            @Override
            public FileVisitResult visitFile(final Path file, final BasicFileAttributes attributes) throws IOException {
                Files.delete(file);
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult postVisitDirectory(final Path directory, final IOException failure)
                throws IOException {
                Files.delete(directory);
                return FileVisitResult.CONTINUE;
            }
        });
    }
}
