package io.github.farlog.orderpath.journal;

import io.github.farlog.orderpath.book.Command;
import io.github.farlog.orderpath.record.NotRecordedException;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.function.Consumer;
import java.util.zip.CRC32C;

/**
 * The journaller as it is usually built: commands gather in a buffer, and each batch of the Disruptor is one write to a
 * {@link RandomAccessFile}, and one force when it is to survive a power cut. Each entry has a check sum, because the
 * last one may be torn; what follows a torn one is cut off.
 */
public final class RandomAccessFileJournal implements Journal {
    private static final int ENTRY_LENGTH = CommandCodec.LENGTH + Integer.BYTES;
    private static final int ENTRIES_PER_WRITE = 1024;

    private final RandomAccessFile file;
    private final boolean isForced;
    private final ByteBuffer buffer = CommandCodec.buffer(ENTRY_LENGTH * ENTRIES_PER_WRITE);
    private final CRC32C checkSum = new CRC32C();

    /** @param isForced force each batch to the disk; otherwise it survives the process but not a power cut */
    public RandomAccessFileJournal(final Path path, final boolean isForced) {
        this.isForced = isForced;
        try {
            file = new RandomAccessFile(path.toFile(), "rw");
        } catch (final IOException e) {
            throw new UncheckedIOException("open journal " + path, e);
        }
    }

    @Override
    public long replay(final Consumer<Command> to) {
        final byte[] entry = new byte[ENTRY_LENGTH];
        final ByteBuffer view = ByteBuffer.wrap(entry).order(buffer.order());
        final Command command = new Command();
        long count = 0;
        try {
            final byte[] content = new byte[(int) Math.min(Integer.MAX_VALUE - 8, file.length())];
            file.seek(0);
            file.readFully(content);
            while ((count + 1) * ENTRY_LENGTH <= content.length) {
                System.arraycopy(content, (int) (count * ENTRY_LENGTH), entry, 0, ENTRY_LENGTH);
                if (view.getInt(CommandCodec.LENGTH) != sumOf(entry, 0)) {
                    break;
                }
                CommandCodec.read(view.clear(), command);
                to.accept(command);
                count++;
            }
            file.setLength(count * ENTRY_LENGTH);
            file.seek(count * ENTRY_LENGTH);
        } catch (final IOException e) {
            throw new UncheckedIOException("replay journal at entry " + count, e);
        }
        return count;
    }

    @Override
    public void append(final Command command) {
        if (!buffer.hasRemaining()) {
            write();
        }
        final int start = buffer.position();
        CommandCodec.write(command, buffer);
        buffer.putInt(sumOf(buffer.array(), start));
    }

    @Override
    public void sync() {
        write();
        if (!isForced) {
            return;
        }
        try {
            file.getChannel().force(false);
        } catch (final IOException e) {
            throw new NotRecordedException("force journal", e);
        }
    }

    @Override
    public void close() {
        try (file) {
            sync();
        } catch (final IOException e) {
            throw new UncheckedIOException("close journal", e);
        }
    }

    private void write() {
        try {
            file.write(buffer.array(), 0, buffer.position());
        } catch (final IOException e) {
            throw new NotRecordedException("write " + buffer.position() + " bytes to journal", e);
        }
        buffer.clear();
    }

    private int sumOf(final byte[] bytes, final int start) {
        checkSum.reset();
        checkSum.update(bytes, start, CommandCodec.LENGTH);
        return (int) checkSum.getValue();
    }
}
