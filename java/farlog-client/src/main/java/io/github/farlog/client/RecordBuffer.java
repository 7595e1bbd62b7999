package io.github.farlog.client;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;

/**
 * Room for one record outside the heap, claimed once and filled again and again:
 * {@link SharedWriter#append(RecordBuffer, int, long, Position)} takes its bytes from where they are, without a copy in
 * Java. Encoders write into {@link #payload}.
 *
 * <p>{@link Writer#claim} gives room in the writer's own staging buffer, of which there is one; a buffer of this kind
 * is for many threads, each of which has its own. It belongs to no writer: what was refused by one can be given to
 * another, and no lock is held while it is filled.
 *
 * <p><b>Threads.</b> One at a time. Where two use one all the same, a record may hold a mixture of their bytes, and
 * nothing worse happens.
 *
 * <p><b>Allocation.</b> When it grows. Its memory is freed with the object, by the garbage collector.
 */
public final class RecordBuffer {
    private static final long ALIGN = 64;

    private final int lenMax;
    /**
     * Address and size of a piece never change, so that a call which has one in its hands is safe from what
     * {@link #grow} does.
     */
    private volatile Piece payload;
    private volatile Piece key;

    /** Memory that is freed when neither a buffer nor a call has it any more. */
    static final class Piece {
        final ByteBuffer buffer;
        final long address;
        final int capacity;

        Piece(final int capacity) {
            final MemorySegment memory = Arena.ofAuto().allocate(capacity, ALIGN);
            this.buffer = memory.asByteBuffer();
            this.address = memory.address();
            this.capacity = capacity;
        }

        Piece twice(final int max) {
            final Piece larger = new Piece((int) Math.min(max, Math.max(2L * capacity, ALIGN)));
            larger.buffer.put(buffer.flip());
            return larger;
        }
    }

    /**
     * Makes an empty buffer.
     *
     * @param len bytes of payload that it has room for at first
     * @param lenMax bytes of payload that it can grow to, such as {@link RingStatus#recordLenMax} at most
     * @param keyLen bytes of key that it has room for at first
     * @throws IllegalArgumentException a length is negative, or len is above lenMax
     */
    public RecordBuffer(final int len, final int lenMax, final int keyLen) {
        if (len < 0 || len > lenMax || keyLen < 0 || keyLen > CallFrame.U16_MAX) {
            throw new IllegalArgumentException(
                "room for " + len + " bytes of at most " + lenMax + " and a key of " + keyLen
                    + ": expected 0 <= len <= lenMax, 0 <= keyLen <= " + CallFrame.U16_MAX);
        }
        this.lenMax = lenMax;
        this.payload = new Piece(len);
        this.key = new Piece(keyLen);
    }

    /**
     * The payload: the bytes up to the position. Put them behind what is there; to begin again, {@link #clear}.
     *
     * @return direct; another one after {@link #grow}
     */
    public ByteBuffer payload() {
        return payload.buffer;
    }

    /**
     * The key: the bytes up to the position; none are no key.
     *
     * @return direct; another one after {@link #growKey}
     */
    public ByteBuffer key() {
        return key.buffer;
    }

    /** Empties payload and key. */
    public void clear() {
        payload.buffer.clear();
        key.buffer.clear();
    }

    /**
     * Makes room for twice as long a payload, with what is there.
     *
     * @return as {@link #payload}; null: it is as long as it may be
     */
    public ByteBuffer grow() {
        final Piece old = payload;
        if (old.capacity >= lenMax) {
            return null;
        }
        payload = old.twice(lenMax);
        return payload.buffer;
    }

    /**
     * Makes room for twice as long a key, with what is there.
     *
     * @return as {@link #key}; null: a key is not longer than 65535 bytes
     */
    public ByteBuffer growKey() {
        final Piece old = key;
        if (old.capacity >= CallFrame.U16_MAX) {
            return null;
        }
        key = old.twice(CallFrame.U16_MAX);
        return key.buffer;
    }

    Piece payloadPiece() {
        return payload;
    }

    Piece keyPiece() {
        return key;
    }
}
