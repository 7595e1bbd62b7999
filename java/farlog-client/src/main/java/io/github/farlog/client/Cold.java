package io.github.farlog.client;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import java.util.UUID;

/** What the cold calls have in common: texts go over in an arena of the call, and a refusal comes back as an exception. */
final class Cold {
    /** A function that takes a URI and an error to fill. */
    @FunctionalInterface
    interface Call {
        int run(long uri, long error) throws Throwable;
    }

    private Cold() {
    }

    /** Makes the call; what it gave. */
    static Result run(final Arena arena, final String uri, final StringBuilder text, final Call call) throws FarlogException {
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

    /** The address of a C string; 0 for null. C would take a NUL byte for its end, and so another name than the caller's. */
    static long text(final Arena arena, final String what, final String text) throws FarlogException {
        if (text == null) {
            return 0;
        }
        if (text.indexOf('\0') >= 0) {
            throw new FarlogException(Result.INVALID, what + ": \"" + text.replace("\0", "\\0") + "\" has a NUL byte at " + text.indexOf('\0')
                + ", expected none");
        }
        return arena.allocateFrom(text).address();
    }

    static long uuid(final Arena arena, final UUID uuid) {
        if (uuid == null) {
            return 0;
        }
        final MemorySegment raw = arena.allocate(16, 8);
        Structs.setUuid(raw, uuid);
        return raw.address();
    }

    /** Opens by one of the open functions; the handle. */
    static long open(final Arena arena, final String uri, final MemorySegment config, final java.lang.invoke.MethodHandle function)
        throws FarlogException {
        final MemorySegment handle = arena.allocate(JAVA_LONG);
        runOrThrow(arena, uri, (text, error) -> (int) function.invokeExact(text, config.address(), handle.address(), error));
        return handle.get(JAVA_LONG, 0);
    }

    static MemorySegment writerConfig(final Arena arena, final WriterOptions options) throws FarlogException {
        final MemorySegment config = arena.allocate(Structs.WRITER_CONFIG);
        Structs.setInt(config, Structs.WRITER_CONFIG, "level", options.level().code());
        Structs.setInt(config, Structs.WRITER_CONFIG, "policy", options.policy().ordinal());
        Structs.setInt(config, Structs.WRITER_CONFIG, "wait", options.spinning() ? 1 : 0);
        Structs.setInt(config, Structs.WRITER_CONFIG, "epoch", options.epoch());
        Structs.setLong(config, Structs.WRITER_CONFIG, "deadline_ns", options.deadline().toNanos());
        Structs.setInt(config, Structs.WRITER_CONFIG, "warn_percent", options.warnPercent());
        Structs.setInt(config, Structs.WRITER_CONFIG, "alarm_percent", options.alarmPercent());
        Structs.setLong(config, Structs.WRITER_CONFIG, "writer_name", text(arena, "writer name", options.name()));
        Structs.setLong(config, Structs.WRITER_CONFIG, "counters_dir", text(arena, "counters folder", options.countersDir()));
        Structs.setLong(config, Structs.WRITER_CONFIG, "ring_uuid", uuid(arena, options.ringUuid()));
        Structs.setLong(config, Structs.WRITER_CONFIG, "grant_token", options.token() == null ? 0 : options.token().address(arena));
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
