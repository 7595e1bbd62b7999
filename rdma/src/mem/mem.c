/* mem/mem.c -- memory that this processor can map: PCI BAR, devdax, fsdax, tmpfs, plain file. */
#include "mem/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "mem/persist.h"
#include "mem/watch.h"
#include "region/disk_room.h"
#include "region/role_lock.h"
#include "ring/layout.h"
#include "ring/stream.h"

#define SPAN_COUNT_MAX 2
#define PAGE_LEN 4096u
#define DEVDAX_ALIGN (2u << 20) /* the usual alignment of a DAX device's mapping */

/* The helper that calls msync, so that no append waits past its deadline for a disk. `asked` and `done` are tags;
 * asked is stored by the writer, done by the helper. */
struct msync_helper {
	pthread_t thread;
	bool is_running;
	uint64_t asked;
	uint64_t done;
	uint64_t failure; /* errno of an msync, 0 = none has failed */
	uint64_t is_stopping;
	uint32_t wakeup; /* futex word of the helper; raised by the writer */
	uint32_t echo;   /* futex word of the waiting writer; raised by the helper */
	unsigned span_count;
	struct region_span spans[SPAN_COUNT_MAX];
};

struct region_mem {
	struct region region;
	uint8_t *map;
	uint64_t map_len;
	uint8_t *bytes; /* what is shown of it: where a ring in a directory begins, else map */
	int fd;
	bool has_name;           /* a directory has it; false: a descriptor alone */
	struct name_watch watch; /* of a writer */
	persist_copy_fn copy;
	persist_gather_fn gather;
	struct msync_helper helper;
};

static struct region_mem *mem_of(struct region *region)
{
	return (struct region_mem *)region;
}

static void futex_wait(uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
	struct timespec timeout = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, timeout_ns == UINT64_MAX ? NULL : &timeout, NULL, 0);
}

static void futex_ring(uint32_t *word)
{
	__atomic_add_fetch(word, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static int msync_span(struct region_mem *mem, uint64_t off, uint64_t len)
{
	uint64_t start = off & ~(uint64_t)(PAGE_LEN - 1);
	uint64_t end = off + len;

	return persist_msync(mem->bytes + start, end - start, MS_SYNC);
}

static void *msync_loop(void *context)
{
	struct region_mem *mem = context;
	struct msync_helper *helper = &mem->helper;

	for (;;) {
		uint32_t seen = __atomic_load_n(&helper->wakeup, __ATOMIC_ACQUIRE);
		uint64_t asked = atomic_load_acquire(&helper->asked);

		if (asked != helper->done) {
			for (unsigned i = 0; i < helper->span_count; i++)
				if (msync_span(mem, helper->spans[i].off, helper->spans[i].len) != 0)
					atomic_store_release(&helper->failure, (uint64_t)errno);
			atomic_store_release(&helper->done, asked);
			futex_ring(&helper->echo);
		} else if (atomic_load_acquire(&helper->is_stopping)) {
			return NULL;
		} else {
			futex_wait(&helper->wakeup, seen, UINT64_MAX);
		}
	}
}

static void mem_write(struct region *region, uint64_t off, const void *src, size_t len)
{
	struct region_mem *mem = mem_of(region);

	mem->copy(mem->bytes + off, src, len);
}

static void mem_gather(struct region *region, uint64_t off, struct gather *gather)
{
	struct region_mem *mem = mem_of(region);

	mem->gather(mem->bytes + off, gather);
}

static int mem_persist(struct region *region, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	(void)spans, (void)span_count;
	persist_fence();
	atomic_store_relaxed(&region->tag_done, tag);
	return FARLOG_OK;
}

/* read_back -- a read from the device pushes the posted writes before it (PCI Express Base Specification, transaction
 * ordering: a read completion may not pass a posted write). The word read is the one that the writer wants to know
 * anyway. */
static void read_back(struct region *region)
{
	persist_fence_loads();
	atomic_store_relaxed(&region->fence_seen, region_load_word(region, LAYOUT_FENCE_OFF));
}

static int bar_persist(struct region *region, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	(void)spans, (void)span_count;
	read_back(region);
	atomic_store_relaxed(&region->tag_done, tag);
	return FARLOG_OK;
}

static int mem_poll(struct region *region)
{
	(void)region; /* persist has told */
	return FARLOG_OK;
}

/* has_failed -- with errno, as a call of this thread would have it. */
static bool has_failed(struct msync_helper *helper)
{
	uint64_t failure = atomic_load_acquire(&helper->failure);

	if (failure != 0)
		errno = (int)failure;
	return failure != 0;
}

static int msync_persist(struct region *region, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	struct msync_helper *helper = &mem_of(region)->helper;

	if (has_failed(helper))
		return FARLOG_IO;
	memcpy(helper->spans, spans, span_count * sizeof(spans[0]));
	helper->span_count = span_count;
	atomic_store_release(&helper->asked, tag);
	futex_ring(&helper->wakeup);
	return FARLOG_OK;
}

static int msync_poll(struct region *region)
{
	struct msync_helper *helper = &mem_of(region)->helper;
	uint64_t done = atomic_load_acquire(&helper->done);

	if (has_failed(helper))
		return FARLOG_IO;
	atomic_store_relaxed(&region->tag_done, done);
	return FARLOG_OK;
}

static void msync_wait(struct region *region, uint64_t timeout_ns)
{
	struct msync_helper *helper = &mem_of(region)->helper;
	uint32_t seen = __atomic_load_n(&helper->echo, __ATOMIC_ACQUIRE);

	if (atomic_load_acquire(&helper->done) != atomic_load_relaxed(&helper->asked))
		futex_wait(&helper->echo, seen, timeout_ns);
}

static int mem_flush(struct region *region, uint64_t off, uint64_t len)
{
	struct region_mem *mem = mem_of(region);

	if (region->contract.flush_method != FARLOG_FLUSH_NONE)
		persist_range(mem->bytes + off, len);
	if (mem->region.contract.is_read_back)
		read_back(region);
	return FARLOG_OK;
}

/* After a failed write-back the kernel calls the pages clean although the disk never got them; a store to each makes
 * them dirty again. The store changes nothing and is atomic, so that whoever stores beside it loses nothing. */
static int msync_flush(struct region *region, uint64_t off, uint64_t len)
{
	struct region_mem *mem = mem_of(region);

	for (uint64_t page = off & ~(uint64_t)(PAGE_LEN - 1); page < off + len; page += PAGE_LEN)
		__atomic_fetch_or((uint64_t *)(mem->bytes + page), 0, __ATOMIC_RELAXED);
	return msync_span(mem, off, len) == 0 ? FARLOG_OK : FARLOG_IO;
}

static void mem_seal(struct region *region)
{
	if (region->caps.is_load_slow)
		read_back(region);
	else
		persist_fence();
}

static int mem_read(struct region *region, uint64_t off, void *dst, size_t len)
{
	memcpy(dst, mem_of(region)->bytes + off, len);
	return FARLOG_OK;
}

static void mem_store_word(struct region *region, uint64_t off, uint64_t value)
{
	atomic_store_release((uint64_t *)(mem_of(region)->bytes + off), value);
}

/* mem_tell -- of a plain file the page is durable with the next write-back: an msync would take its time. */
static bool mem_tell(struct region *region, uint64_t tail_lsn, uint64_t durable_lsn)
{
	mem_store_word(region, LAYOUT_TAIL_HINT_OFF, tail_lsn);
	mem_store_word(region, LAYOUT_DURABLE_HINT_OFF, durable_lsn);
	return !region->caps.is_seal_durable || mem_flush(region, LAYOUT_TAIL_HINT_OFF, 2 * sizeof(uint64_t)) == FARLOG_OK;
}

static void mem_populate(struct region *region)
{
	struct region_mem *mem = mem_of(region);
	/* A write fault would make every page of a file dirty, and the next write-back as long as the ring. */
	int advice = region->contract.kind == FARLOG_REGION_FILE ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;

	madvise(mem->bytes, region->contract.size_bytes, advice);
}

static void mem_forget(struct region *region, uint64_t off, uint64_t len)
{
	uint64_t start = (off + PAGE_LEN - 1) & ~(uint64_t)(PAGE_LEN - 1);
	uint64_t end = (off + len) & ~(uint64_t)(PAGE_LEN - 1);

	/* The mapping is shared: dropping its pages from this process loses no byte. */
	if (start < end && region->contract.kind != FARLOG_REGION_BAR && region->contract.kind != FARLOG_REGION_DEVDAX)
		madvise(mem_of(region)->bytes + start, end - start, MADV_DONTNEED);
}

static int mem_narrow(struct region *region, uint64_t off, uint64_t len)
{
	struct region_mem *mem = mem_of(region);

	mem->bytes = mem->map + off;
	region->base = mem->bytes;
	region->contract.size_bytes = len;
	if (region->streamed != NULL)
		region->streamed = mem->bytes;
	return FARLOG_OK;
}

void region_mem_place(const struct region *region, char *path, uint64_t *off)
{
	const struct region_mem *mem = (const struct region_mem *)region;
	char link[64];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", mem->fd);
	len = readlink(link, path, PATH_MAX - 1);
	path[len > 0 ? len : 0] = '\0';
	*off = (uint64_t)(mem->bytes - mem->map);
}

static uint64_t block_of(const struct region_mem *mem)
{
	return (uint64_t)(mem->bytes - mem->map) / LAYOUT_BLOCK_LEN;
}

/* is_unlinked -- the file had a name when it was opened, and has none any more: who removed it held its locks and found
 * nothing in it. 1, 0 or IO, with errno. */
static int is_unlinked(const struct region_mem *mem)
{
	struct stat now;

	if (!mem->has_name)
		return 0;
	return fstat(mem->fd, &now) != 0 ? FARLOG_IO : now.st_nlink == 0;
}

static void mem_unlock(struct region *region, enum region_role role)
{
	role_lock_give(mem_of(region)->fd, block_of(mem_of(region)), role);
}

static int mem_lock(struct region *region, enum region_role role)
{
	struct region_mem *mem = mem_of(region);
	int result = role_lock_take(mem->fd, block_of(mem), role);
	int refusal;

	if (result != FARLOG_OK)
		return result;
	refusal = is_unlinked(mem);
	if (refusal != 0) {
		mem_unlock(region, role); /* what is written now would be gone with the last one that has it open */
		return refusal > 0 ? FARLOG_NOT_FOUND : refusal;
	}
	if (role != REGION_ROLE_WRITER)
		return FARLOG_OK;
	refusal = mem->bytes == mem->map ? role_lock_has_parts(mem->fd, mem->map_len) : 0;
	if (refusal != 0) {
		mem_unlock(region, role); /* who writes to all of a region has no others in it */
		return refusal > 0 ? FARLOG_HELD : refusal;
	}
	name_watch_start(&mem->watch, region);
	return FARLOG_OK;
}

static int mem_is_locked(struct region *region, enum region_role role)
{
	return role_lock_is_taken(mem_of(region)->fd, block_of(mem_of(region)), role);
}

static void mem_close(struct region *region)
{
	struct region_mem *mem = mem_of(region);

	name_watch_stop(&mem->watch);
	if (mem->helper.is_running) {
		atomic_store_release(&mem->helper.is_stopping, 1);
		futex_ring(&mem->helper.wakeup);
		pthread_join(mem->helper.thread, NULL);
	}
	if (mem->map != NULL)
		munmap(mem->map, mem->map_len);
	if (mem->fd >= 0)
		close(mem->fd);
	free(mem);
}

static int mem_unlink(const struct region *region, const char *path)
{
	struct stat info;
	struct stat named;

	if (fstat(((const struct region_mem *)region)->fd, &info) != 0)
		return FARLOG_IO;
	if (!S_ISREG(info.st_mode))
		return FARLOG_INVALID;
	if (stat(path, &named) != 0)
		return FARLOG_IO;
	if (named.st_dev != info.st_dev || named.st_ino != info.st_ino) {
		errno = ESTALE; /* another file has its name by now: that one nobody has looked at */
		return FARLOG_IO;
	}
	return unlink(path) == 0 && disk_sync_directory(path) == 0 ? FARLOG_OK : FARLOG_IO;
}

#define MEM_OPS(persist_op, poll_op, wait_op, flush_op) \
	{.data = {.write = mem_write, \
		 .gather = mem_gather, \
		 .persist = persist_op, \
		 .poll = poll_op, \
		 .wait = wait_op, \
		 .sleepers = region_plain_sleepers, \
		 .push = region_plain_push, \
		 .flush = flush_op, \
		 .seal = mem_seal, \
		 .read = mem_read, \
		 .fetch = region_plain_fetch, \
		 .expect = region_plain_expect, \
		 .look = region_plain_look, \
		 .store_word = mem_store_word, \
		 .tell = mem_tell, \
		 .populate = mem_populate, \
		 .forget = mem_forget}, \
		.fence = REGION_LOCKS(mem_lock, mem_unlock, mem_is_locked), \
		.members = REGION_ALONE, \
		.block = REGION_BYTES(mem_narrow, mem_unlink), \
		.close = mem_close}

static const struct region_ops mem_ops = MEM_OPS(mem_persist, mem_poll, region_plain_wait, mem_flush);
static const struct region_ops bar_ops = MEM_OPS(bar_persist, mem_poll, region_plain_wait, mem_flush);
static const struct region_ops msync_ops = MEM_OPS(msync_persist, msync_poll, msync_wait, msync_flush);

/* refuse_missing -- the errno is told to programs alone: the text says it already. */
static int refuse_missing(const char *text, const struct uri *uri, struct farlog_error *error)
{
	int result = error_set(error, FARLOG_NOT_FOUND, 0,
		"region \"%s\": there is no file %s; to make a ring there: farlog ring format '%s' --size 64MiB", text,
		uri->path, text);

	if (error != NULL)
		error->os_errno = ENOENT;
	return result;
}

/* open_file -- open, and for CREATE give the file its size: allocated, so that a full disk shows now and not as a
 * SIGBUS in the middle of an append. */
static int open_file(const char *text, const struct uri *uri, enum region_access access, uint64_t size_bytes, int *fd,
	struct farlog_error *error)
{
	if (access == REGION_CREATE) {
		int result = disk_make(text, uri->path, size_bytes, fd, error);

		return result == FARLOG_NOT_FOUND ? refuse_missing(text, uri, error) : result;
	}
	*fd = open(uri->path, (access == REGION_READ ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	if (*fd < 0)
		return errno == ENOENT ? refuse_missing(text, uri, error) :
								 error_set(error, FARLOG_IO, errno, "open region \"%s\"", text);
	return FARLOG_OK;
}

static int map_region(const char *text, struct region_mem *mem, enum region_access access, struct farlog_error *error)
{
	struct farlog_contract *contract = &mem->region.contract;
	int protection = access == REGION_READ ? PROT_READ : PROT_READ | PROT_WRITE;
	int flags = MAP_SHARED;
	uint64_t size = contract->size_bytes;

	if (size == 0 && access != REGION_CREATE)
		return error_set(error, FARLOG_NOT_A_RING, 0,
			"region \"%s\": it is empty, so that no ring is there; to make one: farlog ring format '%s' --size 64MiB",
			text, text);
	if (size % LAYOUT_BLOCK_LEN != 0 && access != REGION_CREATE)
		return error_set(error, FARLOG_INVALID, 0,
			"region \"%s\": its %lu bytes are not a multiple of %u, so that it is no ring: expected a file that "
			"farlog ring format made",
			text, size, LAYOUT_BLOCK_LEN);
	if (size == 0 || size % LAYOUT_BLOCK_LEN != 0)
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": size %lu is not a positive multiple of %u bytes",
			text, size, LAYOUT_BLOCK_LEN);
	if (contract->kind == FARLOG_REGION_DEVDAX)
		size = size / DEVDAX_ALIGN * DEVDAX_ALIGN;
	if (contract->kind == FARLOG_REGION_FSDAX)
		flags = MAP_SHARED_VALIDATE | MAP_SYNC;
	mem->map = mmap(NULL, size, protection, flags, mem->fd, 0);
	if (mem->map == MAP_FAILED) {
		mem->map = NULL;
		return error_set(error, FARLOG_IO, errno, "map %lu bytes of region \"%s\"", size, text);
	}
	mem->map_len = size;
	contract->size_bytes = size;
	mem->bytes = mem->map;
	mem->region.base = mem->map;
	return FARLOG_OK;
}

static int start_helper(const char *text, struct region_mem *mem, struct farlog_error *error)
{
	int failure = pthread_create(&mem->helper.thread, NULL, msync_loop, mem);

	if (failure != 0)
		return error_set(error, FARLOG_IO, failure, "start msync thread of region \"%s\"", text);
	mem->helper.is_running = true;
	return FARLOG_OK;
}

int region_mem_make(const char *text, int fd, const char *name, const struct farlog_contract *contract,
	const struct region_ask *ask, struct region **region, struct farlog_error *error)
{
	struct region_mem *mem = calloc(1, sizeof(*mem));
	bool is_msync = contract->flush_method == FARLOG_FLUSH_MSYNC;
	int unlinked = 0;
	int result;

	if (mem == NULL) {
		close(fd);
		return error_set(error, FARLOG_NO_MEMORY, 0, "open region \"%s\": out of memory", text);
	}
	mem->fd = fd;
	mem->region.contract = *contract;
	mem->has_name = name != NULL;
	if (mem->has_name)
		unlinked = is_unlinked(mem);
	mem->has_name = mem->has_name && unlinked == 0;
	mem->copy = persist_copy((enum farlog_flush_method)contract->flush_method);
	mem->gather = persist_gather((enum farlog_flush_method)contract->flush_method);
	mem->region.ops = is_msync ? &msync_ops : contract->is_read_back ? &bar_ops : &mem_ops;
	mem->region.caps = (struct region_caps){.is_load_slow = contract->is_read_back,
		.is_seal_durable = !is_msync,
		.is_spinning = !is_msync,
		.can_tell = true,
		.hint_interval_ns = REGION_HINT_STORE_NS};
	result = unlinked < 0 ? error_set(error, unlinked, errno, "ask for the name of region \"%s\"", text) :
							map_region(text, mem, ask->access, error);
	if (result == FARLOG_OK && mem->has_name && ask->role == REGION_ROLE_WRITER && ask->access != REGION_READ)
		name_watch_prepare(&mem->watch, mem->fd, name);
	if (contract->flush_method == FARLOG_FLUSH_NT_STORE && stream_is_supported())
		mem->region.streamed = mem->map;
	if (result == FARLOG_OK && is_msync && ask->access != REGION_READ)
		result = start_helper(text, mem, error);
	if (result != FARLOG_OK) {
		mem_close(&mem->region);
		return result;
	}
	*region = &mem->region;
	return FARLOG_OK;
}

int region_mem_open(const char *text, const struct uri *uri, const struct region_ask *ask, struct region **region,
	struct farlog_error *error)
{
	struct farlog_contract contract;
	int fd = -1;
	/* Once before, so that a refusal makes no file; once after, because only a file that is there can be tried for
	 * MAP_SYNC. */
	int result = region_mem_probe(text, uri, &contract, error);

	if (result == FARLOG_OK)
		result = open_file(text, uri, ask->access, ask->size_bytes, &fd, error);
	if (result != FARLOG_OK)
		return result;
	result = region_mem_probe(text, uri, &contract, error);
	if (result == FARLOG_OK)
		return region_mem_make(text, fd, uri->path, &contract, ask, region, error);
	close(fd);
	return result;
}
