/* log/release.c -- the drain's last step: what the store has is the writer's again. */
#include "log/reader.h"

#define FORGET_LEN (8u << 20)

static void drop_released_pages(struct farlog_reader *reader, uint64_t lsn)
{
	uint64_t capacity = reader->identity.capacity;

	while (lsn - reader->dropped_lsn >= FORGET_LEN) {
		uint64_t off = reader->dropped_lsn % capacity;
		uint64_t len = capacity - off < FORGET_LEN ? capacity - off : FORGET_LEN;

		reader->region->ops->data.drop_pages(reader->region, LAYOUT_DATA_OFF + off, len);
		reader->dropped_lsn += len;
	}
}

/* set_released -- the head slot is durable. Only now may the writer have the space: a crash cannot bring the old head
 * back. */
static void set_released(struct farlog_reader *reader, const struct head_slot *slot)
{
	reader->released = *slot;
	reader->is_release_open = false;
	reader->region->ops->data.store_word(reader->region, LAYOUT_CREDIT_OFF, slot->head_lsn);
	drop_released_pages(reader, slot->head_lsn);
}

int reader_confirm_head(struct farlog_reader *reader, uint64_t expected_lsn, struct head_slot *head)
{
	if (!head_load(reader->region, &reader->superblock, head))
		return FARLOG_CORRUPT;
	if (head->head_lsn != reader->released.head_lsn && head->head_lsn != expected_lsn)
		return FARLOG_HELD;
	reader->reconnect_count = reader->region->reconnect_count;
	reader->region->ops->data.store_word(reader->region, LAYOUT_CREDIT_OFF, reader->released.head_lsn);
	return FARLOG_OK;
}

/* finish_lost_release -- the connection took the release with it: whatever of it has landed lies in the ring, and
 * nothing more will come. */
static int finish_lost_release(struct farlog_reader *reader, struct head_slot *head)
{
	int result = region_fetch(reader->region, 0, LAYOUT_DATA_OFF);

	if (result == FARLOG_OK)
		result = reader_confirm_head(reader, reader->open_slot.head_lsn, head);
	if (result == FARLOG_OK && head->head_lsn != reader->released.head_lsn)
		result = reader->region->ops->data.flush(reader->region, 0, LAYOUT_DATA_OFF);
	return result;
}

/* finish_release -- of one that has failed. Its slot goes to its place and nowhere else until it is known what became
 * of it: the other place holds the only head of which it is known that it is whole. */
static int finish_release(struct farlog_reader *reader)
{
	struct head_slot head;
	int result = region_wait_inflight(reader->region);

	if (reader->region->tag_lost == reader->region->tag)
		result = finish_lost_release(reader, &head);
	else if (result == FARLOG_OK && !head_load(reader->region, &reader->superblock, &head))
		result = FARLOG_IO;
	if (result == FARLOG_OK)
		set_released(reader, &head);
	return result;
}

/* recheck_ring -- before a release after the connection came back. Another drain may have been in meanwhile; and the
 * target's host may have lost records that were read and never acknowledged, so that the next writer's begin below what
 * is to be released: to release it would give those away. IO: that is to be seen in a moment. */
static int recheck_ring(struct farlog_reader *reader)
{
	int result = region_fetch(reader->region, 0, LAYOUT_DATA_OFF);

	if (result == FARLOG_OK)
		result = reader_confirm_head(reader, reader->released.head_lsn, &(struct head_slot){0});
	if (result == FARLOG_OK)
		result = reader_follow_log(reader);
	return result == FARLOG_NOT_YET ? FARLOG_IO : result;
}

/* store_slot -- the last step: durable first, then the writer's. */
static int store_slot(struct farlog_reader *reader, const struct head_slot *slot)
{
	int result;

	result = head_store(reader->region, &reader->superblock, slot);
	if (result != FARLOG_OK) {
		reader->is_release_open = reader->region->caps.may_land_late;
		reader->open_slot = *slot;
		return result == FARLOG_HELD ? result : FARLOG_IO;
	}
	set_released(reader, slot);
	return FARLOG_OK;
}

int reader_release_ring(struct farlog_reader *reader, const struct head_slot *slot)
{
	int result = FARLOG_OK;
	bool is_to_look;

	if (!reader->is_drain || slot->head_lsn < reader->released.head_lsn || slot->head_seq < reader->released.head_seq ||
		slot->head_lsn > reader->cursor.lsn || slot->last_epoch < reader->released.last_epoch)
		return FARLOG_INVALID;
	is_to_look =
		reader->is_release_open || reader->is_resync_needed || reader_has_reconnected(reader, reader->reconnect_count);
	if (reader->is_release_open)
		result = finish_release(reader);
	if (result == FARLOG_OK && is_to_look)
		result = recheck_ring(reader);
	if (result != FARLOG_OK)
		return result;
	if (slot->head_lsn <= reader->released.head_lsn)
		return FARLOG_OK;
	if (slot->head_lsn > reader->cursor.lsn)
		return FARLOG_INVALID;
	return store_slot(reader, slot);
}

int reader_release_spill(struct farlog_reader *reader, const struct head_slot *slot)
{
	if (slot->head_lsn < reader->released.head_lsn || slot->head_seq < reader->released.head_seq ||
		slot->last_epoch < reader->released.last_epoch)
		return FARLOG_INVALID;
	return store_slot(reader, slot);
}

int reader_store_head(struct farlog_reader *reader, const struct head_slot *slot)
{
	int result = FARLOG_OK;

	if (reader->is_release_open)
		result = finish_release(reader);
	if (result == FARLOG_OK && reader_has_reconnected(reader, reader->reconnect_count))
		result = region_fetch(reader->region, 0, LAYOUT_DATA_OFF);
	if (result == FARLOG_OK && reader_has_reconnected(reader, reader->reconnect_count))
		result = reader_confirm_head(reader, reader->released.head_lsn, &(struct head_slot){0});
	if (result != FARLOG_OK || slot->head_lsn <= reader->released.head_lsn)
		return result;
	return store_slot(reader, slot);
}
