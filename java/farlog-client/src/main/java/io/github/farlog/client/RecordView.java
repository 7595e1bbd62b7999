package io.github.farlog.client;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.util.zip.CRC32C;

/**
 * One record as its bytes are on media (docs/reference/format.md), read in place in pure Java. Reused: {@link #wrap}
 * moves it to other bytes.
 *
 * <p>Belongs to one thread at a time. Allocates only the views of key and payload.
 */
public final class RecordView {
    /** Fills the ring up to its end. */
    public static final int FLAG_PAD = 1;
    /** The first record of an epoch. */
    public static final int FLAG_EPOCH = 2;
    /** The writer lives and is idle. */
    public static final int FLAG_HEARTBEAT = 4;
    /** Ends a segment. */
    public static final int FLAG_SEAL = 8;
    /** Something is missing here, and why. */
    public static final int FLAG_GAP = 16;
    /** Key and payload are encrypted; the library decrypts what a reader with keys gets. */
    public static final int FLAG_ENCRYPTED = 32;
    /** Length of the header, bytes. */
    public static final int HEADER_LEN = 56;
    /** Length of what a PAD stores, bytes. */
    public static final int PAD_STORED_LEN = 64;

    private static final int MAGIC = 0x31474C46; // "FLG1"
    private static final int TRAILER_LEN = 8;
    private static final int CRC_OFF = 52;
    private static final int U16_MASK = 0xFFFF;
    private static final ValueLayout.OfInt U32 = ValueLayout.JAVA_INT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
    private static final ValueLayout.OfLong U64 = ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
    private static final ValueLayout.OfShort U16 = ValueLayout.JAVA_SHORT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

    private MemorySegment bytes = MemorySegment.NULL;
    private long off;
    private int align = 64;

    /** A view of nothing yet. */
    public RecordView() {
    }

    /**
     * Looks at other bytes, whose records are aligned to 64 bytes.
     *
     * @param source holds the record
     * @param offset where it begins
     * @return this
     */
    public RecordView wrap(final MemorySegment source, final long offset) {
        return wrap(source, offset, 64);
    }

    /**
     * Looks at other bytes.
     *
     * @param source holds the record
     * @param offset where it begins
     * @param ringAlign of the ring it comes from
     * @return this
     */
    public RecordView wrap(final MemorySegment source, final long offset, final int ringAlign) {
        bytes = source;
        off = offset;
        align = ringAlign;
        return this;
    }

    /**
     * Where the record begins.
     *
     * @return byte position in the stream
     */
    public long lsn() {
        return bytes.get(U64, off + 8);
    }

    /**
     * The epoch of the writer.
     *
     * @return from 1
     */
    public int epoch() {
        return bytes.get(U32, off + 16);
    }

    /**
     * Length of the payload; of a PAD, what its extent has beyond 64.
     *
     * @return bytes
     */
    public int payloadLen() {
        return bytes.get(U32, off + 20);
    }

    /**
     * The record's number in the stream.
     *
     * @return from 0
     */
    public long seq() {
        return bytes.get(U64, off + 24);
    }

    /**
     * When it was appended.
     *
     * @return UTC nanoseconds since 1970
     */
    public long timestampNanos() {
        return bytes.get(U64, off + 32);
    }

    /**
     * Bound on the error of the timestamp.
     *
     * @return nanoseconds; 4294967295 = unknown
     */
    public long clockErrorNanos() {
        return Integer.toUnsignedLong(bytes.get(U32, off + 40));
    }

    /**
     * The application's kind of record.
     *
     * @return 0 to 65535
     */
    public int classId() {
        return bytes.get(U16, off + 44) & U16_MASK;
    }

    /**
     * Length of the key.
     *
     * @return bytes
     */
    public int keyLen() {
        return bytes.get(U16, off + 46) & U16_MASK;
    }

    /**
     * The stream's number.
     *
     * @return 0 = none
     */
    public int streamId() {
        return bytes.get(U32, off + 48);
    }

    /**
     * What kind of record it is; 0 for what the application wrote.
     *
     * @return FLAG_PAD and the like
     */
    public int flags() {
        return bytes.get(U16, off + 6) & U16_MASK;
    }

    /**
     * Does it only fill the end of the ring, or on blocks of an LBA?
     *
     * @return true for a PAD
     */
    public boolean isPad() {
        return (flags() & FLAG_PAD) != 0;
    }

    /**
     * Bytes that it takes in the ring.
     *
     * @return a multiple of the ring's alignment
     */
    public long extent() {
        if (isPad()) {
            return (long) PAD_STORED_LEN + Integer.toUnsignedLong(payloadLen());
        }
        final long len = HEADER_LEN + (long) keyLen() + Integer.toUnsignedLong(payloadLen()) + TRAILER_LEN;
        return (len + align - 1) / align * align;
    }

    /**
     * Bytes of it that are there: of a PAD only the first 64.
     *
     * @return bytes
     */
    public long storedLen() {
        return isPad() ? PAD_STORED_LEN : extent();
    }

    /**
     * The key.
     *
     * @return a view
     */
    public MemorySegment key() {
        return bytes.asSlice(off + HEADER_LEN, keyLen());
    }

    /**
     * The payload.
     *
     * @return a view; empty for a PAD
     */
    public MemorySegment payload() {
        return bytes.asSlice(off + HEADER_LEN + keyLen(), isPad() ? 0 : Integer.toUnsignedLong(payloadLen()));
    }

    /**
     * Copies the payload without allocating.
     *
     * @param into has room for {@link #payloadLen} bytes
     * @param at where to begin
     * @return how many bytes it is
     */
    public int copyPayload(final byte[] into, final int at) {
        final int len = isPad() ? 0 : payloadLen();
        MemorySegment.copy(bytes, JAVA_BYTE, off + HEADER_LEN + keyLen(), into, at, len);
        return len;
    }

    /**
     * Is this a whole record of the stream with this salt, that begins at this position?
     *
     * @param salt of the ring
     * @param lsn where it should begin
     * @return true when magic, lengths, position, trailer and checksum are right
     */
    public boolean isValid(final long salt, final long lsn) {
        final long left = bytes.byteSize() - off;
        return left >= PAD_STORED_LEN && bytes.get(U32, off) == MAGIC && bytes.get(JAVA_BYTE, off + 4) == version()
            && bytes.get(JAVA_BYTE, off + 5) == HEADER_LEN / 8 && lsn() == lsn && epoch() != 0 && storedLen() <= left
            && !(isPad() && keyLen() != 0) && bytes.get(U64, off + storedLen() - TRAILER_LEN) == (lsn ^ salt)
            && bytes.get(U32, off + CRC_OFF) == crc((int) salt);
    }

    private int version() {
        return (flags() & FLAG_ENCRYPTED) != 0 ? 2 : 1;
    }

    /** The checksum of docs/reference/format.md, begun with the salt's low half. */
    private int crc(final int salt) {
        final long tail = isPad() ? 0 : keyLen() + Integer.toUnsignedLong(payloadLen());
        final CRC32C plain = new CRC32C();
        plain.update(bytes.asSlice(off, CRC_OFF).asByteBuffer());
        plain.update(bytes.asSlice(off + HEADER_LEN, tail).asByteBuffer());
        return (int) plain.getValue() ^ Crc32cSeed.shift(salt, CRC_OFF + tail);
    }
}
