/* reader.h -- a reader or drain of a ring, as reader.c and release.c share it. */
#ifndef FARLOG_READER_H
#define FARLOG_READER_H

#include "record.h"
#include "region.h"
#include "superblock.h"

struct farlog_reader {
	struct region *region;
	struct superblock superblock;
	struct record_identity identity;
	struct record_cursor cursor;
	struct head_slot released; /* what release last stored */
	uint64_t forgotten_lsn;
	uint32_t superblock_marks[2]; /* checksums of both superblocks when they were looked at last */
	bool has_marks;               /* false: one of them was not whole then */
	bool is_drain;
	bool is_resync_needed;
	bool is_rewound;
	uint32_t tip_len; /* of a far ring: how much to READ beyond the hint */
	uint8_t *again;   /* AGAIN_LEN bytes for the second look at a far ring; NULL until it is needed */
	bool is_release_open; /* a far release has failed: its slot may be torn at the target, or on its way there still */
};

#endif
