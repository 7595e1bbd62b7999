package io.github.farlog.client;

import java.lang.foreign.MemorySegment;

/**
 * A writer's positions: head &le; appended, durable &le; appended, appended &minus; head &le; capacity.
 *
 * @param headLsn first position that is not yet in the store, as the writer knows it
 * @param durableLsn first position that is not yet durable
 * @param appendedLsn first position that is not yet written
 * @param capacityBytes size of the ring's data
 * @param nextSeq number of the next record
 * @param epoch of the writer
 * @param pressure 0 below the warning mark, 1 at or above it, 2 at or above the alarm mark
 */
public record Cursors(long headLsn, long durableLsn, long appendedLsn, long capacityBytes, long nextSeq, int epoch,
    int pressure) {
    static Cursors of(final MemorySegment c) {
        return new Cursors(Structs.getLong(c, Structs.CURSORS, "head_lsn"),
            Structs.getLong(c, Structs.CURSORS, "durable_lsn"),
            Structs.getLong(c, Structs.CURSORS, "appended_lsn"), Structs.getLong(c, Structs.CURSORS, "capacity_bytes"),
            Structs.getLong(c, Structs.CURSORS, "next_seq"), Structs.getInt(c, Structs.CURSORS, "epoch"),
            Structs.getInt(c, Structs.CURSORS, "pressure"));
    }
}
