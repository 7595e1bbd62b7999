/* admin/ring_loss.c -- an operator's word that something is lost: what only a former ring held (farlog/member.h), or
 * what lay in a ring behind a place that is unreadable. */
#include "farlog/member.h"

#include <errno.h>

#include "base/err.h"
#include "base/member_uri.h"
#include "log/writer.h"
#include "region/region.h"
#include "region/superblock.h"

/* seal -- the lowest epoch that there is: the ring is no longer new to an opening, and among the others no log is older. */
static int seal(struct region *region, const char *uri, struct farlog_error *error)
{
	struct superblock superblock;
	int result;

	result = region_lock(region, REGION_ROLE_WRITER);
	if (result == FARLOG_HELD)
		return error_set(error, result, 0, "ring \"%s\" has a living writer; stop it first", uri);
	if (result != FARLOG_OK)
		return region_refuse_lock(region, result, uri, error);
	result = superblock_load(region, uri, &superblock, error);
	if (result != FARLOG_OK || superblock.writer_epoch != 0)
		return result;
	superblock.writer_epoch = 1;
	if (superblock_store(region, &superblock, true) != FARLOG_OK)
		return region_refuse(region, FARLOG_IO, "persist superblock of ring", uri, error);
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

int farlog_ring_cut(const char *uri, uint64_t lsn, struct farlog_error *error)
{
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_POSTED, .counters_dir = "", .writer_name = "cut"};
	struct writer_watch watch = {.is_cutting = true, .cut_lsn = lsn};
	struct farlog_writer *writer;
	int result;

	if (member_uri_is(uri))
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"ring \"%s\": expected one ring: of members the others bring what one has lost", uri);
	result = writer_open_ring(uri, &config, &watch, &writer, error);
	if (result != FARLOG_OK)
		return result;
	if (writer->region->ops->flush(writer->region, 0, LAYOUT_DATA_OFF) != FARLOG_OK) /* the hint, which is lower now */
		result = error_set(error, FARLOG_IO, errno, "flush header of ring \"%s\"; do it again", uri);
	if (farlog_writer_close(writer) != FARLOG_OK && result == FARLOG_OK)
		result = error_set(error, FARLOG_IO, errno, "close ring \"%s\"; do it again", uri);
	return result;
}
