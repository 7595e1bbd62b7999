package io.github.farlog.log4j2;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.ConfigurationSource;
import org.apache.logging.log4j.core.config.xml.XmlConfiguration;

/** Contexts from XML that a test writes down. */
final class Contexts {
    private Contexts() {
    }

    /** A context that runs on one appender, to which the root logger refers by the name "farlog". */
    static LoggerContext of(final String appenders) {
        return start(new LoggerContext("test"), appenders);
    }

    /** The same for a context that a test chose. */
    static LoggerContext start(final LoggerContext context, final String appenders) {
        context.start(configuration(context, appenders, "<Root level='trace'><AppenderRef ref='farlog'/></Root>"));
        return context;
    }

    static Configuration configuration(final LoggerContext context, final String appenders, final String loggers) {
        final String xml = "<Configuration status='off' shutdownHook='disable'><Appenders>" + appenders
            + "</Appenders><Loggers>" + loggers
            + "</Loggers></Configuration>";
        try {
            return new XmlConfiguration(context,
                new ConfigurationSource(new ByteArrayInputStream(xml.getBytes(StandardCharsets.UTF_8))));
        } catch (final IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Reconfigures a running context. */
    static void reconfigure(final LoggerContext context, final String appenders) {
        context
            .reconfigure(configuration(context, appenders, "<Root level='trace'><AppenderRef ref='farlog'/></Root>"));
    }

    /** One appender with these attributes and elements. */
    static String farlog(final TestRing ring, final String attributes, final String elements) {
        return "<Farlog name='farlog' uri='" + ring.uri + "' level='visible' " + attributes
            + "><PatternLayout pattern='%m'/>" + elements
            + "</Farlog>";
    }
}
