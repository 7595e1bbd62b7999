/* mem/mem.c -- memory that this processor can map: PCI BAR, devdax, fsdax, tmpfs, plain file. */
#include "mem/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "mem/mem_region.h"
#include "region/directory.h"
#include "region/disk_space.h"
#include "region/role_lock.h"
#include "ring/layout.h"
#include "ring/stream.h"

#define DEVDAX_ALIGN (2u << 20) /* the usual alignment of a DAX device's mapping */

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
	if (region_has_lost_page(region))
		return FARLOG_IO;
	atomic_store_relaxed(&region->tag_done, tag);
	return FARLOG_OK;
}

/* read_back -- a read from the device pushes the posted writes before it (PCI Express Base Specification, transaction
 * ordering: a read completion may not pass a posted write). The word read is the one that the writer wants to know
 * anyway. */
static void read_back(struct region *region)
{
	persist_fence_loads();
	atomic_store_relaxed(&region->fence_copy, region_load_word(region, LAYOUT_FENCE_OFF));
}

static int bar_persist(struct region *region, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	(void)spans, (void)span_count;
	read_back(region);
	if (region_has_lost_page(region))
		return FARLOG_IO;
	atomic_store_relaxed(&region->tag_done, tag);
	return FARLOG_OK;
}

static int mem_poll(struct region *region)
{
	(void)region; /* persist completed at once */
	return FARLOG_OK;
}

static int mem_flush(struct region *region, uint64_t off, uint64_t len)
{
	struct region_mem *mem = mem_of(region);

	if (region->contract.flush_method != FARLOG_FLUSH_NONE)
		persist_range(mem->bytes + off, len);
	if (mem->region.contract.is_read_back)
		read_back(region);
	return region_has_lost_page(region) ? FARLOG_IO : FARLOG_OK;
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
	return region_has_lost_page(region) ? FARLOG_IO : FARLOG_OK;
}

/* mem_fetch -- the bytes are here, if their pages can be read. */
static int mem_fetch(struct region *region, uint64_t off, uint64_t len)
{
	uint64_t end = off + len;

	for (uint64_t at = off & ~(uint64_t)7; at < end; at = (at / MEM_PAGE_LEN + 1) * MEM_PAGE_LEN)
		(void)region_load_word(region, at);
	return region_has_lost_page(region) ? FARLOG_IO : FARLOG_OK;
}

static int mem_fetch_directory(struct region *region)
{
	const struct region_mem *mem = mem_of(region);

	region->directory_copy = mem->map;
	for (uint64_t off = 0; off < DIRECTORY_TAILS_OFF && off < mem->map_len; off += MEM_PAGE_LEN)
		(void)atomic_load_relaxed((const uint64_t *)(mem->map + off));
	return region_has_lost_page(region) ? FARLOG_IO : FARLOG_OK;
}

static void mem_store_word(struct region *region, uint64_t off, uint64_t value)
{
	atomic_store_release((uint64_t *)(mem_of(region)->bytes + off), value);
}

/* mem_store_hints -- of a plain file the hints become durable with the next write-back: an msync would block. */
static bool mem_store_hints(struct region *region, uint64_t tail_lsn, uint64_t durable_lsn)
{
	mem_store_word(region, LAYOUT_TAIL_HINT_OFF, tail_lsn);
	mem_store_word(region, LAYOUT_DURABLE_HINT_OFF, durable_lsn);
	return !region->caps.is_seal_durable || mem_flush(region, LAYOUT_TAIL_HINT_OFF, 2 * sizeof(uint64_t)) == FARLOG_OK;
}

/* populate_advice -- a write fault would make every page of a file dirty, and the next write-back as long as the
 * ring. */
static int populate_advice(const struct region *region)
{
	return region->contract.kind == FARLOG_REGION_FILE ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
}

static void mem_populate(struct region *region)
{
	madvise(mem_of(region)->bytes, region->contract.size_bytes, populate_advice(region));
}

static void mem_drop_pages(struct region *region, uint64_t off, uint64_t len)
{
	uint64_t start = (off + MEM_PAGE_LEN - 1) & ~(uint64_t)(MEM_PAGE_LEN - 1);
	uint64_t end = (off + len) & ~(uint64_t)(MEM_PAGE_LEN - 1);

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

void region_mem_locate(const struct region *region, char *path, uint64_t *off)
{
	const struct region_mem *mem = (const struct region_mem *)region;
	char link[64];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", mem->fd);
	len = readlink(link, path, PATH_MAX - 1);
	path[len > 0 ? len : 0] = '\0';
	*off = (uint64_t)(mem->bytes - mem->map);
}

static uint64_t ring_block(const struct region_mem *mem)
{
	return (uint64_t)(mem->bytes - mem->map) / LAYOUT_BLOCK_LEN;
}

/* is_unlinked -- the file had a path when it was opened, and its last link is gone: farlog removes a ring with its
 * locks held, and only if it is drained. 1, 0, or IO with errno. */
static int is_unlinked(const struct region_mem *mem)
{
	struct stat now;

	if (!mem->has_name)
		return 0;
	return fstat(mem->fd, &now) != 0 ? FARLOG_IO : now.st_nlink == 0;
}

static void mem_unlock(struct region *region, enum region_role role)
{
	role_lock_release(mem_of(region)->fd, ring_block(mem_of(region)), role);
}

static int mem_lock(struct region *region, enum region_role role)
{
	struct region_mem *mem = mem_of(region);
	int result = role_lock_acquire(mem->fd, ring_block(mem), role);
	int failure;

	if (result != FARLOG_OK)
		return result;
	failure = is_unlinked(mem);
	if (failure != 0) {
		mem_unlock(region, role); /* records written now would be lost with the last close */
		return failure > 0 ? FARLOG_NOT_FOUND : failure;
	}
	if (role != REGION_ROLE_WRITER)
		return FARLOG_OK;
	failure = mem->bytes == mem->map ? role_lock_has_ring_locks(mem->fd, mem->map_len) : 0;
	if (failure != 0) {
		mem_unlock(region, role); /* a writer of a whole region excludes writers of rings in it */
		return failure > 0 ? FARLOG_HELD : failure;
	}
	name_watch_start(&mem->watch, region);
	return FARLOG_OK;
}

static int mem_is_locked(struct region *region, enum region_role role)
{
	return role_lock_is_held(mem_of(region)->fd, ring_block(mem_of(region)), role);
}

static void mem_close(struct region *region)
{
	struct region_mem *mem = mem_of(region);

	name_watch_stop(&mem->watch);
	msync_stop(mem);
	map_guard_remove(&mem->guard);
	if (mem->map != NULL)
		munmap(mem->map, mem->map_len);
	if (mem->served != NULL)
		munmap(mem->served, mem->served_len);
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
		errno = ESTALE; /* the path names another file by now, which was not checked */
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
		 .list_wait_fds = region_default_list_wait_fds, \
		 .push = region_default_push, \
		 .flush = flush_op, \
		 .seal = mem_seal, \
		 .read = mem_read, \
		 .fetch = mem_fetch, \
		 .prefetch = region_default_prefetch, \
		 .refresh_words = region_default_refresh_words, \
		 .store_word = mem_store_word, \
		 .store_hints = mem_store_hints, \
		 .populate = mem_populate, \
		 .drop_pages = mem_drop_pages}, \
		.fence = REGION_LOCKS(mem_lock, mem_unlock, mem_is_locked), \
		.members = REGION_SINGLE, \
		.block = {.narrow = mem_narrow, \
			.fetch_directory = mem_fetch_directory, \
			.store_directory = region_default_store_directory, \
			.zero = region_default_zero, \
			.name_foreign = region_default_name_foreign, \
			.unlink = mem_unlink}, \
		.close = mem_close}

static const struct region_ops mem_ops = MEM_OPS(mem_persist, mem_poll, region_default_wait, mem_flush);
static const struct region_ops bar_ops = MEM_OPS(bar_persist, mem_poll, region_default_wait, mem_flush);
static const struct region_ops msync_ops = MEM_OPS(msync_persist, msync_poll, msync_wait, msync_flush);

static int map_flags(const struct region *region)
{
	return region->contract.kind == FARLOG_REGION_FSDAX ? MAP_SHARED_VALIDATE | MAP_SYNC : MAP_SHARED;
}

int region_mem_serve(struct region *region, const char *text, uint8_t **bytes, struct farlog_error *error)
{
	struct region_mem *mem = mem_of(region);
	uint64_t off, start, end;
	uint8_t *served;

	*bytes = (uint8_t *)(uintptr_t)region->base;
	if (region->ops != &mem_ops && region->ops != &bar_ops && region->ops != &msync_ops)
		return FARLOG_OK;
	off = (uint64_t)(mem->bytes - mem->map);
	start = off / DEVDAX_ALIGN * DEVDAX_ALIGN;
	end = (off + region->contract.size_bytes + DEVDAX_ALIGN - 1) / DEVDAX_ALIGN * DEVDAX_ALIGN;
	if (end > mem->map_len)
		end = mem->map_len;
	served = mmap(NULL, end - start, PROT_READ | PROT_WRITE, map_flags(region), mem->fd, (off_t)start);
	if (served == MAP_FAILED)
		return error_set(error, FARLOG_IO, errno, "map %lu bytes of region \"%s\" for other hosts", end - start, text);
	mem->served = served;
	mem->served_len = end - start;
	*bytes = served + (off - start);
	madvise(*bytes, region->contract.size_bytes, populate_advice(region));
	return FARLOG_OK;
}

/* set_missing_error -- os_errno is for programs; the text names the failure already. */
static int set_missing_error(const char *text, const struct uri *uri, struct farlog_error *error)
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
		int result = disk_open_or_create(text, uri->path, size_bytes, fd, error);

		return result == FARLOG_NOT_FOUND ? set_missing_error(text, uri, error) : result;
	}
	*fd = open(uri->path, (access == REGION_READ ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	if (*fd < 0)
		return errno == ENOENT ? set_missing_error(text, uri, error) :
								 error_set(error, FARLOG_IO, errno, "open region \"%s\"", text);
	return FARLOG_OK;
}

static int map_region(const char *text, struct region_mem *mem, enum region_access access, struct farlog_error *error)
{
	struct farlog_contract *contract = &mem->region.contract;
	int protection = access == REGION_READ ? PROT_READ : PROT_READ | PROT_WRITE;
	uint64_t size = contract->size_bytes;

	if (size == 0 && access != REGION_CREATE)
		return error_set(error, FARLOG_NOT_A_RING, 0,
			"region \"%s\": the file is empty, so it holds no ring; make one: farlog ring format '%s' --size 64MiB",
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
	mem->map = mmap(NULL, size, protection, map_flags(&mem->region), mem->fd, 0);
	if (mem->map == MAP_FAILED) {
		mem->map = NULL;
		return error_set(error, FARLOG_IO, errno, "map %lu bytes of region \"%s\"", size, text);
	}
	mem->map_len = size;
	contract->size_bytes = size;
	mem->bytes = mem->map;
	mem->region.base = mem->map;
	map_guard_add(&mem->guard, mem->map, size, &mem->region.has_lost_page);
	return FARLOG_OK;
}

int region_mem_from_fd(const char *text, int fd, const char *name, const struct farlog_contract *contract,
	const struct region_options *options, struct region **region, struct farlog_error *error)
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
	mem->copy = persist_find_copy((enum farlog_flush_method)contract->flush_method);
	mem->gather = persist_find_gather((enum farlog_flush_method)contract->flush_method);
	mem->region.ops = is_msync ? &msync_ops : contract->is_read_back ? &bar_ops : &mem_ops;
	mem->region.caps = (struct region_caps){.is_load_slow = contract->is_read_back,
		.is_seal_durable = !is_msync,
		.is_spinning = !is_msync,
		.can_store_hints = true,
		.hint_interval_ns = REGION_HINT_STORE_NS};
	result = unlinked < 0 ? error_set(error, unlinked, errno, "ask for the name of region \"%s\"", text) :
							map_region(text, mem, options->access, error);
	if (result == FARLOG_OK && mem->has_name && options->role == REGION_ROLE_WRITER && options->access != REGION_READ)
		name_watch_prepare(&mem->watch, mem->fd, name);
	if (contract->flush_method == FARLOG_FLUSH_NT_STORE && stream_is_supported())
		mem->region.streamed = mem->map;
	if (result == FARLOG_OK && is_msync && options->access != REGION_READ)
		result = msync_start(text, mem, error);
	if (result != FARLOG_OK) {
		mem_close(&mem->region);
		return result;
	}
	*region = &mem->region;
	return FARLOG_OK;
}

int region_mem_open(const char *text, const struct uri *uri, const struct region_options *options,
	struct region **region, struct farlog_error *error)
{
	struct farlog_contract contract;
	int fd = -1;
	/* Before, so that no file is made for a rejected URI; and after, because MAP_SYNC can only be tried on a file. */
	int result = region_mem_probe(text, uri, &contract, error);

	if (result == FARLOG_OK)
		result = open_file(text, uri, options->access, options->size_bytes, &fd, error);
	if (result != FARLOG_OK)
		return result;
	result = region_mem_probe(text, uri, &contract, error);
	if (result == FARLOG_OK)
		return region_mem_from_fd(text, fd, uri->path, &contract, options, region, error);
	close(fd);
	return result;
}
