/* ring/gather.h -- a record whose bytes lie in several places, and becomes whole lines of a region in one pass.
 *
 * It is never put together in memory before it is copied to the region: small stores that are loaded again as wide
 * words wait until the stores have left the core, and those wait behind the non-temporal stores of the record before
 * (measured: a third of an append's time). The CRC is made on the way, over bytes that nobody else can change any more:
 * a record with a wrong CRC would hide all that follow it. */
#ifndef FARLOG_GATHER_H
#define FARLOG_GATHER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/crc32c.h"

#define GATHER_HEAD_COUNT 7u
#define GATHER_HEAD_LEN (8u * GATHER_HEAD_COUNT)
#define GATHER_TAIL_LEN 8u
#define GATHER_CRC_OFF CRC32C_HEAD_LEN /* the last 4 bytes of the head */

struct gather_piece {
	const uint8_t *start;
	uint64_t len;
};

/* head, then the two pieces without a hole, then zeros, then tail: `len` bytes in all, a multiple of 64. */
struct gather {
	uint64_t head[GATHER_HEAD_COUNT]; /* its CRC still zero */
	struct gather_piece piece[2];
	uint64_t tail;
	uint64_t len;
	uint32_t salt; /* what the CRC begins with */
	/* 64-byte aligned, for head and pieces in whole lines: ours alone. The pieces may already lie in their places
	 * there */
	uint8_t *scratch;
};

static inline uint64_t gather_load_word(const uint8_t *src)
{
	uint64_t word;

	memcpy(&word, src, sizeof(word));
	return word;
}

/* gather_word -- 8 bytes from `pos` on, counted from the end of the head; beyond the pieces there are zeros. Built by
 * shifting, not in memory. */
static inline uint64_t gather_word(const struct gather *gather, uint64_t pos)
{
	uint64_t first_len = gather->piece[0].len;
	uint64_t body_len = first_len + gather->piece[1].len;
	uint64_t word = 0;

	if (pos + 8 <= first_len)
		return gather_load_word(gather->piece[0].start + pos);
	if (pos >= first_len && pos + 8 <= body_len)
		return gather_load_word(gather->piece[1].start + (pos - first_len));
	for (unsigned i = 0; i < 8 && pos + i < body_len; i++) {
		uint64_t at = pos + i;
		uint8_t byte = at < first_len ? gather->piece[0].start[at] : gather->piece[1].start[at - first_len];

		word |= (uint64_t)byte << (8 * i);
	}
	return word;
}

/* gather_move -- a piece to its place. Where that ends. */
static inline uint8_t *gather_move(struct gather_piece *piece, uint8_t *place)
{
	if (piece->len > 0 && piece->start != place)
		memcpy(place, piece->start, piece->len);
	piece->start = place;
	return place + piece->len;
}

/* gather_own -- key and payload where nobody else changes them between the CRC and the way to the region. */
static inline void gather_own(struct gather *gather)
{
	uint8_t *behind_key = gather_move(&gather->piece[0], gather->scratch + GATHER_HEAD_LEN);

	(void)gather_move(&gather->piece[1], behind_key);
}

/* gather_crc -- of a head and the pieces, which are owned, and so lie behind one another. */
static inline uint32_t gather_crc(const struct gather *gather, const uint8_t *head)
{
	uint64_t body_len = gather->piece[0].len + gather->piece[1].len;

	return crc32c_record(gather->salt, head, gather->piece[0].start, body_len);
}

/* gather_seal -- put the CRC into the head. */
static inline void gather_seal(struct gather *gather)
{
	gather->head[GATHER_HEAD_COUNT - 1] |= (uint64_t)gather_crc(gather, (const uint8_t *)gather->head) << 32;
}

/* gather_close -- put around the pieces and their places what belongs there: head, zeros, tail. */
static inline void gather_close(uint8_t *dst, const struct gather *gather)
{
	uint8_t *behind = dst + GATHER_HEAD_LEN + gather->piece[0].len + gather->piece[1].len;

#pragma GCC unroll 7
	/* word by word, so that a compiler may keep the head in registers */
	for (unsigned i = 0; i < GATHER_HEAD_COUNT; i++)
		memcpy(dst + 8 * i, &gather->head[i], 8);
	if (behind != dst + gather->len - GATHER_TAIL_LEN)
		memset(behind, 0, (size_t)(dst + gather->len - GATHER_TAIL_LEN - behind));
	memcpy(dst + gather->len - GATHER_TAIL_LEN, &gather->tail, GATHER_TAIL_LEN);
}

/* gather_copy -- the whole way, plainly. */
static inline void gather_copy(uint8_t *dst, struct gather *gather)
{
	uint8_t *place = dst + GATHER_HEAD_LEN;

	gather_own(gather);
	gather_seal(gather);
	for (unsigned i = 0; i < 2; i++) {
		if (gather->piece[i].len > 0 && gather->piece[i].start != place)
			memcpy(place, gather->piece[i].start, gather->piece[i].len);
		place += gather->piece[i].len;
	}
	gather_close(dst, gather);
}

/* gather_build -- gather_copy to where nobody else looks before it is whole: dst serves as scratch, and the CRC is made
 * of what lies there, so that the head need not lie anywhere else. */
static inline void gather_build(uint8_t *dst, struct gather *gather)
{
	uint32_t crc;

	gather_close(dst, gather);
	gather->scratch = dst;
	gather_own(gather);
	crc = gather_crc(gather, dst);
	memcpy(dst + GATHER_CRC_OFF, &crc, sizeof(crc));
}

#endif
