package io.github.farlog.orderpath;

import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/** The options of a program: {@code --name value}, each one declared with its default and a line of help. */
public final class Arguments {
    private static final String RINGS = "rings";

    private final String usage;
    private final Map<String, String> values = new LinkedHashMap<>();
    private final Map<String, String> ringFiles = new LinkedHashMap<>();
    private final StringBuilder help = new StringBuilder();

    /** A wrong command line; its text says what was expected. */
    public static class UsageException extends RuntimeException {
        private static final long serialVersionUID = 1;

        UsageException(final String message) {
            super(message);
        }
    }

    /** Not a wrong one: somebody asks what there is. */
    public static final class HelpException extends UsageException {
        private static final long serialVersionUID = 1;

        HelpException(final String message) {
            super(message);
        }
    }

    /** Whether a word asks for help. */
    static boolean isHelp(final String word) {
        return word.equals("--help") || word.equals("-h") || word.equals("help");
    }

    public Arguments(final String usage) {
        this.usage = usage;
    }

    public Arguments option(final String name, final String defaultValue, final String text) {
        values.put(name, defaultValue);
        help.append(String.format("  --%-11s %s%s%n", name, text,
            defaultValue.isEmpty() ? "" : " (default: " + defaultValue + ")"));
        return this;
    }

    /** Reads the command line over the defaults. */
    public Arguments parse(final String[] words) {
        for (int i = 0; i < words.length; i += 2) {
            if (isHelp(words[i])) {
                throw new HelpException(String.format("usage: %s%n%s", usage, help));
            }
            final String name = words[i].startsWith("--") ? words[i].substring(2) : "";
            if (!values.containsKey(name) || i + 1 == words.length) {
                throw new UsageException(
                    String.format("%s: expected --NAME VALUE%nusage: %s%n%s", words[i], usage, help));
            }
            values.put(name, words[i + 1]);
        }
        return this;
    }

    public String text(final String name) {
        return values.get(name);
    }

    /** Declares where rings are made, and one option for a ring that may lie anywhere else. */
    public Arguments ring(final String name, final String file, final String text) {
        ringFiles.put(name, file);
        if (ringFiles.size() == 1) {
            option(RINGS, "/dev/shm",
                "folder of the rings: the default loses its content at a power cut; on a disk or in persistent memory "
                    + "give --level persistent");
        }
        return option(name, "", text + "; formatted if it is not there (default: mem:RINGS/" + file + ")");
    }

    /** The URI of a ring that was declared. */
    public String uri(final String name) {
        return text(name).isEmpty()
            ? "mem:" + Path.of(text(RINGS)).toAbsolutePath().normalize().resolve(ringFiles.get(name)) : text(name);
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
