package io.github.farlog.logback;

import java.time.Duration;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * What an appender does with an event that it cannot get into its ring. Immutable.
 *
 * @param kind of the four
 * @param patience time to wait for room, for {@link Kind#BLOCK}; zero otherwise
 */
public record AppenderPolicy(Kind kind, Duration patience) {
    /** The kinds, as they are spelled in a configuration. */
    public enum Kind {
        /** The logging call throws. */
        FAIL_STOP,
        /** The event goes to the appenders that are attached inside. */
        FAILOVER,
        /** The logging call waits for room, and throws when there is still none. */
        BLOCK,
        /** The event is dropped and counted; a record in the ring tells of it as soon as there is room. */
        DROP_AND_GAP
    }

    static final String SPELLINGS = "failStop, failover, block(TIME) as in block(5s), or dropAndGap";
    private static final Pattern BLOCKING = Pattern.compile("block\\((\\d{1,9})(us|ms|s|m)\\)");

    /**
     * Reads a policy as it is written in a configuration.
     *
     * @param text {@code failStop}, {@code failover}, {@code block(250ms)} (units us, ms, s, m), {@code dropAndGap}
     * @return the policy
     * @throws IllegalArgumentException when it is none of them
     */
    public static AppenderPolicy parse(final String text) {
        final Matcher blocking = BLOCKING.matcher(text);
        if (blocking.matches()) {
            return new AppenderPolicy(Kind.BLOCK, duration(blocking.group(1), blocking.group(2)));
        }
        return switch (text) {
            case "failStop" -> new AppenderPolicy(Kind.FAIL_STOP, Duration.ZERO);
            case "failover" -> new AppenderPolicy(Kind.FAILOVER, Duration.ZERO);
            case "dropAndGap" -> new AppenderPolicy(Kind.DROP_AND_GAP, Duration.ZERO);
            default -> throw new IllegalArgumentException("policy \"" + text + "\": expected " + SPELLINGS);
        };
    }

    static Duration parseDuration(final String name, final String text) {
        final Matcher matcher = Pattern.compile("(\\d{1,9})(us|ms|s|m)").matcher(text);
        if (!matcher.matches()) {
            throw new IllegalArgumentException(name + " \"" + text + "\": expected a time as in 250ms (us, ms, s, m)");
        }
        return duration(matcher.group(1), matcher.group(2));
    }

    private static Duration duration(final String number, final String unit) {
        final long value = Long.parseLong(number);
        return switch (unit) {
            case "us" -> Duration.ofNanos(value * 1000);
            case "ms" -> Duration.ofMillis(value);
            case "s" -> Duration.ofSeconds(value);
            default -> Duration.ofMinutes(value);
        };
    }
}
