/* recover.c -- finding the tail. */
#include "recover.h"

#include "superblock.h"

#include <string.h>

void recover_scan(const struct region *region, const struct superblock *superblock, const struct head_slot *head,
	struct recover_scan *scan)
{
	struct record_identity identity = superblock_identity(superblock);
	const uint8_t *data = region->base + LAYOUT_DATA_OFF;
	uint64_t off = head->head_lsn % identity.capacity;
	struct record_found found;

	memset(scan, 0, sizeof(*scan));
	scan->tail = (struct record_cursor){
		.lsn = head->head_lsn, .seq = head->head_seq, .epoch = head->last_epoch, .epoch_max = superblock->writer_epoch};
	while (scan->tail.lsn - head->head_lsn < identity.capacity) {
		if (record_check(&identity, &scan->tail, data + off, identity.capacity - off, &found) != RECORD_VALID)
			break;
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
}

uint64_t recover_orphans(const struct region *region, const struct superblock *superblock,
	const struct record_cursor *tail, uint64_t head_lsn, uint64_t window)
{
	struct record_identity identity = superblock_identity(superblock);
	const uint8_t *data = region->base + LAYOUT_DATA_OFF;
	uint64_t end_lsn = tail->lsn + window;
	uint64_t count = 0;
	struct record_found found;

	if (end_lsn > head_lsn + identity.capacity)
		end_lsn = head_lsn + identity.capacity;
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
		count += !(found.flags & RECORD_FLAG_PAD);
		lsn += found.extent;
	}
	return count;
}
