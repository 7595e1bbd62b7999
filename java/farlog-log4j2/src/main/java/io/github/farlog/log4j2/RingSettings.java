package io.github.farlog.log4j2;

import io.github.farlog.client.Level;
import java.time.Duration;
import java.util.Locale;

/**
 * What an appender asks of its ring.
 *
 * @param uri such as {@code mem:/dev/shm/orders}, or of a route
 * @param level that a record must reach before the logging call returns; null = as the route's legs are declared
 * @param deadline of one acknowledgement; zero = the region's
 * @param epoch from a grant; 0 = one more than the ring's last
 * @param createBytes size of the ring to make when there is none; 0 = refuse
 * @param writerName goes into the writer's identity; null = the program's name
 * @param gapClass class of gap records
 * @param spillDir of a route's legs that spill; null = the environment's FARLOG_SPILL_DIR
 */
record RingSettings(String uri, Level level, Duration deadline, int epoch, long createBytes, String writerName,
    int gapClass,
    String spillDir) {
    /**
     * Reads a durability level.
     *
     * @param text in any case
     * @return the level
     */
    static Level parseLevel(final String text) {
        try {
            return Level.valueOf(text.strip().toUpperCase(Locale.ROOT));
        } catch (final IllegalArgumentException e) {
            throw new IllegalArgumentException("level=\"" + text + "\": expected posted, visible or persistent", e);
        }
    }

    /**
     * Reads an epoch.
     *
     * @param text a number
     * @return 0 or more
     */
    static int parseEpoch(final String text) {
        try {
            return Integer.parseUnsignedInt(text.strip());
        } catch (final NumberFormatException e) {
            throw new IllegalArgumentException("epoch=\"" + text + "\": expected a number from a grant, or 0", e);
        }
    }
}
