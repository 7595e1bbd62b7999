/* mem/watch.h -- watch that the path by which a writer opened its ring still names that file.
 *
 * A removed file still takes records, and loses them when the last process closes it. A file that was replaced is
 * not the one that a drain opens. A writer through a mapping notices neither. So a thread for each file system
 * checks the paths on it ten times a second, by two stat calls each, and raises the fence in the writer's file: the
 * next append returns FENCED. A file system that does not answer delays only the checks of its own files. A file
 * that was renamed, and whose path names nothing, keeps its records: its writer continues. */
#ifndef FARLOG_REGION_MEM_WATCH_H
#define FARLOG_REGION_MEM_WATCH_H

#include <stdbool.h>
#include <sys/stat.h>

#include "region/region.h"

struct name_watch {
	struct name_watch *next;
	struct region *region; /* NULL: not started */
	struct stat opened;
	int fd;
	bool is_prepared;
	char *path; /* NULL: not known, or it names another file already; then only the link count is checked */
};

/* name_watch_prepare -- store the identity and the absolute path of an open file. fd stays the region's. Only regular
 * files are watched. */
void name_watch_prepare(struct name_watch *watch, int fd, const char *path);

/* name_watch_start -- start to watch, after the region was narrowed to the writer's ring. Does nothing if the watch was
 * not prepared, or is started. If no thread can be created, nothing is watched. */
void name_watch_start(struct name_watch *watch, struct region *region);

/* name_watch_stop -- before the region is closed. Waits for a check of this file in progress. Does nothing if never
 * started. */
void name_watch_stop(struct name_watch *watch);

#endif
