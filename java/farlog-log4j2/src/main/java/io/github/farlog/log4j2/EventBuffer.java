package io.github.farlog.log4j2;

import io.github.farlog.client.Position;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.apache.logging.log4j.core.Layout;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.layout.ByteBufferDestination;
import org.apache.logging.log4j.core.layout.ByteBufferDestinationHelper;

/**
 * One thread's encoded event: the layout writes into it, the writer reads from it. It grows by doubling up to the longest record and
 * keeps its size, so that a thread which has once logged its longest event allocates nothing more.
 *
 * <p>Belongs to one thread.
 */
final class EventBuffer implements ByteBufferDestination {
    private static final int LEN_FIRST = 1024;
    private static final int KEY_LEN_FIRST = 64;

    private final int lenMax;
    private final Position position = new Position();
    private ByteBuffer payload;
    private byte[] key = new byte[KEY_LEN_FIRST];
    private int keyLen;
    private boolean isTooLarge;
    private boolean isBusy;

    /**
     * Makes an empty buffer.
     *
     * @param lenMax bytes of the longest payload
     */
    EventBuffer(final int lenMax) {
        this.lenMax = lenMax;
        this.payload = ByteBuffer.allocate(Math.min(LEN_FIRST, lenMax));
    }

    /** Takes the buffer; false when this thread is using it already: something logs while it is being logged. */
    boolean enter() {
        if (isBusy) {
            return false;
        }
        isBusy = true;
        return true;
    }

    /** Gives the buffer back. */
    void leave() {
        isBusy = false;
    }

    /** Encodes an event and the key that comes with it; a null key is an empty one. */
    void encode(final Layout<?> layout, final LogEvent event, final Object keyValue) {
        payload.clear();
        isTooLarge = false;
        layout.encode(event, this);
        keyLen = 0;
        if (keyValue != null) {
            putKey(keyValue instanceof final CharSequence text ? text : keyValue.toString());
        }
    }

    /** Whether the event is longer than any record. What is in the buffer then is a part of it. */
    boolean isTooLarge() {
        return isTooLarge;
    }

    byte[] payload() {
        return payload.array();
    }

    int payloadLen() {
        return payload.position();
    }

    byte[] key() {
        return key;
    }

    int keyLen() {
        return keyLen;
    }

    Position position() {
        return position;
    }

    @Override
    public ByteBuffer getByteBuffer() {
        return payload;
    }

    @Override
    public ByteBuffer drain(final ByteBuffer full) {
        if (payload.capacity() < lenMax) {
            final int capacity = (int) Math.min(lenMax, 2L * payload.capacity());
            payload = ByteBuffer.wrap(Arrays.copyOf(payload.array(), capacity)).position(full.position());
        } else {
            // The layout must be let finish; its event is refused afterwards.
            isTooLarge = true;
            payload.clear();
        }
        return payload;
    }

    @Override
    public void writeBytes(final ByteBuffer data) {
        ByteBufferDestinationHelper.writeToUnsynchronized(data, this);
    }

    @Override
    public void writeBytes(final byte[] data, final int offset, final int length) {
        ByteBufferDestinationHelper.writeToUnsynchronized(data, offset, length, this);
    }

    /** UTF-8 without a garbage-making encoder; a lone surrogate becomes a question mark, as Java's own encoder has it. */
    private void putKey(final CharSequence text) {
        final int count = text.length();
        for (int i = 0; i < count; i++) {
            final char unit = text.charAt(i);
            if (Character.isHighSurrogate(unit) && i + 1 < count && Character.isLowSurrogate(text.charAt(i + 1))) {
                putCodePoint(Character.toCodePoint(unit, text.charAt(++i)));
            } else {
                putCodePoint(Character.isSurrogate(unit) ? '?' : unit);
            }
        }
    }

    private void putCodePoint(final int point) {
        if (key.length - keyLen < 4) {
            key = Arrays.copyOf(key, key.length * 2);
        }
        if (point < 0x80) {
            key[keyLen++] = (byte) point;
        } else if (point < 0x800) {
            key[keyLen++] = (byte) (0xC0 | point >> 6);
            putTail(point, 0);
        } else if (point < 0x10000) {
            key[keyLen++] = (byte) (0xE0 | point >> 12);
            putTail(point, 6);
        } else {
            key[keyLen++] = (byte) (0xF0 | point >> 18);
            putTail(point, 12);
        }
    }

    private void putTail(final int point, final int firstShift) {
        for (int shift = firstShift; shift >= 0; shift -= 6) {
            key[keyLen++] = (byte) (0x80 | point >> shift & 0x3F);
        }
    }
}
