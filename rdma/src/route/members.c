/* route/members.c -- the member rings of a leg while the route runs, and their replacement. */
#include "farlog/replace.h"

#include "base/err.h"
#include "route/route.h"

unsigned farlog_route_members(
	farlog_route *route, uint32_t index, struct farlog_writer_member *members, unsigned count_max)
{
	struct route_leg *leg;
	unsigned count;

	if (index >= route->leg_count)
		return 0;
	leg = &route->legs[index];
	pthread_mutex_lock(&leg->writer_lock);
	count = leg->writer != NULL ? farlog_writer_members(leg->writer, members, count_max) : 0;
	pthread_mutex_unlock(&leg->writer_lock);
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
	pthread_mutex_lock(&leg->writer_lock);
	result = leg->writer != NULL ?
		farlog_writer_replace_member(leg->writer, member, ring, error) :
		error_set(error, FARLOG_UNSUPPORTED, 0, "route \"%s\": leg \"%s\": its ring is not open just now", route->name,
			leg->name);
	pthread_mutex_unlock(&leg->writer_lock);
	return result;
}
