/* base/clock_sample.h -- one look of the sampler at the clocks, and what it publishes. By the sampler alone, under its
 * mutex; tests play UTC in place of it. */
#ifndef FARLOG_CLOCK_SAMPLE_H
#define FARLOG_CLOCK_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct phc_set;

/* clock_read_pair -- counter and a clock at one moment: the tightest of a few tries, with half its width as the error.
 * The first is taken whatever its width, which is anything when the thread moves to a processor whose counter is
 * behind. */
void clock_read_pair(clockid_t id, uint64_t *ticks, uint64_t *time_ns, uint64_t *width_ticks);

/* clock_publish -- a new anchor, for all readers. */
void clock_publish(uint64_t ticks, uint64_t utc_ns, uint64_t rate_q32, uint64_t error_ns);

/* clock_sample -- read UTC, and publish it at this rate. is_first: there is no anchor yet to compare it with. */
void clock_sample(struct phc_set *phcs, uint64_t rate_q32, bool is_first);

#endif
