package io.github.farlog.client;

import java.lang.foreign.MemorySegment;

/**
 * What a region's owner attests: the highest level that its flush gives, and how that was found out.
 *
 * @param kind of the region, such as "file" or "tmpfs"
 * @param flushMethod such as "clwb" or "msync"
 * @param level the highest that the region can give
 * @param granularity bytes that one flush covers
 * @param atomicUnit bytes that a power cut never tears
 * @param readBack whether a read from the region completes the flush
 * @param sizeBytes of the whole region; 0 = does not exist yet
 * @param deadlineDefaultNanos of an append that names none
 * @param probe what was looked at to know this
 */
public record Contract(String kind, String flushMethod, Level level, int granularity, int atomicUnit, boolean readBack,
    long sizeBytes,
    long deadlineDefaultNanos, String probe) {
    static Contract of(final MemorySegment c) {
        return new Contract(Structs.getText(c, Structs.CONTRACT, "kind_name"),
            Structs.getText(c, Structs.CONTRACT, "flush_name"),
            Level.of(Structs.getInt(c, Structs.CONTRACT, "level")), Structs.getInt(c, Structs.CONTRACT, "granularity"),
            Structs.getInt(c, Structs.CONTRACT, "atomic_unit"),
            Structs.getInt(c, Structs.CONTRACT, "is_read_back") != 0,
            Structs.getLong(c, Structs.CONTRACT, "size_bytes"),
            Structs.getLong(c, Structs.CONTRACT, "deadline_default_ns"),
            Structs.getText(c, Structs.CONTRACT, "probe"));
    }
}
