/* former.h -- libfarlog at the target of a namespace without reservations: who wrote a ring last, and that this one's
 * host is out. On top of farlog.h.
 *
 * Between hosts nothing but the target keeps a former writer out of such a namespace: it takes that host out of those
 * that may connect, ends its controllers, and says in the ring that it did. Only then is a writer of another host let
 * on. Of a ring in memory, or on a device of one host alone, there is no such host: `host` is 0. All of it is cold, and
 * reads and writes the ring's header past the page cache. Any thread. */
#ifndef FARLOG_FORMER_H
#define FARLOG_FORMER_H

#include "farlog.h"

#ifdef __cplusplus
extern "C" {
#endif

struct farlog_former {
	/* as farlog_host_number, of where the last writer was opened; 0 = no device that several hosts reach */
	uint64_t host;
	uint32_t epoch;     /* its; 0 = nobody has written yet */
	uint32_t epoch_min; /* the fence: above epoch, somebody wants it out */
	uint32_t is_closed; /* 1: the ring says that it writes no more */
	char writer_id[FARLOG_WRITER_ID_LEN];
};

/* farlog_host_number -- of a host by the name (NQN) that its target knows it by; never 0. */
FARLOG_API uint64_t farlog_host_number(const char *host_nqn);

/* farlog_ring_former -- beside all users of the ring. Errors: NOT_FOUND, NOT_A_RING, CORRUPT, IO. Blocks for the
 * media. */
FARLOG_API int farlog_ring_former(
	const char *uri, struct farlog_former *former, struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_ring_former_out -- say, durably, that the writer of this epoch, which was opened on this host, writes no more:
 * the fence is above it, and it counts as closed. The caller is the target, and has made sure of it: said of a host
 * whose commands still reach the device, it loses records. Changes nothing where the ring says so already. Errors: HELD
 * (its last writer is another one, or somebody is fencing it), NOT_FOUND, NOT_A_RING, CORRUPT, UNSUPPORTED (not on
 * blocks), IO. Blocks for the media. */
FARLOG_API int farlog_ring_former_out(
	const char *uri, uint64_t host, uint32_t epoch, struct farlog_error *error) FARLOG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
