package io.github.farlog.client;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.util.List;
import java.util.UUID;

/**
 * What {@link Writer} and {@link SharedWriter} have in common: the handle of the C core, what opening found, and the
 * calls outside the append path. They may be called by any thread at any time.
 */
abstract sealed class RingWriter implements AutoCloseable permits Writer, SharedWriter {
    /** The functions of the C core for one kind of writer. */
    record Functions(MethodHandle contract, MethodHandle recovery, MethodHandle ring, MethodHandle cursors,
        MethodHandle members, MethodHandle replaceMember, MethodHandle close) {
    }

    final long handle;
    private final Functions functions;
    private final Contract contract;
    private final Recovery recovery;
    private final RingStatus identity;
    private final WriterOptions options;
    private Result closeResult = Result.OK; // guarded by this
    private boolean isClosed; // guarded by this

    /** Takes over the handle of an open writer. When this throws, the handle is still the caller's. */
    RingWriter(final WriterOptions options, final long handle, final Functions functions) {
        this.options = options;
        this.handle = handle;
        this.functions = functions;
        try {
            contract = Contract
                .of(Native.view((long) functions.contract.invokeExact(handle), Structs.CONTRACT.byteSize()));
            recovery = Recovery
                .of(Native.view((long) functions.recovery.invokeExact(handle), Structs.RECOVERY.byteSize()));
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
        identity = NativeCalls.ring(handle, functions.ring);
    }

    /** Enters a frame for one call of this thread; the caller leaves it. Null when the writer is closed. */
    abstract CallFrame enterFrame();

    /** Waits for the calls under way and rejects later ones. Called once, before the handle is freed. */
    abstract void endCalls();

    /**
     * What the region attests.
     *
     * @return as it was when the writer opened
     */
    public Contract contract() {
        return contract;
    }

    /**
     * What recovery found when the writer opened.
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
     * The writer's present positions. Allocates; not for the append path.
     *
     * @return null when the writer is closed
     */
    public Cursors cursors() {
        final CallFrame frame = enterFrame();
        if (frame == null) {
            return null;
        }
        try (Arena arena = Arena.ofConfined()) {
            final MemorySegment cursors = arena.allocate(Structs.CURSORS);
            functions.cursors.invokeExact(handle, cursors.address());
            return Cursors.of(cursors);
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            frame.leave();
        }
    }

    /**
     * The writer's present counters. Allocates; not for the append path.
     *
     * @return null when the writer is closed
     */
    public Counters counters() {
        final Cursors cursors = cursors();
        return cursors == null ? null
            : Counters.read(options.countersDir(), identity.ringUuid(), cursors, options.level());
    }

    /**
     * The present members of a stream with several rings. Allocates; not for the append path.
     *
     * @return in the order of the URI; empty for a writer of one ring; null when the writer is closed
     */
    public List<WriterMember> members() {
        final CallFrame frame = enterFrame();
        if (frame == null) {
            return null;
        }
        try {
            return WriterMember.of(handle, functions.members);
        } finally {
            frame.leave();
        }
    }

    /**
     * Replaces a member by a new ring, for good. For a program that opened {@code members:} with grants of its own; a
     * writer opened by {@code farlog://} does this by itself. The new ring counts for acknowledgements once it holds
     * every record that is not stored; until then the other members carry the stream. Does not wait for the network.
     * The next writer learns of the new ring by its grant.
     *
     * @param member from 0, in the order of the URI
     * @param uri of the new ring, which was never written
     * @param ringUuid its identity
     * @param token of this writer's grant at the new ring; null = the ring needs none
     * @throws FarlogException CLOSED, INVALID (no such member; the URI or identity is missing), UNSUPPORTED (the writer
     * has one ring)
     */
    public void replaceMember(final int member, final String uri, final UUID ringUuid, final GrantToken token)
        throws FarlogException {
        final CallFrame frame = enterFrame();
        if (frame == null) {
            throw WriterMember.closed(member, uri);
        }
        try {
            WriterMember.replace(handle, member, uri, ringUuid, token, functions.replaceMember);
        } finally {
            frame.leave();
        }
    }

    /**
     * Waits for the calls under way, flushes what is staged and releases the ring's writer lock. Later calls return
     * {@link Result#CLOSED}. May be called twice.
     */
    @Override
    public void close() {
        closeWithResult();
    }

    /**
     * As {@link #close}, with the result of the last flush.
     *
     * @return OK, or UNKNOWN: records that were submitted and not awaited may or may not be durable
     */
    public synchronized Result closeWithResult() {
        if (!isClosed) {
            isClosed = true;
            endCalls();
            closeResult = closeHandle(handle, functions);
        }
        return closeResult;
    }

    static Result closeHandle(final long handle, final Functions functions) {
        try {
            return Result.of((int) functions.close.invokeExact(handle));
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }
}
