/* mem/watch_look.h -- one look at a name, by the thread of its file system. It waits for as long as that does not
 * answer. */
#ifndef FARLOG_REGION_MEM_WATCH_LOOK_H
#define FARLOG_REGION_MEM_WATCH_LOOK_H

#include "mem/watch.h"

/* name_watch_is_same -- are they one file? */
static inline bool name_watch_is_same(const struct stat *one, const struct stat *other)
{
	return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

/* name_watch_look -- raise the fence in a file that its name does not lead to any more. */
void name_watch_look(struct name_watch *watch);

#endif
