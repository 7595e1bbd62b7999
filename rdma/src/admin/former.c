/* admin/former.c -- see farlog/former.h. */
#include "farlog/former.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "region/region.h"
#include "region/superblock.h"

static void describe_former(
	const struct region *region, const struct superblock *superblock, struct farlog_former *former)
{
	memcpy(&former->host, superblock->writer_host, sizeof(former->host));
	former->epoch = superblock->writer_epoch;
	former->epoch_min = (uint32_t)region_load_word(region, LAYOUT_FENCE_OFF);
	former->is_closed = superblock->writer_epoch != 0 && region->closed_epoch == superblock->writer_epoch;
	memcpy(former->writer_id, superblock->writer_id, sizeof(former->writer_id));
}

int farlog_ring_former(const char *uri, struct farlog_former *former, struct farlog_error *error)
{
	struct region_options options = {.access = REGION_READ, .role = REGION_ROLE_READER};
	struct superblock superblock;
	struct region *region;
	int result = region_open(uri, &options, &region, error);

	memset(former, 0, sizeof(*former));
	if (result != FARLOG_OK)
		return result;
	result = superblock_load(region, uri, &superblock, error);
	if (result == FARLOG_OK)
		describe_former(region, &superblock, former);
	region->ops->close(region);
	return result;
}

/* raise_fence -- first: it also stops a writer that was attested as gone too early. */
static int raise_fence(struct region *region, const char *uri, uint32_t epoch, struct farlog_error *error)
{
	if (region_load_word(region, LAYOUT_FENCE_OFF) > epoch)
		return FARLOG_OK;
	region->ops->data.store_word(region, LAYOUT_FENCE_OFF, (uint64_t)epoch + 1);
	if (region->ops->data.flush(region, LAYOUT_FENCE_OFF, LAYOUT_LINE_LEN) != FARLOG_OK)
		return region_set_error(region, FARLOG_IO, "persist fence of ring", uri, error);
	return FARLOG_OK;
}

static int mark_former_gone(
	struct region *region, const char *uri, uint64_t host, uint32_t epoch, struct farlog_error *error)
{
	struct region_claim claim = {.kind = REGION_CLAIM_FORMER_GONE, .epoch = epoch, .uri = uri};
	struct superblock superblock;
	struct farlog_former former;
	int result = superblock_load(region, uri, &superblock, error);

	if (result != FARLOG_OK)
		return result;
	if (!region->caps.is_claimable)
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"ring \"%s\": no other host reaches it by its device; expected a ring on nvme:", uri);
	describe_former(region, &superblock, &former);
	if (former.host != host || former.epoch != epoch || epoch == 0)
		return error_set(error, FARLOG_HELD, 0,
			"ring \"%s\": its last writer is of epoch %u and host %016lx; expected epoch %u and host %016lx: check "
			"again",
			uri, former.epoch, former.host, epoch, host);
	result = region_lock(region, REGION_ROLE_FORMAT); /* two fences at once could lower the word */
	if (result == FARLOG_HELD)
		return error_set(error, result, 0, "ring \"%s\": another process is fencing or formatting it; try again", uri);
	if (result != FARLOG_OK)
		return region_set_lock_error(region, result, uri, error);
	result = raise_fence(region, uri, epoch, error);
	return result == FARLOG_OK ? region_claim(region, &claim, error) : result;
}

int farlog_ring_former_out(const char *uri, uint64_t host, uint32_t epoch, struct farlog_error *error)
{
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_FORMAT};
	struct region *region;
	int result = region_open(uri, &options, &region, error);

	if (result != FARLOG_OK)
		return result;
	result = mark_former_gone(region, uri, host, epoch, error);
	region->ops->close(region);
	return result;
}
