/* region/role_lock.c -- see region/role_lock.h. */
#include "region/role_lock.h"

#include <errno.h>
#include <fcntl.h>

#include "ring/layout.h"

static struct flock make_flock(uint64_t block, enum region_role role, short type)
{
	return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = role_lock_off(block, role), .l_len = 1};
}

int role_lock_acquire(int fd, uint64_t block, enum region_role role)
{
	struct flock lock = make_flock(block, role, F_WRLCK);

	if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
		return FARLOG_OK;
	return errno == EAGAIN || errno == EACCES ? FARLOG_HELD : FARLOG_IO;
}

void role_lock_release(int fd, uint64_t block, enum region_role role)
{
	struct flock lock = make_flock(block, role, F_UNLCK);

	fcntl(fd, F_OFD_SETLK, &lock);
}

int role_lock_is_held(int fd, uint64_t block, enum region_role role)
{
	struct flock lock = make_flock(block, role, F_WRLCK);

	if (fcntl(fd, F_OFD_GETLK, &lock) != 0)
		return FARLOG_IO;
	return lock.l_type != F_UNLCK;
}

int role_lock_has_ring_locks(int fd, uint64_t region_len)
{
	uint64_t block_count = region_len / LAYOUT_BLOCK_LEN;
	struct flock parts = {.l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = role_lock_off(block_count, REGION_ROLE_WRITER),
		.l_len = ROLE_LOCKS_LEN * (off_t)block_count};

	if (fcntl(fd, F_OFD_GETLK, &parts) != 0)
		return FARLOG_IO;
	return parts.l_type != F_UNLCK;
}

void role_lock_release_all(int fd)
{
	struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

	fcntl(fd, F_OFD_SETLK, &all);
}
