/* route/heartbeat.c -- heartbeats to legs that were offered no record since the last call. */
#include "farlog/heartbeat.h"

#include "route/step.h"

/* is_idle -- no record was offered since the last call. */
static bool is_idle(struct route_leg *leg)
{
	uint64_t offered_count = atomic_load_relaxed(&leg->counters.offered_count);
	bool is_same = offered_count == leg->heartbeat_offered_count;

	leg->heartbeat_offered_count = offered_count;
	return is_same;
}

/* append_heartbeat -- directly, to be waited for by route_await. */
static int append_heartbeat(struct route_step *step, unsigned i)
{
	struct farlog_writer *writer = step->route->legs[i].writer;
	struct farlog_entry nothing = {0};
	struct farlog_position position;
	int result = route_check_writer(writer, &nothing);

	if (result == FARLOG_OK)
		result = writer_stage(writer, &nothing, RECORD_FLAG_HEARTBEAT, clock_ticks(), &position);
	if (result != FARLOG_OK)
		return result;
	step->runs[i] = (struct route_run){.path = ROUTE_PATH_DIRECT, .is_begun = true, .end_lsn = position.end_lsn};
	route_start_flush(step, i);
	return FARLOG_OK;
}

/* heartbeat_leg -- directly, or by the leg's carrier. The result of a required leg; that of a carrier is not waited
 * for. */
static int heartbeat_leg(struct route_step *step, unsigned i)
{
	struct route_leg *leg = &step->route->legs[i];
	int result;

	if (!is_idle(leg))
		return FARLOG_OK;
	if (atomic_load_acquire(&leg->state) == FARLOG_LEG_FENCED)
		return leg->is_required ? FARLOG_FENCED : FARLOG_OK;
	if (leg->buffer != NULL && !route_own_ring(leg)) {
		atomic_store_release(&leg->is_heartbeat_due, 1);
		return FARLOG_OK;
	}
	result = append_heartbeat(step, i);
	/* the next record goes to the spill */
	return leg->has_spill && (result == FARLOG_CLOSED || result == FARLOG_FULL) ? FARLOG_OK : result;
}

static int worse_result(int one, int other)
{
	static const int order[] = {FARLOG_CLOSED, FARLOG_FENCED, FARLOG_UNKNOWN, FARLOG_FULL};

	for (unsigned i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		if (one == order[i] || other == order[i])
			return order[i];
	return one != FARLOG_OK ? one : other;
}

int farlog_route_heartbeat(farlog_route *route, uint64_t deadline_ns)
{
	struct route_step step = {
		.route = route, .start_ticks = clock_ticks(), .start_ns = clock_monotonic_ns(), .deadline_ns = deadline_ns};
	int result = FARLOG_OK;

	if (route->is_closed)
		return FARLOG_CLOSED;
	for (unsigned i = 0; i < route->leg_count; i++)
		result = worse_result(result, heartbeat_leg(&step, i));
	route_await(&step);
	for (unsigned i = 0; i < route->leg_count; i++)
		if (step.runs[i].is_begun && !(route->legs[i].has_spill && step.runs[i].result == FARLOG_UNKNOWN))
			result = worse_result(result, step.runs[i].result);
	return result;
}
