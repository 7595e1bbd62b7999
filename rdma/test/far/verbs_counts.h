/* verbs_counts.h -- what a queue pair has posted, and what came back, for tests that hold the data path to what it
 * promises.
 *
 * verbs_queue_open is stood before: a queue that it has opened gets functions in the tables of libibverbs' objects that
 * count, and call the provider's. Requests are counted when they are posted, not when they are done. */
#ifndef FARLOG_VERBS_COUNTS_H
#define FARLOG_VERBS_COUNTS_H

#include "wire/verbs_queue.h"

struct verbs_counts {
	uint64_t write_count;
	uint64_t inline_count; /* WRITEs whose bytes go with the request */
	uint64_t read_count;
	uint64_t flush_count;
	uint64_t send_count;
	uint64_t signalled_count; /* of all these */
	uint64_t doorbell_count;
	uint64_t completion_count; /* good ones, of what was posted here */
	uint64_t event_count;      /* receives that came back good: a WRITE or a SEND of the peer's took them */
};

/* verbs_counts_of -- since the queue was opened. */
const struct verbs_counts *verbs_counts_of(const struct verbs_queue *queue);

#endif
