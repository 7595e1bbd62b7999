/* adversary/blocks_control.c -- what tests do to adversarial blocks: power cuts, deaths, trouble, calls at an
 * operation. */
#include "adversary/blocks_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GARBLED_OF_256 24u

void farlog_block_reshape(const char *name, uint32_t lba_len)
{
	block_find(name)->medium.lba_len = lba_len;
}

void farlog_block_wipe(const char *name, uint64_t off, uint64_t len)
{
	medium_wipe(&block_find(name)->medium, off, len);
}

static bool is_landing(const struct blocks *blocks, const struct flying *flying)
{
	return flying->owner != NULL && flying->is_sent && block_is_write(flying) && flying->verdict <= 0 &&
		!block_is_refused(blocks, flying);
}

static void lose(struct blocks *blocks)
{
	uint64_t keep_of_256 = medium_draw(&blocks->medium) % 257;

	for (unsigned i = 0; i < FLYING_COUNT_MAX; i++) {
		struct flying *flying = &blocks->flying[i];

		for (unsigned lba = 0; is_landing(blocks, flying) && lba < block_lba_count(blocks, flying); lba++)
			if (medium_draw(&blocks->medium) % 256 < keep_of_256)
				block_land(blocks, flying, lba);
	}
	medium_lose(&blocks->medium, keep_of_256);
	for (unsigned i = 0; i < FLYING_COUNT_MAX; i++) {
		struct flying *flying = &blocks->flying[i];
		uint64_t first = flying->command.off / blocks->medium.lba_len;

		for (unsigned lba = 0; is_landing(blocks, flying) && lba < block_lba_count(blocks, flying); lba++)
			if (block_lba_count(blocks, flying) > 1 && medium_draw(&blocks->medium) % 256 < GARBLED_OF_256)
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

/* lock_blocks -- NULL: there are none of that name. */
static struct blocks *lock_blocks(const char *name)
{
	pthread_mutex_lock(&block_mutex);
	return block_find(name);
}

static void unlock_blocks(void)
{
	pthread_mutex_unlock(&block_mutex);
}

/* end -- of all handles. What they had under way: any of it, or as the kernel sees to it. */
static void end(const char *name, bool is_power_cut)
{
	struct blocks *blocks = lock_blocks(name);

	if (blocks != NULL) {
		if (is_power_cut)
			lose(blocks);
		else
			block_end_flying(blocks, NULL);
		revive(blocks);
	}
	unlock_blocks();
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
	struct blocks *blocks = lock_blocks(name);

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
	unlock_blocks();
}

void farlog_block_reseed(const char *name, uint64_t seed)
{
	struct blocks *blocks = lock_blocks(name);

	if (blocks != NULL)
		blocks->medium.random = seed != 0 ? seed : 1;
	unlock_blocks();
}

void farlog_block_arm(const char *name, uint64_t operation_count)
{
	struct blocks *blocks = lock_blocks(name);

	if (blocks != NULL) {
		blocks->is_dead |= operation_count == 0;
		blocks->armed = operation_count == 0 ? UINT64_MAX : operation_count;
	}
	unlock_blocks();
}

int farlog_block_is_dead(const char *name)
{
	struct blocks *blocks = lock_blocks(name);
	int is_dead = blocks != NULL && blocks->is_dead;

	unlock_blocks();
	return is_dead;
}

void farlog_block_call(const char *name, uint64_t operation_count, void (*call)(void *context), void *context)
{
	struct blocks *blocks = lock_blocks(name);

	if (blocks != NULL) {
		blocks->call_in = operation_count;
		blocks->call = call;
		blocks->call_context = context;
	}
	unlock_blocks();
}

void farlog_block_trouble(const char *name, int is_stuck, int failure)
{
	struct blocks *blocks = lock_blocks(name);

	if (blocks != NULL) {
		blocks->is_stuck = is_stuck;
		blocks->failure = failure;
	}
	unlock_blocks();
}
