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
 * The functions of farlog.h. Addresses are longs: nothing is wrapped and nothing is checked for each call; whoever passes one holds on to
 * the memory until the call returns.
 *
 * <p>Two forms of the hot calls. A quick one skips the change of the thread's state: the JVM cannot stop such a thread at a safepoint
 * (a garbage collection would wait for it), so it is used only for what returns within microseconds. The other form may
 * wait.
 */
final class Native {
    private static final SymbolLookup LIBRARY = NativeLibrary.load();
    private static final Linker LINKER = Linker.nativeLinker();
    private static final Linker.Option[] MAY_WAIT = {};
    private static final Linker.Option[] QUICK = {Linker.Option.critical(false)};

    static final MethodHandle WRITER_OPEN = call("farlog_writer_open", MAY_WAIT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle WRITER_CLOSE = call("farlog_writer_close", MAY_WAIT, JAVA_LONG);
    static final MethodHandle WRITER_RECOVERY = address("farlog_writer_recovery");
    static final MethodHandle WRITER_CONTRACT = address("farlog_writer_contract");
    static final MethodHandle WRITER_CURSORS = nothing("farlog_writer_cursors", JAVA_LONG, JAVA_LONG);
    static final MethodHandle APPEND = call("farlog_append", MAY_WAIT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle TRY_APPEND = call("farlog_try_append", MAY_WAIT, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle TRY_APPEND_QUICK = call("farlog_try_append", QUICK, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle SUBMIT = call("farlog_submit", MAY_WAIT, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle SUBMIT_QUICK = call("farlog_submit", QUICK, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle POLL = call("farlog_poll", MAY_WAIT, JAVA_LONG, JAVA_LONG);
    static final MethodHandle WAIT = call("farlog_wait", MAY_WAIT, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle CLAIM =
        call("farlog_claim", QUICK, JAVA_LONG, JAVA_INT, JAVA_SHORT, JAVA_LONG, JAVA_SHORT, JAVA_LONG);
    static final MethodHandle COMMIT = call("farlog_commit", MAY_WAIT, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle COMMIT_QUICK = call("farlog_commit", QUICK, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle RESOLVE = call("farlog_resolve", MAY_WAIT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle HEARTBEAT = call("farlog_heartbeat", MAY_WAIT, JAVA_LONG, JAVA_LONG, JAVA_LONG);

    static final MethodHandle SHARED_OPEN = call("farlog_shared_open", MAY_WAIT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle SHARED_CLOSE = call("farlog_shared_close", MAY_WAIT, JAVA_LONG);
    static final MethodHandle SHARED_RECOVERY = address("farlog_shared_recovery");
    static final MethodHandle SHARED_CONTRACT = address("farlog_shared_contract");
    static final MethodHandle SHARED_CURSORS = nothing("farlog_shared_cursors", JAVA_LONG, JAVA_LONG);
    static final MethodHandle SHARED_APPEND = call("farlog_shared_append", MAY_WAIT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle SHARED_APPEND_QUICK = call("farlog_shared_append", QUICK, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle SHARED_RESOLVE = call("farlog_shared_resolve", MAY_WAIT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);

    static final MethodHandle READER_OPEN = call("farlog_reader_open", MAY_WAIT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle READER_CLOSE = nothing("farlog_reader_close", JAVA_LONG);
    static final MethodHandle READER_READ = call("farlog_reader_read", MAY_WAIT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle READER_RELEASE = call("farlog_reader_release", MAY_WAIT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT);
    static final MethodHandle READER_STATUS = call("farlog_reader_status", MAY_WAIT, JAVA_LONG, JAVA_LONG);

    static final MethodHandle RING_FORMAT = call("farlog_ring_format", MAY_WAIT, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle RING_INSPECT = call("farlog_ring_inspect", MAY_WAIT, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle RING_FENCE = call("farlog_ring_fence", MAY_WAIT, JAVA_LONG, JAVA_INT, JAVA_LONG);
    static final MethodHandle REGION_PROBE = call("farlog_region_probe", MAY_WAIT, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle COUNTERS_READ = call("farlog_counters_read", MAY_WAIT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    static final MethodHandle QUANTILE = handle("farlog_histogram_quantile_ns", FunctionDescriptor.of(JAVA_LONG, JAVA_LONG, JAVA_DOUBLE));

    private Native() {
    }

    private static MethodHandle handle(final String name, final FunctionDescriptor descriptor, final Linker.Option... options) {
        final MemorySegment function = LIBRARY.find(name)
            .orElseThrow(() -> new UnsatisfiedLinkError("farlog: the native library has no " + name + "; it is of another version"));
        return LINKER.downcallHandle(function, descriptor, options);
    }

    private static MethodHandle call(final String name, final Linker.Option[] options, final MemoryLayout... arguments) {
        return handle(name, FunctionDescriptor.of(JAVA_INT, arguments), options);
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
