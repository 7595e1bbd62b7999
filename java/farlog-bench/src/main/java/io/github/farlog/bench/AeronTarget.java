package io.github.farlog.bench;

import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.archive.Archive;
import io.aeron.archive.ArchiveThreadingMode;
import io.aeron.archive.ArchivingMediaDriver;
import io.aeron.archive.client.AeronArchive;
import io.aeron.archive.codecs.SourceLocation;
import io.aeron.archive.status.RecordingPos;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import java.nio.file.Path;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.CountersReader;

/**
 * Aeron Archive of a publication by shared memory, all in this process. A record is acknowledged when the recording's
 * position has passed it. Default: file.sync.level 0. Durable: 2, data and catalogue. Driver and archive take one
 * thread each: there are two cores.
 */
final class AeronTarget implements Target {
    private static final String CHANNEL = "aeron:ipc";
    private static final int STREAM_ID = 7;

    private final String name;
    private final boolean isDurable;
    private final ArchivingMediaDriver driver;
    private final AeronArchive archive;
    private final ExclusivePublication publication;
    private final CountersReader counters;
    private final int counterId;
    private final UnsafeBuffer[] payloads = new UnsafeBuffer[PAYLOAD_COUNT];

    AeronTarget(final String name, final Path folder, final boolean isDurable) throws InterruptedException {
        this.name = name;
        this.isDurable = isDurable;
        final String aeronDir = FarlogTarget.ringFile("aeron").toString();
        final int syncLevel = isDurable ? 2 : 0;
        driver = ArchivingMediaDriver.launch(
            new MediaDriver.Context().aeronDirectoryName(aeronDir).threadingMode(ThreadingMode.SHARED)
                .dirDeleteOnStart(true)
                .dirDeleteOnShutdown(true),
            new Archive.Context().aeronDirectoryName(aeronDir).archiveDir(folder.resolve(name).toFile())
                .deleteArchiveOnStart(true)
                .threadingMode(ArchiveThreadingMode.SHARED).fileSyncLevel(syncLevel).catalogFileSyncLevel(syncLevel)
                .controlChannelEnabled(false).localControlChannel(CHANNEL)
                .replicationChannel("aeron:udp?endpoint=localhost:0")
                .archiveClientContext(client(aeronDir)));
        archive = AeronArchive.connect(client(aeronDir));
        archive.startRecording(CHANNEL, STREAM_ID, SourceLocation.LOCAL);
        final Aeron aeron = archive.context().aeron();
        publication = aeron.addExclusivePublication(CHANNEL, STREAM_ID);
        counters = aeron.countersReader();
        counterId = awaitRecording();
        final byte[][] arrays = Target.payloads(RECORD_LEN);
        for (int i = 0; i < PAYLOAD_COUNT; i++) {
            payloads[i] = new UnsafeBuffer(arrays[i]);
        }
    }

    private static AeronArchive.Context client(final String aeronDir) {
        return new AeronArchive.Context().aeronDirectoryName(aeronDir).controlRequestChannel(CHANNEL)
            .controlResponseChannel(CHANNEL);
    }

    private int awaitRecording() throws InterruptedException {
        int id;
        while ((id = RecordingPos.findCounterIdBySession(counters, publication.sessionId(), archive.archiveId()))
            == CountersReader.NULL_COUNTER_ID) {
            Thread.sleep(1);
        }
        return id;
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
        long position;
        while ((position = publication.offer(payloads[i & 63], 0, RECORD_LEN)) < 0) {
            Thread.onSpinWait();
        }
        while (counters.getCounterValue(counterId) < position) {
            Thread.onSpinWait();
        }
    }

    @Override
    public void close() {
        publication.close();
        archive.close();
        driver.close();
        driver.archive().context().deleteDirectory();
    }

}
