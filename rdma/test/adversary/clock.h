/* adversary/clock.h -- time that a test plays. It stands before clock_monotonic_ns, clock_poll
 * and clock_sample. */
#ifndef FARLOG_ADVERSARY_CLOCK_H
#define FARLOG_ADVERSARY_CLOCK_H

#include <stdint.h>

#include "farlog/farlog.h"

/* farlog_fault_set_clock -- from now on the time for deadlines begins here, and goes on by a microsecond at each look
 * of this thread, which never sleeps; 0: it is the system's again. */
FARLOG_API void farlog_fault_set_clock(uint64_t now_ns);

/* farlog_fault_set_utc -- from now on UTC stands still here, for all threads, until it is set again; 0: it is the
 * system's again. */
FARLOG_API void farlog_fault_set_utc(uint64_t utc_ns);

#endif
