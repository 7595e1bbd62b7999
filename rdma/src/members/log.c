/* members/log.c -- which of the members' logs is the stream's, and how all come to hold it
 * (docs/explanation/members.md).
 *
 * Each acknowledged record is on k members, so that of any n - k + 1 members one has it; and a member counted only
 * while its log had no hole. So of all logs with the highest last epoch the longest has all acknowledged records. It is
 * copied to the other members, durably, before the new epoch is stored there; and the epoch is on k members before its
 * first record is written, so that no two writers ever have the same epoch. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "members/members.h"
#include "region/superblock.h"

#define HEADS_LEN (2 * LAYOUT_LINE_LEN)

static uint32_t epoch_of(const struct member *member)
{
	return member->superblock.writer_epoch;
}

/* ---------------------------------------------------------------- the header that the writer sees */

int members_load_header(struct member *member, struct farlog_error *error)
{
	int result = superblock_load(member->region, member->uri, &member->superblock, error);
	uint64_t fence = region_load_word(member->region, LAYOUT_FENCE_OFF);

	if (result != FARLOG_OK)
		return result;
	if (!head_load(member->region, &member->superblock, &member->head))
		return error_set(error, FARLOG_CORRUPT, 0, "both head slots fail their check");
	head_raise_to_floor(&member->superblock, &member->head);
	if (fence > member->fence)
		member->fence = fence;
	return FARLOG_OK;
}

static void put_header(struct region_members *whole, const struct head_slot *start)
{
	struct superblock *superblock = &whole->superblock;
	struct head_slot slot = *start;

	superblock_seal(superblock);
	memcpy(whole->copy + LAYOUT_SUPERBLOCK_A_OFF, superblock, sizeof(*superblock));
	head_seal(superblock, &slot);
	memcpy(whole->copy + LAYOUT_HEAD_A_OFF, &slot, sizeof(slot));
}

void members_build_header(struct region_members *whole)
{
	const struct member *newest = NULL;
	const struct member *highest = NULL;
	static const uint8_t any[16];
	uint8_t ring_uuid[16];

	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];

		if (!member_is_open(member) || members_load_header(member, NULL) != FARLOG_OK)
			continue;
		if (newest == NULL)
			memcpy(ring_uuid, member->superblock.ring_uuid, sizeof(ring_uuid));
		if (newest == NULL || epoch_of(member) > epoch_of(newest))
			newest = member;
		if (highest == NULL || member->head.head_lsn > highest->head.head_lsn)
			highest = member;
	}
	if (newest == NULL)
		return;
	if (memcmp(whole->first_uuid, any, sizeof(any)) != 0)
		/* the first member's, also while it is not open: counters are found by it */
		memcpy(ring_uuid, whole->first_uuid, sizeof(ring_uuid));
	if (!whole->is_opened) {
		uint32_t block_len = whole->superblock.block_len;

		whole->superblock = newest->superblock;
		whole->superblock.block_len = block_len;
		memcpy(whole->superblock.ring_uuid, ring_uuid, sizeof(ring_uuid));
		/* Without a grant the writer chooses an epoch that no member rejects. */
		atomic_store_release((uint64_t *)(whole->copy + LAYOUT_FENCE_OFF),
			members_fence(whole, whole->requested_epoch != 0 ? whole->count - whole->needed + 1 : 1));
	}
	put_header(whole, &highest->head);
}

/* ---------------------------------------------------------------- the logs */

int members_flush_header(struct member *member, struct farlog_error *error)
{
	struct region *region = member->region;
	int result = region->ops->data.flush(region, 0, LAYOUT_DATA_OFF);

	if (result == FARLOG_OK)
		result = region_fetch(region, 0, LAYOUT_DATA_OFF);
	if (result != FARLOG_OK)
		return region_set_error(region, result, "flush and read header of ring", member->uri, error);
	result = members_load_header(member, error);
	if (result == FARLOG_OK && region->ops->data.flush(region, LAYOUT_HEAD_A_OFF, HEADS_LEN) != FARLOG_OK)
		result = region_set_error(region, FARLOG_IO, "flush head of ring", member->uri, error);
	return result;
}

/* is_place -- can this LSN be in the ring? The bytes may be foreign. */
static bool is_place(const struct region_members *whole, uint64_t lsn)
{
	uint64_t start_lsn = whole->start.head_lsn;

	return lsn % whole->superblock.align == 0 && lsn > start_lsn && lsn - start_lsn <= whole->capacity;
}

/* is_short_of -- was the log of a member durable up to there once, and ends before? */
static bool is_short_of(const struct region_members *whole, const struct member *member, uint64_t lsn)
{
	return is_place(whole, lsn) && member->scan.tail.lsn < lsn;
}

/* has_lost -- records that it had confirmed. Its durable hint says how far its log was durable and acknowledged. Where
 * a power cut took the hint, its superblock says as much: an epoch is stored there only when it has all below the
 * beginning of the epoch, durably. That is not asked of a member that knows only an earlier epoch: those with the
 * newest one have all that it had. */
static bool has_lost(const struct region_members *whole, const struct member *member)
{
	uint64_t hint_lsn = region_load_word(member->region, LAYOUT_DURABLE_HINT_OFF);
	bool is_newest = epoch_of(member) == whole->epoch_last;

	if (is_short_of(whole, member, hint_lsn))
		return true;
	return is_newest && is_short_of(whole, member, member->superblock.epoch_start_lsn);
}

/* classify_log -- may this member's log count? Not that of a new ring among others that are not new: the ring that it
 * replaced may have had the only copy. Nor that of a ring that lost records. */
static void classify_log(struct region_members *whole, struct member *member)
{
	member->is_fresh = epoch_of(member) == 0 && whole->epoch_last != 0;
	member->is_damaged = has_lost(whole, member);
	member->is_sound = !member->is_fresh && !member->is_damaged;
}

/* is_preferred -- of equal logs the one that was scanned last: the records of a remote one are in the copy already. */
static bool is_preferred(const struct member *member, const struct member *best)
{
	uint32_t epoch = member->scan.tail.epoch;

	if (best == NULL)
		return true;
	if (epoch != best->scan.tail.epoch)
		return epoch > best->scan.tail.epoch;
	if (member->scan.tail.lsn != best->scan.tail.lsn)
		return member->scan.tail.lsn > best->scan.tail.lsn;
	return member->region->caps.has_copy;
}

/* scan_member -- the records of a remote member are read into the copy, over those of the one before. */
static int scan_member(struct region_members *whole, struct member *member, struct farlog_error *error)
{
	struct superblock superblock = member->superblock;

	superblock.writer_epoch = whole->epoch_last;
	superblock.epoch_start_lsn = whole->epoch_last_start_lsn;
	superblock.block_len = whole->superblock.block_len;
	if (recover_scan(member->region, &superblock, &whole->start, &member->scan) != FARLOG_OK)
		return region_set_error(member->region, FARLOG_IO, "read undrained records of ring", member->uri, error);
	classify_log(whole, member);
	return FARLOG_OK;
}

static void find_start(struct region_members *whole)
{
	const struct member *highest = NULL;

	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];

		if (member_state(member) != MEMBER_READY)
			continue;
		if (highest == NULL || member->head.head_lsn > highest->head.head_lsn)
			highest = member;
		if (epoch_of(member) > whole->epoch_last) {
			whole->epoch_last = epoch_of(member);
			whole->epoch_last_start_lsn = member->superblock.epoch_start_lsn;
		}
	}
	if (highest != NULL)
		whole->start = highest->head;
}

/* find_best -- scan all members, local ones last, since they leave in the copy what a remote one brought. *last_remote:
 * the remote member that was scanned last. */
static struct member *find_best(struct region_members *whole, struct member **last_remote)
{
	struct member *best = NULL;

	*last_remote = NULL;
	for (unsigned turn = 0; turn < 2 * whole->count; turn++) {
		struct member *member = &whole->members[turn % whole->count];
		bool is_remote_pass = turn < whole->count;
		struct farlog_error why = {0};

		if (member_state(member) != MEMBER_READY || member->region->caps.has_copy != is_remote_pass)
			continue;
		if (is_remote_pass)
			*last_remote = member; /* also when its scan fails midway */
		if (scan_member(whole, member, &why) != FARLOG_OK) {
			members_close_one(whole, member, &why);
			continue;
		}
		if (member->is_sound && is_preferred(member, best))
			best = member;
	}
	return best;
}

/* terminate_copy -- records of a remote member behind the best log, which failed or was found unsound, are not part of
 * the log. */
static void terminate_copy(struct region_members *whole, uint64_t tail_lsn)
{
	if (tail_lsn - whole->start.head_lsn < whole->capacity)
		memset(whole->copy + LAYOUT_DATA_OFF + tail_lsn % whole->capacity, 0, RECORD_HEADER_LEN);
}

/* check_copy -- walk the copy once more before it is sent and appended to: the writer that walks it next must find the
 * same end. */
static int check_copy(struct region_members *whole, uint64_t tail_lsn, struct farlog_error *error)
{
	struct superblock superblock = whole->superblock;
	struct recover_scan scan;

	superblock.writer_epoch = whole->epoch_last;
	if (recover_scan(&whole->region, &superblock, &whole->start, &scan) == FARLOG_OK && scan.tail.lsn == tail_lsn)
		return FARLOG_OK;
	return error_set(error, FARLOG_CORRUPT, 0,
		"members \"%s\": the longest log was read up to lsn %lu, and came up to lsn %lu; try again", whole->text,
		tail_lsn, scan.tail.lsn);
}

/* copy_best_log -- into the copy. */
static int copy_best_log(
	struct region_members *whole, struct member *best, const struct member *last_remote, struct farlog_error *error)
{
	struct region_span spans[2];
	unsigned span_count = members_spans(whole, whole->start.head_lsn, best->scan.tail.lsn, spans);
	uint64_t tail_lsn = best->scan.tail.lsn;

	if (best->region->caps.has_copy && best != last_remote) {
		if (scan_member(whole, best, error) != FARLOG_OK)
			return FARLOG_IO;
		if (best->scan.tail.lsn != tail_lsn)
			return error_set(error, FARLOG_CORRUPT, 0, "its log ended at lsn %lu and then at lsn %lu", tail_lsn,
				best->scan.tail.lsn);
	}
	for (unsigned i = 0; i < span_count && !best->region->caps.has_copy; i++)
		memcpy(whole->copy + spans[i].off, best->region->base + spans[i].off, spans[i].len);
	terminate_copy(whole, tail_lsn);
	return check_copy(whole, tail_lsn, error);
}

/* send_lacking -- from where its log differs from the best one. The LBA in which that is holds records of both: it is
 * sent by itself, so that it is never torn. */
static int send_lacking(struct region_members *whole, struct member *member, uint64_t from_lsn, uint64_t to_lsn)
{
	uint64_t unit = whole->superblock.block_len != 0 ? whole->superblock.block_len : 1;
	int result = FARLOG_OK;

	while (from_lsn < to_lsn && result == FARLOG_OK) {
		uint64_t end_lsn = from_lsn % unit != 0 ? (from_lsn + unit) & ~(unit - 1) : to_lsn;
		struct region_span spans[2];
		unsigned span_count = members_spans(whole, from_lsn, end_lsn < to_lsn ? end_lsn : to_lsn, spans);

		members_write(whole, member, spans, span_count);
		result = region_persist_wait(member->region, spans, span_count);
		from_lsn = end_lsn;
	}
	return result;
}

/* repair_member -- make it have all of the best log, durably. */
static int repair_member(
	struct region_members *whole, struct member *member, const struct member *best, struct farlog_error *error)
{
	uint64_t tail_lsn = best->scan.tail.lsn;
	uint64_t from_lsn = member == best ? tail_lsn : recover_common_lsn(&member->scan, &best->scan);
	struct region_span spans[2];
	unsigned span_count = members_spans(whole, whole->start.head_lsn, from_lsn, spans);
	int result = FARLOG_OK;

	for (unsigned i = 0; i < span_count && result == FARLOG_OK; i++)
		result = member->region->ops->data.flush(member->region, spans[i].off, spans[i].len);
	if (result == FARLOG_OK)
		result = send_lacking(whole, member, from_lsn, tail_lsn);
	if (result != FARLOG_OK)
		return error_set(error, result, 0, "copy undrained records to it");
	member->durable_lsn = tail_lsn;
	return FARLOG_OK;
}

/* check_acknowledged -- no open member has a durable hint beyond the end of the log. A hint covers acknowledged records
 * (members_hint), and every log that can be chosen has these while one member at most has lost records. So a member
 * with a higher hint has lost some itself, and so has another one whose hint does not show it. To continue would drop
 * acknowledged records. An operator can open without that member. */
static int check_acknowledged(struct region_members *whole, uint64_t tail_lsn, struct farlog_error *error)
{
	for (unsigned i = 0; i < whole->count; i++) {
		const struct member *member = &whole->members[i];
		uint64_t hint_lsn;

		if (member_state(member) != MEMBER_READY)
			continue;
		hint_lsn = region_load_word(member->region, LAYOUT_DURABLE_HINT_OFF);
		if (is_place(whole, hint_lsn) && hint_lsn > tail_lsn)
			return error_set(error, FARLOG_CORRUPT, 0,
				"members \"%s\": the log ends at lsn %lu, and member %u, \"%s\", was told that records up to lsn %lu "
				"are acknowledged: they are lost on the members that are reached; bring back a member that is away, "
				"or copy the rings and accept the loss by opening without that member "
				"(docs/how-to/repair-damaged-members.md)",
				whole->text, tail_lsn, i + 1, member->uri, hint_lsn);
	}
	return FARLOG_OK;
}

/* Each step is for every open member; one that fails is closed. */

static void flush_headers(struct region_members *whole)
{
	for (unsigned i = 0; i < whole->count; i++) {
		struct farlog_error why = {0};

		if (member_state(&whole->members[i]) == MEMBER_READY &&
			members_flush_header(&whole->members[i], &why) != FARLOG_OK)
			members_close_one(whole, &whole->members[i], &why);
	}
}

static void repair_all(struct region_members *whole, const struct member *best)
{
	for (unsigned i = 0; i < whole->count; i++) {
		struct farlog_error why = {0};

		if (member_state(&whole->members[i]) == MEMBER_READY &&
			repair_member(whole, &whole->members[i], best, &why) != FARLOG_OK)
			members_close_one(whole, &whole->members[i], &why);
	}
}

/* lacks_epoch_quorum -- fewer members with the best log know the newest epoch than an acknowledgement needs. */
static bool lacks_epoch_quorum(const struct region_members *whole)
{
	unsigned count = 0;

	for (unsigned i = 0; i < whole->count; i++)
		count += member_state(&whole->members[i]) == MEMBER_READY && epoch_of(&whole->members[i]) == whole->epoch_last;
	return count < whole->needed;
}

/* publish_log -- the writer finds a ring at rest in the copy. */
static void publish_log(struct region_members *whole, const struct member *best)
{
	whole->requested_lsn = best->scan.tail.lsn;
	whole->region.lacks_epoch_quorum = lacks_epoch_quorum(whole);
	atomic_store_release((uint64_t *)(whole->copy + LAYOUT_CREDIT_OFF), whole->start.head_lsn);
	/* the hints of the members have been checked */
	atomic_store_release((uint64_t *)(whole->copy + LAYOUT_DURABLE_HINT_OFF), 0);
	put_header(whole, &whole->start);
}

int members_recover(struct region *region, struct farlog_error *error)
{
	struct region_members *whole = members_of(region);
	struct member *last_remote;
	struct member *best;
	int result;

	flush_headers(whole);
	find_start(whole);
	whole->capacity = whole->superblock.capacity;
	best = find_best(whole, &last_remote);
	result = members_check_count(whole, error);
	if (result == FARLOG_OK)
		result = members_check_first(whole, error);
	if (result != FARLOG_OK)
		return result;
	if (whole->start.last_epoch > whole->epoch_last)
		return error_set(error, FARLOG_CORRUPT, 0,
			"members \"%s\": records of epoch %u were drained, but no member knows an epoch above %u", whole->text,
			whole->start.last_epoch, whole->epoch_last);
	result = check_acknowledged(whole, best->scan.tail.lsn, error);
	if (result == FARLOG_OK)
		result = copy_best_log(whole, best, last_remote, error);
	if (result != FARLOG_OK)
		return result;
	repair_all(whole, best);
	result = members_check_count(whole, error);
	if (result == FARLOG_OK)
		publish_log(whole, best);
	return result;
}

/* ---------------------------------------------------------------- the epoch */

int members_store_epoch(struct region_members *whole, struct member *member)
{
	struct superblock superblock = member->superblock;
	const struct superblock *epoch = &whole->superblock;
	const struct head_slot *floor = member->is_new ? &member->floor : &whole->start;
	int result;

	superblock.writer_epoch = epoch->writer_epoch;
	superblock.epoch_start_lsn =
		epoch->epoch_start_lsn > member->head.head_lsn ? epoch->epoch_start_lsn : member->head.head_lsn;
	superblock.epoch_start_seq = epoch->epoch_start_seq;
	if (member->is_new && superblock.epoch_start_lsn < floor->head_lsn) { /* an epoch never begins below the head */
		superblock.epoch_start_lsn = floor->head_lsn;
		superblock.epoch_start_seq = floor->head_seq;
	}
	superblock.epoch_opened_ns = epoch->epoch_opened_ns;
	memcpy(superblock.writer_id, epoch->writer_id, sizeof(superblock.writer_id));
	if (floor->head_lsn > superblock.floor_lsn) {
		superblock.floor_lsn = floor->head_lsn;
		superblock.floor_seq = floor->head_seq;
		superblock.floor_epoch = floor->last_epoch;
	}
	memcpy(superblock.writer_host, &member->region->host, sizeof(superblock.writer_host));
	result = superblock_store(member->region, &superblock, true);
	if (result != FARLOG_OK)
		return result;
	/* It ends the claim that other hosts see on the device, and cannot fail: the next opener replaces a claim that is
	 * left. */
	may_fail(region_claim(
		member->region, &(struct region_claim){.kind = REGION_CLAIM_EPOCH_STORED, .uri = member->uri}, NULL));
	member->superblock = superblock;
	member->knows_epoch = true;
	atomic_store_release(&member->has_epoch, 1);
	if (member->credit_lsn < superblock.floor_lsn)
		member->credit_lsn = superblock.floor_lsn;
	if (member->credit_lsn < member->head.head_lsn)
		member->credit_lsn = member->head.head_lsn;
	return FARLOG_OK;
}

/* propose_to -- store the new epoch in all open members that know the log, or in the new ones. Returns how many know it
 * now. */
static unsigned propose_to(struct region_members *whole, bool are_fresh, bool *is_fenced)
{
	unsigned count = 0;

	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];
		struct farlog_error why = {.result = FARLOG_IO, .text = "it did not store the new epoch"};

		if (member_state(member) != MEMBER_READY || member->is_fresh != are_fresh)
			continue;
		why.result = members_store_epoch(whole, member);
		*is_fenced |= why.result == FARLOG_FENCED;
		if (why.result != FARLOG_OK) {
			members_close_one(whole, member, &why);
			continue;
		}
		count++;
	}
	return count;
}

/* members_store_superblock -- store the new epoch in all open members. New ones come last, when so many others know
 * the epoch that the one before has ended wherever its writer might still write, also in a ring that was replaced.
 * From then on new members count like the others. */
int members_store_superblock(struct region *region, uint64_t off, const void *src, size_t len, bool is_persisted)
{
	struct region_members *whole = members_of(region);
	unsigned needed = member_quorum(whole->count, whole->needed);
	bool is_fenced = false;
	unsigned count;

	(void)is_persisted; /* each member persists it */
	memcpy(&whole->superblock, src, sizeof(whole->superblock));
	memcpy(whole->copy + off, src, len);
	atomic_store_relaxed(&whole->epoch, whole->superblock.writer_epoch);
	count = propose_to(whole, false, &is_fenced);
	if (count >= members_quorum(whole))
		count += propose_to(whole, true, &is_fenced);
	for (unsigned i = 0; i < whole->count; i++)
		if (member_state(&whole->members[i]) == MEMBER_READY) {
			whole->members[i].knows_epoch = true;
			atomic_store_release(&whole->members[i].state, MEMBER_ACTIVE);
		}
	if (count < needed)
		return is_fenced ? FARLOG_FENCED : FARLOG_IO;
	pthread_mutex_lock(&whole->mutex);
	atomic_store_release(&whole->is_opened, 1);
	pthread_cond_broadcast(&whole->changed);
	pthread_mutex_unlock(&whole->mutex);
	members_start_populator(whole);
	return FARLOG_OK;
}
