/* route/step.h -- the inside of one call that appends to a route: its records are written in groups, and each group is
 * waited for as a whole.
 *
 * Within a group all records of a leg go one way, straight on or by the spill: so a leg that answers late leaves one
 * run of records behind, which goes to the spill in their order, before any record that comes later. For that the spill
 * has to have room for the whole run before the second record of it is written. */
#ifndef FARLOG_ROUTE_STEP_H
#define FARLOG_ROUTE_STEP_H

#include "route/route.h"

#define ROUTE_GROUP_COUNT 256u
#define ROUTE_GROUP_ENDS FARLOG_NOT_YET /* the record can be taken only when those before it have been waited for */

enum route_way {
	ROUTE_WAY_DIRECT = 0,
	ROUTE_WAY_SPILL = 1, /* by way of the spill, as the records before it */
	ROUTE_WAY_TURN = 2,  /* it is the first that goes there */
};

/* What a group has on one required leg. */
struct route_run {
	uint8_t way;          /* enum route_way */
	bool is_begun;        /* one record at least has been written by it */
	int result;           /* of waiting for the last one: OK, UNKNOWN, FENCED */
	uint64_t end_lsn;     /* of the last one, in the leg's ring or its spill */
	uint64_t spill_bytes; /* that those which went straight on would take in the spill */
};

/* One call, on its caller's stack. */
struct route_step {
	struct farlog_route *route;
	const struct farlog_entry *entries;
	const uint32_t *criticalities; /* NULL = 0 of each */
	struct farlog_route_position *positions;
	size_t count;
	size_t first; /* the group is [first, end) */
	size_t end;   /* and the one that is asked about */
	uint64_t start_ticks;
	uint64_t start_ns;    /* of the call. 0 = not looked at yet */
	uint64_t group_ns;    /* of the group. 0 = not looked at yet */
	uint64_t deadline_ns; /* 0 = each leg's own */
	bool is_torn;         /* one leg has the record before `end`, another one refused it: the group ends */
	struct route_run runs[FARLOG_ROUTE_LEG_COUNT_MAX];
};

/* route_until -- when a leg is no longer waited for. */
uint64_t route_until(struct route_step *step, unsigned leg);

/* route_select -- the legs that take the record at `end`. False: none does. */
bool route_select(struct route_step *step);

/* route_find_room -- until all required legs can take the record at `end`, or one refuses it, which is counted.
 * ROUTE_GROUP_ENDS: it begins the next group. */
int route_find_room(struct route_step *step) FARLOG_MUST_CHECK;

/* route_put_into_spill -- the record `index`; with is_first its place in the leg's ring, from which on that may have
 * what is in the spill, is said there before. The turn is given away by the caller. OK; IO: nothing was put there. */
int route_put_into_spill(
	struct route_step *step, unsigned leg, size_t index, bool is_first, uint64_t far_seq) FARLOG_MUST_CHECK;

/* route_start_flush -- of what a leg was given straight on. */
void route_start_flush(struct route_step *step, unsigned leg);

/* route_ask_writer -- would it take the record now? OK, FULL, FENCED, TOO_LARGE, INVALID, CLOSED. */
int route_ask_writer(struct farlog_writer *writer, const struct farlog_entry *entry) FARLOG_MUST_CHECK;

/* route_await -- all that the group has written, and the results of its records. */
void route_await(struct route_step *step);

#endif
