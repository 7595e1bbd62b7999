/* route/ask.c -- which legs take a record, by which way, and whether they can: asked of all of them before it is
 * written to any. */
#include "route/step.h"

#include <time.h>

#include "base/err.h"

#define NAP_NS 50000u

uint64_t route_until(struct route_step *step, unsigned i)
{
	const struct route_leg *leg = &step->route->legs[i];
	uint64_t until_ns = UINT64_MAX;

	if (step->start_ns == 0)
		step->start_ns = clock_monotonic_ns();
	if (step->group_ns == 0)
		step->group_ns = step->first == 0 ? step->start_ns : clock_monotonic_ns();
	if (step->deadline_ns == 0 || leg->has_spill) {
		uint64_t duration_ns = atomic_load_relaxed(&leg->deadline_ns);

		until_ns = duration_ns > UINT64_MAX - step->group_ns ? UINT64_MAX : step->group_ns + duration_ns;
	}
	if (step->deadline_ns != 0 && step->deadline_ns < UINT64_MAX - step->start_ns &&
		step->start_ns + step->deadline_ns < until_ns)
		until_ns = step->start_ns + step->deadline_ns;
	return until_ns;
}

bool route_select(struct route_step *step)
{
	const struct farlog_route *route = step->route;
	struct farlog_route_position *position = &step->positions[step->end];
	uint32_t criticality = step->criticalities != NULL ? step->criticalities[step->end] : 0;
	uint32_t mask = route->class_legs[step->entries[step->end].class_id];

	position->level = FARLOG_LEVEL_NONE;
	position->required = 0;
	position->optional = 0;
	position->dropped = 0;
	ROUTE_EACH(i, mask)
	{
		if (criticality < route->legs[i].criticality_min)
			continue;
		*(route->legs[i].is_required ? &position->required : &position->optional) |= 1u << i;
		position->legs[i] = (struct farlog_route_result){.result = FARLOG_OK};
	}
	return (position->required | position->optional) != 0;
}

int route_ask_writer(struct farlog_writer *writer, const struct farlog_entry *entry)
{
	struct ring_place place;
	uint64_t extent;
	int result;

	if (writer->is_failed)
		return FARLOG_CLOSED;
	if (writer_is_fenced(writer))
		return FARLOG_FENCED;
	result = writer_check_entry(writer, entry, &extent);
	return result == FARLOG_OK ? writer_find_room(writer, extent, &place) : result;
}

/* does_reject -- nobody waits for room. */
static bool does_reject(const struct route_leg *leg)
{
	return leg->place.uri != NULL ? leg->place.config.policy == FARLOG_POLICY_REJECT :
									leg->far->policy == FARLOG_POLICY_REJECT;
}

/* ask_leg -- and by which way. A ring that has no room is waited for until the leg's deadline, then the spill takes the
 * record. */
static int ask_leg(struct route_step *step, unsigned i, bool is_late)
{
	struct route_leg *leg = &step->route->legs[i];
	struct route_run *run = &step->runs[i];
	const struct farlog_entry *entry = &step->entries[step->end];
	int result;

	if (atomic_load_acquire(&leg->state) == FARLOG_LEG_FENCED)
		return FARLOG_FENCED;
	if (!run->is_begun)
		run->way = leg->buffer == NULL || route_take_turn(leg) ? ROUTE_WAY_DIRECT : ROUTE_WAY_SPILL;
	if (run->way == ROUTE_WAY_SPILL)
		return route_ask_buffer(leg, entry, 0);
	result = route_ask_writer(leg->far, entry);
	if (!leg->has_spill)
		return result;
	if (result == FARLOG_CLOSED || (result == FARLOG_FULL && (is_late || does_reject(leg)))) {
		if (run->is_begun)
			return ROUTE_GROUP_ENDS; /* those before it may have to go to the spill first */
		run->way = ROUTE_WAY_TURN;
		return route_ask_buffer(leg, entry, 0);
	}
	return result == FARLOG_OK && run->is_begun && route_ask_buffer(leg, entry, run->spill_bytes) != FARLOG_OK ?
		ROUTE_GROUP_ENDS :
		result;
}

/* rank -- of several answers the highest counts. */
static int rank(int result)
{
	switch (result) {
	case FARLOG_OK:
		return 0;
	case FARLOG_FULL:
		return 1;
	case ROUTE_GROUP_ENDS:
		return 2;
	case FARLOG_INVALID:
		return 3;
	case FARLOG_TOO_LARGE:
		return 4;
	case FARLOG_FENCED:
		return 5;
	default:
		return 6;
	}
}

/* ask_all -- the worst of the required legs' answers; each one's own is in the position. *is_hopeful: waiting may
 * help. */
static int ask_all(struct route_step *step, bool *is_hopeful)
{
	struct farlog_route_position *position = &step->positions[step->end];
	int worst = FARLOG_OK;

	*is_hopeful = true;
	ROUTE_EACH(i, position->required)
	{
		struct route_leg *leg = &step->route->legs[i];
		bool is_late = step->start_ns != 0 && clock_monotonic_ns() >= route_until(step, i);
		int result = ask_leg(step, i, is_late);

		position->legs[i].result = result;
		if (result == FARLOG_FULL && (is_late || does_reject(leg)))
			*is_hopeful = false;
		if (rank(result) > rank(worst))
			worst = result;
	}
	return worst;
}

static void count_refusal(struct route_step *step)
{
	struct farlog_route_position *position = &step->positions[step->end];

	ROUTE_EACH(i, position->required)
	{
		struct route_leg *leg = &step->route->legs[i];
		struct farlog_route_result *said = &position->legs[i];

		if (said->result == ROUTE_GROUP_ENDS)
			said->result = FARLOG_OK; /* another leg refuses the record */
		else if (said->result != FARLOG_OK && step->runs[i].way == ROUTE_WAY_DIRECT && leg->far != NULL)
			may_fail(writer_refuse(leg->far, said->result, &said->position)); /* it only counts */
		else if (said->result == FARLOG_FENCED)
			said->position.epoch = (uint32_t)atomic_load_relaxed(&leg->fenced_epoch);
	}
}

/* pump -- what was submitted before goes on while this record waits for room. */
static void pump(struct route_step *step)
{
	ROUTE_EACH(i, step->positions[step->end].required)
	if (step->runs[i].way == ROUTE_WAY_DIRECT && writer_pump(step->route->legs[i].far) == FARLOG_OK)
		region_push(step->route->legs[i].far->region);
}

int route_find_room(struct route_step *step)
{
	bool is_hopeful;
	int result = ask_all(step, &is_hopeful);

	for (unsigned turns = 0; result == FARLOG_FULL && is_hopeful; turns++) {
		if (step->start_ns == 0)
			step->start_ns = clock_monotonic_ns();
		pump(step);
		if (turns > 50)
			nanosleep(&(struct timespec){0, NAP_NS}, NULL);
		result = ask_all(step, &is_hopeful);
	}
	if (result != FARLOG_OK && result != ROUTE_GROUP_ENDS)
		count_refusal(step);
	return result;
}

int route_put_into_spill(struct route_step *step, unsigned i, size_t index, bool is_first, uint64_t far_seq)
{
	struct route_leg *leg = &step->route->legs[i];
	struct farlog_route_result *said = &step->positions[index].legs[i];
	struct farlog_position placed;
	int result = is_first ? route_turn_to_spill(leg, far_seq) : FARLOG_OK;

	if (result == FARLOG_OK)
		result = shared_submit(leg->buffer, &step->entries[index], 0, &placed);
	if (result != FARLOG_OK)
		return FARLOG_IO;
	said->position = placed;
	said->is_buffered = 1;
	step->runs[i].end_lsn = placed.end_lsn;
	atomic_add(&leg->counters.spilled_count, 1);
	return FARLOG_OK;
}
