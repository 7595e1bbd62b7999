package io.github.farlog.logback;

import io.github.farlog.client.Position;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * The buffers of one append besides the encoder's bytes: a position and space for the key. They come from a pool, not
 * from thread locals, so that a million short virtual threads do not allocate a million of them.
 */
final class Scratch {
    private static final int POOL_SIZE = 64;
    private static final AtomicReferenceArray<Scratch> POOL = new AtomicReferenceArray<>(POOL_SIZE);

    final Position position = new Position();
    byte[] key = new byte[64];
    int keyLen;

    /** Any thread; allocates only while more threads append at once than ever before, or more than 64. */
    static Scratch acquire() {
        final int start = (int) Thread.currentThread().threadId();
        for (int i = 0; i < POOL_SIZE; i++) {
            final int slot = (start + i) & (POOL_SIZE - 1);
            if (POOL.getPlain(slot) != null) {
                final Scratch scratch = POOL.getAndSet(slot, null);
                if (scratch != null) {
                    return scratch;
                }
            }
        }
        return new Scratch();
    }

    void release() {
        final int start = (int) Thread.currentThread().threadId();
        for (int i = 0; i < POOL_SIZE; i++) {
            final int slot = (start + i) & (POOL_SIZE - 1);
            if (POOL.getPlain(slot) == null && POOL.compareAndSet(slot, null, this)) {
                return;
            }
        }
    }

    /**
     * Writes the key as UTF-8 into the same bytes each time. A lone surrogate becomes '?', as in String.getBytes.
     */
    void setKey(final CharSequence text) {
        keyLen = 0;
        final int len = text == null ? 0 : text.length();
        if (key.length < len * 3) {
            key = Arrays.copyOf(key, len * 3);
        }
        for (int i = 0; i < len; i++) {
            final char unit = text.charAt(i);
            if (unit < 0x80) {
                key[keyLen++] = (byte) unit;
            } else if (Character.isHighSurrogate(unit) && i + 1 < len && Character.isLowSurrogate(text.charAt(i + 1))) {
                putWide(Character.toCodePoint(unit, text.charAt(++i)));
            } else if (Character.isSurrogate(unit)) {
                key[keyLen++] = '?';
            } else {
                putNarrow(unit);
            }
        }
    }

    private void putNarrow(final char unit) {
        if (unit >= 0x800) {
            key[keyLen++] = (byte) (0xE0 | unit >> 12);
            key[keyLen++] = (byte) (0x80 | unit >> 6 & 0x3F);
        } else {
            key[keyLen++] = (byte) (0xC0 | unit >> 6);
        }
        key[keyLen++] = (byte) (0x80 | unit & 0x3F);
    }

    private void putWide(final int point) {
        key[keyLen++] = (byte) (0xF0 | point >> 18);
        key[keyLen++] = (byte) (0x80 | point >> 12 & 0x3F);
        key[keyLen++] = (byte) (0x80 | point >> 6 & 0x3F);
        key[keyLen++] = (byte) (0x80 | point & 0x3F);
    }
}
