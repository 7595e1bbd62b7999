package io.github.farlog.log4j2;

import io.github.farlog.client.LegStats;
import io.github.farlog.client.MemberStatus;
import java.util.List;

/**
 * What the appenders of this process did with one ring. {@code io.github.farlog:type=Log4j2,ring="URI"}. Counts are
 * since the start.
 */
public interface RingStatsMXBean {
    /**
     * The ring.
     *
     * @return its URI
     */
    String getUri();

    /**
     * Events recorded: their logging calls returned.
     *
     * @return count
     */
    long getAppended();

    /**
     * Payload and key of the recorded events.
     *
     * @return bytes
     */
    long getBytes();

    /**
     * Events that found the ring full at least once.
     *
     * @return count
     */
    long getFull();

    /**
     * Events that may or may not be in the ring.
     *
     * @return count
     */
    long getUnknown();

    /**
     * Events that were dropped by policy.
     *
     * @return count
     */
    long getDropped();

    /**
     * Records written that tell of dropped events.
     *
     * @return count
     */
    long getGaps();

    /**
     * Events whose logging call was refused with an exception.
     *
     * @return count
     */
    long getRefused();

    /**
     * Events that were handed to another appender.
     *
     * @return count
     */
    long getFailedOver();

    /**
     * Events that were logged while the same thread was logging to the same appender, and refused.
     *
     * @return count
     */
    long getRecursive();

    /**
     * The durability level that the last acknowledgement reached.
     *
     * @return its name, "" before the first
     */
    String getLastLevel();

    /**
     * 99th percentile of the time from the encoded event to its acknowledgement.
     *
     * @return nanoseconds, at most 6.3 % too high
     */
    long getLatencyP99Nanos();

    /**
     * The rings of a stream that has several, since the ring was opened last.
     *
     * @return in the order of the URI; empty of a stream with one ring, and while it is closed
     */
    List<MemberStatus> getMembers();

    /**
     * The legs of a route, since it was opened last.
     *
     * @return in their order; empty of a ring, and while it is closed
     */
    List<LegStats> getLegs();
}
