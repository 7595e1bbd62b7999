package io.github.farlog.log4j2;

import java.util.Locale;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Durations and sizes as a configuration writes them: {@code 250us}, {@code 64MiB}. Threads: any. */
final class Units {
    private static final Pattern AMOUNT = Pattern.compile("(\\d{1,18})\\s*([A-Za-z]*)");

    private Units() {
    }

    /**
     * Reads a duration.
     *
     * @param what names the setting in the error
     * @param text a number and one of ns, us, ms, s, min
     * @return nanoseconds
     * @throws IllegalArgumentException naming the setting, its value and what was expected
     */
    static long nanos(final String what, final String text) {
        final Matcher matcher = match(what, text, "a duration such as 250us, 20ms or 1s");
        final long count = Long.parseLong(matcher.group(1));
        final TimeUnit unit = switch (matcher.group(2)) {
            case "ns" -> TimeUnit.NANOSECONDS;
            case "us" -> TimeUnit.MICROSECONDS;
            case "ms" -> TimeUnit.MILLISECONDS;
            case "s" -> TimeUnit.SECONDS;
            case "min" -> TimeUnit.MINUTES;
            default -> throw wrong(what, text, "a duration such as 250us, 20ms or 1s");
        };
        if (unit.toNanos(count) == Long.MAX_VALUE) { // what it gives for anything longer
            throw wrong(what, text, "a duration such as 250us, 20ms or 1s");
        }
        return unit.toNanos(count);
    }

    /**
     * Reads a size.
     *
     * @param what names the setting in the error
     * @param text a number and nothing, KiB, MiB or GiB
     * @return bytes
     * @throws IllegalArgumentException naming the setting, its value and what was expected
     */
    static long bytes(final String what, final String text) {
        final Matcher matcher = match(what, text, "a size such as 64MiB");
        final int shift = switch (matcher.group(2).toLowerCase(Locale.ROOT)) {
            case "", "b" -> 0;
            case "kib" -> 10;
            case "mib" -> 20;
            case "gib" -> 30;
            default -> throw wrong(what, text, "a size such as 64MiB");
        };
        final long count = Long.parseLong(matcher.group(1));
        if (count > Long.MAX_VALUE >> shift) {
            throw wrong(what, text, "a size such as 64MiB");
        }
        return count << shift;
    }

    private static Matcher match(final String what, final String text, final String expected) {
        final Matcher matcher = AMOUNT.matcher(text.strip());
        if (!matcher.matches()) {
            throw wrong(what, text, expected);
        }
        return matcher;
    }

    private static IllegalArgumentException wrong(final String what, final String text, final String expected) {
        return new IllegalArgumentException(what + "=\"" + text + "\": expected " + expected);
    }
}
