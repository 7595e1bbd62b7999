package io.github.farlog.client;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;

/**
 * The native memory of one call: the entry, the position that C fills, and a copy of the record's bytes. One call at a
 * time uses it: a call begins with {@link #enter} and ends with {@link #leave}. {@link #close} waits for the call under
 * way and rejects later ones, so that a handle is never freed while a thread uses it.
 *
 * <p>The bytes are copied because an entry holds an address: memory of the heap may move while C reads it, and another
 * thread might free memory of the caller's arena. The copy of 192 bytes takes about 5 ns.
 */
final class CallFrame {
    private static final VarHandle BUSY;
    private static final long ENTRY_OFF = 0;
    private static final long POSITION_OFF = 64;
    private static final long WORD_OFF = 128;
    private static final long DATA_OFF = 192;
    private static final int BYTES_MIN = 4096;

    private static final long ENTRY_DATA = ENTRY_OFF + Structs.off(Structs.ENTRY, "data");
    private static final long ENTRY_LEN = ENTRY_OFF + Structs.off(Structs.ENTRY, "len");
    private static final long ENTRY_CLASS = ENTRY_OFF + Structs.off(Structs.ENTRY, "class_id");
    private static final long ENTRY_KEY_LEN = ENTRY_OFF + Structs.off(Structs.ENTRY, "key_len");
    private static final long ENTRY_KEY = ENTRY_OFF + Structs.off(Structs.ENTRY, "key");
    private static final long POSITION_LSN = POSITION_OFF + Structs.off(Structs.POSITION, "lsn");
    private static final long POSITION_SEQ = POSITION_OFF + Structs.off(Structs.POSITION, "seq");
    private static final long POSITION_EPOCH = POSITION_OFF + Structs.off(Structs.POSITION, "epoch");
    private static final long POSITION_LEVEL = POSITION_OFF + Structs.off(Structs.POSITION, "level");
    private static final long POSITION_COPIES = POSITION_OFF + Structs.off(Structs.POSITION, "copies");
    private static final long POSITION_END = POSITION_OFF + Structs.off(Structs.POSITION, "end_lsn");
    static final int U16_MAX = 0xFFFF;
    private static final int SPINS = 200;
    private static final int TURNS = 3;

    static {
        try {
            BUSY = MethodHandles.lookup().findVarHandle(CallFrame.class, "busy", int.class);
        } catch (final ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    /** Longer payloads are not copied: C rejects them by their length. */
    private final long recordLenMax;
    private MemorySegment memory; // owned by the thread that has entered; freed by the garbage collector
    private ByteBuffer buffer;
    private long address;
    private long capacity;
    /** The memory that the entry points to outside the frame. The reference keeps it alive while C reads it. */
    private RecordBuffer.Piece payloadInUse;
    private RecordBuffer.Piece keyInUse;
    @SuppressWarnings("unused") // accessed through BUSY
    private volatile int busy;
    private volatile boolean isClosed;
    private volatile boolean hasWaiter; // a hint: a thread waits in enter

    CallFrame(final long recordLenMax) {
        this.recordLenMax = recordLenMax;
        allocate(BYTES_MIN);
    }

    private void allocate(final long bytes) {
        memory = Arena.ofAuto().allocate(DATA_OFF + bytes, 64);
        buffer = memory.asSlice(DATA_OFF).asByteBuffer();
        address = memory.address();
        capacity = bytes;
    }

    /** Enters the frame when it is free. False: another call is in it, or it is closed. */
    boolean tryEnter() {
        if (busy != 0 || !BUSY.compareAndSet(this, 0, 1)) {
            return false;
        }
        if (isClosed) {
            leave();
            return false;
        }
        return true;
    }

    /** Enters the frame, after the call of another thread has left it. False: closed. */
    boolean enter() {
        if (hasWaiter) {
            yieldToWaiter();
        }
        return tryEnter() || enterSlowly();
    }

    private boolean enterSlowly() {
        while (!tryEnter()) {
            if (isClosed) {
                return false;
            }
            hasWaiter = true;
            for (int spins = 0; spins < SPINS && busy != 0; spins++) {
                Thread.onSpinWait();
            }
            if (busy != 0) {
                Thread.yield();
            }
        }
        hasWaiter = false;
        return true;
    }

    /**
     * Lets a waiting thread enter first, which a thread that makes call after call would otherwise hardly allow. Waits
     * for microseconds, and when the waiter has no processor then, for a few rounds of the scheduler.
     */
    private void yieldToWaiter() {
        hasWaiter = false;
        for (int spins = 0; spins < SPINS && busy == 0 && !isClosed; spins++) {
            Thread.onSpinWait();
        }
        for (int turns = 0; turns < TURNS && busy == 0 && !isClosed; turns++) {
            Thread.yield();
        }
    }

    void leave() {
        BUSY.setRelease(this, 0);
    }

    /** Rejects calls that begin from now on; does not wait. */
    void rejectCalls() {
        isClosed = true;
    }

    /** Rejects later calls and waits until the call under way returns, which it does by its deadline. */
    void close() {
        isClosed = true;
        while (!BUSY.compareAndSet(this, 0, 1)) {
            Thread.yield();
        }
    }

    /** Fills the entry. False: an argument is out of range. */
    boolean put(final byte[] data, final int off, final int len, final int classId, final byte[] key, final int keyOff,
        final int keyLen) {
        if (data == null || isOutside(data.length, off, len) || !putKey(key, keyOff, keyLen, len, classId)) {
            return false;
        }
        if (len <= recordLenMax) {
            MemorySegment.copy(data, off, memory, JAVA_BYTE, DATA_OFF, len);
        }
        return true;
    }

    /** As above, for the bytes from position to limit, which stay unchanged. */
    boolean put(final ByteBuffer data, final int classId, final ByteBuffer key) {
        if (data == null) {
            return false;
        }
        final int len = data.remaining();
        final int keyLen = key == null ? 0 : key.remaining();
        if (!begin(len, classId, keyLen)) {
            return false;
        }
        try {
            if (len <= recordLenMax) {
                buffer.put(0, data, data.position(), len);
            }
            if (keyLen > 0) {
                buffer.put(keyOff(len), key, key.position(), keyLen);
            }
        } catch (final RuntimeException closedOrForeign) { // memory of an arena that is closed, or another thread's
            return false;
        }
        return true;
    }

    boolean put(final MemorySegment data, final int classId, final MemorySegment key) {
        if (data == null) {
            return false;
        }
        final long len = data.byteSize();
        final long keyLen = key == null ? 0 : key.byteSize();
        if (len > Integer.MAX_VALUE || keyLen > U16_MAX || !begin((int) len, classId, (int) keyLen)) {
            return false;
        }
        try {
            if (len <= recordLenMax) {
                MemorySegment.copy(data, 0, memory, DATA_OFF, len);
            }
            if (keyLen > 0) {
                MemorySegment.copy(key, 0, memory, DATA_OFF + keyOff((int) len), keyLen);
            }
        } catch (final RuntimeException closedOrForeign) {
            return false;
        }
        return true;
    }

    /**
     * Fills the entry with the addresses of the record's bytes, without a copy; {@link #releaseBorrowed} follows when C
     * returns. Reads the pieces once: a thread that uses the buffer against its contract can change the bytes, but not
     * their length.
     */
    boolean putBorrowed(final RecordBuffer record, final int classId) {
        if (record == null || classId < 0 || classId > U16_MAX) {
            return false;
        }
        final RecordBuffer.Piece payload = record.payloadPiece();
        final RecordBuffer.Piece key = record.keyPiece();
        payloadInUse = payload;
        keyInUse = key;
        fill(payload.address, payload.buffer.position(), classId, key.address, key.buffer.position());
        return true;
    }

    void releaseBorrowed() {
        payloadInUse = null;
        keyInUse = null;
    }

    /** Fills the entry of a payload of `len` bytes with the key only. */
    boolean putKey(final byte[] key, final int keyOff, final int keyLen, final int len, final int classId) {
        if (keyLen != 0 && (key == null || isOutside(key.length, keyOff, keyLen))) {
            return false;
        }
        if (!begin(len, classId, keyLen)) {
            return false;
        }
        if (keyLen > 0) {
            MemorySegment.copy(key, keyOff, memory, JAVA_BYTE, DATA_OFF + keyOff(len), keyLen);
        }
        return true;
    }

    private boolean begin(final int len, final int classId, final int keyLen) {
        if (len < 0 || classId < 0 || classId > U16_MAX || keyLen < 0 || keyLen > U16_MAX) {
            return false;
        }
        final int keyOff = keyOff(len);
        if (keyOff + keyLen > capacity) {
            allocate(Math.max(keyOff + keyLen, capacity * 2));
        }
        fill(address + DATA_OFF, len, classId, address + DATA_OFF + keyOff, keyLen);
        return true;
    }

    private void fill(final long data, final int len, final int classId, final long key, final int keyLen) {
        memory.set(JAVA_LONG, ENTRY_DATA, data);
        memory.set(JAVA_INT, ENTRY_LEN, len);
        memory.set(JAVA_SHORT, ENTRY_CLASS, (short) classId);
        memory.set(JAVA_SHORT, ENTRY_KEY_LEN, (short) keyLen);
        memory.set(JAVA_LONG, ENTRY_KEY, keyLen == 0 ? 0 : key);
    }

    /** The key lies behind the payload, or at the start when the payload is too long to be copied. */
    private int keyOff(final int len) {
        return len <= recordLenMax ? len : 0;
    }

    private static boolean isOutside(final int length, final int off, final int len) {
        return (off | len | (off + len) | (length - (off + len))) < 0;
    }

    long entryAddress() {
        return address + ENTRY_OFF;
    }

    long positionAddress() {
        return address + POSITION_OFF;
    }

    /** One word for C to fill. */
    long wordAddress() {
        return address + WORD_OFF;
    }

    long word() {
        return memory.get(JAVA_LONG, WORD_OFF);
    }

    long keyAddress() {
        return memory.get(JAVA_LONG, ENTRY_KEY);
    }

    /** Copies the position that C has filled to the caller's. */
    void copyPosition(final Position out) {
        if (out != null) {
            out.set(memory.get(JAVA_LONG, POSITION_LSN), memory.get(JAVA_LONG, POSITION_SEQ),
                memory.get(JAVA_INT, POSITION_EPOCH),
                memory.get(JAVA_BYTE, POSITION_LEVEL), memory.get(JAVA_BYTE, POSITION_COPIES),
                memory.get(JAVA_LONG, POSITION_END));
        }
    }
}
