package io.github.farlog.log4j2;

import io.github.farlog.client.Batch;
import io.github.farlog.client.FarlogException;
import io.github.farlog.client.Reader;
import io.github.farlog.client.ReaderOptions;
import io.github.farlog.client.Result;
import io.github.farlog.client.Ring;
import io.github.farlog.client.RingOptions;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

/** A real ring of a test, and what is in it. */
final class TestRing implements AutoCloseable {
    private static final AtomicInteger COUNT = new AtomicInteger();

    final Path path;
    final String uri;

    /** One record that an application wrote. */
    record Entry(long seq, int epoch, int classId, String key, String text) {
    }

    private TestRing(final Path path) {
        this.path = path;
        this.uri = "mem:" + path;
    }

    /** A name on tmpfs where no ring is yet. */
    static TestRing absent() {
        return new TestRing(
            Path.of("/dev/shm", "farlog-log4j2-" + ProcessHandle.current().pid() + "-" + COUNT.incrementAndGet()));
    }

    /** A ring on tmpfs: level visible. */
    static TestRing onTmpfs(final long sizeBytes) {
        return absent().format(sizeBytes);
    }

    /** A ring in a plain file: level persistent, by msync. */
    static TestRing inFile(final long sizeBytes) {
        try {
            final Path dir = Files.createDirectories(Path.of("target", "rings").toAbsolutePath());
            return new TestRing(dir.resolve(ProcessHandle.current().pid() + "-" + COUNT.incrementAndGet()))
                .format(sizeBytes);
        } catch (final IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    TestRing format(final long sizeBytes) {
        try {
            final int recordLenMax = (int) Math.min(4 << 20, sizeBytes / 8 / 4096 * 4096);
            Ring.format(uri,
                RingOptions.defaults().withSizeBytes(sizeBytes).withRecordLenMax(recordLenMax).withForce(true));
            return this;
        } catch (final FarlogException e) {
            throw new IllegalStateException(e);
        }
    }

    /** What is in the ring and not drained. */
    List<Entry> entries() {
        return read(ReaderOptions.defaults());
    }

    List<String> texts() {
        return entries().stream().map(Entry::text).toList();
    }

    /** The same, and makes room of it. */
    List<Entry> drain() {
        return read(ReaderOptions.defaults().withDraining());
    }

    int epoch() {
        try {
            return Ring.inspect(uri).writerEpoch();
        } catch (final FarlogException e) {
            throw new IllegalStateException(e);
        }
    }

    private List<Entry> read(final ReaderOptions options) {
        final List<Entry> entries = new ArrayList<>();
        final Batch batch = new Batch(1 << 20);
        try (Reader reader = Reader.open(uri, options)) {
            Result result = reader.read(batch);
            while (result == Result.OK) {
                while (batch.nextPayload()) {
                    entries.add(new Entry(batch.seq(), batch.epoch(), batch.classId(), text(batch.key()),
                        text(batch.payload())));
                }
                if (options.draining()) {
                    result = reader.release(batch);
                }
                result = result == Result.OK ? reader.read(batch) : result;
            }
            if (result != Result.NOT_YET) {
                throw new IllegalStateException("read " + uri + ": " + result);
            }
        } catch (final FarlogException e) {
            throw new IllegalStateException(e);
        }
        return entries;
    }

    private static String text(final java.lang.foreign.MemorySegment bytes) {
        return new String(bytes.toArray(ValueLayout.JAVA_BYTE), StandardCharsets.UTF_8);
    }

    @Override
    public void close() {
        try {
            Files.deleteIfExists(path);
        } catch (final IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
