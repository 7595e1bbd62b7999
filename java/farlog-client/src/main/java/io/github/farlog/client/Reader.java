package io.github.farlog.client;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * Reads a ring from outside, beside its writer: a live tail, or a drain that also gives the space back.
 *
 * <p><b>Threads.</b> One at a time reads; {@link #close} may be called by any thread, waits for the call under way, and
 * may be called twice.
 *
 * <p><b>Blocking.</b> Reading never waits for records: {@link Result#NOT_YET} says that there is nothing new.
 */
public final class Reader implements AutoCloseable {
    private final long handle;
    private final CallFrame frame = new CallFrame(0);
    private final int align;
    private boolean isClosed; // guarded by this

    private Reader(final long handle) {
        this.handle = handle;
        final RingStatus status = status();
        align = status == null ? 64 : status.align();
    }

    /**
     * Opens a ring for reading.
     *
     * @param uri of the ring
     * @param options where to begin, and whether to drain
     * @return the reader
     * @throws FarlogException NOT_FOUND, NOT_A_RING, HELD (another drain), OVERRUN (the LSN is below the head),
     * CORRUPT, IO
     */
    public static Reader open(final String uri, final ReaderOptions options) throws FarlogException {
        try (Arena arena = Arena.ofConfined()) {
            final MemorySegment config = arena.allocate(Structs.READER_CONFIG);
            Structs.setInt(config, Structs.READER_CONFIG, "start", options.start().ordinal());
            Structs.setInt(config, Structs.READER_CONFIG, "is_drain", options.draining() ? 1 : 0);
            Structs.setLong(config, Structs.READER_CONFIG, "lsn", options.lsn());
            Structs.setLong(config, Structs.READER_CONFIG, "ring_uuid",
                NativeCalls.uuids(arena, uri, options.ringUuids()));
            return new Reader(NativeCalls.open(arena, uri, config, Native.Readers.OPEN));
        }
    }

    /**
     * Copies whole, checked records into a batch. The batch grows when the next record does not fit.
     *
     * @param into is filled, its old records are gone
     * @return OK: there is at least one record or filling of the ring's end; NOT_YET: nothing new; CORRUPT: the record
     * at {@link Batch#firstLsn} is unreadable although later ones are there; OVERRUN (not for a drain): reopen at the
     * head; CLOSED
     */
    public Result read(final Batch into) {
        if (into == null) {
            return Result.INVALID;
        }
        into.clear();
        if (!frame.enter()) {
            return Result.CLOSED;
        }
        try {
            int code = readOnce(into);
            if (code == Result.TOO_LARGE.code()) {
                into.grow();
                code = readOnce(into);
            }
            into.begin(code == 0, align);
            return Result.of(code);
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            frame.leave();
        }
    }

    private int readOnce(final Batch into) throws Throwable {
        return (int) Native.Readers.READ.invokeExact(handle, into.recordsAddress(), into.capacity(),
            into.headAddress());
    }

    /**
     * The drain's last step, when everything in the batch and before it is synced in the store: persists the new head,
     * then lets the writer have the space. Blocks for the media.
     *
     * @param upTo a batch that was read
     * @return OK; INVALID: not a drain, or it would go back; IO; CLOSED
     */
    public Result release(final Batch upTo) {
        if (upTo == null) {
            return Result.INVALID;
        }
        if (!frame.enter()) {
            return Result.CLOSED;
        }
        try {
            return Result
                .of((int) Native.Readers.RELEASE.invokeExact(handle, upTo.nextLsn(), upTo.nextSeq(), upTo.lastEpoch()));
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            frame.leave();
        }
    }

    /**
     * Cheap state of the ring for metrics, without a scan.
     *
     * @return now; null when closed or unreadable
     */
    public RingStatus status() {
        if (!frame.enter()) {
            return null;
        }
        try (Arena arena = Arena.ofConfined()) {
            final MemorySegment status = arena.allocate(Structs.RING_STATUS);
            return (int) Native.Readers.STATUS.invokeExact(handle, status.address()) == 0 ? RingStatus.of(status)
                : null;
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            frame.leave();
        }
    }

    @Override
    public synchronized void close() {
        if (isClosed) {
            return;
        }
        isClosed = true;
        frame.close();
        try {
            Native.Readers.CLOSE.invokeExact(handle);
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }
}
