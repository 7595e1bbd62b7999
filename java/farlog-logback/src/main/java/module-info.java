/** Logback appender whose logging call returns when the event is in a farlog ring, at the level that was asked for. */
module io.github.farlog.logback {
    requires transitive ch.qos.logback.classic;
    requires transitive ch.qos.logback.core;
    requires transitive org.slf4j;
    requires transitive io.github.farlog.client;
    requires java.management;
    requires static micrometer.core;

    exports io.github.farlog.logback;

    // Joran sets the appender's properties by reflection; the MXBean is read by it.
    opens io.github.farlog.logback;
}
