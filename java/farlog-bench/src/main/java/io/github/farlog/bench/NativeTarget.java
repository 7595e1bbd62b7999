package io.github.farlog.bench;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.github.farlog.client.Ring;
import io.github.farlog.client.RingOptions;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Files;
import java.nio.file.Path;

/** The same appends by C, a block a call: see side.c. */
final class NativeTarget implements Target {
    /** Property that names the library that scripts/bench-java.sh compiles. */
    static final String PROPERTY = "farlog.bench.side";
    private static final int COUNT_MAX = Math.max(2000, Fork.PACED_RATE);
    private static final int DRAIN_EVERY = 48_000;

    private final String name;
    private final Path file;
    private final MethodHandle block;
    private final MethodHandle paced;
    private final MethodHandle drain;
    private final MethodHandle close;
    private final MemorySegment side;
    private final MemorySegment samplesNanos = Arena.global().allocate(JAVA_LONG, COUNT_MAX);
    private int sinceDrain;

    NativeTarget(final String name, final int len) throws Throwable {
        this.name = name;
        file = FarlogTarget.ringFile(name);
        Ring.format(FarlogTarget.uriOf(file),
            RingOptions.defaults().withSizeBytes(FarlogTarget.RING_BYTES).withForce(true));
        final SymbolLookup library = SymbolLookup.libraryLookup(Path.of(System.getProperty(PROPERTY)), Arena.global());
        block = handle(library, "bench_side_block", ADDRESS, ADDRESS, JAVA_INT);
        paced = handle(library, "bench_side_paced", ADDRESS, ADDRESS, JAVA_INT, JAVA_LONG);
        drain = handle(library, "bench_side_drain", ADDRESS);
        close = Linker.nativeLinker().downcallHandle(library.find("bench_side_close").orElseThrow(),
            FunctionDescriptor.ofVoid(ADDRESS));
        final MethodHandle open = Linker.nativeLinker()
            .downcallHandle(library.find("bench_side_open").orElseThrow(),
                FunctionDescriptor.of(ADDRESS, ADDRESS, JAVA_INT));
        side = (MemorySegment) open.invokeExact(Arena.global().allocateFrom(FarlogTarget.uriOf(file)), len);
        if (side.address() == 0) {
            throw new IllegalStateException(name + ": the ring was refused");
        }
    }

    private static MethodHandle handle(final SymbolLookup library, final String name, final MemoryLayout... arguments) {
        return Linker.nativeLinker().downcallHandle(library.find(name).orElseThrow(),
            FunctionDescriptor.of(JAVA_INT, arguments));
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public void append(final int i) {
        throw new UnsupportedOperationException("C appends whole blocks");
    }

    @Override
    public void block(final long[] samples, final int count) throws Exception {
        try {
            take((int) block.invokeExact(side, samplesNanos, count), samples, count);
        } catch (final Throwable thrown) {
            throw new IllegalStateException(name, thrown);
        }
    }

    @Override
    public void paced(final long[] samples, final int count, final long intervalNanos, final Garbage garbage)
        throws Exception {
        try {
            take((int) paced.invokeExact(side, samplesNanos, count, intervalNanos), samples, count);
        } catch (final Throwable thrown) {
            throw new IllegalStateException(name, thrown);
        }
    }

    private void take(final int result, final long[] samples, final int count) {
        if (result != 0) {
            throw new IllegalStateException("result " + result);
        }
        MemorySegment.copy(samplesNanos, JAVA_LONG, 0, samples, 0, count);
    }

    @Override
    public void rest(final int count) throws Exception {
        sinceDrain += count;
        if (sinceDrain < DRAIN_EVERY) {
            return;
        }
        sinceDrain = 0;
        try {
            take((int) drain.invokeExact(side), new long[0], 0);
        } catch (final Throwable thrown) {
            throw new IllegalStateException(name, thrown);
        }
    }

    @Override
    public void close() throws Exception {
        try {
            close.invokeExact(side);
        } catch (final Throwable thrown) {
            throw new IllegalStateException(name, thrown);
        }
        Files.deleteIfExists(file);
    }
}
