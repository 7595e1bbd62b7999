/* region/staging.h -- memory that several regions use as one copy of a ring: the same records, and of each region a
 * header of its own.
 *
 * What the members of a stream write is the same bytes at the same places. Each maps those bytes once more behind its
 * own header, so that all of them send from one memory, and each still has its copy in one piece, as its device wants
 * it. */
#ifndef FARLOG_REGION_STAGING_H
#define FARLOG_REGION_STAGING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "farlog/farlog.h"

struct staging {
	int fd; /* memory without a name */
	uint64_t len;
	pthread_mutex_t mutex; /* of len: regions are opened side by side */
};

/* staging_open -- nothing is in it yet. OK or NO_MEMORY. */
int staging_open(struct staging *staging) FARLOG_MUST_CHECK;

/* staging_map -- a copy of copy_len bytes: LAYOUT_DATA_OFF of its own, zero, then those that all share. For munmap;
 * kept out of forked children. NULL: no memory. From any thread. */
uint8_t *staging_map(struct staging *staging, uint64_t copy_len) FARLOG_MUST_CHECK;

/* staging_close -- what has been mapped stays until it is unmapped. */
void staging_close(struct staging *staging);

#endif
