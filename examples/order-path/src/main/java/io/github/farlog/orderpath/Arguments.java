package io.github.farlog.orderpath;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/** The options of a program: {@code --name value}, each one declared with its default and a line of help. */
public final class Arguments {
    private final String usage;
    private final Map<String, String> values = new LinkedHashMap<>();
    private final StringBuilder help = new StringBuilder();

    /** A wrong command line; its text says what was expected. */
    public static final class UsageException extends RuntimeException {
        private static final long serialVersionUID = 1;

        UsageException(final String message) {
            super(message);
        }
    }

    public Arguments(final String usage) {
        this.usage = usage;
    }

    public Arguments option(final String name, final String defaultValue, final String text) {
        values.put(name, defaultValue);
        help.append(String.format("  --%-10s %s%s%n", name, text, defaultValue.isEmpty() ? "" : " (default: " + defaultValue + ")"));
        return this;
    }

    /** Reads the command line over the defaults. */
    public Arguments parse(final String[] words) {
        for (int i = 0; i < words.length; i += 2) {
            final String name = words[i].startsWith("--") ? words[i].substring(2) : "";
            if (!values.containsKey(name) || i + 1 == words.length) {
                throw new UsageException(String.format("%s: expected --NAME VALUE%nusage: %s%n%s", words[i], usage, help));
            }
            values.put(name, words[i + 1]);
        }
        return this;
    }

    public String text(final String name) {
        return values.get(name);
    }

    public int count(final String name) {
        try {
            return Integer.parseInt(text(name));
        } catch (final NumberFormatException e) {
            throw new UsageException("--" + name + " " + text(name) + ": expected a whole number");
        }
    }

    /** A duration such as {@code 10s} or {@code 250ms}. */
    public Duration duration(final String name) {
        final String value = text(name);
        if (value.matches("\\d{1,9}ms")) {
            return Duration.ofMillis(Long.parseLong(value.replace("ms", "")));
        }
        if (value.matches("\\d{1,6}s")) {
            return Duration.ofSeconds(Long.parseLong(value.replace("s", "")));
        }
        throw new UsageException("--" + name + " " + value + ": expected a duration such as 10s or 250ms");
    }

    /** A size such as {@code 64MiB}. */
    public long bytes(final String name) {
        final String value = text(name);
        if (value.matches("\\d{1,6}MiB")) {
            return Long.parseLong(value.replace("MiB", "")) << 20;
        }
        throw new UsageException("--" + name + " " + value + ": expected a size such as 64MiB");
    }

    public <E extends Enum<E>> E choice(final String name, final Class<E> type) {
        for (final E constant : type.getEnumConstants()) {
            if (constant.name().equalsIgnoreCase(text(name))) {
                return constant;
            }
        }
        throw new UsageException("--" + name + " " + text(name) + ": expected one of "
                + java.util.Arrays.toString(type.getEnumConstants()).toLowerCase(java.util.Locale.ROOT));
    }
}
