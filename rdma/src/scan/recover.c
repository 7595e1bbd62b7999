/* scan/recover.c -- finding the tail. */
#include "scan/recover.h"

#include "region/superblock.h"

#include <string.h>

#define FETCH_LEN (1u << 20)

/* fetch_to -- bring the ring's bytes up to that LSN into what base shows; those below shown_lsn are there. A near
 * region shows all. */
static int fetch_to(struct region *region, uint64_t capacity, struct recover_scan *scan, uint64_t to_lsn)
{
	int result = FARLOG_OK;

	while (scan->shown_lsn < to_lsn && result == FARLOG_OK) {
		uint64_t off = scan->shown_lsn % capacity;
		uint64_t len = to_lsn - scan->shown_lsn < capacity - off ? to_lsn - scan->shown_lsn : capacity - off;

		result = region_fetch(region, LAYOUT_DATA_OFF + off, len);
		if (result == FARLOG_OK)
			scan->shown_lsn += len;
	}
	return result;
}

/* check_far -- record_check where the bytes come in pieces, the last of a lap up to the ring's end: what ends with a
 * piece is no end of the log. */
static int check_far(struct region *region, const struct record_identity *identity, uint64_t end_lsn,
	struct recover_scan *scan, enum record_verdict *verdict, struct record_found *found)
{
	uint64_t off = scan->tail.lsn % identity->capacity;

	for (;;) {
		uint64_t left_in_lap = identity->capacity - scan->shown_lsn % identity->capacity;
		uint64_t to_lsn = scan->shown_lsn + (FETCH_LEN < left_in_lap ? FETCH_LEN : left_in_lap);
		int result;

		*verdict = record_check(
			identity, &scan->tail, region->base + LAYOUT_DATA_OFF + off, scan->shown_lsn - scan->tail.lsn, found);
		if (*verdict != RECORD_CUT || scan->shown_lsn == end_lsn)
			return FARLOG_OK;
		result = fetch_to(region, identity->capacity, scan, to_lsn < end_lsn ? to_lsn : end_lsn);
		if (result != FARLOG_OK)
			return result;
	}
}

static void note_turn(struct recover_scan *scan, uint32_t epoch)
{
	if (scan->turn_count > 0 && scan->turns[scan->turn_count - 1].epoch == epoch)
		return;
	if (scan->turn_count < RECOVER_TURN_COUNT)
		scan->turns[scan->turn_count++] = (struct recover_turn){scan->tail.lsn, epoch};
	else if (scan->turns_end_lsn == UINT64_MAX)
		scan->turns_end_lsn = scan->tail.lsn;
}

static uint64_t turn_lsn(const struct recover_scan *scan, unsigned turn)
{
	uint64_t end_lsn = scan->turns_end_lsn < scan->tail.lsn ? scan->turns_end_lsn : scan->tail.lsn;

	return turn < scan->turn_count ? scan->turns[turn].lsn : end_lsn;
}

/* is_same_turn -- the epoch alone does not tell: where a power cut took the first record of an epoch and left a PAD
 * behind it, what lies there of an earlier epoch may make the log go on to that PAD, and the epoch begin with it. */
static bool is_same_turn(const struct recover_turn *one, const struct recover_turn *other)
{
	return one->epoch == other->epoch && one->lsn == other->lsn;
}

uint64_t recover_common_lsn(const struct recover_scan *one, const struct recover_scan *other)
{
	unsigned turn = 0;
	uint64_t one_lsn;
	uint64_t other_lsn;

	while (turn < one->turn_count && turn < other->turn_count && is_same_turn(&one->turns[turn], &other->turns[turn]))
		turn++;
	one_lsn = turn_lsn(one, turn);
	other_lsn = turn_lsn(other, turn);
	return one_lsn < other_lsn ? one_lsn : other_lsn;
}

/* is_cut -- a record in whose place a later epoch began. Of several members one that that epoch's writer did not have
 * may hold more of the one before, and a drain may have seen the log go on without it. Those who go by no order of
 * epochs do not look at this either. */
static bool is_cut(const struct superblock *superblock, uint64_t lsn, uint32_t epoch)
{
	return lsn >= superblock->epoch_start_lsn && epoch < superblock->writer_epoch;
}

int recover_scan(
	struct region *region, const struct superblock *superblock, const struct head_slot *head, struct recover_scan *scan)
{
	struct record_identity identity = superblock_identity(superblock);
	const uint8_t *data = region->base + LAYOUT_DATA_OFF;
	uint64_t off = head->head_lsn % identity.capacity;
	uint64_t end_lsn = head->head_lsn + identity.capacity;
	enum record_verdict verdict;
	struct record_found found;
	int result = FARLOG_OK;

	memset(scan, 0, sizeof(*scan));
	scan->tail = (struct record_cursor){
		.lsn = head->head_lsn, .seq = head->head_seq, .epoch = head->last_epoch, .epoch_max = superblock->writer_epoch};
	scan->shown_lsn = region->caps.needs_fetch ? head->head_lsn : end_lsn;
	scan->turns_end_lsn = UINT64_MAX;
	while (result == FARLOG_OK && scan->tail.lsn < end_lsn) {
		if (region->caps.needs_fetch)
			result = check_far(region, &identity, end_lsn, scan, &verdict, &found);
		else
			verdict = record_check(&identity, &scan->tail, data + off, identity.capacity - off, &found);
		if (result != FARLOG_OK || verdict != RECORD_VALID)
			break;
		if (is_cut(superblock, scan->tail.lsn, found.epoch))
			break;
		note_turn(scan, found.epoch);
		record_advance(&scan->tail, &found);
		off += found.extent;
		if (off == identity.capacity)
			off = 0;
		if (found.flags & RECORD_FLAG_PAD)
			continue;
		if (scan->record_count++ == 0)
			scan->oldest_ts_ns = found.ts_ns;
		scan->newest_ts_ns = found.ts_ns;
	}
	return result == FARLOG_OK && region_has_lost_page(region) ? FARLOG_IO : result;
}

uint64_t recover_acknowledged_lsn(
	const struct region *region, const struct superblock *superblock, const struct head_slot *head)
{
	uint64_t lsn = region_load_word(region, LAYOUT_DURABLE_HINT_OFF);

	return lsn % superblock->align == 0 && lsn - head->head_lsn <= superblock->capacity ? lsn : head->head_lsn;
}

/* ends_commit -- a PAD up to the end of an LBA, and not of the ring: it is the last of a commit. */
static bool ends_commit(const struct record_identity *identity, uint64_t lsn, const struct record_found *found)
{
	uint64_t end_lsn = lsn + found->extent;

	return (found->flags & RECORD_FLAG_PAD) != 0 && identity->block_len != 0 && end_lsn % identity->block_len == 0 &&
		end_lsn % identity->capacity != 0;
}

int recover_orphans(struct region *region, const struct superblock *superblock, struct recover_scan *scan,
	uint64_t head_lsn, uint64_t window, struct recover_orphans *orphans)
{
	const struct record_cursor *tail = &scan->tail;
	struct record_identity identity = superblock_identity(superblock);
	const uint8_t *data = region->base + LAYOUT_DATA_OFF;
	uint64_t end_lsn = tail->lsn + window;
	struct record_found found;
	bool is_behind_commit = false;
	int result;

	*orphans = (struct recover_orphans){.later_lsn = UINT64_MAX};
	if (end_lsn > head_lsn + identity.capacity)
		end_lsn = head_lsn + identity.capacity;
	result = fetch_to(region, identity.capacity, scan, end_lsn);
	if (result != FARLOG_OK)
		return result;
	for (uint64_t lsn = tail->lsn + identity.align; lsn < end_lsn;) {
		uint64_t off = lsn % identity.capacity;
		struct record_header header;
		struct record_cursor here = {.lsn = lsn, .epoch_max = tail->epoch_max};

		memcpy(&header, data + off, sizeof(header));
		here.seq = header.seq;
		here.epoch = header.epoch;
		if (header.lsn != lsn || header.epoch < tail->epoch ||
			record_check(&identity, &here, data + off, identity.capacity - off, &found) != RECORD_VALID) {
			lsn += identity.align;
			continue;
		}
		orphans->count += !(found.flags & RECORD_FLAG_PAD);
		if (header.epoch == superblock->writer_epoch && is_behind_commit && lsn < orphans->later_lsn)
			orphans->later_lsn = lsn;
		is_behind_commit |= header.epoch == superblock->writer_epoch && ends_commit(&identity, lsn, &found);
		lsn += found.extent;
	}
	return region_has_lost_page(region) ? FARLOG_IO : FARLOG_OK;
}
