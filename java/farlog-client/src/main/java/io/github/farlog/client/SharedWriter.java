package io.github.farlog.client;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;

/**
 * A ring's one writer, for any number of threads, platform or virtual. They write their records side by side and share
 * a flush where one flush serves many. The records of one thread are in the ring in the order of its calls.
 *
 * <p><b>Blocking.</b> As {@link Writer}. A virtual thread holds its carrier while it is inside a call: microseconds in
 * memory, the time of a flush on a plain file, the deadline when the ring is full.
 *
 * <p><b>Durability.</b> As {@link Writer}; acknowledgements are in LSN order.
 *
 * <p><b>Allocation.</b> None once there is a buffer for each thread that is inside a call at the same time.
 */
public final class SharedWriter extends RingWriter implements RecordSink {
    private static final Functions FUNCTIONS = new Functions(Native.Shared.CONTRACT, Native.Shared.RECOVERY,
        Native.Shared.RING, Native.Shared.CURSORS, Native.Replacing.SHARED_MEMBERS, Native.Replacing.SHARED,
        Native.Shared.CLOSE);

    private final Object growing = new Object();
    private volatile CallFrame[] frames;
    private volatile boolean isClosing;

    private SharedWriter(final WriterOptions options, final long handle) {
        super(options, handle, FUNCTIONS);
        frames = new CallFrame[] {new CallFrame(ring().recordLenMax())};
    }

    /**
     * Takes the ring's writer lock, recovers, persists a new epoch. Blocks for the scan of the undrained part.
     *
     * @param uri such as {@code mem:/dev/shm/orders.ring}, or {@code farlog://desk7/orders}, of which the host agent
     * says where it is
     * @param options the defaults ask for {@link Level#PERSISTENT}
     * @return the writer
     * @throws FarlogException as {@link Writer#open}
     */
    public static SharedWriter open(final String uri, final WriterOptions options) throws FarlogException {
        final long handle;
        try (Arena arena = Arena.ofConfined()) {
            handle = NativeCalls.open(arena, uri, NativeCalls.writerConfig(arena, uri, options), Native.Shared.OPEN);
        }
        try {
            return new SharedWriter(options, handle);
        } catch (final RuntimeException e) {
            closeHandle(handle, FUNCTIONS);
            throw e;
        }
    }

    /**
     * Appends one record and waits until it is at the writer's level.
     *
     * @param data the payload; it may be on the heap or not, of any arena
     * @param classId the application's kind of record, 0 to 65535
     * @param key finds the record again, at most 65535 bytes; null = none
     * @param deadlineNanos from now; 0 = the writer's default
     * @param out is filled; may be null
     * @return OK, FULL, FENCED, TOO_LARGE, CLOSED, UNKNOWN or INVALID
     */
    public Result append(final MemorySegment data, final int classId, final MemorySegment key, final long deadlineNanos,
        final Position out) {
        final CallFrame frame = enterFrame();
        if (frame == null) {
            return reject(Result.CLOSED, out);
        }
        try {
            return frame.put(data, classId, key) ? append(frame, deadlineNanos, out) : reject(Result.INVALID, out);
        } finally {
            frame.leave();
        }
    }

    /**
     * The same for the bytes between a buffer's position and its limit, which stay as they are.
     *
     * @param data the payload, direct or not
     * @param classId the application's kind of record, 0 to 65535
     * @param key finds the record again; null = none
     * @param deadlineNanos from now; 0 = the writer's default
     * @param out is filled; may be null
     * @return as {@link #append(MemorySegment, int, MemorySegment, long, Position)}
     */
    public Result append(final ByteBuffer data, final int classId, final ByteBuffer key, final long deadlineNanos,
        final Position out) {
        final CallFrame frame = enterFrame();
        if (frame == null) {
            return reject(Result.CLOSED, out);
        }
        try {
            return frame.put(data, classId, key) ? append(frame, deadlineNanos, out) : reject(Result.INVALID, out);
        } finally {
            frame.leave();
        }
    }

    /**
     * The same for a part of an array.
     *
     * @param data holds the payload
     * @param off where it begins
     * @param len its length
     * @param classId the application's kind of record, 0 to 65535
     * @param key holds the key; null when keyLen is 0
     * @param keyOff where it begins
     * @param keyLen its length, at most 65535
     * @param deadlineNanos from now; 0 = the writer's default
     * @param out is filled; may be null
     * @return as {@link #append(MemorySegment, int, MemorySegment, long, Position)}
     */
    public Result append(final byte[] data, final int off, final int len, final int classId, final byte[] key,
        final int keyOff, final int keyLen, final long deadlineNanos, final Position out) {
        final CallFrame frame = enterFrame();
        if (frame == null) {
            return reject(Result.CLOSED, out);
        }
        try {
            return frame.put(data, off, len, classId, key, keyOff, keyLen) ? append(frame, deadlineNanos, out)
                : reject(Result.INVALID, out);
        } finally {
            frame.leave();
        }
    }

    /**
     * The same for a record that lies ready outside the heap: nothing is copied in Java. The record stays as it is.
     *
     * @param record its payload and key are the bytes up to their positions; the key has at most 65535
     * @param classId the application's kind of record, 0 to 65535
     * @param deadlineNanos from now; 0 = the writer's default
     * @param out is filled; may be null
     * @return as {@link #append(MemorySegment, int, MemorySegment, long, Position)}
     */
    public Result append(final RecordBuffer record, final int classId, final long deadlineNanos, final Position out) {
        final CallFrame frame = enterFrame();
        if (frame == null) {
            return reject(Result.CLOSED, out);
        }
        try {
            return frame.putBorrowed(record, classId) ? append(frame, deadlineNanos, out) : reject(Result.INVALID, out);
        } finally {
            frame.releaseBorrowed();
            frame.leave();
        }
    }

    /**
     * After UNKNOWN: is the record with this LSN durable?
     *
     * @param lsn where it would begin
     * @param deadlineNanos from now; 0 = the writer's default
     * @param out which record is there; may be null
     * @return as {@link Writer#resolve}
     */
    public Result resolve(final long lsn, final long deadlineNanos, final Position out) {
        final CallFrame frame = enterFrame();
        if (frame == null) {
            return reject(Result.CLOSED, out);
        }
        try {
            final int code = (int) Native.Shared.RESOLVE.invokeExact(handle, lsn, NativeCalls.deadline(deadlineNanos),
                frame.positionAddress());
            frame.copyPosition(out);
            return Result.of(code);
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            frame.leave();
        }
    }

    @Override
    public Result append(final RecordBuffer record, final int classId, final int criticality, final long deadlineNanos,
        final Position out) {
        return append(record, classId, deadlineNanos, out);
    }

    @Override
    public Result append(final byte[] data, final int off, final int len, final int classId, final byte[] key,
        final int keyOff, final int keyLen,
        final int criticality, final long deadlineNanos, final Position out) {
        return append(data, off, len, classId, key, keyOff, keyLen, deadlineNanos, out);
    }

    @Override
    public Result resolve(final Position position, final long deadlineNanos) {
        final long lsn = position.lsn();
        final int epoch = position.epoch();
        final Result result = resolve(lsn, deadlineNanos, position);
        if (result == Result.OK && position.epoch() == epoch) {
            return Result.OK;
        }
        position.ask(lsn, epoch);
        return result == Result.OK ? Result.NOT_FOUND : result; // another record is there
    }

    @Override
    public Level levelMax() {
        return contract().level();
    }

    @Override
    public int recordLenMax() {
        return ring().recordLenMax();
    }

    @Override
    public List<LegStats> legs() {
        return List.of();
    }

    @Override
    void endCalls() {
        final CallFrame[] all;
        synchronized (growing) { // no frame is added after this
            isClosing = true;
            all = frames;
        }
        for (final CallFrame frame : all) {
            frame.rejectCalls();
        }
        for (final CallFrame frame : all) {
            frame.close();
        }
    }

    /** A free frame. A thread begins its search at the same frame each time. */
    @Override
    CallFrame enterFrame() {
        final CallFrame[] all = frames;
        final int start = (int) (Thread.currentThread().threadId() % all.length);
        for (int i = start; i < all.length; i++) {
            if (all[i].tryEnter()) {
                return all[i];
            }
        }
        for (int i = 0; i < start; i++) {
            if (all[i].tryEnter()) {
                return all[i];
            }
        }
        return isClosing ? null : addFrame();
    }

    /**
     * All frames are in use: more threads are inside a call than ever before. The number of operating-system threads
     * bounds the frames, since a virtual thread pins its carrier during a call. To wait here for the call of another
     * thread would be a wait outside the deadline.
     */
    private CallFrame addFrame() {
        synchronized (growing) {
            if (isClosing) {
                return null;
            }
            final CallFrame[] more = Arrays.copyOf(frames, frames.length + 1);
            final CallFrame frame = new CallFrame(ring().recordLenMax());
            frame.enter();
            more[frames.length] = frame;
            frames = more;
            return frame;
        }
    }

    private Result append(final CallFrame frame, final long deadlineNanos, final Position out) {
        try {
            final int code = (int) Native.Shared.APPEND.invokeExact(handle, frame.entryAddress(),
                NativeCalls.deadline(deadlineNanos),
                frame.positionAddress());
            frame.copyPosition(out);
            return Result.of(code);
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    private static Result reject(final Result why, final Position out) {
        if (out != null) {
            out.clear();
        }
        return why;
    }
}
