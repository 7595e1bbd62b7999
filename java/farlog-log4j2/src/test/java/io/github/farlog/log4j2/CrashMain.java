package io.github.farlog.log4j2;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.locks.LockSupport;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * An application that logs until it is killed. After each logging call has returned, the thread raises its count in a
 * mapped file, which survives the process. Without threads it logs one event and ends. Usage: CrashMain FILE THREADS
 * [PAUSE_NANOS [virtual]].
 */
final class CrashMain {
    /** Bytes from one thread's count to the next one's. */
    static final int STRIDE = 64;

    private CrashMain() {
    }

    public static void main(final String[] args) throws IOException {
        final int threadCount = Integer.parseInt(args[1]);
        if (threadCount == 0) {
            LogManager.getLogger("orders").info("started");
            return;
        }
        log(Path.of(args[0]), threadCount, args.length > 2 ? Long.parseLong(args[2]) : 0, args.length > 3);
    }

    /**
     * Starts the threads.
     *
     * @param pauseNanos of each thread after each event
     */
    static void log(final Path file, final int threadCount, final long pauseNanos, final boolean isVirtual)
        throws IOException {
        final Logger logger = LogManager.getLogger("orders");
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            final MemorySegment counts = channel.map(FileChannel.MapMode.READ_WRITE, 0, (long) threadCount * STRIDE,
                Arena.global());
            for (int t = 0; t < threadCount; t++) {
                final int thread = t;
                (isVirtual ? Thread.ofVirtual() : Thread.ofPlatform())
                    .start(() -> log(logger, counts, thread, pauseNanos));
            }
            if (isVirtual) {
                LockSupport.park(); // they keep no process alive
            }
        }
    }

    private static void log(final Logger logger, final MemorySegment counts, final int thread, final long pauseNanos) {
        final String padding = "x".repeat(thread * 37);
        for (long i = 0; true; i++) {
            logger.info("{} {} {}", thread, i, padding);
            ValueLayout.JAVA_LONG.varHandle().setVolatile(counts, (long) thread * STRIDE, i + 1);
            if (pauseNanos > 0) {
                LockSupport.parkNanos(pauseNanos);
            }
        }
    }
}
