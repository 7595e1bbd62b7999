/* mem/watch_look.c -- see mem/watch_look.h. */
#include "mem/watch_look.h"

#include "region/superblock.h"
#include "ring/layout.h"

static bool is_gone(const struct name_watch *watch)
{
	struct stat now;

	if (fstat(watch->fd, &now) == 0 && now.st_nlink == 0)
		return true;
	return watch->path != NULL && stat(watch->path, &now) == 0 && !name_watch_is_same(&now, &watch->opened);
}

/* It raises it again each time: an epoch that is opened in such a file lies above the fence that was there. */
void name_watch_look(struct name_watch *watch)
{
	struct region *region = watch->region;
	struct superblock superblock;

	if (!is_gone(watch) || superblock_load(region, "", &superblock, NULL) != FARLOG_OK)
		return;
	if (region_load_word(region, LAYOUT_FENCE_OFF) <= superblock.writer_epoch)
		region->ops->data.store_word(region, LAYOUT_FENCE_OFF, (uint64_t)superblock.writer_epoch + 1);
}
