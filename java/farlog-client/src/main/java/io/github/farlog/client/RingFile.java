package io.github.farlog.client;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;

/**
 * Which file a ring was when it was looked at. A writer keeps the file that it has opened: when that is removed, or another is put in its
 * place, appends go on and reach level after level, in a file that nobody finds by its name any more. Who cannot rule that out asks now and then.
 *
 * <p>Threads: any. Every call asks the file system, and blocks as that does.
 */
public final class RingFile {
    private static final String MEM = "mem:";

    private final Path path;
    private final Object key;

    private RingFile(final Path path, final Object key) {
        this.path = path;
        this.key = key;
    }

    /**
     * Looks which file a ring is. To be asked once the ring is open.
     *
     * @param uri such as {@code mem:/dev/shm/orders}
     * @return always in place when the ring is none in a regular file: a device, or a ring of another host
     */
    public static RingFile of(final String uri) {
        final Path path = pathOf(uri);
        final Object key = path == null ? null : keyOf(path);
        return new RingFile(key == null ? null : path, key);
    }

    /**
     * Where the file of a ring is, or would be.
     *
     * @param uri such as {@code mem:/dev/shm/orders}
     * @return null when it is no path of this host
     */
    public static Path pathOf(final String uri) {
        if (!uri.startsWith(MEM)) {
            return null;
        }
        final int end = uri.indexOf('?');
        return Path.of(uri.substring(MEM.length(), end < 0 ? uri.length() : end));
    }

    /**
     * Whether the file is still the one that it was.
     *
     * @return false: it was removed, or another is in its place
     */
    public boolean isInPlace() {
        return path == null || key.equals(keyOf(path));
    }

    private static Object keyOf(final Path path) {
        try {
            final BasicFileAttributes attributes = Files.readAttributes(path, BasicFileAttributes.class);
            return attributes.isRegularFile() ? attributes.fileKey() : null;
        } catch (final IOException e) {
            return null;
        }
    }
}
