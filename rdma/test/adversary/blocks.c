/* adversary/blocks.c -- adversarial blocks. See adversary/blocks.h. */
#include "adversary/blocks_inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "blocks/nvme.h"

#define PIECE_LBA_COUNT 4u /* of a piece of a commit */

pthread_mutex_t block_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct blocks *all;
static uint32_t next_lba_len = 512;
static int next_has_cache = 1;

struct blocks *block_find(const char *name)
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
	pthread_mutex_unlock(&block_mutex);
	if (is_due)
		blocks->call(blocks->call_context);
}

bool block_is_write(const struct flying *flying)
{
	return flying->command.verb == BLOCK_WRITE || flying->command.verb == BLOCK_WRITE_DURABLE;
}

unsigned block_lba_count(const struct blocks *blocks, const struct flying *flying)
{
	return flying->command.len / blocks->medium.lba_len;
}

void block_land(struct blocks *blocks, struct flying *flying, unsigned i)
{
	if (flying->landed >> i & 1)
		return;
	flying->landed |= 1ull << i;
	medium_land(&blocks->medium, flying->command.off / blocks->medium.lba_len + i,
		flying->command.bytes + (size_t)i * blocks->medium.lba_len, flying);
}

bool block_is_refused(const struct blocks *blocks, const struct flying *flying)
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
	for (unsigned i = 0; block_is_write(flying) && i < block_lba_count(blocks, flying); i++)
		block_land(blocks, flying, i);
	if (command->verb == BLOCK_WRITE_DURABLE || (command->verb == BLOCK_WRITE && !blocks->has_cache))
		medium_settle(&blocks->medium, from, from + block_lba_count(blocks, flying));
	retire(blocks, flying);
}

static void fault_put(struct block_device *device, enum block_queue queue, const struct block_command *command)
{
	struct block_fault *fault = fault_of(device);
	struct blocks *blocks = fault->blocks;
	unsigned i = 0;

	pthread_mutex_lock(&block_mutex);
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
	pthread_mutex_unlock(&block_mutex);
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

	pthread_mutex_lock(&block_mutex);
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

/* take_one -- does it come back now? A part of it may block_land before. */
static bool take_one(struct blocks *blocks, struct flying *flying, bool is_dead, int *failure)
{
	*failure = is_dead ? ENODEV : blocks->failure;
	if (*failure == 0 && flying->is_sent && (flying->verdict > 0 || block_is_refused(blocks, flying)))
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
	if (block_is_write(flying) && medium_draw(&blocks->medium) % 2 == 0)
		block_land(blocks, flying, (unsigned)(medium_draw(&blocks->medium) % block_lba_count(blocks, flying)));
	if ((blocks->is_stuck == 1 && block_is_write(flying) && flying->command.off >= NVME_DATA_OFF) ||
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

	pthread_mutex_lock(&block_mutex);
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

	pthread_mutex_lock(&block_mutex);
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

	pthread_mutex_lock(&block_mutex);
	if (!is_gone(fault))
		result = fault_locks_take(&fault->blocks->locks, fault, fault->host, device->ring_off, role);
	pthread_mutex_unlock(&block_mutex);
	return result;
}

static void fault_unlock(struct block_device *device, enum region_role role)
{
	pthread_mutex_lock(&block_mutex);
	fault_locks_give(&fault_of(device)->blocks->locks, fault_of(device), role);
	pthread_mutex_unlock(&block_mutex);
}

static int fault_is_locked(struct block_device *device, enum region_role role)
{
	int is_locked;

	pthread_mutex_lock(&block_mutex);
	is_locked = fault_locks_is_taken(&fault_of(device)->blocks->locks, fault_of(device)->host, device->ring_off, role);
	pthread_mutex_unlock(&block_mutex);
	return is_locked;
}

static int fault_has_parts(struct block_device *device)
{
	bool has_parts;

	pthread_mutex_lock(&block_mutex);
	has_parts = fault_locks_has_parts(&fault_of(device)->blocks->locks, fault_of(device)->host);
	pthread_mutex_unlock(&block_mutex);
	return has_parts;
}

/* end_preempted -- what a host that is shut out had under way: it is done, or was done and its answer lost on the way,
 * or has yet to be refused. */
static void end_preempted(struct blocks *blocks, int host)
{
	for (unsigned i = 0; i < FLYING_COUNT_MAX; i++) {
		struct flying *flying = &blocks->flying[i];
		uint64_t draw = medium_draw(&blocks->medium) % 3;

		if (flying->owner == NULL || flying->owner->host != host || !flying->is_sent || !block_is_write(flying))
			continue;
		for (unsigned lba = 0; lba < block_lba_count(blocks, flying) && draw != 0; lba++)
			block_land(blocks, flying, lba);
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

	pthread_mutex_lock(&block_mutex);
	if (!is_gone(fault))
		result = fault_hosts_reserve(&blocks->hosts, fault->host, verb, key, other, view, &preempted);
	if (preempted >= 0)
		end_preempted(blocks, preempted);
	if (!is_gone(fault))
		strike(blocks);
	finish(blocks);
	return result;
}

void block_end_flying(struct blocks *blocks, const struct block_fault *owner)
{
	for (unsigned i = 0; i < FLYING_COUNT_MAX; i++) {
		struct flying *flying = &blocks->flying[i];

		if (flying->owner == NULL || (owner != NULL && flying->owner != owner))
			continue;
		if (flying->is_sent && block_is_write(flying) && blocks->failure == 0 && flying->verdict <= 0 &&
			!block_is_refused(blocks, flying))
			complete(blocks, flying);
		retire(blocks, flying);
	}
}

/* fault_close -- on dead blocks the bytes of what is under way go with their owner: none of it lands any more. */
static void fault_close(struct block_device *device)
{
	struct block_fault *fault = fault_of(device);
	struct blocks *blocks = fault->blocks;

	pthread_mutex_lock(&block_mutex);
	for (unsigned i = 0; i < FLYING_COUNT_MAX && blocks->is_dead; i++)
		if (blocks->flying[i].owner == fault)
			retire(blocks, &blocks->flying[i]);
	block_end_flying(blocks, fault);
	fault_locks_give(&blocks->locks, fault, REGION_ROLE_READER);
	pthread_mutex_unlock(&block_mutex);
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

	pthread_mutex_lock(&block_mutex);
	blocks = block_find(uri->path);
	if (blocks == NULL && options->access == REGION_CREATE && options->size_bytes > 0 &&
		options->size_bytes % LAYOUT_BLOCK_LEN == 0)
		blocks = make_blocks(uri, options->size_bytes + NVME_EXTRA_LEN);
	pthread_mutex_unlock(&block_mutex);
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

void farlog_block_drop(const char *name)
{
	struct blocks **link = &all;
	struct blocks *blocks;

	pthread_mutex_lock(&block_mutex);
	blocks = block_find(name);
	while (*link != blocks)
		link = &(*link)->next;
	if (blocks != NULL) {
		*link = blocks->next;
		medium_free(&blocks->medium);
		free(blocks);
	}
	pthread_mutex_unlock(&block_mutex);
}
