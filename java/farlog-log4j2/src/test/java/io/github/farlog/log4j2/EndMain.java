package io.github.farlog.log4j2;

import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * An application that ends in order and in no haste: a hook of its own takes half a second, and its threads log on all
 * the while. Usage: EndMain FILE THREADS signal|exit, counting as {@link CrashMain} does; EndMain drop: drops events
 * until there is a gap to tell, says so, and waits for a signal.
 */
final class EndMain {
    private static final int HOOK_MILLIS = 500;

    private EndMain() {
    }

    public static void main(final String[] args) throws Exception {
        if (args[0].equals("drop")) {
            drop();
        } else {
            Runtime.getRuntime().addShutdownHook(new Thread(EndMain::sleep));
            CrashMain.log(Path.of(args[0]), Integer.parseInt(args[1]), TimeUnit.MILLISECONDS.toNanos(1), false);
            if (Arrays.asList(args).contains("exit")) {
                sleep();
                System.exit(0);
            }
        }
    }

    private static void drop() throws InterruptedException {
        final Logger logger = LogManager.getLogger("orders");
        final RingStats stats = RingStats.of(System.getProperty("farlog.test.uri"));
        while (stats.getDropped() == 0) {
            logger.info("x".repeat(1000));
        }
        System.out.println("dropped");
        Thread.sleep(Long.MAX_VALUE);
    }

    private static void sleep() {
        try {
            Thread.sleep(HOOK_MILLIS);
        } catch (final InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
