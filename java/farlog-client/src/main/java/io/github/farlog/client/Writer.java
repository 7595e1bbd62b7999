package io.github.farlog.client;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;

/**
 * A ring's one writer.
 *
 * <p><b>Threads.</b> One at a time appends; for many use {@link SharedWriter}. {@link #close}, {@link #counters} and
 * {@link #cursors} may be called by any thread at any time; they wait for the call under way.
 *
 * <p><b>Blocking.</b> Nothing waits beyond its deadline. {@code deadlineNanos} counts from the call: 0 = the writer's
 * default, negative = has passed already.
 *
 * <p><b>Durability.</b> {@link Result#OK} from append or commit means that the record is at the writer's level, which
 * {@link Position#level} names. FULL, FENCED, TOO_LARGE, INVALID and CLOSED mean that nothing was written. UNKNOWN
 * means that it may or may not be written: {@link #resolve} finds out by the LSN in the position.
 *
 * <p><b>Allocation.</b> Hot calls allocate nothing once the buffers have grown to the longest record, and throw
 * nothing. {@code out} may be null.
 */
public final class Writer extends RingWriter {
    private static final Functions FUNCTIONS = new Functions(Native.Writers.CONTRACT, Native.Writers.RECOVERY,
        Native.Writers.RING, Native.Writers.CURSORS, Native.Replacing.WRITER_MEMBERS, Native.Replacing.WRITER,
        Native.Writers.CLOSE);

    private final CallFrame frame;
    private final ClaimViews views;
    private Result lastResult = Result.OK; // of the thread that appends
    private long durableLsn;

    private Writer(final WriterOptions options, final long handle) {
        super(options, handle, FUNCTIONS);
        frame = new CallFrame(ring().recordLenMax());
        views = new ClaimViews();
    }

    /**
     * Takes the ring's writer lock, recovers, persists a new epoch. Blocks for the scan of the undrained part.
     *
     * @param uri such as {@code mem:/dev/shm/orders.ring}, or {@code farlog://desk7/orders}, of which the host agent
     * says where it is
     * @param options the defaults ask for {@link Level#PERSISTENT}
     * @return the writer
     * @throws FarlogException NOT_FOUND, NOT_A_RING (the text gives the command that would format it), HELD (the text
     * says by whom), LEVEL, FENCED, CORRUPT, FULL, IO
     */
    public static Writer open(final String uri, final WriterOptions options) throws FarlogException {
        final long handle;
        try (Arena arena = Arena.ofConfined()) {
            handle = NativeCalls.open(arena, uri, NativeCalls.writerConfig(arena, uri, options), Native.Writers.OPEN);
        }
        try {
            return new Writer(options, handle);
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
     * @param deadlineNanos from now
     * @param out is filled
     * @return OK, FULL, FENCED, TOO_LARGE, CLOSED, UNKNOWN or INVALID
     */
    public Result append(final MemorySegment data, final int classId, final MemorySegment key, final long deadlineNanos,
        final Position out) {
        if (!frame.enter()) {
            return closed(out);
        }
        try {
            return frame.put(data, classId, key) ? append(deadlineNanos, out) : invalid(out);
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
     * @param deadlineNanos from now
     * @param out is filled
     * @return as {@link #append(MemorySegment, int, MemorySegment, long, Position)}
     */
    public Result append(final ByteBuffer data, final int classId, final ByteBuffer key, final long deadlineNanos,
        final Position out) {
        if (!frame.enter()) {
            return closed(out);
        }
        try {
            return frame.put(data, classId, key) ? append(deadlineNanos, out) : invalid(out);
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
     * @param deadlineNanos from now
     * @param out is filled
     * @return as {@link #append(MemorySegment, int, MemorySegment, long, Position)}
     */
    public Result append(final byte[] data, final int off, final int len, final int classId, final byte[] key,
        final int keyOff, final int keyLen, final long deadlineNanos, final Position out) {
        if (!frame.enter()) {
            return closed(out);
        }
        try {
            return frame.put(data, off, len, classId, key, keyOff, keyLen) ? append(deadlineNanos, out) : invalid(out);
        } finally {
            frame.leave();
        }
    }

    /**
     * As append, but {@link Result#FULL} at once whatever the policy.
     *
     * @param data the payload
     * @param classId the application's kind of record, 0 to 65535
     * @param key finds the record again; null = none
     * @param out is filled
     * @return as append
     */
    public Result tryAppend(final MemorySegment data, final int classId, final MemorySegment key, final Position out) {
        if (!frame.enter()) {
            return closed(out);
        }
        try {
            return frame.put(data, classId, key) ? keep(tryAppend(), out) : invalid(out);
        } finally {
            frame.leave();
        }
    }

    /**
     * As append, but {@link Result#FULL} at once whatever the policy.
     *
     * @param data the payload
     * @param classId the application's kind of record, 0 to 65535
     * @param key finds the record again; null = none
     * @param out is filled
     * @return as append
     */
    public Result tryAppend(final ByteBuffer data, final int classId, final ByteBuffer key, final Position out) {
        if (!frame.enter()) {
            return closed(out);
        }
        try {
            return frame.put(data, classId, key) ? keep(tryAppend(), out) : invalid(out);
        } finally {
            frame.leave();
        }
    }

    /**
     * As append, but {@link Result#FULL} at once whatever the policy.
     *
     * @param data holds the payload
     * @param off where it begins
     * @param len its length
     * @param classId the application's kind of record, 0 to 65535
     * @param key holds the key; null when keyLen is 0
     * @param keyOff where it begins
     * @param keyLen its length
     * @param out is filled
     * @return as append
     */
    public Result tryAppend(final byte[] data, final int off, final int len, final int classId, final byte[] key,
        final int keyOff, final int keyLen, final Position out) {
        if (!frame.enter()) {
            return closed(out);
        }
        try {
            return frame.put(data, off, len, classId, key, keyOff, keyLen) ? keep(tryAppend(), out) : invalid(out);
        } finally {
            frame.leave();
        }
    }

    /**
     * Writes one record without waiting for durability: {@link #poll}, {@link #await} or the next append makes it
     * durable. Never blocks.
     *
     * @param data the payload
     * @param classId the application's kind of record, 0 to 65535
     * @param key finds the record again; null = none
     * @param out what a later acknowledgement will name, its level still {@link Level#POSTED}
     * @return OK, FULL, FENCED, TOO_LARGE, CLOSED or INVALID
     */
    public Result submit(final MemorySegment data, final int classId, final MemorySegment key, final Position out) {
        if (!frame.enter()) {
            return closed(out);
        }
        try {
            return frame.put(data, classId, key) ? keep(submit(), out) : invalid(out);
        } finally {
            frame.leave();
        }
    }

    /**
     * Writes one record without waiting for durability. Never blocks.
     *
     * @param data the payload
     * @param classId the application's kind of record, 0 to 65535
     * @param key finds the record again; null = none
     * @param out what a later acknowledgement will name
     * @return OK, FULL, FENCED, TOO_LARGE, CLOSED or INVALID
     */
    public Result submit(final ByteBuffer data, final int classId, final ByteBuffer key, final Position out) {
        if (!frame.enter()) {
            return closed(out);
        }
        try {
            return frame.put(data, classId, key) ? keep(submit(), out) : invalid(out);
        } finally {
            frame.leave();
        }
    }

    /**
     * Writes one record without waiting for durability. Never blocks.
     *
     * @param data holds the payload
     * @param off where it begins
     * @param len its length
     * @param classId the application's kind of record, 0 to 65535
     * @param key holds the key; null when keyLen is 0
     * @param keyOff where it begins
     * @param keyLen its length
     * @param out what a later acknowledgement will name
     * @return OK, FULL, FENCED, TOO_LARGE, CLOSED or INVALID
     */
    public Result submit(final byte[] data, final int off, final int len, final int classId, final byte[] key,
        final int keyOff, final int keyLen, final Position out) {
        if (!frame.enter()) {
            return closed(out);
        }
        try {
            return frame.put(data, off, len, classId, key, keyOff, keyLen) ? keep(submit(), out) : invalid(out);
        } finally {
            frame.leave();
        }
    }

    /**
     * Starts a flush of what was submitted when none is under way, and takes note of the durable position. Never
     * blocks.
     *
     * @return OK: see {@link #durableLsn}; FENCED, CLOSED, UNKNOWN (the region failed)
     */
    public Result poll() {
        if (!frame.enter()) {
            return closed(null);
        }
        try {
            final int code = (int) Native.Writers.POLL.invokeExact(handle, frame.wordAddress());
            durableLsn = frame.word();
            return keep(code);
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            frame.leave();
        }
    }

    /**
     * The durable position at the last {@link #poll}: every record whose end is not above it is acknowledged at the
     * writer's level.
     *
     * @return byte position in the stream
     */
    public long durableLsn() {
        return durableLsn;
    }

    /**
     * Waits until the durable position reaches a record's end.
     *
     * @param endLsn of the record
     * @param deadlineNanos from now
     * @return OK; UNKNOWN at the deadline, or when the region failed; INVALID: nothing was appended up to there; CLOSED
     */
    public Result await(final long endLsn, final long deadlineNanos) {
        if (!frame.enter()) {
            return closed(null);
        }
        try {
            return keep((int) Native.Writers.WAIT.invokeExact(handle, endLsn, NativeCalls.deadline(deadlineNanos)));
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            frame.leave();
        }
    }

    /**
     * Room for a payload, to be filled in place and then committed. One claim at a time: a second one replaces the
     * first, and so does an append. Never blocks. The memory may be used until the commit or the close; after the close
     * it throws {@link IllegalStateException}.
     *
     * @param len of the payload
     * @param classId the application's kind of record, 0 to 65535
     * @param key holds the key, is copied; null when keyLen is 0
     * @param keyOff where it begins
     * @param keyLen its length
     * @return the room; null when it is refused: {@link #lastResult} says why
     */
    public MemorySegment claim(final int len, final int classId, final byte[] key, final int keyOff, final int keyLen) {
        if (!frame.enter()) {
            closed(null);
            return null;
        }
        try {
            if (len < 0 || !frame.putKey(key, keyOff, keyLen, 0, classId)) {
                invalid(null);
                return null;
            }
            final int code = (int) Native.Writers.CLAIM.invokeExact(handle, len, (short) classId, frame.keyAddress(),
                (short) keyLen,
                frame.wordAddress());
            return keep(code) == Result.OK ? views.of(frame.word(), len) : null;
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            frame.leave();
        }
    }

    /**
     * Appends what was claimed and filled. FULL leaves the claim standing.
     *
     * @param deadlineNanos from now
     * @param out is filled
     * @return as append; INVALID without a claim
     */
    public Result commit(final long deadlineNanos, final Position out) {
        if (!frame.enter()) {
            return closed(out);
        }
        try {
            final int code = (int) Native.Writers.COMMIT.invokeExact(handle, NativeCalls.deadline(deadlineNanos),
                frame.positionAddress());
            return keep(code, out);
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            frame.leave();
        }
    }

    /**
     * After UNKNOWN: is the record with this LSN durable?
     *
     * @param lsn where it would begin
     * @param deadlineNanos from now
     * @param out which record is there; another epoch than the one that came with UNKNOWN means that the record asked
     * for was lost
     * @return OK; NOT_FOUND: no record begins there and the one asked for never will be; UNKNOWN: still not known;
     * CLOSED
     */
    public Result resolve(final long lsn, final long deadlineNanos, final Position out) {
        if (!frame.enter()) {
            return closed(out);
        }
        try {
            return keep((int) Native.Writers.RESOLVE.invokeExact(handle, lsn, NativeCalls.deadline(deadlineNanos),
                frame.positionAddress()), out);
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            frame.leave();
        }
    }

    /**
     * Appends a record without payload, so that merges past an idle writer can move on.
     *
     * @param deadlineNanos from now
     * @param out is filled
     * @return as append
     */
    public Result heartbeat(final long deadlineNanos, final Position out) {
        if (!frame.enter()) {
            return closed(out);
        }
        try {
            return keep((int) Native.Writers.HEARTBEAT.invokeExact(handle, NativeCalls.deadline(deadlineNanos),
                frame.positionAddress()), out);
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            frame.leave();
        }
    }

    /**
     * What the last call of the appending thread gave.
     *
     * @return for {@link #claim} above all
     */
    public Result lastResult() {
        return lastResult;
    }

    @Override
    CallFrame enterFrame() {
        return frame.enter() ? frame : null;
    }

    @Override
    void endCalls() {
        frame.close();
        views.close();
    }

    private Result append(final long deadlineNanos, final Position out) {
        try {
            return keep(
                (int) Native.Writers.APPEND.invokeExact(handle, frame.entryAddress(),
                    NativeCalls.deadline(deadlineNanos),
                    frame.positionAddress()),
                out);
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    private int tryAppend() {
        try {
            return (int) Native.Writers.TRY_APPEND.invokeExact(handle, frame.entryAddress(), frame.positionAddress());
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    private int submit() {
        try {
            return (int) Native.Writers.SUBMIT.invokeExact(handle, frame.entryAddress(), frame.positionAddress());
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    private Result keep(final int code) {
        lastResult = Result.of(code);
        return lastResult;
    }

    private Result keep(final int code, final Position out) {
        frame.copyPosition(out);
        return keep(code);
    }

    private Result invalid(final Position out) {
        return reject(Result.INVALID, out);
    }

    private Result closed(final Position out) {
        return reject(Result.CLOSED, out);
    }

    private Result reject(final Result why, final Position out) {
        if (out != null) {
            out.clear();
        }
        lastResult = why;
        return why;
    }
}
