/* ring_loss.c -- an operator's word that what only a former ring held is lost, and that the one in its place counts as it is. See farlog/member.h. */
#include "farlog/member.h"

#include "err.h"
#include "region.h"
#include "superblock.h"

/* seal -- the lowest epoch that there is: the ring is no longer new to an opening, and among the others no log is older. */
static int seal(struct region *region, const char *uri, struct farlog_error *error)
{
	struct superblock superblock;
	int result;

	if (region_lock(region, REGION_ROLE_WRITER) != FARLOG_OK)
		return error_set(error, FARLOG_HELD, 0, "ring \"%s\" has a living writer; stop it first", uri);
	result = superblock_load(region, uri, &superblock, error);
	if (result != FARLOG_OK || superblock.writer_epoch != 0)
		return result;
	superblock.writer_epoch = 1;
	if (superblock_store(region, &superblock, true) != FARLOG_OK)
		return error_set(error, FARLOG_IO, 0, "persist superblock of ring \"%s\"", uri);
	return FARLOG_OK;
}

int farlog_ring_accept_loss(const char *uri, struct farlog_error *error)
{
	struct region_ask ask = {.access = REGION_WRITE, .role = REGION_ROLE_WRITER};
	struct region *region;
	int result = region_open(uri, &ask, &region, error);

	if (result != FARLOG_OK)
		return result;
	result = seal(region, uri, error);
	region->ops->close(region);
	return result;
}
