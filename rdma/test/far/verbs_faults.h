/* verbs_faults.h -- a device that does not do what the target of verbs_pair.h asks of it, as if it had refused it or
 * were slow. Clients are in the same process: only what the target's thread asks for is meant.
 *
 * The functions of wire/verbs_queue.h and target_admit are stood before; dealloc_mw and dereg_mr are replaced in the
 * tables of libibverbs. All switches are off at first, and may be set at any time. */
#ifndef FARLOG_VERBS_FAULTS_H
#define FARLOG_VERBS_FAULTS_H

#include <stdint.h>

#include "adversary/revocation.h"

/* verbs_faults_install -- in pair_target's listener, before anybody connects to it. */
void verbs_faults_install(void);

/* verbs_faults_set -- the steps of a connection's end that the device refuses from now on, one bit each. */
enum verbs_end_step { VERBS_END_INVALIDATE, VERBS_END_STOP, VERBS_END_WINDOW, VERBS_END_QUEUE, VERBS_END_REGISTRATION };
void verbs_faults_set(unsigned steps);

/* So long at least the target waits for a request of its own; 0: as long as it wants. */
extern uint64_t verbs_await_ns;

/* So many of the next binds count as not done in time, when they have just been posted. */
extern uint64_t verbs_binds_late;

/* 1: the target writes no credit to its clients, so that a test sees whether it comes another way. */
extern uint64_t verbs_credits_held;

#endif
