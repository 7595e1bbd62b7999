/* world.c -- the life of one ring in a crash test. */
#include "base/err.h"
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct memory memory_of_words = {"fault:" WORLD_NAME, false, farlog_fault_arm, farlog_fault_is_dead,
	farlog_fault_call, farlog_fault_crash, farlog_fault_kill, farlog_fault_drop, farlog_fault_reseed};
const struct memory memory_of_blocks = {"block-fault:" WORLD_NAME, true, farlog_block_arm, farlog_block_is_dead,
	farlog_block_call, farlog_block_crash, farlog_block_kill, farlog_block_drop, farlog_block_reseed};
const struct memory memory_of_pages = {"file-fault:" WORLD_NAME, false, farlog_file_arm, farlog_file_is_dead,
	farlog_file_call, farlog_file_crash, farlog_file_kill, farlog_file_drop, farlog_file_reseed};
const struct memory *memory = &memory_of_words;

void trace(const struct world *world, const char *format, ...)
{
	va_list args;

	if (!world->is_traced)
		return;
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
}

/* choose_lbas -- records of a part of one to several of them; a cache that forgets, or none. */
static void choose_lbas(struct world *world)
{
	static const uint32_t sizes[] = {4, 4, 5, 6, 8, 12};
	static const uint32_t quanta[] = {128, 192, 320, 512, 512, 1024};
	uint32_t lba_len = below(world, 4) == 0 ? 4096 : 512;

	farlog_block_shape(lba_len, below(world, 8) != 0);
	world->capacity = 4096ull * sizes[below(world, sizeof(sizes) / sizeof(sizes[0]))];
	world->block_len = lba_len;
	if (below(world, 8) == 0)
		world->align = lba_len; /* one record an LBA */
	world->quantum = quanta[below(world, sizeof(quanta) / sizeof(quanta[0]))];
	world->record_len_max = lba_len == 512 ? 512 * (1 + (uint32_t)below(world, 8)) : lba_len;
}

static void choose_shape(struct world *world, struct farlog_ring_config *config)
{
	static const uint32_t blocks[] = {1, 1, 2, 2, 3, 4, 8};
	static const uint32_t aligns[] = {64, 64, 64, 64, 128, 256};
	static const uint32_t laziness[] = {0, 0, 2, 4, 6, 10, 14};
	static const uint32_t quanta[] = {128, 128, 128, 192, 256, 320};

	world->capacity = 4096ull * blocks[below(world, sizeof(blocks) / sizeof(blocks[0]))];
	world->align = aligns[below(world, sizeof(aligns) / sizeof(aligns[0]))];
	world->quantum = quanta[below(world, sizeof(quanta) / sizeof(quanta[0]))];
	world->record_len_max = below(world, 2) ? 512 : 1024;
	if (memory->is_blocks)
		choose_lbas(world);
	world->drain_laziness = laziness[below(world, sizeof(laziness) / sizeof(laziness[0]))];
	*config = (struct farlog_ring_config){
		.size_bytes = world->capacity + 0x3000,
		.align = world->align,
		.record_len_max = world->record_len_max,
		.stream_id = (uint32_t)below(world, 3),
		.is_forced = 1,
		.salt = draw(world) | 1,
	};
}

/* die_in_format -- a forced format that a power cut interrupts: what is found then is refused or a ring, and formatting
 * again works. */
static void die_in_format(struct world *world, const struct farlog_ring_config *config)
{
	farlog_writer *writer;
	int result;

	memory->arm(WORLD_NAME, below(world, 12));
	may_fail(farlog_ring_format(memory->uri, config, NULL));
	memory->crash(WORLD_NAME);
	result = farlog_writer_open(memory->uri, &(struct farlog_writer_config){.counters_dir = ""}, &writer, NULL);
	if (result != FARLOG_OK && result != FARLOG_NOT_A_RING && result != FARLOG_CORRUPT)
		oracle_fail(&world->oracle, "open after a broken format: %s", farlog_result_name(result));
	farlog_writer_close(writer);
}

void world_start(struct world *world, uint64_t seed)
{
	struct farlog_ring_config config;
	struct farlog_ring_status status;
	struct farlog_error error = {0};

	memset(world, 0, offsetof(struct world, buffer));
	world->random = seed;
	world->is_traced = getenv("TRACE") != NULL;
	memory->drop(WORLD_NAME);
	choose_shape(world, &config);
	if (farlog_ring_format(memory->uri, &config, &error) != FARLOG_OK)
		oracle_fail(&world->oracle, "format: %s", error.text);
	memory->reseed(WORLD_NAME, draw(world) | 1);
	if (below(world, 16) == 0)
		die_in_format(world, &config);
	if (farlog_ring_format(memory->uri, &config, &error) != FARLOG_OK ||
		farlog_ring_inspect(memory->uri, &status, &error) != FARLOG_OK)
		oracle_fail(&world->oracle, "format: %s", error.text);
	if (!oracle_has_failed(&world->oracle))
		oracle_start(&world->oracle, &status, world->block_len);
	trace(world, "ring: capacity %lu align %u record_len_max %u LBA %u\n", world->capacity, world->align,
		world->record_len_max, world->block_len);
}

void world_bury(struct world *world)
{
	writer_drop(world, false);
	farlog_reader_close(world->drain);
	world->drain = NULL;
	world->has_read = false;
	world->has_synced = false;
	if (memory->is_blocks || below(world, 4) == 0) { /* a handle of blocks dies with them */
		farlog_reader_close(world->follower);
		world->follower = NULL;
	}
}

void world_step(struct world *world)
{
	uint64_t lot = below(world, 16);

	world->step_count++;
	if (lot < 8)
		writer_step(world);
	else if (lot < 15)
		drain_step(world);
	else
		follower_step(world);
}

void world_stop(struct world *world)
{
	writer_drop(world, false);
	farlog_reader_close(world->drain);
	farlog_reader_close(world->follower);
	world->drain = NULL;
	world->follower = NULL;
	memory->drop(WORLD_NAME);
}
