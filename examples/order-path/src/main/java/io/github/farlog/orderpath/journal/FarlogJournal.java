package io.github.farlog.orderpath.journal;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;

import io.github.farlog.client.Batch;
import io.github.farlog.client.FarlogException;
import io.github.farlog.client.Position;
import io.github.farlog.client.Reader;
import io.github.farlog.client.ReaderOptions;
import io.github.farlog.client.Result;
import io.github.farlog.client.Writer;
import io.github.farlog.orderpath.book.Command;
import io.github.farlog.orderpath.record.FarlogStream;
import io.github.farlog.orderpath.record.NotRecordedException;
import io.github.farlog.orderpath.record.RecordClass;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.util.function.Consumer;

/**
 * The journaller on a farlog stream: each command is submitted, and the end of a batch waits once for all of it. There
 * is no torn tail to think of: a record proves itself, and opening the writer has recovered the ring. The journal is
 * what is in the ring, so nobody may drain it, and it is full when the ring is. The ring's last sixteenth is kept for
 * the epochs of writers that come later, or nobody could open it to replay it.
 */
public final class FarlogJournal implements Journal {
    private static final long SYNC_DEADLINE_NS = 1_000_000_000L;
    private static final int SYNC_TRIES = 5;
    private static final int RESERVED_PART = 16;

    private final FarlogStream stream;
    private final Writer writer;
    private final Position position = new Position();
    private final ByteBuffer buffer = CommandCodec.buffer(CommandCodec.LENGTH);
    private final byte[] key = new byte[Long.BYTES];
    private final ByteBuffer keyView = ByteBuffer.wrap(key); // big endian: keys sort as the ids do
    private final long limitLsn;
    private long submittedLsn;
    private long durableLsn;

    /** Opens the stream's writer, which recovers the ring. */
    public FarlogJournal(final FarlogStream stream) throws FarlogException {
        this.stream = stream;
        writer = Writer.open(stream.uri(), stream.writerOptions("journal"));
        final long capacity = writer.ring().capacityBytes();
        limitLsn = writer.ring().headLsn() + capacity - capacity / RESERVED_PART;
        submittedLsn = writer.cursors().appendedLsn();
        durableLsn = submittedLsn;
    }

    @Override
    public long replay(final Consumer<Command> to) {
        final Batch batch = new Batch();
        final Command command = new Command();
        final byte[] bytes = new byte[CommandCodec.LENGTH];
        long count = 0;
        try (Reader reader = Reader.open(stream.uri(), ReaderOptions.defaults())) {
            while (hasRead(reader, batch)) {
                while (batch.nextPayload()) {
                    MemorySegment.copy(batch.payload(), JAVA_BYTE, 0, bytes, 0, CommandCodec.LENGTH);
                    CommandCodec.read(ByteBuffer.wrap(bytes).order(buffer.order()), command);
                    to.accept(command);
                    count++;
                }
            }
        } catch (final FarlogException e) {
            throw new IllegalStateException("replay " + stream.uri() + " after " + count + " commands", e);
        }
        return count;
    }

    @Override
    public void append(final Command command) {
        if (submittedLsn >= limitLsn) {
            throw new NotRecordedException(
                "command " + command.id + ": journal " + stream.uri() + " is full; format a larger ring");
        }
        CommandCodec.write(command, buffer.clear());
        keyView.putLong(0, command.id);
        final int recordClass = command.kind == Command.CANCEL ? RecordClass.REQUEST : RecordClass.ORDER;
        final Result result = writer.submit(buffer.array(), 0, CommandCodec.LENGTH, recordClass, key, 0, key.length,
            position);
        if (result != Result.OK) {
            throw new NotRecordedException(
                "submit command " + command.id + " to " + stream.uri() + ": " + result + ", " + result.text());
        }
        submittedLsn = position.endLsn();
    }

    @Override
    public void sync() {
        if (durableLsn == submittedLsn) {
            return;
        }
        Result result = Result.UNKNOWN;
        for (int i = 0; i < SYNC_TRIES && result == Result.UNKNOWN; i++) {
            result = writer.await(submittedLsn, SYNC_DEADLINE_NS);
        }
        if (result != Result.OK) {
            throw new NotRecordedException(
                "wait for " + stream.uri() + " up to lsn " + submittedLsn + ": " + result + ", " + result.text());
        }
        durableLsn = submittedLsn;
    }

    @Override
    public void close() {
        writer.close();
    }

    private boolean hasRead(final Reader reader, final Batch batch) {
        final Result result = reader.read(batch);
        if (result != Result.OK && result != Result.NOT_YET) {
            throw new IllegalStateException("read " + stream.uri() + ": " + result + ", " + result.text());
        }
        return result == Result.OK;
    }
}
