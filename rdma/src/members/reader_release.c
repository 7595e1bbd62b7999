/* members/reader_release.c -- which records every later writer finds, and storing heads behind them.
 *
 * That K members have a record is not enough: a writer in between may have put another record there on a member that
 * was away, in a newer epoch, which is preferred to a longer log. It is enough when K members have the record and
 * behind it a record of the newest epoch, or the beginning of that epoch; or when the durable hint of the member covers
 * it, which is stored only for acknowledged records, and only in a member that has them. A head may be stored only
 * behind such a record, since a later drain begins there. */
#include "members/reader.h"

#include <string.h>

#include "scan/walk.h"

/* parse_record -- the record at `at` of a batch. */
static void parse_record(const struct farlog_reader *reader, const uint8_t *at, struct record_found *found)
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

/* cut_batch -- behind the last record that ends at or below sure_lsn. */
static void cut_batch(struct farlog_reader *reader, struct record_cursor at, uint64_t sure_lsn, const uint8_t *buf,
	struct farlog_batch *batch)
{
	struct farlog_batch part = {.first_lsn = at.lsn};
	struct record_found found;

	at.epoch_max = reader->cursor.epoch_max;
	while (part.len < batch->len) {
		parse_record(reader, buf + part.len, &found);
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

/* make_durable -- the records of a member between two LSNs. */
static int make_durable(struct reader_member *member, uint64_t from_lsn, uint64_t to_lsn)
{
	struct region *region = member->reader->region;
	uint64_t capacity = member->reader->identity.capacity;
	uint64_t off = from_lsn % capacity;
	uint64_t len = to_lsn - from_lsn;
	uint64_t first_len = len < capacity - off ? len : capacity - off;
	int result;

	if (!member->reader->is_drain || !region_is_flush_durable(region))
		return FARLOG_OK;
	result = region->ops->data.flush(region, LAYOUT_DATA_OFF + off, first_len);
	return result == FARLOG_OK && first_len < len ? region->ops->data.flush(region, LAYOUT_DATA_OFF, len - first_len) :
													result;
}

/* has_same_records -- another member has the records of the batch, durably. OK; NOT_YET: it has not; IO. */
static int has_same_records(
	struct reader_member *member, struct record_cursor at, const uint8_t *buf, const struct farlog_batch *batch)
{
	struct farlog_reader *reader = member->reader;
	struct walk walk = {.region = reader->region,
		.identity = &reader->identity,
		.piece_len = (batch->len + LAYOUT_LINE_LEN - 1) & ~(uint64_t)(LAYOUT_LINE_LEN - 1)};
	uint64_t reconnect_count = reader->region->reconnect_count;
	uint64_t from_lsn = at.lsn;
	int result = FARLOG_OK;

	at.epoch_max = reader->superblock.writer_epoch;
	for (uint64_t used = 0; result == FARLOG_OK && used < batch->len;) {
		struct record_found found;
		struct record_found wanted;
		enum record_verdict verdict;

		parse_record(reader, buf + used, &wanted);
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
	/* Records that were read before a power cut of the host are not those that were flushed after it. */
	return result == FARLOG_OK && reader_has_reconnected(reader, reconnect_count) ? FARLOG_IO : result;
}

/* keeps_epoch -- the superblock that shows the newest epoch is durable. The reader may have seen one that its writer
 * stored and never flushed: a power cut takes it, and a later writer goes by another member's epoch instead. */
static bool keeps_epoch(const struct reader_members *members, const struct farlog_reader *reader)
{
	struct superblock superblock;

	if (!reader->is_drain || !region_is_flush_durable(reader->region))
		return true;
	return reader->region->ops->data.flush(reader->region, 0, LAYOUT_DATA_OFF) == FARLOG_OK &&
		superblock_load(reader->region, "", &superblock, NULL) == FARLOG_OK &&
		superblock.writer_epoch == members->epoch;
}

/* reaches_epoch -- the member's log continues without a gap, durably, to a record of the newest epoch or to where that
 * epoch begins: the epoch was stored there when the member had all below, and a full ring has no EPOCH record. That
 * holds until there is a newer epoch. */
static bool reaches_epoch(const struct reader_members *members, struct reader_member *member, struct record_cursor at)
{
	struct farlog_reader *reader = member->reader;
	struct walk walk = {.region = reader->region, .identity = &reader->identity};
	uint64_t reconnect_count = reader->region->reconnect_count;
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
		!reader_has_reconnected(reader, reconnect_count))
		member->reached_epoch = members->epoch;
	return member->reached_epoch == members->epoch;
}

/* is_on_enough -- as many members as are needed have the batch, and behind it a record of the newest epoch. */
static bool is_on_enough(struct reader_members *members, struct reader_member *read, const struct record_cursor *from,
	const uint8_t *buf, const struct farlog_batch *batch)
{
	bool knows_epoch = batch->last_epoch == members->epoch;
	unsigned count = (knows_epoch || reaches_epoch(members, read, *from)) &&
		make_durable(read, from->lsn, batch->next_lsn) == FARLOG_OK;

	if (count == 0 ||
		reader_has_reconnected(read->reader, read->reconnect_count)) /* its batch was read before a reconnection */
		return false;
	for (unsigned i = 0; i < members->count && count < members->needed; i++) {
		struct reader_member *member = &members->member[i];
		int result;

		if (member == read || member->reader == NULL || member->is_away ||
			member->reader->superblock.writer_epoch != members->epoch)
			continue;
		result = has_same_records(member, *from, buf, batch);
		count += result == FARLOG_OK && (knows_epoch || reaches_epoch(members, member, *from));
		if (result == FARLOG_IO)
			reader_members_mark_away(member, result);
	}
	return count >= members->needed;
}

int reader_members_limit_batch(
	struct reader_members *members, struct reader_member *member, const uint8_t *buf, struct farlog_batch *batch)
{
	struct farlog_reader *reader = member->reader;
	struct record_cursor from = members->cursor;
	struct farlog_batch part = *batch;
	struct record_cursor end = reader->cursor;

	if (batch->next_lsn <= reader->sure_lsn)
		return FARLOG_OK;
	cut_batch(reader, from, reader->sure_lsn, buf, &part);
	if (part.len > 0) {
		*batch = part;
		return FARLOG_OK;
	}
	if (reader->superblock.writer_epoch == members->epoch && is_on_enough(members, member, &from, buf, batch)) {
		reader->cursor = end;
		return FARLOG_OK;
	}
	member->held_lsn = batch->next_lsn;
	memset(batch, 0, sizeof(*batch));
	return FARLOG_NOT_YET;
}

int reader_members_store_head(struct reader_members *members, struct reader_member *member)
{
	int result = FARLOG_OK;

	if (members->released.head_lsn > member->reader->released.head_lsn || member->reader->is_release_open)
		result = reader_store_head(member->reader, &members->released);
	if (result == FARLOG_IO)
		reader_members_mark_away(member, result);
	return result;
}

/* store_heads -- OK: as many members as are needed have the head durably; IO; HELD. */
static int store_heads(struct reader_members *members)
{
	unsigned count = 0;

	for (unsigned i = 0; i < members->count; i++) {
		struct reader_member *member = &members->member[i];
		int result = member->reader == NULL || member->is_away ? FARLOG_IO : reader_members_store_head(members, member);

		if (result == FARLOG_HELD)
			return result;
		count += result == FARLOG_OK;
	}
	return count >= members->needed ? FARLOG_OK : FARLOG_IO;
}

int reader_members_release(struct farlog_reader *front, const struct head_slot *slot)
{
	struct reader_members *members = front->members;

	if (!members->is_drain || slot->head_lsn < members->released.head_lsn ||
		slot->head_seq < members->released.head_seq || slot->last_epoch < members->released.last_epoch ||
		slot->head_lsn > members->cursor.lsn)
		return FARLOG_INVALID;
	reader_members_adopt(members);
	members->released = *slot;
	return store_heads(members);
}
