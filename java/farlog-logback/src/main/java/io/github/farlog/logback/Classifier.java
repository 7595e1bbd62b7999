package io.github.farlog.logback;

import ch.qos.logback.classic.spi.ILoggingEvent;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.slf4j.Marker;
import org.slf4j.event.KeyValuePair;

/**
 * Gives an event its class and its criticality, as one number: the class in its lower 16 bits. Immutable after its
 * rules are added; any thread; allocates nothing for events without nested markers and with text or numbers as pairs'
 * values.
 *
 * <p>Key-value pairs decide before markers, markers before levels; among pairs and markers the first of the event that
 * has a rule.
 */
final class Classifier {
    static final int CLASS_MAX = 65535;
    /** May be dropped, whatever the policy: counted, and told by a gap record. */
    static final int DROPPABLE = 1 << 16;
    /** Is never dropped: where the policy would drop it, the logging call throws. */
    static final int CRITICAL = 2 << 16;
    private static final int CRITICALITY = DROPPABLE | CRITICAL;
    /** That of a critical event, by which a route's legs choose. */
    static final int CRITICALITY_MAX = 2;
    private static final String FORMS = "marker:NAME=CLASS, level:NAME=CLASS, pair:KEY:VALUE=CLASS, or pair:KEY=* (the "
        + "value is the class), and then optionally a space and droppable or critical";

    private final int fallback;
    private final Map<String, Integer> markers = new HashMap<>();
    private final Map<Integer, Integer> levels = new HashMap<>();
    /** By the pair's key, then by its value; {@link #ANY} in it: the value is the class. */
    private final Map<String, Map<String, Integer>> pairs = new HashMap<>();
    private final List<String> nested = new ArrayList<>();
    private static final String ANY = "*";

    Classifier(final int fallback) {
        this.fallback = fallback;
    }

    /** By which a route's legs choose: 0 droppable, 1 neither, 2 critical. */
    static int criticalityOf(final int kind) {
        return (kind & DROPPABLE) != 0 ? 0 : (kind & CRITICAL) != 0 ? CRITICALITY_MAX : 1;
    }

    /** Adds a rule as written in the configuration. */
    void add(final String rule) {
        final int equals = rule.lastIndexOf('=');
        final int colon = rule.indexOf(':');
        if (colon < 0 || equals < colon + 2) {
            throw new IllegalArgumentException("classOf \"" + rule + "\": expected " + FORMS);
        }
        final String name = rule.substring(colon + 1, equals).trim();
        final String[] words = rule.substring(equals + 1).trim().split("\\s+");
        final String number = words[0];
        final int criticality = criticality(rule, words);
        switch (rule.substring(0, colon).trim()) {
            case "marker" -> {
                markers.put(name, parse("classOf", number) | criticality);
                nested.add(name);
            }
            case "level" -> levels.put(level(rule, name), parse("classOf", number) | criticality);
            case "pair" -> addPair(rule, name, number, criticality);
            default -> throw new IllegalArgumentException("classOf \"" + rule + "\": expected " + FORMS);
        }
    }

    private void addPair(final String rule, final String name, final String number, final int criticality) {
        final int colon = name.indexOf(':');
        final boolean isAny = ANY.equals(number);
        if (isAny == colon >= 0) {
            throw new IllegalArgumentException("classOf \"" + rule + "\": expected " + FORMS);
        }
        final String key = isAny ? name : name.substring(0, colon);
        pairs.computeIfAbsent(key, ignored -> new HashMap<>())
            .put(isAny ? ANY : name.substring(colon + 1), isAny ? criticality : parse("classOf", number) | criticality);
    }

    private static int criticality(final String rule, final String[] words) {
        final String word = words.length == 2 ? words[1] : words.length == 1 ? "" : "?";
        return switch (word) {
            case "" -> 0;
            case "droppable" -> DROPPABLE;
            case "critical" -> CRITICAL;
            default -> throw new IllegalArgumentException("classOf \"" + rule + "\": expected " + FORMS);
        };
    }

    private static int level(final String rule, final String name) {
        final ch.qos.logback.classic.Level level = ch.qos.logback.classic.Level.toLevel(name, null);
        if (level == null) {
            throw new IllegalArgumentException("classOf \"" + rule + "\": no level " + name);
        }
        return level.levelInt;
    }

    static int parse(final String name, final String text) {
        try {
            final int value = Integer.parseInt(text.trim());
            if (value >= 0 && value <= CLASS_MAX) {
                return value;
            }
        } catch (final NumberFormatException e) {
            // Told below.
        }
        throw new IllegalArgumentException(name + " \"" + text + "\": expected a class from 0 to " + CLASS_MAX);
    }

    int classOf(final ILoggingEvent event) {
        int found = pairs.isEmpty() ? -1 : ofPairs(event.getKeyValuePairs());
        if (found < 0 && !markers.isEmpty()) {
            found = ofMarkers(event.getMarkerList());
        }
        if (found < 0 && !levels.isEmpty()) {
            // A level's number is kept as an Integer by Logback; no other number is boxed here.
            final Integer byLevel = levels.get(event.getLevel().toInteger());
            found = byLevel == null ? -1 : byLevel;
        }
        return found < 0 ? fallback : found;
    }

    private int ofPairs(final List<KeyValuePair> list) {
        for (int i = 0; list != null && i < list.size(); i++) {
            final KeyValuePair pair = list.get(i);
            final Map<String, Integer> rules = pairs.get(pair.key);
            final int found = rules == null ? -1 : ofValue(rules, pair.value);
            if (found >= 0) {
                return found;
            }
        }
        return -1;
    }

    private static int ofValue(final Map<String, Integer> rules, final Object value) {
        final Integer named = value instanceof final String text && !text.equals(ANY) ? rules.get(text) : null;
        if (named != null) {
            return named;
        }
        final Integer any = rules.get(ANY);
        if (any != null) {
            final int number = value instanceof final Number given ? inRange(given.longValue()) : ofDigits(value);
            return number < 0 ? -1 : number | any & CRITICALITY;
        }
        if (value == null || value instanceof String) {
            return -1;
        }
        final Integer other = rules.get(value.toString());
        return other == null ? -1 : other;
    }

    private static int ofDigits(final Object value) {
        if (!(value instanceof final String text) || text.isEmpty() || text.length() > 5) {
            return -1;
        }
        int number = 0;
        for (int i = 0; i < text.length(); i++) {
            final int digit = text.charAt(i) - '0';
            if (digit < 0 || digit > 9) {
                return -1;
            }
            number = number * 10 + digit;
        }
        return inRange(number);
    }

    private static int inRange(final long number) {
        return number >= 0 && number <= CLASS_MAX ? (int) number : -1;
    }

    private int ofMarkers(final List<Marker> list) {
        for (int i = 0; list != null && i < list.size(); i++) {
            final Marker marker = list.get(i);
            final Integer found = markers.get(marker.getName());
            if (found != null) {
                return found;
            }
            final int inside = marker.hasReferences() ? ofNested(marker) : -1;
            if (inside >= 0) {
                return inside;
            }
        }
        return -1;
    }

    /** A marker that contains one with a rule: the first rule of the configuration wins. */
    private int ofNested(final Marker marker) {
        for (int i = 0; i < nested.size(); i++) {
            if (marker.contains(nested.get(i))) {
                return markers.get(nested.get(i));
            }
        }
        return -1;
    }
}
