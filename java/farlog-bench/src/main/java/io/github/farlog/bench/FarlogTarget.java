package io.github.farlog.bench;

import io.github.farlog.client.Batch;
import io.github.farlog.client.Level;
import io.github.farlog.client.Position;
import io.github.farlog.client.Reader;
import io.github.farlog.client.ReaderOptions;
import io.github.farlog.client.Result;
import io.github.farlog.client.Ring;
import io.github.farlog.client.RingOptions;
import io.github.farlog.client.Writer;
import io.github.farlog.client.WriterOptions;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;

/** Our writer, and a drain that only releases. */
final class FarlogTarget implements Target {
    /** Where rings in memory lie. */
    static final Path MEMORY = Path.of("/dev/shm");
    static final long RING_BYTES = 64L << 20;
    /** Records between two drains: a quarter of the ring. */
    private static final int DRAIN_EVERY = 48_000;

    /** How the payload is handed over. */
    enum Form {
        SEGMENT,
        BYTES,
        CLAIM
    }

    private final String name;
    private final Path file;
    private final Form form;
    private final int len;
    private final int blockCount;
    private final byte[][] arrays;
    private final MemorySegment[] segments;
    private final Writer writer;
    private final Drain drain;
    private final Position position = new Position();
    private int sinceDrain;

    private FarlogTarget(final String name, final Path file, final String uri, final Level level, final Form form,
        final int len,
        final int blockCount) throws Exception {
        this.name = name;
        this.file = file;
        this.form = form;
        this.len = len;
        this.blockCount = blockCount;
        arrays = Target.payloads(len);
        segments = new MemorySegment[PAYLOAD_COUNT];
        for (int i = 0; i < PAYLOAD_COUNT; i++) {
            segments[i] = Arena.global().allocate(len, 64).copyFrom(MemorySegment.ofArray(arrays[i]));
        }
        Ring.format(uri, RingOptions.defaults().withSizeBytes(RING_BYTES).withForce(true));
        writer = Writer.open(uri,
            WriterOptions.defaults().withLevel(level).withCountersDir("").withDeadline(Duration.ofSeconds(2)));
        drain = new Drain(uri);
    }

    /** A ring on tmpfs, flushed as persistent memory is: what an append costs where the memory is persistent. */
    static FarlogTarget inMemory(final String name, final Form form, final int len) throws Exception {
        final Path file = ringFile(name);
        return new FarlogTarget(name, file, uriOf(file), Level.VISIBLE, form, len, 2000);
    }

    /** A ring in a file on a disk, each append synced by msync. */
    static FarlogTarget onDisk(final String name, final Path folder, final int len) throws Exception {
        final Path file = folder.resolve(name + ".ring");
        Files.deleteIfExists(file);
        return new FarlogTarget(name, file, "mem:" + file, Level.PERSISTENT, Form.BYTES, len, 50);
    }

    static Path ringFile(final String name) {
        return MEMORY.resolve("farlog-bench-" + ProcessHandle.current().pid() + "-" + name);
    }

    static String uriOf(final Path file) {
        return "mem:" + file + "?flush=auto";
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public int blockCount() {
        return blockCount;
    }

    @Override
    public void append(final int i) {
        final Result result = switch (form) {
            case SEGMENT -> writer.append(segments[i & 63], 1, null, 0, position);
            case BYTES -> writer.append(arrays[i & 63], 0, len, 1, null, 0, 0, 0, position);
            case CLAIM -> claim(arrays[i & 63]);
        };
        if (result != Result.OK) {
            throw new IllegalStateException(name + ": " + result);
        }
    }

    private Result claim(final byte[] payload) {
        final MemorySegment room = writer.claim(len, 1, null, 0, 0);
        if (room == null) {
            return writer.lastResult();
        }
        MemorySegment.copy(payload, 0, room, ValueLayout.JAVA_BYTE, 0, len);
        return writer.commit(0, position);
    }

    @Override
    public void rest(final int count) {
        sinceDrain += count;
        if (sinceDrain >= DRAIN_EVERY) {
            drain.run();
            sinceDrain = 0;
        }
    }

    @Override
    public void close() throws Exception {
        drain.close();
        writer.close();
        Files.deleteIfExists(file);
    }

    /** Reads and releases whatever is there. */
    static final class Drain implements AutoCloseable {
        private final Reader reader;
        private final Batch batch = new Batch(1 << 20);

        Drain(final String uri) throws Exception {
            reader = Reader.open(uri, ReaderOptions.defaults().withDraining());
        }

        void run() {
            Result result;
            while ((result = reader.read(batch)) == Result.OK) {
                result = reader.release(batch);
                if (result != Result.OK) {
                    break;
                }
            }
            if (result != Result.NOT_YET) {
                throw new IllegalStateException("drain: " + result);
            }
        }

        @Override
        public void close() {
            reader.close();
        }
    }
}
