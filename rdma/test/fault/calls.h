/* calls.h -- the calls into kernel and libraries that a sweep makes fail, one at a time.
 *
 * The linker puts these functions in place of the calls (--wrap), so that the product's own code runs unchanged. Only
 * calls of the thread that armed the sweep, and of threads started since, are counted: the clock's sampler and others
 * of before do not move the count. */
#ifndef FARLOG_TEST_CALLS_H
#define FARLOG_TEST_CALLS_H

#include <stdbool.h>

/* How a call fails. */
enum calls_kind {
	CALLS_ERROR,     /* as the device or the kernel would: EIO, ENOSPC, ENOMEM, by the call */
	CALLS_INTERRUPT, /* EINTR, of the calls that may be interrupted */
	CALLS_DENIED,    /* EACCES, of the calls that open or name something */
	CALLS_KIND_COUNT,
};

/* calls_arm -- the n-th call from now on fails (n = 1 is the next). calls_disarm -- none does; how many were
 * counted. */
void calls_arm(enum calls_kind kind, unsigned n);
unsigned calls_disarm(void);

/* calls_follow_threads -- threads that this one starts before the sweep is armed count when it is. */
void calls_follow_threads(void);

/* calls_fail -- count a call; the errno with which it fails, 0 = it is made. errors: by enum calls_kind, 0 = a call of
 * this kind does not fail so. calls_of_ofi -- what to call in place of a function that libfabric exports. */
int calls_fail(const char *name, const int errors[CALLS_KIND_COUNT]);
void *calls_of_ofi(const char *name, void *found);

/* calls_was_own -- the call that failed was one of the thread that armed the sweep. */
bool calls_was_own(void);

/* calls_failed -- the name of the call that was made to fail, NULL = none was; calls_errno -- what it said. */
const char *calls_failed(void);
int calls_errno(void);
const char *calls_kind_name(enum calls_kind kind);

#endif
