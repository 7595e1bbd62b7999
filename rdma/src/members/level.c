/* members/level.c -- the level that members have to give to count, changed while the writer runs. See
 * members/members.h. */
#include "base/err.h"
#include "members/members.h"

int members_check_level(struct region *region, uint32_t level, struct farlog_error *error)
{
	struct region_members *whole = members_of(region);
	unsigned count = 0;

	members_acquire(whole);
	for (unsigned i = 0; i < whole->count; i++)
		count += member_state(&whole->members[i]) == MEMBER_ACTIVE && whole->members[i].region->contract.level >= level;
	members_release(whole);
	if (count >= whole->needed)
		return FARLOG_OK;
	return error_set(error, FARLOG_LEVEL, 0,
		"members \"%s\": asked for level %s, but %u of %u members give it now, expected %u at least", whole->text,
		farlog_level_name((int)level), count, whole->count, whole->needed);
}

void members_set_level(struct region *region, uint32_t level, uint64_t from_lsn)
{
	struct region_members *whole = members_of(region);
	bool is_complete;

	members_acquire(whole);
	is_complete = region_is_done(&whole->region, whole->requested_tag) && whole->requested_lsn >= from_lsn;
	whole->level_next = 0;
	if (level >= whole->level || is_complete) {
		whole->level = level;
	} else {
		whole->level_next = level;
		whole->level_next_lsn = from_lsn;
	}
	members_release(whole);
}
