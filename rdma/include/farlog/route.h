/* route.h -- libfarlog: one append to several streams, chosen by class and criticality. On top of farlog.h;
 * docs/explanation/routes.md.
 *
 * A route has legs. A leg is a stream's ring (or rings: members) with a selection, a level, and what becomes of a
 * record that the ring cannot take.
 *   required   decides the result: farlog_route_append returns when each required leg that takes the record has it at
 *              the leg's level, or when that is refused or not known. Required legs are written side by side and waited
 *              for together.
 *   optional   is never waited for. A thread of the leg's own carries what was offered to its ring; what it cannot
 *              carry is counted, and a GAP record says so.
 * Policies of a leg:
 *   FAIL   required legs: the result says so. Nothing stands between caller and ring.
 *   SPILL  a ring on this host keeps what the leg's ring cannot take, and the leg's thread appends it there later, in
 *          order, none twice and none lost, also when this process dies between: who opens a route with that spill
 *          again goes on. A required leg spills when its deadline has passed or its ring is full, and from then on
 *          everything until all of it has been carried. An optional leg's records all go by way of the spill. A full
 *          spill: FULL of a required leg; an optional one drops.
 *   DROP   optional legs: records wait in memory of this process, buffer_bytes of them. One for which there is no space
 *          is dropped.
 * What is dropped is counted, and before the next record that the leg takes comes a record with the flag GAP whose
 * payload is a struct farlog_gap.
 *
 * Records that a leg's thread appends bear the time of that append. Between two records of one route each leg that
 * takes both has them in this order. A leg's ring has no other writer while the route is used: what one wrote between a
 * crash of this route's process and its return makes it unknown which of the spilled records the ring had then; they
 * are appended again, and doubt_count counts them. */
#ifndef FARLOG_ROUTE_H
#define FARLOG_ROUTE_H

#include "farlog.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FARLOG_ROUTE_LEG_COUNT_MAX 16
#define FARLOG_ROUTE_NAME_LEN FARLOG_STREAM_NAME_LEN /* of a leg, with the 0 at its end */

enum farlog_route_policy {
	FARLOG_ROUTE_FAIL = 0, /* of an optional leg: DROP */
	FARLOG_ROUTE_SPILL = 1,
	FARLOG_ROUTE_DROP = 2,
};

struct farlog_class_range {
	uint16_t first;
	uint16_t last; /* included */
};

struct farlog_route_leg {
	const char *name; /* of its own in the route: for errors and statistics */
	const char *uri;  /* of its ring: as farlog_writer_open takes it, also "members:..." and "farlog://stream" */
	/* in place of uri, of a required leg with FAIL: an opened one, which is the route's when farlog_route_open
	 * succeeds */
	farlog_writer *writer;
	const struct farlog_class_range *classes;
	uint32_t class_count;     /* 0 = every class */
	uint32_t criticality_min; /* records of lower criticality pass it by; 0 = none do */
	uint32_t is_required;
	uint32_t policy; /* enum farlog_route_policy */
	/* of SPILL: a ring on this host, "mem:..."; made, with buffer_bytes, where there is none. It bears the leg's
	 * name */
	const char *spill_uri;
	uint32_t spill_level; /* of SPILL: enum farlog_level, 0 = persistent */
	uint32_t reserved;
	uint64_t buffer_bytes; /* of SPILL: of a new ring, 0 = 64 MiB; of DROP: 0 = 4 MiB */
	/* of its ring; deadline_ns: of this leg. A spilling required leg should have a shorter one than the appends */
	struct farlog_writer_config config;
};

struct farlog_route_config {
	const char *name;
	const struct farlog_route_leg *legs;
	uint32_t leg_count;
	uint32_t reserved;
};

typedef struct farlog_route farlog_route;

/* farlog_route_open -- open all legs. Required ones with FAIL have to open, else none is; a required one with SPILL is
 * given one try, and spills until its ring can be opened; optional ones are opened by their threads. Nothing of
 * `config` is kept. Errors, whose text names route and leg: INVALID (what contradicts this page), LEVEL (also a spill
 * of a required leg that gives less than the leg's level), NOT_A_RING (the spill is another leg's), and as
 * farlog_writer_open. Blocks as farlog_writer_open for all required legs, one after the other. */
FARLOG_API int farlog_route_open(
	const struct farlog_route_config *config, farlog_route **route, struct farlog_error *error) FARLOG_MUST_CHECK;

/* What one leg says of a record. */
struct farlog_route_result {
	/* in its ring; where is_buffered is 1, in its spill or memory, with the level that was reached there */
	struct farlog_position position;
	int32_t result; /* enum farlog_result */
	/* 1: it is in the spill, or in the memory of an optional leg, and will be carried to the ring */
	uint32_t is_buffered;
};

struct farlog_route_position {
	/* enum farlog_level: the lowest that a required leg reached; NONE: no required leg takes this record */
	uint32_t level;
	uint32_t required;                                           /* bit i: leg i is required and takes this record */
	uint32_t optional;                                           /* bit i: leg i is optional and takes this record */
	uint32_t dropped;                                            /* bit i: leg i is optional and has dropped it */
	struct farlog_route_result legs[FARLOG_ROUTE_LEG_COUNT_MAX]; /* only of legs whose bit is set */
};

/* farlog_route_append -- one record to every leg that takes its class and criticality. deadline_ns: from now, for all
 * required legs; 0 = each leg's own.
 *
 *   result                    what is so
 *   OK                        every required leg that takes it has it at its level, or in its spill at the spill's
 *   NOT_FOUND                 no leg takes it: written nowhere
 *   TOO_LARGE INVALID CLOSED  a required leg refuses it: written nowhere. CLOSED: that leg's region has failed, or the
 *                             route is closed
 *   FENCED                    a required leg has lost its stream: written nowhere; legs[i].position.epoch is the epoch
 *                             that fenced
 *   FULL                      a required leg (and its spill) has no space, by the deadline: written nowhere
 *   UNKNOWN                   at least one required leg may have it, and not all are known to: legs[i].result says OK,
 *                             UNKNOWN, or FENCED (not in that leg). Then farlog_route_resolve
 *
 * Of several refusals the first of this order counts: CLOSED, FENCED, TOO_LARGE, INVALID, FULL. "Nowhere" includes the
 * optional legs. One thread at a time; allocates nothing, takes no lock. Blocks until the deadline at most, and where a
 * required leg spills also for the spill's media. */
FARLOG_API int farlog_route_append(farlog_route *route, const struct farlog_entry *entry, uint32_t criticality,
	uint64_t deadline_ns, struct farlog_route_position *position) FARLOG_MUST_CHECK;

/* farlog_route_append_batch -- the same for `count` records, in their order. They are written in groups of at most 256;
 * a group is one flush for each leg, and is waited for as a whole, all its required legs together. criticalities: of
 * each record; NULL = 0 of all. deadline_ns: from now, for all of them; 0 = each leg's own, for each group. A record
 * that no leg takes is passed over: both its masks are 0, and it counts as acknowledged.
 *
 * positions[0..*done) are acknowledged, each as by farlog_route_append. On a result other than OK nothing behind the
 * group that it befell was written. UNKNOWN: positions[*done..*submitted) are those of which a leg may have some;
 * farlog_route_resolve looks at one of them, and says OK at once of one that all its legs have. Any other result:
 * entries[*submitted] was refused and is nowhere, nor is any behind it, and *done is *submitted. positions has space
 * for `count`. done, submitted: never NULL. Threads, blocking: as farlog_route_append. */
FARLOG_API int farlog_route_append_batch(farlog_route *route, const struct farlog_entry *entries,
	const uint32_t *criticalities, size_t count, uint64_t deadline_ns, struct farlog_route_position *positions,
	size_t *done, size_t *submitted) FARLOG_MUST_CHECK;

/* farlog_route_resolve -- after UNKNOWN: look again at the required legs that were not known, as farlog_resolve, and
 * renew *position. OK: all have it now. NOT_FOUND: a leg has it not and never will; others may have it, which
 * legs[i].result says: appended again it is twice there. UNKNOWN: still not known. Blocks until the deadline. */
FARLOG_API int farlog_route_resolve(
	farlog_route *route, struct farlog_route_position *position, uint64_t deadline_ns) FARLOG_MUST_CHECK;

/* farlog_route_catch_up -- wait until the rings of all legs have everything that was offered to them. OK; UNKNOWN: not
 * by the deadline. */
FARLOG_API int farlog_route_catch_up(farlog_route *route, uint64_t deadline_ns) FARLOG_MUST_CHECK;

enum farlog_leg_state {
	FARLOG_LEG_DIRECT = 1,   /* required: records go straight to its ring */
	FARLOG_LEG_CARRYING = 2, /* its thread has the ring open and carries records to it */
	FARLOG_LEG_AWAY = 3,     /* its ring cannot be opened; it is tried again: text says why */
	FARLOG_LEG_FENCED = 4,   /* another writer has its stream: nothing more is carried by this route */
};

#define FARLOG_LEG_COUNTER_TABLE(X) \
	X(offered_count, "counter", "Records that the leg was to take.") \
	X(acked_count, "counter", "Records acknowledged by the leg's ring, carried ones too.") \
	X(unknown_count, "counter", "Records whose outcome in the leg's ring was unknown at their deadline.") \
	X(spilled_count, "counter", "Records that were put into the spill.") \
	X(carried_count, "counter", "Records carried from spill or memory to the ring, by this process.") \
	X(dropped_count, "counter", "Records dropped.") \
	X(gap_count, "counter", "GAP records offered to the leg for dropped records.") \
	X(doubt_count, "counter", "Records carried that the ring may have had already.") \
	X(reopen_count, "counter", "Times the leg's ring was opened again.") \
	X(behind_bytes, "gauge", "Bytes in spill or memory that the ring does not have yet.")

struct farlog_leg_stats {
	uint32_t state; /* enum farlog_leg_state */
	uint32_t is_required;
#define FARLOG_LEG_COUNTER_FIELD(name, kind, help) uint64_t name;
	FARLOG_LEG_COUNTER_TABLE(FARLOG_LEG_COUNTER_FIELD)
#undef FARLOG_LEG_COUNTER_FIELD
	char name[FARLOG_ROUTE_NAME_LEN];
	char text[200]; /* what went wrong last with the leg's ring, "" = nothing */
};

/* farlog_route_stats -- of leg `leg`; INVALID: there is none. From any thread until farlog_route_close. */
FARLOG_API int farlog_route_stats(
	const farlog_route *route, uint32_t leg, struct farlog_leg_stats *stats) FARLOG_MUST_CHECK;

/* farlog_route_close -- take no more, give the legs until deadline_ns from now to catch up (0 = 1 s), close them. What
 * is in a spill stays there for the next route that has it; what is in memory of a DROP leg is lost then. OK; UNKNOWN:
 * something was left behind in a spill or lost. Safe on NULL. Blocks for that, and as farlog_writer_close; where a
 * thread is opening a ring, for that as well. */
FARLOG_API int farlog_route_close(farlog_route *route, uint64_t deadline_ns);

enum farlog_gap_reason {
	/* the leg's spill or memory was full: its ring was away, or slower than what was offered */
	FARLOG_GAP_FULL = 1,
	FARLOG_GAP_TOO_LARGE = 2, /* the record is longer than its ring's record_len_max; from_number and to_number are 0 */
	/* a drain took the record in whose place this is for forged; of the rest only count is not 0; behind it, as far as
	 * it fits, the cause as text; where the structure does not fit the payload is cut off */
	FARLOG_GAP_REFUSED = 3,
};

/* The payload of a GAP record, little endian, 56 bytes. Records of one leg are counted from 1 as they are offered to
 * it, since its route was opened. */
struct farlog_gap {
	uint32_t reason; /* enum farlog_gap_reason */
	uint32_t reserved;
	uint64_t count;       /* records that are missing here */
	uint64_t from_number; /* the first of them */
	uint64_t to_number;   /* the last one */
	uint64_t from_ts_ns;  /* UTC, when the first was offered */
	uint64_t to_ts_ns;
	uint64_t dropped_count; /* of this leg in all, since its route was opened */
};

#ifdef __cplusplus
}
#endif
#endif
