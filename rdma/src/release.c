/* release.c -- the drain's last step: what the store has is the writer's again. */
#include "mutant.h"
#include "reader.h"

#define FORGET_LEN (8u << 20)

static void forget(struct farlog_reader *reader, uint64_t lsn)
{
	uint64_t capacity = reader->identity.capacity;

	while (lsn - reader->forgotten_lsn >= FORGET_LEN) {
		uint64_t off = reader->forgotten_lsn % capacity;
		uint64_t len = capacity - off < FORGET_LEN ? capacity - off : FORGET_LEN;

		reader->region->ops->forget(reader->region, LAYOUT_DATA_OFF + off, len);
		reader->forgotten_lsn += len;
	}
}

/* set_released -- the head slot is durable. Only now may the writer have the space: a crash cannot bring the old head back. */
static void set_released(struct farlog_reader *reader, const struct head_slot *slot)
{
	reader->released = *slot;
	reader->is_release_open = false;
	reader->region->ops->store_word(reader->region, LAYOUT_CREDIT_OFF, slot->head_lsn);
	forget(reader, slot->head_lsn);
}

/* end_release -- of one that has failed. Its slot goes to its place again and nowhere else until that is confirmed: the other place holds the only head
 * of which it is known that it is whole. */
static int end_release(struct farlog_reader *reader)
{
	struct head_slot head;

	if (region_settle(reader->region) != FARLOG_OK || !head_load(reader->region, &reader->superblock, &head))
		return FARLOG_IO;
	if (head.head_lsn > reader->cursor.lsn)
		return FARLOG_HELD; /* another drain's */
	set_released(reader, &head);
	return FARLOG_OK;
}

int farlog_reader_release(farlog_reader *reader, uint64_t head_lsn, uint64_t head_seq, uint32_t last_epoch)
{
	struct head_slot slot = {.head_lsn = head_lsn, .head_seq = head_seq, .last_epoch = last_epoch};
	int result;

	if (!reader->is_drain || head_lsn < reader->released.head_lsn || head_seq < reader->released.head_seq ||
		head_lsn > reader->cursor.lsn || last_epoch < reader->released.last_epoch)
		return FARLOG_INVALID;
	if (reader->is_release_open) {
		result = end_release(reader);
		if (result != FARLOG_OK)
			return result;
	}
	if (head_lsn <= reader->released.head_lsn)
		return FARLOG_OK;
	if (MUTANT(CREDIT_BEFORE_HEAD))
		reader->region->ops->store_word(reader->region, LAYOUT_CREDIT_OFF, head_lsn);
	result = head_store(reader->region, &reader->superblock, &slot);
	if (result != FARLOG_OK) {
		reader->is_release_open = reader->region->is_far;
		return FARLOG_IO;
	}
	set_released(reader, &slot);
	return FARLOG_OK;
}
