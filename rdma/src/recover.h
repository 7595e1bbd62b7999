/* recover.h -- the walk over a ring's undrained records (docs/format.md section 4). */
#ifndef FARLOG_RECOVER_H
#define FARLOG_RECOVER_H

#include "layout.h"
#include "record.h"
#include "region.h"

struct recover_scan {
	struct record_cursor tail; /* where the walk ended: the next record goes here */
	uint64_t record_count;
	uint64_t oldest_ts_ns; /* 0 = nothing undrained */
	uint64_t newest_ts_ns;
};

/* recover_scan -- walk from the head to the first position without a valid record. Reads in place: for regions at rest (the
 * writer's lock is held), or for a view that may lag behind a living writer. */
void recover_scan(const struct region *region, const struct superblock *superblock, const struct head_slot *head,
	struct recover_scan *scan);

/* recover_orphans -- valid records of the last epochs beyond the tail within `window` bytes: never acknowledged, because acknowledging
 * goes in order; counted so that they can be reported. */
uint64_t recover_orphans(const struct region *region, const struct superblock *superblock,
	const struct record_cursor *tail, uint64_t head_lsn, uint64_t window);

#endif
