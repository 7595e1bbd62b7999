/* adversary/blocks_inside.h -- the inside of adversarial blocks, for its two files. */
#ifndef FARLOG_BLOCK_FAULT_INSIDE_H
#define FARLOG_BLOCK_FAULT_INSIDE_H

#include <pthread.h>

#include "adversary/blocks.h"
#include "adversary/hosts.h"
#include "adversary/medium.h"
#include "blocks/nvme.h"

#define FLYING_COUNT_MAX 256u
#define LBA_COUNT_MAX 64u /* of a write */

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

extern pthread_mutex_t block_mutex;

/* block_find -- NULL: there are none of that name. Of all of these the caller has the mutex. */
struct blocks *block_find(const char *name);
bool block_is_write(const struct flying *flying);
unsigned block_lba_count(const struct blocks *blocks, const struct flying *flying);

/* block_land -- LBA i of a write, with the bytes that its buffer has now. block_is_refused -- does its host have no
 * right to it any more? block_end_flying -- whoever sent it is going, or everybody (NULL): what was sent comes to its
 * end, the rest never goes out. */
void block_land(struct blocks *blocks, struct flying *flying, unsigned i);
bool block_is_refused(const struct blocks *blocks, const struct flying *flying);
void block_end_flying(struct blocks *blocks, const struct block_fault *owner);

#endif
