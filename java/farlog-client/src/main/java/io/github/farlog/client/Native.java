package io.github.farlog.client;

import static java.lang.foreign.ValueLayout.JAVA_DOUBLE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;

/**
 * The functions of farlog.h and of the headers on top of it. Addresses are longs: nothing is wrapped and nothing is
 * checked for each call; whoever passes one holds on to the memory until the call returns.
 *
 * <p>No call is critical (Linker.Option.critical), although that would let heap arrays through. An entry holds
 * addresses, not arguments, so an array could not be passed in it; and a critical call that waits (for room, for a
 * disk, for the turn of another thread that has lost its core) holds up every garbage collection of the JVM for as
 * long. What it would save was measured for appends of 192 bytes in memory: 58 ns against 60 ns, of which the copy, the
 * guard and the position take 14.
 *
 * <p>Each kind of handle has its functions in a class of its own, which is made when the first one is opened: the
 * linker takes some 7 ms of a processor for each list of arguments that is new to it, and an appender needs 4 of 12.
 * Never at the first append: a handle's open function is in the class of its others.
 */
final class Native {
    private static final SymbolLookup LIBRARY = NativeLibrary.load();
    private static final Linker LINKER = Linker.nativeLinker();

    /** A writer of one thread. */
    static final class Writers {
        static final MethodHandle OPEN = call("farlog_writer_open", JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
        static final MethodHandle CLOSE = call("farlog_writer_close", JAVA_LONG);
        static final MethodHandle RECOVERY = address("farlog_writer_recovery");
        static final MethodHandle CONTRACT = address("farlog_writer_contract");
        static final MethodHandle CURSORS = nothing("farlog_writer_cursors", JAVA_LONG, JAVA_LONG);
        static final MethodHandle RING = nothing("farlog_writer_ring", JAVA_LONG, JAVA_LONG);
        static final MethodHandle APPEND = call("farlog_append", JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
        static final MethodHandle TRY_APPEND = call("farlog_try_append", JAVA_LONG, JAVA_LONG, JAVA_LONG);
        static final MethodHandle SUBMIT = call("farlog_submit", JAVA_LONG, JAVA_LONG, JAVA_LONG);
        static final MethodHandle POLL = call("farlog_poll", JAVA_LONG, JAVA_LONG);
        static final MethodHandle WAIT = call("farlog_wait", JAVA_LONG, JAVA_LONG, JAVA_LONG);
        static final MethodHandle CLAIM = call("farlog_claim", JAVA_LONG, JAVA_INT, JAVA_SHORT, JAVA_LONG, JAVA_SHORT,
            JAVA_LONG);
        static final MethodHandle COMMIT = call("farlog_commit", JAVA_LONG, JAVA_LONG, JAVA_LONG);
        static final MethodHandle RESOLVE = call("farlog_resolve", JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
        static final MethodHandle HEARTBEAT = call("farlog_heartbeat", JAVA_LONG, JAVA_LONG, JAVA_LONG);

        private Writers() {
        }
    }

    /** A writer of many threads. */
    static final class Shared {
        static final MethodHandle OPEN = call("farlog_shared_open", JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
        static final MethodHandle CLOSE = call("farlog_shared_close", JAVA_LONG);
        static final MethodHandle RECOVERY = address("farlog_shared_recovery");
        static final MethodHandle CONTRACT = address("farlog_shared_contract");
        static final MethodHandle CURSORS = nothing("farlog_shared_cursors", JAVA_LONG, JAVA_LONG);
        static final MethodHandle RING = nothing("farlog_shared_ring", JAVA_LONG, JAVA_LONG);
        static final MethodHandle APPEND = call("farlog_shared_append", JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
        static final MethodHandle RESOLVE = call("farlog_shared_resolve", JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);

        private Shared() {
        }
    }

    /** A reader. */
    static final class Readers {
        static final MethodHandle OPEN = call("farlog_reader_open", JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
        static final MethodHandle CLOSE = nothing("farlog_reader_close", JAVA_LONG);
        static final MethodHandle READ = call("farlog_reader_read", JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
        static final MethodHandle RELEASE = call("farlog_reader_release", JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT);
        static final MethodHandle STATUS = call("farlog_reader_status", JAVA_LONG, JAVA_LONG);

        private Readers() {
        }
    }

    /** A route. */
    static final class Routes {
        static final MethodHandle OPEN = call("farlog_route_open", JAVA_LONG, JAVA_LONG, JAVA_LONG);
        static final MethodHandle OPEN_NAME = call("farlog_route_open_name", JAVA_LONG, JAVA_LONG, JAVA_LONG,
            JAVA_LONG);
        static final MethodHandle APPEND = call("farlog_route_append", JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_LONG,
            JAVA_LONG);
        static final MethodHandle RESOLVE = call("farlog_route_resolve", JAVA_LONG, JAVA_LONG, JAVA_LONG);
        static final MethodHandle CATCH_UP = call("farlog_route_catch_up", JAVA_LONG, JAVA_LONG);
        static final MethodHandle STATS = call("farlog_route_stats", JAVA_LONG, JAVA_INT, JAVA_LONG);
        static final MethodHandle END = call("farlog_route_end", JAVA_LONG, JAVA_LONG);
        static final MethodHandle CLOSE = call("farlog_route_close", JAVA_LONG, JAVA_LONG);

        private Routes() {
        }
    }

    /** A stream's rings as they are now, and others in their places. */
    static final class Replacing {
        static final MethodHandle WRITER = call("farlog_writer_replace_member", JAVA_LONG, JAVA_INT, JAVA_LONG,
            JAVA_LONG);
        static final MethodHandle SHARED = call("farlog_shared_replace_member", JAVA_LONG, JAVA_INT, JAVA_LONG,
            JAVA_LONG);
        static final MethodHandle WRITER_MEMBERS = call("farlog_writer_members", JAVA_LONG, JAVA_LONG, JAVA_INT);
        static final MethodHandle SHARED_MEMBERS = call("farlog_shared_members", JAVA_LONG, JAVA_LONG, JAVA_INT);

        private Replacing() {
        }
    }

    /** Rings and regions that nobody has open. */
    static final class Rings {
        static final MethodHandle FORMAT = call("farlog_ring_format", JAVA_LONG, JAVA_LONG, JAVA_LONG);
        static final MethodHandle INSPECT = call("farlog_ring_inspect", JAVA_LONG, JAVA_LONG, JAVA_LONG);
        static final MethodHandle FENCE = call("farlog_ring_fence", JAVA_LONG, JAVA_INT, JAVA_LONG);
        static final MethodHandle PROBE = call("farlog_region_probe", JAVA_LONG, JAVA_LONG, JAVA_LONG);

        private Rings() {
        }
    }

    /** What writers have counted. */
    static final class Counts {
        static final MethodHandle READ = call("farlog_counters_read", JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
        static final MethodHandle READ_MEMBERS = call("farlog_member_counters_read", JAVA_LONG, JAVA_LONG, JAVA_LONG,
            JAVA_INT, JAVA_LONG, JAVA_LONG);
        static final MethodHandle QUANTILE = handle("farlog_histogram_quantile_ns",
            FunctionDescriptor.of(JAVA_LONG, JAVA_LONG, JAVA_DOUBLE));

        private Counts() {
        }
    }

    private Native() {
    }

    private static MethodHandle handle(final String name, final FunctionDescriptor descriptor) {
        final MemorySegment function = LIBRARY.find(name)
            .orElseThrow(() -> new UnsatisfiedLinkError(
                "farlog: the native library has no " + name + "; it is of another version"));
        return LINKER.downcallHandle(function, descriptor);
    }

    private static MethodHandle call(final String name, final MemoryLayout... arguments) {
        return handle(name, FunctionDescriptor.of(JAVA_INT, arguments));
    }

    private static MethodHandle nothing(final String name, final MemoryLayout... arguments) {
        return handle(name, FunctionDescriptor.ofVoid(arguments));
    }

    private static MethodHandle address(final String name) {
        return handle(name, FunctionDescriptor.of(JAVA_LONG, JAVA_LONG));
    }

    /** A view of C memory that lives as long as the handle it came from. */
    static MemorySegment view(final long address, final long len) {
        return MemorySegment.ofAddress(address).reinterpret(len);
    }

    /** As {@link #view(long, long)}, unusable when the arena is closed. */
    static MemorySegment view(final long address, final long len, final Arena arena) {
        return MemorySegment.ofAddress(address).reinterpret(len, arena, null);
    }

    /** What a method handle may throw although C throws nothing: an error of the JVM. */
    static RuntimeException unexpected(final Throwable thrown) {
        if (thrown instanceof Error error) {
            throw error;
        }
        return thrown instanceof RuntimeException runtime ? runtime : new IllegalStateException(thrown);
    }
}
