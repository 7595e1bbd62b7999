package farlog.recorder;

import java.io.BufferedOutputStream;
import java.io.Closeable;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import quickfix.Log;
import quickfix.LogFactory;
import quickfix.SessionID;

/**
 * Every FIX message that the trading host's engine sends or receives, in the order it saw them: one line a message,
 * {@code unix_ns direction raw}. The engine writes its message log through here, so what is recorded is what was on the wire.
 */
final class Recording implements LogFactory, Closeable {
    private static final long NANOS = 1_000_000_000L;

    private final OutputStream out;
    private long lastNs;
    private long messageCount;

    Recording(final Path path) throws IOException {
        out = new BufferedOutputStream(Files.newOutputStream(path), 1 << 20);
    }

    @Override
    public Log create(final SessionID session) {
        return new MessageLog();
    }

    synchronized long messageCount() {
        return messageCount;
    }

    @Override
    public synchronized void close() throws IOException {
        out.close();
    }

    /** The time is read under the lock and never goes back, so that the order of lines is the order of times. */
    private synchronized void write(final char direction, final String raw) {
        final Instant now = Instant.now();
        lastNs = Math.max(lastNs, now.getEpochSecond() * NANOS + now.getNano());
        try {
            out.write((lastNs + " " + direction + " ").getBytes(StandardCharsets.US_ASCII));
            out.write(raw.getBytes(StandardCharsets.ISO_8859_1));
            out.write('\n');
        } catch (final IOException e) {
            throw new UncheckedIOException("write recording", e);
        }
        messageCount++;
    }

    private final class MessageLog implements Log {
        @Override
        public void onIncoming(final String message) {
            write('I', message);
        }

        @Override
        public void onOutgoing(final String message) {
            write('O', message);
        }

        @Override
        public void onEvent(final String text) {
            // Engine events are not FIX messages.
        }

        @Override
        public void onErrorEvent(final String text) {
            System.err.println("engine: " + text);
        }

        @Override
        public void clear() {
            // A recording is only ever appended to.
        }
    }
}
