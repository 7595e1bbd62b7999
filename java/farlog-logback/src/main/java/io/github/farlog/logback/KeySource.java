package io.github.farlog.logback;

import ch.qos.logback.classic.spi.ILoggingEvent;
import java.util.List;
import org.slf4j.event.KeyValuePair;

/**
 * Where a record's key comes from.
 *
 * @param mdc name of the MDC value; null = none
 * @param pair key of the SLF4J pair that is used when the MDC has no value; null = none
 */
record KeySource(String mdc, String pair) {
    /** Null when the event has none. Allocates only for a pair whose value is not text. */
    CharSequence of(final ILoggingEvent event) {
        final String fromMdc = mdc == null ? null : event.getMDCPropertyMap().get(mdc);
        if (fromMdc != null || pair == null) {
            return fromMdc;
        }
        final List<KeyValuePair> pairs = event.getKeyValuePairs();
        for (int i = 0; pairs != null && i < pairs.size(); i++) {
            if (pair.equals(pairs.get(i).key)) {
                final Object value = pairs.get(i).value;
                return value instanceof final CharSequence text ? text : String.valueOf(value);
            }
        }
        return null;
    }
}
