/* region/staging.h -- memory for the copies of several regions that hold the same records: one copy of the records,
 * and a header for each region.
 *
 * The members of a stream write the same bytes at the same offsets. Each maps those bytes behind its own header: all
 * send from one memory, and each has a contiguous copy, as its device requires. */
#ifndef FARLOG_REGION_STAGING_H
#define FARLOG_REGION_STAGING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "farlog/farlog.h"

struct staging {
	int fd; /* a memfd */
	uint64_t len;
	pthread_mutex_t mutex; /* guards len: regions are opened concurrently */
};

/* staging_open -- create it, empty. OK or NO_MEMORY. */
int staging_open(struct staging *staging) FARLOG_MUST_CHECK;

/* staging_map -- map a copy of copy_len bytes: LAYOUT_DATA_OFF private bytes, zero, then the shared ones. The caller
 * unmaps it by munmap; forked children do not get it. NULL: no memory. Any thread. */
uint8_t *staging_map(struct staging *staging, uint64_t copy_len) FARLOG_MUST_CHECK;

/* staging_close -- mappings stay until they are unmapped. */
void staging_close(struct staging *staging);

#endif
