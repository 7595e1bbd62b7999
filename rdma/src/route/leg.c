/* route/leg.c -- the appending thread's side of a leg: its buffer, and the ownership of its ring. */
#include "route/route.h"

#include <stdio.h>
#include <string.h>

int route_check_buffer(const struct route_leg *leg, const struct farlog_entry *entry, uint64_t before_bytes)
{
	struct farlog_writer *writer = shared_writer(leg->buffer);
	uint64_t kept =
		writer->identity.capacity / 16 < ROUTE_KEPT_LEN_MAX ? writer->identity.capacity / 16 : ROUTE_KEPT_LEN_MAX;
	struct ring_place place;
	uint64_t extent;
	int result = writer_check_entry(writer, entry, 0, &extent);

	if (writer->is_failed)
		return FARLOG_CLOSED;
	return result == FARLOG_OK ? writer_find_place(writer, before_bytes + extent + kept, &place) : result;
}

int route_decrypt(struct route_leg *leg, const struct record_header *header, struct farlog_entry *entry)
{
	uint8_t *raw = (uint8_t *)(uintptr_t)entry->key - RECORD_HEADER_LEN;
	struct farlog_error error = {.text = "its spill is encrypted, and no key was given"};
	int result = FARLOG_NO_KEY;

	if (!(header->flags & RECORD_FLAG_ENCRYPTED))
		return FARLOG_OK;
	if (leg->decrypter != NULL)
		result = decrypter_open_record(
			leg->decrypter, leg->reader->identity.salt, raw, &entry->key_len, &entry->len, &error);
	entry->data = raw + RECORD_HEADER_LEN + entry->key_len;
	if (result != FARLOG_OK)
		route_set_text(leg, error.text);
	return result;
}

void route_set_text(struct route_leg *leg, const char *text)
{
	pthread_mutex_lock(&leg->text_lock);
	snprintf(leg->text, sizeof(leg->text), "%s", text != NULL ? text : "");
	pthread_mutex_unlock(&leg->text_lock);
}

bool route_own_ring(struct route_leg *leg)
{
	uint64_t owner = atomic_load_acquire(&leg->owner);

	if (owner == ROUTE_OWNER_APPENDER)
		return true;
	if (owner != ROUTE_OWNER_NONE || shared_published_lsn(leg->buffer) != atomic_load_acquire(&leg->carried_lsn) ||
		!atomic_swap_if(&leg->owner, ROUTE_OWNER_NONE, ROUTE_OWNER_APPENDER))
		return false;
	atomic_store_release(&leg->state, FARLOG_LEG_DIRECT);
	return true;
}

int route_begin_spill(struct route_leg *leg, uint64_t ring_seq)
{
	struct head_slot slot = leg->reader->released;
	int result;

	slot.far_epoch = leg->writer->epoch;
	slot.far_seq = (uint32_t)ring_seq;
	result = reader_release_spill(leg->reader, &slot);
	if (result != FARLOG_OK)
		return FARLOG_IO;
	leg->head_ring_seq = ring_seq;
	leg->next_ring_seq = ring_seq;
	return FARLOG_OK;
}

void route_pass_ring(struct route_leg *leg)
{
	atomic_store_release(&leg->state, FARLOG_LEG_CARRYING);
	atomic_store_release(&leg->owner, ROUTE_OWNER_CARRIER);
}

static void count_dropped(struct route_leg *leg, const struct clock_reading *now)
{
	struct route_gap *gap = &leg->gap;

	atomic_add(&leg->counters.dropped_count, 1);
	if (gap->count++ == 0) {
		gap->from_number = leg->offered_number;
		gap->from_ts_ns = now->utc_ns;
	}
	gap->to_ts_ns = now->utc_ns;
}

bool route_append_gap(struct route_leg *leg)
{
	const struct route_gap *open = &leg->gap;
	struct farlog_gap gap = {.reason = FARLOG_GAP_FULL,
		.count = open->count,
		.from_number = open->from_number,
		.to_number = open->from_number + open->count - 1,
		.from_ts_ns = open->from_ts_ns,
		.to_ts_ns = open->to_ts_ns,
		.dropped_count = atomic_load_relaxed(&leg->counters.dropped_count)};
	struct farlog_entry entry = {.data = &gap, .len = sizeof(gap)};
	struct farlog_position position;

	if (open->count == 0)
		return true;
	if (route_check_buffer(leg, &entry, 0) != FARLOG_OK ||
		shared_submit(leg->buffer, &entry, RECORD_FLAG_GAP, &position) != FARLOG_OK)
		return false;
	leg->gap = (struct route_gap){0};
	atomic_add(&leg->counters.gap_count, 1);
	return true;
}

int route_offer(struct route_leg *leg, const struct farlog_entry *entry, struct farlog_route_result *result)
{
	struct clock_reading now;

	leg->offered_number++;
	atomic_add(&leg->counters.offered_count, 1);
	memset(result, 0, sizeof(*result));
	result->result = route_append_gap(leg) ? route_check_buffer(leg, entry, 0) : FARLOG_FULL;
	if (result->result == FARLOG_OK)
		result->result = shared_submit(leg->buffer, entry, 0, &result->position);
	if (result->result != FARLOG_OK) {
		clock_read(clock_ticks(), &now);
		count_dropped(leg, &now);
		return result->result;
	}
	result->is_buffered = 1;
	if (leg->has_spill) {
		atomic_add(&leg->counters.spilled_count, 1);
		if (shared_durable_lsn(leg->buffer) >= result->position.end_lsn)
			result->position.level = shared_writer(leg->buffer)->level;
	}
	return FARLOG_OK;
}
