/* bench_members.h -- what the files of the members' cases share: targets in processes of their own. */
#ifndef FARLOG_BENCH_MEMBERS_H
#define FARLOG_BENCH_MEMBERS_H

#include <sys/types.h>

#include "bench.h"

#define MEMBER_COUNT 3u
#define MEMBERS_EPOCH_FIRST 1u
#define MEMBERS_EPOCH_LAST 40u

/* A process that serves rings of this host, with a grant for a writer of each epoch. */
struct members_target {
	pid_t pid;
	char uri[160]; /* of the target */
};

/* members_target_start -- at an address with a port of its choice or a given one. names, region_uris: of the rings.
 * False: libfabric is not there, which has been said. */
bool members_target_start(struct members_target *target, const char *address, const char *const *names,
	const char *const *region_uris, unsigned count);
void members_target_end(struct members_target *target);

/* members_config -- of the writer of an epoch, whose rings are those of these numbers at their targets: the first, and
 * so many further on; tokens must outlive its opening. */
struct farlog_writer_config members_config(
	uint32_t epoch, unsigned first, unsigned step, uint8_t tokens[MEMBER_COUNT * FARLOG_TOKEN_LEN]);

/* Cases of bench_members_fault.c. */
void bench_members_loss(void);
void bench_members_takeover(void);

/* bench_members_sockets -- what bare sockets cost of it. */
void bench_members_sockets(void);

#endif
