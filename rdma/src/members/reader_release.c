/* members/reader_release.c -- what every later writer finds, and moving the heads over it.
 *
 * A record that K members have is not yet such: a writer in between may have put another one there on a member that was
 * away, with a newer epoch, which goes before a longer log. It is when K members have it and behind it a record of the
 * newest epoch, or of that the beginning, or when the writer's last word on that very member covers it, which is told
 * only of what was acknowledged, and only to a member that has it. A head may lie nowhere else, since a later drain
 * begins behind it. */
#include "members/reader.h"

#include <string.h>

#include "scan/walk.h"

/* next_of -- the record at `at` of a batch, as one that was found. */
static void next_of(const struct farlog_reader *reader, const uint8_t *at, struct record_found *found)
{
	struct record_header header;

	memcpy(&header, at, sizeof(header));
	*found = (struct record_found){
		.flags = header.flags, .epoch = header.epoch, .ts_ns = header.ts_ns, .crc32c = header.crc32c};
	found->extent = header.flags & RECORD_FLAG_PAD ?
		header.payload_len + (uint64_t)RECORD_PAD_STORED_LEN :
		record_extent(reader->identity.align, header.key_len, header.payload_len);
	found->stored_len = header.flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN : found->extent;
}

/* cut -- the batch ends at the last record that ends at or below that LSN. */
static void cut(struct farlog_reader *reader, struct record_cursor at, uint64_t sure_lsn, const uint8_t *buf,
	struct farlog_batch *batch)
{
	struct farlog_batch part = {.first_lsn = at.lsn};
	struct record_found found;

	at.epoch_max = reader->cursor.epoch_max;
	while (part.len < batch->len) {
		next_of(reader, buf + part.len, &found);
		if (at.lsn + found.extent > sure_lsn)
			break;
		record_advance(&at, &found);
		part.len += found.stored_len;
		if (found.flags & RECORD_FLAG_PAD)
			continue;
		part.record_count++;
		part.last_ts_ns = found.ts_ns;
	}
	part.next_lsn = at.lsn;
	part.next_seq = at.seq;
	part.last_epoch = at.epoch;
	reader->cursor = at;
	*batch = part;
}

/* make_durable -- what a member holds there. */
static int make_durable(struct reader_member *member, uint64_t from_lsn, uint64_t to_lsn)
{
	struct region *region = member->reader->region;
	uint64_t capacity = member->reader->identity.capacity;
	uint64_t off = from_lsn % capacity;
	uint64_t len = to_lsn - from_lsn;
	uint64_t first_len = len < capacity - off ? len : capacity - off;
	int result;

	if (!member->reader->is_drain || !region_is_kept(region))
		return FARLOG_OK;
	result = region->ops->data.flush(region, LAYOUT_DATA_OFF + off, first_len);
	return result == FARLOG_OK && first_len < len ? region->ops->data.flush(region, LAYOUT_DATA_OFF, len - first_len) :
													result;
}

/* is_same -- another member has these very records. OK; NOT_YET: it has not; IO. */
static int is_same(
	struct reader_member *member, struct record_cursor at, const uint8_t *buf, const struct farlog_batch *batch)
{
	struct farlog_reader *reader = member->reader;
	struct walk walk = {.region = reader->region,
		.identity = &reader->identity,
		.piece_len = (batch->len + LAYOUT_LINE_LEN - 1) & ~(uint64_t)(LAYOUT_LINE_LEN - 1)};
	uint64_t comeback_count = reader->region->comeback_count;
	uint64_t from_lsn = at.lsn;
	int result = FARLOG_OK;

	at.epoch_max = reader->superblock.writer_epoch;
	for (uint64_t used = 0; result == FARLOG_OK && used < batch->len;) {
		struct record_found found;
		struct record_found wanted;
		enum record_verdict verdict;

		next_of(reader, buf + used, &wanted);
		result = walk_check(&walk, &at, &verdict, &found);
		if (result == FARLOG_OK &&
			(verdict != RECORD_VALID || found.crc32c != wanted.crc32c || found.extent != wanted.extent ||
				found.epoch != wanted.epoch))
			result = FARLOG_NOT_YET;
		if (result == FARLOG_OK)
			record_advance(&at, &found);
		used += wanted.stored_len;
	}
	walk_end(&walk);
	if (result == FARLOG_OK)
		result = make_durable(member, from_lsn, batch->next_lsn);
	/* What was seen before a power cut of its host is not what was flushed after it. */
	return result == FARLOG_OK && reader_is_back(reader, comeback_count) ? FARLOG_IO : result;
}

/* keeps_epoch -- the superblock that shows the newest epoch is durable. The reader may have seen one that its writer
 * stored and never flushed: a power cut takes it, and a later writer goes by another member's epoch instead. */
static bool keeps_epoch(const struct reader_members *members, const struct farlog_reader *reader)
{
	struct superblock superblock;

	if (!reader->is_drain || !region_is_kept(reader->region))
		return true;
	return reader->region->ops->data.flush(reader->region, 0, LAYOUT_DATA_OFF) == FARLOG_OK &&
		superblock_load(reader->region, "", &superblock, NULL) == FARLOG_OK &&
		superblock.writer_epoch == members->epoch;
}

/* reaches_epoch -- the member's log goes on, without a gap, as far as a record of the newest epoch, or as far as that
 * begins, durably: the member was told of it when it had all that lies below, and there is no EPOCH record where the
 * ring was full. That is so until there is a newer one. */
static bool reaches_epoch(const struct reader_members *members, struct reader_member *member, struct record_cursor at)
{
	struct farlog_reader *reader = member->reader;
	struct walk walk = {.region = reader->region, .identity = &reader->identity};
	uint64_t comeback_count = reader->region->comeback_count;
	uint64_t begun_lsn = reader->superblock.epoch_start_lsn;
	uint64_t from_lsn = at.lsn;

	if (member->reached_epoch == members->epoch)
		return true;
	at.epoch_max = reader->superblock.writer_epoch;
	while (at.epoch < members->epoch && at.lsn < begun_lsn) {
		struct record_found found;
		enum record_verdict verdict;

		if (walk_check(&walk, &at, &verdict, &found) != FARLOG_OK || verdict != RECORD_VALID ||
			!reader_is_of_log(reader, at.lsn, found.epoch))
			break;
		record_advance(&at, &found);
	}
	walk_end(&walk);
	if (at.epoch != members->epoch && at.lsn < begun_lsn)
		return false;
	if (make_durable(member, from_lsn, at.lsn) == FARLOG_OK && keeps_epoch(members, reader) &&
		!reader_is_back(reader, comeback_count))
		member->reached_epoch = members->epoch;
	return member->reached_epoch == members->epoch;
}

/* do_enough_have -- as many members as are needed have the batch, and behind it a record of the newest epoch. */
static bool do_enough_have(struct reader_members *members, struct reader_member *read, const struct record_cursor *from,
	const uint8_t *buf, const struct farlog_batch *batch)
{
	bool is_of_epoch = batch->last_epoch == members->epoch;
	unsigned count = (is_of_epoch || reaches_epoch(members, read, *from)) &&
		make_durable(read, from->lsn, batch->next_lsn) == FARLOG_OK;

	if (count == 0 || reader_is_back(read->reader, read->comeback_count)) /* nor was that one's batch */
		return false;
	for (unsigned i = 0; i < members->count && count < members->needed; i++) {
		struct reader_member *member = &members->member[i];
		int result;

		if (member == read || member->reader == NULL || member->is_away ||
			member->reader->superblock.writer_epoch != members->epoch)
			continue;
		result = is_same(member, *from, buf, batch);
		count += result == FARLOG_OK && (is_of_epoch || reaches_epoch(members, member, *from));
		if (result == FARLOG_IO)
			reader_members_away(member, result);
	}
	return count >= members->needed;
}

int reader_members_hold_back(
	struct reader_members *members, struct reader_member *member, const uint8_t *buf, struct farlog_batch *batch)
{
	struct farlog_reader *reader = member->reader;
	struct record_cursor from = members->cursor;
	struct farlog_batch part = *batch;
	struct record_cursor end = reader->cursor;

	if (batch->next_lsn <= reader->sure_lsn)
		return FARLOG_OK;
	cut(reader, from, reader->sure_lsn, buf, &part);
	if (part.len > 0) {
		*batch = part;
		return FARLOG_OK;
	}
	if (reader->superblock.writer_epoch == members->epoch && do_enough_have(members, member, &from, buf, batch)) {
		reader->cursor = end;
		return FARLOG_OK;
	}
	member->held_lsn = batch->next_lsn;
	memset(batch, 0, sizeof(*batch));
	return FARLOG_NOT_YET;
}

int reader_members_raise(struct reader_members *members, struct reader_member *member)
{
	int result = FARLOG_OK;

	if (members->released.head_lsn > member->reader->released.head_lsn || member->reader->is_release_open)
		result = reader_store_head(member->reader, &members->released);
	if (result == FARLOG_IO)
		reader_members_away(member, result);
	return result;
}

/* raise_all -- OK: as many as are needed have it durably; IO; HELD. */
static int raise_all(struct reader_members *members)
{
	unsigned count = 0;

	for (unsigned i = 0; i < members->count; i++) {
		struct reader_member *member = &members->member[i];
		int result = member->reader == NULL || member->is_away ? FARLOG_IO : reader_members_raise(members, member);

		if (result == FARLOG_HELD)
			return result;
		count += result == FARLOG_OK;
	}
	return count >= members->needed ? FARLOG_OK : FARLOG_IO;
}

int reader_members_release(struct reader_members *members, const struct head_slot *slot)
{
	if (!members->is_drain || slot->head_lsn < members->released.head_lsn ||
		slot->head_seq < members->released.head_seq || slot->last_epoch < members->released.last_epoch ||
		slot->head_lsn > members->cursor.lsn)
		return FARLOG_INVALID;
	reader_members_adopt(members);
	members->released = *slot;
	return raise_all(members);
}
