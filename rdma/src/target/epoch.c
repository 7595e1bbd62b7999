/* target/epoch.c -- a far writer opens its epoch: the superblock that says so is the target's to store, and a writer
 * has no key to where it lies.
 *
 * What a writer proposes is the superblock that is there with another epoch, and with where and by whom it was opened;
 * nothing else of it is taken. */
#include <string.h>

#include "base/crc32c.h"
#include "region/superblock.h"
#include "target/target.h"

/* is_text -- as an identity is shown to people: up to its end no control characters, and zeros behind it. */
static bool is_text(const char *text, size_t len)
{
	size_t used = strnlen(text, len);

	for (size_t i = 0; i < used; i++)
		if ((uint8_t)text[i] < 0x20 || text[i] == 0x7F)
			return false;
	for (size_t i = used; i < len; i++)
		if (text[i] != '\0')
			return false;
	return true;
}

/* is_place -- an epoch begins at the head or behind it, and not where the ring has not room for it. */
static bool is_place(const struct target_ring *ring, const struct superblock *next)
{
	struct head_slot head;
	uint64_t lsn = next->epoch_start_lsn;

	if (!head_load(ring->region, next, &head))
		return false;
	head_raise_to_floor(next, &head);
	return lsn % next->align == 0 && head.head_lsn % next->align == 0 && lsn >= head.head_lsn &&
		lsn - head.head_lsn < next->capacity;
}

/* is_floor -- it never goes back: this ring's writer may have been given room by it. */
static bool is_floor(const struct superblock *present, const struct superblock *next)
{
	return next->floor_lsn > present->floor_lsn ||
		(next->floor_lsn == present->floor_lsn && next->floor_seq == present->floor_seq &&
			next->floor_epoch == present->floor_epoch);
}

/* make_next -- what may follow the superblock that is there, if the proposal is that. */
static bool make_next(const struct target_ring *ring, const struct superblock *present,
	const struct superblock *proposal, uint32_t epoch, struct superblock *next)
{
	*next = *present;
	next->generation++;
	next->writer_epoch = epoch;
	next->epoch_start_lsn = proposal->epoch_start_lsn;
	next->epoch_start_seq = proposal->epoch_start_seq;
	next->epoch_opened_ns = proposal->epoch_opened_ns;
	next->floor_lsn = proposal->floor_lsn;
	next->floor_seq = proposal->floor_seq;
	next->floor_epoch = proposal->floor_epoch;
	memcpy(next->writer_id, proposal->writer_id, sizeof(next->writer_id));
	next->crc32c = crc32c_update(0, next, offsetof(struct superblock, crc32c));
	return memcmp(next, proposal, sizeof(*next)) == 0 && epoch > present->writer_epoch && is_place(ring, next) &&
		is_floor(present, next) && is_text(next->writer_id, sizeof(next->writer_id));
}

/* store_proposal -- the mutex is held, so that a fence comes before all of it or after. *off is where the superblock
 * lies, to be flushed. */
static int store_proposal(const struct target_conn *conn, uint64_t *off)
{
	const struct target_ring *ring = conn->ring;
	struct superblock proposal;
	struct superblock present;
	struct superblock next;
	uint32_t epoch;
	int result;

	memcpy(&proposal, ring->bytes + LAYOUT_PROPOSAL_OFF, sizeof(proposal)); /* once: its writer may go on changing it */
	if (conn->role != REGION_ROLE_WRITER || conn->grant == NULL)
		return FARLOG_INVALID;
	epoch = conn->grant->grant.epoch;
	if (conn->is_revoked || epoch < ring->epoch_admitted_min ||
		epoch < region_load_word(ring->region, LAYOUT_FENCE_OFF))
		return FARLOG_FENCED;
	result = superblock_load(ring->region, ring->name, &present, NULL);
	if (result == FARLOG_IO)
		return result;
	if (result != FARLOG_OK || memcmp(present.ring_uuid, ring->ring_uuid, sizeof(present.ring_uuid)) != 0)
		return FARLOG_NOT_A_RING;
	*off = present.generation % 2 == 0 ? LAYOUT_SUPERBLOCK_A_OFF : LAYOUT_SUPERBLOCK_B_OFF;
	if (present.writer_epoch == epoch && memcmp(&present, &proposal, sizeof(present)) == 0)
		return FARLOG_OK; /* asked again, because the answer was lost */
	if (!make_next(ring, &present, &proposal, epoch, &next))
		return FARLOG_INVALID;
	*off = next.generation % 2 == 0 ? LAYOUT_SUPERBLOCK_A_OFF : LAYOUT_SUPERBLOCK_B_OFF;
	next.generation = present.generation;
	return superblock_store(ring->region, &next, false);
}

int target_store_epoch(struct farlog_target *target, struct target_conn *conn, const struct far_request *request,
	struct far_request *flush)
{
	uint64_t off = 0;
	int result;

	pthread_mutex_lock(&target->mutex);
	result = store_proposal(conn, &off);
	pthread_mutex_unlock(&target->mutex);
	*flush = (struct far_request){
		.operation = FAR_FLUSH, .tag = request->tag, .span_count = 1, .spans = {{off, sizeof(struct superblock)}}};
	return result;
}
