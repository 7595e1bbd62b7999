package io.github.farlog.log4j2;

import io.github.farlog.client.MemberStatus;
import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.binder.MeterBinder;
import java.util.function.Consumer;
import java.util.function.ToDoubleFunction;

/**
 * The counters of {@link RingStatsMXBean} as Micrometer meters {@code farlog.log4j2.*}, tagged with the ring's URI:
 * {@code new FarlogMetrics().bindTo(registry)}. Rings that are opened later are added by themselves. Needs
 * micrometer-core, which this module does not bring. Threads: any.
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
        final Tags tags = Tags.of("ring", stats.getUri());
        count(registry, stats, "records", null, "Events recorded.", tags, RingStats::getAppended);
        count(registry, stats, "payload", "bytes", "Payload and key of the recorded events.", tags,
            RingStats::getBytes);
        count(registry, stats, "full", null, "Events that found the ring full.", tags, RingStats::getFull);
        count(registry, stats, "unknown", null, "Events that may or may not be in the ring.", tags,
            RingStats::getUnknown);
        count(registry, stats, "dropped", null, "Events dropped by policy.", tags, RingStats::getDropped);
        count(registry, stats, "gaps", null, "Records that tell of dropped events.", tags, RingStats::getGaps);
        count(registry, stats, "refused", null, "Logging calls that got an exception.", tags, RingStats::getRefused);
        count(registry, stats, "failed.over", null, "Events handed to another appender.", tags,
            RingStats::getFailedOver);
        gauge(registry, stats, "level", null, "Durability level of the last acknowledgement, 0 before the first.", tags,
            FarlogMetrics::level);
        gauge(registry, stats, "append.p99", "seconds", "99th percentile of append latencies.", tags,
            any -> any.getLatencyP99Nanos() / NANOS);
        for (final MemberStatus member : stats.getMembers()) {
            bind(registry, stats, member.number());
        }
    }

    /** What is there already stays: a ring that is opened again is bound again. */
    private static void bind(final MeterRegistry registry, final RingStats stats, final int number) {
        final Tags tags = Tags.of("ring", stats.getUri(), "member", Integer.toString(number));
        gauge(registry, stats, "member.state", null, "1 up, 2 stale, 3 away, 4 late, 5 out until the next writer.",
            tags,
            member(number, member -> member.state().ordinal()));
        gauge(registry, stats, "member.lag", "bytes", "Undrained bytes that the member has not confirmed.", tags,
            member(number, MemberStatus::lagBytes));
        count(registry, stats, "member.demotions", null, "Times the member fell behind its deadline.", tags,
            member(number, MemberStatus::demotions));
        count(registry, stats, "member.evictions", null, "Times the member was shut out after an error.", tags,
            member(number, MemberStatus::evictions));
        count(registry, stats, "member.rejoins", null, "Times the member came back.", tags,
            member(number, MemberStatus::rejoins));
    }

    /** Of one member, 0 when the ring is closed. */
    private static ToDoubleFunction<RingStats> member(final int number, final ToDoubleFunction<MemberStatus> value) {
        return stats -> stats.getMembers().stream().filter(member -> member.number() == number).mapToDouble(value)
            .sum();
    }

    private static double level(final RingStats stats) {
        final var level = stats.lastLevel.getAcquire();
        return level == null ? 0 : level.ordinal() + 1;
    }

    private static void count(final MeterRegistry registry, final RingStats stats, final String name, final String unit,
        final String help,
        final Tags tags, final ToDoubleFunction<RingStats> value) {
        FunctionCounter.builder("farlog.log4j2." + name, stats, value).tags(tags).baseUnit(unit).description(help)
            .register(registry);
    }

    private static void gauge(final MeterRegistry registry, final RingStats stats, final String name, final String unit,
        final String help,
        final Tags tags, final ToDoubleFunction<RingStats> value) {
        Gauge.builder("farlog.log4j2." + name, stats, value).tags(tags).baseUnit(unit).description(help)
            .register(registry);
    }
}
