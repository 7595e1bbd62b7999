package io.github.farlog.logback;

import static org.junit.jupiter.api.Assertions.assertEquals;

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

/** A ring in shared memory that is deleted at the end, and what is in it. */
final class TestRing implements AutoCloseable {
    private static final AtomicInteger COUNT = new AtomicInteger();

    final Path path;
    final String uri;

    record Record(int classId, String key, String text, int epoch) {
    }

    TestRing(final long sizeBytes) {
        this(sizeBytes, 0);
    }

    TestRing(final long sizeBytes, final int recordLenMax) {
        path = Path.of("/dev/shm",
            "farlog-logback-" + ProcessHandle.current().pid() + "-" + COUNT.incrementAndGet() + ".ring");
        uri = "mem:" + path;
        try {
            Ring.format(uri,
                RingOptions.defaults().withSizeBytes(sizeBytes).withRecordLenMax(recordLenMax).withStreamName("test"));
        } catch (final FarlogException e) {
            throw new IllegalStateException(e);
        }
    }

    /** One that is there. */
    TestRing(final Path path) {
        this.path = path;
        uri = "mem:" + path;
    }

    List<Record> records() {
        return read(ReaderOptions.defaults(), false);
    }

    List<String> texts() {
        return records().stream().map(Record::text).toList();
    }

    /** What is in it, and frees its space. */
    List<Record> drain() {
        return read(ReaderOptions.defaults().withDraining(), true);
    }

    private List<Record> read(final ReaderOptions options, final boolean isReleased) {
        final List<Record> records = new ArrayList<>();
        final Batch batch = new Batch(8 << 20);
        try (Reader reader = Reader.open(uri, options)) {
            Result result = reader.read(batch);
            while (result == Result.OK) {
                while (batch.nextPayload()) {
                    records.add(new Record(batch.classId(), text(batch.key().toArray(ValueLayout.JAVA_BYTE)),
                        text(batch.payload().toArray(ValueLayout.JAVA_BYTE)), batch.epoch()));
                }
                if (isReleased) {
                    assertEquals(Result.OK, reader.release(batch));
                }
                result = reader.read(batch);
            }
            assertEquals(Result.NOT_YET, result);
        } catch (final FarlogException e) {
            throw new IllegalStateException(e);
        }
        return records;
    }

    private static String text(final byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
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
