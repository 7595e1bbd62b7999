/* region/role_lock.h -- exclusive locks for a ring's one writer and one drain: open file description locks (fcntl),
 * which end when the last descriptor of the open file is closed.
 *
 * The locked offsets are far beyond the end of any region: they are names, not bytes. Commands in flight keep the
 * open file in use: the lock of a process that died is held until its last command has completed. */
#ifndef FARLOG_ROLE_LOCK_H
#define FARLOG_ROLE_LOCK_H

#include <stdint.h>

#include "region/region.h"

#define ROLE_LOCKS_LEN 16 /* offsets that a ring has */

/* role_lock_off -- offset of a lock of the ring that begins at this block of the region. Block 0, the whole region, has
 * the highest offsets. */
static inline int64_t role_lock_off(uint64_t block, enum region_role role)
{
	return INT64_MAX - ROLE_LOCKS_LEN * (int64_t)(block + 1) + (int64_t)role;
}

/* role_lock_acquire -- try to lock. OK, HELD, or IO with errno. Does not wait. */
int role_lock_acquire(int fd, uint64_t block, enum region_role role) FARLOG_MUST_CHECK;
void role_lock_release(int fd, uint64_t block, enum region_role role);
/* role_lock_is_held -- by another open file: 1, 0, or IO with errno. */
int role_lock_is_held(int fd, uint64_t block, enum region_role role) FARLOG_MUST_CHECK;

/* role_lock_has_ring_locks -- does another open file hold a lock of any ring in this region of region_len bytes? 1, 0,
 * or IO with errno. */
int role_lock_has_ring_locks(int fd, uint64_t region_len) FARLOG_MUST_CHECK;

/* role_lock_release_all -- release every lock of this open file. */
void role_lock_release_all(int fd);

#endif
