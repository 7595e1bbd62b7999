package io.github.farlog.client;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;

/**
 * The process that {@link KillTest} kills: appends from three threads, and says so on its output after each
 * acknowledgement.
 */
final class KillChild {
    static final int THREADS = 3;
    static final int ACK_LEN = 20;
    static final int FILLER_MAX = 500;

    private KillChild() {
    }

    /**
     * Runs until it is killed.
     *
     * @param arguments uri, level, whether the writer is shared
     */
    public static void main(final String[] arguments) throws FarlogException {
        final WriterOptions options = WriterOptions.defaults().withLevel(Level.valueOf(arguments[1]))
            .withCountersDir("").withDeadline(Duration.ofSeconds(10));
        if (Boolean.parseBoolean(arguments[2])) {
            final SharedWriter writer = SharedWriter.open(arguments[0], options);
            for (int t = 1; t < THREADS; t++) {
                final int thread = t;
                Thread.ofPlatform().start(
                    () -> run(thread, (data, out) -> writer.append(data, 0, data.length, 1, null, 0, 0, 0, out)));
            }
            run(0, (data, out) -> writer.append(data, 0, data.length, 1, null, 0, 0, 0, out));
        } else {
            final Writer writer = Writer.open(arguments[0], options);
            run(0, (data, out) -> writer.append(data, 0, data.length, 1, null, 0, 0, 0, out));
        }
    }

    private interface Append {
        Result to(byte[] data, Position out);
    }

    private static void run(final int thread, final Append append) {
        final Position position = new Position();
        final ByteBuffer ack = ByteBuffer.allocate(ACK_LEN);
        try (FileOutputStream out = new FileOutputStream(FileDescriptor.out)) {
            for (long number = 1;; number++) {
                final Result result = append.to(TestRing.numbered(thread, number, FILLER_MAX), position);
                if (result != Result.OK) {
                    System.err.println("thread " + thread + " number " + number + ": " + result);
                    Runtime.getRuntime().halt(3);
                }
                // One write of so few bytes to a pipe is whole or not at all.
                out.write(ack.clear().putInt(thread).putLong(number).putLong(position.lsn()).array());
            }
        } catch (final IOException e) {
            Runtime.getRuntime().halt(4);
        }
    }
}
