/* world.h -- one ring on adversarial memory, or on adversarial blocks, with a writer, a drain, a follower and a store,
 * and the steps that they take. */
#ifndef FARLOG_TEST_WORLD_H
#define FARLOG_TEST_WORLD_H

#include "adversary/blocks.h"
#include "oracle.h"
#include "adversary/memory.h"
#include "adversary/file.h"
#include "log/writer.h"

#define WORLD_NAME "crash"

/* What the ring lies on, and what can happen to that. */
struct memory {
	const char *uri;
	bool is_blocks;
	void (*arm)(const char *name, uint64_t operation_count);
	int (*is_dead)(const char *name);
	void (*call)(const char *name, uint64_t operation_count, void (*call)(void *context), void *context);
	void (*crash)(const char *name);
	void (*kill)(const char *name);
	void (*drop)(const char *name);
	void (*reseed)(const char *name, uint64_t seed);
};

extern const struct memory *memory;
extern const struct memory memory_of_words;  /* 8 bytes are stored whole, each for itself */
extern const struct memory memory_of_blocks; /* an LBA is */
extern const struct memory memory_of_pages;  /* a page of a file is, or its sectors are */

#define WORLD_BUFFER_LEN (64u << 10)

struct world {
	struct oracle oracle;
	uint64_t random;
	uint64_t capacity;
	uint32_t align;
	uint32_t block_len; /* of the LBAs it lies on, 0 = none */
	uint32_t record_len_max;
	/* extents are mostly multiples of this, so that records of different epochs begin at one place */
	uint32_t quantum;
	uint32_t drain_laziness; /* of 16: how often the drain does nothing */
	farlog_writer *writer;
	farlog_shared *shared; /* at most one of writer and shared is open */
	farlog_reader *drain;
	farlog_reader *follower;
	struct oracle_walk drain_walk;
	struct oracle_walk follower_walk;
	struct farlog_batch read;   /* what the drain read last */
	struct farlog_batch synced; /* and what of it the store has synced */
	bool has_read;
	bool has_synced;
	uint64_t released_lsn;  /* the last release that returned OK */
	uint64_t releasing_lsn; /* the last release that was tried */
	uint32_t epoch_min;     /* the last fence that returned OK */
	uint32_t unknown_from;  /* records from here on may be asked for with resolve */
	bool is_releasing;      /* the drain is in the middle of a release (drain_begin_release) */
	bool is_traced;         /* TRACE=1: print every step */
	uint64_t step_count;
	uint64_t open_count;
	uint8_t buffer[WORLD_BUFFER_LEN];
};

/* draw -- splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014. */
static inline uint64_t draw(struct world *world)
{
	uint64_t value = world->random += 0x9E3779B97F4A7C15ull;

	value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
	value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
	return value ^ (value >> 31);
}

void trace(const struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline uint64_t below(struct world *world, uint64_t bound)
{
	return draw(world) % bound;
}

/* world_start -- a new ring of random shape. world_stop -- close everything, forget the memory. */
void world_start(struct world *world, uint64_t seed);
void world_stop(struct world *world);

/* world_step -- one random step of the writer, the drain or the follower. */
void world_step(struct world *world);

/* world_bury -- handles of a dead memory are closed, the drain forgets what it had in hand. */
void world_bury(struct world *world);

/* The steps of the writer (world_writer.c) and of those who read (world_reader.c). */
void writer_step(struct world *world);
void writer_drop(struct world *world, bool is_clean);
void drain_step(struct world *world);
void follower_step(struct world *world);
/* drain_begin_release -- the drain's process goes on beside the opening writer: a release that takes its steps between
 * those of the writer and may be left standing in the middle. drain_stand_still -- from here on the writer goes alone.
 * drain_end_release -- go through with it. */
void drain_begin_release(struct world *world);
void drain_stand_still(void);
void drain_end_release(struct world *world);
bool drain_until_empty(struct world *world);

/* walk_ring -- what a new reader sees from the head to the end; checks it, and gives both ends. */
void walk_ring(struct world *world, uint64_t *head_lsn, uint64_t *tail_lsn);

static inline bool world_is_over(const struct world *world)
{
	return oracle_has_failed(&world->oracle) || memory->is_dead(WORLD_NAME);
}

#endif
