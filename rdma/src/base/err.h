/* base/err.h -- filling a struct farlog_error. */
#ifndef FARLOG_ERR_H
#define FARLOG_ERR_H

#include "farlog/farlog.h"

/* error_set -- write the text and result, return the result. os_errno 0 = none; else its text is appended.
 * error may be NULL. */
int error_set(struct farlog_error *error, int result, int os_errno, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* may_fail -- a result that nothing depends on; the reason stands beside the call. */
static inline void may_fail(int result)
{
	(void)result;
}

#endif
