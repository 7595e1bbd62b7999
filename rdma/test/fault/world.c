/* world.c -- the life of one ring in a crash test. */
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void trace(const struct world *world, const char *format, ...)
{
	va_list args;

	if (!world->is_traced)
		return;
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
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

/* die_in_format -- a forced format that a power cut interrupts: what is found then is refused or a ring, and formatting again works. */
static void die_in_format(struct world *world, const struct farlog_ring_config *config)
{
	farlog_writer *writer;
	int result;

	farlog_fault_arm(WORLD_NAME, below(world, 12));
	farlog_ring_format(WORLD_URI, config, NULL);
	farlog_fault_crash(WORLD_NAME);
	result = farlog_writer_open(WORLD_URI, &(struct farlog_writer_config){.counters_dir = ""}, &writer, NULL);
	if (result != FARLOG_OK && result != FARLOG_NOT_A_RING && result != FARLOG_CORRUPT)
		oracle_fail(&world->oracle, "open after a broken format: %s", farlog_result_name(result));
	farlog_writer_close(writer);
}

void world_start(struct world *world, uint64_t seed, int mutant)
{
	struct farlog_ring_config config;
	struct farlog_ring_status status;
	struct farlog_error error = {0};

	memset(world, 0, offsetof(struct world, buffer));
	world->random = seed;
	world->mutant = mutant;
	world->is_traced = getenv("TRACE") != NULL;
	farlog_fault_drop(WORLD_NAME);
	farlog_fault_set_mutant(mutant);
	choose_shape(world, &config);
	if (farlog_ring_format(WORLD_URI, &config, &error) != FARLOG_OK)
		oracle_fail(&world->oracle, "format: %s", error.text);
	farlog_fault_reseed(WORLD_NAME, draw(world) | 1);
	if (below(world, 16) == 0)
		die_in_format(world, &config);
	if (farlog_ring_format(WORLD_URI, &config, &error) != FARLOG_OK ||
		farlog_ring_inspect(WORLD_URI, &status, &error) != FARLOG_OK)
		oracle_fail(&world->oracle, "format: %s", error.text);
	if (!oracle_has_failed(&world->oracle))
		oracle_start(&world->oracle, &status);
	trace(world, "ring: capacity %lu align %u record_len_max %u\n", world->capacity, world->align, world->record_len_max);
}

void world_bury(struct world *world)
{
	writer_drop(world, false);
	farlog_reader_close(world->drain);
	world->drain = NULL;
	world->has_read = false;
	world->has_synced = false;
	if (below(world, 4) == 0) {
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
	farlog_fault_drop(WORLD_NAME);
	farlog_fault_set_mutant(MUTANT_NONE);
}
