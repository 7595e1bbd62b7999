/* bench_far.h -- the other side of the far cases: a process that serves one ring, and one that is the far end of a
 * ping-pong. */
#ifndef FARLOG_BENCH_FAR_H
#define FARLOG_BENCH_FAR_H

#include <sys/types.h>

#include "bench.h"

#define FAR_EPOCH_FIRST 2u
#define FAR_EPOCH_LAST 60u /* a writer each, with a token of its own */

struct other {
	pid_t target;
	pid_t echo;
	int socket;    /* of the ping-pong */
	char uri[160]; /* of the ring */
};

/* far_start -- false: libfabric is not there, which has been said. */
bool far_start(struct other *other, const char *region_uri);
void far_end(struct other *other);

/* far_token -- of the writer of an epoch; of epoch 0 the drain's, of 1 a reader's. */
void far_token(uint32_t epoch, uint8_t token[FARLOG_TOKEN_LEN]);

/* Cases of bench_far_drain.c. */
void bench_far_drain(void);
void bench_far_open(void);

#endif
