package io.github.farlog.log4j2;

import io.github.farlog.client.RecordSink;
import io.github.farlog.client.RingFile;
import io.github.farlog.log4j2.EventClasses.EventClass;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.apache.logging.log4j.core.Filter;
import org.apache.logging.log4j.core.Layout;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.Node;
import org.apache.logging.log4j.core.config.Property;
import org.apache.logging.log4j.core.config.plugins.PluginBuilderAttribute;
import org.apache.logging.log4j.core.config.plugins.PluginConfiguration;
import org.apache.logging.log4j.core.config.plugins.PluginNode;
import org.apache.logging.log4j.core.layout.PatternLayout;
import org.apache.logging.log4j.core.util.Builder;

/**
 * Takes the attributes and elements of one {@code Farlog}. Log4j drops a plugin whose builder throws and goes on
 * without it; so this one takes everything as text and gives, for what cannot work, an appender that refuses to start.
 */
public final class FarlogAppenderBuilder implements Builder<FarlogAppender> {
    private static final int GAP_CLASS = 65535;
    private static final String LEVEL = "persistent";
    /** Only a configuration fills these; Log4j's check wants setters otherwise. */
    private static final String NO_SETTER = "log4j.public.setter";

    @PluginBuilderAttribute
    @SuppressWarnings(NO_SETTER)
    private String name;
    @PluginBuilderAttribute
    @SuppressWarnings(NO_SETTER)
    private String uri;
    @PluginBuilderAttribute
    @SuppressWarnings(NO_SETTER)
    private String level;
    @PluginBuilderAttribute
    @SuppressWarnings(NO_SETTER)
    private String policy = FullPolicy.DEFAULT;
    @PluginBuilderAttribute
    @SuppressWarnings(NO_SETTER)
    private String failoverRef;
    @PluginBuilderAttribute
    @SuppressWarnings(NO_SETTER)
    private String keyMdc;
    @PluginBuilderAttribute
    @SuppressWarnings(NO_SETTER)
    private String classId = "0";
    @PluginBuilderAttribute
    @SuppressWarnings(NO_SETTER)
    private String criticality;
    @PluginBuilderAttribute
    @SuppressWarnings(NO_SETTER)
    private String gapClass = Integer.toString(GAP_CLASS);
    @PluginBuilderAttribute
    @SuppressWarnings(NO_SETTER)
    private String createRing = "0";
    @PluginBuilderAttribute
    @SuppressWarnings(NO_SETTER)
    private String deadline = "0ns";
    @PluginBuilderAttribute
    @SuppressWarnings(NO_SETTER)
    private String epoch = "0";
    @PluginBuilderAttribute
    @SuppressWarnings(NO_SETTER)
    private String writerName;
    @PluginBuilderAttribute
    @SuppressWarnings(NO_SETTER)
    private String spillDir;
    @PluginBuilderAttribute
    @SuppressWarnings(NO_SETTER)
    private String ignoreExceptions;
    @PluginConfiguration
    private Configuration configuration;
    @PluginNode
    private Node node;

    private Filter filter;
    private Layout<? extends Serializable> layout;
    private final List<ClassRule> rules = new ArrayList<>();
    private final List<Property> properties = new ArrayList<>();

    /** Made by {@link FarlogAppender#newBuilder}. */
    FarlogAppenderBuilder() {
    }

    /**
     * Gives the appender, which refuses to start when a setting is wrong.
     *
     * @return never null
     */
    @Override
    public FarlogAppender build() {
        final String shownName = name == null ? FarlogAppender.PLUGIN_NAME : name;
        try {
            takeChildren();
            return new FarlogAppender(check(), null);
        } catch (final IllegalArgumentException e) {
            return new FarlogAppender(
                new AppenderSettings(shownName, configuration, filter, layout, false, null, null, null, null, null,
                    null),
                e.getMessage());
        }
    }

    private AppenderSettings check() {
        require(name != null && !name.isBlank(), "expected a name");
        require(uri != null && !uri.isBlank(), "expected a uri such as mem:/dev/shm/orders");
        require(node == null || node.getAttributes().isEmpty(), "unknown attribute or element "
            + (node == null ? "" : String.join(", ", node.getAttributes().keySet())));
        final boolean isRoute = RecordSink.isRoute(uri.strip());
        require(!isRoute || level == null && "0".equals(epoch.strip()), "uri=\"" + uri
            + "\" names a route, whose legs have levels and grants of their own: expected no level and no epoch");
        require(isRoute || spillDir == null,
            "spillDir=\"" + spillDir + "\" is for a route: expected uri=\"route:farlog://NAME\"");
        final FullPolicy fullPolicy = FullPolicy.parse(policy);
        final EventClasses classes = EventClasses.of(rules,
            new EventClass(EventClasses.parseId("classId", classId), EventClasses.parseCriticality(criticality)));
        final RingSettings ring = new RingSettings(uri.strip(),
            isRoute ? null : RingSettings.parseLevel(level == null ? LEVEL : level),
            Duration.ofNanos(Units.nanos("deadline", deadline)), RingSettings.parseEpoch(epoch),
            Units.bytes("createRing", createRing),
            writerName, EventClasses.parseId("gapClass", gapClass), spillDir);
        require(ring.createBytes() == 0 || RingFile.pathOf(ring.uri()) != null,
            "createRing=\"" + createRing + "\": makes one ring in a file, and uri=\"" + uri
                + "\" is none: expected mem:PATH, or no createRing");
        require(failoverRef == null || fullPolicy.kind() == FullPolicy.Kind.FAILOVER,
            "failoverRef=\"" + failoverRef + "\" needs policy=\"failover\", not \"" + policy + '"');
        return new AppenderSettings(name, configuration, filter, layoutOrMessage(), isIgnoring(fullPolicy, classes),
            properties.toArray(Property.EMPTY_ARRAY), ring, fullPolicy, classes, keyMdc, failoverRef);
    }

    /** Exceptions that Log4j swallows would be events lost without a word: refused wherever the policy throws. */
    private boolean isIgnoring(final FullPolicy fullPolicy, final EventClasses classes) {
        if (ignoreExceptions == null) {
            return false;
        }
        final String text = ignoreExceptions.strip().toLowerCase(Locale.ROOT);
        require("true".equals(text) || "false".equals(text),
            "ignoreExceptions=\"" + ignoreExceptions + "\": expected true or false");
        final boolean isThrowing = switch (fullPolicy.kind()) {
            case FAIL_STOP, BLOCK, FAILOVER -> true;
            case DROP_AND_GAP -> classes.contains(Criticality.CRITICAL);
        };
        require("false".equals(text) || !isThrowing, "ignoreExceptions=\"true\" contradicts policy=\"" + policy
            + "\": the application would not be told of an event that is not recorded");
        return "true".equals(text);
    }

    private Layout<? extends Serializable> layoutOrMessage() {
        return layout != null ? layout
            : PatternLayout.newBuilder().setPattern("%m").setCharset(StandardCharsets.UTF_8)
                .setConfiguration(configuration).build();
    }

    /**
     * Builds the elements inside: the plugin defers them, so that an unknown or broken one is refused and not left out.
     */
    private void takeChildren() {
        final List<Node> children = node == null ? List.of() : List.copyOf(node.getChildren());
        for (final Node child : children) {
            require(child.getType() != null, "unknown element " + child.getName());
            try (StatusErrorListener errors = new StatusErrorListener()) {
                configuration.createConfiguration(child, null);
                require(errors.first() == null || child.getObject() instanceof ClassRule,
                    "element " + child.getName() + ": " + errors.first());
            }
            take(child);
        }
    }

    private void take(final Node child) {
        final Object value = child.getObject();
        require(value != null, "element " + child.getName() + " cannot be made: see the status log");
        switch (value) {
            case final ClassRule rule -> rules.add(rule);
            case final Property property -> properties.add(property);
            case final Filter only when filter == null -> filter = only;
            case final Layout<?> only when layout == null -> layout = only;
            default -> throw new IllegalArgumentException("element " + child.getName() + " is out of place: expected "
                + "one layout, at most one filter (or one Filters), and any number of Class");
        }
    }

    private static void require(final boolean holds, final String text) {
        if (!holds) {
            throw new IllegalArgumentException(text);
        }
    }
}
