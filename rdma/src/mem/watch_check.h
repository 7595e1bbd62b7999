/* mem/watch_check.h -- check one path, in the checker thread of its file system. Blocks while the file system does
 * not answer. */
#ifndef FARLOG_REGION_MEM_WATCH_CHECK_H
#define FARLOG_REGION_MEM_WATCH_CHECK_H

#include "mem/watch.h"

/* name_watch_is_same_file -- do both describe one file? */
static inline bool name_watch_is_same_file(const struct stat *one, const struct stat *other)
{
	return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

/* name_watch_check -- raise the fence in a file that its path no longer names. */
void name_watch_check(struct name_watch *watch);

#endif
