/* adversary/hosts.h -- the hosts of adversarial blocks: who is registered, and who holds the reservation, as a target
 * keeps it. */
#ifndef FARLOG_BLOCK_FAULT_HOSTS_H
#define FARLOG_BLOCK_FAULT_HOSTS_H

#include "blocks/block.h"

#define FAULT_HOST_COUNT 4

struct fault_hosts {
	bool has_reservations;
	uint64_t keys[FAULT_HOST_COUNT]; /* 0 = not registered */
	int holder;                      /* one above the host's number; 0 = nobody */
};

#define FAULT_LOCK_COUNT 64

/* The locks of all hosts, each of which sees its own. */
struct fault_locks {
	struct {
		const void *holder; /* NULL = free */
		int host;
		enum region_role role;
		uint64_t ring_off;
	} taken[FAULT_LOCK_COUNT];
};

/* fault_locks_take -- OK or HELD. fault_locks_is_taken -- by anybody of that host. fault_locks_has_parts -- is a ring
 * of a directory in use there? fault_locks_give -- one role,
 * or with REGION_ROLE_READER whatever the holder has. */
int fault_locks_take(struct fault_locks *locks, const void *holder, int host, uint64_t ring_off,
	enum region_role role) FARLOG_MUST_CHECK;
bool fault_locks_is_taken(const struct fault_locks *locks, int host, uint64_t ring_off, enum region_role role);
bool fault_locks_has_parts(const struct fault_locks *locks, int host);
void fault_locks_give(struct fault_locks *locks, const void *holder, enum region_role role);

extern bool fault_hosts_next_has_reservations;
extern int fault_hosts_next;
extern uint64_t fault_hosts_next_rest_ns;

/* fault_hosts_forget -- the target has lost its power. */
void fault_hosts_forget(struct fault_hosts *hosts);

static inline bool fault_host_may_write(const struct fault_hosts *hosts, int host)
{
	return hosts->holder == 0 || hosts->keys[host] != 0;
}

/* fault_hosts_reserve -- block_ops.reserve, of that host. *preempted: the host that was shut out by it, -1 = none. */
int fault_hosts_reserve(struct fault_hosts *hosts, int host, enum reserve_verb verb, uint64_t key, uint64_t other,
	struct reserve_view *view, int *preempted) FARLOG_MUST_CHECK;

#endif
