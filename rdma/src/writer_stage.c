/* writer_stage.c -- a record's way into the ring, before any flush: may it be taken, where does it go, what is it, and its bytes.
 *
 * Nothing here waits and nothing is durable when it returns. */
#include "writer.h"

#include <string.h>

#include "stream.h"

bool writer_is_fenced(struct farlog_writer *writer)
{
	uint64_t epoch_min = writer->region->is_load_slow ? atomic_load_relaxed(&writer->region->fence_seen)
													   : region_load_word(writer->region, LAYOUT_FENCE_OFF);

	if (__builtin_expect(epoch_min <= writer->epoch, 1))
		return false;
	atomic_store_relaxed(&writer->fenced_epoch, epoch_min);
	return true;
}

int writer_check_entry(const struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t *extent)
{
	*extent = record_extent(writer->identity.align, entry->key_len, entry->len);
	if (*extent > writer->identity.record_len_max)
		return FARLOG_TOO_LARGE;
	if ((entry->len > 0 && entry->data == NULL) || (entry->key_len > 0 && entry->key == NULL))
		return FARLOG_INVALID;
	return FARLOG_OK;
}

/* writer_take_credit -- the drain stores the credit after it has persisted the head. A value that could not be one (foreign bytes) is not believed. */
void writer_take_credit(struct farlog_writer *writer)
{
	uint64_t credit_lsn;
	uint64_t tag;

	if (writer->region->is_far) /* the transport may need our help to put the word into the copy */
		writer->region->ops->poll(writer->region, &tag);
	credit_lsn = region_load_word(writer->region, LAYOUT_CREDIT_OFF);
	if (credit_lsn > writer->ring.credit_lsn && credit_lsn <= writer->ring.appended_lsn)
		writer->ring.credit_lsn = credit_lsn;
	atomic_store_relaxed(&writer->counters->credit_lsn, writer->ring.credit_lsn);
}

int writer_find_room(struct farlog_writer *writer, uint64_t extent, struct ring_place *place)
{
	ring_place(&writer->ring, extent, place);
	if (__builtin_expect(ring_has_room(&writer->ring, place), 1))
		return FARLOG_OK;
	writer_take_credit(writer);
	return ring_has_room(&writer->ring, place) ? FARLOG_OK : FARLOG_FULL;
}

void writer_gather(const struct farlog_writer *writer, const struct ring_place *place, const struct farlog_entry *entry,
	uint64_t flags, uint64_t ticks, struct gather *gather)
{
	struct clock_reading now;
	struct record_header header;

	clock_read(ticks, &now);
	header = (struct record_header){
		.flags = (uint16_t)flags,
		.lsn = place->record_lsn,
		.epoch = writer->epoch,
		.payload_len = entry->len,
		.seq = writer->ring.next_seq,
		.ts_ns = now.utc_ns,
		.clock_err_ns = now.error_ns,
		.class_id = entry->class_id,
		.key_len = entry->key_len,
		.stream_id = writer->identity.stream_id,
	};
	record_gather(&writer->identity, &header, entry->key, entry->data, place->end_lsn - place->record_lsn, gather);
}

/* write_pad -- out of line: it happens once a lap. */
__attribute__((noinline, cold)) static void write_pad(const struct farlog_writer *writer, uint64_t pad_len, const struct gather *next)
{
	struct region *region = writer->region;
	uint8_t pad[RECORD_PAD_STORED_LEN] __attribute__((aligned(LAYOUT_LINE_LEN)));
	struct record_header header;

	memcpy(&header, next->head, sizeof(header));
	header.lsn -= pad_len;
	record_build_pad(&writer->identity, &header, pad_len, pad);
	region->ops->write(region, LAYOUT_DATA_OFF + writer->identity.capacity - pad_len, pad, sizeof(pad));
}

__attribute__((noinline)) void writer_write(const struct farlog_writer *writer, const struct ring_place *place, struct gather *gather)
{
	struct region *region = writer->region;
	uint8_t small[WRITER_SMALL_LEN] __attribute__((aligned(LAYOUT_LINE_LEN)));

	if (__builtin_expect(place->pad_len > 0, 0))
		write_pad(writer, place->pad_len, gather);
	gather->scratch = gather->len <= sizeof(small) ? small : writer->staging;
	region->ops->gather(region, LAYOUT_DATA_OFF + place->record_off, gather);
}

static void mark_pressure(struct farlog_writer *writer)
{
	unsigned pressure;

	if (__builtin_expect(ring_used(&writer->ring) < writer->ring.warn_bytes && writer->pressure == 0, 1))
		return;
	writer_take_credit(writer);
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

void writer_account(struct farlog_writer *writer, uint64_t payload_len, uint64_t flags)
{
	struct farlog_counters *counters = writer->counters;

	if (!(flags & RECORD_FLAG_EPOCH))
		atomic_bump(&counters->record_count, 1);
	atomic_bump(&counters->payload_bytes, payload_len);
	atomic_store_relaxed(&counters->appended_lsn, writer->ring.appended_lsn);
	mark_pressure(writer);
}

void writer_position(const struct farlog_writer *writer, const struct ring_place *place, uint64_t seq,
	struct farlog_position *position)
{
	*position = (struct farlog_position){
		.lsn = place->record_lsn,
		.seq = seq,
		.epoch = writer->epoch,
		.level = FARLOG_LEVEL_POSTED,
		.copies = 1,
		.end_lsn = place->end_lsn,
	};
}

#define STAGE_INLINE __attribute__((always_inline)) static inline

/* begin_stage -- all that comes before the bytes: may the record be taken, where does it go, what is it? */
STAGE_INLINE int begin_stage(struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t flags, uint64_t ticks,
	struct ring_place *place, struct gather *gather)
{
	uint64_t extent;
	int result;

	if (__builtin_expect(writer->is_failed, 0))
		return FARLOG_CLOSED;
	if (writer_is_fenced(writer))
		return FARLOG_FENCED;
	result = writer_check_entry(writer, entry, &extent);
	if (result != FARLOG_OK)
		return result;
	result = writer_find_room(writer, extent, place);
	if (result == FARLOG_OK)
		writer_gather(writer, place, entry, flags, ticks, gather);
	return result;
}

STAGE_INLINE void end_stage(struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t flags,
	const struct ring_place *place, struct farlog_position *position)
{
	writer_position(writer, place, writer->ring.next_seq, position);
	writer->last_lsn = place->record_lsn;
	ring_advance(&writer->ring, place);
	writer_account(writer, (uint64_t)entry->len + entry->key_len, flags);
}

__attribute__((flatten)) static int stage(struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t flags, uint64_t ticks,
	struct farlog_position *position)
{
	struct ring_place place;
	struct gather gather;
	int result = begin_stage(writer, entry, flags, ticks, &place, &gather);

	if (result != FARLOG_OK)
		return result;
	writer_write(writer, &place, &gather);
	end_stage(writer, entry, flags, &place, position);
	return FARLOG_OK;
}

#if defined(__x86_64__)
/* stage_streamed -- the same for a plain record with the bytes put in line: all of it lives in registers. */
STREAM_TARGET __attribute__((flatten)) static int stage_streamed(struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t ticks,
	struct farlog_position *position)
{
	struct ring_place place;
	struct gather gather;
	int result = begin_stage(writer, entry, 0, ticks, &place, &gather);

	if (__builtin_expect(result != FARLOG_OK, 0))
		return result;
	if (__builtin_expect(place.pad_len > 0 || gather.len > STREAM_LEN_MAX, 0)) {
		struct ring_place place_in_memory = place; /* their addresses are taken: the others stay in registers */
		struct gather gather_in_memory = gather;

		writer_write(writer, &place_in_memory, &gather_in_memory);
	} else {
		stream_record(writer->region->streamed + LAYOUT_DATA_OFF + place.record_off, &gather);
	}
	end_stage(writer, entry, 0, &place, position);
	return FARLOG_OK;
}
#endif

int writer_stage(struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t flags, uint64_t ticks,
	struct farlog_position *position)
{
#if defined(__x86_64__)
	if (writer->region->streamed != NULL && flags == 0)
		return stage_streamed(writer, entry, ticks, position);
#endif
	return stage(writer, entry, flags, ticks, position);
}
