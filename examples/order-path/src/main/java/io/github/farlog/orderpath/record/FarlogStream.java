package io.github.farlog.orderpath.record;

import io.github.farlog.client.FarlogException;
import io.github.farlog.client.Level;
import io.github.farlog.client.Result;
import io.github.farlog.client.Ring;
import io.github.farlog.client.RingOptions;
import io.github.farlog.client.WriterOptions;
import java.time.Duration;

/**
 * The farlog stream that a program records in.
 *
 * @param uri of its ring: {@code mem:/path}
 * @param level that an acknowledgement must have; a region that cannot give it refuses when it is opened
 */
public record FarlogStream(String uri, Level level) {
    private static final Duration DEADLINE = Duration.ofSeconds(1);

    /** Formats the ring where there is no file. One that is there is used as it is, with its size and what is in it. */
    public FarlogStream formatted(final String streamName, final long sizeBytes) throws FarlogException {
        try {
            Ring.inspect(uri);
        } catch (final FarlogException e) {
            if (e.result() != Result.NOT_FOUND) {
                throw e;
            }
            Ring.format(uri, RingOptions.defaults().withSizeBytes(sizeBytes).withStreamName(streamName));
        }
        return this;
    }

    /** A full ring is waited for a second, until the drain has made room; then the append is refused. */
    public WriterOptions writerOptions(final String writerName) {
        return WriterOptions.defaults().withLevel(level).withDeadline(DEADLINE).withName(writerName);
    }
}
