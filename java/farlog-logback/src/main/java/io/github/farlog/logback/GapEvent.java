package io.github.farlog.logback;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.LoggerContext;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.classic.spi.LoggingEvent;
import ch.qos.logback.core.Context;
import ch.qos.logback.core.encoder.Encoder;
import io.github.farlog.client.gap.Gap;
import java.util.Map;

/**
 * The event of a gap record: it counts dropped events. The application's own encoder encodes it, so that readers of the
 * ring can decode it.
 *
 * @param context of the appender; may be null
 * @param encoder of the appender
 */
record GapEvent(Context context, Encoder<ILoggingEvent> encoder) implements Target.GapRecord {
    private static final byte[] NOTHING = {};
    private static final String LOGGER = "io.github.farlog.gap";

    @Override
    public byte[] encode(final Gap gap) {
        final LoggingEvent event = new LoggingEvent();
        event.setLoggerName(LOGGER);
        event.setThreadName(Thread.currentThread().getName());
        event.setLevel(Level.WARN);
        event.setMessage("farlog.gap dropped={} unknown={} from={} to={} cause={}");
        event.setArgumentArray(new Object[] {gap.dropped(), gap.unknown(), gap.from(), gap.to(), gap.cause().name()});
        event.setTimeStamp(System.currentTimeMillis());
        event.setMDCPropertyMap(Map.of());
        if (context instanceof final LoggerContext loggers) {
            event.setLoggerContext(loggers);
            event.setLoggerContextRemoteView(loggers.getLoggerContextRemoteView());
        }
        final byte[] bytes = encoder.encode(event);
        return bytes == null ? NOTHING : bytes;
    }
}
