package io.github.farlog.client;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import java.util.function.BiConsumer;

/**
 * What the cold calls have in common: texts go over in an arena of the call, and a refusal comes back as an exception.
 */
final class NativeCalls {
    /** Bytes of a UUID, and of a token. */
    private static final int ID_LEN = 16;
    /** The shortest deadline: 0 would mean the default. */
    static final long AT_ONCE = 1;

    /** A function that takes a URI and an error to fill. */
    @FunctionalInterface
    interface Call {
        int run(long uri, long error) throws Throwable;
    }

    private NativeCalls() {
    }

    /** As C takes it: one that has passed already is the shortest. */
    static long deadline(final long nanos) {
        return nanos < 0 ? AT_ONCE : nanos;
    }

    /** Makes the call; what it gave. */
    static Result run(final Arena arena, final String uri, final StringBuilder text, final Call call)
        throws FarlogException {
        final MemorySegment error = arena.allocate(Structs.ERROR);
        final long address = text(arena, "uri", Objects.requireNonNull(uri, "uri"));
        final int code;
        try {
            code = call.run(address, error.address());
        } catch (final RuntimeException | Error e) { // as it is: when the library is missing, Native is no class to ask
            throw e;
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
        text.append(Structs.getText(error, Structs.ERROR, "text"));
        return Result.of(code);
    }

    static void runOrThrow(final Arena arena, final String uri, final Call call) throws FarlogException {
        final StringBuilder text = new StringBuilder();
        final Result result = run(arena, uri, text, call);
        if (result != Result.OK) {
            throw new FarlogException(result, text.isEmpty() ? result.text() + ": " + uri : text.toString());
        }
    }

    /**
     * The address of a C string; 0 for null. C would take a NUL byte for its end, and so another name than the
     * caller's.
     */
    static long text(final Arena arena, final String what, final String text) throws FarlogException {
        if (text == null) {
            return 0;
        }
        if (text.indexOf('\0') >= 0) {
            throw new FarlogException(Result.INVALID,
                what + ": \"" + text.replace("\0", "\\0") + "\" has a NUL byte at " + text.indexOf('\0')
                    + ", expected none");
        }
        return arena.allocateFrom(text).address();
    }

    static long uuid(final Arena arena, final UUID uuid) {
        if (uuid == null) {
            return 0;
        }
        final MemorySegment raw = arena.allocate(ID_LEN, Long.BYTES);
        Structs.setUuid(raw, uuid);
        return raw.address();
    }

    static long uuids(final Arena arena, final String uri, final List<UUID> uuids) throws FarlogException {
        return each(arena, uri, "ring UUIDs", uuids, (raw, uuid) -> Structs.setUuid(raw, uuid));
    }

    /**
     * The address of 16 bytes for each member, all zero for null. C reads as many as the URI has members, so that any
     * other count is refused here.
     */
    private static <T> long each(final Arena arena, final String uri, final String what, final List<T> values,
        final BiConsumer<MemorySegment, T> put)
        throws FarlogException {
        if (values.isEmpty()) {
            return 0;
        }
        final int count = Members.of(uri).size();
        if (values.size() != count) {
            throw new FarlogException(Result.INVALID,
                what + ": " + values.size() + ", expected " + count + ", one for each ring of \"" + uri + '"');
        }
        final MemorySegment raw = arena.allocate((long) ID_LEN * count, Long.BYTES);
        for (int i = 0; i < count; i++) {
            if (values.get(i) != null) {
                put.accept(raw.asSlice((long) ID_LEN * i, ID_LEN), values.get(i));
            }
        }
        return raw.address();
    }

    /** Opens by one of the open functions; the handle. */
    static long open(final Arena arena, final String uri, final MemorySegment config,
        final java.lang.invoke.MethodHandle function)
        throws FarlogException {
        final MemorySegment handle = arena.allocate(JAVA_LONG);
        runOrThrow(arena, uri,
            (text, error) -> (int) function.invokeExact(text, config.address(), handle.address(), error));
        return handle.get(JAVA_LONG, 0);
    }

    static MemorySegment writerConfig(final Arena arena, final String uri, final WriterOptions options)
        throws FarlogException {
        final MemorySegment config = arena.allocate(Structs.WRITER_CONFIG);
        Structs.setInt(config, Structs.WRITER_CONFIG, "level", options.level() == null ? 0 : options.level().code());
        Structs.setInt(config, Structs.WRITER_CONFIG, "policy", options.policy().ordinal());
        Structs.setInt(config, Structs.WRITER_CONFIG, "wait", options.spinning() ? 1 : 0);
        Structs.setInt(config, Structs.WRITER_CONFIG, "epoch", options.epoch());
        Structs.setLong(config, Structs.WRITER_CONFIG, "deadline_ns", options.deadline().toNanos());
        Structs.setInt(config, Structs.WRITER_CONFIG, "warn_percent", options.warnPercent());
        Structs.setInt(config, Structs.WRITER_CONFIG, "alarm_percent", options.alarmPercent());
        Structs.setLong(config, Structs.WRITER_CONFIG, "writer_name", text(arena, "writer name", options.name()));
        Structs.setLong(config, Structs.WRITER_CONFIG, "counters_dir",
            text(arena, "counters folder", options.countersDir()));
        Structs.setLong(config, Structs.WRITER_CONFIG, "ring_uuid", uuids(arena, uri, options.ringUuids()));
        Structs.setLong(config, Structs.WRITER_CONFIG, "grant_token",
            each(arena, uri, "tokens", options.tokens(), (raw, token) -> token.copyTo(raw)));
        return config;
    }

    /** The ring that a handle has, as it was when that opened. */
    static RingStatus ring(final long handle, final java.lang.invoke.MethodHandle function) {
        try (Arena arena = Arena.ofConfined()) {
            final MemorySegment status = arena.allocate(Structs.RING_STATUS);
            function.invokeExact(handle, status.address());
            return RingStatus.of(status);
        } catch (final Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    /** A copy of C memory that may change or go away. */
    static MemorySegment copy(final MemorySegment source) {
        return MemorySegment.ofArray(source.toArray(JAVA_LONG));
    }

    static byte[] bytes(final MemorySegment source) {
        return source.toArray(JAVA_BYTE);
    }
}
