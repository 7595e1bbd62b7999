/* scan/recover.h -- the walk over a ring's undrained records (docs/reference/format.md section 4). */
#ifndef FARLOG_RECOVER_H
#define FARLOG_RECOVER_H

#include "region/region.h"
#include "ring/layout.h"
#include "ring/record.h"

#define RECOVER_TURN_COUNT 32u

/* Where in the log an epoch's records begin. */
struct recover_turn {
	uint64_t lsn;
	uint64_t epoch;
};

struct recover_scan {
	struct record_cursor tail; /* where the walk ended: the next record goes here */
	uint64_t record_count;
	uint64_t oldest_ts_ns; /* 0 = nothing undrained */
	uint64_t newest_ts_ns;
	struct recover_turn turns[RECOVER_TURN_COUNT];
	unsigned turn_count;
	uint64_t turns_end_lsn; /* of the turns beyond this nothing is noted */
	uint64_t shown_lsn;     /* base shows the ring's bytes from the head up to here */
};

/* recover_scan -- walk from the head to the first position without a valid record. Reads in place: for regions at rest
 * (the writer's lock is held), or for a view that may lag behind a living writer. Of a far ring it fetches what it
 * walks over, and no more: the free part of the copy stays zero. OK; of a far region IO: then the tail is not known. */
int recover_scan(struct region *region, const struct superblock *superblock, const struct head_slot *head,
	struct recover_scan *scan) FARLOG_MUST_CHECK;

/* recover_acknowledged_lsn -- below it every record was acknowledged, by the writer's word in the header; the head
 * where that word cannot be. */
uint64_t recover_acknowledged_lsn(
	const struct region *region, const struct superblock *superblock, const struct head_slot *head);

/* recover_common_lsn -- where two logs that were walked from the same head part. Below it they are the same, because a
 * record at an LSN of an epoch never changes. */
uint64_t recover_common_lsn(const struct recover_scan *one, const struct recover_scan *other);

/* What lies beyond the tail. */
struct recover_orphans {
	/* valid records of the last epochs. A power cut leaves them behind a hole, and so does damage: were they
	 * acknowledged? */
	uint64_t count;
	/* on blocks: one of a later commit than what is missing at the tail, which was durable before that was sent;
	 * UINT64_MAX: none was found */
	uint64_t later_lsn;
};

/* recover_orphans -- of `window` bytes behind the tail. OK; of a far region IO. */
int recover_orphans(struct region *region, const struct superblock *superblock, struct recover_scan *scan,
	uint64_t head_lsn, uint64_t window, struct recover_orphans *orphans) FARLOG_MUST_CHECK;

#endif
