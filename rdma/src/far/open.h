/* far/open.h -- opening a ring on another host as a region. */
#ifndef FARLOG_REGION_FAR_H
#define FARLOG_REGION_FAR_H

#include "base/uri.h"
#include "far/far.h"
#include "region/region.h"

/* region_far_open -- connect with the grant of `ask`, choose the flush method, fetch the ring. Errors: INVALID (no ring
 * or grant named), UNSUPPORTED, NOT_FOUND (nobody answers), LEVEL (the URI's flush method is not offered), IO, or what
 * the target refused with. Blocks for the network. */
int region_far_open(const char *text, const struct uri *uri, const struct region_options *options,
	struct region **region, struct farlog_error *error) FARLOG_MUST_CHECK;

#endif
