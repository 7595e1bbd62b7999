/* adversary/file.c -- see adversary/file.h. */
#include "adversary/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adversary/random.h"
#include "base/err.h"
#include "mem/mem.h"

#define PAGE_LEN 4096u
#define SECTOR_LEN 512u
#define WRITTEN_BACK_OF_64 3u /* at each operation: a page, by the kernel itself */
#define WAIT_NS 1000000000u

/* A page on its way to the media, as it was then. */
struct page_version {
	uint64_t page;
	const void *asker; /* whose msync it is for; NULL = nobody's */
	uint8_t bytes[PAGE_LEN];
};

struct file {
	struct file *next;
	char name[64];
	uint64_t size_bytes;
	int fd;
	uint8_t *visible; /* the page cache */
	uint8_t *durable;
	struct page_version *versions;
	uint64_t version_count;
	uint64_t version_room;
	uint64_t generation; /* handles of older ones are dead */
	uint64_t armed;
	uint64_t call_in;
	void (*call)(void *context);
	void *call_context;
	uint64_t random;
	bool is_dead;
};

struct handle {
	struct handle *next;
	struct region *region;
	struct file *file;
	const uint8_t *map;
	uint64_t generation;
	uint64_t tag_asked;
	char persisting; /* their addresses say what an msync is for */
	char flushing;
	bool is_flushing;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct file *files;
static struct handle *handles;
static struct region_ops file_ops;
static const struct region_ops *real; /* of mem/mem.c */

static uint64_t draw(struct file *file)
{
	return random_draw(&file->random);
}

static struct file *find(const char *name)
{
	struct file *file = files;

	while (file != NULL && strcmp(file->name, name) != 0)
		file = file->next;
	return file;
}

/* enter -- the mutex is held until finish. */
static struct handle *enter(const struct region *region)
{
	struct handle *handle;

	pthread_mutex_lock(&mutex);
	handle = handles;
	while (handle->region != region)
		handle = handle->next;
	return handle;
}

static bool is_gone(const struct handle *handle)
{
	return handle->file->is_dead || handle->generation != handle->file->generation;
}

static bool strike(struct file *file)
{
	if (file->armed == UINT64_MAX || file->armed-- != 0)
		return false;
	file->is_dead = true;
	file->armed = UINT64_MAX;
	return true;
}

static void send_page(struct file *file, uint64_t page, const void *asker)
{
	struct page_version *version;

	if (file->version_count == file->version_room) {
		file->version_room = file->version_room * 2 + 64;
		file->versions = realloc(file->versions, file->version_room * sizeof(file->versions[0]));
		if (file->versions == NULL)
			abort();
	}
	version = &file->versions[file->version_count++];
	version->page = page;
	version->asker = asker;
	memcpy(version->bytes, file->visible + page * PAGE_LEN, PAGE_LEN);
}

/* finish -- the end of every operation: the kernel may write a page back, and the other process has its moment. */
static void finish(struct file *file)
{
	bool is_due = file->call_in != UINT64_MAX && file->call_in-- == 0;

	if (is_due)
		file->call_in = UINT64_MAX;
	if (draw(file) % 64 < WRITTEN_BACK_OF_64)
		send_page(file, draw(file) % (file->size_bytes / PAGE_LEN), NULL);
	pthread_mutex_unlock(&mutex);
	if (is_due)
		file->call(file->call_context);
}

/* settle -- the pages of an msync that comes back are on the media, and no older version of them follows. */
static void settle(struct file *file, const void *asker)
{
	uint64_t kept = 0;

	for (uint64_t i = 0; i < file->version_count; i++) {
		bool is_older = false;

		for (uint64_t later = i + 1; later < file->version_count && !is_older; later++)
			is_older = file->versions[later].page == file->versions[i].page && file->versions[later].asker == asker;
		if (is_older)
			continue;
		if (file->versions[i].asker == asker)
			memcpy(file->durable + file->versions[i].page * PAGE_LEN, file->versions[i].bytes, PAGE_LEN);
		else if (kept++ != i)
			file->versions[kept - 1] = file->versions[i];
	}
	file->version_count = kept;
}

/* sync_pages -- in place of msync(2): what the product asks the kernel for is sent, whatever it wanted to ask for. */
static int sync_pages(void *start, size_t len, int flags)
{
	struct handle *handle;
	int result = -1;

	pthread_mutex_lock(&mutex);
	handle = handles;
	while (handle != NULL &&
		((const uint8_t *)start < handle->map || (const uint8_t *)start >= handle->map + handle->file->size_bytes))
		handle = handle->next;
	if (handle == NULL || flags != MS_SYNC || (uintptr_t)start % PAGE_LEN != 0) {
		result = handle == NULL ? msync(start, len, flags) : -1;
		errno = EINVAL;
	} else if (is_gone(handle)) {
		errno = EIO;
	} else {
		uint64_t first = (uint64_t)((const uint8_t *)start - handle->map) / PAGE_LEN;

		for (uint64_t page = first; page < first + (len + PAGE_LEN - 1) / PAGE_LEN; page++)
			send_page(handle->file, page, handle->is_flushing ? &handle->flushing : &handle->persisting);
		result = 0;
	}
	pthread_mutex_unlock(&mutex);
	return result;
}

/* store -- by the product; a process that dies in it leaves a part of its words. */
static void store(struct handle *handle, uint64_t off, const void *src, uint64_t len)
{
	uint64_t word_count = len / 8;

	if (!is_gone(handle)) {
		if (strike(handle->file))
			memcpy((uint8_t *)(uintptr_t)handle->region->base + off, src, 8 * (draw(handle->file) % (word_count + 1)));
		else
			real->data.write(handle->region, off, src, len);
	}
	finish(handle->file);
}

static void file_write(struct region *region, uint64_t off, const void *src, size_t len)
{
	store(enter(region), off, src, len);
}

static void file_gather(struct region *region, uint64_t off, struct gather *gather)
{
	uint8_t *lines = malloc(gather->len);

	if (lines == NULL)
		abort();
	gather_copy(lines, gather);
	store(enter(region), off, lines, gather->len);
	free(lines);
}

static void file_store_word(struct region *region, uint64_t off, uint64_t value)
{
	struct handle *handle = enter(region);

	if (!is_gone(handle) && !strike(handle->file))
		real->data.store_word(region, off, value);
	finish(handle->file);
}

/* ask -- the product's persist, until its thread has been through msync: what comes of that is told by a later poll. */
static int ask(struct region *region, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	uint64_t tag_done = region->tag_done;
	int result = real->data.persist(region, spans, span_count, tag);

	while (result == FARLOG_OK && !region_is_done(region, tag)) {
		real->data.wait(region, WAIT_NS);
		result = real->data.poll(region);
	}
	atomic_store_relaxed(&region->tag_done, tag_done);
	return result;
}

static int file_persist(struct region *region, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	struct handle *handle = enter(region);
	int result = FARLOG_IO;

	if (!is_gone(handle) && !strike(handle->file)) {
		pthread_mutex_unlock(&mutex);
		result = ask(region, spans, span_count, tag);
		pthread_mutex_lock(&mutex);
		handle->tag_asked = tag;
	}
	finish(handle->file);
	return result;
}

static int file_poll(struct region *region)
{
	struct handle *handle = enter(region);
	int result = FARLOG_IO;

	if (!is_gone(handle) && !strike(handle->file)) {
		result = FARLOG_OK;
		if (!region_is_done(region, handle->tag_asked) && draw(handle->file) % 2 == 0) {
			settle(handle->file, &handle->persisting);
			result = real->data.poll(region);
		}
	}
	finish(handle->file);
	return result;
}

static int file_flush(struct region *region, uint64_t off, uint64_t len)
{
	struct handle *handle = enter(region);
	int result = FARLOG_IO;

	if (!is_gone(handle) && !strike(handle->file)) {
		handle->is_flushing = true;
		pthread_mutex_unlock(&mutex);
		result = real->data.flush(region, off, len);
		pthread_mutex_lock(&mutex);
		handle->is_flushing = false;
		if (result == FARLOG_OK)
			settle(handle->file, &handle->flushing);
	}
	finish(handle->file);
	return result;
}

static void file_close(struct region *region)
{
	struct handle *handle = enter(region);
	struct handle **link = &handles;

	while (*link != handle)
		link = &(*link)->next;
	*link = handle->next;
	pthread_mutex_unlock(&mutex);
	real->close(region);
	free(handle);
}

static struct file *make_file(const struct uri *uri, uint64_t size_bytes)
{
	struct file *file = calloc(1, sizeof(*file));

	if (file == NULL)
		abort();
	snprintf(file->name, sizeof(file->name), "%.60s", uri->path);
	file->size_bytes = size_bytes;
	file->fd = memfd_create(file->name, MFD_CLOEXEC);
	file->durable = calloc(1, size_bytes);
	if (file->fd < 0 || file->durable == NULL || ftruncate(file->fd, (off_t)size_bytes) != 0)
		abort();
	file->visible = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
	if (file->visible == MAP_FAILED)
		abort();
	file->armed = file->call_in = UINT64_MAX;
	file->random = uri->seed != 0 ? uri->seed : 1;
	file->next = files;
	files = file;
	return file;
}

/* open_real -- mem/mem.c's own region, of a descriptor of its own. */
static int open_real(const char *text, const struct file *file, const struct region_options *how,
	struct region **region, struct farlog_error *error)
{
	struct farlog_contract contract = {.kind = FARLOG_REGION_FILE,
		.flush_method = FARLOG_FLUSH_MSYNC,
		.level = FARLOG_LEVEL_PERSISTENT,
		.granularity = PAGE_LEN,
		.atomic_unit = 8,
		.size_bytes = file->size_bytes,
		.deadline_default_ns = 30000000000u,
		.kind_name = "file",
		.flush_name = "msync",
		.probe = "adversarial page cache of the tests"};
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
	fd = open(path, (how->access == REGION_READ ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	if (fd < 0)
		return error_set(error, FARLOG_IO, errno, "open region \"%s\"", text);
	return region_mem_from_fd(text, fd, NULL, &contract, how, region, error);
}

/* adopt -- its operations come by here from now on. */
static void adopt(struct region *region, struct file *file)
{
	struct handle *handle = calloc(1, sizeof(*handle));

	if (handle == NULL)
		abort();
	pthread_mutex_lock(&mutex);
	*handle = (struct handle){
		.next = handles, .region = region, .file = file, .map = region->base, .generation = file->generation};
	handles = handle;
	if (real == NULL) {
		real = region->ops;
		file_ops = *real;
		file_ops.data.write = file_write;
		file_ops.data.gather = file_gather;
		file_ops.data.store_word = file_store_word;
		file_ops.data.persist = file_persist;
		file_ops.data.poll = file_poll;
		file_ops.data.flush = file_flush;
		file_ops.close = file_close;
		farlog_file_set_msync(sync_pages);
	}
	region->ops = &file_ops;
	pthread_mutex_unlock(&mutex);
}

int region_fault_file_open(const char *text, const struct uri *uri, const struct region_options *how,
	struct region **region, struct farlog_error *error)
{
	struct file *file;
	int result;

	pthread_mutex_lock(&mutex);
	file = find(uri->path);
	if (file == NULL && how->access == REGION_CREATE && how->size_bytes > 0 && how->size_bytes % PAGE_LEN == 0)
		file = make_file(uri, how->size_bytes);
	pthread_mutex_unlock(&mutex);
	if (file == NULL)
		return error_set(error, FARLOG_NOT_FOUND, 0, "region \"%s\": no such adversarial file", text);
	result = open_real(text, file, how, region, error);
	if (result == FARLOG_OK)
		adopt(*region, file);
	return result;
}

/* land -- a page, or some of its sectors. */
static void land(struct file *file, uint64_t page, const uint8_t *bytes, uint64_t keep_of_256, bool is_torn)
{
	uint64_t unit = is_torn ? SECTOR_LEN : PAGE_LEN;

	for (uint64_t at = 0; at < PAGE_LEN; at += unit)
		if (draw(file) % 256 < keep_of_256)
			memcpy(file->durable + page * PAGE_LEN + at, bytes + at, unit);
}

/* lose -- the power cut. How much survives in all differs, from nothing but what was synced to nearly everything. */
static void lose(struct file *file)
{
	uint64_t keep_of_256 = draw(file) % 4 == 0 ? 0 : draw(file) % 257;
	bool is_torn = draw(file) % 2 == 0;

	for (uint64_t i = 0; i < file->version_count; i++)
		land(file, file->versions[i].page, file->versions[i].bytes, keep_of_256, is_torn);
	for (uint64_t page = 0; page < file->size_bytes / PAGE_LEN; page++)
		land(file, page, file->visible + page * PAGE_LEN, keep_of_256, is_torn);
	file->version_count = 0;
	memcpy(file->visible, file->durable, file->size_bytes);
}

/* lock_file -- with the mutex, which the caller gives back. NULL: there is none of that name. */
static struct file *lock_file(const char *name)
{
	pthread_mutex_lock(&mutex);
	return find(name);
}

/* end -- of all handles. */
static void end(const char *name, bool is_power_cut)
{
	struct file *file = lock_file(name);

	if (file != NULL && is_power_cut)
		lose(file);
	if (file != NULL) {
		file->generation++;
		file->is_dead = false;
		file->armed = UINT64_MAX;
	}
	pthread_mutex_unlock(&mutex);
}

void farlog_file_crash(const char *name)
{
	end(name, true);
}

void farlog_file_kill(const char *name)
{
	end(name, false);
}

void farlog_file_drop(const char *name)
{
	struct file **link = &files;
	struct file *file = lock_file(name);

	while (*link != file)
		link = &(*link)->next;
	if (file != NULL) {
		*link = file->next;
		munmap(file->visible, file->size_bytes);
		close(file->fd);
		free(file->durable);
		free(file->versions);
		free(file);
	}
	pthread_mutex_unlock(&mutex);
}

void farlog_file_reseed(const char *name, uint64_t seed)
{
	lock_file(name)->random = seed != 0 ? seed : 1;
	pthread_mutex_unlock(&mutex);
}

void farlog_file_arm(const char *name, uint64_t operation_count)
{
	struct file *file = lock_file(name);

	if (file != NULL) {
		file->is_dead |= operation_count == 0;
		file->armed = operation_count == 0 ? UINT64_MAX : operation_count;
	}
	pthread_mutex_unlock(&mutex);
}

int farlog_file_is_dead(const char *name)
{
	const struct file *file = lock_file(name);
	int is_dead = file != NULL && file->is_dead;

	pthread_mutex_unlock(&mutex);
	return is_dead;
}

void farlog_file_call(const char *name, uint64_t operation_count, void (*call)(void *context), void *context)
{
	struct file *file = lock_file(name);

	if (file != NULL) {
		file->call_in = operation_count;
		file->call = call;
		file->call_context = context;
	}
	pthread_mutex_unlock(&mutex);
}
