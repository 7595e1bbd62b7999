/* takeover.h -- libfarlog: what makes it short, the time from a writer's end to the next one's first acknowledgement.
 * For who stands by, and for the daemon that has a target. On top of farlog.h. */
#ifndef FARLOG_TAKEOVER_H
#define FARLOG_TAKEOVER_H

#include "farlog.h"

#ifdef __cplusplus
extern "C" {
#endif

/* farlog_prepare -- do now what opening this URI takes and needs no grant: load the libraries of its transport, and let
 * them look for their devices. The first ofi: URI that a process opens takes some 0.3 s for that; who stands by calls
 * this while it waits. Nobody is connected to, nothing is locked. Of mem: and nvme: there is nothing to do; of members:
 * all of them are prepared. Any thread, any number of times; reads libraries from disk. OK; INVALID: no such URI;
 * UNSUPPORTED: a library is missing, as opening it would say. */
FARLOG_API int farlog_prepare(const char *uri, struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_target_await_writers -- wait until a writer has been let in or has gone, and nothing of it can land any more:
 * until that has happened another number of times than `seen`, of all rings. At most timeout_ns; blocks for nothing
 * else. Returns how often it has: what to give next; 0 at first. Any thread, not while the target is being closed. */
FARLOG_API uint64_t farlog_target_await_writers(farlog_target *target, uint64_t seen, uint64_t timeout_ns);

/* How far looks at a ring have come. All zero: none yet. What is in it is of no use to anybody else. */
struct farlog_ring_mark {
	uint8_t ring_uuid[16];
	uint64_t generation; /* of the superblock: with another one the log may be another one */
	uint64_t lsn;
	uint64_t seq;
	uint64_t newest_ts_ns;
	uint32_t epoch; /* of the record before lsn */
	uint32_t reserved;
};

/* farlog_ring_look -- farlog_ring_inspect for who looks again and again: records that an earlier look by the same mark
 * has read are not read once more, as long as it is the same ring and no other writer has opened it. So it does not
 * find out when the media lost one of those meanwhile; whoever builds on them reads all, as farlog_ring_inspect does.
 * One thread a mark; else, and in results and errors, as farlog_ring_inspect. */
FARLOG_API int farlog_ring_look(const char *uri, struct farlog_ring_mark *mark, struct farlog_ring_status *status,
	struct farlog_error *error) FARLOG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
