/* refusals.h -- libfarlog: whom a target did not let in. For the daemon that has one; on top of farlog.h. */
#ifndef FARLOG_REFUSALS_H
#define FARLOG_REFUSALS_H

#include "farlog.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FARLOG_TARGET_REFUSALS_KEPT 64

/* A connection that was not let in. */
struct farlog_target_refusal {
	uint64_t sequence;                 /* 1, 2, 3 ... since the target was opened */
	int32_t result;                    /* enum farlog_result: what the client was told, and as text below */
	uint32_t is_unauthenticated;       /* 1: by no grant that is known here, so that no ring's counters have it */
	char peer[64];                     /* "10.0.0.7:51234" */
	char ring[FARLOG_STREAM_NAME_LEN]; /* that was asked for; "" = none */
	char text[120];
};

/* farlog_target_refusals_read -- those with a sequence above `after`, the oldest first, at most `count_max`; of more
 * than the last FARLOG_TARGET_REFUSALS_KEPT the older ones are gone. Returns how many. *unauthenticated_count: of all,
 * those by no grant that is known here. */
FARLOG_API size_t farlog_target_refusals_read(farlog_target *target, uint64_t after,
	struct farlog_target_refusal *refusals, size_t count_max, uint64_t *unauthenticated_count);

/* Why a connection that has not brought a connection request yet was closed. */
enum farlog_unauthenticated_reason {
	FARLOG_UNAUTHENTICATED_ADDRESS = 0,     /* too many of one address */
	FARLOG_UNAUTHENTICATED_ALL = 1,         /* too many in all */
	FARLOG_UNAUTHENTICATED_DESCRIPTORS = 2, /* what file descriptors are left is kept for clients with a grant */
	FARLOG_UNAUTHENTICATED_LATE = 3,        /* none for too long */
	FARLOG_UNAUTHENTICATED_REASON_COUNT = 4,
};

struct farlog_target_unauthenticated {
	uint64_t open_count;                                        /* now */
	uint64_t closed_count[FARLOG_UNAUTHENTICATED_REASON_COUNT]; /* each of them is a refusal, too */
};

/* farlog_target_unauthenticated_read -- connections to an ofi: port that have shown no grant yet. A verbs: port has
 * none: a connection comes with its request. */
FARLOG_API void farlog_target_unauthenticated_read(farlog_target *target, struct farlog_target_unauthenticated *counts);

#ifdef __cplusplus
}
#endif
#endif
