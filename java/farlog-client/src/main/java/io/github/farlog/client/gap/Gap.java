package io.github.farlog.client.gap;

import io.github.farlog.client.Result;
import java.time.Instant;

/**
 * Events that are not in the ring.
 *
 * @param dropped how many are not
 * @param unknown how many may be: their acknowledgements did not come
 * @param from time of the first
 * @param to time of the last
 * @param cause why the last was dropped
 */
public record Gap(long dropped, long unknown, Instant from, Instant to, Result cause) {
    static final Gap NONE = new Gap(0, 0, Instant.MAX, Instant.MIN, Result.OK);

    /**
     * How many events it counts.
     *
     * @return both kinds
     */
    public long events() {
        return dropped + unknown;
    }

    Gap with(final Instant when, final Result reason) {
        final boolean isUnknown = reason == Result.UNKNOWN;
        return with(new Gap(isUnknown ? 0 : 1, isUnknown ? 1 : 0, when, when, reason));
    }

    Gap with(final Gap later) {
        return new Gap(dropped + later.dropped, unknown + later.unknown, later.from.isBefore(from) ? later.from : from,
            later.to.isAfter(to) ? later.to : to, later.events() == 0 ? cause : later.cause);
    }

    /**
     * As the appenders write it.
     *
     * @return such as {@code farlog.gap dropped=3 unknown=0 from=2026-01-01T00:00:00.000000001Z to=... cause=FULL}
     */
    public String text() {
        return "farlog.gap dropped=" + dropped + " unknown=" + unknown + " from=" + from + " to=" + to + " cause="
            + cause;
    }
}
