package io.github.farlog.endtoend;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;

/**
 * What became of each logging call of an application: bytes in shared memory, which outlive its process. A byte has one
 * writer.
 */
final class Notes {
    static final int THREADS = 3;
    static final int EVENTS_MAX = 1 << 18;
    /** The call returned. */
    static final byte RETURNED = 1;
    /** It threw, and said that nothing was written. */
    static final byte REFUSED = 2;
    /** It threw, and said that the event may or may not be there. */
    static final byte UNKNOWN = 3;
    private static final int RECONFIGURED = THREADS * EVENTS_MAX;

    private final MappedByteBuffer bytes;

    Notes(final Path path) throws IOException {
        try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw")) {
            bytes = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, RECONFIGURED + Integer.BYTES);
        }
    }

    void put(final int thread, final int event, final byte outcome) {
        bytes.put(thread * EVENTS_MAX + event, outcome);
    }

    byte get(final int thread, final int event) {
        return bytes.get(thread * EVENTS_MAX + event);
    }

    void countReconfiguration() {
        bytes.putInt(RECONFIGURED, reconfigurations() + 1);
    }

    int reconfigurations() {
        return bytes.getInt(RECONFIGURED);
    }

    /** How many calls ended so. */
    int count(final byte outcome) {
        int count = 0;
        for (int thread = 0; thread < THREADS; thread++) {
            for (int event = 0; event < EVENTS_MAX && get(thread, event) != 0; event++) {
                count += get(thread, event) == outcome ? 1 : 0;
            }
        }
        return count;
    }
}
