/* adversary/revocation.h -- the end of a connection over verbs, in steps that a test can tell apart. It stands before
 * verbs_keys_invalidate, the first of them. */
#ifndef FARLOG_ADVERSARY_REVOCATION_H
#define FARLOG_ADVERSARY_REVOCATION_H

#include <stdint.h>

#include "farlog/farlog.h"

/* farlog_fault_pause_revocations -- from now on so much time passes between the end of the keys and that of their queue
 * pair, so that a writer meets the device there. */
FARLOG_API void farlog_fault_pause_revocations(uint64_t pause_ns);

/* farlog_fault_keep_keys -- from now on keys are not invalidated by a request, as if the device had refused it; 0: they
 * are again. */
FARLOG_API void farlog_fault_keep_keys(int is_kept);

#endif
