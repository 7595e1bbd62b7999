/* blocks/name.h -- a namespace by the name of its subsystem, which stays, when the numbers in /dev change with every
 * connection. */
#ifndef FARLOG_BLOCK_NAME_H
#define FARLOG_BLOCK_NAME_H

#include <stdbool.h>
#include <stddef.h>

#include "farlog/farlog.h"

/* block_is_nqn -- is this "NQN" or "NQN/NAMESPACE" rather than a path? */
bool block_is_nqn(const char *name);

/* block_find_namespace -- the device of "NQN/NAMESPACE" (without a number: the only one of that subsystem), looked for
 * in `sysfs`, which is "/sys". *path is its place in /dev. INVALID: no NQN; NOT_FOUND: none is connected here, or
 * several are and none is named. */
int block_find_namespace(const char *text, const char *name, const char *sysfs, char *path, size_t size,
	struct farlog_error *error) FARLOG_MUST_CHECK;

#endif
