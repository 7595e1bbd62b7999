/* blocks/nvme_fence.c -- a device that several hosts reach fences a writer, and how the writer finds out where its log
 * ended. See blocks/reserve.h.
 *
 * A refused write proves nothing about its record: it may have landed, its answer been lost with the connection, and
 * what was refused be the kernel's second try. So a fenced writer goes on reading. The superblock of the next
 * writer says where that writer began: below lies, durable, all that it found, and nothing of ours will ever
 * lie above. */
#include "base/clock.h"
#include "blocks/nvme.h"
#include "blocks/reserve.h"
#include "region/superblock.h"

#include <errno.h>
#include <string.h>

#define FOLLOW_INTERVAL_NS 1000000u
#define WARY_INTERVAL_NS 1000000000u /* a connection that breaks is not back before that */

int nvme_claim(struct region *region, const struct region_claim *claim, struct farlog_error *error)
{
	struct region_nvme *nvme = nvme_of(region);
	struct reserve_view view = {0};
	int result;

	if (claim->kind == REGION_CLAIM_EPOCH_STORED) {
		nvme_shared_claim_end(nvme);
		return FARLOG_OK;
	}
	if (claim->kind == REGION_CLAIM_FORMER_GONE)
		return nvme_mark_closed(nvme, claim->uri, claim->epoch, error);
	if (region->directory != NULL)
		return nvme_shared_claim(nvme, claim, error); /* a reservation is all of the namespace's */
	switch (claim->kind) {
	case REGION_CLAIM_EXCLUSIVE:
		result = reserve_acquire(nvme->device, claim, &view, error);
		break;
	case REGION_CLAIM_SHARED:
		result = reserve_join(nvme->device, claim, &view, error);
		break;
	default:
		result = reserve_if_free(nvme->device, claim, &view, error);
		break;
	}
	if (result == FARLOG_OK && !view.is_here && view.host[0] != '\0')
		return nvme_shared_claim(nvme, claim, error); /* a partition, or a target without reservations */
	if (result != FARLOG_OK || nvme->role != REGION_ROLE_WRITER)
		return result;
	nvme->epoch = claim->epoch;
	nvme->must_check_fence = view.is_here && !view.is_kept && !view.is_gone_when_lost;
	region->is_claimed = view.is_here;
	atomic_store_release(&region->is_fence_lsn_pending, region->is_claimed);
	return FARLOG_OK;
}

void nvme_begin_fencing(struct region_nvme *nvme)
{
	struct region *region = &nvme->region;
	uint64_t *fence = nvme_word_at(nvme, LAYOUT_FENCE_OFF);
	struct superblock own;

	if (!region->is_claimed || region->is_write_fenced)
		return;
	nvme->own_generation =
		superblock_load(region, "", &own, NULL) == FARLOG_OK && own.writer_epoch == nvme->epoch ? own.generation : 0;
	region->is_write_fenced = true;
	nvme->span_at = nvme->span_count; /* nothing more goes out */
	if (*fence <= nvme->epoch)
		atomic_store_release(fence, (uint64_t)nvme->epoch + 1);
}

/* put_log_end_read -- read both superblocks, beside the copy's, which tell our own. */
static int put_log_end_read(struct region_nvme *nvme)
{
	struct block_device *device = nvme->device;
	struct block_command command = {.verb = BLOCK_READ,
		.off = nvme_control_at(nvme, NVME_SUPERBLOCK_A),
		.bytes = nvme_block_of(nvme->looked, NVME_SUPERBLOCK_A),
		.len = 2 * LAYOUT_BLOCK_LEN,
		.id = NVME_ID_LOG_END};

	nvme->is_log_end_flying = true;
	nvme->log_end_read_ns = clock_monotonic_ns();
	device->ops->put(device, BLOCK_COMMITS, &command);
	return device->ops->send(device, BLOCK_COMMITS);
}

int nvme_find_log_end(struct region_nvme *nvme)
{
	if (nvme->has_log_end_failed)
		return FARLOG_IO;
	if (!nvme->region.is_fence_lsn_pending || nvme->is_log_end_flying || nvme->flying_count > 0)
		return FARLOG_OK;
	if (!nvme->device->is_clockless && clock_monotonic_ns() - nvme->log_end_read_ns < FOLLOW_INTERVAL_NS)
		return FARLOG_OK;
	return put_log_end_read(nvme);
}

/* find_successor -- the older of the superblocks that are newer than ours. */
static bool find_successor(struct region_nvme *nvme, struct superblock *successor)
{
	static const unsigned controls[2] = {NVME_SUPERBLOCK_A, NVME_SUPERBLOCK_B};
	static const uint64_t offs[2] = {LAYOUT_SUPERBLOCK_A_OFF, LAYOUT_SUPERBLOCK_B_OFF};
	bool is_there = false;

	for (unsigned i = 0; i < 2; i++) {
		struct superblock seen;

		/* Each alone in the copy: superblock_load takes the newer of two. */
		memcpy(nvme->copy + offs[i], nvme_block_of(nvme->looked, controls[i]), sizeof(seen));
		memset(nvme->copy + offs[1 - i], 0, sizeof(seen));
		if (superblock_load(&nvme->region, "", &seen, NULL) != FARLOG_OK || seen.writer_epoch <= nvme->epoch ||
			(is_there && seen.generation > successor->generation))
			continue;
		*successor = seen;
		is_there = true;
	}
	return is_there;
}

void nvme_load_log_end(struct region_nvme *nvme, int failure)
{
	struct region *region = &nvme->region;
	struct superblock successor = {0};

	nvme->is_log_end_flying = false;
	nvme->has_log_end_failed |= failure != 0;
	if (failure != 0 || !find_successor(nvme, &successor))
		return;
	atomic_store_release(nvme_word_at(nvme, LAYOUT_FENCE_OFF), successor.writer_epoch);
	/* Of later ones none says where ours ended. */
	if (successor.generation == nvme->own_generation + 1) {
		region->fence_lsn = successor.epoch_start_lsn;
		region->is_fence_exact = true;
	}
	atomic_store_release(&region->is_fence_lsn_pending, 0);
}

/* put_fence_read -- into blocks that no commit of a writer uses: another look may be under way. */
static void put_fence_read(struct region_nvme *nvme)
{
	struct block_device *device = nvme->device;
	struct block_command command = {.verb = BLOCK_READ,
		.off = nvme_control_at(nvme, NVME_FENCE_A),
		.bytes = nvme_block_of(nvme->controls, NVME_FENCE_A),
		.len = (NVME_CREDIT - NVME_FENCE_A + 1) * LAYOUT_BLOCK_LEN,
		.id = NVME_ID_FENCE};

	nvme->held_ns = clock_monotonic_ns();
	device->ops->put(device, BLOCK_COMMITS, &command);
}

void nvme_hold_commit(struct region_nvme *nvme)
{
	if (!nvme->must_check_fence)
		return;
	if (!nvme->device->is_clockless && clock_monotonic_ns() - nvme->words_read_ns < WARY_INTERVAL_NS)
		return;
	nvme->is_held = true;
	put_fence_read(nvme);
}

/* nvme_release_commit -- what was asked long ago may have been answered long ago: it is asked again. */
void nvme_release_commit(struct region_nvme *nvme, int failure)
{
	bool is_old = !nvme->device->is_clockless && clock_monotonic_ns() - nvme->held_ns >= WARY_INTERVAL_NS;

	if (failure == 0 && is_old && nvme->failure == 0) {
		put_fence_read(nvme);
		if (nvme->device->ops->send(nvme->device, BLOCK_COMMITS) != FARLOG_OK)
			nvme->failure = nvme_note_errno(nvme);
		return;
	}
	nvme->is_held = false;
	if (failure != 0) {
		nvme->failure = failure; /* then nothing may go out */
		nvme_note_trouble(nvme, failure);
		return;
	}
	nvme_load_words(nvme, nvme->controls);
	nvme->words_read_ns = nvme->device->is_clockless ? 0 : nvme->held_ns;
	if (*nvme_word_at(nvme, LAYOUT_FENCE_OFF) <= nvme->epoch)
		return;
	nvme->failure = EBADE;
	nvme_begin_fencing(nvme);
}
