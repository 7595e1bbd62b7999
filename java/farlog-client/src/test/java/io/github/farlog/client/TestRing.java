package io.github.farlog.client;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** A ring of a test, gone when the test is. */
final class TestRing implements AutoCloseable {
    /** A record that was read. */
    record Read(long lsn, long seq, int epoch, int classId, byte[] key, byte[] payload) {
        String text() {
            return new String(payload, StandardCharsets.UTF_8);
        }
    }

    final Path path;
    final String uri;
    private final WriterOptions options;

    private TestRing(final Path folder, final RingOptions ringOptions, final Level level)
        throws IOException, FarlogException {
        path = Files.createTempFile(folder, "farlog-java-", ".ring");
        Files.delete(path);
        uri = "mem:" + path;
        Ring.format(uri, ringOptions);
        options = WriterOptions.defaults().withLevel(level).withCountersDir("");
    }

    /** In memory: level visible, an append takes less than a microsecond. */
    static TestRing inMemory(final long sizeBytes) throws IOException, FarlogException {
        return inMemory(RingOptions.defaults().withSizeBytes(sizeBytes));
    }

    static TestRing inMemory(final RingOptions options) throws IOException, FarlogException {
        return new TestRing(Path.of("/dev/shm"), options, Level.VISIBLE);
    }

    /** A plain file: level persistent by msync, so that an append waits for the disk. */
    static TestRing onDisk(final long sizeBytes) throws IOException, FarlogException {
        final Path folder = Files.createDirectories(Path.of("target", "rings")).toAbsolutePath();
        return new TestRing(folder, RingOptions.defaults().withSizeBytes(sizeBytes), Level.PERSISTENT);
    }

    WriterOptions options() {
        return options;
    }

    Writer writer() throws FarlogException {
        return Writer.open(uri, options);
    }

    SharedWriter shared() throws FarlogException {
        return SharedWriter.open(uri, options);
    }

    /** Every record of the application that is in the ring. */
    List<Read> read() throws FarlogException {
        try (Reader reader = Reader.open(uri, ReaderOptions.defaults())) {
            return read(reader, false);
        }
    }

    /** The same, and the ring is empty afterwards. */
    List<Read> drain() throws FarlogException {
        try (Reader reader = Reader.open(uri, ReaderOptions.defaults().withDraining())) {
            return read(reader, true);
        }
    }

    private static List<Read> read(final Reader reader, final boolean isReleasing) {
        final List<Read> all = new ArrayList<>();
        final Batch batch = new Batch();
        Result result = reader.read(batch);
        while (result == Result.OK) {
            while (batch.nextPayload()) {
                all.add(
                    new Read(batch.lsn(), batch.seq(), batch.epoch(), batch.classId(), NativeCalls.bytes(batch.key()),
                        NativeCalls.bytes(batch.payload())));
            }
            result = isReleasing ? reader.release(batch) : Result.OK;
            if (result == Result.OK) {
                result = reader.read(batch);
            }
        }
        if (result != Result.NOT_YET) {
            throw new AssertionError("reading ended with " + result);
        }
        return all;
    }

    /** Gives space back without looking at the records. */
    void empty() throws FarlogException {
        try (Reader reader = Reader.open(uri, ReaderOptions.defaults().withDraining())) {
            final Batch batch = new Batch(4 << 20);
            while (reader.read(batch) == Result.OK) {
                reader.release(batch);
            }
        }
    }

    static byte[] bytes(final String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** A payload that tells whose it is: thread, number, filler that follows from them. */
    static byte[] numbered(final int thread, final long number, final int fillerMax) {
        final int filler = (int) ((number * 37 + thread) % (fillerMax + 1));
        final ByteBuffer buffer = ByteBuffer.allocate(12 + filler).putInt(thread).putLong(number);
        while (buffer.hasRemaining()) {
            buffer.put((byte) (number + buffer.position()));
        }
        return buffer.array();
    }

    @Override
    public void close() throws IOException {
        Files.deleteIfExists(path);
    }
}
