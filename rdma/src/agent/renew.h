/* agent/renew.h -- another grant for a reader that was opened by its stream's name, when a target does not take the one
 * that it has any more. */
#ifndef FARLOG_AGENT_RENEW_H
#define FARLOG_AGENT_RENEW_H

#include "agent/place.h"
#include "region/region.h"

struct agent_renewer;

/* agent_renewer_new -- NULL: out of memory, or of descriptors. */
struct agent_renewer *agent_renewer_new(const struct stream_uri *place) FARLOG_MUST_CHECK;

/* agent_renewer_take -- what was granted. Before a reader is opened with it. */
void agent_renewer_take(struct agent_renewer *renewer, const struct agent_rings *rings);

/* agent_renewal -- for the openings of the regions, which have to be closed before it is freed. By its `free` the
 * renewer goes. */
struct region_renewal *agent_renewal(struct agent_renewer *renewer) FARLOG_MUST_CHECK;

#endif
