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

/* farlog_target_refusals_read -- those with a sequence above `after`, the oldest first, at most `room`; of more than
 * the last FARLOG_TARGET_REFUSALS_KEPT the older ones are gone. Returns how many.
 * *unauthenticated_count: of all, those by no grant that is known here. */
FARLOG_API size_t farlog_target_refusals_read(farlog_target *target, uint64_t after,
	struct farlog_target_refusal *refusals, size_t room, uint64_t *unauthenticated_count);

#ifdef __cplusplus
}
#endif
#endif
