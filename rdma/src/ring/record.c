/* ring/record.c -- making and checking records. */
#include "ring/record.h"

#include <string.h>

#include "base/crc32c.h"

_Static_assert(RECORD_CRC_OFF == CRC32C_HEAD_LEN, "a record's head lies before its CRC");

static uint32_t record_crc(const struct record_identity *identity, const uint8_t *record, uint64_t body_len)
{
	return crc32c_record((uint32_t)identity->salt, record, record + RECORD_HEADER_LEN, body_len);
}

static uint64_t get_word(const uint8_t *src)
{
	uint64_t word;

	memcpy(&word, src, sizeof(word));
	return word;
}

/* A PAD is stored as a record without a body, but its payload_len says how much of the ring it skips. */
void record_build_pad(
	const struct record_identity *identity, const struct record_header *header, uint64_t extent, uint8_t *dst)
{
	struct record_header pad = *header;
	struct gather gather;

	pad.flags = RECORD_FLAG_PAD;
	pad.payload_len = 0;
	pad.key_len = 0;
	pad.class_id = 0;
	record_gather(identity, &pad, NULL, NULL, RECORD_PAD_STORED_LEN, &gather);
	gather.scratch = dst;
	gather.head[2] |= (extent - RECORD_PAD_STORED_LEN) << 32;
	gather_copy(dst, &gather);
}

/* epoch_fits -- epochs never go down along the log, and go up only where an epoch begins. */
static int epoch_fits(const struct record_cursor *cursor, const struct record_header *header)
{
	if (header->epoch == cursor->epoch)
		return header->epoch != 0 && header->epoch <= cursor->epoch_max;
	return header->epoch > cursor->epoch && header->epoch <= cursor->epoch_max &&
		(header->flags & (RECORD_FLAG_EPOCH | RECORD_FLAG_PAD)) != 0;
}

static int header_fits(const struct record_cursor *cursor, const struct record_header *header)
{
	return header->magic == RECORD_MAGIC && header->version == record_version(header->flags) &&
		header->header_words == RECORD_HEADER_LEN / 8 && header->lsn == cursor->lsn && header->seq == cursor->seq &&
		epoch_fits(cursor, header);
}

enum record_verdict record_check(const struct record_identity *identity, const struct record_cursor *cursor,
	const uint8_t *src, uint64_t available, struct record_found *found)
{
	struct record_header header;
	uint64_t left_in_ring = identity->capacity - cursor->lsn % identity->capacity;
	uint64_t body_len;

	if (available < RECORD_HEADER_LEN + RECORD_TRAILER_LEN)
		return RECORD_CUT;
	memcpy(&header, src, sizeof(header));
	if (!header_fits(cursor, &header))
		return RECORD_NOT_HERE;
	found->flags = header.flags;
	found->epoch = header.epoch;
	found->ts_ns = header.ts_ns;
	found->crc32c = header.crc32c;
	if (header.flags & RECORD_FLAG_PAD) {
		found->extent = (uint64_t)header.payload_len + RECORD_PAD_STORED_LEN;
		found->stored_len = RECORD_PAD_STORED_LEN;
		body_len = 0;
		if (!record_pad_fits(identity, cursor->lsn, found->extent, left_in_ring) || header.key_len != 0)
			return RECORD_NOT_HERE;
	} else {
		found->extent = record_extent(identity->align, header.key_len, header.payload_len);
		found->stored_len = found->extent;
		body_len = (uint64_t)header.key_len + header.payload_len;
		if (found->extent > identity->record_len_max || found->extent > left_in_ring)
			return RECORD_NOT_HERE;
	}
	if (found->stored_len > available)
		return RECORD_CUT;
	if (get_word(src + found->stored_len - RECORD_TRAILER_LEN) != (header.lsn ^ identity->salt))
		return RECORD_NOT_HERE;
	return record_crc(identity, src, body_len) == header.crc32c ? RECORD_VALID : RECORD_NOT_HERE;
}

void record_advance(struct record_cursor *cursor, const struct record_found *found)
{
	cursor->lsn += found->extent;
	cursor->epoch = found->epoch;
	if (!(found->flags & RECORD_FLAG_PAD))
		cursor->seq++;
}
