package io.github.farlog.client;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemoryLayout.PathElement;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;

/**
 * The structures of farlog.h and of the headers on top of it, field by field in its order. Pointers are longs: the
 * memory behind them is kept alive by whoever wrote them there. A test compares every offset with what the C compiler
 * says.
 */
final class Structs {
    static final StructLayout ERROR = struct("farlog_error", i32("result"), i32("os_errno"), bytes("text", 504));
    static final StructLayout CONTRACT = struct("farlog_contract", i32("kind"), i32("flush_method"), i32("level"),
        i32("granularity"),
        i32("atomic_unit"), i32("is_read_back"), i64("size_bytes"), i64("deadline_default_ns"), bytes("kind_name", 16),
        bytes("flush_name", 16), bytes("probe", 160));
    static final StructLayout RING_CONFIG = struct("farlog_ring_config", i64("size_bytes"), i32("align"),
        i32("record_len_max"),
        i32("stream_id"), i32("is_forced"), i64("salt"), i64("stream_name"), i32("encryption"), i32("reserved"));
    static final StructLayout RING_STATUS = struct("farlog_ring_status", bytes("ring_uuid", 16), i64("salt"),
        i64("capacity_bytes"),
        i32("align"), i32("record_len_max"), i32("stream_id"), i32("writer_epoch"), i32("epoch_min"),
        i32("is_writer_held"),
        i32("is_drain_held"), i32("last_epoch"), i64("head_lsn"), i64("head_seq"), i64("credit_lsn"),
        i64("appended_lsn"),
        i64("durable_lsn"), i64("epoch_start_lsn"), i64("epoch_start_seq"), i64("epoch_opened_ns"), i64("created_ns"),
        i64("lag_bytes"), i64("lag_records"), i64("oldest_ts_ns"), i64("newest_ts_ns"), bytes("stream_name", 64),
        bytes("writer_id", 128), CONTRACT.withName("contract"), i32("encryption"), i32("reserved"));
    static final StructLayout WRITER_CONFIG = struct("farlog_writer_config", i32("level"), i32("policy"), i32("wait"),
        i32("epoch"),
        i64("deadline_ns"), i32("warn_percent"), i32("alarm_percent"), i64("writer_name"), i64("counters_dir"),
        i64("ring_uuid"),
        i64("grant_token"), i64("key_file"));
    static final StructLayout POSITION = struct("farlog_position", i64("lsn"), i64("seq"), i32("epoch"), i8("level"),
        i8("copies"),
        i16("reserved"), i64("end_lsn"));
    static final StructLayout ENTRY = struct("farlog_entry", i64("data"), i32("len"), i16("class_id"), i16("key_len"),
        i64("key"));
    static final StructLayout RECOVERY = struct("farlog_recovery", i32("epoch"), i32("prev_epoch"), i64("head_lsn"),
        i64("tail_lsn"),
        i64("next_seq"), i64("record_count"), i64("orphan_count"), i64("scanned_bytes"), i64("duration_ns"));
    static final StructLayout CURSORS = struct("farlog_cursors", i64("head_lsn"), i64("durable_lsn"),
        i64("appended_lsn"),
        i64("capacity_bytes"), i64("next_seq"), i32("epoch"), i32("pressure"));
    static final StructLayout READER_CONFIG = struct("farlog_reader_config", i32("start"), i32("is_drain"), i64("lsn"),
        i64("ring_uuid"), i64("grant_token"), i64("key_file"));
    static final StructLayout BATCH = struct("farlog_batch", i64("first_lsn"), i64("next_lsn"), i64("next_seq"),
        i64("record_count"),
        i32("last_epoch"), i32("is_rewound"), i64("len"), i64("last_ts_ns"));
    static final int HISTOGRAM_BUCKET_COUNT = 1408;
    static final StructLayout COUNTERS = counters();
    static final int MEMBER_COUNT_MAX = 9;
    static final StructLayout MEMBER_COUNTERS = struct("farlog_member_counters",
        Arrays.stream(MemberCounter.values()).map(counter -> i64(counter.metric())).toArray(MemoryLayout[]::new));

    static final StructLayout CLASS_RANGE = struct("farlog_class_range", i16("first"), i16("last"));
    static final StructLayout ROUTE_LEG = struct("farlog_route_leg", i64("name"), i64("uri"), i64("writer"),
        i64("classes"), i32("class_count"),
        i32("criticality_min"), i32("is_required"), i32("policy"), i64("spill_uri"), i32("spill_level"),
        i32("reserved"), i64("buffer_bytes"),
        WRITER_CONFIG.withName("config"));
    static final StructLayout ROUTE_CONFIG = struct("farlog_route_config", i64("name"), i64("legs"), i32("leg_count"),
        i32("reserved"));
    static final StructLayout ROUTE_OPTIONS = struct("farlog_route_options", i64("spill_dir"), i64("writer_name"),
        i64("counters_dir"), i32("wait"), i32("reserved"));
    static final int ROUTE_LEG_COUNT_MAX = 16;
    static final StructLayout ROUTE_RESULT = struct("farlog_route_result", POSITION.withName("position"), i32("result"),
        i32("is_buffered"));
    static final StructLayout ROUTE_POSITION = struct("farlog_route_position", i32("level"), i32("required"),
        i32("optional"), i32("dropped"),
        MemoryLayout.sequenceLayout(ROUTE_LEG_COUNT_MAX, ROUTE_RESULT).withName("legs"));
    static final StructLayout LEG_STATS = struct("farlog_leg_stats", i32("state"), i32("is_required"),
        i64("offered_count"), i64("acked_count"),
        i64("unknown_count"), i64("spilled_count"), i64("carried_count"), i64("dropped_count"), i64("gap_count"),
        i64("doubt_count"),
        i64("reopen_count"), i64("behind_bytes"), bytes("name", 64), bytes("text", 200));
    static final StructLayout MEMBER_RING = struct("farlog_member_ring", i64("uri"), i64("ring_uuid"),
        i64("grant_token"));
    static final StructLayout WRITER_MEMBER = struct("farlog_writer_member", bytes("ring_uuid", 16), i32("state"),
        i32("reserved"));

    /** All of them, for the test. */
    static final List<StructLayout> ALL = List.of(ERROR, CONTRACT, RING_CONFIG, RING_STATUS, WRITER_CONFIG, POSITION,
        ENTRY, RECOVERY, CURSORS,
        READER_CONFIG, BATCH, COUNTERS, MEMBER_COUNTERS, CLASS_RANGE, ROUTE_LEG, ROUTE_CONFIG, ROUTE_OPTIONS,
        ROUTE_RESULT, ROUTE_POSITION, LEG_STATS,
        MEMBER_RING, WRITER_MEMBER);

    private Structs() {
    }

    private static StructLayout struct(final String name, final MemoryLayout... members) {
        return MemoryLayout.structLayout(members).withName(name);
    }

    private static StructLayout counters() {
        final List<MemoryLayout> members = new ArrayList<>();
        for (final Counter counter : Counter.values()) {
            members.add(i64(counter.metric()));
        }
        members.addAll(List.of(i64("latency_count"), i64("latency_sum_ns"), i64("latency_max_ns"),
            MemoryLayout.sequenceLayout(HISTOGRAM_BUCKET_COUNT, JAVA_LONG).withName("latency_bucket")));
        return struct("farlog_counters", members.toArray(new MemoryLayout[0]));
    }

    private static ValueLayout i8(final String name) {
        return JAVA_BYTE.withName(name);
    }

    private static ValueLayout i16(final String name) {
        return JAVA_SHORT.withName(name);
    }

    private static ValueLayout i32(final String name) {
        return JAVA_INT.withName(name);
    }

    private static ValueLayout i64(final String name) {
        return JAVA_LONG.withName(name);
    }

    private static MemoryLayout bytes(final String name, final long len) {
        return MemoryLayout.sequenceLayout(len, JAVA_BYTE).withName(name);
    }

    /** Where a field is. */
    static long off(final StructLayout struct, final String field) {
        return struct.byteOffset(PathElement.groupElement(field));
    }

    static int getInt(final MemorySegment segment, final StructLayout struct, final String field) {
        return segment.get(JAVA_INT, off(struct, field));
    }

    static long getLong(final MemorySegment segment, final StructLayout struct, final String field) {
        return segment.get(JAVA_LONG, off(struct, field));
    }

    /** A text that ends with a zero byte or fills its field. */
    static String getText(final MemorySegment segment, final StructLayout struct, final String field) {
        final MemorySegment text = segment.asSlice(off(struct, field),
            struct.select(PathElement.groupElement(field)).byteSize());
        final byte[] raw = text.toArray(JAVA_BYTE);
        int len = 0;
        while (len < raw.length && raw[len] != 0) {
            len++;
        }
        return new String(raw, 0, len, StandardCharsets.UTF_8);
    }

    static void setInt(final MemorySegment segment, final StructLayout struct, final String field, final int value) {
        segment.set(JAVA_INT, off(struct, field), value);
    }

    static void setLong(final MemorySegment segment, final StructLayout struct, final String field, final long value) {
        segment.set(JAVA_LONG, off(struct, field), value);
    }

    /** 16 bytes as they are in C: the most significant first. */
    static UUID getUuid(final MemorySegment segment, final long off) {
        final long high = Long.reverseBytes(segment.get(ValueLayout.JAVA_LONG_UNALIGNED, off));
        final long low = Long.reverseBytes(segment.get(ValueLayout.JAVA_LONG_UNALIGNED, off + Long.BYTES));
        return new UUID(high, low);
    }

    static void setUuid(final MemorySegment segment, final UUID uuid) {
        segment.set(JAVA_LONG, 0, Long.reverseBytes(uuid.getMostSignificantBits()));
        segment.set(JAVA_LONG, Long.BYTES, Long.reverseBytes(uuid.getLeastSignificantBits()));
    }
}
