/* ring/tails_page.h -- the page of tails: what a target last saw of each ring of a tenant, for a drain that has many
 * there (docs/reference/format.md section 7).
 *
 * A page is a region of the target's memory, never of media, in the shape of a ring's: its lines lie where a ring's
 * records would, so that a client comes to it by the same links. The first line is of the page itself. The target
 * stores a line word by word while clients READ it: only a line whose checksum holds is believed, and even then it is a
 * hint. */
#ifndef FARLOG_TAILS_PAGE_H
#define FARLOG_TAILS_PAGE_H

#include "ring/layout.h"

#define TAILS_MAGIC 0x4C54474F4C524146ull /* "FARLOGTL" */
#define TAILS_VERSION 1u
#define TAILS_LINE_COUNT_MAX 511u /* of rings */
#define TAILS_OFF LAYOUT_DATA_OFF
#define TAILS_REGION_LEN (TAILS_OFF + (TAILS_LINE_COUNT_MAX + 1) * LAYOUT_LINE_LEN)

struct tails_header {
	uint64_t magic;
	uint32_t version;
	uint32_t line_count; /* behind this one, up to the last that is of a ring */
	/* +1 whenever all lines have been looked at: a page whose turn stands still is not kept any more */
	uint64_t turn;
	uint8_t reserved[36];
	uint32_t crc32c;
};

/* All zero: of no ring. */
struct tails_line {
	uint8_t ring_uuid[16];
	uint64_t tail_lsn;    /* below it something lies that looks like records; what they are their CRCs tell */
	uint64_t durable_lsn; /* the writer's hint */
	uint64_t head_lsn;    /* the credit word */
	uint64_t sequence;    /* +1 per change of the line, from 1 */
	uint32_t writer_epoch;
	/* of the superblocks: another one means that a writer has come, and the log may have gone back */
	uint32_t mark;
	uint32_t reserved;
	uint32_t crc32c;
};

_Static_assert(sizeof(struct tails_header) == LAYOUT_LINE_LEN, "tails_header is a line");
_Static_assert(offsetof(struct tails_header, crc32c) == 60, "tails_header.crc32c");
_Static_assert(sizeof(struct tails_line) == LAYOUT_LINE_LEN, "tails_line is a line");
_Static_assert(offsetof(struct tails_line, sequence) == 40, "tails_line.sequence");
_Static_assert(offsetof(struct tails_line, crc32c) == 60, "tails_line.crc32c");
_Static_assert(TAILS_REGION_LEN % LAYOUT_BLOCK_LEN == 0, "a page is of whole blocks");

#endif
