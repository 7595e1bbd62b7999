package io.github.farlog.orderpath.load;

import java.util.Locale;
import java.util.Map;
import org.HdrHistogram.Histogram;

/** Prints the latencies of a run's load steps in microseconds: total, process, and how many orders were answered. */
public final class LatencyTable {
    private static final double[] PERCENTILES = {50, 90, 99, 99.9, 99.99};
    private static final String HEADING = String.format("%-10s | %9s %9s %9s %9s %9s %9s %9s", "orders/s", "mean",
        "p50", "p90",
        "p99", "p99.9", "p99.99", "max");

    private LatencyTable() {
    }

    /** The table under a title; lines end with a newline. */
    public static String print(final String title, final Map<LoadStep, Latencies> steps) {
        final StringBuilder out = new StringBuilder();
        printPart(out, title + ": total latency, us", steps, true);
        printPart(out, title + ": process latency, us", steps, false);
        return out.toString();
    }

    private static void printPart(final StringBuilder out, final String title, final Map<LoadStep, Latencies> steps,
        final boolean isTotal) {
        out.append(title).append('\n').append(HEADING).append(isTotal ? " | answered" : "").append('\n');
        steps.forEach((step, latencies) -> {
            out.append(String.format("%-10s |", step));
            appendNumbers(out, isTotal ? latencies.totalNs() : latencies.processNs());
            if (isTotal) {
                final double percent = 100.0 * latencies.answeredCount() / latencies.wantedCount();
                out.append(
                    String.format(Locale.ROOT, " | %.0f %%%s", Math.floor(percent), percent < 100 ? " overload" : ""));
            }
            out.append('\n');
        });
        out.append('\n');
    }

    private static void appendNumbers(final StringBuilder out, final Histogram ns) {
        out.append(micros(ns.getMean()));
        for (final double percentile : PERCENTILES) {
            out.append(micros(ns.getValueAtPercentile(percentile)));
        }
        out.append(micros(ns.getMaxValue()));
    }

    private static String micros(final double ns) {
        return String.format(Locale.ROOT, ns < 100_000 ? " %9.2f" : " %9.0f", ns / 1000);
    }
}
