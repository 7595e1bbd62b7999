package io.github.farlog.log4j2;

import io.github.farlog.client.FarlogException;
import io.github.farlog.client.Policy;
import io.github.farlog.client.RecordSink;
import io.github.farlog.client.Result;
import io.github.farlog.client.Ring;
import io.github.farlog.client.RingFile;
import io.github.farlog.client.RingOptions;
import io.github.farlog.client.WriterOptions;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.logging.log4j.core.config.ConfigurationException;

/**
 * A ring, or a route, that is open for writing, and what its file was when it was opened.
 *
 * @param writer takes the appends of all threads
 * @param payloadMax bytes of the longest payload
 * @param file what the ring's file is
 */
record OpenRing(RecordSink writer, int payloadMax, RingFile file) {
    private static final int RECORD_OVERHEAD = 64;
    private static final int PAGE = 4096;
    private static final int RECORD_LEN_CREATED = 4 << 20;
    /** A record may take a quarter of a ring; an eighth leaves room beside it. */
    private static final int RECORDS_PER_RING = 8;

    /**
     * Opens the ring that an appender asks for. Blocks for the scan of its undrained part.
     *
     * @param settings of the appender
     * @return open
     * @throws ConfigurationException saying which ring, and why not
     */
    static OpenRing open(final RingSettings settings) {
        try {
            createIfMissing(settings);
            final WriterOptions options = WriterOptions.defaults().withLevel(settings.level())
                .withDeadline(settings.deadline())
                .withPolicy(Policy.REJECT).withEpoch(settings.epoch()).withName(settings.writerName());
            final RecordSink writer = RecordSink.open(settings.uri(), options, settings.spillDir());
            return new OpenRing(writer, writer.recordLenMax() - RECORD_OVERHEAD, RingFile.of(settings.uri()));
        } catch (final FarlogException e) {
            final boolean isToBeMade = e.result() == Result.NOT_FOUND && RingFile.pathOf(settings.uri()) != null;
            throw new ConfigurationException("ring \"" + settings.uri() + '"'
                + (settings.level() == null ? "" : " at level " + settings.level()) + ": " + e.getMessage()
                + (isToBeMade ? "; or set createRing=\"64MiB\"" : ""), e);
        } catch (final IllegalArgumentException e) {
            throw new ConfigurationException("ring \"" + settings.uri() + "\": " + e.getMessage(), e);
        }
    }

    /**
     * Whether the ring's file is still the one that was opened. True when it is no file. Blocks for the file system.
     */
    boolean isInPlace() {
        return file.isInPlace();
    }

    private static void createIfMissing(final RingSettings settings) throws FarlogException {
        final Path path = RingFile.pathOf(settings.uri());
        if (settings.createBytes() == 0 || path == null || Files.exists(path)) {
            return;
        }
        final long share = settings.createBytes() / RECORDS_PER_RING / PAGE * PAGE;
        try {
            Ring.format(settings.uri(), RingOptions.defaults().withSizeBytes(settings.createBytes())
                .withRecordLenMax((int) Math.min(RECORD_LEN_CREATED, share)).withStreamName(streamName(path)));
        } catch (final FarlogException e) {
            // Another process may have made it since it was looked for.
            if (e.result() != Result.EXISTS && e.result() != Result.HELD) {
                throw e;
            }
        }
    }

    private static String streamName(final Path path) {
        final String name = path.getFileName().toString();
        return name.length() < PAGE / RECORD_OVERHEAD && name.chars().allMatch(unit -> unit > ' ' && unit < 0x7F) ? name
            : "log4j2";
    }
}
