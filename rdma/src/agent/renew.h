/* agent/renew.h -- another grant for a reader that was opened by its stream's name, when a target no longer accepts
 * the one that the reader has. */
#ifndef FARLOG_AGENT_RENEW_H
#define FARLOG_AGENT_RENEW_H

#include "agent/grant.h"
#include "region/region.h"

/* agent_renewal_new -- for the openings of the regions of `rings`, as they were granted. Its `free` ends it, after
 * these regions have been closed. NULL: out of memory, or of descriptors. */
struct region_renewal *agent_renewal_new(
	const struct stream_uri *place, const struct agent_rings *rings) FARLOG_MUST_CHECK;

#endif
