package io.github.farlog.client;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;

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
public final class SharedWriter implements RecordSink {
    private final long handle;
    private final Contract contract;
    private final Recovery recovery;
    private final RingStatus identity;
    private final WriterOptions options;
    private final Object growing = new Object();
    private volatile CallFrame[] frames;
    private volatile boolean isClosing;
    private Result closeResult = Result.OK; // guarded by this
    private boolean isClosed; // guarded by this

    private SharedWriter(final WriterOptions options, final long handle) {
        this.options = options;
        this.handle = handle;
        try {
            final MemorySegment found = Native.view((long) Native.Shared.CONTRACT.invokeExact(handle),
                Structs.CONTRACT.byteSize());
            contract = Contract.of(found);
            recovery = Recovery
                .of(Native.view((long) Native.Shared.RECOVERY.invokeExact(handle), Structs.RECOVERY.byteSize()));
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
        identity = Cold.ring(handle, Native.Shared.RING);
        frames = new CallFrame[] {new CallFrame(identity.recordLenMax())};
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
            handle = Cold.open(arena, uri, Cold.writerConfig(arena, uri, options), Native.Shared.OPEN);
        }
        try {
            return new SharedWriter(options, handle);
        } catch (final RuntimeException e) {
            closeHandle(handle);
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
        final CallFrame frame = take();
        if (frame == null) {
            return refuse(Result.CLOSED, out);
        }
        try {
            return frame.put(data, classId, key) ? append(frame, deadlineNanos, out) : refuse(Result.INVALID, out);
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
        final CallFrame frame = take();
        if (frame == null) {
            return refuse(Result.CLOSED, out);
        }
        try {
            return frame.put(data, classId, key) ? append(frame, deadlineNanos, out) : refuse(Result.INVALID, out);
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
        final int keyOff,
        final int keyLen, final long deadlineNanos, final Position out) {
        final CallFrame frame = take();
        if (frame == null) {
            return refuse(Result.CLOSED, out);
        }
        try {
            return frame.put(data, off, len, classId, key, keyOff, keyLen) ? append(frame, deadlineNanos, out)
                : refuse(Result.INVALID, out);
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
        final CallFrame frame = take();
        if (frame == null) {
            return refuse(Result.CLOSED, out);
        }
        try {
            return frame.lend(record, classId) ? append(frame, deadlineNanos, out) : refuse(Result.INVALID, out);
        } finally {
            frame.letGo();
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
        final CallFrame frame = take();
        if (frame == null) {
            return refuse(Result.CLOSED, out);
        }
        try {
            final int code = (int) Native.Shared.RESOLVE.invokeExact(handle, lsn, Cold.deadline(deadlineNanos),
                frame.positionAddress());
            frame.position(out);
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
        return contract.level();
    }

    @Override
    public int recordLenMax() {
        return identity.recordLenMax();
    }

    @Override
    public List<LegStats> legs() {
        return List.of();
    }

    /**
     * What the region attests.
     *
     * @return as it was when the writer opened
     */
    public Contract contract() {
        return contract;
    }

    /**
     * What opening found.
     *
     * @return as printed by tools
     */
    public Recovery recovery() {
        return recovery;
    }

    /**
     * The ring's identity and sizes.
     *
     * @return as they were when the writer opened
     */
    public RingStatus ring() {
        return identity;
    }

    /**
     * The writer's positions. Cold.
     *
     * @return now; null when closed
     */
    public Cursors cursors() {
        final CallFrame frame = take();
        if (frame == null) {
            return null;
        }
        try (Arena arena = Arena.ofConfined()) {
            final MemorySegment cursors = arena.allocate(Structs.CURSORS);
            Native.Shared.CURSORS.invokeExact(handle, cursors.address());
            return Cursors.of(cursors);
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            frame.leave();
        }
    }

    /**
     * The writer's numbers. Cold.
     *
     * @return now; null when closed
     */
    @Override
    public Counters counters() {
        final Cursors cursors = cursors();
        return cursors == null ? null
            : Counters.read(options.countersDir(), identity.ringUuid(), cursors, options.level());
    }

    /**
     * The rings of a stream that has several, as the writer has them now. Cold.
     *
     * @return in the order of the URI; empty of a writer of one ring; null when closed
     */
    public List<WriterMember> members() {
        final CallFrame frame = take();
        if (frame == null) {
            return null;
        }
        try {
            return WriterMember.of(handle, Native.Replacing.SHARED_MEMBERS);
        } finally {
            frame.leave();
        }
    }

    /**
     * Has a member be another, blank ring from now on, for good: for who opened {@code members:} by a grant of his own
     * and is told so by the control plane. It counts when it has all that is not stored; until then the stream goes on
     * with the others. Any thread; does not wait for the network. The next opening is told by its grant.
     *
     * @param member from 0, in the order of the URI
     * @param uri of the new ring
     * @param ringUuid its identity
     * @param token lets this writer in; null = none is needed
     * @throws FarlogException CLOSED, INVALID (no such member; the URI or identity is missing), UNSUPPORTED (the writer
     * has one ring)
     */
    public void replaceMember(final int member, final String uri, final UUID ringUuid, final GrantToken token)
        throws FarlogException {
        final CallFrame frame = take();
        if (frame == null) {
            throw WriterMember.closed(member, uri);
        }
        try {
            WriterMember.replace(handle, member, uri, ringUuid, token, Native.Replacing.SHARED);
        } finally {
            frame.leave();
        }
    }

    /**
     * Refuses new appends with {@link Result#CLOSED}, waits for those under way, flushes and gives the lock back. May
     * be called twice and from any thread.
     */
    @Override
    public void close() {
        closeAndTell();
    }

    /**
     * As {@link #close}, with the last flush's result.
     *
     * @return OK or UNKNOWN
     */
    public synchronized Result closeAndTell() {
        if (!isClosed) {
            isClosed = true;
            shutFrames();
            closeResult = closeHandle(handle);
        }
        return closeResult;
    }

    private void shutFrames() {
        final CallFrame[] all;
        synchronized (growing) { // no frame is added after this
            isClosing = true;
            all = frames;
        }
        for (final CallFrame frame : all) {
            frame.refuse();
        }
        for (final CallFrame frame : all) {
            frame.shut();
        }
    }

    private static Result closeHandle(final long handle) {
        try {
            return Result.of((int) Native.Shared.CLOSE.invokeExact(handle));
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    /** A frame of its own for the call; null when closed. A thread begins at the same one each time. */
    CallFrame take() {
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
        return isClosing ? null : takeNew();
    }

    /**
     * All are in use: there is one thread more inside than ever before. There is no bound but the threads of the
     * operating system, as a virtual one holds its carrier: to wait here for another's call would be a wait that the
     * deadline does not count.
     */
    private CallFrame takeNew() {
        synchronized (growing) {
            if (isClosing) {
                return null;
            }
            final CallFrame[] more = Arrays.copyOf(frames, frames.length + 1);
            final CallFrame frame = new CallFrame(identity.recordLenMax());
            frame.enter();
            more[frames.length] = frame;
            frames = more;
            return frame;
        }
    }

    private Result append(final CallFrame frame, final long deadlineNanos, final Position out) {
        try {
            final int code = (int) Native.Shared.APPEND.invokeExact(handle, frame.entryAddress(),
                Cold.deadline(deadlineNanos),
                frame.positionAddress());
            frame.position(out);
            return Result.of(code);
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    private static Result refuse(final Result why, final Position out) {
        if (out != null) {
            out.clear();
        }
        return why;
    }
}
