/* mem/mem_region.h -- an open mem: region, shared by mem/mem.c and mem/msync.c. */
#ifndef FARLOG_MEM_REGION_H
#define FARLOG_MEM_REGION_H

#include <pthread.h>

#include "mem/map_guard.h"
#include "mem/persist.h"
#include "mem/watch.h"
#include "region/region.h"

#define MEM_SPAN_COUNT_MAX 2
#define MEM_PAGE_LEN 4096u

/* The thread that calls msync, so that no append waits past its deadline for a disk. `requested` and `done` are tags;
 * the writer stores requested, the thread done. */
struct msync_helper {
	pthread_t thread;
	bool is_running;
	uint64_t requested;
	uint64_t done;
	uint64_t failure; /* errno of an msync, 0 = none has failed */
	uint64_t is_stopping;
	uint32_t wakeup;     /* futex word of the helper; raised by the writer */
	uint32_t completion; /* futex word of the waiting writer; raised by the helper */
	unsigned span_count;
	struct region_span spans[MEM_SPAN_COUNT_MAX];
};

struct region_mem {
	struct region region;
	uint8_t *map;
	uint64_t map_len;
	uint8_t *bytes; /* first byte of the region in the map: of a ring in a directory, or all */
	int fd;
	bool has_name;           /* the file had a path when it was opened; false: opened by descriptor */
	struct name_watch watch; /* of a writer */
	struct map_guard guard;
	uint8_t *served; /* the second mapping, of region_mem_serve; NULL = there is none */
	uint64_t served_len;
	persist_copy_fn copy;
	persist_gather_fn gather;
	struct msync_helper helper;
};

static inline struct region_mem *mem_of(struct region *region)
{
	return (struct region_mem *)region;
}

/* msync_start -- start the thread of a writable region. OK or IO. msync_stop -- end it, if it runs; waits for its
 * msync. */
int msync_start(const char *text, struct region_mem *mem, struct farlog_error *error) FARLOG_MUST_CHECK;
void msync_stop(struct region_mem *mem);

/* msync_persist, msync_poll, msync_wait, msync_flush -- region_data_ops of a file in the page cache. */
int msync_persist(
	struct region *region, const struct region_span *spans, unsigned span_count, uint64_t tag) FARLOG_MUST_CHECK;
int msync_poll(struct region *region) FARLOG_MUST_CHECK;
void msync_wait(struct region *region, uint64_t timeout_ns);
int msync_flush(struct region *region, uint64_t off, uint64_t len) FARLOG_MUST_CHECK;

#endif
