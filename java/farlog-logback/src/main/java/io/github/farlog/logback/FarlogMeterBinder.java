package io.github.farlog.logback;

import io.github.farlog.client.MemberStatus;
import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.binder.MeterBinder;
import java.util.function.ToDoubleFunction;

/**
 * Gives a Micrometer registry the counters of every ring that FarlogAppenders have open when it is bound, tagged with
 * the ring's URI.
 *
 * <p>Micrometer is needed only where this class is used. Bind after Logback is configured, and again after a
 * reconfiguration that named another ring; a ring that was closed goes on with its last numbers.
 */
public final class FarlogMeterBinder implements MeterBinder {
    /** Makes a binder; it has no settings. */
    public FarlogMeterBinder() {
    }

    @Override
    public void bindTo(final MeterRegistry registry) {
        for (final Target target : Target.all()) {
            final Tags tags = Tags.of("uri", target.getUri());
            counter(registry, tags, target, "farlog.logback.appended", "Events in the ring.",
                TargetMXBean::getAppendedCount);
            counter(registry, tags, target, "farlog.logback.appended.bytes", "Bytes of those events.",
                TargetMXBean::getAppendedBytes);
            counter(registry, tags, target, "farlog.logback.failed", "Appends that did not succeed at once.",
                TargetMXBean::getFailedCount);
            counter(registry, tags, target, "farlog.logback.unknown", "Acknowledgements that did not come in time.",
                TargetMXBean::getUnknownCount);
            counter(registry, tags, target, "farlog.logback.refused", "Events whose logging call threw.",
                TargetMXBean::getRefusedCount);
            counter(registry, tags, target, "farlog.logback.failed.over", "Events given to another appender.",
                TargetMXBean::getFailedOverCount);
            counter(registry, tags, target, "farlog.logback.dropped", "Events dropped.", TargetMXBean::getDroppedCount);
            counter(registry, tags, target, "farlog.logback.gaps", "Records that tell of a gap.",
                TargetMXBean::getGapCount);
            gauge(registry, tags, target, "farlog.logback.lag", "bytes", "Bytes not yet drained.",
                TargetMXBean::getLagBytes);
            gauge(registry, tags, target, "farlog.logback.pressure", null,
                "0 below warn, 1 at or above warn, 2 at or above alarm.",
                TargetMXBean::getPressure);
            for (final MemberStatus member : target.getMembers()) {
                bind(registry, tags.and("member", Integer.toString(member.number())), target, member.number());
            }
        }
    }

    private static void bind(final MeterRegistry registry, final Tags tags, final Target target, final int number) {
        gauge(registry, tags, target, "farlog.logback.member.state", null,
            "1 up, 2 stale, 3 away, 4 late, 5 out until the next writer.",
            member(number, member -> member.state().ordinal()));
        gauge(registry, tags, target, "farlog.logback.member.lag", "bytes",
            "Undrained bytes that the member has not confirmed.",
            member(number, MemberStatus::lagBytes));
        counter(registry, tags, target, "farlog.logback.member.demotions", "Times the member fell behind its deadline.",
            member(number, MemberStatus::demotions));
        counter(registry, tags, target, "farlog.logback.member.evictions",
            "Times the member was shut out after an error.",
            member(number, MemberStatus::evictions));
        counter(registry, tags, target, "farlog.logback.member.rejoins", "Times the member came back.",
            member(number, MemberStatus::rejoins));
    }

    /** Of one member, 0 when the ring is closed. */
    private static ToDoubleFunction<Target> member(final int number, final ToDoubleFunction<MemberStatus> value) {
        return target -> target.getMembers().stream().filter(member -> member.number() == number).mapToDouble(value)
            .sum();
    }

    private static void gauge(final MeterRegistry registry, final Tags tags, final Target target, final String name,
        final String unit,
        final String help, final ToDoubleFunction<Target> value) {
        Gauge.builder(name, target, value).description(help).baseUnit(unit).tags(tags).strongReference(true)
            .register(registry);
    }

    private static void counter(final MeterRegistry registry, final Tags tags, final Target target, final String name,
        final String help,
        final ToDoubleFunction<Target> value) {
        // The lambda holds the target: Micrometer holds what it measures only weakly.
        FunctionCounter.builder(name, target, ignored -> value.applyAsDouble(target)).description(help).tags(tags)
            .register(registry);
    }
}
