package io.github.farlog.log4j2;

import org.apache.logging.log4j.core.config.Node;
import org.apache.logging.log4j.core.config.plugins.Plugin;
import org.apache.logging.log4j.core.config.plugins.PluginAttribute;
import org.apache.logging.log4j.core.config.plugins.PluginFactory;
import org.apache.logging.log4j.core.config.plugins.PluginNode;

/**
 * One {@code <Class marker="ORDER" level="WARN" id="1" criticality="critical"/>} of an appender: which events have the
 * class. Its values are checked by the appender, which refuses the configuration; a plugin of its own could only vanish
 * from it.
 *
 * @param marker name of a marker; events with it or a child of it match; null = any event
 * @param level events of this level and more severe ones match; null = any event
 * @param id class of the record, 1 to 65535
 * @param criticality droppable, normal or critical
 * @param unknown attributes that have no meaning; empty when there are none
 */
@Plugin(name = "Class", category = Node.CATEGORY, printObject = true)
public record ClassRule(String marker, String level, String id, String criticality, String unknown) {
    /**
     * Called by Log4j.
     *
     * @param marker name of a marker
     * @param level name of a level
     * @param id class of the record
     * @param criticality droppable, normal or critical
     * @param node what is configured
     * @return the rule, not yet checked
     */
    @PluginFactory
    public static ClassRule create(@PluginAttribute("marker") final String marker,
        @PluginAttribute("level") final String level,
        @PluginAttribute("id") final String id, @PluginAttribute("criticality") final String criticality,
        @PluginNode final Node node) {
        return new ClassRule(marker, level, id, criticality, String.join(", ", node.getAttributes().keySet()));
    }
}
