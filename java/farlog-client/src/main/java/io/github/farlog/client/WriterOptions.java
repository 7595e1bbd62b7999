package io.github.farlog.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.UUID;

/**
 * How a writer is opened. Immutable: each {@code with} gives a changed copy.
 *
 * @param level asked for; a region that cannot give it refuses at open; null = as the stream is declared, of a
 * {@code farlog://} URI, also when that changes while the writer runs
 * @param deadline of an append that names none; zero = the region's (memory 1 ms, msync 1 s)
 * @param policy when the ring is full
 * @param epoch from a grant; 0 = one more than the ring's last
 * @param spinning wait by spinning only: for a pinned thread on a core of its own
 * @param warnPercent of the ring in use; 0 = 70
 * @param alarmPercent of the ring in use; 0 = 85
 * @param name goes into the writer's identity, which others are told when they find the ring held; null = the program's
 * name
 * @param countersDir folder of the counter files; null = the machine's common one; "" = counters private to this
 * process
 * @param ringUuids refuse any other ring, one for each member of a {@code members:} URI in its order, where null is
 * any; none = take what is there
 * @param tokens let this writer into rings on other hosts, one for each member in the same way; none = no token
 */
public record WriterOptions(Level level, Duration deadline, Policy policy, int epoch, boolean spinning, int warnPercent,
    int alarmPercent,
    String name, String countersDir, List<UUID> ringUuids, List<GrantToken> tokens) {
    private static final WriterOptions DEFAULTS = new WriterOptions(Level.PERSISTENT, Duration.ZERO, Policy.BLOCK, 0,
        false, 0, 0, null, null, List.of(), List.of());

    /** Checks the values. */
    public WriterOptions {
        Objects.requireNonNull(deadline, "deadline");
        Objects.requireNonNull(policy, "policy");
        ringUuids = Collections.unmodifiableList(new ArrayList<>(ringUuids)); // List.copyOf takes no null
        tokens = Collections.unmodifiableList(new ArrayList<>(tokens));
        if (deadline.isNegative()) {
            throw new IllegalArgumentException("deadline: " + deadline + ", expected zero or more");
        }
    }

    /**
     * Level {@link Level#PERSISTENT}, policy {@link Policy#BLOCK}, the region's own deadline.
     *
     * @return the defaults
     */
    public static WriterOptions defaults() {
        return DEFAULTS;
    }

    /**
     * Asks for another level.
     *
     * @param value the level
     * @return changed copy
     */
    public WriterOptions withLevel(final Level value) {
        return new WriterOptions(value, deadline, policy, epoch, spinning, warnPercent, alarmPercent, name, countersDir,
            ringUuids, tokens);
    }

    /**
     * Leaves the level to the stream, of a {@code farlog://} URI: a writer that runs takes a change in with its next
     * append, and each position says the level of its own record. Elsewhere it is {@link Level#PERSISTENT}.
     *
     * @return changed copy
     */
    public WriterOptions withStreamLevel() {
        return withLevel(null);
    }

    /**
     * Sets the deadline of appends that name none.
     *
     * @param value from the call; zero = the region's default
     * @return changed copy
     */
    public WriterOptions withDeadline(final Duration value) {
        return new WriterOptions(level, value, policy, epoch, spinning, warnPercent, alarmPercent, name, countersDir,
            ringUuids, tokens);
    }

    /**
     * Sets what a full ring means.
     *
     * @param value the policy
     * @return changed copy
     */
    public WriterOptions withPolicy(final Policy value) {
        return new WriterOptions(level, deadline, value, epoch, spinning, warnPercent, alarmPercent, name, countersDir,
            ringUuids, tokens);
    }

    /**
     * Opens with an epoch that was granted.
     *
     * @param value 0 = one more than the ring's last
     * @return changed copy
     */
    public WriterOptions withEpoch(final int value) {
        return new WriterOptions(level, deadline, policy, value, spinning, warnPercent, alarmPercent, name, countersDir,
            ringUuids, tokens);
    }

    /**
     * Waits by spinning only.
     *
     * @param value true for a pinned thread on a core of its own
     * @return changed copy
     */
    public WriterOptions withSpinning(final boolean value) {
        return new WriterOptions(level, deadline, policy, epoch, value, warnPercent, alarmPercent, name, countersDir,
            ringUuids, tokens);
    }

    /**
     * Sets where the ring counts as nearly full.
     *
     * @param warn percent; 0 = 70
     * @param alarm percent; 0 = 85
     * @return changed copy
     */
    public WriterOptions withMarks(final int warn, final int alarm) {
        return new WriterOptions(level, deadline, policy, epoch, spinning, warn, alarm, name, countersDir, ringUuids,
            tokens);
    }

    /**
     * Names the writer.
     *
     * @param value null = the program's name
     * @return changed copy
     */
    public WriterOptions withName(final String value) {
        return new WriterOptions(level, deadline, policy, epoch, spinning, warnPercent, alarmPercent, value,
            countersDir, ringUuids, tokens);
    }

    /**
     * Sets the folder of the counter files.
     *
     * @param value null = the machine's common one; "" = counters private to this process
     * @return changed copy
     */
    public WriterOptions withCountersDir(final String value) {
        return new WriterOptions(level, deadline, policy, epoch, spinning, warnPercent, alarmPercent, name, value,
            ringUuids, tokens);
    }

    /**
     * Refuses any ring but this.
     *
     * @param value null = take what is there
     * @return changed copy
     */
    public WriterOptions withRingUuid(final UUID value) {
        return withRingUuids(value == null ? List.of() : List.of(value));
    }

    /**
     * Refuses any members but these.
     *
     * @param values one for each URI of a {@code members:} URI, in its order; null = take what is there
     * @return changed copy
     */
    public WriterOptions withRingUuids(final List<UUID> values) {
        return new WriterOptions(level, deadline, policy, epoch, spinning, warnPercent, alarmPercent, name, countersDir,
            values, tokens);
    }

    /**
     * Lets the writer into a ring on another host. Not for {@code farlog://}, where the host agent gets the grant.
     *
     * @param value from a grant; null = none
     * @return changed copy
     */
    public WriterOptions withToken(final GrantToken value) {
        return withTokens(value == null ? List.of() : List.of(value));
    }

    /**
     * Lets the writer into members on other hosts.
     *
     * @param values one for each URI of a {@code members:} URI, in its order; null = that member needs none
     * @return changed copy
     */
    public WriterOptions withTokens(final List<GrantToken> values) {
        return new WriterOptions(level, deadline, policy, epoch, spinning, warnPercent, alarmPercent, name, countersDir,
            ringUuids, values);
    }
}
