package io.github.farlog.logback;

import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.binder.MeterBinder;
import java.util.function.ToDoubleFunction;

/**
 * Gives a Micrometer registry the counters of every ring that FarlogAppenders have open when it is bound, tagged with the ring's URI.
 *
 * <p>Micrometer is needed only where this class is used. Bind after Logback is configured, and again after a reconfiguration that named
 * another ring; a ring that was closed goes on with its last numbers.
 */
public final class FarlogMeterBinder implements MeterBinder {
    /** Makes a binder; it has no settings. */
    public FarlogMeterBinder() {
    }

    @Override
    public void bindTo(final MeterRegistry registry) {
        for (final Target target : Target.all()) {
            final Tags tags = Tags.of("uri", target.getUri());
            counter(registry, tags, target, "farlog.logback.appended", "Events in the ring.", TargetMXBean::getAppendedCount);
            counter(registry, tags, target, "farlog.logback.appended.bytes", "Bytes of those events.", TargetMXBean::getAppendedBytes);
            counter(registry, tags, target, "farlog.logback.failed", "Appends that did not succeed at once.", TargetMXBean::getFailedCount);
            counter(registry, tags, target, "farlog.logback.unknown", "Acknowledgements that did not come in time.",
                TargetMXBean::getUnknownCount);
            counter(registry, tags, target, "farlog.logback.refused", "Events whose logging call threw.", TargetMXBean::getRefusedCount);
            counter(registry, tags, target, "farlog.logback.failed.over", "Events given to another appender.",
                TargetMXBean::getFailedOverCount);
            counter(registry, tags, target, "farlog.logback.dropped", "Events dropped.", TargetMXBean::getDroppedCount);
            counter(registry, tags, target, "farlog.logback.gaps", "Records that tell of a gap.", TargetMXBean::getGapCount);
            Gauge.builder("farlog.logback.lag", target, TargetMXBean::getLagBytes).description("Bytes not yet drained.").baseUnit("bytes")
                .tags(tags).strongReference(true).register(registry);
            Gauge.builder("farlog.logback.pressure", target, TargetMXBean::getPressure)
                .description("0 below warn, 1 at or above warn, 2 at or above alarm.").tags(tags).strongReference(true).register(registry);
        }
    }

    private static void counter(final MeterRegistry registry, final Tags tags, final Target target, final String name, final String help,
        final ToDoubleFunction<Target> value) {
        // The lambda holds the target: Micrometer holds what it measures only weakly.
        FunctionCounter.builder(name, target, ignored -> value.applyAsDouble(target)).description(help).tags(tags).register(registry);
    }
}
