/* adversary/msync.c -- what stands before persist_msync: adversary/file.h. */
#include "adversary/file.h"
#include "mem/persist.h"

static int (*msync_instead)(void *start, size_t len, int flags); /* NULL: the kernel's */

void farlog_file_set_msync(int (*instead)(void *start, size_t len, int flags))
{
	__atomic_store_n(&msync_instead, instead, __ATOMIC_RELEASE);
}

int __real_persist_msync(void *start, size_t len, int flags);
int __wrap_persist_msync(void *start, size_t len, int flags);

int __wrap_persist_msync(void *start, size_t len, int flags)
{
	int (*instead)(void *start, size_t len, int flags) = __atomic_load_n(&msync_instead, __ATOMIC_ACQUIRE);

	return instead != NULL ? instead(start, len, flags) : __real_persist_msync(start, len, flags);
}
