package io.github.farlog.client;

import static io.github.farlog.client.Structs.RING_CONFIG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/** Making and looking at rings. All calls are cold: they block for the file system and the media, from any thread. */
public final class Ring {
    private Ring() {
    }

    /**
     * Makes a new, empty ring and persists it; creates the file where the path names none.
     *
     * @param uri such as {@code mem:/dev/shm/orders.ring}
     * @param options at least a size, when the file is new
     * @throws FarlogException EXISTS (not forced), HELD, INVALID, IO, UNSUPPORTED
     */
    public static void format(final String uri, final RingOptions options) throws FarlogException {
        try (Arena arena = Arena.ofConfined()) {
            final MemorySegment config = arena.allocate(RING_CONFIG);
            Structs.setLong(config, RING_CONFIG, "size_bytes", options.sizeBytes());
            Structs.setInt(config, RING_CONFIG, "align", options.align());
            Structs.setInt(config, RING_CONFIG, "record_len_max", options.recordLenMax());
            Structs.setInt(config, RING_CONFIG, "stream_id", options.streamId());
            Structs.setInt(config, RING_CONFIG, "is_forced", options.forced() ? 1 : 0);
            Structs.setLong(config, RING_CONFIG, "salt", options.salt());
            Structs.setLong(config, RING_CONFIG, "stream_name",
                NativeCalls.text(arena, "stream name", options.streamName()));
            NativeCalls.runOrThrow(arena, uri,
                (text, error) -> (int) Native.Rings.FORMAT.invokeExact(text, config.address(), error));
        }
    }

    /**
     * Identity, cursors and lag, read only, beside any writer and drain. Scans the undrained part when no writer lives.
     *
     * @param uri of the ring
     * @return as it is now
     * @throws FarlogException NOT_FOUND, NOT_A_RING, CORRUPT, IO
     */
    public static RingStatus inspect(final String uri) throws FarlogException {
        try (Arena arena = Arena.ofConfined()) {
            final MemorySegment status = arena.allocate(Structs.RING_STATUS);
            NativeCalls.runOrThrow(arena, uri,
                (text, error) -> (int) Native.Rings.INSPECT.invokeExact(text, status.address(), error));
            return RingStatus.of(status);
        }
    }

    /**
     * Orders that writers below an epoch stop, and persists the order. A living writer gets {@link Result#FENCED} from
     * its next call; that it is gone is confirmed only when the next one opens.
     *
     * @param uri of the ring
     * @param epochMin lowest epoch that may write
     * @throws FarlogException INVALID, HELD (another fence is under way), NOT_FOUND, NOT_A_RING, IO
     */
    public static void fence(final String uri, final int epochMin) throws FarlogException {
        try (Arena arena = Arena.ofConfined()) {
            NativeCalls.runOrThrow(arena, uri,
                (text, error) -> (int) Native.Rings.FENCE.invokeExact(text, epochMin, error));
        }
    }

    /**
     * Reads a region's contract without touching its bytes.
     *
     * @param uri of the region
     * @return what it can give
     * @throws FarlogException INVALID, NOT_FOUND, IO, UNSUPPORTED
     */
    public static Contract probe(final String uri) throws FarlogException {
        try (Arena arena = Arena.ofConfined()) {
            final MemorySegment contract = arena.allocate(Structs.CONTRACT);
            NativeCalls.runOrThrow(arena, uri,
                (text, error) -> (int) Native.Rings.PROBE.invokeExact(text, contract.address(), error));
            return Contract.of(contract);
        }
    }
}
