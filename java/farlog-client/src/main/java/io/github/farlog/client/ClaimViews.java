package io.github.farlog.client;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * Views of a writer's staging buffer: one object for each place and length, so that claims of usual lengths allocate
 * nothing. Used inside the writer's call frame.
 */
final class ClaimViews {
    private static final int COUNT = 4096; // a power of two

    private final Arena arena = Arena.ofShared(); // closed before the memory goes away
    private final MemorySegment[] seen = new MemorySegment[COUNT];

    MemorySegment of(final long address, final int len) {
        final int slot = (int) (len + address * 31) & COUNT - 1;
        final MemorySegment found = seen[slot];
        if (found != null && found.address() == address && found.byteSize() == len) {
            return found;
        }
        seen[slot] = Native.view(address, len, arena);
        return seen[slot];
    }

    /** From now on every use of a claim throws. */
    void close() {
        while (arena.scope().isAlive()) {
            try {
                arena.close();
            } catch (final IllegalStateException inUse) { // a native call of the application uses a claim; it will end
                Thread.yield();
            }
        }
    }
}
