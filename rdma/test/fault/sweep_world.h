/* sweep_world.h -- the rings that the sweep plays on, what was said of their records, and what must hold of them. */
#ifndef FARLOG_TEST_SWEEP_WORLD_H
#define FARLOG_TEST_SWEEP_WORLD_H

#include <stdbool.h>
#include <stdio.h>

#include "farlog/farlog.h"

#define RING_SIZE (256u << 10)
#define RECORDS 20u /* that a ring was left with */
#define APPENDS 6u  /* more, in a scenario */
#define DAMAGED_RECORD 8u
#define NUMBERS 64u /* records are numbered below this */
#define HANG_S 120u /* no deadline of the product is near it */
#define MEMBERS_MAX 2u

#define ONE 1u     /* of a region with one ring in a file */
#define MANY 2u    /* of a region with a directory */
#define MEMBERS 4u /* of a stream with members */
#define DEVICE 8u  /* of a ring that has all of a device, which is formatted but never removed */
#define SPARE 16u  /* of a stream that goes on when one of its members fails */
#define TARGET 32u /* of a ring that a target serves */
#define ROUTE 64u  /* of a ring that is the leg of a route */
#define NEAR (ONE | MANY | DEVICE)

/* What a ring is when a run begins. */
enum start {
	START_NONE,
	START_LEFT,
	START_DRAINED,
	START_DAMAGED, /* as it was left, and record DAMAGED_RECORD cannot be read */
	START_COUNT,
};

struct kind {
	const char *name;
	const char *scheme;  /* of the URI of each file */
	const char *options; /* behind its path */
	const char *dir;
	unsigned file_count; /* above 1: members */
	unsigned needed;     /* how many of them must have a record */
	unsigned of;         /* which scenarios */
	bool is_device;      /* it is there, blank, before a ring is made */
};

/* One run. */
struct run {
	const struct kind *kind;
	char paths[MEMBERS_MAX][128];
	char uris[MEMBERS_MAX][256];
	char uri[600];
	bool is_acked[NUMBERS];  /* OK was said of this record */
	bool is_absent[NUMBERS]; /* it was said not to be there */
	struct farlog_error error;
	char failure[700]; /* what is wrong; "" = nothing */
};

struct images {
	void *bytes[START_COUNT][MEMBERS_MAX];
	size_t lens[START_COUNT][MEMBERS_MAX];
	uint64_t lag_records; /* of a ring that was left */
	uint64_t damaged_lsn; /* of the record that cannot be read */
};

extern struct run run;
extern struct images images;
extern const struct farlog_writer_config sweep_writer;

#define FAIL(...) (snprintf(run.failure, sizeof(run.failure), __VA_ARGS__), (void)0)

/* append_one -- a record that is its number; an outcome that is not known is resolved. append_some -- by a writer of
 * its own. */
int append_one(farlog_writer *writer, uint64_t number);
int append_some(uint64_t first, unsigned count, bool is_closed);

/* drain_ring -- all of it, and release it. */
int drain_ring(uint64_t numbers[NUMBERS], unsigned *count);

/* judge_records -- what was acknowledged is there once and in order, and nothing that was said to be absent. first:
 * what was drained before. */
void judge_records(unsigned first_count, const uint64_t first[NUMBERS]);

/* The files of a kind: their names, what they hold when a run begins, and for the next runs. */
void name_files(const struct kind *kind);
void remove_files(void);
void put_files(enum start start);
void keep_files(enum start start);

/* damage_record -- of a ring that was left: one byte of a record in its file, of which the epoch that a writer has
 * begun behind it tells that it was acknowledged. */
int damage_record(void);

/* A scenario: what is done while a call fails, and what must hold then. */
struct scenario {
	const char *name;
	enum start start;
	int (*play)(void);
	void (*judge)(int result);
	unsigned of;
	int (*prepare)(void); /* before a call fails; NULL = nothing */
};

extern const struct scenario scenarios[]; /* up to one without a name */

int run_format(void);

/* sweep_target.c: a target that listens and serves a ring, one whose client comes, and one whose client is fenced. */
bool target_is_possible(void);
int make_target(void);
int make_remote(void);
int run_listen(void);
int run_remote(void);
int run_remote_living(void);
int run_remote_fence(void);
void judge_listen(int result);
void judge_remote(int result);
void judge_remote_fence(int result);

/* sweep_route.c: a route whose leg's ring is there, one whose leg spills, and one that carries what was spilled. */
int make_route(void);
int make_held(void);
int make_spilled(void);
int run_route(void);
int run_spill(void);
int run_carry(void);
void judge_route(int result);

#endif
