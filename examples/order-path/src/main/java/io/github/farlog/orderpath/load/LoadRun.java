package io.github.farlog.orderpath.load;

import io.github.farlog.orderpath.record.OrderMessages;
import io.github.farlog.orderpath.record.Recorder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Runs load steps, each with new books. Latencies of the warm-up at the beginning of a step are not counted. A step
 * whose orders are not all answered when its time and a patience are over is given up: it is overloaded, and its table
 * says so.
 */
public final class LoadRun {
    private static final long START_DELAY_NS = 20_000_000;

    private final Duration warmUp;
    private final Duration measured;
    private final Duration patience;
    private final Idle idle;
    private final String runName;
    private int stepCount;

    /** @param runName part of every ClOrdID: unique over the runs that one stream ever sees; at most 8 characters */
    public LoadRun(final Duration warmUp, final Duration measured, final Duration patience, final Idle idle,
        final String runName) {
        this.warmUp = warmUp;
        this.measured = measured;
        this.patience = patience;
        this.idle = idle;
        this.runName = runName;
    }

    /** Runs a step to its end. Blocks for its time, at most the patience more. */
    public Latencies run(final LoadStep step, final RecorderSource source) throws Exception {
        stepCount++;
        final List<Recorder> recorders = source.open(step.pairCount());
        try {
            return runPairs(makePairs(step, recorders));
        } finally {
            recorders.forEach(Recorder::close);
        }
    }

    private List<MarketPair> makePairs(final LoadStep step, final List<Recorder> recorders) {
        final long startNs = System.nanoTime() + START_DELAY_NS;
        final long stepNs = warmUp.plus(measured).toNanos();
        final long count = Math.max(1, (long) (stepNs / 1e9 * step.ratePerSecond()));
        final OrderSender.Schedule schedule = new OrderSender.Schedule(startNs, startNs + warmUp.toNanos(),
            startNs + stepNs + patience.toNanos(), step.ratePerSecond(), count);
        final List<MarketPair> pairs = new ArrayList<>();
        for (int i = 0; i < step.pairCount(); i++) {
            final String name = runName + "-" + stepCount + (char) ('A' + i) + "-";
            pairs.add(new MarketPair(new OrderFlow(i + 1), new OrderMessages(name, "FLG" + (char) ('A' + i)),
                recorders.get(i), idle,
                schedule));
        }
        return pairs;
    }

    private static Latencies runPairs(final List<MarketPair> pairs) throws Exception {
        try (ExecutorService threads = Executors.newFixedThreadPool(pairs.size())) {
            final List<Callable<MarketPair>> work = new ArrayList<>();
            for (final MarketPair pair : pairs) {
                work.add(() -> {
                    pair.run();
                    return pair;
                });
            }
            final Latencies latencies = new Latencies();
            for (final Future<MarketPair> done : threads.invokeAll(work)) {
                done.get().addTo(latencies);
            }
            return latencies;
        }
    }
}
