package io.github.farlog.bench;

import java.nio.file.Path;
import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.bytes.SyncMode;
import net.openhft.chronicle.queue.ChronicleQueue;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueueBuilder;

/**
 * Chronicle Queue: a mapped file. Default: the page cache holds the record. Durable: SyncMode.SYNC and sync() after
 * each.
 */
final class ChronicleTarget implements Target {
    private final String name;
    private final boolean isDurable;
    private final ChronicleQueue queue;
    private final ExcerptAppender appender;
    private final Bytes<?>[] payloads = new Bytes<?>[PAYLOAD_COUNT];

    ChronicleTarget(final String name, final Path folder, final boolean isDurable) {
        this.name = name;
        this.isDurable = isDurable;
        final SingleChronicleQueueBuilder builder = ChronicleQueue.singleBuilder(folder.resolve(name));
        queue = (isDurable ? builder.syncMode(SyncMode.SYNC) : builder).build();
        appender = queue.createAppender();
        final byte[][] arrays = Target.payloads(RECORD_LEN);
        for (int i = 0; i < PAYLOAD_COUNT; i++) {
            payloads[i] = Bytes.allocateDirect(arrays[i]);
        }
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public int blockCount() {
        return isDurable ? 50 : 2000;
    }

    @Override
    public void append(final int i) {
        appender.writeBytes(payloads[i & 63]);
        if (isDurable) {
            appender.sync();
        }
    }

    @Override
    public void close() {
        appender.close();
        queue.close();
    }
}
