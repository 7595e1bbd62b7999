package io.github.farlog.client;

import java.util.List;
import java.util.Objects;

/**
 * One stream of a route that the program itself puts together. Immutable; any thread. What contradicts itself
 * {@link Route#open(String, List)} refuses.
 *
 * @param name of its own in the route, 1 to 63 bytes; the spill bears it
 * @param uri of its ring, as {@link Writer#open} takes it
 * @param required the append waits for it, and it decides the result
 * @param policy what becomes of what the ring cannot take
 * @param classes of the records that it takes; none = every class
 * @param criticalityMin records of lower criticality pass it by; 0 = none do
 * @param spillUri of {@link RoutePolicy#SPILL}: a ring of this host, {@code mem:/path}, made where there is none; null
 * = no spill
 * @param spillLevel of the spill, at least the leg's level when the leg is required; null = {@link Level#PERSISTENT}
 * @param bufferBytes of a new spill, 0 = 64 MiB; of {@link RoutePolicy#DROP} of what waits in memory, 0 = 4 MiB
 * @param options of its writer. The deadline is this leg's; a required leg that spills should have a shorter one than
 * the appends
 */
public record RouteLeg(String name, String uri, boolean required, RoutePolicy policy, List<Classes> classes,
    int criticalityMin, String spillUri,
    Level spillLevel, long bufferBytes, WriterOptions options) {

    /**
     * A range of classes.
     *
     * @param first from 0
     * @param last to 65535, included
     */
    public record Classes(int first, int last) {
        /** Checks the numbers. */
        public Classes {
            if (first < 0 || last > CallFrame.U16_MAX || first > last) {
                throw new IllegalArgumentException(
                    "classes " + first + " to " + last + ": expected 0 <= first <= last <= " + CallFrame.U16_MAX);
            }
        }
    }

    /** Checks the values. */
    public RouteLeg {
        Objects.requireNonNull(name, "name");
        Objects.requireNonNull(uri, "uri");
        Objects.requireNonNull(policy, "policy");
        Objects.requireNonNull(options, "options");
        classes = List.copyOf(classes);
        if (criticalityMin < 0 || bufferBytes < 0) {
            throw new IllegalArgumentException(
                "leg \"" + name + "\": criticality " + criticalityMin + ", buffer of " + bufferBytes
                    + " bytes: expected zero or more");
        }
    }

    /**
     * A leg that every append waits for, of all classes. Its refusal is the append's until {@link #withSpill} says
     * otherwise.
     *
     * @param name of the leg
     * @param uri of its ring
     * @param options of its writer
     * @return the leg
     */
    public static RouteLeg required(final String name, final String uri, final WriterOptions options) {
        return new RouteLeg(name, uri, true, RoutePolicy.FAIL, List.of(), 0, null, null, 0, options);
    }

    /**
     * A leg that no append waits for, of all classes. What it cannot take is dropped, with a gap record, until
     * {@link #withSpill} says otherwise.
     *
     * @param name of the leg
     * @param uri of its ring
     * @param options of its writer
     * @return the leg
     */
    public static RouteLeg optional(final String name, final String uri, final WriterOptions options) {
        return new RouteLeg(name, uri, false, RoutePolicy.DROP, List.of(), 0, null, null, 0, options);
    }

    /**
     * Takes these classes only.
     *
     * @param values none = every class
     * @return changed copy
     */
    public RouteLeg withClasses(final Classes... values) {
        return new RouteLeg(name, uri, required, policy, List.of(values), criticalityMin, spillUri, spillLevel,
            bufferBytes, options);
    }

    /**
     * Takes records of this criticality and above only.
     *
     * @param value from 0
     * @return changed copy
     */
    public RouteLeg withCriticalityMin(final int value) {
        return new RouteLeg(name, uri, required, policy, classes, value, spillUri, spillLevel, bufferBytes, options);
    }

    /**
     * Keeps in a ring of this host what the leg's ring cannot take.
     *
     * @param spill its URI, {@code mem:/path}; made where there is none
     * @param level of the spill; null = {@link Level#PERSISTENT}
     * @return changed copy
     */
    public RouteLeg withSpill(final String spill, final Level level) {
        return new RouteLeg(name, uri, required, RoutePolicy.SPILL, classes, criticalityMin, spill, level, bufferBytes,
            options);
    }

    /**
     * Sets how much may wait.
     *
     * @param value bytes of a new spill, or of memory; 0 = the default
     * @return changed copy
     */
    public RouteLeg withBufferBytes(final long value) {
        return new RouteLeg(name, uri, required, policy, classes, criticalityMin, spillUri, spillLevel, value, options);
    }
}
