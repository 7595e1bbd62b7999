/* adversary/memory.c -- adversarial memory. See adversary/memory.h. */
#include "adversary/memory_inside.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adversary/random.h"
#include "base/err.h"
#include "ring/layout.h"

#define REMOTE_PATIENCE_NS 200000u

/* Readers, writers and the crash come from several threads in the tests of the drain. */
pthread_mutex_t fault_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct fault_memory *memories;

uint64_t fault_draw(struct fault_memory *memory)
{
	return random_draw(&memory->random);
}

struct fault_memory *fault_find(const char *name)
{
	struct fault_memory *memory = memories;

	while (memory != NULL && strcmp(memory->name, name) != 0)
		memory = memory->next;
	return memory;
}

static struct region_fault *fault_of(struct region *region)
{
	return (struct region_fault *)region;
}

static bool is_gone(const struct region_fault *fault)
{
	const struct fault_memory *memory = fault->memory;
	bool is_ended =
		fault->is_drain ? fault->drain_generation != memory->drain_generation : fault->generation != memory->generation;

	return memory->is_dead || memory->is_away || is_ended;
}

/* strike -- count down to the armed death. True: it happens in this operation. */
static bool strike(struct fault_memory *memory)
{
	if (memory->armed == UINT64_MAX || memory->armed-- != 0)
		return false;
	memory->is_dead = true;
	memory->armed = UINT64_MAX;
	return true;
}

/* finish -- the end of every operation: let go, and let the other process have its moment. */
static void finish(struct fault_memory *memory)
{
	bool is_due = memory->call_in != UINT64_MAX && memory->call_in-- == 0;

	if (is_due)
		memory->call_in = UINT64_MAX;
	fault_haunt(memory);
	pthread_mutex_unlock(&fault_mutex);
	if (is_due)
		memory->call(memory->call_context);
}

/* let_come_first -- a lock is no operation: what is to happen before this lock happens now. The mutex is held, and let
 * go meanwhile. */
static void let_come_first(struct fault_memory *memory)
{
	if (memory->lock_call_in == UINT64_MAX || memory->lock_call_in-- != 0)
		return;
	memory->lock_call_in = UINT64_MAX;
	pthread_mutex_unlock(&fault_mutex);
	memory->lock_call(memory->lock_call_context);
	pthread_mutex_lock(&fault_mutex);
}

void fault_put_words(struct fault_memory *memory, uint64_t writer, uint64_t off, const void *src, uint64_t word_count)
{
	if (memory->pending_count + word_count > memory->pending_room) {
		memory->pending_room = (memory->pending_count + word_count) * 2;
		memory->pending = realloc(memory->pending, memory->pending_room * sizeof(memory->pending[0]));
		if (memory->pending == NULL)
			abort();
	}
	for (uint64_t i = 0; i < word_count; i++) {
		struct pending_store *store = &memory->pending[memory->pending_count++];

		store->word = off / 8 + i;
		store->order = memory->order++;
		store->writer = writer;
		memcpy(&store->value, (const uint8_t *)src + 8 * i, 8);
		atomic_store_release(&memory->visible[store->word], store->value);
	}
}

static void store(struct region *region, uint64_t off, const void *src, uint64_t len, bool is_word)
{
	struct region_fault *fault = fault_of(region);
	uint64_t word_count = len / 8;

	pthread_mutex_lock(&fault_mutex);
	if (!is_gone(fault)) {
		if (strike(fault->memory))
			word_count = fault_draw(fault->memory) % (word_count + 1);
		if (fault->memory->is_remote && off >= LAYOUT_DATA_OFF)
			fault_queue(fault, fault->off + off, src, 8 * word_count);
		else
			fault_put_words(
				fault->memory, is_word ? FAULT_NO_WRITER : fault->number, fault->off + off, src, word_count);
	}
	finish(fault->memory);
}

static void fault_write(struct region *region, uint64_t off, const void *src, size_t len)
{
	store(region, off, src, len, false);
}

static void fault_gather(struct region *region, uint64_t off, struct gather *gather)
{
	uint8_t *lines = malloc(gather->len);

	if (lines == NULL)
		abort();
	gather_copy(lines, gather);
	store(region, off, lines, gather->len, false);
	free(lines);
}

static void fault_store_word(struct region *region, uint64_t off, uint64_t value)
{
	store(region, off, &value, sizeof(value), true);
}

static bool is_covered(const struct region_span *spans, unsigned span_count, uint64_t word)
{
	for (unsigned i = 0; i < span_count; i++)
		if (word * 8 >= spans[i].off && word * 8 < spans[i].off + spans[i].len)
			return true;
	return false;
}

static bool is_taken(const struct pending_store *store, const struct region_span *spans, unsigned span_count,
	uint64_t writer, uint64_t order)
{
	return (writer == FAULT_ANY_WRITER || store->writer == writer) && store->order < order &&
		is_covered(spans, span_count, store->word);
}

/* make_durable -- the writer's stores to the spans that came before `order` reach the media, and with them go those
 * that they have overwritten; all others stay pending. */
static void make_durable(
	struct fault_memory *memory, const struct region_span *spans, unsigned span_count, uint64_t writer, uint64_t order)
{
	uint64_t first = memory->pending_count;

	for (uint64_t i = memory->pending_count; i-- > 0;) {
		struct pending_store *store = &memory->pending[i];

		if (memory->is_stopped[store->word])
			continue;
		if (is_taken(store, spans, span_count, writer, order)) {
			memory->durable[store->word] = store->value;
			memory->is_stopped[store->word] = 1;
			continue;
		}
		memory->pending[--first] = *store;
	}
	for (unsigned i = 0; i < span_count; i++)
		memset(memory->is_stopped + spans[i].off / 8, 0, (spans[i].len + 7) / 8);
	memory->pending_count -= first;
	if (memory->pending_count > 0) /* there is no memory for them before the first */
		memmove(memory->pending, memory->pending + first, memory->pending_count * sizeof(memory->pending[0]));
}

static int fault_persist(struct region *region, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	struct region_fault *fault = fault_of(region);
	int result = FARLOG_IO;

	pthread_mutex_lock(&fault_mutex);
	if (!is_gone(fault) && !strike(fault->memory)) {
		for (unsigned i = 0; i < span_count; i++)
			fault->spans[i] = (struct region_span){fault->off + spans[i].off, spans[i].len};
		fault->span_count = span_count;
		fault->order_asked = fault->memory->order;
		fault->tag_asked = tag;
		result = FARLOG_OK;
	}
	finish(fault->memory);
	return result;
}

/* persister -- whose stores its persist takes. Across a network the target flushes, whoever stored it. */
static uint64_t persister(const struct region_fault *fault)
{
	return fault->memory->is_remote ? FAULT_ANY_WRITER : fault->number;
}

/* A flush takes a while: every second poll, by lot, finds it done, unless the memory is made slower. */
static int fault_poll(struct region *region)
{
	struct region_fault *fault = fault_of(region);
	int result = FARLOG_IO;

	pthread_mutex_lock(&fault_mutex);
	if (!is_gone(fault) && !strike(fault->memory)) {
		unsigned slowness = fault->is_drain && fault->memory->slowness > 255 ? 255 : fault->memory->slowness;

		if (!region_is_done(region, fault->tag_asked) && fault_draw(fault->memory) % 256 >= slowness) {
			if (fault->queue != NULL) {
				fault_land(fault);
				fault->order_asked = fault->memory->order;
			}
			make_durable(fault->memory, fault->spans, fault->span_count, persister(fault), fault->order_asked);
			atomic_store_relaxed(&region->tag_done, fault->tag_asked);
		}
		result = FARLOG_OK;
	}
	finish(fault->memory);
	return result;
}

static int fault_flush(struct region *region, uint64_t off, uint64_t len)
{
	struct region_fault *fault = fault_of(region);
	struct region_span span = {fault->off + off, len};
	int result = FARLOG_IO;

	pthread_mutex_lock(&fault_mutex);
	if (!is_gone(fault) && !strike(fault->memory)) {
		make_durable(fault->memory, &span, 1, FAULT_ANY_WRITER, UINT64_MAX);
		if (fault->memory->is_exposed)
			memcpy((uint8_t *)fault->memory->durable + span.off, (uint8_t *)fault->memory->visible + span.off, len);
		result = FARLOG_OK;
	}
	finish(fault->memory);
	return result;
}

static void fault_seal(struct region *region)
{
	(void)region; /* sealed is not durable here: the leader's flush must do it */
}

static int fault_fetch(struct region *region, uint64_t off, uint64_t len)
{
	int result;

	(void)off, (void)len;
	pthread_mutex_lock(&fault_mutex);
	/* others read what is visible, as of memory of their own host */
	result = fault_of(region)->is_drain && is_gone(fault_of(region)) ? FARLOG_IO : FARLOG_OK;
	pthread_mutex_unlock(&fault_mutex);
	return result;
}

static int fault_read(struct region *region, uint64_t off, void *dst, size_t len)
{
	memcpy(dst, region->base + off, len);
	return fault_fetch(region, off, len);
}

static int fault_narrow(struct region *region, uint64_t off, uint64_t len)
{
	struct region_fault *fault = fault_of(region);

	fault->off = off;
	region->base = (const uint8_t *)fault->memory->visible + off;
	region->contract.size_bytes = len;
	return FARLOG_OK;
}

/* find_lock -- the lock of this ring and role, or NULL when nobody holds it. */
static struct fault_lock *find_lock(const struct region_fault *fault, enum region_role role)
{
	for (unsigned i = 0; i < FAULT_LOCK_COUNT_MAX; i++) {
		struct fault_lock *lock = &fault->memory->locks[i];

		if (lock->holder != NULL && lock->off == fault->off && lock->role == role)
			return lock;
	}
	return NULL;
}

static int take_lock(struct region_fault *fault, enum region_role role)
{
	if (find_lock(fault, role) != NULL)
		return FARLOG_HELD;
	for (unsigned i = 0; i < FAULT_LOCK_COUNT_MAX; i++)
		if (fault->memory->locks[i].holder == NULL) {
			fault->memory->locks[i] = (struct fault_lock){fault, fault->off, role};
			return FARLOG_OK;
		}
	abort();
}

static int fault_lock(struct region *region, enum region_role role)
{
	struct region_fault *fault = fault_of(region);
	int result;

	pthread_mutex_lock(&fault_mutex);
	let_come_first(fault->memory);
	result = is_gone(fault) ? FARLOG_IO : take_lock(fault, role);
	if (result == FARLOG_OK && role == REGION_ROLE_WRITER)
		fault_admit(fault);
	pthread_mutex_unlock(&fault_mutex);
	return result;
}

static void fault_unlock(struct region *region, enum region_role role)
{
	struct region_fault *fault = fault_of(region);
	struct fault_lock *lock;

	pthread_mutex_lock(&fault_mutex);
	lock = find_lock(fault, role);
	if (lock != NULL && lock->holder == fault)
		lock->holder = NULL;
	pthread_mutex_unlock(&fault_mutex);
}

static int fault_is_locked(struct region *region, enum region_role role)
{
	int is_locked;

	pthread_mutex_lock(&fault_mutex);
	is_locked = find_lock(fault_of(region), role) != NULL;
	pthread_mutex_unlock(&fault_mutex);
	return is_locked;
}

static void fault_close(struct region *region)
{
	struct region_fault *fault = fault_of(region);

	pthread_mutex_lock(&fault_mutex);
	for (unsigned i = 0; i < FAULT_LOCK_COUNT_MAX; i++)
		if (fault->memory->locks[i].holder == fault)
			fault->memory->locks[i].holder = NULL;
	fault_leave_behind(fault);
	pthread_mutex_unlock(&fault_mutex);
	free(fault);
}

static const struct region_ops fault_ops = {
	.data = {.write = fault_write,
		.gather = fault_gather,
		.persist = fault_persist,
		.poll = fault_poll,
		.wait = region_default_wait,
		.list_wait_fds = region_default_list_wait_fds,
		.push = region_default_push,
		.flush = fault_flush,
		.seal = fault_seal,
		.read = fault_read,
		.fetch = fault_fetch,
		.prefetch = region_default_prefetch,
		.refresh_words = region_default_refresh_words,
		.store_word = fault_store_word,
		.store_hints = region_default_store_hints,
		.populate = region_default_populate,
		.drop_pages = region_default_drop_pages},
	.fence = {.lock = fault_lock,
		.unlock = fault_unlock,
		.is_locked = fault_is_locked,
		.claim = region_default_claim,
		.store_superblock = region_default_store_superblock,
		.abort_persist = fault_abort_persist},
	.members = REGION_SINGLE,
	.block = REGION_BYTES(fault_narrow, region_default_unlink),
	.close = fault_close,
};

static struct fault_memory *make_memory(const struct uri *uri, uint64_t size_bytes)
{
	struct fault_memory *memory = calloc(1, sizeof(*memory));

	if (memory == NULL)
		return NULL;
	snprintf(memory->name, sizeof(memory->name), "%.60s", uri->path);
	memory->size_bytes = size_bytes;
	memory->visible = aligned_alloc(4096, size_bytes);
	memory->durable = calloc(1, size_bytes);
	memory->is_stopped = calloc(1, size_bytes / 8);
	if (memory->visible == NULL || memory->durable == NULL || memory->is_stopped == NULL)
		abort();
	memset(memory->visible, 0, size_bytes);
	memory->armed = UINT64_MAX;
	memory->call_in = memory->lock_call_in = UINT64_MAX;
	memory->slowness = 128;
	memory->random = uri->seed != 0 ? uri->seed : 1;
	memory->next = memories;
	memories = memory;
	return memory;
}

int region_fault_open(const char *text, const struct uri *uri, const struct region_options *how, struct region **region,
	struct farlog_error *error)
{
	struct region_fault *fault = calloc(1, sizeof(*fault));
	struct fault_memory *memory;

	pthread_mutex_lock(&fault_mutex);
	memory = fault_find(uri->path);
	if (memory == NULL && how->access == REGION_CREATE && how->size_bytes > 0 && how->size_bytes % 4096 == 0)
		memory = make_memory(uri, how->size_bytes);
	pthread_mutex_unlock(&fault_mutex);
	if (memory == NULL || fault == NULL || memory->is_away) {
		free(fault);
		return error_set(error, FARLOG_NOT_FOUND, 0, "region \"%s\": no such adversarial memory", text);
	}
	fault->memory = memory;
	fault->number = ++memory->handle_count;
	fault->generation = memory->generation;
	fault->drain_generation = memory->drain_generation;
	fault->is_drain = how->role == REGION_ROLE_DRAIN;
	fault->client_id = how->client_id;
	fault->region.ops = &fault_ops;
	fault->region.caps = (struct region_caps){.is_spinning = true, .hint_interval_ns = REGION_HINT_STORE_NS};
	fault->region.base = (const uint8_t *)memory->visible;
	fault->region.persist_timeout_ns = memory->is_remote && !fault->is_drain ? REMOTE_PATIENCE_NS : 0;
	fault->region.contract = (struct farlog_contract){.kind = FARLOG_REGION_FAULT,
		.flush_method = FARLOG_FLUSH_FAULT,
		.level = FARLOG_LEVEL_PERSISTENT,
		.granularity = 64,
		.atomic_unit = 8,
		.size_bytes = memory->size_bytes,
		.deadline_default_ns = 1000000000u,
		.kind_name = "fault",
		.flush_name = "fault",
		.probe = "adversarial memory of the tests"};
	*region = &fault->region;
	return FARLOG_OK;
}

void farlog_fault_drop(const char *name)
{
	struct fault_memory **link = &memories;

	pthread_mutex_lock(&fault_mutex);
	while (*link != NULL && strcmp((*link)->name, name) != 0)
		link = &(*link)->next;
	if (*link != NULL) {
		struct fault_memory *memory = *link;

		*link = memory->next;
		free(memory->visible);
		free(memory->durable);
		free(memory->is_stopped);
		free(memory->pending);
		fault_forget_ghosts(memory);
		free(memory);
	}
	pthread_mutex_unlock(&fault_mutex);
}
