/* region/role_lock.h -- who is a ring's one writer, its one drain: locks of the open file, which end when its last use
 * does.
 *
 * They lie far beyond the end of any region: they are names, not bytes. A descriptor that commands are still under way
 * on is in use: the lock of a process that died outlives it until the last of them has come back. */
#ifndef FARLOG_ROLE_LOCK_H
#define FARLOG_ROLE_LOCK_H

#include <stdint.h>

#include "region/region.h"

#define ROLE_LOCKS_LEN 16 /* names that a ring has */

/* role_lock_place -- of the ring that begins at this block of the region. The whole region's locks are the last; those
 * of a ring in it lie as far below as the ring lies in. */
static inline int64_t role_lock_place(uint64_t block, enum region_role role)
{
	return INT64_MAX - ROLE_LOCKS_LEN * (int64_t)(block + 1) + (int64_t)role;
}

/* role_lock_take -- OK, HELD or IO, with errno. */
int role_lock_take(int fd, uint64_t block, enum region_role role) FARLOG_MUST_CHECK;
void role_lock_give(int fd, uint64_t block, enum region_role role);
/* role_lock_is_taken -- by another one: 1, 0 or IO, with errno. */
int role_lock_is_taken(int fd, uint64_t block, enum region_role role) FARLOG_MUST_CHECK;

/* role_lock_has_parts -- does another one hold a lock of a ring in this region, of so many bytes? 1, 0 or IO, with
 * errno. */
int role_lock_has_parts(int fd, uint64_t region_len) FARLOG_MUST_CHECK;

/* role_lock_give_all -- whatever this open file has taken. */
void role_lock_give_all(int fd);

#endif
