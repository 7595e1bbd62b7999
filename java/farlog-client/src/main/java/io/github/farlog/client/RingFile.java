package io.github.farlog.client;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.List;

/**
 * Which file a ring was when it was looked at. A writer keeps the file that it has opened: when that is removed, or
 * another is put in its place, appends go on and reach level after level, in a file that nobody finds by its name any
 * more. Who cannot rule that out asks now and then.
 *
 * <p>Threads: any. Every call asks the file system, and blocks as that does.
 */
public final class RingFile {
    private static final String MEM = "mem:";

    /** A file, and what it was when it was looked at. */
    private record HandledEvents(Path path, Object key) {
        boolean isInPlace() {
            return key.equals(keyOf(path));
        }
    }

    private final List<HandledEvents> files;
    /** So many of them may be gone. */
    private final int spareCount;

    private RingFile(final List<HandledEvents> files, final int spareCount) {
        this.files = files;
        this.spareCount = spareCount;
    }

    /**
     * Looks which file a ring is, or each member of {@code members:K URI URI ...}. To be asked once the ring is open.
     *
     * @param uri such as {@code mem:/dev/shm/orders}
     * @return always in place when the ring is none in a regular file: a device, or a ring of another host
     */
    public static RingFile of(final String uri) {
        final List<String> members = Members.of(uri);
        final List<HandledEvents> files = new ArrayList<>();
        for (final String member : members) {
            final Path path = pathOf(member);
            final Object key = path == null ? null : keyOf(path);
            if (key != null) {
                files.add(new HandledEvents(path, key));
            }
        }
        return new RingFile(List.copyOf(files), members.size() - Members.needed(uri));
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
     * Whether the file is still the one that it was. Of members that are files: whether so many are that, with those
     * that are none, an acknowledgement has its K copies.
     *
     * @return false: it was removed, or another is in its place
     */
    public boolean isInPlace() {
        int goneCount = 0;
        for (final HandledEvents file : files) {
            goneCount += file.isInPlace() ? 0 : 1;
        }
        return goneCount <= spareCount;
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
