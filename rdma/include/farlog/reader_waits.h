/* reader_waits.h -- libfarlog: how a reader or drain of a ring on another host was woken. On top of farlog.h. */
#ifndef FARLOG_READER_WAITS_H
#define FARLOG_READER_WAITS_H

#include "farlog.h"

#ifdef __cplusplus
extern "C" {
#endif

/* farlog_reader_waits -- waits of this handle for what its ring's target has to confirm: head slots, in a drain.
 * *expired_count: those that ended because their time was over and not by an event (over verbs, where a wait
 * is cut into naps: a nap that has slept through the answer counts); NULL: not asked for. Both are 0 for a
 * ring on this host. By the reader's thread. */
FARLOG_API uint64_t farlog_reader_waits(const farlog_reader *reader, uint64_t *expired_count);

#ifdef __cplusplus
}
#endif

#endif
