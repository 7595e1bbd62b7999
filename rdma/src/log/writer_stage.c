/* log/writer_stage.c -- a record's way into the ring, before any flush: may it be taken, where does it go, what is it,
 * and its bytes.
 *
 * Nothing here waits and nothing is durable when it returns. */
#include "base/err.h"
#include "log/writer.h"

#include <string.h>

#include "ring/stream.h"

bool writer_is_fenced(struct farlog_writer *writer)
{
	uint64_t epoch_min = region_load_fence(writer->region);

	if (__builtin_expect(epoch_min <= writer->epoch, 1))
		return false;
	atomic_store_relaxed(&writer->fenced_epoch, epoch_min);
	return true;
}

int writer_check_entry(
	const struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t flags, uint64_t *extent)
{
	uint32_t envelope_len = flags == 0 ? writer->envelope_len : 0;

	*extent = record_extent(writer->identity.align, entry->key_len + envelope_len, entry->len);
	if (*extent > writer->identity.record_len_max)
		return FARLOG_TOO_LARGE;
	if ((entry->len > 0 && entry->data == NULL) || (entry->key_len > 0 && entry->key == NULL))
		return FARLOG_INVALID;
	return FARLOG_OK;
}

int writer_find_place(struct farlog_writer *writer, uint64_t extent, struct ring_place *place)
{
	ring_place(&writer->ring, extent, place);
	if (__builtin_expect(ring_has_room(&writer->ring, place), 1))
		return FARLOG_OK;
	writer_read_credit(writer, true);
	return ring_has_room(&writer->ring, place) ? FARLOG_OK : FARLOG_FULL;
}

int writer_reject_append(struct farlog_writer *writer, int result, struct farlog_position *position)
{
	struct farlog_counters *counters = writer->counters;

	memset(position, 0, sizeof(*position));
	position->epoch = result == FARLOG_FENCED ? (uint32_t)writer->fenced_epoch : writer->epoch;
	switch (result) {
	case FARLOG_FULL:
		atomic_bump(&counters->full_count, 1);
		break;
	case FARLOG_FENCED:
		atomic_bump(&counters->fenced_count, 1);
		break;
	case FARLOG_TOO_LARGE:
		atomic_bump(&counters->too_large_count, 1);
		break;
	default:
		break;
	}
	return result;
}

/* gather_entry -- the record of `entry` for `place`. */
static inline __attribute__((always_inline)) void gather_entry(const struct farlog_writer *writer,
	const struct ring_place *place, const struct farlog_entry *entry, uint64_t flags, const struct clock_reading *now,
	struct gather *gather)
{
	struct record_header header = {
		.flags = (uint16_t)flags,
		.lsn = place->record_lsn,
		.epoch = writer->epoch,
		.payload_len = entry->len,
		.seq = writer->ring.next_seq,
		.ts_ns = now->utc_ns,
		.clock_err_ns = now->error_ns,
		.class_id = entry->class_id,
		.key_len = entry->key_len,
		.stream_id = writer->identity.stream_id,
	};

	record_gather(&writer->identity, &header, entry->key, entry->data, place->end_lsn - place->record_lsn, gather);
}

void writer_gather(const struct farlog_writer *writer, const struct ring_place *place, const struct farlog_entry *entry,
	uint64_t flags, uint64_t ticks, struct gather *gather)
{
	struct clock_reading now;

	clock_read(ticks, &now);
	gather_entry(writer, place, entry, flags, &now, gather);
	if (flags == 0 && writer->encrypter != NULL)
		encrypt_head(gather);
}

void writer_write_pad(const struct farlog_writer *writer, const struct writer_pad *pad)
{
	uint8_t bytes[RECORD_PAD_STORED_LEN] __attribute__((aligned(LAYOUT_LINE_LEN)));

	record_build_pad(&writer->identity, &pad->header, pad->len, bytes);
	writer->region->ops->data.write(writer->region, LAYOUT_DATA_OFF + pad->off, bytes, sizeof(bytes));
}

/* write_pad -- out of line: it happens once a lap. */
__attribute__((noinline, cold)) static void write_pad(
	const struct farlog_writer *writer, uint64_t pad_len, const struct gather *next)
{
	struct writer_pad pad = {.off = writer->identity.capacity - pad_len, .len = pad_len};

	memcpy(&pad.header, next->head, sizeof(pad.header));
	pad.header.lsn -= pad_len;
	writer_write_pad(writer, &pad);
}

bool writer_reserve_pad(struct farlog_writer *writer, uint64_t ticks, struct writer_pad *pad)
{
	struct clock_reading now;

	pad->len = record_pad_len(&writer->identity, writer->ring.appended_lsn);
	if (pad->len == 0)
		return false;
	clock_read(ticks, &now);
	pad->off = writer->ring.appended_off;
	pad->header = (struct record_header){.lsn = writer->ring.appended_lsn,
		.epoch = writer->epoch,
		.seq = writer->ring.next_seq,
		.ts_ns = now.utc_ns,
		.clock_err_ns = now.error_ns,
		.stream_id = writer->identity.stream_id};
	/* there is space: the credit is where an LBA begins, and so the free space ends with an LBA */
	ring_skip(&writer->ring, pad->len);
	writer_update_counters(writer, 0, 0);
	return true;
}

void writer_end_commit(struct farlog_writer *writer)
{
	struct writer_pad pad;

	if (writer_reserve_pad(writer, clock_ticks(), &pad))
		writer_write_pad(writer, &pad);
}

__attribute__((noinline)) bool writer_write(
	const struct farlog_writer *writer, const struct ring_place *place, struct gather *gather)
{
	struct region *region = writer->region;
	uint8_t small[WRITER_SMALL_LEN] __attribute__((aligned(LAYOUT_LINE_LEN)));

	gather->scratch = gather->len <= sizeof(small) ? small : writer->staging;
	if (gather_is_encrypted(gather) &&
		!encrypter_gather(writer->encrypter, gather, gather->scratch + RECORD_HEADER_LEN))
		return false;
	if (__builtin_expect(place->pad_len > 0, 0))
		write_pad(writer, place->pad_len, gather);
	region->ops->data.gather(region, LAYOUT_DATA_OFF + place->record_off, gather);
	return true;
}

/* update_pressure -- the ring is or was filled to where somebody should know. */
__attribute__((noinline, cold)) static void update_pressure(struct farlog_writer *writer)
{
	unsigned pressure;

	writer_read_credit(writer, false);
	pressure = ring_pressure(&writer->ring);
	if (pressure == writer->pressure)
		return;
	if (pressure >= 1 && writer->pressure < 1)
		atomic_bump(&writer->counters->warn_count, 1);
	if (pressure == 2)
		atomic_bump(&writer->counters->alarm_count, 1);
	writer->pressure = pressure;
	atomic_store_relaxed(&writer->counters->pressure, pressure);
}

static inline __attribute__((always_inline)) void update_counters(
	struct farlog_writer *writer, uint64_t record_count, uint64_t payload_bytes)
{
	struct farlog_counters *counters = writer->counters;

	atomic_bump(&counters->record_count, record_count);
	atomic_bump(&counters->payload_bytes, payload_bytes);
	atomic_store_relaxed(&counters->appended_lsn, writer->ring.appended_lsn);
}

void writer_update_counters(struct farlog_writer *writer, uint64_t record_count, uint64_t payload_bytes)
{
	update_counters(writer, record_count, payload_bytes);
	if (__builtin_expect(ring_used(&writer->ring) >= writer->ring.warn_bytes || writer->pressure != 0, 0))
		update_pressure(writer);
}

void writer_fill_position(
	const struct farlog_writer *writer, const struct ring_place *place, uint64_t seq, struct farlog_position *position)
{
	position->lsn = place->record_lsn;
	position->seq = seq;
	position->epoch = writer->epoch;
	position->level = FARLOG_LEVEL_POSTED;
	position->copies = 1;
	position->reserved = 0;
	position->end_lsn = place->end_lsn;
}

/* update_plain_limit -- how far records may be staged plainly from here. It may lag behind the credit; it never passes
 * what space and pressure allow. */
static void update_plain_limit(struct farlog_writer *writer)
{
	const struct ring *ring = &writer->ring;
	uint64_t lap_end_lsn = ring->appended_lsn + (ring->capacity - ring->appended_off);
	uint64_t free_bytes = ring->capacity - ring->kept_bytes;
	uint64_t limit_lsn = ring->credit_lsn + (ring->warn_bytes < free_bytes ? ring->warn_bytes : free_bytes);

	writer->plain_limit_lsn = limit_lsn < lap_end_lsn ? limit_lsn : lap_end_lsn;
}

int writer_stage_generally(struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t flags,
	uint64_t ticks, struct farlog_position *position)
{
	struct ring_place place;
	struct gather gather;
	uint64_t extent;
	int result;

	if (writer->is_failed)
		return FARLOG_CLOSED;
	if (writer_is_fenced(writer))
		return FARLOG_FENCED;
	result = writer_check_entry(writer, entry, flags, &extent);
	if (result == FARLOG_OK)
		result = writer_find_place(writer, extent, &place);
	if (result != FARLOG_OK)
		return result;
	writer_gather(writer, &place, entry, flags, ticks, &gather);
	if (!writer_write(writer, &place, &gather))
		return writer_end_encryption(writer);
	writer_fill_position(writer, &place, writer->ring.next_seq, position);
	ring_advance(&writer->ring, &place);
	writer_update_counters(writer, !(flags & RECORD_FLAG_EPOCH), (uint64_t)entry->len + entry->key_len);
	update_plain_limit(writer);
	return FARLOG_OK;
}

#define IN_LINE static inline __attribute__((always_inline))

/* find_plain_place -- of a record that is staged plainly: without wrap or PAD, with free space, and no result but OK;
 * all of it lives in registers. False: it must go by writer_stage_generally, which finds the reason. */
IN_LINE bool find_plain_place(
	const struct farlog_writer *writer, const struct farlog_entry *entry, struct ring_place *place)
{
	uint64_t extent = record_extent(writer->identity.align, entry->key_len, entry->len);

	*place = (struct ring_place){.record_lsn = writer->ring.appended_lsn, .record_off = writer->ring.appended_off};
	place->end_lsn = place->record_lsn + extent;
	return __builtin_expect(extent <= writer->plain_len_max && place->end_lsn < writer->plain_limit_lsn &&
			entry->data != NULL && (entry->key_len == 0 || entry->key != NULL) &&
			atomic_load_acquire(writer->plain_fence) <= writer->epoch,
		1);
}

/* fill_plain_record -- all but the record's bytes, which are the caller's next step. */
IN_LINE void fill_plain_record(struct farlog_writer *writer, const struct farlog_entry *entry,
	const struct ring_place *place, const struct clock_reading *now, struct gather *gather,
	struct farlog_position *position)
{
	gather_entry(writer, place, entry, 0, now, gather);
	writer_fill_position(writer, place, writer->ring.next_seq, position);
	writer->ring.appended_lsn = place->end_lsn;
	writer->ring.appended_off = place->record_off + gather->len; /* below the limit no record ends with the lap */
	writer->ring.next_seq++;
}

/* The ways to stage a record, and what each saves. Instructions of a call with 256 bytes, counted by stepping through
 * it, on x86-64, gcc 12 -O2, tmpfs (2026-11-28):
 *   writer_stage_generally  any record: 800 an append
 *   stage_general           plainly, by the region's own gather
 *   stage_built             plainly, into mapped memory: 620 an append. One function with stage_general: 629
 *   stage_direct            plainly, past the cache (flush=nt): 485 an append; by stage_built 546
 *   stage_copied            as stage_direct, into a copy that a card reads: with ordinary stores
 *   submit_direct, _copied  stage and submit in one: 338 a submit; by submit_general 354
 *   stage_many_direct, ...  32 records under one reading of the clock: 235 a record; one by one 329 */

/* stage_general -- plainly, by the region's own gather. */
NO_STACK_PROTECTOR static int stage_general(
	struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t ticks, struct farlog_position *position)
{
	uint8_t scratch[WRITER_SMALL_LEN] __attribute__((aligned(LAYOUT_LINE_LEN)));
	struct ring_place place;
	struct clock_reading now;
	struct gather gather;

	if (!find_plain_place(writer, entry, &place))
		return writer_stage_generally(writer, entry, 0, ticks, position);
	clock_read(ticks, &now);
	fill_plain_record(writer, entry, &place, &now, &gather, position);
	gather.scratch = scratch;
	writer->region->ops->data.gather(writer->region, LAYOUT_DATA_OFF + place.record_off, &gather);
	update_counters(writer, 1, (uint64_t)entry->len + entry->key_len);
	return FARLOG_OK;
}

/* stage_built -- plainly, into memory where a record may be built in place, where ring/stream.h does not apply. */
static int stage_built(
	struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t ticks, struct farlog_position *position)
{
	struct ring_place place;
	struct clock_reading now;
	struct gather gather;

	if (!find_plain_place(writer, entry, &place))
		return writer_stage_generally(writer, entry, 0, ticks, position);
	clock_read(ticks, &now);
	fill_plain_record(writer, entry, &place, &now, &gather, position);
	update_counters(writer, 1, (uint64_t)entry->len + entry->key_len);
	gather_build(writer->region->built + LAYOUT_DATA_OFF + place.record_off, &gather);
	return FARLOG_OK;
}

static int submit_general(
	struct farlog_writer *writer, const struct farlog_entry *entry, struct farlog_position *position)
{
	int result;

	writer->has_claim = false;
	result = writer_stage(writer, entry, 0, clock_ticks(), position);
	return result == FARLOG_OK ? result : writer_reject_append(writer, result, position);
}

int farlog_submit(farlog_writer *writer, const struct farlog_entry *entry, struct farlog_position *position)
{
	return __atomic_load_n(&writer->submit, __ATOMIC_RELAXED)(writer, entry, position); /* as writer_stage */
}

static void choose_general_stage(struct farlog_writer *writer)
{
	const struct region *region = writer->region;

	writer->stage = region->built != NULL ? stage_built : stage_general;
	writer->submit = submit_general;
	writer->plain_len_max =
		writer->identity.record_len_max < WRITER_SMALL_LEN ? writer->identity.record_len_max : WRITER_SMALL_LEN;
	if (writer->encrypter != NULL)
		writer->plain_len_max = 0; /* each goes the general way */
	writer->plain_limit_lsn = 0;   /* the epoch's record, which goes the long way, moves it */
	writer->plain_fence = region_fence_word(region);
}

#if defined(__x86_64__)
__attribute__((noinline)) static int submit_fallback(
	struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t ticks, struct farlog_position *position)
{
	int result = writer_stage_generally(writer, entry, 0, ticks, position);

	return result == FARLOG_OK ? result : writer_reject_append(writer, result, position);
}

/* stage_plain_record -- the record of `entry` into its place. The bytes come last, so that nothing need be kept over
 * them: each store of ours, to the stack too, leaves the core in order with theirs. */
STREAM_INLINE void stage_plain_record(struct farlog_writer *writer, const struct farlog_entry *entry,
	const struct ring_place *place, const struct clock_reading *now, bool is_past_cache,
	struct farlog_position *position)
{
	struct gather gather;

	fill_plain_record(writer, entry, place, now, &gather, position);
	stream_record(writer->region->streamed + LAYOUT_DATA_OFF + place->record_off, &gather, is_past_cache);
}

STREAM_INLINE bool stage_one(struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t ticks,
	bool is_past_cache, struct farlog_position *position)
{
	uint64_t payload_bytes = (uint64_t)entry->len + entry->key_len;
	struct ring_place place;
	struct clock_reading now;

	if (!find_plain_place(writer, entry, &place))
		return false;
	clock_read(ticks, &now);
	stage_plain_record(writer, entry, &place, &now, is_past_cache, position);
	update_counters(writer, 1, payload_bytes);
	return true;
}

STREAM_INLINE int submit_one(struct farlog_writer *writer, const struct farlog_entry *entry, bool is_past_cache,
	struct farlog_position *position)
{
	uint64_t ticks = clock_ticks();

	if (__builtin_expect(writer->has_claim, 0))
		writer->has_claim = false;
	return stage_one(writer, entry, ticks, is_past_cache, position) ? FARLOG_OK :
																	  submit_fallback(writer, entry, ticks, position);
}

STREAM_INLINE size_t stage_many(struct farlog_writer *writer, const struct farlog_entry *entries, size_t count,
	uint64_t ticks, bool is_past_cache, struct farlog_position *positions)
{
	uint64_t payload_bytes = 0;
	struct clock_reading now;
	struct ring_place place;
	size_t taken;

	clock_read(ticks, &now);
	for (taken = 0; taken < count && find_plain_place(writer, &entries[taken], &place); taken++) {
		payload_bytes += (uint64_t)entries[taken].len + entries[taken].key_len;
		stage_plain_record(writer, &entries[taken], &place, &now, is_past_cache, &positions[taken]);
	}
	update_counters(writer, taken, payload_bytes);
	return taken;
}

STREAM_TARGET static int submit_direct(
	struct farlog_writer *writer, const struct farlog_entry *entry, struct farlog_position *position)
{
	return submit_one(writer, entry, true, position);
}

STREAM_TARGET static int submit_copied(
	struct farlog_writer *writer, const struct farlog_entry *entry, struct farlog_position *position)
{
	return submit_one(writer, entry, false, position);
}

STREAM_TARGET static int stage_direct(
	struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t ticks, struct farlog_position *position)
{
	return stage_one(writer, entry, ticks, true, position) ? FARLOG_OK :
															 writer_stage_generally(writer, entry, 0, ticks, position);
}

STREAM_TARGET static int stage_copied(
	struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t ticks, struct farlog_position *position)
{
	return stage_one(writer, entry, ticks, false, position) ? FARLOG_OK :
															  writer_stage_generally(writer, entry, 0, ticks, position);
}

STREAM_TARGET static size_t stage_many_direct(struct farlog_writer *writer, const struct farlog_entry *entries,
	size_t count, uint64_t ticks, struct farlog_position *positions)
{
	return stage_many(writer, entries, count, ticks, true, positions);
}

STREAM_TARGET static size_t stage_many_copied(struct farlog_writer *writer, const struct farlog_entry *entries,
	size_t count, uint64_t ticks, struct farlog_position *positions)
{
	return stage_many(writer, entries, count, ticks, false, positions);
}

size_t writer_stage_many(struct farlog_writer *writer, const struct farlog_entry *entries, size_t count, uint64_t ticks,
	struct farlog_position *positions)
{
	if (writer->region->streamed == NULL)
		return 0;
	return writer->region->caps.has_copy ? stage_many_copied(writer, entries, count, ticks, positions) :
										   stage_many_direct(writer, entries, count, ticks, positions);
}

_Static_assert(STREAM_LEN_MAX == WRITER_SMALL_LEN, "both plain ways take the same records");

void writer_choose_stage(struct farlog_writer *writer)
{
	const struct region *region = writer->region;

	choose_general_stage(writer);
	if (region->streamed == NULL)
		return;
	writer->stage = region->caps.has_copy ? stage_copied : stage_direct;
	writer->submit = region->caps.has_copy ? submit_copied : submit_direct;
}
#else
size_t writer_stage_many(struct farlog_writer *writer, const struct farlog_entry *entries, size_t count, uint64_t ticks,
	struct farlog_position *positions)
{
	(void)writer, (void)entries, (void)count, (void)ticks, (void)positions;
	return 0;
}

void writer_choose_stage(struct farlog_writer *writer)
{
	choose_general_stage(writer);
}
#endif
