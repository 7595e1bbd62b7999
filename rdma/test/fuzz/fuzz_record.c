/* fuzz_record.c -- record_check on arbitrary bytes: it stays inside them, and what it calls valid lies inside the ring.
 *
 * Half of the inputs get a right trailer and CRC, which no fuzzer would find. */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "ring/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

struct preface {
	uint32_t capacity_blocks;
	uint32_t align_shift;
	uint32_t is_mended; /* and above the lowest bit, whether it lies on blocks */
	struct record_cursor cursor;
};

/* mend -- make the checksums right, as far as the lengths allow. */
static void mend(const struct record_identity *identity, const struct record_cursor *cursor, uint8_t *bytes, size_t len)
{
	struct record_header header;
	uint64_t extent;
	uint64_t trailer;

	if (len < RECORD_HEADER_LEN + RECORD_TRAILER_LEN)
		return;
	memcpy(&header, bytes, sizeof(header));
	header.magic = RECORD_MAGIC;
	header.version = RECORD_VERSION;
	header.header_words = RECORD_HEADER_LEN / 8;
	header.lsn = cursor->lsn;
	header.seq = cursor->seq;
	extent = header.flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN :
											  record_extent(identity->align, header.key_len, header.payload_len);
	memcpy(bytes, &header, sizeof(header));
	if (extent > len)
		return;
	trailer = header.lsn ^ identity->salt;
	memcpy(bytes + extent - RECORD_TRAILER_LEN, &trailer, sizeof(trailer));
	header.crc32c = crc32c_update((uint32_t)identity->salt, bytes, RECORD_CRC_OFF);
	if (!(header.flags & RECORD_FLAG_PAD))
		header.crc32c =
			crc32c_update(header.crc32c, bytes + RECORD_HEADER_LEN, (uint64_t)header.key_len + header.payload_len);
	memcpy(bytes + RECORD_CRC_OFF, &header.crc32c, sizeof(header.crc32c));
}

static void check(int claim)
{
	if (!claim)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct record_identity identity = {.salt = 0x0123456789ABCDEFull};
	struct record_cursor after;
	struct record_found found;
	struct preface preface;
	uint8_t *bytes;
	size_t left;

	if (len < sizeof(preface))
		return 0;
	memcpy(&preface, data, sizeof(preface));
	identity.capacity = 4096ull * (1 + preface.capacity_blocks % 64);
	identity.align = 64u << preface.align_shift % 7;
	identity.record_len_max = (uint32_t)(identity.capacity / 4);
	if (preface.is_mended & 2)
		identity.block_len = preface.is_mended & 4 ? 4096 : 512;
	preface.cursor.lsn -= preface.cursor.lsn % identity.align;
	data += sizeof(preface);
	len -= sizeof(preface);
	/* A copy of exactly this length on the heap: one byte beyond it is seen by the address sanitizer. */
	left = identity.capacity - preface.cursor.lsn % identity.capacity;
	len = len < left ? len : left;
	bytes = malloc(len + !len);
	if (bytes == NULL)
		return 0;
	memcpy(bytes, data, len);
	if (preface.is_mended % 2)
		mend(&identity, &preface.cursor, bytes, len);
	if (record_check(&identity, &preface.cursor, bytes, len, &found) == RECORD_VALID) {
		check(found.stored_len <= len && found.stored_len >= 64 && found.extent % identity.align == 0);
		check(preface.cursor.lsn % identity.capacity + found.extent <= identity.capacity);
		if (found.flags & RECORD_FLAG_PAD)
			check(found.extent == left ||
				(identity.block_len != 0 && found.extent < identity.block_len &&
					(preface.cursor.lsn + found.extent) % identity.block_len == 0));
		after = preface.cursor;
		record_advance(&after, &found);
		check(found.epoch >= preface.cursor.epoch && found.epoch <= preface.cursor.epoch_max);
	}
	free(bytes);
	return 0;
}
