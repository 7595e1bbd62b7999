/* blocks/lib_uring.h -- liburing, loaded when the first nvme: URI is opened.
 *
 * Only what the library exports is here: preparing a command and looking for answers are inline functions of
 * liburing.h. */
#ifndef FARLOG_LIB_URING_H
#define FARLOG_LIB_URING_H

#include <liburing.h>

#include "farlog/farlog.h"

/* name, parameters; each returns an int, negative: -errno */
#define LIB_URING_TABLE(X) \
	X(queue_init, (unsigned entries, struct io_uring *ring, unsigned flags)) \
	X(queue_init_params, (unsigned entries, struct io_uring *ring, struct io_uring_params *params)) \
	X(submit_and_get_events, (struct io_uring * ring)) \
	X(get_events, (struct io_uring * ring)) \
	X(register_buffers, (struct io_uring * ring, const struct iovec *buffers, unsigned count)) \
	X(register_files, (struct io_uring * ring, const int *files, unsigned count)) \
	X(submit, (struct io_uring * ring)) \
	X(submit_and_wait_timeout, \
		(struct io_uring * ring, struct io_uring_cqe * *answer, unsigned count, struct __kernel_timespec *timeout, \
			sigset_t *signals))

struct lib_uring {
#define LIB_URING_FIELD(name, parameters) int(*name) parameters;
	LIB_URING_TABLE(LIB_URING_FIELD)
#undef LIB_URING_FIELD
	void (*queue_exit)(struct io_uring *ring);
};

/* lib_uring_load -- once a process, by any thread. OK, or UNSUPPORTED with a text that says what to install. */
int lib_uring_load(const struct lib_uring **lib, struct farlog_error *error) FARLOG_MUST_CHECK;

#endif
