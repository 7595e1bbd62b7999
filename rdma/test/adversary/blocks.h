/* adversary/blocks.h -- adversarial blocks, for the crash tests: the sibling of adversary/memory.h below a real nvme
 * region.
 *
 * A command that has been sent lands LBA by LBA at any moment, and comes back when all of it has landed, in any order.
 * What landed lies in a cache until a flush,
 * or the end of a durable write, puts it on the media. A power cut keeps of each LBA any prefix of what landed there;
 * of what was under way any subset of LBAs lands; and an LBA of a longer write that had not come back may be left as
 * nothing that was ever written. */
#ifndef FARLOG_BLOCK_FAULT_H
#define FARLOG_BLOCK_FAULT_H

#include "base/uri.h"
#include "region/region.h"

int block_fault_open(const char *text, const struct uri *uri, const struct region_options *options,
	struct region **region, struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_block_shape -- of blocks that are made from now on. */
FARLOG_API void farlog_block_shape(uint32_t lba_len, int has_cache);

/* farlog_block_reshape -- of blocks at rest: the device has been given LBAs of another length, and still has its bytes.
 * farlog_block_wipe -- bytes that are zero, on the
 * media. */
FARLOG_API void farlog_block_reshape(const char *name, uint32_t lba_len);
FARLOG_API void farlog_block_wipe(const char *name, uint64_t off, uint64_t len);

/* farlog_block_hosts -- do blocks that are made from now on have reservations? farlog_block_host -- from now on they
 * are opened on this host, 0 to
 * 3. Locks are a host's,
 * registrations, too. */
FARLOG_API void farlog_block_hosts(int has_reservations);
FARLOG_API void farlog_block_host(int host);

/* farlog_block_fail_reservation -- the reservation call of this number from now on, looks included, fails with IO; 0 =
 * none does. farlog_block_has_failed_reservation -- has it? */
FARLOG_API void farlog_block_fail_reservation(unsigned call_number);
FARLOG_API int farlog_block_has_failed_reservation(void) FARLOG_MUST_CHECK;

/* As farlog_fault_arm and its like, of the blocks of that name. */
FARLOG_API void farlog_block_reseed(const char *name, uint64_t seed);
FARLOG_API void farlog_block_drop(const char *name);
FARLOG_API void farlog_block_arm(const char *name, uint64_t operation_count);
FARLOG_API int farlog_block_is_dead(const char *name) FARLOG_MUST_CHECK;
FARLOG_API void farlog_block_call(
	const char *name, uint64_t operation_count, void (*call)(void *context), void *context);
FARLOG_API void farlog_block_crash(const char *name);
/* farlog_block_kill -- the processes die; what they have sent still comes to its end, as the kernel sees to it. */
FARLOG_API void farlog_block_kill(const char *name);

/* farlog_block_restart -- power cut and start of the target, to which the hosts connect again by themselves: what was
 * under way fails, and reservations are forgotten. */
FARLOG_API void farlog_block_restart(const char *name);

/* farlog_block_rest -- reopen_delay_ns (region/region.h) of blocks that are opened from now on; 0 unless set. */
FARLOG_API void farlog_block_rest(uint64_t reopen_delay_ns);

/* farlog_block_trouble -- is_stuck: 1, no write of the ring's data comes back any more, though it may land; 2, no read
 * does; 3, reads are done, and nobody takes their answers. failure: every command fails with this errno; 0 = none
 * does. */
FARLOG_API void farlog_block_trouble(const char *name, int is_stuck, int failure);

#endif
