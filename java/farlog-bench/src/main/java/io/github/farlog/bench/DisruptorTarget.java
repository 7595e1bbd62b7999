package io.github.farlog.bench;

import com.lmax.disruptor.RingBuffer;
import com.lmax.disruptor.YieldingWaitStrategy;
import com.lmax.disruptor.dsl.Disruptor;
import com.lmax.disruptor.dsl.ProducerType;
import com.lmax.disruptor.util.DaemonThreadFactory;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * A journaller behind an LMAX Disruptor: its thread writes what the ring holds to a file, and in the durable setting
 * forces it at the end of each batch. The publisher waits until its record is behind the journaller. The file is as
 * long as it will be beforehand, which is kind to force().
 */
final class DisruptorTarget implements Target {
    private static final int FILE_BYTES = 64 << 20;
    private static final int CHUNK_BYTES = 1 << 20;

    /** One slot of the ring. */
    private static final class Slot {
        private final byte[] data = new byte[RECORD_LEN];
    }

    private final String name;
    private final boolean isForced;
    private final FileChannel file;
    private final Disruptor<Slot> disruptor;
    private final RingBuffer<Slot> ring;
    private final byte[][] payloads = Target.payloads(RECORD_LEN);
    private final ByteBuffer batch = ByteBuffer.allocateDirect(CHUNK_BYTES);
    private long offset;
    private volatile long journalled = -1;

    DisruptorTarget(final String name, final Path folder, final boolean isForced) throws IOException {
        this.name = name;
        this.isForced = isForced;
        file = FileChannel.open(folder.resolve(name + ".journal"), StandardOpenOption.CREATE, StandardOpenOption.WRITE,
            StandardOpenOption.TRUNCATE_EXISTING, StandardOpenOption.DELETE_ON_CLOSE);
        for (int written = 0; written < FILE_BYTES; written += CHUNK_BYTES) {
            file.write(batch.clear(), written);
        }
        file.force(true);
        batch.clear();
        disruptor = new Disruptor<>(Slot::new, 1024, DaemonThreadFactory.INSTANCE, ProducerType.SINGLE,
            new YieldingWaitStrategy());
        disruptor.handleEventsWith(this::journal);
        ring = disruptor.start();
    }

    private void journal(final Slot slot, final long sequence, final boolean isEndOfBatch) {
        batch.put(slot.data);
        if (!isEndOfBatch && batch.remaining() >= RECORD_LEN) {
            return;
        }
        try {
            batch.flip();
            if (offset + batch.remaining() > FILE_BYTES) {
                offset = 0;
            }
            while (batch.hasRemaining()) {
                offset += file.write(batch, offset);
            }
            if (isForced) {
                file.force(false);
            }
        } catch (final IOException e) {
            throw new UncheckedIOException(e);
        }
        batch.clear();
        journalled = sequence;
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public int blockCount() {
        return isForced ? 50 : 2000;
    }

    @Override
    public void append(final int i) {
        final long sequence = ring.next();
        System.arraycopy(payloads[i & 63], 0, ring.get(sequence).data, 0, RECORD_LEN);
        ring.publish(sequence);
        while (journalled < sequence) {
            Thread.onSpinWait();
        }
    }

    @Override
    public void close() throws IOException {
        disruptor.shutdown();
        file.close();
    }
}
