/* region/kinds.h -- what this process can open as a region. The room `open`, which knows all kinds, fills it in: no
 * other room has to. */
#ifndef FARLOG_REGION_KINDS_H
#define FARLOG_REGION_KINDS_H

#include "base/uri.h"
#include "region/region.h"

struct region_kind {
	const char *scheme; /* what URIs of this kind begin with */
	/* As region_open, of all of the region. uri: the text taken apart; of "members:", which is several URIs, NULL. */
	int (*open)(const char *text, const struct uri *uri, const struct region_ask *ask, struct region **region,
		struct farlog_error *error) FARLOG_MUST_CHECK;
	/* As farlog_region_probe. NULL: the contract is known only when it is open. */
	int (*probe)(const char *text, const struct uri *uri, struct farlog_contract *contract,
		struct farlog_error *error) FARLOG_MUST_CHECK;
};

extern const struct region_kind region_kinds[]; /* the last one has no scheme */

/* region_kinds_more -- further ones, for programs that are linked to media of their own, such as tests: set before the
 * first region is opened, and not changed. NULL: none. */
extern const struct region_kind *region_kinds_more;

/* region_open_device -- who opens a block device, with O_DIRECT, that the kernel does not let this process open: the
 * host agent, which looks who asks. *fd is the caller's; nobody else has it. */
extern int (*const region_open_device)(
	const char *path, bool is_writing, int *fd, struct farlog_error *error) FARLOG_MUST_CHECK;

#endif
