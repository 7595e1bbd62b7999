package io.github.farlog.bench;

/** An application's garbage. The last pieces are held, so that the allocation cannot be left out. */
final class Garbage {
    static final Garbage NONE = new Garbage(0);
    private static final int HELD_COUNT = 1024;

    private final int bytes;
    private final byte[][] held = new byte[HELD_COUNT][];
    private int next;

    Garbage(final int bytes) {
        this.bytes = bytes;
    }

    void make() {
        if (bytes > 0) {
            held[next++ & (HELD_COUNT - 1)] = new byte[bytes];
        }
    }
}
