/* region/disk_space.c -- see region/disk_space.h. */
#include "region/disk_space.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/err.h"
#include "base/uri.h"

/* read_free_space -- bytes that are free for unprivileged users, and the reserve. False: the file system does not
 * report them, as hugetlbfs without a limit. */
static bool read_free_space(int fd, uint64_t *free_bytes, uint64_t *reserve_bytes)
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

	if (read_free_space(fd, &free_bytes, &reserve_bytes) &&
		(free_bytes < reserve_bytes || size_bytes > free_bytes - reserve_bytes)) {
		error_set(error, FARLOG_IO, 0,
			"allocate %lu bytes for region \"%s\": the disk of %s has %lu bytes free, of which %lu stay for others: no "
			"space left; "
			"free some of it, take a smaller size or another disk",
			size_bytes, text, path, free_bytes, reserve_bytes);
		if (error != NULL)
			error->os_errno = ENOSPC; /* for programs; the text names it already */
		return FARLOG_IO;
	}
	failure = posix_fallocate(fd, 0, (off_t)size_bytes);
	if (failure == 0)
		return FARLOG_OK;
	if (ftruncate(fd, 0) != 0)
		failure = errno;
	return error_set(error, FARLOG_IO, failure, "allocate %lu bytes for region \"%s\" at %s", size_bytes, text, path);
}

int disk_sync_directory(const char *path)
{
	char directory[URI_PATH_LEN_MAX];
	int fd;
	int result;

	strcpy(directory, path);
	fd = open(dirname(directory), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	result = fsync(fd);
	close(fd);
	return result;
}

/* open_or_create_empty -- the descriptor, or -1 and errno. Another process may create or remove the file between any
 * two calls. */
static int open_or_create_empty(const char *path, bool *is_created)
{
	int fd;

	do {
		*is_created = false;
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd >= 0 || errno != ENOENT)
			return fd;
		*is_created = true;
		fd = open(path, O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0640);
	} while (fd < 0 && errno == EEXIST);
	return fd;
}

/* lock_creation -- wait until no other process allocates the file. The lock ends with the open file. 0 or errno. */
static int lock_creation(int fd)
{
	while (flock(fd, LOCK_EX) != 0)
		if (errno != EINTR)
			return errno;
	return 0;
}

/* allocate_file -- with the lock of lock_creation held. */
static int allocate_file(
	const char *text, const char *path, int fd, uint64_t size_bytes, bool is_created, struct farlog_error *error)
{
	int result;

	result = disk_allocate(text, path, fd, size_bytes, error);
	if (result == FARLOG_OK && (fsync(fd) != 0 || disk_sync_directory(path) != 0))
		result = error_set(error, FARLOG_IO, errno, "make %lu bytes of region \"%s\" durable", size_bytes, text);
	if (result != FARLOG_OK && is_created)
		unlink(path);
	return result;
}

/* try_open_or_create -- NOT_YET: another process failed to allocate the file and removed it: try again. */
static int try_open_or_create(
	const char *text, const char *path, uint64_t size_bytes, int *fd, struct farlog_error *error)
{
	struct stat info;
	bool is_created;
	int failure;
	int result = FARLOG_OK;

	*fd = open_or_create_empty(path, &is_created);
	if (*fd < 0)
		return error_set(error, errno == ENOENT ? FARLOG_NOT_FOUND : FARLOG_IO, errno, "open region \"%s\"", text);
	failure = fstat(*fd, &info) != 0 ? errno : 0;
	if (failure == 0 && (!S_ISREG(info.st_mode) || info.st_size != 0))
		return FARLOG_OK;
	if (failure == 0)
		failure = lock_creation(*fd);
	if (failure == 0 && fstat(*fd, &info) != 0)
		failure = errno;
	if (failure != 0)
		result = error_set(error, FARLOG_IO, failure, "lock region \"%s\", to make its file", text);
	else if (info.st_nlink == 0)
		result = FARLOG_NOT_YET;
	else if (info.st_size == 0)
		result = allocate_file(text, path, *fd, size_bytes, is_created, error);
	if (result == FARLOG_OK) {
		(void)flock(*fd, LOCK_UN);
		return FARLOG_OK;
	}
	close(*fd);
	*fd = -1;
	return result;
}

int disk_open_or_create(const char *text, const char *path, uint64_t size_bytes, int *fd, struct farlog_error *error)
{
	int result;

	do
		result = try_open_or_create(text, path, size_bytes, fd, error);
	while (result == FARLOG_NOT_YET);
	return result;
}
