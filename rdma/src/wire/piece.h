/* wire/piece.h -- the pieces of a ring, each of which has a key of its own (docs/reference/format.md section 7).
 *
 * What a client may not write it has no key to: a writer reaches its records and the line of its hints, a drain the
 * head slots and the credit, nobody the superblocks and the fence. Those its target stores. */
#ifndef FARLOG_FAR_PIECE_H
#define FARLOG_FAR_PIECE_H

#include "region/region.h"
#include "wire/wire.h"

enum far_right {
	FAR_MAY_READ = 1,
	FAR_MAY_WRITE = 2,
};

/* far_piece_span -- where it lies in a ring of this size. */
static inline struct region_span far_piece_span(enum far_piece piece, uint64_t size_bytes)
{
	switch (piece) {
	case FAR_PIECE_HEADER:
		return (struct region_span){0, FAR_HEADER_LEN};
	case FAR_PIECE_DRAIN:
		return (struct region_span){LAYOUT_HEAD_A_OFF, LAYOUT_TAIL_HINT_OFF - LAYOUT_HEAD_A_OFF};
	default:
		return (struct region_span){LAYOUT_TAIL_HINT_OFF, size_bytes - LAYOUT_TAIL_HINT_OFF};
	}
}

/* far_piece_rights -- of a role; enum far_right, 0 = it has no key to the piece. */
static inline unsigned far_piece_rights(enum far_piece piece, uint8_t role)
{
	switch (piece) {
	case FAR_PIECE_HEADER:
		return FAR_MAY_READ;
	case FAR_PIECE_DRAIN:
		return role == REGION_ROLE_DRAIN ? FAR_MAY_READ | FAR_MAY_WRITE : 0;
	default:
		return role == REGION_ROLE_WRITER ? FAR_MAY_READ | FAR_MAY_WRITE : FAR_MAY_READ;
	}
}

/* far_piece_to_write, far_piece_to_read -- the one by whose key these bytes are written or read. */
static inline enum far_piece far_piece_to_write(uint64_t off)
{
	return off < LAYOUT_TAIL_HINT_OFF ? FAR_PIECE_DRAIN : FAR_PIECE_WRITER;
}

static inline enum far_piece far_piece_to_read(uint64_t off, uint64_t len)
{
	return off + len <= FAR_HEADER_LEN ? FAR_PIECE_HEADER : FAR_PIECE_WRITER;
}

#endif
