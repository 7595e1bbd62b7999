/* members_world.h -- the world of members.c: adversarial memories, the writers that have them together, and what was
 * acknowledged to these. */
#ifndef FARLOG_TEST_MEMBERS_WORLD_H
#define FARLOG_TEST_MEMBERS_WORLD_H

#include <stdio.h>
#include <string.h>

#include "ring/layout.h"
#include "ring/record.h"
#include "members/members.h"

#define ACKED_COUNT_MAX 4096u
#define STORED_COUNT_MAX 8192u
#define EPOCH_COUNT_MAX 256u
#define DEADLINE_NS 150000u
#define SLACK_NS 60000u /* looks at the clock between the last pause and the return */
#define PAYLOAD_LEN_MAX 600u
#define USED_NAME "used"
#define RECORD_ALIGN 64u

struct acked {
	uint64_t lsn;
	uint64_t id;
	uint32_t epoch;
	unsigned holders; /* bits of the members on which it was durable then */
};

/* A record that the drain has given out. */
struct stored {
	uint64_t lsn;
	uint64_t id; /* of a record of an application */
	uint32_t epoch;
	uint32_t crc32c;
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
	bool is_replaced; /* one of them has been lost, and made again in its place */
	unsigned replaced;
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
	struct stored stored[STORED_COUNT_MAX];
	unsigned stored_count;
	uint64_t stored_lsn;   /* where the store ends */
	farlog_reader *reader; /* of the drain; NULL: its process has ended */
	char drain_uri[512];   /* what it was told */
	uint64_t drain_ns;     /* the time of its host */
	bool is_drain_dead;
	/* nothing more happens to anybody: also not by what was to happen to a ring that has been replaced since */
	bool is_over;
	uint64_t next_id;
	uint64_t acks, opens, takeovers, unknowns, joins, swaps, taken, drain_opens, releases, stored_total, refusals,
		accepted, filled, runs;
	bool is_traced;
	char failure[400];
};

extern struct members_world world;

#define FAIL(...) \
	do { \
		if (world.failure[0] == '\0') \
			snprintf(world.failure, sizeof(world.failure), __VA_ARGS__); \
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
int open_calmly(struct side *side, const char *uri, uint32_t epoch, struct farlog_error *error);
void bury(struct side *side);
void take_over(void);
void reopen(void);
bool fence(uint32_t epoch);
const char *name_known(const struct farlog_writer *writer, unsigned i);
bool knows_epoch(unsigned i);
bool do_others_know(unsigned i);
bool is_new(unsigned i);
void name_all(void);
void make_ring(const char *uri, const char *name, bool is_remote);

/* members_replace.c */
void change(void);
void play_replacement(void);

/* members_drain.c */
void drain(void);
bool drain_all(uint64_t to_lsn);
void end_drain(void);
void check_stored(void);

#endif
