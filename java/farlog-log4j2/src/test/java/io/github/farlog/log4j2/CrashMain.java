package io.github.farlog.log4j2;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * An application that logs until it is killed. After each logging call has returned, the thread raises its count in a mapped file, which
 * survives the process. Without threads it logs one event and ends. Usage: CrashMain FILE THREADS.
 */
final class CrashMain {
    /** Bytes from one thread's count to the next one's. */
    static final int STRIDE = 64;

    private CrashMain() {
    }

    public static void main(final String[] args) throws IOException {
        final Logger logger = LogManager.getLogger("orders");
        final int threadCount = Integer.parseInt(args[1]);
        if (threadCount == 0) {
            logger.info("started");
            return;
        }
        try (FileChannel channel = FileChannel.open(Path.of(args[0]), StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            final MemorySegment counts = channel.map(FileChannel.MapMode.READ_WRITE, 0, (long) threadCount * STRIDE, Arena.global());
            for (int t = 0; t < threadCount; t++) {
                final int thread = t;
                Thread.ofPlatform().start(() -> log(logger, counts, thread));
            }
        }
    }

    private static void log(final Logger logger, final MemorySegment counts, final int thread) {
        final String padding = "x".repeat(thread * 37);
        for (long i = 0; true; i++) {
            logger.info("{} {} {}", thread, i, padding);
            ValueLayout.JAVA_LONG.varHandle().setVolatile(counts, (long) thread * STRIDE, i + 1);
        }
    }
}
