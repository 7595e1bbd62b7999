package io.github.farlog.orderpath.book;

import java.util.Arrays;

/**
 * Order number to slot: open addressing without tombstones, so that a book that runs all day stays as fast as in its
 * first minute. Numbers are positive; 0 marks an empty place. Allocates nothing after its making. One thread.
 */
final class IdMap {
    static final int NONE = -1;

    private final long[] ids;
    private final int[] slots;
    private final int mask;

    /** @param countMax how many orders may be in the map at once */
    IdMap(final int countMax) {
        // At most half full, so that probes stay short.
        final int length = Integer.highestOneBit(Math.max(8, countMax) * 2 - 1) * 2;
        ids = new long[length];
        slots = new int[length];
        mask = length - 1;
    }

    int get(final long id) {
        for (int i = home(id);; i = i + 1 & mask) {
            if (ids[i] == id) {
                return slots[i];
            }
            if (ids[i] == 0) {
                return NONE;
            }
        }
    }

    /** The id must not be in the map. */
    void put(final long id, final int slot) {
        int i = home(id);
        while (ids[i] != 0) {
            i = i + 1 & mask;
        }
        ids[i] = id;
        slots[i] = slot;
    }

    /** Removes an id that is there, and moves back what had to step aside for it. */
    void remove(final long id) {
        int hole = home(id);
        while (ids[hole] != id) {
            hole = hole + 1 & mask;
        }
        for (int i = hole + 1 & mask; ids[i] != 0; i = i + 1 & mask) {
            final int distanceFromHome = i - home(ids[i]) & mask;
            final int distanceFromHole = i - hole & mask;
            if (distanceFromHome >= distanceFromHole) {
                ids[hole] = ids[i];
                slots[hole] = slots[i];
                hole = i;
            }
        }
        ids[hole] = 0;
    }

    void clear() {
        Arrays.fill(ids, 0);
    }

    private int home(final long id) {
        final long mixed = id * 0x9E3779B97F4A7C15L;
        return (int) (mixed >>> 40) & mask;
    }
}
