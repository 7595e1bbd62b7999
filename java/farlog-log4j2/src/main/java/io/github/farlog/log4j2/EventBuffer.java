package io.github.farlog.log4j2;

import io.github.farlog.client.Position;
import io.github.farlog.client.RecordBuffer;
import io.github.farlog.client.Result;
import java.nio.ByteBuffer;
import org.apache.logging.log4j.core.Layout;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.layout.ByteBufferDestination;
import org.apache.logging.log4j.core.layout.ByteBufferDestinationHelper;

/**
 * One thread's record: the layout encodes into the memory from which it is appended. It grows by doubling up to the
 * longest record and keeps its size, so that a thread which has once logged its longest event allocates nothing more.
 *
 * <p>Belongs to one thread.
 */
final class EventBuffer implements ByteBufferDestination {
    private static final int LEN_FIRST = 1024;
    private static final int KEY_LEN_FIRST = 64;

    private final Position position = new Position();
    private final RecordBuffer record;
    private ByteBuffer key;
    private Result refusal = Result.OK;
    private boolean isBusy;

    /**
     * Makes an empty buffer.
     *
     * @param lenMax bytes of the longest payload
     */
    EventBuffer(final int lenMax) {
        this.record = new RecordBuffer(Math.min(LEN_FIRST, lenMax), lenMax, KEY_LEN_FIRST);
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
        record.clear();
        refusal = Result.OK;
        layout.encode(event, this);
        if (keyValue != null) {
            putKey(keyValue instanceof final CharSequence text ? text : keyValue.toString());
        }
    }

    /**
     * OK, or why it cannot be a record: TOO_LARGE, its payload; INVALID, its key. What is in the buffer then is a part
     * of it.
     */
    Result refusal() {
        return refusal;
    }

    RecordBuffer record() {
        return record;
    }

    /** Bytes of payload and key. */
    long len() {
        return (long) record.payload().position() + record.key().position();
    }

    Position position() {
        return position;
    }

    @Override
    public ByteBuffer getByteBuffer() {
        return record.payload();
    }

    @Override
    public ByteBuffer drain(final ByteBuffer full) {
        final ByteBuffer larger = record.grow();
        if (larger != null) {
            return larger;
        }
        // The layout must be let finish; its event is refused afterwards.
        refusal = Result.TOO_LARGE;
        return record.payload().clear();
    }

    @Override
    public void writeBytes(final ByteBuffer data) {
        ByteBufferDestinationHelper.writeToUnsynchronized(data, this);
    }

    @Override
    public void writeBytes(final byte[] data, final int offset, final int length) {
        ByteBufferDestinationHelper.writeToUnsynchronized(data, offset, length, this);
    }

    /**
     * UTF-8 without a garbage-making encoder; a lone surrogate becomes a question mark, as Java's own encoder has it.
     */
    private void putKey(final CharSequence text) {
        key = record.key();
        final int count = text.length();
        for (int i = 0; i < count && refusal == Result.OK; i++) {
            final char unit = text.charAt(i);
            if (Character.isHighSurrogate(unit) && i + 1 < count && Character.isLowSurrogate(text.charAt(i + 1))) {
                putCodePoint(Character.toCodePoint(unit, text.charAt(++i)));
            } else {
                putCodePoint(Character.isSurrogate(unit) ? '?' : unit);
            }
        }
    }

    private void putCodePoint(final int point) {
        if (point < 0x80) {
            putHead(point, 1);
        } else if (point < 0x800) {
            putHead(0xC0 | point >> 6, 2);
            putTail(point, 0);
        } else if (point < 0x10000) {
            putHead(0xE0 | point >> 12, 3);
            putTail(point, 6);
        } else {
            putHead(0xF0 | point >> 18, 4);
            putTail(point, 12);
        }
    }

    /**
     * The first byte of a character, and room for all of them. A key that has none is refused as a whole, and what is
     * in it counts no more.
     */
    private void putHead(final int unit, final int count) {
        while (key.remaining() < count) {
            final ByteBuffer larger = record.growKey();
            if (larger == null) {
                refusal = Result.INVALID;
                key.clear();
            } else {
                key = larger;
            }
        }
        key.put((byte) unit);
    }

    private void putTail(final int point, final int firstShift) {
        for (int shift = firstShift; shift >= 0; shift -= 6) {
            key.put((byte) (0x80 | point >> shift & 0x3F));
        }
    }
}
