/* calls.c -- see calls.h. */
#include "calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

static atomic_uint counted; /* calls since the sweep was armed */
static atomic_uint failing; /* which of them fails; 0 = none */
static enum calls_kind failing_kind;
static _Thread_local bool is_mine; /* this thread's calls count */
static _Atomic(const char *) failed_name;
static atomic_int failed_errno;
static _Thread_local bool is_own; /* this thread armed the sweep */
static atomic_bool was_own;       /* and made the call that failed */

const char *calls_kind_name(enum calls_kind kind)
{
	static const char *const names[CALLS_KIND_COUNT] = {"error", "interrupt", "denied"};

	return names[kind];
}

void calls_arm(enum calls_kind kind, unsigned n)
{
	failing_kind = kind;
	failed_name = NULL;
	failed_errno = 0;
	counted = 0;
	is_mine = true;
	is_own = true;
	failing = n;
}

void calls_follow_threads(void)
{
	is_mine = true;
}

bool calls_was_own(void)
{
	return was_own;
}

unsigned calls_disarm(void)
{
	failing = 0;
	is_mine = false;
	return counted;
}

const char *calls_failed(void)
{
	return failed_name;
}

int calls_errno(void)
{
	return failed_errno;
}

int calls_fail(const char *name, const int errors[CALLS_KIND_COUNT])
{
	unsigned n;

	if (!is_mine || failing == 0 || errors[failing_kind] == 0)
		return 0;
	n = atomic_fetch_add(&counted, 1) + 1;
	if (n != failing)
		return 0;
	failed_errno = errors[failing_kind];
	failed_name = name;
	was_own = is_own;
	return errors[failing_kind];
}

#define ERRORS(...) ((const int[CALLS_KIND_COUNT]){__VA_ARGS__})
#define MEDIA ERRORS(EIO, EINTR)
#define NAMES ERRORS(EIO, EINTR, EACCES)
#define SPACE ERRORS(ENOSPC, EINTR)
#define MEMORY ERRORS(ENOMEM)
#define PLAIN ERRORS(EIO)

/* CALL -- a function of the C library that returns -1 or NULL and sets errno. */
#define CALL(result_type, failure, name, errors, parameters, arguments) \
	result_type __real_##name parameters; \
	result_type __wrap_##name parameters; \
	result_type __wrap_##name parameters \
	{ \
		int error = calls_fail(#name, errors); \
\
		if (error == 0) \
			return __real_##name arguments; \
		errno = error; \
		return failure; \
	}

CALL(ssize_t, -1, pread64, MEDIA, (int fd, void *buf, size_t len, off64_t off), (fd, buf, len, off))
CALL(ssize_t, -1, pwrite64, SPACE, (int fd, const void *buf, size_t len, off64_t off), (fd, buf, len, off))
CALL(ssize_t, -1, read, MEDIA, (int fd, void *buf, size_t len), (fd, buf, len))
CALL(ssize_t, -1, write, SPACE, (int fd, const void *buf, size_t len), (fd, buf, len))
CALL(int, -1, msync, PLAIN, (void *start, size_t len, int flags), (start, len, flags))
CALL(int, -1, fsync, MEDIA, (int fd), (fd))
CALL(int, -1, fdatasync, MEDIA, (int fd), (fd))
CALL(int, -1, ftruncate64, SPACE, (int fd, off64_t len), (fd, len))
CALL(int, -1, fstat64, PLAIN, (int fd, struct stat64 *out), (fd, out))
CALL(int, -1, stat64, NAMES, (const char *path, struct stat64 *out), (path, out))
CALL(int, -1, statx, NAMES, (int fd, const char *path, int flags, unsigned mask, struct statx *out),
	(fd, path, flags, mask, out))
CALL(int, -1, statfs64, NAMES, (const char *path, struct statfs64 *out), (path, out))
CALL(int, -1, access, NAMES, (const char *path, int mode), (path, mode))
CALL(ssize_t, -1, readlink, NAMES, (const char *path, char *out, size_t len), (path, out, len))
CALL(char *, NULL, realpath, NAMES, (const char *path, char *out), (path, out))
CALL(int, -1, mkdir, NAMES, (const char *path, mode_t mode), (path, mode))
CALL(int, -1, unlink, NAMES, (const char *path), (path))
CALL(int, -1, rename, NAMES, (const char *from, const char *to), (from, to))
CALL(int, -1, link, NAMES, (const char *from, const char *to), (from, to))
CALL(int, -1, flock, MEDIA, (int fd, int operation), (fd, operation))
CALL(DIR *, NULL, opendir, NAMES, (const char *path), (path))
CALL(struct dirent64 *, NULL, readdir64, PLAIN, (DIR * dir), (dir))
CALL(FILE *, NULL, fopen64, NAMES, (const char *path, const char *mode), (path, mode))
CALL(void *, MAP_FAILED, mmap64, MEMORY, (void *at, size_t len, int protection, int flags, int fd, off64_t off),
	(at, len, protection, flags, fd, off))
CALL(int, -1, madvise, PLAIN, (void *start, size_t len, int advice), (start, len, advice))
CALL(ssize_t, -1, getrandom, MEDIA, (void *buf, size_t len, unsigned flags), (buf, len, flags))
CALL(int, -1, eventfd, MEMORY, (unsigned count, int flags), (count, flags))
CALL(int, -1, poll, MEDIA, (struct pollfd * files, nfds_t count, int timeout), (files, count, timeout))
CALL(int, -1, ppoll, MEDIA, (struct pollfd * files, nfds_t count, const struct timespec *timeout, const sigset_t *mask),
	(files, count, timeout, mask))
CALL(void *, NULL, malloc, MEMORY, (size_t len), (len))
CALL(void *, NULL, calloc, MEMORY, (size_t count, size_t len), (count, len))
CALL(void *, NULL, realloc, MEMORY, (void *old, size_t len), (old, len))
CALL(void *, NULL, aligned_alloc, MEMORY, (size_t align, size_t len), (align, len))

int __real_posix_fallocate64(int fd, off64_t off, off64_t len);
int __wrap_posix_fallocate64(int fd, off64_t off, off64_t len);
int __wrap_posix_fallocate64(int fd, off64_t off, off64_t len)
{
	int error = calls_fail("posix_fallocate64", SPACE);

	return error != 0 ? error : __real_posix_fallocate64(fd, off, len);
}

/* VARIADIC -- one more word may come. */
#define VARIADIC(name, errors, first_type, second_type) \
	int __real_##name(first_type first, second_type second, ...); \
	int __wrap_##name(first_type first, second_type second, ...); \
	int __wrap_##name(first_type first, second_type second, ...) \
	{ \
		int error = calls_fail(#name, errors); \
		va_list more; \
		void *third; \
\
		va_start(more, second); \
		third = va_arg(more, void *); \
		va_end(more); \
		if (error == 0) \
			return __real_##name(first, second, third); \
		errno = error; \
		return -1; \
	}

VARIADIC(open64, NAMES, const char *, int)
VARIADIC(fcntl64, MEDIA, int, int)
VARIADIC(ioctl, MEDIA, int, unsigned long)

/* A thread that is started while the sweep is armed counts, too. */
struct start {
	void *(*run)(void *);
	void *argument;
};

static void *run_counted(void *argument)
{
	struct start start = *(struct start *)argument;

	free(argument);
	is_mine = true;
	return start.run(start.argument);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
	int error = calls_fail("pthread_create", ERRORS(EAGAIN));
	struct start *start;
	int result;

	if (error != 0)
		return error;
	if (!is_mine || (start = __real_malloc(sizeof(*start))) == NULL)
		return __real_pthread_create(thread, attributes, run, argument);
	*start = (struct start){run, argument};
	result = __real_pthread_create(thread, attributes, run_counted, start);
	if (result != 0)
		free(start);
	return result;
}

/* Commands to a block device go by liburing, which is loaded. One that shall fail is sent to a file that is not
 * open. */
static int (*real_submit)(struct io_uring *);
static int (*real_submit_and_get_events)(struct io_uring *);
static int (*real_submit_and_wait_timeout)(
	struct io_uring *, struct io_uring_cqe **, unsigned, struct __kernel_timespec *, sigset_t *);

static void poison_last(struct io_uring *ring)
{
	struct io_uring_sqe *sqe;

	if (ring->sq.sqe_tail == ring->sq.sqe_head || calls_fail("io_uring command", ERRORS(EBADF)) == 0)
		return;
	sqe = &ring->sq.sqes[(ring->sq.sqe_tail - 1) & ring->sq.ring_mask];
	sqe->fd = 1 << 20;
}

static int submit(struct io_uring *ring)
{
	int error = calls_fail("io_uring_submit", ERRORS(EIO, EINTR));

	if (error != 0)
		return -error;
	poison_last(ring);
	return real_submit(ring);
}

static int submit_and_get_events(struct io_uring *ring)
{
	int error = calls_fail("io_uring_submit_and_get_events", ERRORS(EIO, EINTR));

	if (error != 0)
		return -error;
	poison_last(ring);
	return real_submit_and_get_events(ring);
}

static int submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **answer, unsigned count,
	struct __kernel_timespec *timeout, sigset_t *signals)
{
	int error = calls_fail("io_uring_submit_and_wait_timeout", ERRORS(EIO, EINTR));

	if (error != 0)
		return -error;
	poison_last(ring);
	return real_submit_and_wait_timeout(ring, answer, count, timeout, signals);
}

void *__real_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name)
{
	static const struct {
		const char *name;
		void *real;
		void *wrapped;
	} submits[] = {{"io_uring_submit", &real_submit, (void *)submit},
		{"io_uring_submit_and_get_events", &real_submit_and_get_events, (void *)submit_and_get_events},
		{"io_uring_submit_and_wait_timeout", &real_submit_and_wait_timeout, (void *)submit_and_wait_timeout}};
	void *found = __real_dlsym(handle, name);

	for (unsigned i = 0; found != NULL && i < sizeof(submits) / sizeof(submits[0]); i++) {
		if (strcmp(name, submits[i].name) == 0) {
			*(void **)submits[i].real = found;
			return submits[i].wrapped;
		}
	}
	return found != NULL ? calls_of_ofi(name, found) : NULL;
}
