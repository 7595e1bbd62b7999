package io.github.farlog.log4j2;

import java.util.Locale;

/**
 * What an appender does with an event that its ring refuses.
 *
 * @param kind which policy
 * @param waitNanos how long to wait for room first; 0 for all but {@link Kind#BLOCK}
 */
record FullPolicy(Kind kind, long waitNanos) {
    /** The policies. */
    enum Kind {
        /** Throw at once. */
        FAIL_STOP,
        /** Throw at once for Log4j's Failover appender, or hand the event to a named appender. */
        FAILOVER,
        /** Wait for room, then throw. */
        BLOCK,
        /** Drop, count, and write a record that tells the gap when there is room again. */
        DROP_AND_GAP
    }

    /** What an appender does that names no policy. */
    static final String DEFAULT = "block(1s)";

    private static final String EXPECTED = "failStop, failover, block(DURATION) or dropAndGap";

    /**
     * Reads a policy.
     *
     * @param text as the configuration writes it, in any case
     * @return the policy
     * @throws IllegalArgumentException naming the value and what was expected
     */
    static FullPolicy parse(final String text) {
        final String word = text.strip();
        final String lower = word.toLowerCase(Locale.ROOT);
        if (lower.startsWith("block(") && lower.endsWith(")")) {
            return new FullPolicy(Kind.BLOCK,
                Units.nanos("policy", word.substring("block(".length(), word.length() - 1)));
        }
        return switch (lower) {
            case "failstop" -> new FullPolicy(Kind.FAIL_STOP, 0);
            case "failover" -> new FullPolicy(Kind.FAILOVER, 0);
            case "dropandgap" -> new FullPolicy(Kind.DROP_AND_GAP, 0);
            default -> throw new IllegalArgumentException("policy=\"" + text + "\": expected " + EXPECTED);
        };
    }
}
