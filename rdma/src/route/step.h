/* route/step.h -- one call that appends to a route: its records are written in groups, and each group is waited for as
 * a whole.
 *
 * Within a group all records of a leg take one path, direct or by the spill. So a leg that answers late leaves one run
 * of unconfirmed records, which goes to the spill in order, before any later record. For that the spill must have space
 * for the whole run before the second record of the run is written. */
#ifndef FARLOG_ROUTE_STEP_H
#define FARLOG_ROUTE_STEP_H

#include "route/route.h"

#define ROUTE_GROUP_COUNT 256u
#define ROUTE_GROUP_ENDS FARLOG_NOT_YET /* the record has to wait until those before it are confirmed */

enum route_path {
	ROUTE_PATH_DIRECT = 0,
	ROUTE_PATH_SPILL = 1,       /* the spill, as the records before it */
	ROUTE_PATH_BEGIN_SPILL = 2, /* the spill, as the first record there */
};

/* The records of a group on one required leg. */
struct route_run {
	uint8_t path;         /* enum route_path */
	bool is_begun;        /* one record at least has been written */
	int result;           /* of waiting for the last record: OK, UNKNOWN, FENCED */
	uint64_t end_lsn;     /* of the last record, in the leg's ring or its spill */
	uint64_t spill_bytes; /* what the records that were appended directly would take in the spill */
};

/* One call, on its caller's stack. */
struct route_step {
	struct farlog_route *route;
	const struct farlog_entry *entries;
	const uint32_t *criticalities; /* NULL = 0 of each */
	struct farlog_route_position *positions;
	size_t count;
	size_t first; /* the group is [first, end) */
	size_t end;   /* the record at `end` is the one being checked */
	uint64_t start_ticks;
	uint64_t start_ns;    /* of the call. 0 = not read yet */
	uint64_t group_ns;    /* of the group. 0 = not read yet */
	uint64_t deadline_ns; /* 0 = each leg's own */
	bool is_partial;      /* the record before `end` is on one leg, and another leg rejected it: the group ends */
	struct route_run runs[FARLOG_ROUTE_LEG_COUNT_MAX];
};

/* route_until -- the monotonic time until which a leg is waited for. */
uint64_t route_until(struct route_step *step, unsigned leg);

/* route_select -- find the legs of the record at `end`, by class and criticality. False: there are none. */
bool route_select(struct route_step *step);

/* route_wait_space -- wait until all required legs have space for the record at `end`. Else the result of the leg that
 * rejects it, which is counted. ROUTE_GROUP_ENDS: the record begins the next group. */
int route_wait_space(struct route_step *step) FARLOG_MUST_CHECK;

/* route_put_into_spill -- the record `index`. With is_first, store first in the spill's head from which seq on its
 * records may be in the leg's ring; afterwards the caller calls route_pass_ring. OK; IO: nothing was put there. */
int route_put_into_spill(
	struct route_step *step, unsigned leg, size_t index, bool is_first, uint64_t ring_seq) FARLOG_MUST_CHECK;

/* route_start_flush -- start to persist what was appended directly to a leg. */
void route_start_flush(struct route_step *step, unsigned leg);

/* route_check_writer -- can the ring take the record now? OK, FULL, FENCED, TOO_LARGE, INVALID, CLOSED. */
int route_check_writer(struct farlog_writer *writer, const struct farlog_entry *entry) FARLOG_MUST_CHECK;

/* route_await -- wait for all records of the group and fill in their results. Blocks until the deadlines of the
 * legs. */
void route_await(struct route_step *step);

#endif
