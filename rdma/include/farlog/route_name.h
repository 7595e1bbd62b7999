/* route_name.h -- libfarlog: opening a route by its name alone. The host agent (farlogd host) says which legs the
 * control plane's route has, and gets the grant of each. On top of route.h. */
#ifndef FARLOG_ROUTE_NAME_H
#define FARLOG_ROUTE_NAME_H

#include "route.h"

#ifdef __cplusplus
extern "C" {
#endif

struct farlog_route_options {
	/* of the rings that keep what a leg with policy SPILL cannot take; made when it is missing. NULL: the environment's
	 * FARLOG_SPILL_DIR */
	const char *spill_dir;
	const char *writer_name;  /* NULL = the program's */
	const char *counters_dir; /* as in farlog_writer_config */
	uint32_t wait;            /* enum farlog_wait, of all legs */
	uint32_t reserved;
};

/* farlog_route_open_name -- the route that "farlog://desk7/all[?agent=PATH&transport=mem|verbs|ofi]" names. Each leg
 * bears its stream's name and is opened as "farlog://STREAM": it opens its ring again by itself with a new grant, and
 * hears of rings that are replaced. Its spill is DIR/ROUTE+STREAM.spill, with % escapes, the same as that of farlog
 * append --route.
 *
 * The legs are those of now: a change of the route's rules comes at the next opening. options: NULL = none. Errors,
 * besides those of farlog_route_open: NOT_FOUND (there is no such route, or no agent), INVALID (the URI; this user may
 * not write one of its streams; a leg spills and nothing says where), IO (agent or control plane do not answer). Blocks
 * for the agent 15 s at most, and as farlog_route_open. */
FARLOG_API int farlog_route_open_name(const char *uri, const struct farlog_route_options *options, farlog_route **route,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_route_look_name -- whether there is such a route, by asking the agent alone: no grant is asked for and no leg
 * is opened. Errors: NOT_FOUND, INVALID, IO, as above. Blocks for the agent 15 s at most. */
FARLOG_API int farlog_route_look_name(const char *uri, struct farlog_error *error) FARLOG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
