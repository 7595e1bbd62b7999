package io.github.farlog.log4j2;

import org.apache.logging.log4j.core.Appender;
import org.apache.logging.log4j.core.Core;
import org.apache.logging.log4j.core.LifeCycle;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.ConfigurationException;
import org.apache.logging.log4j.core.config.Property;
import org.apache.logging.log4j.core.config.plugins.Plugin;
import org.apache.logging.log4j.core.config.plugins.PluginAttribute;
import org.apache.logging.log4j.core.config.plugins.PluginConfiguration;
import org.apache.logging.log4j.core.config.plugins.PluginFactory;

/**
 * What a Java that is too old finds under the appender's name: in the jar the appender itself is of the classes for
 * Java 22. Without this one Log4j would print a status and go on without the appender, and no event would be recorded.
 */
@Plugin(name = "Farlog", category = Core.CATEGORY_NAME, elementType = Appender.ELEMENT_TYPE, printObject = true,
    deferChildren = true)
public final class FarlogAppender extends AbstractAppender {
    private final Configuration configuration;

    private FarlogAppender(final String name, final Configuration configuration) {
        super(name, null, null, false, Property.EMPTY_ARRAY);
        this.configuration = configuration;
    }

    /**
     * Called by Log4j.
     *
     * @param name of the appender
     * @param configuration that it is in
     * @return refuses to start
     */
    @PluginFactory
    public static FarlogAppender createAppender(@PluginAttribute("name") final String name,
        @PluginConfiguration final Configuration configuration) {
        return new FarlogAppender(name == null ? "farlog" : name, configuration);
    }

    /** As the appender does with a configuration that cannot work. */
    @Override
    public void start() {
        final String text = "farlog refuses the configuration: appender \"" + getName() + "\": " + reason()
            + "; nothing would be recorded";
        LOGGER.error(text);
        if (configuration != null && configuration.getState() == LifeCycle.State.STARTING) {
            configuration.stop();
        }
        throw new ConfigurationException(text);
    }

    private static String reason() {
        if (Runtime.version().feature() >= 22) {
            return "the classes for Java 22 are not found: the jar was unpacked, or packed into another one whose "
                + "manifest lacks Multi-Release: true";
        }
        return "farlog needs Java 22 or later, this is " + System.getProperty("java.version") + " in "
            + System.getProperty("java.home");
    }

    @Override
    public void append(final LogEvent event) {
        throw new IllegalStateException("appender \"" + getName() + "\" is not running");
    }
}
