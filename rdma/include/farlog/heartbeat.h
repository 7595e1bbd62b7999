/* heartbeat.h -- libfarlog: heartbeats of writers that several threads share, and of routes, so that merges past them
 * go on while they are idle. On top of farlog.h and route.h.
 *
 * A heartbeat is a record without a payload, which takes the space of a record without payload and is stored. FULL and
 * UNKNOWN need no second try: the next one does. */
#ifndef FARLOG_HEARTBEAT_H
#define FARLOG_HEARTBEAT_H

#include "route.h"

#ifdef __cplusplus
extern "C" {
#endif

/* farlog_shared_heartbeat -- as farlog_heartbeat. Any thread; blocks as farlog_shared_append. */
FARLOG_API int farlog_shared_heartbeat(
	farlog_shared *shared, uint64_t deadline_ns, struct farlog_position *position) FARLOG_MUST_CHECK;

/* farlog_shared_heartbeats -- from now on a thread of the library appends a heartbeat whenever nothing was appended for
 * idle_ns, with the writer's own deadline; 0 ends that. It goes on until the writer is closed, fenced, or has failed.
 * OK; INVALID: idle_ns is neither 0 nor a millisecond or more; NO_MEMORY; CLOSED. Any thread, but not two at a time,
 * nor while the writer is being closed. Allocates; blocks for a heartbeat under way. */
FARLOG_API int farlog_shared_heartbeats(farlog_shared *shared, uint64_t idle_ns) FARLOG_MUST_CHECK;

/* farlog_route_heartbeat -- a heartbeat to each leg that was offered no record since the last call. For the thread that
 * appends: whenever it has waited for work for some time, and as often between appends, since a leg may be idle that
 * others are not. A leg whose ring its own thread has (optional, or spilling) gets it from that, when nothing waits
 * before it, and is not waited for; the others are, together, until deadline_ns from now (0 = each leg's own). OK;
 * FULL, UNKNOWN, FENCED, CLOSED: the worst of the required legs, FENCED and CLOSED as their next append would say. Does
 * not allocate. */
FARLOG_API int farlog_route_heartbeat(farlog_route *route, uint64_t deadline_ns) FARLOG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
