/* region/kinds.h -- table of the kinds of regions that this process can open. The room `open`, which knows all kinds,
 * fills it in. */
#ifndef FARLOG_REGION_KINDS_H
#define FARLOG_REGION_KINDS_H

#include "base/uri.h"
#include "region/region.h"

struct region_kind {
	const char *scheme; /* scheme of the URIs of this kind */
	/* As region_open, of the whole region. uri: the parsed text; NULL of "members:", which is several URIs. */
	int (*open)(const char *text, const struct uri *uri, const struct region_options *options, struct region **region,
		struct farlog_error *error) FARLOG_MUST_CHECK;
	/* As farlog_region_probe. NULL: the contract is known only when it is open. */
	int (*probe)(const char *text, const struct uri *uri, struct farlog_contract *contract,
		struct farlog_error *error) FARLOG_MUST_CHECK;
};

extern const struct region_kind region_kinds[]; /* the last one has no scheme */

/* region_extra_kinds -- kinds of the program itself, such as a test. Set before the first region is opened, not changed
 * later. NULL: none. */
extern const struct region_kind *region_extra_kinds;

/* region_open_device -- open a block device, with O_DIRECT, that this process lacks the permission to open: the host
 * agent opens it and checks the client. The caller closes *fd. Blocks for the agent's reply. */
extern int (*const region_open_device)(
	const char *path, bool is_writing, int *fd, struct farlog_error *error) FARLOG_MUST_CHECK;

#endif
