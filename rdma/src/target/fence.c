/* target/fence.c -- a fence: writers of lower epochs are disconnected, what they wrote is durable, and the floor is. */
#include <string.h>

#include "base/err.h"
#include "region/superblock.h"
#include "scan/recover.h"
#include "target/target.h"

/* next_writer -- a writer below the epoch that is not torn down yet. */
static struct target_conn *next_writer(struct target_ring *ring, uint32_t epoch_min)
{
	struct target_conn *conn = ring->conns;

	while (conn != NULL && (conn->is_gone || conn->role != REGION_ROLE_WRITER || conn->grant->grant.epoch >= epoch_min))
		conn = conn->next;
	return conn;
}

/* lock_ring -- a ring of a directory must not be removed, and its space become another's, while its fence word is being
 * stored. */
static int lock_ring(struct target_ring *ring, struct farlog_error *error)
{
	int result = ring->region->directory != NULL ? region_lock(ring->region, REGION_ROLE_FORMAT) : FARLOG_OK;

	if (result == FARLOG_OK)
		return FARLOG_OK;
	if (result != FARLOG_HELD && result != FARLOG_NOT_FOUND)
		return region_set_lock_error(ring->region, result, ring->name, error);
	return error_set(error, result, 0, "fence ring \"%s\": %s", ring->name,
		result == FARLOG_NOT_FOUND ? "it has been removed from its region" :
									 "another process is fencing or formatting it; try again");
}

/* persist_floor -- after the last write of the old epoch: what it stored is made durable and counted as the log's end,
 * then the floor. */
static int persist_floor(
	struct target_ring *ring, uint32_t epoch_min, uint64_t *tail_lsn, uint32_t *tail_epoch, struct farlog_error *error)
{
	struct region *region = ring->region;
	struct superblock superblock;
	struct head_slot head;
	struct recover_scan scan;
	int result = region->ops->data.flush(region, 0, region->contract.size_bytes);

	if (result != FARLOG_OK)
		return region_set_error(region, result, "fence: make durable what was written to ring", ring->name, error);
	result = superblock_load(region, ring->name, &superblock, error);
	if (result != FARLOG_OK)
		return result;
	if (memcmp(superblock.ring_uuid, ring->ring_uuid, sizeof(ring->ring_uuid)) != 0)
		return error_set(error, FARLOG_NOT_A_RING, 0,
			"fence ring \"%s\": it has been formatted again since it was served; serve it again", ring->name);
	if (!head_load(region, &superblock, &head))
		return error_set(error, FARLOG_CORRUPT, 0, "fence ring \"%s\": both head slots fail their check", ring->name);
	head_raise_to_floor(&superblock, &head);
	if (recover_scan(region, &superblock, &head, &scan) != FARLOG_OK)
		return region_set_error(region, FARLOG_IO, "fence: read undrained records of ring", ring->name, error);
	*tail_lsn = scan.tail.lsn;
	*tail_epoch = superblock.writer_epoch;
	if (epoch_min > region_load_word(region, LAYOUT_FENCE_OFF))
		region->ops->data.store_word(region, LAYOUT_FENCE_OFF, epoch_min);
	if (region->ops->data.flush(region, LAYOUT_FENCE_OFF, LAYOUT_LINE_LEN) != FARLOG_OK)
		return region_set_error(region, FARLOG_IO, "fence: persist the epoch floor of ring", ring->name, error);
	return FARLOG_OK;
}

/* disconnect_writers -- none of them is let in again, and those that are in are torn down. The mutex is held. */
static int disconnect_writers(struct farlog_target *target, const char *name, uint32_t epoch_min,
	struct target_ring **ring, struct farlog_error *error)
{
	struct farlog_error failure = {0};
	struct target_conn *conn;
	int result;

	for (;;) {
		*ring = target_find_ring(target, name);
		if (*ring == NULL)
			return target_set_no_ring(name, error);
		if ((*ring)->epoch_admitted_min < epoch_min)
			(*ring)->epoch_admitted_min = epoch_min;
		conn = next_writer(*ring, epoch_min);
		if (conn == NULL)
			return FARLOG_OK;
		if (conn->pin_count > 0) {
			pthread_cond_wait(&target->moved, &target->mutex);
			continue;
		}
		(*ring)->counters.fenced_count += !conn->is_revoked;
		result = target_disconnect(target, conn, &failure);
		if (result != FARLOG_OK)
			return error_set(error, result, 0,
				"fence ring \"%s\": not confirmed, a writer below epoch %u may still write: %s", name, epoch_min,
				failure.text);
	}
}

int farlog_target_fence(
	farlog_target *target, const char *name, uint32_t epoch_min, uint64_t *tail_lsn, struct farlog_error *error)
{
	struct target_ring *ring;
	uint64_t tail = UINT64_MAX;
	uint32_t tail_epoch = 0;
	int result;

	pthread_mutex_lock(&target->mutex);
	result = disconnect_writers(target, name, epoch_min, &ring, error);
	if (result == FARLOG_OK) {
		ring->pin_count++; /* farlog_target_forget waits */
		pthread_mutex_unlock(&target->mutex);
		/* nothing that was asked for by those who are out goes on behind the confirmation */
		target_worker_wait_idle(ring);
		result = lock_ring(ring, error);
		if (result == FARLOG_OK) {
			result = persist_floor(ring, epoch_min, &tail, &tail_epoch, error);
			if (ring->region->directory != NULL)
				ring->region->ops->fence.unlock(ring->region, REGION_ROLE_FORMAT);
		}
		pthread_mutex_lock(&target->mutex);
		ring->pin_count--;
		pthread_cond_broadcast(&target->moved);
		if (result == FARLOG_OK) {
			ring->tail_lsn = tail;
			ring->tail_epoch_min = epoch_min;
			ring->tail_epoch = tail_epoch;
		}
	}
	pthread_mutex_unlock(&target->mutex);
	if (result == FARLOG_OK && tail_lsn != NULL)
		*tail_lsn = tail;
	return result;
}
