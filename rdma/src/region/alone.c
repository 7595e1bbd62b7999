/* region/alone.c -- what a region does that is one ring, where one of several members does more. See region/ops.h. */
#include "base/err.h"
#include "farlog/replace.h"
#include "region/region.h"

int region_alone_recover(struct region *region, struct farlog_error *error)
{
	(void)region, (void)error;
	return FARLOG_OK;
}

int region_alone_check_level(struct region *region, uint32_t level, struct farlog_error *error)
{
	const struct farlog_contract *contract = &region->contract;

	if (level <= contract->level)
		return FARLOG_OK;
	return error_set(error, FARLOG_LEVEL, 0,
		"asked for level %s, but the ring's region gives %s at most (%s, flush %s: %s)", farlog_level_name((int)level),
		farlog_level_name((int)contract->level), contract->kind_name, contract->flush_name, contract->probe);
}

void region_alone_set_level(struct region *region, uint32_t level, uint64_t from_lsn)
{
	(void)region, (void)level, (void)from_lsn;
}

void region_alone_finish(struct region *region, uint64_t timeout_ns)
{
	(void)region, (void)timeout_ns;
}

unsigned region_alone_view(struct region *region, struct farlog_writer_member *members, unsigned room)
{
	(void)region, (void)members, (void)room;
	return 0;
}

int region_alone_replace(
	struct region *region, unsigned member, const struct farlog_member_ring *ring, struct farlog_error *error)
{
	(void)region, (void)member;
	return error_set(error, FARLOG_UNSUPPORTED, 0,
		"ring \"%.100s\" in the place of another: the writer has one ring, which is never replaced", ring->uri);
}

void region_alone_count(struct region *region, struct farlog_counters *counters)
{
	(void)region, (void)counters;
}
