package io.github.farlog.log4j2;

import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.binder.MeterBinder;
import java.util.function.Consumer;
import java.util.function.ToDoubleFunction;

/**
 * The counters of {@link RingStatsMXBean} as Micrometer meters {@code farlog.log4j2.*}, tagged with the ring's URI:
 * {@code new FarlogMetrics().bindTo(registry)}. Rings that are opened later are added by themselves. Needs micrometer-core, which this
 * module does not bring. Threads: any.
 */
public final class FarlogMetrics implements MeterBinder, AutoCloseable {
    private static final double NANOS = 1e9;

    private volatile Consumer<RingStats> listener;

    /** Bound to nothing yet. */
    public FarlogMetrics() {
    }

    @Override
    public void bindTo(final MeterRegistry registry) {
        close();
        final Consumer<RingStats> binding = stats -> bind(registry, stats);
        listener = binding;
        RingStats.forEach(binding);
    }

    /** Adds no more rings; what was added stays. */
    @Override
    public void close() {
        if (listener != null) {
            RingStats.remove(listener);
        }
    }

    private static void bind(final MeterRegistry registry, final RingStats stats) {
        count(registry, stats, "records", null, "Events recorded.", RingStats::getAppended);
        count(registry, stats, "payload", "bytes", "Payload and key of the recorded events.", RingStats::getBytes);
        count(registry, stats, "full", null, "Events that found the ring full.", RingStats::getFull);
        count(registry, stats, "unknown", null, "Events that may or may not be in the ring.", RingStats::getUnknown);
        count(registry, stats, "dropped", null, "Events dropped by policy.", RingStats::getDropped);
        count(registry, stats, "gaps", null, "Records that tell of dropped events.", RingStats::getGaps);
        count(registry, stats, "refused", null, "Logging calls that got an exception.", RingStats::getRefused);
        count(registry, stats, "failed.over", null, "Events handed to another appender.", RingStats::getFailedOver);
        gauge(registry, stats, "level", null, "Durability level of the last acknowledgement, 0 before the first.", FarlogMetrics::level);
        gauge(registry, stats, "append.p99", "seconds", "99th percentile of append latencies.", any -> any.getLatencyP99Nanos() / NANOS);
    }

    private static double level(final RingStats stats) {
        final var level = stats.lastLevel.getAcquire();
        return level == null ? 0 : level.ordinal() + 1;
    }

    private static void count(final MeterRegistry registry, final RingStats stats, final String name, final String unit, final String help,
        final ToDoubleFunction<RingStats> value) {
        FunctionCounter.builder("farlog.log4j2." + name, stats, value).tags(Tags.of("ring", stats.getUri())).baseUnit(unit)
            .description(help).register(registry);
    }

    private static void gauge(final MeterRegistry registry, final RingStats stats, final String name, final String unit, final String help,
        final ToDoubleFunction<RingStats> value) {
        Gauge.builder("farlog.log4j2." + name, stats, value).tags(Tags.of("ring", stats.getUri())).baseUnit(unit).description(help)
            .register(registry);
    }
}
