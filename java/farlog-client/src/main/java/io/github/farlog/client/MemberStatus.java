package io.github.farlog.client;

import java.util.ArrayList;
import java.util.List;

/**
 * How a writer sees one ring of its stream, as JMX and other monitoring take it. Immutable; any thread.
 *
 * @param number its place in the stream's URI, from 1
 * @param state how it is
 * @param lagBytes undrained bytes that were given to members and that it has not confirmed
 * @param demotions times it fell behind its deadline
 * @param evictions times it was shut out after an error
 * @param rejoins times it came, or came back, after the writer had opened
 */
public record MemberStatus(int number, State state, long lagBytes, long demotions, long evictions, long rejoins) {
    /** In the order of the C core's numbers. */
    public enum State {
        /** The writer has not told yet. */
        NONE,
        /** It counts for acknowledgements. */
        UP,
        /** It catches up and does not count. */
        STALE,
        /** It does not answer, or cannot be opened. It is tried again. */
        AWAY,
        /** It was slower than its deadline; nobody waits for it until it has caught up. */
        LATE,
        /** Fenced there, or another ring than it was: not before the next writer. */
        OUT
    }

    private static final State[] STATES = State.values();

    /**
     * The members that a writer tells of. Counts are since it was opened.
     *
     * @param counters of a writer; null = it is closed
     * @return in the order of the URI; empty of a stream with one ring, and when the writer keeps its counters private
     */
    public static List<MemberStatus> of(final Counters counters) {
        final List<MemberStatus> all = new ArrayList<>();
        for (final Counters.Member member : counters == null ? List.<Counters.Member>of() : counters.members()) {
            all.add(new MemberStatus(all.size() + 1, stateOf(member.value(MemberCounter.STATE)),
                member.value(MemberCounter.LAG_BYTES), member.value(MemberCounter.DEMOTION_COUNT),
                member.value(MemberCounter.EVICTION_COUNT),
                member.value(MemberCounter.REJOIN_COUNT)));
        }
        return all;
    }

    static State stateOf(final long code) {
        return code < 0 || code >= STATES.length ? State.NONE : STATES[(int) code];
    }
}
