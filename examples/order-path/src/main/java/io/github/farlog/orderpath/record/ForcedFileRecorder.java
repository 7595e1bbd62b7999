package io.github.farlog.orderpath.record;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * What is done without farlog: each message is appended to a file, and the file forced to the disk, before the message
 * goes on. The file's length is set beforehand and it is written round, so that a force writes data alone and not the
 * file's growth: the kindest case for a file. One thread.
 */
public final class ForcedFileRecorder implements Recorder {
    private static final int LENGTH_BYTES = 4;

    private final FileChannel file;
    private final ByteBuffer buffer = ByteBuffer.allocateDirect(4096);
    private final long sizeBytes;
    private long offset;

    public ForcedFileRecorder(final Path path, final long sizeBytes) {
        this.sizeBytes = sizeBytes;
        try {
            file = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.WRITE,
                StandardOpenOption.TRUNCATE_EXISTING);
            final ByteBuffer zeros = ByteBuffer.allocateDirect(1 << 20);
            for (long at = 0; at < sizeBytes; at += file.write(zeros.clear(), at)) {
                // Written, not only reserved: so the blocks are there.
            }
            file.force(true);
        } catch (final IOException e) {
            throw new UncheckedIOException("make " + path + " of " + sizeBytes + " bytes", e);
        }
    }

    @Override
    public void record(final OrderMessages message) {
        buffer.clear().putInt(message.length()).put(message.bytes(), 0, message.length()).flip();
        if (offset + buffer.limit() > sizeBytes) {
            offset = 0;
        }
        try {
            while (buffer.hasRemaining()) {
                offset += file.write(buffer, offset);
            }
            file.force(false);
        } catch (final IOException e) {
            throw new NotRecordedException("force " + (LENGTH_BYTES + message.length()) + " bytes at " + offset, e);
        }
    }

    @Override
    public void close() {
        try {
            file.close();
        } catch (final IOException e) {
            throw new UncheckedIOException("close file", e);
        }
    }
}
