/* routes_world.h -- the adversarial memories of a route's legs and spills, their drains and the clock, for routes.c. */
#ifndef FARLOG_TEST_ROUTES_WORLD_H
#define FARLOG_TEST_ROUTES_WORLD_H

#include <stdio.h>

#include "base/clock.h"
#include "base/err.h"
#include "farlog/heartbeat.h"
#include "route/route.h"

#define LEG_COUNT 2u
#define NUMBER_MAX 8192u
#define SPILL_BYTES (LAYOUT_DATA_OFF + (32u << 10))

struct stored {
	uint64_t lsn;
	uint64_t number;
};

struct leg {
	char far_name[24], far_uri[32], spill_name[24], spill_uri[32];
	uint8_t is_acked[NUMBER_MAX];
	/* of the optional one: in the spill, which the death of the process alone does not take */
	uint8_t is_offered[NUMBER_MAX];
	struct stored stored[NUMBER_MAX];
	unsigned stored_count;
	bool is_away;
	unsigned slowness;
};

struct routes_world {
	uint64_t random;
	uint64_t clock_ns;
	struct leg legs[LEG_COUNT];
	farlog_route *route;
	uint64_t next_number;
	uint32_t payload_len_max;
	uint64_t runs, acks, spilled, crashes, openings, unknowns;
	bool is_traced;
	char failure[400];
};

extern struct routes_world world;

#define FAIL(...) \
	do { \
		if (world.failure[0] == '\0') \
			snprintf(world.failure, sizeof(world.failure), __VA_ARGS__); \
	} while (0)
#define TRACE(...) (world.is_traced ? (void)printf(__VA_ARGS__) : (void)0)

/* routes_below -- a random number. */
uint64_t routes_below(uint64_t bound);

/* routes_make_world -- fresh rings. */
void routes_make_world(void);

/* routes_arm -- after that many operations of one memory, everything dies at once. routes_disarm -- not any more.
 * routes_die -- now. routes_is_dead -- has it? routes_end_or_cut -- of a memory that is dead: its processes have ended,
 * or its host has lost its power. */
void routes_arm(uint64_t operations);
void routes_disarm(void);
void routes_die(void *context);
bool routes_is_dead(void);
void routes_end_or_cut(const char *name, bool is_cut);

/* routes_advance -- the clock. */
void routes_advance(uint64_t ns);

/* routes_set_slowness, routes_set_away -- of a leg's ring, as farlog_fault_set_slowness and farlog_fault_set_away. */
void routes_set_slowness(unsigned i, unsigned of_256);
void routes_set_away(unsigned i, bool is_away);

/* routes_drain -- a leg's ring, whole. Nothing dies meanwhile: the drain's own crashes are tested elsewhere. */
void routes_drain(unsigned i);

#endif
