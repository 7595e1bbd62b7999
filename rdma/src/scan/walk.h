/* scan/walk.h -- walking a ring's records, in place or, where they are far away, in pieces that are copied here. */
#ifndef FARLOG_WALK_H
#define FARLOG_WALK_H

#include "region/region.h"
#include "ring/record.h"

struct walk {
	struct region *region;
	const struct record_identity *identity;
	uint8_t *bytes; /* of the ring, from lsn on; only when they are far away */
	uint64_t bytes_size;
	uint64_t piece_len; /* that is fetched at once; 0: as is best for many */
	uint64_t lsn;
	uint64_t len;
};

/* walk_check -- record_check of the record at the cursor: *verdict. OK, IO or NO_MEMORY; then the verdict is not
 * known. */
int walk_check(struct walk *walk, const struct record_cursor *cursor, enum record_verdict *verdict,
	struct record_found *found) FARLOG_MUST_CHECK;

/* walk_end -- free what was copied. */
void walk_end(struct walk *walk);

#endif
