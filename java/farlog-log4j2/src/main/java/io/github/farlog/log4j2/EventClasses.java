package io.github.farlog.log4j2;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.Marker;
import org.apache.logging.log4j.MarkerManager;
import org.apache.logging.log4j.core.LogEvent;

/**
 * Markers and levels to class and criticality. Rules with a marker are asked before those without, then the more severe
 * level before the less severe, then in the order written: so the answer is the same in formats that keep no order.
 *
 * <p>Immutable; any thread; finding a class allocates nothing.
 */
final class EventClasses {
    static final int CLASS_MAX = 65535;

    /** A class and what may become of its events. */
    record EventClass(int id, Criticality criticality) {
    }

    private record Rule(Marker marker, Level level, EventClass eventClass) {
        boolean matches(final LogEvent event) {
            return (level == null || event.getLevel().isMoreSpecificThan(level))
                && (marker == null || event.getMarker() != null && event.getMarker().isInstanceOf(marker));
        }
    }

    private static final Comparator<Rule> ORDER = Comparator.<Rule, Boolean>comparing(rule -> rule.marker() == null)
        .thenComparing(rule -> rule.level() == null ? Integer.MAX_VALUE : rule.level().intLevel());

    private final Rule[] rules;
    private final EventClass fallback;

    private EventClasses(final Rule[] rules, final EventClass fallback) {
        this.rules = rules;
        this.fallback = fallback;
    }

    /**
     * Checks and orders the rules.
     *
     * @param configured as written
     * @param fallback of events that no rule matches
     * @return the classes
     * @throws IllegalArgumentException naming the rule, its value and what was expected
     */
    static EventClasses of(final List<ClassRule> configured, final EventClass fallback) {
        final List<Rule> rules = new ArrayList<>();
        for (final ClassRule rule : configured) {
            rules.add(check(rule));
        }
        rules.sort(ORDER);
        return new EventClasses(rules.toArray(Rule[]::new), fallback);
    }

    /** The class of an event. */
    EventClass of(final LogEvent event) {
        for (final Rule rule : rules) {
            if (rule.matches(event)) {
                return rule.eventClass();
            }
        }
        return fallback;
    }

    /** Whether some event of this appender has this criticality. */
    boolean contains(final Criticality criticality) {
        boolean found = fallback.criticality() == criticality;
        for (final Rule rule : rules) {
            found |= rule.eventClass().criticality() == criticality;
        }
        return found;
    }

    /**
     * Reads a class number.
     *
     * @param what names the setting in the error
     * @param text 0 to 65535
     * @return the class
     */
    static int parseId(final String what, final String text) {
        try {
            final int id = Integer.parseInt(text.strip());
            if (id >= 0 && id <= CLASS_MAX) {
                return id;
            }
        } catch (final NumberFormatException e) {
            // Said below, with the other wrong numbers.
        }
        throw new IllegalArgumentException(what + "=\"" + text + "\": expected a class from 0 to " + CLASS_MAX);
    }

    /**
     * Reads a criticality.
     *
     * @param text as written; null = normal
     * @return the criticality
     */
    static Criticality parseCriticality(final String text) {
        try {
            return text == null ? Criticality.NORMAL : Criticality.valueOf(text.strip().toUpperCase(Locale.ROOT));
        } catch (final IllegalArgumentException e) {
            throw new IllegalArgumentException("criticality=\"" + text + "\": expected droppable, normal or critical",
                e);
        }
    }

    private static Rule check(final ClassRule rule) {
        if (!rule.unknown().isEmpty()) {
            throw new IllegalArgumentException("Class: unknown attribute " + rule.unknown()
                + ": expected marker, level, id, criticality");
        }
        if (rule.id() == null || rule.marker() == null && rule.level() == null) {
            throw new IllegalArgumentException(
                "Class: expected an id and a marker or a level, got marker=\"" + rule.marker() + "\" level=\""
                    + rule.level() + "\" id=\"" + rule.id() + '"');
        }
        final Level level = rule.level() == null ? null : Level.getLevel(rule.level().strip().toUpperCase(Locale.ROOT));
        if (rule.level() != null && level == null) {
            throw new IllegalArgumentException(
                "Class: level=\"" + rule.level() + "\": expected a level of Log4j or a custom one");
        }
        final Marker marker = rule.marker() == null ? null : MarkerManager.getMarker(rule.marker());
        return new Rule(marker, level,
            new EventClass(parseId("Class id", rule.id()), parseCriticality(rule.criticality())));
    }
}
