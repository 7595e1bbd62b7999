/* route_end.h -- libfarlog: the end of a route in two steps, so that its counters can be read between them. On top of
 * route.h. */
#ifndef FARLOG_ROUTE_END_H
#define FARLOG_ROUTE_END_H

#include "route.h"

#ifdef __cplusplus
extern "C" {
#endif

/* farlog_route_end -- take no more, give the legs until deadline_ns from now to catch up (0 = 1 s), and stop their
 * threads. What waits in memory of a DROP leg then is dropped: it is added to the leg's dropped_count, or, where its
 * ring was sent it and has not answered, to unknown_count. farlog_route_stats reports it until farlog_route_close,
 * which has to follow and does not wait for legs again. A leg that is FENCED is not waited for. OK; UNKNOWN: something
 * was left behind in a spill, or dropped; CLOSED: it has ended already. One thread, as farlog_route_append. */
FARLOG_API int farlog_route_end(farlog_route *route, uint64_t deadline_ns) FARLOG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
