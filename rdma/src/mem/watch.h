/* mem/watch.h -- whether the name by which a writer opened its ring's file still leads to that file.
 *
 * A file that was removed takes records as before, and loses them with the last process that has it open; one that
 * another file has taken the place of is not where a drain looks. Neither tells who writes through a mapping. So a
 * thread looks ten times a second, one for each file system that a ring lies on, and raises the fence in the file that
 * the writer has: the next append is refused. It costs two calls of stat a look. A file system that does not answer
 * holds up the looks at those on it, and nothing else. A file that was renamed, and whose name leads nowhere, has its
 * records still: its writer goes on. */
#ifndef FARLOG_REGION_MEM_WATCH_H
#define FARLOG_REGION_MEM_WATCH_H

#include <stdbool.h>
#include <sys/stat.h>

#include "region/region.h"

struct name_watch {
	struct name_watch *next;
	struct region *region; /* NULL: nothing is watched yet */
	struct stat opened;
	int fd;
	bool is_prepared;
	char *path; /* NULL: its name leads elsewhere already, or is not known; whether it has any is looked at alone */
};

/* name_watch_prepare -- keep what the file is, and where: of a file that has a name. fd is the region's. Of what is no
 * regular file nothing is watched. */
void name_watch_prepare(struct name_watch *watch, int fd, const char *path);

/* name_watch_start -- from now on. Once the region is narrowed to the ring that is written, by its writer. Of one that
 * was not prepared, or is started: nothing. Where no thread is to be had nothing is watched. */
void name_watch_start(struct name_watch *watch, struct region *region);

/* name_watch_stop -- before the region goes. Waits for a look at this one that is under way. Of one that was never
 * started: nothing. */
void name_watch_stop(struct name_watch *watch);

#endif
