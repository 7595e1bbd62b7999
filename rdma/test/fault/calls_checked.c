/* calls_checked.c -- with _FORTIFY_SOURCE the compiler puts functions that know the size of the buffer in the place of
 * some calls of libc: each comes to the wrapper of the call (calls.c), so that it fails like the others. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/types.h>

#define CHECKED(result_type, name, checked, plain_parameters, parameters, arguments, is_inside) \
	result_type __wrap_##name plain_parameters; \
	result_type __wrap_##checked parameters; \
	result_type __wrap_##checked parameters \
	{ \
		if (!(is_inside)) \
			abort(); \
		return __wrap_##name arguments; \
	}

CHECKED(ssize_t, read, __read_chk, (int fd, void *buf, size_t len), (int fd, void *buf, size_t len, size_t size),
	(fd, buf, len), len <= size)
CHECKED(ssize_t, pread64, __pread64_chk, (int fd, void *buf, size_t len, off64_t off),
	(int fd, void *buf, size_t len, off64_t off, size_t size), (fd, buf, len, off), len <= size)
CHECKED(ssize_t, readlink, __readlink_chk, (const char *path, char *buf, size_t len),
	(const char *path, char *buf, size_t len, size_t size), (path, buf, len), len <= size)
CHECKED(char *, realpath, __realpath_chk, (const char *path, char *resolved),
	(const char *path, char *resolved, size_t size), (path, resolved), resolved == NULL || size >= 4096)
CHECKED(int, poll, __poll_chk, (struct pollfd * fds, nfds_t count, int timeout_ms),
	(struct pollfd * fds, nfds_t count, int timeout_ms, size_t size), (fds, count, timeout_ms),
	count * sizeof(*fds) <= size)
CHECKED(int, ppoll, __ppoll_chk,
	(struct pollfd * fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask),
	(struct pollfd * fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t size),
	(fds, count, timeout, mask), count * sizeof(*fds) <= size)

/* open64 without a mode, which must then make no file. */
int __wrap_open64(const char *path, int flags, ...);
int __wrap___open64_2(const char *path, int flags);
int __wrap___open64_2(const char *path, int flags)
{
	if (flags & O_CREAT)
		abort();
	return __wrap_open64(path, flags);
}
