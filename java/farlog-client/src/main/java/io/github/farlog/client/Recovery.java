package io.github.farlog.client;

import java.lang.foreign.MemorySegment;

/**
 * What opening a writer found in the ring.
 *
 * @param epoch that was opened
 * @param prevEpoch the one before
 * @param headLsn where the undrained part begins
 * @param tailLsn where the new epoch starts
 * @param nextSeq number of the next record then
 * @param recordCount undrained records found
 * @param orphanCount records behind an unreadable one, dropped: whether they were acknowledged is not known
 * @param scannedBytes looked at
 * @param durationNanos of the recovery
 */
public record Recovery(int epoch, int prevEpoch, long headLsn, long tailLsn, long nextSeq, long recordCount,
    long orphanCount,
    long scannedBytes, long durationNanos) {
    static Recovery of(final MemorySegment r) {
        return new Recovery(Structs.getInt(r, Structs.RECOVERY, "epoch"),
            Structs.getInt(r, Structs.RECOVERY, "prev_epoch"),
            Structs.getLong(r, Structs.RECOVERY, "head_lsn"), Structs.getLong(r, Structs.RECOVERY, "tail_lsn"),
            Structs.getLong(r, Structs.RECOVERY, "next_seq"), Structs.getLong(r, Structs.RECOVERY, "record_count"),
            Structs.getLong(r, Structs.RECOVERY, "orphan_count"), Structs.getLong(r, Structs.RECOVERY, "scanned_bytes"),
            Structs.getLong(r, Structs.RECOVERY, "duration_ns"));
    }
}
