package io.github.farlog.log4j2;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.github.farlog.client.FarlogException;
import io.github.farlog.client.Level;
import io.github.farlog.client.Position;
import io.github.farlog.client.Result;
import io.github.farlog.client.SharedWriter;
import io.github.farlog.client.WriterOptions;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** An acknowledgement that did not come becomes OK only by the word of the writer that was given the record, about that record. */
class UnknownTest {
    private static final long SIZE_BYTES = 1 << 20;
    private static final byte[] TEXT = "buy 100".getBytes(StandardCharsets.UTF_8);
    private final TestRing ring = TestRing.inFile(SIZE_BYTES);
    private final Position position = new Position();

    @AfterEach
    void removeRing() {
        ring.close();
    }

    @Test
    void shouldBelieveTheWriterThatWasGivenTheRecord() throws Exception {
        try (SharedWriter writer = open()) {
            Result result = Result.OK;
            for (int i = 0; i < 1000 && result == Result.OK; i++) {
                result = append(writer, 1, position);
            }
            assertEquals(Result.UNKNOWN, result);
            assertEquals(Result.OK, FarlogManager.resolve(writer, position));
        }
    }

    @Test
    void shouldNotKnowWhenThatWriterIsClosed() throws Exception {
        final SharedWriter writer = open();
        append(writer, 0, position);
        writer.close();
        assertEquals(Result.UNKNOWN, FarlogManager.resolve(writer, position));
    }

    @Test
    void shouldNotTakeTheRecordOfAnotherEpochForIt() throws Exception {
        try (SharedWriter writer = open()) {
            append(writer, 0, position);
        }
        ring.format(SIZE_BYTES);
        open().close(); // one epoch further than the first writer was
        try (SharedWriter writer = open()) {
            final Position later = new Position();
            for (int i = 0; i < 3 && later.lsn() < position.lsn(); i++) {
                append(writer, 0, later);
            }
            assertEquals(Result.OK, writer.resolve(position.lsn(), 0, later));
            assertEquals(Result.UNKNOWN, FarlogManager.resolve(writer, position));
        }
    }

    private SharedWriter open() throws FarlogException {
        return SharedWriter.open(ring.uri, WriterOptions.defaults().withLevel(Level.PERSISTENT).withDeadline(Duration.ofSeconds(1)));
    }

    private static Result append(final SharedWriter writer, final long deadlineNanos, final Position out) {
        return writer.append(TEXT, 0, TEXT.length, 1, null, 0, 0, deadlineNanos, out);
    }
}
