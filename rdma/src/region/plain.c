/* region/plain.c -- what a region does of a kind that has nothing of its own for it. See region/ops.h. */
#include "region/region.h"

int region_plain_claim(struct region *region, const struct region_claim *claim, struct farlog_error *error)
{
	(void)region, (void)claim, (void)error;
	return FARLOG_OK;
}

int region_plain_propose(struct region *region, uint64_t off, const void *src, size_t len, bool is_persisted)
{
	struct region_span span = {off, len};

	region->ops->write(region, off, src, len);
	return is_persisted ? region_persist_wait(region, &span, 1) : FARLOG_OK;
}

int region_plain_cut(struct region *region)
{
	(void)region;
	return FARLOG_UNSUPPORTED;
}
