/* log/suspect.c -- why bytes are no record: the checks of record_check, one by one, for people. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "log/reader.h"
#include "ring/layout.h"
#include "ring/record.h"

static void set_text(struct farlog_suspect *suspect, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(suspect->text, sizeof(suspect->text), format, args);
	va_end(args);
}

static void set_pad_text(struct farlog_suspect *suspect, const struct record_header *header, uint64_t pad_len,
	uint64_t left_in_ring, uint64_t left_in_block)
{
	if (header->key_len != 0)
		set_text(suspect, "PAD with a key of %u bytes; expected none", header->key_len);
	else if (left_in_block != 0)
		set_text(suspect, "PAD over %lu bytes; expected the %lu up to the LBA's end, or the %lu up to the ring's",
			pad_len, left_in_block, left_in_ring);
	else
		set_text(suspect, "PAD over %lu bytes; expected the %lu up to the ring's end", pad_len, left_in_ring);
}

/* judge_header -- true: nothing is wrong with it, and its record has *stored_len bytes. */
static bool judge_header(const struct farlog_reader *reader, const struct record_header *header,
	struct farlog_suspect *suspect, uint64_t *stored_len)
{
	const struct record_identity *identity = &reader->identity;
	uint32_t epoch = reader->cursor.epoch;
	uint32_t epoch_max = reader->superblock.writer_epoch;
	uint64_t left_in_ring = identity->capacity - reader->cursor.lsn % identity->capacity;
	uint64_t extent = record_extent(identity->align, header->key_len, header->payload_len);
	uint64_t pad_len = header->payload_len + (uint64_t)RECORD_PAD_STORED_LEN;

	if (header->magic != RECORD_MAGIC || header->lsn != reader->cursor.lsn)
		set_text(suspect, "no record claims this place: magic %#x, lsn %lu; expected %#x, %lu", header->magic,
			header->lsn, RECORD_MAGIC, reader->cursor.lsn);
	else if (header->version != record_version(header->flags) || header->header_words != RECORD_HEADER_LEN / 8)
		set_text(suspect, "version %u with a header of %u words; expected version %u with %u", header->version,
			header->header_words, record_version(header->flags), RECORD_HEADER_LEN / 8);
	else if (header->epoch > epoch_max || header->epoch < epoch || header->epoch == 0)
		set_text(suspect, "epoch %u; expected %u at least and %u at most", header->epoch, epoch, epoch_max);
	else if (header->epoch != epoch && !(header->flags & (RECORD_FLAG_EPOCH | RECORD_FLAG_PAD)))
		set_text(suspect, "epoch %u begins without the record that begins an epoch; expected epoch %u", header->epoch,
			epoch);
	else if (header->seq != reader->cursor.seq)
		set_text(suspect, "seq %lu; expected %lu", header->seq, reader->cursor.seq);
	else if (header->flags & RECORD_FLAG_PAD &&
		(header->key_len != 0 || !record_pad_fits(identity, header->lsn, pad_len, left_in_ring)))
		set_pad_text(suspect, header, pad_len, left_in_ring, record_pad_len(identity, header->lsn));
	else if (!(header->flags & RECORD_FLAG_PAD) && extent > identity->record_len_max)
		set_text(suspect, "payload length %u and key length %u; expected a record of %u bytes at most",
			header->payload_len, header->key_len, identity->record_len_max);
	else if (!(header->flags & RECORD_FLAG_PAD) && extent > left_in_ring)
		set_text(suspect, "payload length %u and key length %u; expected %lu bytes at most up to the ring's end",
			header->payload_len, header->key_len, left_in_ring);
	else {
		*stored_len = header->flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN : extent;
		return true;
	}
	return false;
}

/* judge_body -- of a record whose header is sound. */
static int judge_body(struct farlog_reader *reader, uint64_t off, uint64_t stored_len, struct farlog_suspect *suspect)
{
	struct record_found found;
	uint8_t *bytes = malloc(stored_len);
	uint64_t trailer;
	int result;

	if (bytes == NULL)
		return FARLOG_NO_MEMORY;
	result = reader->region->ops->data.read(reader->region, off, bytes, stored_len);
	if (result == FARLOG_OK &&
		record_check(&reader->identity, &reader->cursor, bytes, stored_len, &found) == RECORD_VALID)
		result = FARLOG_NOT_YET;
	if (result == FARLOG_OK) {
		memcpy(&trailer, bytes + stored_len - RECORD_TRAILER_LEN, sizeof(trailer));
		suspect->fingerprint = crc32c_update(0, bytes, stored_len);
		if (trailer != (reader->cursor.lsn ^ reader->identity.salt))
			set_text(suspect, "%lu bytes with trailer %#lx; expected %#lx", stored_len, trailer,
				reader->cursor.lsn ^ reader->identity.salt);
		else
			set_text(suspect, "%lu bytes that fail their checksum", stored_len);
	}
	free(bytes);
	return result;
}

int reader_suspect_ring(struct farlog_reader *reader, struct farlog_suspect *suspect)
{
	uint64_t off = LAYOUT_DATA_OFF + reader->cursor.lsn % reader->identity.capacity;
	struct record_header header;
	uint64_t stored_len;
	int result = reader->region->ops->data.read(reader->region, off, &header, sizeof(header));

	*suspect = (struct farlog_suspect){.lsn = reader->cursor.lsn};
	if (result != FARLOG_OK)
		return result;
	suspect->fingerprint = crc32c_update(0, &header, sizeof(header));
	suspect->is_claimed = header.magic == RECORD_MAGIC && header.lsn == reader->cursor.lsn;
	return judge_header(reader, &header, suspect, &stored_len) ? judge_body(reader, off, stored_len, suspect) :
																 FARLOG_OK;
}
