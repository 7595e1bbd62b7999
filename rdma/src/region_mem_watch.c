/* region_mem_watch.c -- see region_mem_watch.h. */
#include "region_mem_watch.h"

#include <stdlib.h>

#include "layout.h"
#include "superblock.h"

static bool is_same(const struct stat *one, const struct stat *other)
{
	return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

static bool is_gone(const struct name_watch *watch)
{
	struct stat now;

	if (fstat(watch->fd, &now) == 0 && now.st_nlink == 0)
		return true;
	return watch->path != NULL && stat(watch->path, &now) == 0 && !is_same(&now, &watch->opened);
}

/* look -- again each time: an epoch that is opened in such a file lies above the fence that was there. */
static void look(struct clock_chore *chore)
{
	struct name_watch *watch = (struct name_watch *)chore;
	struct region *region = watch->region;
	struct superblock superblock;

	if (!is_gone(watch) || superblock_load(region, "", &superblock, NULL) != FARLOG_OK)
		return;
	if (region_load_word(region, LAYOUT_FENCE_OFF) <= superblock.writer_epoch)
		region->ops->store_word(region, LAYOUT_FENCE_OFF, (uint64_t)superblock.writer_epoch + 1);
}

void name_watch_prepare(struct name_watch *watch, int fd, const char *path)
{
	struct stat named;

	watch->fd = fd;
	watch->is_prepared = fstat(fd, &watch->opened) == 0 && S_ISREG(watch->opened.st_mode);
	if (watch->is_prepared && stat(path, &named) == 0 && is_same(&named, &watch->opened))
		watch->path = realpath(path, NULL); /* the process may go to another directory */
}

void name_watch_start(struct name_watch *watch, struct region *region)
{
	if (!watch->is_prepared || watch->region != NULL)
		return;
	watch->region = region;
	watch->chore.run = look;
	clock_add_chore(&watch->chore);
}

void name_watch_stop(struct name_watch *watch)
{
	if (watch->region != NULL)
		clock_remove_chore(&watch->chore);
	free(watch->path);
}
