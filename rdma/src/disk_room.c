/* disk_room.c -- see disk_room.h. */
#include "disk_room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "err.h"

/* tells_free -- how much of the file system anybody may take, and what of it has to stay. False: it does not tell, as hugetlbfs without a limit. */
static bool tells_free(int fd, uint64_t *free_bytes, uint64_t *reserve_bytes)
{
	struct statvfs disk;

	if (fstatvfs(fd, &disk) != 0 || disk.f_blocks == 0)
		return false;
	*free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
	*reserve_bytes = (uint64_t)disk.f_blocks * disk.f_frsize / 20;
	if (*reserve_bytes > DISK_RESERVE_MAX)
		*reserve_bytes = DISK_RESERVE_MAX;
	return true;
}

int disk_allocate(const char *text, const char *path, int fd, uint64_t size_bytes, struct farlog_error *error)
{
	uint64_t free_bytes;
	uint64_t reserve_bytes;
	int failure;

	if (tells_free(fd, &free_bytes, &reserve_bytes) && (free_bytes < reserve_bytes || size_bytes > free_bytes - reserve_bytes)) {
		error_set(error, FARLOG_IO, 0, "allocate %lu bytes for region \"%s\": the disk of %s has %lu bytes free, of which %lu stay for others: no space left; "
			"free some of it, take a smaller size or another disk", size_bytes, text, path, free_bytes, reserve_bytes);
		if (error != NULL)
			error->os_errno = ENOSPC; /* for programs: the text says it already */
		return FARLOG_IO;
	}
	failure = posix_fallocate(fd, 0, (off_t)size_bytes);
	if (failure == 0)
		return FARLOG_OK;
	if (ftruncate(fd, 0) != 0)
		failure = errno;
	return error_set(error, FARLOG_IO, failure, "allocate %lu bytes for region \"%s\" at %s", size_bytes, text, path);
}
