/* conformance.h -- what the parts of the conformance suite share: the ring under test, how one gets into it, and the
 * cases. */
#ifndef FARLOG_TEST_CONFORMANCE_H
#define FARLOG_TEST_CONFORMANCE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "farlog/farlog.h"

#define SIZE (0x3000u + (256u << 10))
#define RECORD_LEN_MAX 8192u
#define EXIT_SKIP 77
#define PART_ARGC 8
#define WAIT_NS 30000000000ull /* a deadline that is there so that a hang shows */
#define URI_LEN 400

/* A ring, and how it is come to. */
struct place {
	char uri[URI_LEN];        /* as its clients know it */
	char region_uri[URI_LEN]; /* as its own host does; the same where that is here */
	char name[32];            /* at its target; "" = it is here */
};

extern struct place here; /* the ring under test */
extern uint32_t level;    /* that it gives */
extern unsigned failed;

#define CHECK(claim) \
	do { \
		if (!(claim)) { \
			printf("conformance: %s: %s:%d: %s\n", here.uri, __FILE__, __LINE__, #claim); \
			failed++; \
		} \
	} while (0)

static inline bool is_far(const struct place *place)
{
	return place->name[0] != '\0';
}

/* ---------------------------------------------------------------- entry.c: who is let in */

/* entry_open -- a target in this process, which listens there. OK, or why not, in *error. */
int entry_open(const char *listen_uri, struct farlog_error *error);
void entry_close(void);
/* entry_attest -- that a READ flushes what lies behind this path: no power is cut here. */
bool entry_attest(const char *region_uri);
/* entry_attest_commit -- that the tcp provider of libfabric flushes there before it says so. */
bool entry_attest_commit(const char *region_uri);

/* entry_serve -- the ring at place->region_uri, by the target, as place->name; place->uri is made of that and the
 * options. One that it served by that name before is forgotten first. */
bool entry_serve(struct place *place, const char *options);

/* entry_grant -- a writer's is of the first epoch that the ring takes. Near: all zero. */
struct farlog_grant entry_grant(const struct place *place, uint32_t role);

/* entry_take_over -- a writer's grant; far, whoever wrote before is fenced first, as the control plane does it. */
struct farlog_grant entry_take_over(const struct place *place);

/* entry_fence -- at this epoch, by whoever may do it. */
int entry_fence(const struct place *place, uint32_t epoch_min, struct farlog_error *error);

/* entry_token -- what a configuration takes: NULL where no grant is needed. */
static inline const uint8_t *entry_token(const struct place *place, const struct farlog_grant *grant)
{
	return is_far(place) ? grant->token : NULL;
}

/* entry_spawn -- this program again, in a process of its own that dies with this one: "PART URI LEVEL EPOCH TOKEN
 * DRAIN-TOKEN", and the bytes of `shared`, which is an anonymous file, in its place. entry_part runs it there. */
pid_t entry_spawn(const char *part, const struct place *place, const struct farlog_grant *writer,
	const struct farlog_grant *drain, int shared);
int entry_part(char **argv);

/* entry_share -- memory that a process which is spawned sees, too. */
void *entry_share(size_t len, int *shared);

/* ---------------------------------------------------------------- cases.c */

/* run_cases -- all of them, on the ring `here`, which is formatted first. options: of the URI, of a far ring. */
void run_cases(const char *options);

void check_laps(void);
farlog_writer *open_writer(const struct place *place, const struct farlog_grant *grant, uint32_t asked);
farlog_reader *open_drain(const struct place *place, const struct farlog_grant *grant);

/* next_writer, next_drain -- of the ring under test, by a new grant. NULL: reported. */
farlog_writer *next_writer(void);
farlog_reader *next_drain(void);

/* ---------------------------------------------------------------- kill.c */

void check_kill(void);
/* killed_entry -- what the record of this sequence number holds: of any length, some of more than a page. The bytes
 * last for a batch. */
struct farlog_entry killed_entry(uint64_t seq);
/* drain_killed -- all there is now: each is what its number says, none is missing, none is there twice. */
void drain_killed(farlog_reader *drain, uint64_t *next_seq);
/* append_for_ever -- in a process of its own, until it is killed. */
int append_for_ever(const struct place *place, const struct farlog_grant *grant, void *shared);

/* ---------------------------------------------------------------- packed.c */

/* run_packed -- run_all on a ring in a region of /dev/shm while another one of that region is in use, by the target or
 * here: no byte outside of the two changes. */
void run_packed(const char *kind, bool is_by_target, void (*run_all)(const char *region_path));
/* use_neighbour -- the other ring's process. */
int use_neighbour(
	const struct place *place, const struct farlog_grant *writer, const struct farlog_grant *drain, void *shared);

#endif
