/* admin/ring_loss.c -- an operator's word that what only a former ring held is lost (farlog/member.h). */
#include "farlog/member.h"

#include "base/err.h"
#include "region/region.h"
#include "region/superblock.h"

/* store_first_epoch -- the lowest epoch that there is: the ring is no longer new to an opening, and among the others no
 * log is older. */
static int store_first_epoch(struct region *region, const char *uri, struct farlog_error *error)
{
	struct superblock superblock;
	int result;

	result = region_lock(region, REGION_ROLE_WRITER);
	if (result == FARLOG_HELD)
		return error_set(error, result, 0, "ring \"%s\" has a living writer; stop it first", uri);
	if (result != FARLOG_OK)
		return region_set_lock_error(region, result, uri, error);
	result = superblock_load(region, uri, &superblock, error);
	if (result != FARLOG_OK || superblock.writer_epoch != 0)
		return result;
	superblock.writer_epoch = 1;
	if (superblock_store(region, &superblock, true) != FARLOG_OK)
		return region_set_error(region, FARLOG_IO, "persist superblock of ring", uri, error);
	return FARLOG_OK;
}

int farlog_ring_accept_loss(const char *uri, struct farlog_error *error)
{
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_WRITER};
	struct region *region;
	int result = region_open(uri, &options, &region, error);

	if (result != FARLOG_OK)
		return result;
	result = store_first_epoch(region, uri, error);
	region->ops->close(region);
	return result;
}
