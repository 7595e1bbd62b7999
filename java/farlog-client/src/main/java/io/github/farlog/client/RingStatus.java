package io.github.farlog.client;

import static io.github.farlog.client.Structs.RING_STATUS;

import java.lang.foreign.MemoryLayout.PathElement;
import java.lang.foreign.MemorySegment;
import java.util.UUID;

/**
 * Identity, cursors and lag of a ring. Times are UTC nanoseconds since 1970, 0 = none.
 *
 * @param ringUuid identity
 * @param salt of the checksums
 * @param capacityBytes size of the ring's data
 * @param align of records, bytes
 * @param recordLenMax bytes that one record may take
 * @param streamId number of the stream
 * @param streamName its name
 * @param writerEpoch of the present or last writer
 * @param epochMin writers below it must stop
 * @param writerHeld whether a living process holds the writer's lock
 * @param drainHeld whether a living process holds the drain's lock
 * @param writerId who opened the epoch
 * @param headLsn first position that is not yet in the store
 * @param headSeq number of the record there
 * @param appendedLsn first position that is not yet written
 * @param durableLsn first position that is not yet durable
 * @param lagBytes appended, not drained
 * @param lagRecords the same in records
 * @param oldestTimestampNanos of the oldest record that is not drained
 * @param contract of the region
 */
public record RingStatus(UUID ringUuid, long salt, long capacityBytes, int align, int recordLenMax, int streamId,
    String streamName,
    int writerEpoch, int epochMin, boolean writerHeld, boolean drainHeld, String writerId, long headLsn, long headSeq,
    long appendedLsn,
    long durableLsn, long lagBytes, long lagRecords, long oldestTimestampNanos, Contract contract) {
    static RingStatus of(final MemorySegment s) {
        return new RingStatus(Structs.getUuid(s, Structs.off(RING_STATUS, "ring_uuid")),
            Structs.getLong(s, RING_STATUS, "salt"),
            Structs.getLong(s, RING_STATUS, "capacity_bytes"), Structs.getInt(s, RING_STATUS, "align"),
            Structs.getInt(s, RING_STATUS, "record_len_max"), Structs.getInt(s, RING_STATUS, "stream_id"),
            Structs.getText(s, RING_STATUS, "stream_name"), Structs.getInt(s, RING_STATUS, "writer_epoch"),
            Structs.getInt(s, RING_STATUS, "epoch_min"), Structs.getInt(s, RING_STATUS, "is_writer_held") != 0,
            Structs.getInt(s, RING_STATUS, "is_drain_held") != 0, Structs.getText(s, RING_STATUS, "writer_id"),
            Structs.getLong(s, RING_STATUS, "head_lsn"), Structs.getLong(s, RING_STATUS, "head_seq"),
            Structs.getLong(s, RING_STATUS, "appended_lsn"), Structs.getLong(s, RING_STATUS, "durable_lsn"),
            Structs.getLong(s, RING_STATUS, "lag_bytes"), Structs.getLong(s, RING_STATUS, "lag_records"),
            Structs.getLong(s, RING_STATUS, "oldest_ts_ns"),
            Contract.of(s.asSlice(Structs.off(RING_STATUS, "contract"),
                RING_STATUS.select(PathElement.groupElement("contract")))));
    }
}
