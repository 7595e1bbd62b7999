/* mem/watch_check.c -- see mem/watch_check.h. */
#include "mem/watch_check.h"

#include "region/superblock.h"
#include "ring/layout.h"

static bool has_lost_name(const struct name_watch *watch)
{
	struct stat now;

	if (fstat(watch->fd, &now) == 0 && now.st_nlink == 0)
		return true;
	return watch->path != NULL && stat(watch->path, &now) == 0 && !name_watch_is_same_file(&now, &watch->opened);
}

/* Each check raises the fence again: a writer may have opened an epoch above the last one. */
void name_watch_check(struct name_watch *watch)
{
	struct region *region = watch->region;
	struct superblock superblock;

	if (!has_lost_name(watch) || superblock_load(region, "", &superblock, NULL) != FARLOG_OK)
		return;
	if (region_load_word(region, LAYOUT_FENCE_OFF) <= superblock.writer_epoch)
		region->ops->data.store_word(region, LAYOUT_FENCE_OFF, (uint64_t)superblock.writer_epoch + 1);
}
