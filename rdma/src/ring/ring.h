/* ring/ring.h -- the arithmetic of the circular buffer. No memory, no input or output.
 *
 * Positions never wrap; offset = lsn mod capacity. head <= appended, appended - head <= capacity. A record never
 * crosses the end: a PAD fills what is left. On blocks a PAD also fills the last LBA of a commit, and credit_lsn is the
 * head rounded down to an LBA: an LBA is written as a whole. */
#ifndef FARLOG_RING_H
#define FARLOG_RING_H

#include <stdbool.h>
#include <stdint.h>

struct ring {
	uint64_t capacity;
	uint64_t appended_lsn;
	uint64_t appended_off; /* appended_lsn mod capacity, kept so that the append path divides nothing */
	uint64_t credit_lsn;   /* the head, as far as the writer knows */
	uint64_t next_seq;
	uint64_t kept_bytes;  /* of several members: what appends leave free, for the EPOCH record of the next writer */
	uint64_t warn_bytes;  /* in use: from here pressure is 1 */
	uint64_t alarm_bytes; /* and from here 2 */
};

/* Where one record would go. */
struct ring_place {
	uint64_t pad_len; /* 0, or the bytes left before the end, which a PAD fills first */
	uint64_t record_lsn;
	uint64_t record_off;
	uint64_t end_lsn;
};

static inline void ring_place(const struct ring *ring, uint64_t extent, struct ring_place *place)
{
	uint64_t left = ring->capacity - ring->appended_off;

	*place = (struct ring_place){.record_lsn = ring->appended_lsn, .record_off = ring->appended_off};
	if (__builtin_expect(extent > left, 0))
		*place = (struct ring_place){.pad_len = left, .record_lsn = ring->appended_lsn + left};
	place->end_lsn = place->record_lsn + extent;
}

static inline bool ring_has_room(const struct ring *ring, const struct ring_place *place)
{
	return place->end_lsn - ring->credit_lsn + ring->kept_bytes <= ring->capacity;
}

/* ring_advance -- the record (and its PAD) has been written. */
static inline void ring_advance(struct ring *ring, const struct ring_place *place)
{
	uint64_t extent = place->end_lsn - place->record_lsn;

	ring->appended_lsn = place->end_lsn;
	ring->appended_off = place->record_off + extent;
	if (ring->appended_off == ring->capacity)
		ring->appended_off = 0;
	ring->next_seq++;
}

/* ring_skip -- a PAD has been written that makes way for no record of this commit. */
static inline void ring_skip(struct ring *ring, uint64_t len)
{
	ring->appended_lsn += len;
	ring->appended_off += len;
	if (ring->appended_off == ring->capacity)
		ring->appended_off = 0;
}

static inline uint64_t ring_used(const struct ring *ring)
{
	return ring->appended_lsn - ring->credit_lsn;
}

static inline unsigned ring_pressure(const struct ring *ring)
{
	uint64_t used = ring_used(ring);

	return (used >= ring->warn_bytes) + (used >= ring->alarm_bytes);
}

#endif
