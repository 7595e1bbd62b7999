/* members/reader.c -- reading a stream from one of its members, and from another one when that fails, stands still, or
 * was passed by. */
#include "members/reader.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

#define LOOK_NS 20000000u     /* between two looks at the members that are not read from */
#define AWAY_NS 100000000u    /* before one that did not answer is asked again */
#define REOPEN_NS 2000000000u /* before it is opened anew */

void reader_members_away(struct reader_member *member, int result)
{
	const char *trouble = member->reader->region->trouble;

	if (!member->is_away)
		error_set(&member->trouble, result, 0, "ring \"%s\" does not answer%s%s", member->uri,
			trouble != NULL && *trouble != '\0' ? ": " : "", trouble != NULL ? trouble : "");
	if (!member->is_away)
		member->reopen_at_ns = clock_after_ns(REOPEN_NS);
	member->is_away = true;
	member->look_at_ns = clock_after_ns(AWAY_NS);
	/* A link may come back by itself, a device that was removed does not: while it is held, the kernel keeps its name,
	 * and its locks. */
	if (atomic_load_relaxed(&member->reader->region->is_removed)) {
		member->look_at_ns = 0;
		member->reopen_at_ns = 0;
	}
}

/* has_epoch -- its log is the stream's. */
static bool has_epoch(const struct reader_members *members, const struct reader_member *member)
{
	return member->reader != NULL && member->reader->superblock.writer_epoch == members->epoch;
}

static void note_epoch(struct reader_members *members, const struct reader_member *member)
{
	if (member->reader->superblock.writer_epoch > members->epoch)
		members->epoch = member->reader->superblock.writer_epoch;
}

void reader_members_place(struct reader_members *members, struct reader_member *member)
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
	reader->barren_lsn = UINT64_MAX;
	reader->is_resync_needed = true;
}

/* look_at -- a member that is not read from, or did not answer: what epoch does it have? */
static void look_at(struct reader_members *members, struct reader_member *member, uint64_t now_ns)
{
	int result;

	if (member->reader == NULL || (member->is_away && now_ns < member->look_at_ns))
		return;
	result = region_fetch(member->reader->region, 0, LAYOUT_DATA_OFF);
	if (result == FARLOG_IO && !(member->is_away && now_ns >= member->reopen_at_ns)) {
		reader_members_away(member, result);
		return;
	}
	if (result != FARLOG_OK) { /* it will never be that ring again */
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

/* look_around -- now and then. True: it was time to. */
static bool look_around(struct reader_members *members)
{
	uint64_t now_ns = clock_monotonic_ns();

	if (now_ns < members->look_at_ns)
		return false;
	members->look_at_ns = now_ns + LOOK_NS;
	reader_members_adopt(members);
	for (unsigned i = 0; i < members->count; i++) {
		struct reader_member *member = &members->member[i];

		/* what is read from is looked at by that */
		if (i != members->current || member->is_away || !is_readable(members, member))
			look_at(members, member, now_ns);
		if (members->is_drain && member->reader != NULL && !member->is_away)
			/* one that was away when the head was moved last; what fails is tried again */
			may_fail(reader_members_raise(members, member));
	}
	return true;
}

/* read_from -- one member, as far as what it has is the stream's. */
static int read_from(
	struct reader_members *members, struct reader_member *member, void *buf, size_t buf_len, struct farlog_batch *batch)
{
	int result;

	reader_members_place(members, member);
	member->held_lsn = 0;
	member->comeback_count = member->reader->region->comeback_count;
	result = reader_read_ring(member->reader, buf, buf_len, batch);
	if (result == FARLOG_OK)
		result = reader_members_hold_back(members, member, buf, batch);
	if (result == FARLOG_IO)
		reader_members_away(member, result);
	if (result == FARLOG_OK)
		members->cursor = member->reader->cursor;
	note_epoch(members, member);
	return result;
}

/* What the members have said that had no batch. */
struct verdict {
	unsigned answer_count;
	bool is_corrupt;
	bool is_not_yet;
	bool is_overrun;
};

/* nothing_new -- and where it would be. */
static int nothing_new(const struct reader_members *members, struct farlog_batch *batch)
{
	*batch = (struct farlog_batch){
		.first_lsn = members->cursor.lsn, .next_lsn = members->cursor.lsn, .next_seq = members->cursor.seq};
	return FARLOG_NOT_YET;
}

/* decide -- nobody has a batch. A record that one member cannot show although it was acknowledged is lost only when all
 * have been asked; a reader that was overtaken is late, whatever a member says that was not there. */
static int decide(const struct reader_members *members, const struct verdict *verdict, struct farlog_batch *batch)
{
	if (verdict->is_overrun && !members->is_drain)
		return FARLOG_OVERRUN;
	if (verdict->is_corrupt) {
		batch->first_lsn = members->cursor.lsn;
		return verdict->answer_count == members->count ? FARLOG_CORRUPT : FARLOG_IO;
	}
	return verdict->is_not_yet ? nothing_new(members, batch) : FARLOG_IO;
}

/* count_in -- what one has said. True: it is the caller's to know, and no other member need be asked. */
static bool count_in(struct verdict *verdict, struct reader_member *member, int result)
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
		verdict->is_not_yet = true;
		break;
	case FARLOG_CORRUPT:
		verdict->is_corrupt = true;
		break;
	case FARLOG_OVERRUN:
		verdict->is_overrun = true;
		break;
	default:
		reader_members_reopen(member, result);
		return false; /* it will never be that ring again */
	}
	verdict->answer_count++;
	return false;
}

/* is_passed_by -- a drain before this one went further, as a member tells that was away when this one began: all below
 * its head is in the store. */
static bool is_passed_by(const struct reader_members *members)
{
	for (unsigned i = 0; i < members->count && members->is_drain; i++)
		if (members->member[i].reader != NULL && members->member[i].reader->released.head_lsn > members->cursor.lsn)
			return true;
	return false;
}

int reader_members_read(struct reader_members *members, void *buf, size_t buf_len, struct farlog_batch *batch)
{
	struct verdict verdict = {0};
	bool is_time = look_around(members);

	memset(batch, 0, sizeof(*batch));
	if (is_passed_by(members))
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
		if (count_in(&verdict, &members->member[i], result))
			return result;
		/* Nothing new is the usual answer: only now and then, whether another one has something. */
		if (result == FARLOG_NOT_YET && i == first && !is_time && has_epoch(members, &members->member[i]))
			return nothing_new(members, batch);
	}
	return decide(members, &verdict, batch);
}

int reader_members_suspect(struct reader_members *members, struct farlog_suspect *suspect)
{
	int result = FARLOG_IO;

	for (unsigned tried = 0; tried < members->count && result == FARLOG_IO; tried++) {
		struct reader_member *member = &members->member[(members->current + tried) % members->count];

		if (!is_readable(members, member))
			continue;
		reader_members_place(members, member);
		result = reader_suspect_ring(member->reader, suspect);
		if (result == FARLOG_IO)
			reader_members_away(member, result);
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

int reader_members_status(struct reader_members *members, struct farlog_ring_status *status)
{
	int result = FARLOG_IO;

	look_around(members);
	for (unsigned tried = 0; tried < members->count && result != FARLOG_OK; tried++) {
		struct reader_member *member = &members->member[(members->current + tried) % members->count];

		if (!is_readable(members, member))
			continue;
		result = reader_status_ring(member->reader, status);
		if (result == FARLOG_IO)
			reader_members_away(member, result);
	}
	if (result != FARLOG_OK)
		return result;
	memcpy(status->ring_uuid, uuid_of(members), sizeof(status->ring_uuid));
	if (status->head_lsn < members->released.head_lsn) {
		status->head_lsn = members->released.head_lsn;
		status->head_seq = members->released.head_seq;
		status->last_epoch = members->released.last_epoch;
	}
	if (status->appended_lsn < members->cursor.lsn)
		status->appended_lsn = members->cursor.lsn;
	status->lag_bytes = status->appended_lsn > status->head_lsn ? status->appended_lsn - status->head_lsn : 0;
	return FARLOG_OK;
}

uint64_t reader_members_reads(const struct reader_members *members)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < members->count; i++)
		if (members->member[i].reader != NULL)
			count += members->member[i].reader->region->read_count;
	return count;
}

struct region_waits reader_members_waits(const struct reader_members *members)
{
	struct region_waits waits = {0};

	for (unsigned i = 0; i < members->count; i++) {
		const struct farlog_reader *reader = members->member[i].reader;

		waits.count += reader != NULL ? reader->region->waits.count : 0;
		waits.expired_count += reader != NULL ? reader->region->waits.expired_count : 0;
	}
	return waits;
}

/* ---------------------------------------------------------------- what the caller of the public functions has */

static int front_read(struct farlog_reader *front, void *buf, size_t buf_len, struct farlog_batch *batch)
{
	return reader_members_read(front->members, buf, buf_len, batch);
}

static int front_release(struct farlog_reader *front, const struct head_slot *slot)
{
	return reader_members_release(front->members, slot);
}

static int front_suspect(struct farlog_reader *front, struct farlog_suspect *suspect)
{
	return reader_members_suspect(front->members, suspect);
}

static int front_status(struct farlog_reader *front, struct farlog_ring_status *status)
{
	return reader_members_status(front->members, status);
}

static uint64_t front_reads(const struct farlog_reader *front)
{
	return reader_members_reads(front->members);
}

static struct region_waits front_waits(const struct farlog_reader *front)
{
	return reader_members_waits(front->members);
}

static void front_close(struct farlog_reader *front)
{
	reader_members_close(front->members);
}

const struct reader_ops reader_members_ops = {
	.read = front_read,
	.release = front_release,
	.suspect = front_suspect,
	.status = front_status,
	.reads = front_reads,
	.waits = front_waits,
	.close = front_close,
};

unsigned farlog_reader_members(const farlog_reader *reader, struct farlog_member_status *statuses, unsigned room)
{
	const struct reader_members *members = reader->members;

	for (unsigned i = 0; members != NULL && i < members->count && i < room; i++) {
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
