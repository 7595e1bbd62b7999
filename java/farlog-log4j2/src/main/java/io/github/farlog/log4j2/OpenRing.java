package io.github.farlog.log4j2;

import io.github.farlog.client.FarlogException;
import io.github.farlog.client.Policy;
import io.github.farlog.client.Result;
import io.github.farlog.client.Ring;
import io.github.farlog.client.RingOptions;
import io.github.farlog.client.SharedWriter;
import io.github.farlog.client.WriterOptions;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import org.apache.logging.log4j.core.config.ConfigurationException;

/**
 * A ring that is open for writing, and what its file was when it was opened.
 *
 * @param writer takes the appends of all threads
 * @param payloadMax bytes of the longest payload
 * @param path of the ring's file; null when it is none that could be removed
 * @param fileKey identity of that file
 */
record OpenRing(SharedWriter writer, int payloadMax, Path path, Object fileKey) {
    private static final String MEM = "mem:";
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
            final WriterOptions options = WriterOptions.defaults().withLevel(settings.level()).withDeadline(settings.deadline())
                .withPolicy(Policy.REJECT).withEpoch(settings.epoch()).withName(settings.writerName());
            final SharedWriter writer = SharedWriter.open(settings.uri(), options);
            final Path path = pathOf(settings.uri());
            return new OpenRing(writer, writer.ring().recordLenMax() - RECORD_OVERHEAD, path, fileKey(path));
        } catch (final FarlogException e) {
            throw new ConfigurationException("ring \"" + settings.uri() + "\" at level " + settings.level() + ": " + e.getMessage(), e);
        } catch (final IllegalArgumentException e) {
            throw new ConfigurationException("ring \"" + settings.uri() + "\": " + e.getMessage(), e);
        }
    }

    /** Whether the ring's file is still the one that was opened. True when it is no file. Blocks for the file system. */
    boolean isInPlace() {
        return path == null || fileKey.equals(fileKey(path));
    }

    private static void createIfMissing(final RingSettings settings) throws FarlogException {
        final Path path = filePathOf(settings.uri());
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
        return name.length() < PAGE / RECORD_OVERHEAD && name.chars().allMatch(unit -> unit > ' ' && unit < 0x7F) ? name : "log4j2";
    }

    /** The path of a URI whose ring is, or may become, a file. */
    private static Path filePathOf(final String uri) {
        if (!uri.startsWith(MEM)) {
            return null;
        }
        final int end = uri.indexOf('?');
        return Path.of(uri.substring(MEM.length(), end < 0 ? uri.length() : end));
    }

    private static Path pathOf(final String uri) {
        final Path path = filePathOf(uri);
        return path != null && fileKey(path) != null ? path : null;
    }

    private static Object fileKey(final Path path) {
        try {
            final BasicFileAttributes attributes = path == null ? null : Files.readAttributes(path, BasicFileAttributes.class);
            return attributes != null && attributes.isRegularFile() ? attributes.fileKey() : null;
        } catch (final IOException e) {
            return null;
        }
    }
}
