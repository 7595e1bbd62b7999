/* mem/msync.c -- make a file in the page cache durable: msync, called by a thread of its own. */
#include "mem/mem_region.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/thread.h"

static void futex_wait(uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
	struct timespec timeout = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, timeout_ns == UINT64_MAX ? NULL : &timeout, NULL, 0);
}

static void futex_wake(uint32_t *word)
{
	__atomic_add_fetch(word, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static int msync_span(struct region_mem *mem, uint64_t off, uint64_t len)
{
	uint64_t start = off & ~(uint64_t)(MEM_PAGE_LEN - 1);
	uint64_t end = off + len;

	return persist_msync(mem->bytes + start, end - start, MS_SYNC);
}

static void *msync_loop(void *context)
{
	struct region_mem *mem = context;
	struct msync_helper *helper = &mem->helper;

	for (;;) {
		uint32_t seen = __atomic_load_n(&helper->wakeup, __ATOMIC_ACQUIRE);
		uint64_t requested = atomic_load_acquire(&helper->requested);

		if (requested != helper->done) {
			for (unsigned i = 0; i < helper->span_count; i++)
				if (msync_span(mem, helper->spans[i].off, helper->spans[i].len) != 0)
					atomic_store_release(&helper->failure, (uint64_t)errno);
			atomic_store_release(&helper->done, requested);
			futex_wake(&helper->completion);
		} else if (atomic_load_acquire(&helper->is_stopping)) {
			return NULL;
		} else {
			futex_wait(&helper->wakeup, seen, UINT64_MAX);
		}
	}
}

/* has_msync_failed -- and sets errno as if this thread had called msync. A page of zeros in the place of one that was
 * lost is no part of the file: msync succeeds there. */
static bool has_msync_failed(const struct region_mem *mem)
{
	uint64_t failure = atomic_load_acquire(&mem->helper.failure);

	if (failure != 0)
		errno = (int)failure;
	return failure != 0 || region_has_lost_page(&mem->region);
}

int msync_persist(struct region *region, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	struct msync_helper *helper = &mem_of(region)->helper;

	if (has_msync_failed(mem_of(region)))
		return FARLOG_IO;
	memcpy(helper->spans, spans, span_count * sizeof(spans[0]));
	helper->span_count = span_count;
	atomic_store_release(&helper->requested, tag);
	futex_wake(&helper->wakeup);
	return FARLOG_OK;
}

int msync_poll(struct region *region)
{
	struct msync_helper *helper = &mem_of(region)->helper;
	uint64_t done = atomic_load_acquire(&helper->done);

	if (has_msync_failed(mem_of(region)))
		return FARLOG_IO;
	atomic_store_relaxed(&region->tag_done, done);
	return FARLOG_OK;
}

void msync_wait(struct region *region, uint64_t timeout_ns)
{
	struct msync_helper *helper = &mem_of(region)->helper;
	uint32_t seen = __atomic_load_n(&helper->completion, __ATOMIC_ACQUIRE);

	if (atomic_load_acquire(&helper->done) != atomic_load_relaxed(&helper->requested))
		futex_wait(&helper->completion, seen, timeout_ns);
}

/* msync_flush -- after a failed write-back the kernel marks the pages clean although the disk never got them; a
 * store to each makes them dirty again. The store is atomic and changes no bit: concurrent stores are not lost. */
int msync_flush(struct region *region, uint64_t off, uint64_t len)
{
	struct region_mem *mem = mem_of(region);

	for (uint64_t page = off & ~(uint64_t)(MEM_PAGE_LEN - 1); page < off + len; page += MEM_PAGE_LEN)
		__atomic_fetch_or((uint64_t *)(mem->bytes + page), 0, __ATOMIC_RELAXED);
	return msync_span(mem, off, len) == 0 && !region_has_lost_page(region) ? FARLOG_OK : FARLOG_IO;
}

int msync_start(const char *text, struct region_mem *mem, struct farlog_error *error)
{
	int failure = thread_start(&mem->helper.thread, msync_loop, mem);

	if (failure != 0)
		return error_set(error, FARLOG_IO, failure, "start msync thread of region \"%s\"", text);
	mem->helper.is_running = true;
	return FARLOG_OK;
}

void msync_stop(struct region_mem *mem)
{
	if (!mem->helper.is_running)
		return;
	atomic_store_release(&mem->helper.is_stopping, 1);
	futex_wake(&mem->helper.wakeup);
	pthread_join(mem->helper.thread, NULL);
}
