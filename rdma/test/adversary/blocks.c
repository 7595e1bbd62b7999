/* adversary/blocks.c -- adversarial blocks. See adversary/blocks.h. */
#include "adversary/blocks.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adversary/hosts.h"
#include "adversary/medium.h"
#include "base/err.h"
#include "blocks/nvme.h"

#define FLYING_COUNT_MAX 256u
#define LBA_COUNT_MAX 64u  /* of a write */
#define PIECE_LBA_COUNT 4u /* of a piece of a commit */
#define GARBLED_OF_256 24u

struct blocks;

struct block_fault {
	struct block_device device;
	struct blocks *blocks;
	uint64_t generation;
	int host;
};

/* A command that has been put. */
struct flying {
	struct block_fault *owner; /* NULL = free */
	enum block_queue queue;
	struct block_command command;
	uint64_t landed; /* bit per LBA; of a read 1: its bytes are here */
	bool is_sent;
	int verdict; /* what its answer will be, whatever lands: errno; 0 = it is still to be seen, -1 = done */
};

struct blocks {
	struct blocks *next;
	char name[64];
	struct block_medium medium;
	bool has_cache;
	struct flying flying[FLYING_COUNT_MAX];
	uint64_t generation;
	uint64_t armed;
	uint64_t call_in;
	void (*call)(void *context);
	void *call_context;
	bool is_dead;
	int is_stuck;
	int failure;
	struct fault_locks locks;
	struct fault_hosts hosts;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct blocks *all;
static uint32_t next_lba_len = 512;
static int next_has_cache = 1;

static struct blocks *find(const char *name)
{
	struct blocks *blocks = all;

	while (blocks != NULL && strcmp(blocks->name, name) != 0)
		blocks = blocks->next;
	return blocks;
}

static struct block_fault *fault_of(struct block_device *device)
{
	return (struct block_fault *)device;
}

static bool is_gone(const struct block_fault *fault)
{
	errno = EIO; /* of whoever is told so */
	return fault->blocks->is_dead || fault->generation != fault->blocks->generation;
}

static bool strike(struct blocks *blocks)
{
	if (blocks->armed == UINT64_MAX || blocks->armed-- != 0)
		return false;
	blocks->is_dead = true;
	blocks->armed = UINT64_MAX;
	return true;
}

static void finish(struct blocks *blocks)
{
	bool is_due = blocks->call_in != UINT64_MAX && blocks->call_in-- == 0;

	if (is_due)
		blocks->call_in = UINT64_MAX;
	pthread_mutex_unlock(&mutex);
	if (is_due)
		blocks->call(blocks->call_context);
}

static bool is_write(const struct flying *flying)
{
	return flying->command.verb == BLOCK_WRITE || flying->command.verb == BLOCK_WRITE_DURABLE;
}

static unsigned lba_count(const struct blocks *blocks, const struct flying *flying)
{
	return flying->command.len / blocks->medium.lba_len;
}

/* land -- LBA i of a write, with the bytes that its buffer has now. */
static void land(struct blocks *blocks, struct flying *flying, unsigned i)
{
	if (flying->landed >> i & 1)
		return;
	flying->landed |= 1ull << i;
	medium_land(&blocks->medium, flying->command.off / blocks->medium.lba_len + i,
		flying->command.bytes + (size_t)i * blocks->medium.lba_len, flying);
}

/* is_refused -- does its host have no right to it any more? */
static bool is_refused(const struct blocks *blocks, const struct flying *flying)
{
	return flying->verdict >= 0 && flying->command.verb != BLOCK_READ &&
		!fault_host_may_write(&blocks->hosts, flying->owner->host);
}

/* retire -- a command has come to its end: a flush takes what it has landed. */
static void retire(struct blocks *blocks, struct flying *flying)
{
	medium_come_back(&blocks->medium, flying);
	flying->owner = NULL;
}

/* complete -- a command that was sent comes to its end. */
static void complete(struct blocks *blocks, struct flying *flying)
{
	const struct block_command *command = &flying->command;
	uint64_t from = command->off / blocks->medium.lba_len;

	if (command->verb == BLOCK_READ && flying->landed == 0)
		memcpy(command->bytes, blocks->medium.visible + command->off, command->len);
	if (command->verb == BLOCK_FLUSH)
		medium_flush(&blocks->medium);
	for (unsigned i = 0; is_write(flying) && i < lba_count(blocks, flying); i++)
		land(blocks, flying, i);
	if (command->verb == BLOCK_WRITE_DURABLE || (command->verb == BLOCK_WRITE && !blocks->has_cache))
		medium_settle(&blocks->medium, from, from + lba_count(blocks, flying));
	retire(blocks, flying);
}

static void fault_put(struct block_device *device, enum block_queue queue, const struct block_command *command)
{
	struct block_fault *fault = fault_of(device);
	struct blocks *blocks = fault->blocks;
	unsigned i = 0;

	pthread_mutex_lock(&mutex);
	if (command->off % blocks->medium.lba_len != 0 || command->len % blocks->medium.lba_len != 0 ||
		command->off + command->len > blocks->medium.size_bytes ||
		(uintptr_t)command->bytes % blocks->medium.lba_len != 0 ||
		(command->verb != BLOCK_READ && command->len > LBA_COUNT_MAX * blocks->medium.lba_len))
		abort(); /* no device would take it */
	while (i < FLYING_COUNT_MAX && blocks->flying[i].owner != NULL)
		i++;
	if (i == FLYING_COUNT_MAX)
		abort();
	if (fault->generation == blocks->generation)
		blocks->flying[i] = (struct flying){.owner = fault, .queue = queue, .command = *command};
	pthread_mutex_unlock(&mutex);
}

static int send_all(struct block_fault *fault, enum block_queue queue)
{
	struct blocks *blocks = fault->blocks;

	if (is_gone(fault))
		return FARLOG_IO;
	for (unsigned i = 0; i < FLYING_COUNT_MAX; i++)
		if (blocks->flying[i].owner == fault && blocks->flying[i].queue == queue)
			blocks->flying[i].is_sent = true;
	return FARLOG_OK;
}

static int fault_send(struct block_device *device, enum block_queue queue)
{
	struct block_fault *fault = fault_of(device);
	int result;

	pthread_mutex_lock(&mutex);
	result = send_all(fault, queue);
	if (!is_gone(fault))
		strike(fault->blocks);
	finish(fault->blocks);
	return result;
}

static int fault_wait(struct block_device *device, enum block_queue queue, uint64_t timeout_ns)
{
	(void)timeout_ns; /* who waits looks again until its time is over */
	return fault_send(device, queue);
}

/* take_one -- does it come back now? A part of it may land before. */
static bool take_one(struct blocks *blocks, struct flying *flying, bool is_dead, int *failure)
{
	*failure = is_dead ? ENODEV : blocks->failure;
	if (*failure == 0 && flying->is_sent && (flying->verdict > 0 || is_refused(blocks, flying)))
		*failure = flying->verdict > 0 ? flying->verdict : EBADE;
	if (*failure != 0) {
		retire(blocks, flying);
		return true;
	}
	if (!flying->is_sent)
		return false;
	if (blocks->is_stuck == 3 && flying->command.verb == BLOCK_READ) {
		memcpy(flying->command.bytes, blocks->medium.visible + flying->command.off, flying->command.len);
		flying->landed = 1;
		return false;
	}
	if (is_write(flying) && medium_draw(&blocks->medium) % 2 == 0)
		land(blocks, flying, (unsigned)(medium_draw(&blocks->medium) % lba_count(blocks, flying)));
	if ((blocks->is_stuck == 1 && is_write(flying) && flying->command.off >= NVME_DATA_OFF) ||
		(blocks->is_stuck == 2 && flying->command.verb == BLOCK_READ) || medium_draw(&blocks->medium) % 2 == 0)
		return false;
	complete(blocks, flying);
	return true;
}

static unsigned fault_take(
	struct block_device *device, enum block_queue queue, struct block_answer *answers, unsigned room)
{
	struct block_fault *fault = fault_of(device);
	struct blocks *blocks = fault->blocks;
	unsigned first, count = 0;

	pthread_mutex_lock(&mutex);
	if (!is_gone(fault))
		strike(blocks);
	first = (unsigned)(medium_draw(&blocks->medium) % FLYING_COUNT_MAX);
	for (unsigned i = 0; i < FLYING_COUNT_MAX && count < room; i++) {
		struct flying *flying = &blocks->flying[(first + i) % FLYING_COUNT_MAX];

		if (flying->owner != fault || flying->queue != queue)
			continue;
		answers[count].id = flying->command.id;
		count += take_one(blocks, flying, is_gone(fault), &answers[count].failure);
	}
	finish(blocks);
	return count;
}

/* fault_zero -- dying in it leaves some LBAs zero and some not. */
static int fault_zero(struct block_device *device, uint64_t off, uint64_t len)
{
	static const uint8_t zeros[LAYOUT_BLOCK_LEN];
	struct block_fault *fault = fault_of(device);
	struct blocks *blocks = fault->blocks;
	int result = FARLOG_IO;

	pthread_mutex_lock(&mutex);
	if (!is_gone(fault)) {
		bool is_cut = strike(blocks);

		for (uint64_t lba = off / blocks->medium.lba_len; lba < (off + len) / blocks->medium.lba_len; lba++)
			if (!is_cut || medium_draw(&blocks->medium) % 2 == 0)
				medium_land(&blocks->medium, lba, zeros, NULL);
		if (!is_cut)
			medium_settle(&blocks->medium, 0, UINT64_MAX);
		result = is_cut ? FARLOG_IO : FARLOG_OK;
	}
	finish(blocks);
	return result;
}

static int fault_lock(struct block_device *device, enum region_role role)
{
	struct block_fault *fault = fault_of(device);
	int result = FARLOG_IO;

	pthread_mutex_lock(&mutex);
	if (!is_gone(fault))
		result = fault_locks_take(&fault->blocks->locks, fault, fault->host, device->ring_off, role);
	pthread_mutex_unlock(&mutex);
	return result;
}

static void fault_unlock(struct block_device *device, enum region_role role)
{
	pthread_mutex_lock(&mutex);
	fault_locks_give(&fault_of(device)->blocks->locks, fault_of(device), role);
	pthread_mutex_unlock(&mutex);
}

static int fault_is_locked(struct block_device *device, enum region_role role)
{
	int is_locked;

	pthread_mutex_lock(&mutex);
	is_locked = fault_locks_is_taken(&fault_of(device)->blocks->locks, fault_of(device)->host, device->ring_off, role);
	pthread_mutex_unlock(&mutex);
	return is_locked;
}

static int fault_has_parts(struct block_device *device)
{
	bool has_parts;

	pthread_mutex_lock(&mutex);
	has_parts = fault_locks_has_parts(&fault_of(device)->blocks->locks, fault_of(device)->host);
	pthread_mutex_unlock(&mutex);
	return has_parts;
}

/* end_preempted -- what a host that is shut out had under way: it is done, or was done and its answer lost on the way,
 * or has yet to be refused. */
static void end_preempted(struct blocks *blocks, int host)
{
	for (unsigned i = 0; i < FLYING_COUNT_MAX; i++) {
		struct flying *flying = &blocks->flying[i];
		uint64_t draw = medium_draw(&blocks->medium) % 3;

		if (flying->owner == NULL || flying->owner->host != host || !flying->is_sent || !is_write(flying))
			continue;
		for (unsigned lba = 0; lba < lba_count(blocks, flying) && draw != 0; lba++)
			land(blocks, flying, lba);
		medium_come_back(&blocks->medium, flying); /* at the device it is over, whenever its host is told */
		flying->verdict = draw == 0 ? flying->verdict : draw == 1 ? -1 : EBADE;
	}
}

static int fault_reserve(
	struct block_device *device, enum reserve_verb verb, uint64_t key, uint64_t other, struct reserve_view *view)
{
	struct block_fault *fault = fault_of(device);
	struct blocks *blocks = fault->blocks;
	int preempted = -1, result = FARLOG_IO;

	pthread_mutex_lock(&mutex);
	if (!is_gone(fault))
		result = fault_hosts_reserve(&blocks->hosts, fault->host, verb, key, other, view, &preempted);
	if (preempted >= 0)
		end_preempted(blocks, preempted);
	if (!is_gone(fault))
		strike(blocks);
	finish(blocks);
	return result;
}

/* end_flying -- whoever sent it is going: what was sent comes to its end, the rest never goes out. */
static void end_flying(struct blocks *blocks, const struct block_fault *owner)
{
	for (unsigned i = 0; i < FLYING_COUNT_MAX; i++) {
		struct flying *flying = &blocks->flying[i];

		if (flying->owner == NULL || (owner != NULL && flying->owner != owner))
			continue;
		if (flying->is_sent && is_write(flying) && blocks->failure == 0 && flying->verdict <= 0 &&
			!is_refused(blocks, flying))
			complete(blocks, flying);
		retire(blocks, flying);
	}
}

/* fault_close -- on dead blocks the bytes of what is under way go with their owner: none of it lands any more. */
static void fault_close(struct block_device *device)
{
	struct block_fault *fault = fault_of(device);
	struct blocks *blocks = fault->blocks;

	pthread_mutex_lock(&mutex);
	for (unsigned i = 0; i < FLYING_COUNT_MAX && blocks->is_dead; i++)
		if (blocks->flying[i].owner == fault)
			retire(blocks, &blocks->flying[i]);
	end_flying(blocks, fault);
	fault_locks_give(&blocks->locks, fault, REGION_ROLE_READER);
	pthread_mutex_unlock(&mutex);
	free(fault);
}

static const struct block_ops fault_ops = {
	.put = fault_put,
	.send = fault_send,
	.wait = fault_wait,
	.take = fault_take,
	.zero = fault_zero,
	.lock = fault_lock,
	.unlock = fault_unlock,
	.is_locked = fault_is_locked,
	.has_parts = fault_has_parts,
	.reserve = fault_reserve,
	.close = fault_close,
};

static struct blocks *make_blocks(const struct uri *uri, uint64_t size_bytes)
{
	struct blocks *blocks = calloc(1, sizeof(*blocks));

	if (blocks == NULL)
		abort();
	snprintf(blocks->name, sizeof(blocks->name), "%.60s", uri->path);
	medium_make(&blocks->medium, size_bytes, next_lba_len, uri->seed);
	blocks->has_cache = next_has_cache != 0;
	blocks->hosts.has_reservations = fault_hosts_next_has_reservations;
	blocks->armed = UINT64_MAX;
	blocks->call_in = UINT64_MAX;
	blocks->next = all;
	all = blocks;
	return blocks;
}

int block_fault_open(const char *text, const struct uri *uri, const struct region_options *options,
	struct region **region, struct farlog_error *error)
{
	struct block_fault *fault = calloc(1, sizeof(*fault));
	struct farlog_contract contract = {.kind = FARLOG_REGION_FAULT,
		.flush_method = FARLOG_FLUSH_FUA,
		.level = FARLOG_LEVEL_PERSISTENT,
		/* a machine that stands still is no dead device */
		.deadline_default_ns = 30000000000u,
		.kind_name = "fault",
		.flush_name = "fua",
		.probe = "adversarial blocks of the tests"};
	struct blocks *blocks;

	pthread_mutex_lock(&mutex);
	blocks = find(uri->path);
	if (blocks == NULL && options->access == REGION_CREATE && options->size_bytes > 0 &&
		options->size_bytes % LAYOUT_BLOCK_LEN == 0)
		blocks = make_blocks(uri, options->size_bytes + NVME_EXTRA_LEN);
	pthread_mutex_unlock(&mutex);
	if (blocks == NULL || fault == NULL) {
		free(fault);
		return error_set(error, FARLOG_NOT_FOUND, 0, "region \"%s\": no such adversarial blocks", text);
	}
	*fault = (struct block_fault){.blocks = blocks,
		.generation = blocks->generation,
		.host = fault_hosts_next,
		.device = {.ops = &fault_ops,
			.size_bytes = blocks->medium.size_bytes,
			.lba_len = blocks->medium.lba_len,
			.command_len_max = PIECE_LBA_COUNT * blocks->medium.lba_len,
			.is_clockless = true,
			.reopen_delay_ns = fault_hosts_next_rest_ns,
			.is_former_gone = uri->former[0] != '\0'}};
	contract.granularity = blocks->medium.lba_len;
	contract.atomic_unit = blocks->medium.lba_len;
	contract.size_bytes = blocks->medium.size_bytes - NVME_EXTRA_LEN;
	return nvme_make(text, &fault->device, &contract, options, region, error);
}

void farlog_block_shape(uint32_t lba_len, int has_cache)
{
	next_lba_len = lba_len;
	next_has_cache = has_cache;
}

void farlog_block_reshape(const char *name, uint32_t lba_len)
{
	find(name)->medium.lba_len = lba_len;
}

void farlog_block_wipe(const char *name, uint64_t off, uint64_t len)
{
	medium_wipe(&find(name)->medium, off, len);
}

static bool is_landing(const struct blocks *blocks, const struct flying *flying)
{
	return flying->owner != NULL && flying->is_sent && is_write(flying) && flying->verdict <= 0 &&
		!is_refused(blocks, flying);
}

static void lose(struct blocks *blocks)
{
	uint64_t keep_of_256 = medium_draw(&blocks->medium) % 257;

	for (unsigned i = 0; i < FLYING_COUNT_MAX; i++) {
		struct flying *flying = &blocks->flying[i];

		for (unsigned lba = 0; is_landing(blocks, flying) && lba < lba_count(blocks, flying); lba++)
			if (medium_draw(&blocks->medium) % 256 < keep_of_256)
				land(blocks, flying, lba);
	}
	medium_lose(&blocks->medium, keep_of_256);
	for (unsigned i = 0; i < FLYING_COUNT_MAX; i++) {
		struct flying *flying = &blocks->flying[i];
		uint64_t first = flying->command.off / blocks->medium.lba_len;

		for (unsigned lba = 0; is_landing(blocks, flying) && lba < lba_count(blocks, flying); lba++)
			if (lba_count(blocks, flying) > 1 && medium_draw(&blocks->medium) % 256 < GARBLED_OF_256)
				medium_garble(
					&blocks->medium, first + lba, flying->command.bytes + (size_t)lba * blocks->medium.lba_len);
		flying->owner = NULL;
	}
	memcpy(blocks->medium.visible, blocks->medium.durable, blocks->medium.size_bytes);
	fault_hosts_forget(&blocks->hosts);
}

static void revive(struct blocks *blocks)
{
	blocks->generation++;
	blocks->is_dead = false;
	blocks->is_stuck = 0;
	blocks->failure = 0;
	blocks->armed = UINT64_MAX;
	memset(&blocks->locks, 0, sizeof(blocks->locks));
}

/* enter -- NULL: there are none of that name. */
static struct blocks *enter(const char *name)
{
	pthread_mutex_lock(&mutex);
	return find(name);
}

static void leave(void)
{
	pthread_mutex_unlock(&mutex);
}

/* end -- of all handles. What they had under way: any of it, or as the kernel sees to it. */
static void end(const char *name, bool is_power_cut)
{
	struct blocks *blocks = enter(name);

	if (blocks != NULL) {
		if (is_power_cut)
			lose(blocks);
		else
			end_flying(blocks, NULL);
		revive(blocks);
	}
	leave();
}

void farlog_block_crash(const char *name)
{
	end(name, true);
}

void farlog_block_kill(const char *name)
{
	end(name, false);
}

void farlog_block_restart(const char *name)
{
	const struct block_fault *owners[FLYING_COUNT_MAX];
	struct blocks *blocks = enter(name);

	for (unsigned i = 0; blocks != NULL && i < FLYING_COUNT_MAX; i++)
		owners[i] = blocks->flying[i].owner;
	if (blocks != NULL)
		lose(blocks);
	for (unsigned i = 0; blocks != NULL && i < FLYING_COUNT_MAX; i++) {
		blocks->flying[i].owner = (struct block_fault *)owners[i];
		blocks->flying[i].is_sent |= owners[i] != NULL;
		blocks->flying[i].verdict =
			blocks->flying[i].command.verb == BLOCK_READ && blocks->flying[i].landed != 0 ? 0 : EIO;
	}
	leave();
}

void farlog_block_drop(const char *name)
{
	struct blocks *blocks = enter(name);
	struct blocks **link = &all;

	while (*link != blocks)
		link = &(*link)->next;
	if (blocks != NULL) {
		*link = blocks->next;
		medium_free(&blocks->medium);
		free(blocks);
	}
	leave();
}

void farlog_block_reseed(const char *name, uint64_t seed)
{
	struct blocks *blocks = enter(name);

	if (blocks != NULL)
		blocks->medium.random = seed != 0 ? seed : 1;
	leave();
}

void farlog_block_arm(const char *name, uint64_t operation_count)
{
	struct blocks *blocks = enter(name);

	if (blocks != NULL) {
		blocks->is_dead |= operation_count == 0;
		blocks->armed = operation_count == 0 ? UINT64_MAX : operation_count;
	}
	leave();
}

int farlog_block_is_dead(const char *name)
{
	struct blocks *blocks = enter(name);
	int is_dead = blocks != NULL && blocks->is_dead;

	leave();
	return is_dead;
}

void farlog_block_call(const char *name, uint64_t operation_count, void (*call)(void *context), void *context)
{
	struct blocks *blocks = enter(name);

	if (blocks != NULL) {
		blocks->call_in = operation_count;
		blocks->call = call;
		blocks->call_context = context;
	}
	leave();
}

void farlog_block_trouble(const char *name, int is_stuck, int failure)
{
	struct blocks *blocks = enter(name);

	if (blocks != NULL) {
		blocks->is_stuck = is_stuck;
		blocks->failure = failure;
	}
	leave();
}
