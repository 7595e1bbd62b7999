package io.github.farlog.logback;

import io.github.farlog.client.LegStats;
import io.github.farlog.client.MemberStatus;
import java.util.List;

/**
 * Counters of one ring that FarlogAppenders write, since its writer was opened. Any thread; nothing here blocks.
 *
 * <p>Registered as {@code io.github.farlog:type=LogbackTarget,uri="..."}.
 */
public interface TargetMXBean {
    /**
     * Where the ring is.
     *
     * @return as in the configuration
     */
    String getUri();

    /**
     * What a logging call has reached when it returns.
     *
     * @return name of the level
     */
    String getLevel();

    /**
     * Events in the ring.
     *
     * @return count
     */
    long getAppendedCount();

    /**
     * Bytes of those events, without their keys.
     *
     * @return bytes
     */
    long getAppendedBytes();

    /**
     * Appends that did not succeed at the first try; the policy decided what came of them.
     *
     * @return count
     */
    long getFailedCount();

    /**
     * Appends, of events and gaps, whose acknowledgement did not come before the deadline. What became of each was then
     * asked for once more.
     *
     * @return since the ring was opened
     */
    long getUnknownCount();

    /**
     * Events whose logging call threw.
     *
     * @return count
     */
    long getRefusedCount();

    /**
     * Events that went to the appenders attached inside.
     *
     * @return count
     */
    long getFailedOverCount();

    /**
     * Events dropped under the policy dropAndGap, told in the ring or not yet.
     *
     * @return count
     */
    long getDroppedCount();

    /**
     * Records that tell of a gap.
     *
     * @return count
     */
    long getGapCount();

    /**
     * Events dropped and not yet told in the ring.
     *
     * @return count; 0 = there is no open gap
     */
    long getOpenGapEvents();

    /**
     * What the last append that did not succeed was answered.
     *
     * @return name of a result; "OK" when there was none
     */
    String getLastFailure();

    /**
     * Bytes of the ring not yet drained.
     *
     * @return bytes
     */
    long getLagBytes();

    /**
     * How full the ring is.
     *
     * @return 0 below the warning mark, 1 at or above it, 2 at or above the alarm mark
     */
    int getPressure();

    /**
     * The rings of a stream that has several, since the ring was opened last.
     *
     * @return in the order of the URI; empty of a stream with one ring, and while it is closed
     */
    List<MemberStatus> getMembers();

    /**
     * The legs of a route, since it was opened last.
     *
     * @return in their order; empty of a ring
     */
    List<LegStats> getLegs();
}
