package io.github.farlog.log4j2;

/** What may become of an event that its ring refuses. */
enum Criticality {
    /** May be dropped, whatever the appender's policy: counted, and told by a gap record. */
    DROPPABLE,
    /** As the appender's policy says. */
    NORMAL,
    /** Is never dropped: where the policy would drop it, the logging call throws. */
    CRITICAL
}
