/* route/check.c -- selects the legs of a record, and the path to each; checks that all required legs have space before
 * the record is written to any. */
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

int route_check_writer(struct farlog_writer *writer, const struct farlog_entry *entry)
{
	struct ring_place place;
	uint64_t extent;
	int result;

	if (writer->is_failed)
		return FARLOG_CLOSED;
	if (writer_is_fenced(writer))
		return FARLOG_FENCED;
	result = writer_check_entry(writer, entry, 0, &extent);
	return result == FARLOG_OK ? writer_find_place(writer, extent, &place) : result;
}

/* is_reject -- the leg does not wait for space. */
static bool is_reject(const struct route_leg *leg)
{
	return leg->opening.uri != NULL ? leg->opening.config.policy == FARLOG_POLICY_REJECT :
									  leg->writer->policy == FARLOG_POLICY_REJECT;
}

/* check_leg_space -- and choose the path. A full ring is waited for until the leg's deadline, then the record goes to
 * the spill. */
static int check_leg_space(struct route_step *step, unsigned i, bool is_late)
{
	struct route_leg *leg = &step->route->legs[i];
	struct route_run *run = &step->runs[i];
	const struct farlog_entry *entry = &step->entries[step->end];
	int result;

	if (atomic_load_acquire(&leg->state) == FARLOG_LEG_FENCED)
		return FARLOG_FENCED;
	if (!run->is_begun)
		run->path = leg->buffer == NULL || route_own_ring(leg) ? ROUTE_PATH_DIRECT : ROUTE_PATH_SPILL;
	if (run->path == ROUTE_PATH_SPILL)
		return route_check_buffer(leg, entry, 0);
	result = route_check_writer(leg->writer, entry);
	if (!leg->has_spill)
		return result;
	if (result == FARLOG_CLOSED || (result == FARLOG_FULL && (is_late || is_reject(leg)))) {
		if (run->is_begun)
			return ROUTE_GROUP_ENDS; /* records of this group may have to go to the spill first */
		run->path = ROUTE_PATH_BEGIN_SPILL;
		return route_check_buffer(leg, entry, 0);
	}
	return result == FARLOG_OK && run->is_begun && route_check_buffer(leg, entry, run->spill_bytes) != FARLOG_OK ?
		ROUTE_GROUP_ENDS :
		result;
}

/* rank -- the result with the highest rank counts. */
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

/* check_space -- the highest-ranked result of the required legs; each leg's own is in the position. *may_wait: waiting
 * may help. */
static int check_space(struct route_step *step, bool *may_wait)
{
	struct farlog_route_position *position = &step->positions[step->end];
	int worst = FARLOG_OK;

	*may_wait = true;
	ROUTE_EACH(i, position->required)
	{
		struct route_leg *leg = &step->route->legs[i];
		bool is_late = step->start_ns != 0 && clock_monotonic_ns() >= route_until(step, i);
		int result = check_leg_space(step, i, is_late);

		position->legs[i].result = result;
		if (result == FARLOG_FULL && (is_late || is_reject(leg)))
			*may_wait = false;
		if (rank(result) > rank(worst))
			worst = result;
	}
	return worst;
}

static void count_rejection(struct route_step *step)
{
	struct farlog_route_position *position = &step->positions[step->end];

	ROUTE_EACH(i, position->required)
	{
		struct route_leg *leg = &step->route->legs[i];
		struct farlog_route_result *outcome = &position->legs[i];

		if (outcome->result == ROUTE_GROUP_ENDS)
			outcome->result = FARLOG_OK; /* another leg rejects the record */
		else if (outcome->result != FARLOG_OK && step->runs[i].path == ROUTE_PATH_DIRECT && leg->writer != NULL)
			may_fail(
				writer_reject_append(leg->writer, outcome->result, &outcome->position)); /* only counts the rejection */
		else if (outcome->result == FARLOG_FENCED)
			outcome->position.epoch = (uint32_t)atomic_load_relaxed(&leg->fenced_epoch);
	}
}

/* flush_required -- persist records that were appended before, while this one waits for space. */
static void flush_required(struct route_step *step)
{
	ROUTE_EACH(i, step->positions[step->end].required)
	if (step->runs[i].path == ROUTE_PATH_DIRECT && writer_advance_flush(step->route->legs[i].writer) == FARLOG_OK)
		region_push(step->route->legs[i].writer->region);
}

int route_wait_space(struct route_step *step)
{
	bool may_wait;
	int result = check_space(step, &may_wait);

	for (unsigned turns = 0; result == FARLOG_FULL && may_wait; turns++) {
		if (step->start_ns == 0)
			step->start_ns = clock_monotonic_ns();
		flush_required(step);
		if (turns > 50)
			nanosleep(&(struct timespec){0, NAP_NS}, NULL);
		result = check_space(step, &may_wait);
	}
	if (result != FARLOG_OK && result != ROUTE_GROUP_ENDS)
		count_rejection(step);
	return result;
}

int route_put_into_spill(struct route_step *step, unsigned i, size_t index, bool is_first, uint64_t ring_seq)
{
	struct route_leg *leg = &step->route->legs[i];
	struct farlog_route_result *outcome = &step->positions[index].legs[i];
	struct farlog_position placed;
	int result = is_first ? route_begin_spill(leg, ring_seq) : FARLOG_OK;

	if (result == FARLOG_OK)
		result = shared_submit(leg->buffer, &step->entries[index], 0, &placed);
	if (result != FARLOG_OK)
		return FARLOG_IO;
	outcome->position = placed;
	outcome->is_buffered = 1;
	step->runs[i].end_lsn = placed.end_lsn;
	atomic_add(&leg->counters.spilled_count, 1);
	return FARLOG_OK;
}
