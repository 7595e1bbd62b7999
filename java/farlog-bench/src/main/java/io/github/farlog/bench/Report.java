package io.github.farlog.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.ToDoubleFunction;

/** Result lines, one a case, and the tables for the terminal. */
final class Report {
    private static final List<String> QUANTILES = List.of("p50", "p99", "p999", "p9999");

    private final Path file;
    private final Map<String, List<Sample>> samples;
    private final Map<String, double[]> jmh;
    private final int forkCount;
    private final List<String> lines = new ArrayList<>();

    Report(final Path file, final Map<String, List<Sample>> samples, final Map<String, double[]> jmh,
        final int forkCount) {
        this.file = file;
        this.samples = samples;
        this.jmh = jmh;
        this.forkCount = forkCount;
    }

    void write() throws IOException {
        System.out.printf("%-32s %10s %10s %7s %-14s %-8s %s%n", "case", "ours", "floor", "ratio", "of the rounds",
            "no worse", "unit");
        appends();
        logs();
        neighbours();
        Files.write(file, lines);
        System.out.printf("bench-java: %d cases in %s%n", lines.size(), file);
    }

    private void appends() {
        for (final String form : List.of("segment", "bytes", "claim")) {
            for (final String quantile : QUANTILES) {
                pair("java.append.192." + form + "." + quantile, "append/" + form, "append/c", quantile,
                    "floor: farlog_append from C");
            }
        }
        for (final String collector : List.of("g1", "zgc")) {
            for (final String quantile : List.of("p50", "p999", "p9999", "max")) {
                pair("java.append.192.open." + collector + "." + quantile, "append.open." + collector + "/segment",
                    "append.open." + collector + "/c", quantile, "50,000/s from the due time, 4 KiB of garbage each; "
                        + collector + ", collections " + collections("append.open." + collector + "/segment"));
            }
        }
        for (final String form : List.of("segment", "bytes", "claim")) {
            final List<Sample> found = samples.get("alloc/" + form);
            if (found != null) {
                single("java.alloc." + form, median(found, sample -> sample.p50() / sample.count()), "bytes",
                    "the appending thread's count");
            }
        }
        jmh.forEach((form, scores) -> {
            single("java.jmh." + form.toLowerCase(Locale.ROOT), scores[0], "ns", "JMH, mean of an append");
            single("java.jmh." + form.toLowerCase(Locale.ROOT) + ".alloc", scores[1], "bytes",
                "JMH, gc.alloc.rate.norm; its own 10 KB an iteration of 48,000 records are in it");
        });
    }

    private void logs() {
        for (final String quantile : QUANTILES) {
            pair("log4j2.file." + quantile, "log4j2/log4j2.farlog", "log4j2/log4j2.file", quantile,
                "floor: RandomAccessFile, immediateFlush");
        }
        for (final String quantile : List.of("p50", "p999")) {
            pair("log4j2.forced." + quantile, "log4j2/log4j2.farlog", "log4j2/log4j2.forced", quantile,
                "floor: a file forced after each event");
        }
        for (final String collector : List.of("g1", "zgc")) {
            open("log4j2.open.bare." + collector, "no garbage but their own; " + collector);
            open("log4j2.open." + collector, "4 KiB of garbage each; " + collector);
        }
    }

    private void open(final String group, final String note) {
        for (final String quantile : QUANTILES) {
            pair(group + "." + quantile, group + "/log4j2.farlog", group + "/log4j2.file", quantile,
                "20,000/s from the due time, " + note + ", collections " + collections(group + "/log4j2.farlog"));
        }
    }

    /** Each in its default setting beside our memory, each durable one beside our ring in a file. */
    private void neighbours() {
        if (Fork.neighbours().stream().noneMatch(name -> samples.containsKey(name + "/" + name))) {
            return;
        }
        System.out.printf("%n%-18s %-9s %10s %10s %10s %10s%n", "256-byte record", "survives", "p50 ns", "p99", "p99.9",
            "ours/its");
        for (final String name : Fork.neighbours()) {
            final List<Sample> found = samples.get(name + "/" + name);
            if (found == null) {
                continue;
            }
            final boolean isDurable = name.contains(".");
            final String ours = isDurable ? "farlog.msync" : "farlog";
            final String survives = isDurable ? "power" : "process";
            final double[] ratio = ratio(samples.get(ours + "/" + ours), found, "p50");
            System.out.printf("%-18s %-9s %10.0f %10.0f %10.0f %10s%n", name, survives, median(found, Sample::p50),
                median(found, Sample::p99), median(found, Sample::p999), shortly(ratio[0]));
            for (final String quantile : List.of("p50", "p99", "p999")) {
                line("neighbour." + name + "." + quantile,
                    median(samples.get(ours + "/" + ours), sample -> sample.at(quantile)),
                    median(found, sample -> sample.at(quantile)),
                    ratio(samples.get(ours + "/" + ours), found, quantile), "ns",
                    "ours is " + ours + "; an acknowledgement survives " + survives);
            }
        }
    }

    private long collections(final String key) {
        return samples.getOrDefault(key, List.of()).stream().mapToLong(Sample::collections).sum();
    }

    private void pair(final String name, final String oursKey, final String floorKey, final String quantile,
        final String note) {
        final List<Sample> ours = samples.get(oursKey);
        final List<Sample> floors = samples.get(floorKey);
        if (ours == null || floors == null) {
            return;
        }
        final double[] ratio = ratio(ours, floors, quantile);
        final double our = median(ours, sample -> sample.at(quantile));
        final double floor = median(floors, sample -> sample.at(quantile));
        System.out.printf("%-32s %10.0f %10.0f %7s %-14s %-8s ns%n", name, our, floor, shortly(ratio[0]),
            shortly(ratio[1]) + " to " + shortly(ratio[2]),
            (int) ratio[3] + " of " + Math.min(ours.size(), floors.size()));
        line(name, our, floor, ratio, "ns", note);
    }

    private void single(final String name, final double value, final String unit, final String note) {
        System.out.printf("%-32s %10.2f %10s %7s %-14s %-8s %s%n", name, value, "-", "-", "", "", unit);
        line(name, value, 0, null, unit, note);
    }

    /** Median, least and greatest ratio of the rounds, and in how many of them ours was no greater. */
    private static double[] ratio(final List<Sample> ours, final List<Sample> floors, final String quantile) {
        final double[] ratios = new double[Math.min(ours == null ? 0 : ours.size(), floors.size())];
        for (int i = 0; i < ratios.length; i++) {
            ratios[i] = ours.get(i).at(quantile) / Math.max(1, floors.get(i).at(quantile));
        }
        if (ratios.length == 0) {
            return new double[] {Double.NaN, Double.NaN, Double.NaN, 0};
        }
        java.util.Arrays.sort(ratios);
        final long noWorse = java.util.Arrays.stream(ratios).filter(ratio -> ratio <= 1).count();
        return new double[] {middle(ratios), ratios[0], ratios[ratios.length - 1], noWorse};
    }

    private static double median(final List<Sample> found, final ToDoubleFunction<Sample> value) {
        return found == null ? Double.NaN : middle(found.stream().mapToDouble(value).sorted().toArray());
    }

    private static double middle(final double[] sorted) {
        return (sorted[(sorted.length - 1) / 2] + sorted[sorted.length / 2]) / 2;
    }

    private void line(final String name, final double ours, final double floor, final double[] ratio, final String unit,
        final String note) {
        lines.add("{\"name\":\"" + name + "\",\"ours\":" + number(ours) + ",\"floor\":"
            + (ratio == null ? "null" : number(floor))
            + ",\"ratio\":" + (ratio == null ? "null" : number(ratio[0])) + ",\"ratio_min\":"
            + (ratio == null ? "null" : number(ratio[1]))
            + ",\"ratio_max\":" + (ratio == null ? "null" : number(ratio[2])) + ",\"rounds_no_worse\":"
            + (ratio == null ? "null" : (int) ratio[3]) + ",\"unit\":\"" + unit + "\",\"forks\":" + forkCount
            + ",\"note\":\"" + note + "\",\"machine\":\"" + environment("FARLOG_BENCH_MACHINE") + "\",\"date\":\""
            + environment("FARLOG_BENCH_DATE") + "\"}");
    }

    /** Ratios far below 1 keep what they say. */
    private static String shortly(final double ratio) {
        return String.format(Locale.ROOT, ratio < 0.1 ? "%.4f" : ratio < 100 ? "%.2f" : "%.0f", ratio);
    }

    private static String number(final double value) {
        return Double.isFinite(value) ? String.format(Locale.ROOT, "%.3f", value) : "null";
    }

    private static String environment(final String name) {
        return System.getenv().getOrDefault(name, "unknown");
    }
}
