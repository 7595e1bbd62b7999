/* members/reader.c -- reads a stream from one of its members, and from another one when that fails, stalls or lacks the
 * newest epoch. */
#include "members/reader.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

#define CHECK_NS 20000000u    /* between two checks of the members that are not read from */
#define AWAY_NS 100000000u    /* before a member that did not answer is asked again */
#define REOPEN_NS 2000000000u /* before it is reopened */

void reader_members_mark_away(struct reader_member *member, int result)
{
	const char *trouble = member->reader->region->last_error;

	if (!member->is_away)
		error_set(&member->trouble, result, 0, "ring \"%s\" does not answer%s%s", member->uri,
			trouble != NULL && *trouble != '\0' ? ": " : "", trouble != NULL ? trouble : "");
	if (!member->is_away)
		member->reopen_at_ns = clock_after_ns(REOPEN_NS);
	member->is_away = true;
	member->check_at_ns = clock_after_ns(AWAY_NS);
	/* A link may reconnect by itself, a removed device does not: while the device is open, the kernel keeps its name
	 * and its locks. */
	if (atomic_load_relaxed(&member->reader->region->is_removed)) {
		member->check_at_ns = 0;
		member->reopen_at_ns = 0;
	}
}

/* has_epoch -- its log is that of the stream. */
static bool has_epoch(const struct reader_members *members, const struct reader_member *member)
{
	return member->reader != NULL && member->reader->superblock.writer_epoch == members->epoch;
}

static void note_epoch(struct reader_members *members, const struct reader_member *member)
{
	if (member->reader->superblock.writer_epoch > members->epoch)
		members->epoch = member->reader->superblock.writer_epoch;
}

void reader_members_set_position(struct reader_members *members, struct reader_member *member)
{
	struct farlog_reader *reader = member->reader;
	bool is_there = reader->cursor.lsn == members->cursor.lsn && reader->cursor.seq == members->cursor.seq &&
		reader->cursor.epoch == members->cursor.epoch;

	reader->floor = members->released;
	if (is_there)
		return;
	reader->cursor = members->cursor;
	reader->cursor.epoch_max = reader->superblock.writer_epoch;
	reader->sure_lsn = 0;
	reader->empty_lsn = UINT64_MAX;
	reader->is_resync_needed = true;
}

/* check_member -- read the header of a member that is not read from, or that did not answer. */
static void check_member(struct reader_members *members, struct reader_member *member, uint64_t now_ns)
{
	int result;

	if (member->reader == NULL || (member->is_away && now_ns < member->check_at_ns))
		return;
	result = region_fetch(member->reader->region, 0, LAYOUT_DATA_OFF);
	if (result == FARLOG_IO && !(member->is_away && now_ns >= member->reopen_at_ns)) {
		reader_members_mark_away(member, result);
		return;
	}
	if (result != FARLOG_OK) { /* the ring was replaced */
		reader_members_reopen(member, result);
		return;
	}
	member->is_away = false;
	member->trouble = (struct farlog_error){0};
	reader_refresh(member->reader);
	note_epoch(members, member);
}

static bool is_readable(const struct reader_members *members, const struct reader_member *member)
{
	return has_epoch(members, member) && !member->is_away;
}

/* check_members -- every CHECK_NS. True: they were checked. */
static bool check_members(struct reader_members *members)
{
	uint64_t now_ns = clock_monotonic_ns();

	if (now_ns < members->check_at_ns)
		return false;
	members->check_at_ns = now_ns + CHECK_NS;
	reader_members_adopt(members);
	for (unsigned i = 0; i < members->count; i++) {
		struct reader_member *member = &members->member[i];

		/* the reads check the member that is read from */
		if (i != members->current || member->is_away || !is_readable(members, member))
			check_member(members, member, now_ns);
		if (members->is_drain && member->reader != NULL && !member->is_away)
			/* it was away when the head was stored last; on failure the next check tries again */
			may_fail(reader_members_store_head(members, member));
	}
	return true;
}

/* read_from -- one member, up to where its log is certainly that of the stream. */
static int read_from(
	struct reader_members *members, struct reader_member *member, void *buf, size_t buf_len, struct farlog_batch *batch)
{
	int result;

	reader_members_set_position(members, member);
	member->held_lsn = 0;
	member->reconnect_count = member->reader->region->reconnect_count;
	result = reader_read_ring(member->reader, buf, buf_len, batch);
	if (result == FARLOG_OK)
		result = reader_members_limit_batch(members, member, buf, batch);
	if (result == FARLOG_IO)
		reader_members_mark_away(member, result);
	if (result == FARLOG_OK)
		members->cursor = member->reader->cursor;
	note_epoch(members, member);
	return result;
}

/* The results of the members that had no batch. */
struct answers {
	unsigned answer_count;
	bool is_corrupt;
	bool is_not_yet;
	bool is_overrun;
};

/* report_no_batch -- and at which position. */
static int report_no_batch(const struct reader_members *members, struct farlog_batch *batch)
{
	*batch = (struct farlog_batch){
		.first_lsn = members->cursor.lsn, .next_lsn = members->cursor.lsn, .next_seq = members->cursor.seq};
	return FARLOG_NOT_YET;
}

/* combine_answers -- of members without a batch. An acknowledged record that one member cannot show is lost only when
 * all members have been asked; a reader that was overtaken stays so, whatever a member says that was away. */
static int combine_answers(
	const struct reader_members *members, const struct answers *answers, struct farlog_batch *batch)
{
	if (answers->is_overrun && !members->is_drain)
		return FARLOG_OVERRUN;
	if (answers->is_corrupt) {
		batch->first_lsn = members->cursor.lsn;
		return answers->answer_count == members->count ? FARLOG_CORRUPT : FARLOG_IO;
	}
	return answers->is_not_yet ? report_no_batch(members, batch) : FARLOG_IO;
}

/* count_answer -- of one member. True: the caller returns it, and asks no other member. */
static bool count_answer(struct answers *answers, struct reader_member *member, int result)
{
	switch (result) {
	case FARLOG_OK:
	case FARLOG_HELD:
	case FARLOG_TOO_LARGE:
	case FARLOG_NO_MEMORY:
		return true;
	case FARLOG_IO:
		return false;
	case FARLOG_NOT_YET:
		answers->is_not_yet = true;
		break;
	case FARLOG_CORRUPT:
		answers->is_corrupt = true;
		break;
	case FARLOG_OVERRUN:
		answers->is_overrun = true;
		break;
	default:
		reader_members_reopen(member, result);
		return false; /* the ring was replaced */
	}
	answers->answer_count++;
	return false;
}

/* is_head_ahead -- an earlier drain went further, as the head of a member says that was away when this drain began, or
 * the floor that a later opening has stored after it: all below is in the store. */
static bool is_head_ahead(const struct reader_members *members)
{
	for (unsigned i = 0; i < members->count && members->is_drain; i++) {
		const struct farlog_reader *reader = members->member[i].reader;

		if (reader != NULL &&
			(reader->released.head_lsn > members->cursor.lsn || reader->superblock.floor_lsn > members->cursor.lsn))
			return true;
	}
	return false;
}

int reader_members_read(struct farlog_reader *front, void *buf, size_t buf_len, struct farlog_batch *batch)
{
	struct reader_members *members = front->members;
	struct answers answers = {0};
	bool is_time = check_members(members);

	memset(batch, 0, sizeof(*batch));
	if (is_head_ahead(members))
		return FARLOG_HELD;
	for (unsigned tried = 0, first = members->current; tried < members->count; tried++) {
		unsigned i = (first + tried) % members->count;
		int result;

		memset(batch, 0, sizeof(*batch));
		if (!is_readable(members, &members->member[i]))
			continue;
		result = read_from(members, &members->member[i], buf, buf_len, batch);
		if (result == FARLOG_OK)
			members->current = i;
		if (count_answer(&answers, &members->member[i], result))
			return result;
		/* NOT_YET is the usual answer: other members are asked only after check_members. */
		if (result == FARLOG_NOT_YET && i == first && !is_time && has_epoch(members, &members->member[i]))
			return report_no_batch(members, batch);
	}
	return combine_answers(members, &answers, batch);
}

static int suspect_members(struct farlog_reader *front, struct farlog_suspect *found)
{
	struct reader_members *members = front->members;
	int result = FARLOG_IO;

	for (unsigned tried = 0; tried < members->count && result == FARLOG_IO; tried++) {
		struct reader_member *member = &members->member[(members->current + tried) % members->count];

		if (!is_readable(members, member))
			continue;
		reader_members_set_position(members, member);
		result = reader_suspect_ring(member->reader, found);
		if (result == FARLOG_IO)
			reader_members_mark_away(member, result);
	}
	return result;
}

/* uuid_of -- of the stream's first member, whichever is read from: stores tell rings apart by it. */
static const uint8_t *uuid_of(const struct reader_members *members)
{
	for (unsigned i = 0; i < members->count; i++) {
		const struct reader_member *member = &members->member[i];

		if (member->ring_uuid != NULL)
			return member->ring_uuid;
		if (member->reader != NULL)
			return member->reader->superblock.ring_uuid;
	}
	return members->uuids[0];
}

static int read_status(struct farlog_reader *front, struct farlog_ring_status *found)
{
	struct reader_members *members = front->members;
	int result = FARLOG_IO;

	check_members(members);
	for (unsigned tried = 0; tried < members->count && result != FARLOG_OK; tried++) {
		struct reader_member *member = &members->member[(members->current + tried) % members->count];

		if (!is_readable(members, member))
			continue;
		result = reader_status_ring(member->reader, found);
		if (result == FARLOG_IO)
			reader_members_mark_away(member, result);
	}
	if (result != FARLOG_OK)
		return result;
	memcpy(found->ring_uuid, uuid_of(members), sizeof(found->ring_uuid));
	if (found->head_lsn < members->released.head_lsn) {
		found->head_lsn = members->released.head_lsn;
		found->head_seq = members->released.head_seq;
		found->last_epoch = members->released.last_epoch;
	}
	if (found->appended_lsn < members->cursor.lsn)
		found->appended_lsn = members->cursor.lsn;
	found->lag_bytes = found->appended_lsn > found->head_lsn ? found->appended_lsn - found->head_lsn : 0;
	return FARLOG_OK;
}

static uint64_t count_reads(const struct farlog_reader *front)
{
	const struct reader_members *members = front->members;
	uint64_t count = 0;

	for (unsigned i = 0; i < members->count; i++)
		if (members->member[i].reader != NULL)
			count += members->member[i].reader->region->read_count;
	return count;
}

static struct region_waits count_waits(const struct farlog_reader *front)
{
	const struct reader_members *members = front->members;
	struct region_waits waits = {0};

	for (unsigned i = 0; i < members->count; i++) {
		const struct farlog_reader *reader = members->member[i].reader;

		waits.count += reader != NULL ? reader->region->waits.count : 0;
		waits.expired_count += reader != NULL ? reader->region->waits.expired_count : 0;
	}
	return waits;
}

static void close_front(struct farlog_reader *front)
{
	reader_members_close(front->members);
}

const struct reader_ops reader_members_ops = {
	.read = reader_members_read,
	.release = reader_members_release,
	.suspect = suspect_members,
	.status = read_status,
	.reads = count_reads,
	.waits = count_waits,
	.close = close_front,
};

unsigned farlog_reader_members(const farlog_reader *reader, struct farlog_member_status *statuses, unsigned count_max)
{
	const struct reader_members *members = reader->members;

	for (unsigned i = 0; members != NULL && i < members->count && i < count_max; i++) {
		const struct reader_member *member = &members->member[i];
		const struct farlog_reader *one = member->reader;

		statuses[i] = (struct farlog_member_status){.state = FARLOG_MEMBER_AWAY, .is_read = i == members->current};
		snprintf(statuses[i].text, sizeof(statuses[i].text), "%s", member->trouble.text);
		if (one == NULL)
			continue;
		statuses[i].writer_epoch = one->superblock.writer_epoch;
		statuses[i].head_lsn = one->released.head_lsn;
		statuses[i].tail_lsn = region_load_word(one->region, LAYOUT_TAIL_HINT_OFF);
		statuses[i].held_lsn = member->held_lsn;
		if (!member->is_away)
			statuses[i].state = has_epoch(members, member) ? FARLOG_MEMBER_UP : FARLOG_MEMBER_STALE;
	}
	return members != NULL ? members->count : 0;
}
