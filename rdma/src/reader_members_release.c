/* reader_members_release.c -- moving the heads of a stream's members.
 *
 * A head that a takeover finds ends what any later drain reads. So it may lie only where every later log has the same records below it: above no record that
 * fewer than K members have durably. The writer's last word says how far that is; beyond it, where a writer is idle or has died, the members are asked. */
#include "reader_members.h"

#include "mutant.h"
#include "walk.h"

/* is_here -- the member has the records from `from` to `to`, durably. OK; NOT_YET: it has not; IO. */
static int is_here(struct reader_member *member, struct record_cursor from, const struct head_slot *to)
{
	struct farlog_reader *reader = member->reader;
	struct region *region = reader->region;
	struct walk walk = {.region = region, .identity = &reader->identity};
	uint64_t capacity = reader->identity.capacity;
	uint64_t off = from.lsn % capacity;
	uint64_t len = to->head_lsn - from.lsn;
	uint64_t first_len = len < capacity - off ? len : capacity - off;
	uint64_t comeback_count = region->comeback_count;
	int result = FARLOG_OK;

	from.epoch_max = reader->superblock.writer_epoch;
	while (result == FARLOG_OK && from.lsn < to->head_lsn) {
		struct record_found found;
		enum record_verdict verdict;

		result = walk_check(&walk, &from, &verdict, &found);
		if (result == FARLOG_OK && (verdict != RECORD_VALID || !reader_is_of_log(reader, from.lsn, found.epoch)))
			result = FARLOG_NOT_YET;
		if (result == FARLOG_OK)
			record_advance(&from, &found);
	}
	walk_end(&walk);
	if (result == FARLOG_OK && (from.lsn != to->head_lsn || from.seq != to->head_seq || from.epoch != to->last_epoch))
		result = FARLOG_NOT_YET;
	if (result == FARLOG_OK && region->contract.level >= FARLOG_LEVEL_PERSISTENT) {
		result = region->ops->flush(region, LAYOUT_DATA_OFF + off, first_len);
		if (result == FARLOG_OK && first_len < len)
			result = region->ops->flush(region, LAYOUT_DATA_OFF, len - first_len);
	}
	/* What was seen before a power cut of its host is not what was flushed after it. */
	return result == FARLOG_OK && region->comeback_count != comeback_count ? FARLOG_IO : result;
}

/* ask_members -- do as many as are needed have all up to there? */
static int ask_members(struct reader_members *members, const struct head_slot *to)
{
	unsigned count = 0;

	for (unsigned i = 0; i < members->count && count < members->needed; i++) {
		struct reader_member *member = &members->member[i];
		int result;

		if (member->reader == NULL || member->is_away || member->reader->superblock.writer_epoch != members->epoch)
			continue;
		result = is_here(member, members->sure, to);
		count += result == FARLOG_OK;
		if (result == FARLOG_IO)
			reader_members_away(member, result);
	}
	return count >= members->needed ? FARLOG_OK : FARLOG_NOT_YET;
}

/* hear_writer -- by the header of the member that is read from: OK, all up to there is acknowledged; NOT_YET: the writer has not said so. A log that has gone back
 * moves the cursor. */
static int hear_writer(struct reader_members *members, const struct head_slot *to)
{
	struct reader_member *member = &members->member[members->current];
	int result;

	if (member->reader == NULL || member->is_away || member->reader->superblock.writer_epoch != members->epoch)
		return FARLOG_NOT_YET;
	reader_members_place(members, member);
	result = member->reader->sure_lsn >= to->head_lsn ? FARLOG_OK : reader_look(member->reader);
	if (!member->reader->is_resync_needed)
		reader_members_moved(members, member);
	if (result == FARLOG_IO)
		reader_members_away(member, result);
	if (result != FARLOG_OK)
		return result == FARLOG_HELD ? result : FARLOG_NOT_YET;
	return member->reader->sure_lsn >= to->head_lsn ? FARLOG_OK : FARLOG_NOT_YET;
}

/* confirm -- every later writer finds all up to there. */
static int confirm(struct reader_members *members, const struct head_slot *to)
{
	int result;

	if (to->head_lsn <= members->sure.lsn || MUTANT(RELEASED_UNSEEN))
		return FARLOG_OK;
	result = hear_writer(members, to);
	if (result == FARLOG_OK || result == FARLOG_HELD)
		return result;
	return to->head_lsn > members->cursor.lsn ? FARLOG_INVALID : ask_members(members, to);
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
	int result;

	if (!members->is_drain || slot->head_lsn < members->released.head_lsn || slot->head_seq < members->released.head_seq ||
		slot->last_epoch < members->released.last_epoch || slot->head_lsn > members->cursor.lsn)
		return FARLOG_INVALID;
	reader_members_adopt(members);
	result = confirm(members, slot);
	if (result == FARLOG_OK && slot->head_lsn > members->cursor.lsn)
		result = FARLOG_INVALID; /* the log has just been seen to have gone back */
	if (result != FARLOG_OK)
		return result;
	members->released = *slot;
	if (members->sure.lsn < slot->head_lsn)
		members->sure = (struct record_cursor){.lsn = slot->head_lsn, .seq = slot->head_seq, .epoch = slot->last_epoch};
	return raise_all(members);
}
