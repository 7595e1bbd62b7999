/* adversary/file.h -- an adversarial page cache below a real mem: region of a file, for the crash tests.
 *
 * The region is mem/mem.c's own, of a file in the page cache: its stores, its msync, its thread. What it has given to
 * msync is on the media when that has come back; of all other pages any may be, as they were at any time, or some of
 * their sectors as they are now. Pages are the unit, and nothing of a page that msync was not asked for is safe. */
#ifndef FARLOG_REGION_FAULT_FILE_H
#define FARLOG_REGION_FAULT_FILE_H

#include "base/uri.h"
#include "region/region.h"

int region_fault_file_open(const char *text, const struct uri *uri, const struct region_options *how,
	struct region **region, struct farlog_error *error) FARLOG_MUST_CHECK;

/* As those of adversary/memory.h. */
FARLOG_API void farlog_file_reseed(const char *name, uint64_t seed);
FARLOG_API void farlog_file_drop(const char *name);
FARLOG_API void farlog_file_arm(const char *name, uint64_t operation_count);
FARLOG_API int farlog_file_is_dead(const char *name) FARLOG_MUST_CHECK;
FARLOG_API void farlog_file_call(
	const char *name, uint64_t operation_count, void (*call)(void *context), void *context);
FARLOG_API void farlog_file_crash(const char *name);
FARLOG_API void farlog_file_kill(const char *name);

/* farlog_file_set_msync -- what stands in place of msync(2) below every region of a file; NULL: the kernel. */
FARLOG_API void farlog_file_set_msync(int (*instead)(void *start, size_t len, int flags));

#endif
