/* adversary/memory_inside.h -- the inside of adversarial memory, for its two files. */
#ifndef FARLOG_REGION_FAULT_MEMORY_H
#define FARLOG_REGION_FAULT_MEMORY_H

#include <pthread.h>

#include "adversary/memory.h"

#define FAULT_SPAN_COUNT_MAX 2
#define FAULT_LOCK_COUNT_MAX 32
#define FAULT_NO_WRITER 0u
#define FAULT_ANY_WRITER UINT64_MAX

/* A store that no flush has covered yet. `order` counts stores, so that a flush takes only those before it. A persist
 * takes what its own handle wrote, as a fence of a processor does, and no word that was stored alone: that lies in a
 * cache which nobody wrote back. */
struct pending_store {
	uint64_t word;
	uint64_t value;
	uint64_t order;
	uint64_t writer; /* of the handle that persists it; FAULT_NO_WRITER = none, only a flush takes it */
};

struct region_fault;

/* Bytes on their way. */
struct fault_parcel {
	struct fault_parcel *next;
	uint64_t off;
	uint64_t len;
	uint64_t client_id; /* who sent them */
	uint8_t bytes[];
};

/* A role of the ring that begins at `off`. */
struct fault_lock {
	const struct region_fault *holder; /* NULL = free */
	uint64_t off;
	enum region_role role;
};

struct fault_memory {
	struct fault_memory *next;
	char name[64];
	uint64_t size_bytes;
	uint64_t *visible;
	uint64_t *durable;
	uint8_t *is_stopped; /* scratch of a crash: a later store to this word is lost too */
	struct pending_store *pending;
	uint64_t pending_count;
	uint64_t pending_room;
	uint64_t order;
	uint64_t handle_count;
	uint64_t generation;       /* handles of older ones are dead */
	uint64_t drain_generation; /* and drains' handles of older ones of this */
	uint64_t armed;
	uint64_t call_in;      /* operations until `call`; UINT64_MAX = none */
	uint64_t lock_call_in; /* locks until `lock_call`; UINT64_MAX = none */
	void (*lock_call)(void *context);
	void *lock_call_context;
	void (*call)(void *context);
	void *call_context;
	uint64_t random;
	bool is_dead;
	bool is_exposed;   /* a device stores into `visible` */
	bool is_away;      /* nobody reaches it */
	bool is_remote;    /* records come across a network: they land when their persist is complete, or much later */
	unsigned slowness; /* of 256: how often a poll finds a persist not complete */
	uint64_t torn_generation;    /* of older handles nothing is on its way any more */
	struct fault_parcel *ghosts; /* of handles that have died */
	struct fault_lock locks[FAULT_LOCK_COUNT_MAX];
};

struct region_fault {
	struct region region;
	struct fault_memory *memory;
	uint64_t off;    /* of what is shown of the memory */
	uint64_t number; /* from 1: whose stores these are */
	uint64_t generation;
	uint64_t drain_generation;
	bool is_drain;
	uint64_t client_id; /* of region_options */
	uint64_t tag_asked;
	uint64_t order_asked;
	unsigned span_count;
	struct region_span spans[FAULT_SPAN_COUNT_MAX];
	struct fault_parcel *queue; /* sent and not landed */
};

extern pthread_mutex_t fault_mutex;

struct fault_memory *fault_find(const char *name) FARLOG_MUST_CHECK;

/* fault_draw -- of the memory's own random numbers. fault_put_words -- stores, visible at once, durable by a flush, by
 * `writer`'s persist or by luck. */
uint64_t fault_draw(struct fault_memory *memory);
void fault_put_words(struct fault_memory *memory, uint64_t writer, uint64_t off, const void *src, uint64_t word_count);

/* fault_queue -- a write to memory across a network: it lands when its persist is complete. fault_land -- now.
 * fault_leave_behind -- the handle dies: what it sent lands later, or never. fault_haunt -- at every operation: perhaps
 * now. fault_admit -- a writer gets its lock: what dead handles of other clients have sent has landed, or never does.
 * The mutex is held. */
void fault_queue(struct region_fault *fault, uint64_t off, const void *src, uint64_t len);
void fault_land(struct region_fault *fault);
void fault_leave_behind(struct region_fault *fault);
void fault_haunt(struct fault_memory *memory);
void fault_admit(struct region_fault *fault);
void fault_forget_ghosts(struct fault_memory *memory);
int fault_abort_persist(struct region *region) FARLOG_MUST_CHECK;

#endif
