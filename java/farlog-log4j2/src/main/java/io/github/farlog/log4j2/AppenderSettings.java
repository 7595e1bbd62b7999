package io.github.farlog.log4j2;

import java.io.Serializable;
import org.apache.logging.log4j.core.Filter;
import org.apache.logging.log4j.core.Layout;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.Property;

/**
 * What a configuration says of an appender, checked.
 *
 * @param name of the appender
 * @param configuration that it is in; null for one made by hand
 * @param filter null = takes every event
 * @param layout gives a record's payload
 * @param isIgnoringExceptions whether Log4j is to swallow what the appender throws
 * @param properties passed on to Log4j
 * @param ring what is asked of the ring
 * @param policy what becomes of an event that the ring refuses
 * @param classes markers and levels to classes
 * @param keyMdc name of the thread context value that is the record's key; null = no key
 * @param failoverRef appender that takes what the ring refuses; null = the application is told
 */
record AppenderSettings(String name, Configuration configuration, Filter filter, Layout<? extends Serializable> layout,
    boolean isIgnoringExceptions, Property[] properties, RingSettings ring, FullPolicy policy, EventClasses classes,
    String keyMdc,
    String failoverRef) {
}
