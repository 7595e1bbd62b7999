/* region/single.c -- region_members_ops of a region that is one ring. See region/ops.h. */
#include "base/err.h"
#include "farlog/replace.h"
#include "region/region.h"

int region_single_recover(struct region *region, struct farlog_error *error)
{
	(void)region, (void)error;
	return FARLOG_OK;
}

int region_single_check_level(struct region *region, uint32_t level, struct farlog_error *error)
{
	const struct farlog_contract *contract = &region->contract;

	if (level <= contract->level)
		return FARLOG_OK;
	return error_set(error, FARLOG_LEVEL, 0,
		"asked for level %s, but the ring's region gives %s at most (%s, flush %s: %s)", farlog_level_name((int)level),
		farlog_level_name((int)contract->level), contract->kind_name, contract->flush_name, contract->probe);
}

void region_single_set_level(struct region *region, uint32_t level, uint64_t from_lsn)
{
	(void)region, (void)level, (void)from_lsn;
}

void region_single_finish_copies(struct region *region, uint64_t timeout_ns)
{
	(void)region, (void)timeout_ns;
}

unsigned region_single_list_members(struct region *region, struct farlog_writer_member *members, unsigned count_max)
{
	(void)region, (void)members, (void)count_max;
	return 0;
}

int region_single_replace_member(
	struct region *region, unsigned member, const struct farlog_member_ring *ring, struct farlog_error *error)
{
	(void)region, (void)member;
	return error_set(error, FARLOG_UNSUPPORTED, 0,
		"replace a member by ring \"%.100s\": the writer's stream has one ring; expected members:", ring->uri);
}

void region_single_attach_counters(struct region *region, struct farlog_counters *counters)
{
	(void)region, (void)counters;
}
