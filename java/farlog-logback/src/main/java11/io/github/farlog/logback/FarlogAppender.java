package io.github.farlog.logback;

import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.UnsynchronizedAppenderBase;

/**
 * What a Java that is too old finds under the appender's name: in the jar the appender itself is of the classes for
 * Java 22. Without this one Logback would print a status and go on without the appender, and no event would be
 * recorded.
 */
public final class FarlogAppender extends UnsynchronizedAppenderBase<ILoggingEvent> {
    /** Made by Logback's configurator. */
    public FarlogAppender() {
    }

    /** An Error, because Logback prints the exceptions of its configuration and goes on. */
    @Override
    public void start() {
        throw new UnsupportedClassVersionError("Appender [" + name + "]: " + reason() + "; nothing would be recorded");
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
    protected void append(final ILoggingEvent event) {
        throw new IllegalStateException("Appender [" + name + "] is not running");
    }
}
