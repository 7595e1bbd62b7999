/* route/route.c -- appending to the legs that class and criticality select.
 *
 * First every required leg is asked whether it can take the record, and nothing is written anywhere before all can: a
 * refusal means nowhere. Then it is written to all of them, their flushes started, the optional legs served, and all
 * required ones waited for together. A batch does so with one group of records after the other. */
#include "route/route.h"

#include <string.h>
#include <time.h>

#include "route/step.h"

#define NAP_NS 50000u
#define CATCH_UP_NAP_NS 200000

/* post_to -- one leg of the record at `end`. */
static int post_to(struct route_step *step, unsigned i)
{
	struct route_leg *leg = &step->route->legs[i];
	struct route_run *run = &step->runs[i];
	struct farlog_route_result *said = &step->positions[step->end].legs[i];
	int result;

	if (run->way == ROUTE_WAY_DIRECT) {
		result = farlog_submit(leg->far, &step->entries[step->end], &said->position);
		if (result == FARLOG_OK)
			run->end_lsn = said->position.end_lsn;
		return result;
	}
	result = route_put_into_spill(
		step, i, step->end, run->way == ROUTE_WAY_TURN, run->way == ROUTE_WAY_TURN ? leg->far->ring.next_seq : 0);
	if (result == FARLOG_OK && run->way == ROUTE_WAY_TURN) {
		route_give_turn(leg);
		run->way = ROUTE_WAY_SPILL;
	}
	return result;
}

/* begin_run -- the leg has the record at `end`; what it would take in the spill, should the leg be late. */
static void begin_run(struct route_step *step, unsigned i)
{
	struct route_leg *leg = &step->route->legs[i];
	struct route_run *run = &step->runs[i];
	uint64_t extent;

	run->is_begun = true;
	if (!leg->has_spill || run->way != ROUTE_WAY_DIRECT)
		return;
	if (writer_check_entry(shared_writer(leg->buffer), &step->entries[step->end], &extent) != FARLOG_OK)
		extent = shared_writer(leg->buffer)->identity.capacity; /* it can't go there, and none behind it may */
	run->spill_bytes += extent;
}

void route_start_flush(struct route_step *step, unsigned i)
{
	struct farlog_writer *far = step->route->legs[i].far;

	if (step->runs[i].way == ROUTE_WAY_DIRECT && writer_pump(far) == FARLOG_OK)
		region_push(far->region);
}

/* post -- write the record at `end` to all required legs; with the last one of the call each leg's flush starts at
 * once. Not OK: the very first leg refused, nothing was written. */
static int post(struct route_step *step)
{
	struct farlog_route_position *position = &step->positions[step->end];
	bool is_last = step->end + 1 == step->count;
	bool is_written = false;

	ROUTE_EACH(i, position->required)
	{
		int result = post_to(step, i);

		position->legs[i].result = result == FARLOG_IO ? FARLOG_CLOSED : result;
		if (result != FARLOG_OK && !is_written)
			return position->legs[i].result;
		step->is_torn |= result != FARLOG_OK;
		if (result != FARLOG_OK)
			continue;
		is_written = true;
		begin_run(step, i);
		if (is_last)
			route_start_flush(step, i);
	}
	ROUTE_EACH(i, position->required)
	atomic_add(&step->route->legs[i].counters.offered_count, 1);
	return FARLOG_OK;
}

static void offer_optional(struct route_step *step)
{
	struct farlog_route_position *position = &step->positions[step->end];

	ROUTE_EACH(i, position->optional)
	{
		struct route_leg *leg = &step->route->legs[i];

		if (route_offer(leg, &step->entries[step->end], &position->legs[i]) != FARLOG_OK)
			position->dropped |= 1u << i;
	}
}

/* fill_group -- from `end` on. OK: it is full, or has to end here; else the record at `end` was refused. */
static int fill_group(struct route_step *step)
{
	int result = FARLOG_OK;

	while (step->end < step->count && step->end - step->first < ROUTE_GROUP_COUNT && result == FARLOG_OK &&
		!step->is_torn) {
		if (route_select(step)) {
			result = route_find_room(step);
			if (result == FARLOG_OK)
				result = post(step);
			if (result == FARLOG_OK)
				offer_optional(step);
		}
		step->end += result == FARLOG_OK;
	}
	return result == ROUTE_GROUP_ENDS ? FARLOG_OK : result;
}

/* conclude -- the worst of the required legs. */
static int conclude(struct farlog_route_position *position)
{
	uint32_t level = FARLOG_LEVEL_ARCHIVED;

	ROUTE_EACH(i, position->required)
	{
		const struct farlog_route_result *said = &position->legs[i];

		if (said->result != FARLOG_OK)
			return FARLOG_UNKNOWN;
		if (said->position.level < level)
			level = said->position.level;
	}
	if (position->required != 0)
		position->level = level;
	return FARLOG_OK;
}

/* run_group -- write it, wait for it. *done is raised by the leading records that are acknowledged. */
static int run_group(struct route_step *step, size_t *done)
{
	int refused, result = FARLOG_OK;

	memset(step->runs, 0, sizeof(step->runs[0]) * step->route->leg_count);
	step->first = step->end;
	step->group_ns = 0;
	refused = fill_group(step);
	for (unsigned i = 0; i < step->route->leg_count && step->end < step->count; i++)
		if (step->runs[i].is_begun)
			route_start_flush(step, i);
	route_await(step);
	for (size_t index = step->first; index < step->end; index++) {
		if (conclude(&step->positions[index]) != FARLOG_OK)
			result = FARLOG_UNKNOWN;
		*done += result == FARLOG_OK;
	}
	return result != FARLOG_OK ? result : refused;
}

int farlog_route_append(farlog_route *route, const struct farlog_entry *entry, uint32_t criticality,
	uint64_t deadline_ns, struct farlog_route_position *position)
{
	struct route_step step = {.route = route,
		.entries = entry,
		.criticalities = &criticality,
		.positions = position,
		.count = 1,
		.start_ticks = clock_ticks(),
		.deadline_ns = deadline_ns};
	size_t done = 0;

	if (!route_select(&step))
		return route->is_closed ? FARLOG_CLOSED : FARLOG_NOT_FOUND;
	return route->is_closed ? FARLOG_CLOSED : run_group(&step, &done);
}

int farlog_route_append_batch(farlog_route *route, const struct farlog_entry *entries, const uint32_t *criticalities,
	size_t count, uint64_t deadline_ns, struct farlog_route_position *positions, size_t *done, size_t *submitted)
{
	struct route_step step = {.route = route,
		.entries = entries,
		.criticalities = criticalities,
		.positions = positions,
		.count = count,
		.start_ticks = clock_ticks(),
		.start_ns = clock_monotonic_ns(),
		.deadline_ns = deadline_ns};
	int result = route->is_closed ? FARLOG_CLOSED : FARLOG_OK;

	*done = 0;
	while (step.end < count && result == FARLOG_OK)
		result = run_group(&step, done);
	*submitted = step.end;
	return result;
}

/* resolve_leg -- one of which it is not known. */
static int resolve_leg(struct route_leg *leg, struct farlog_route_result *said, uint64_t deadline_ns)
{
	struct farlog_position found;
	int result;

	if (said->is_buffered)
		result = farlog_shared_resolve(leg->buffer, said->position.lsn, deadline_ns, &found);
	else if (leg->buffer != NULL && !route_take_turn(leg))
		return FARLOG_UNKNOWN; /* its carrier has the ring: what is put into the spill now stands behind it */
	else
		result = farlog_resolve(leg->far, said->position.lsn, deadline_ns, &found);
	if (result == FARLOG_OK)
		said->position = found;
	return result;
}

int farlog_route_resolve(farlog_route *route, struct farlog_route_position *position, uint64_t deadline_ns)
{
	uint32_t level = FARLOG_LEVEL_ARCHIVED;
	int result = FARLOG_OK;

	if (route->is_closed)
		return FARLOG_CLOSED;
	ROUTE_EACH(i, position->required)
	{
		struct farlog_route_result *said = &position->legs[i];

		if (said->result == FARLOG_UNKNOWN)
			said->result = resolve_leg(&route->legs[i], said, deadline_ns);
		if (said->result == FARLOG_OK)
			level = said->position.level < level ? said->position.level : level;
		else if (said->result == FARLOG_UNKNOWN)
			result = FARLOG_UNKNOWN;
		else if (result == FARLOG_OK)
			result = FARLOG_NOT_FOUND;
	}
	position->level = result == FARLOG_OK && position->required != 0 ? level : FARLOG_LEVEL_NONE;
	return result;
}

static bool is_behind(struct route_leg *leg)
{
	return leg->buffer != NULL &&
		(!route_tell_gap(leg) || atomic_load_acquire(&leg->carried_lsn) != shared_published_lsn(leg->buffer));
}

int farlog_route_catch_up(farlog_route *route, uint64_t deadline_ns)
{
	uint64_t until_ns = clock_after_ns(deadline_ns);
	int result = FARLOG_OK;

	for (unsigned i = 0; i < route->leg_count; i++)
		while (!route->is_ended && is_behind(&route->legs[i])) {
			/* nothing more is carried, however long it is waited for */
			if (atomic_load_acquire(&route->legs[i].state) == FARLOG_LEG_FENCED) {
				result = FARLOG_UNKNOWN;
				break;
			}
			if (clock_monotonic_ns() >= until_ns)
				return FARLOG_UNKNOWN;
			if (route->is_threaded)
				nanosleep(&(struct timespec){0, CATCH_UP_NAP_NS}, NULL);
			else
				(void)route_carry(&route->legs[i]);
		}
	return result;
}

int farlog_route_stats(const farlog_route *route, uint32_t index, struct farlog_leg_stats *stats)
{
	struct route_leg *leg;

	memset(stats, 0, sizeof(*stats));
	if (index >= route->leg_count)
		return FARLOG_INVALID;
	leg = (struct route_leg *)&route->legs[index];
	stats->state = (uint32_t)atomic_load_acquire(&leg->state);
	stats->is_required = leg->is_required;
#define COPY_COUNTER(name, kind, help) stats->name = atomic_load_relaxed(&leg->counters.name);
	FARLOG_LEG_COUNTER_TABLE(COPY_COUNTER)
#undef COPY_COUNTER
	if (leg->buffer != NULL)
		stats->behind_bytes = shared_published_lsn(leg->buffer) - atomic_load_acquire(&leg->carried_lsn);
	memcpy(stats->name, leg->name, sizeof(stats->name));
	pthread_mutex_lock(&leg->text_lock);
	memcpy(stats->text, leg->text, sizeof(stats->text));
	pthread_mutex_unlock(&leg->text_lock);
	return FARLOG_OK;
}
