/* route/members.c -- the members of a leg's ring while the route runs: which they are, and that one of them is another
 * ring by now. */
#include "farlog/replace.h"

#include "base/err.h"
#include "route/route.h"

unsigned farlog_route_members(farlog_route *route, uint32_t index, struct farlog_writer_member *members, unsigned room)
{
	struct route_leg *leg;
	unsigned count;

	if (index >= route->leg_count)
		return 0;
	leg = &route->legs[index];
	pthread_mutex_lock(&leg->far_lock);
	count = leg->far != NULL ? farlog_writer_members(leg->far, members, room) : 0;
	pthread_mutex_unlock(&leg->far_lock);
	return count;
}

int farlog_route_replace_member(farlog_route *route, uint32_t index, unsigned member,
	const struct farlog_member_ring *ring, struct farlog_error *error)
{
	struct route_leg *leg;
	int result;

	if (index >= route->leg_count)
		return error_set(error, FARLOG_INVALID, 0, "route \"%s\" has no leg %u: expected 0 to %u", route->name, index,
			route->leg_count - 1);
	leg = &route->legs[index];
	pthread_mutex_lock(&leg->far_lock);
	result = leg->far != NULL ? farlog_writer_replace_member(leg->far, member, ring, error) :
								error_set(error, FARLOG_UNSUPPORTED, 0,
									"route \"%s\": leg \"%s\": its ring is not open just now", route->name, leg->name);
	pthread_mutex_unlock(&leg->far_lock);
	return result;
}
