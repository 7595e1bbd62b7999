package io.github.farlog.bench;

import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import org.openjdk.jmh.profile.GCProfiler;
import org.openjdk.jmh.results.Result;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.OptionsBuilder;

/** Runs {@link AppendJmh} with its count of allocated bytes. */
final class Jmh {
    private Jmh() {
    }

    /** Form, to nanoseconds and bytes a record. */
    static Map<String, double[]> run(final int forkCount, final Path log) throws RunnerException {
        System.err.println("JMH: 3 forms, " + forkCount + " forks each");
        final var options = new OptionsBuilder().include(AppendJmh.class.getName() + ".append").forks(forkCount)
            .jvmArgsAppend("-XX:+UseG1GC", "-Xms256m", "-Xmx256m").addProfiler(GCProfiler.class).output(log + ".jmh")
            .build();
        final Map<String, double[]> found = new LinkedHashMap<>();
        for (final RunResult result : new Runner(options).run()) {
            final Result<?> bytes = result.getSecondaryResults().get("gc.alloc.rate.norm");
            found.put(result.getParams().getParam("form"),
                new double[] {result.getPrimaryResult().getScore() / AppendJmh.BATCH_COUNT,
                    bytes == null ? 0 : bytes.getScore() / AppendJmh.BATCH_COUNT});
        }
        return found;
    }
}
