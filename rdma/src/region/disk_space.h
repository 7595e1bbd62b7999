/* region/disk_space.h -- allocate the blocks of a file, and leave a reserve on its disk. */
#ifndef FARLOG_DISK_SPACE_H
#define FARLOG_DISK_SPACE_H

#include <stdint.h>

#include "farlog/farlog.h"

/* DISK_RESERVE_MAX -- a ring never takes the last 5 % of a file system, or this many bytes if they are fewer: the
 * store, the state of the control plane and logs are often on the same disk, and must be able to write. */
#define DISK_RESERVE_MAX (1ull << 30)

/* disk_allocate -- allocate size_bytes of blocks to an open, empty, regular file that nobody else is allocating. They
 * are durable after an fsync. Checks the reserve before it allocates: ext4 takes all free space before it reports that
 * there is too little, and meanwhile nobody else can write.
 *
 * ERRORS  FARLOG_IO with errno; ENOSPC where the disk has too little. The file is empty again. May block for as long as
 *         the file system takes. */
int disk_allocate(
	const char *text, const char *path, int fd, uint64_t size_bytes, struct farlog_error *error) FARLOG_MUST_CHECK;

/* disk_open_or_create -- open the file for reading and writing. A missing or empty regular file is first made
 * size_bytes long, durably. Of several processes that call it at once one allocates; the others wait and open the
 * result, or allocate if that failed. So none truncates a file that another one has allocated.
 *
 * ERRORS  FARLOG_IO with errno, FARLOG_NOT_FOUND where its directory is missing; a created file is removed again. May
 *         block as disk_allocate, once for each process before it. */
int disk_open_or_create(
	const char *text, const char *path, uint64_t size_bytes, int *fd, struct farlog_error *error) FARLOG_MUST_CHECK;

/* disk_sync_directory -- fsync the directory that contains path: 0, or -1 and errno. */
int disk_sync_directory(const char *path) FARLOG_MUST_CHECK;

#endif
