/* members_world.h -- the world of members.c: adversarial memories, the writers that have them together, and what was acknowledged to these. */
#ifndef FARLOG_TEST_MEMBERS_WORLD_H
#define FARLOG_TEST_MEMBERS_WORLD_H

#include <stdio.h>
#include <string.h>

#include "layout.h"
#include "record.h"
#include "region_members.h"

#define ACKED_COUNT_MAX 4096u
#define EPOCH_COUNT_MAX 256u
#define DEADLINE_NS 150000u
#define SLACK_NS 60000u /* looks at the clock between the last pause and the return */
#define PAYLOAD_LEN_MAX 600u
#define USED_NAME "used"

struct acked {
	uint64_t lsn;
	uint64_t id;
	uint32_t epoch;
};

/* Rings by the grants of one time. */
struct grant {
	char uri[512];
	uint32_t epoch; /* 0 = there is none */
};

struct side {
	farlog_writer *writer;
	bool is_fenced; /* by so many that it must get no acknowledgement any more */
};

struct members_world {
	uint64_t random;
	unsigned count;
	unsigned needed;
	char names[MEMBER_COUNT_MAX][24];
	char uris[MEMBER_COUNT_MAX][32];
	char uri[512];
	bool is_away[MEMBER_COUNT_MAX];
	bool is_remote[MEMBER_COUNT_MAX];
	bool is_replaced; /* one of them has been lost, and made anew in its place */
	bool is_swapping; /* rings are put in the place of others */
	unsigned swap_count;
	unsigned swapped;  /* the member of the last one */
	struct grant late; /* given before that */
	struct farlog_ring_config config;
	struct side now;
	struct side former;
	struct acked acked[ACKED_COUNT_MAX];
	unsigned acked_count;
	uint32_t epochs[EPOCH_COUNT_MAX]; /* that were opened */
	unsigned epoch_count;
	uint32_t granted;
	struct record_cursor drained;
	uint64_t next_id;
	uint64_t acks, opens, takeovers, unknowns, joins, swaps, taken, runs;
	bool is_traced;
	char failure[400];
};

extern struct members_world world;

#define FAIL(...)                                                                                     \
	do {                                                                                          \
		if (world.failure[0] == '\0')                                                         \
			snprintf(world.failure, sizeof(world.failure), __VA_ARGS__);                  \
	} while (0)
#define TRACE(...) (world.is_traced ? (void)printf(__VA_ARGS__) : (void)0)

/* See members_world.c. */
uint64_t below(uint64_t bound);
void mend_all(void);
void strike(void *context);
void strike_later(void);
void take_away(unsigned i);
void bring_back(unsigned i);
void cut_power(unsigned i);
void append(struct side *side);
void tend(struct side *side);
bool open_side(struct side *side, const char *uri, uint32_t epoch);
void bury(struct side *side);
void take_over(void);
void reopen(void);
bool fence(uint32_t epoch);
const char *name_known(const struct farlog_writer *writer, unsigned i);
bool is_new(unsigned i);
void name_all(void);
void make_ring(const char *uri, const char *name, bool is_remote);

/* members_replace.c */
void change(void);
void play_replacement(void);

/* members.c -- some of what is acknowledged goes to the store; then some of the heads. */
void drain(void);

#endif
