/* admin/ring_admin.h -- making a ring of bytes, for a whole region and for a part of one. */
#ifndef FARLOG_RING_ADMIN_H
#define FARLOG_RING_ADMIN_H

#include "region/region.h"

/* ring_check_config -- for a ring of that size. OK or INVALID. */
int ring_check_config(const char *uri, const struct farlog_ring_config *config, uint64_t size_bytes,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* ring_write_new -- wipe the region's bytes and make an empty ring of them, whatever they held. OK or IO. */
int ring_write_new(struct region *region, const char *uri, const struct farlog_ring_config *config,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* ring_format_region -- the same where the region was never written, or config->is_forced; takes the locks, which the
 * region's close gives back. */
int ring_format_region(struct region *region, const char *uri, const struct farlog_ring_config *config,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* ring_check_blocks -- of a ring on blocks: a PAD takes less than an LBA, and is no longer than a record may be. OK or
 * INVALID. */
int ring_check_blocks(const struct region *region, const char *uri, const struct farlog_ring_config *config,
	struct farlog_error *error) FARLOG_MUST_CHECK;

#endif
