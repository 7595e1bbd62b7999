/* route/beat.c -- heartbeats to the legs of a route that were offered nothing for a while. */
#include "farlog/heartbeat.h"

#include "route/step.h"

/* is_idle -- since the last time that was asked. */
static bool is_idle(struct route_leg *leg)
{
	uint64_t offered_count = atomic_load_relaxed(&leg->counters.offered_count);
	bool is_same = offered_count == leg->beat_offered_count;

	leg->beat_offered_count = offered_count;
	return is_same;
}

/* beat_direct -- written, to be waited for. */
static int beat_direct(struct route_step *step, unsigned i)
{
	struct farlog_writer *far = step->route->legs[i].far;
	struct farlog_entry nothing = {0};
	struct farlog_position position;
	int result = route_ask_writer(far, &nothing);

	if (result == FARLOG_OK)
		result = writer_stage(far, &nothing, RECORD_FLAG_HEARTBEAT, clock_ticks(), &position);
	if (result != FARLOG_OK)
		return result;
	step->runs[i] = (struct route_run){.way = ROUTE_WAY_DIRECT, .is_begun = true, .end_lsn = position.end_lsn};
	route_start_flush(step, i);
	return FARLOG_OK;
}

/* beat_leg -- what a required one says; the carrier of a leg says nothing. */
static int beat_leg(struct route_step *step, unsigned i)
{
	struct route_leg *leg = &step->route->legs[i];
	int result;

	if (!is_idle(leg))
		return FARLOG_OK;
	if (atomic_load_acquire(&leg->state) == FARLOG_LEG_FENCED)
		return leg->is_required ? FARLOG_FENCED : FARLOG_OK;
	if (leg->buffer != NULL && !route_take_turn(leg)) {
		atomic_store_release(&leg->is_beat_due, 1);
		return FARLOG_OK;
	}
	result = beat_direct(step, i);
	/* the next record goes to the spill */
	return leg->has_spill && (result == FARLOG_CLOSED || result == FARLOG_FULL) ? FARLOG_OK : result;
}

static int worse(int one, int other)
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
		result = worse(result, beat_leg(&step, i));
	route_await(&step);
	for (unsigned i = 0; i < route->leg_count; i++)
		if (step.runs[i].is_begun && !(route->legs[i].has_spill && step.runs[i].result == FARLOG_UNKNOWN))
			result = worse(result, step.runs[i].result);
	return result;
}
