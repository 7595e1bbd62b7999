package io.github.farlog.client;

import static io.github.farlog.client.Structs.WRITER_MEMBER;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.util.List;
import java.util.UUID;

/**
 * One of a stream's rings as its writer has it now. Immutable; any thread.
 *
 * @param ringUuid that the writer was told to expect; all zero = none, or a new ring whose token seems to be of no use
 * any more: ask for another
 * @param state how it is
 */
public record WriterMember(UUID ringUuid, MemberStatus.State state) {
    /** Those of an open writer, by one of the functions that tell. */
    static List<WriterMember> of(final long handle, final MethodHandle function) {
        try (Arena arena = Arena.ofConfined()) {
            final MemorySegment found = arena.allocate(WRITER_MEMBER, Structs.MEMBER_COUNT_MAX);
            final int count = (int) function.invokeExact(handle, found.address(), Structs.MEMBER_COUNT_MAX);
            return found.elements(WRITER_MEMBER).limit(count).map(WriterMember::of).toList();
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    private static WriterMember of(final MemorySegment member) {
        return new WriterMember(Structs.getUuid(member, Structs.off(WRITER_MEMBER, "ring_uuid")),
            MemberStatus.stateOf(Structs.getInt(member, WRITER_MEMBER, "state")));
    }

    /** Tells an open writer, by one of the functions for that. */
    static void replace(final long handle, final int member, final String uri, final UUID ringUuid,
        final GrantToken token, final MethodHandle function)
        throws FarlogException {
        try (Arena arena = Arena.ofConfined()) {
            final MemorySegment ring = arena.allocate(Structs.MEMBER_RING);
            Structs.setLong(ring, Structs.MEMBER_RING, "ring_uuid", NativeCalls.uuid(arena, ringUuid));
            if (token != null) {
                final MemorySegment raw = arena.allocate(Structs.MEMBER_RING.byteSize());
                token.copyTo(raw);
                Structs.setLong(ring, Structs.MEMBER_RING, "grant_token", raw.address());
            }
            NativeCalls.runOrThrow(arena, uri, (text, error) -> {
                Structs.setLong(ring, Structs.MEMBER_RING, "uri", text);
                return (int) function.invokeExact(handle, member, ring.address(), error);
            });
        }
    }

    static FarlogException closed(final int member, final String uri) {
        return new FarlogException(Result.CLOSED,
            "ring \"" + uri + "\" in the place of member " + member + ": the writer is closed");
    }
}
