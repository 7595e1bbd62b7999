/* route/route.c -- appending to the legs that class and criticality select.
 *
 * All required legs are checked before the record is written to any: a rejected record is written nowhere. Then it is
 * written to all of them, their flushes are started, the optional legs are served, and all required legs are waited for
 * together. A batch does so with one group of records after the other. */
#include "route/route.h"

#include <string.h>
#include <time.h>

#include "route/step.h"

#define NAP_NS 50000u
#define CATCH_UP_NAP_NS 200000

/* write_to_leg -- the record at `end`. */
static int write_to_leg(struct route_step *step, unsigned i)
{
	struct route_leg *leg = &step->route->legs[i];
	struct route_run *run = &step->runs[i];
	struct farlog_route_result *outcome = &step->positions[step->end].legs[i];
	int result;

	if (run->path == ROUTE_PATH_DIRECT) {
		result = farlog_submit(leg->writer, &step->entries[step->end], &outcome->position);
		if (result == FARLOG_OK)
			run->end_lsn = outcome->position.end_lsn;
		return result;
	}
	result = route_put_into_spill(step, i, step->end, run->path == ROUTE_PATH_BEGIN_SPILL,
		run->path == ROUTE_PATH_BEGIN_SPILL ? leg->writer->ring.next_seq : 0);
	if (result == FARLOG_OK && run->path == ROUTE_PATH_BEGIN_SPILL) {
		route_pass_ring(leg);
		run->path = ROUTE_PATH_SPILL;
	}
	return result;
}

/* begin_run -- the leg has the record at `end`: count the space that its run would take in the spill. */
static void begin_run(struct route_step *step, unsigned i)
{
	struct route_leg *leg = &step->route->legs[i];
	struct route_run *run = &step->runs[i];
	uint64_t extent;

	run->is_begun = true;
	if (!leg->has_spill || run->path != ROUTE_PATH_DIRECT)
		return;
	if (writer_check_entry(shared_writer(leg->buffer), &step->entries[step->end], 0, &extent) != FARLOG_OK)
		extent =
			shared_writer(leg->buffer)->identity.capacity; /* neither this record nor a later one may go to the spill */
	run->spill_bytes += extent;
}

void route_start_flush(struct route_step *step, unsigned i)
{
	struct farlog_writer *writer = step->route->legs[i].writer;

	if (step->runs[i].path == ROUTE_PATH_DIRECT && writer_advance_flush(writer) == FARLOG_OK)
		region_push(writer->region);
}

/* write_required -- write the record at `end` to all required legs; with the last record of the call start each leg's
 * flush at once. Not OK: the first leg rejected it, nothing was written. */
static int write_required(struct route_step *step)
{
	struct farlog_route_position *position = &step->positions[step->end];
	bool is_last = step->end + 1 == step->count;
	bool is_written = false;

	ROUTE_EACH(i, position->required)
	{
		int result = write_to_leg(step, i);

		position->legs[i].result = result == FARLOG_IO ? FARLOG_CLOSED : result;
		if (result != FARLOG_OK && !is_written)
			return position->legs[i].result;
		step->is_partial |= result != FARLOG_OK;
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

/* fill_group -- with records from `end` on. OK: it is full, or has to end here; else the record at `end` was
 * rejected. */
static int fill_group(struct route_step *step)
{
	int result = FARLOG_OK;

	while (step->end < step->count && step->end - step->first < ROUTE_GROUP_COUNT && result == FARLOG_OK &&
		!step->is_partial) {
		if (route_select(step)) {
			result = route_wait_space(step);
			if (result == FARLOG_OK)
				result = write_required(step);
			if (result == FARLOG_OK)
				offer_optional(step);
		}
		step->end += result == FARLOG_OK;
	}
	return result == ROUTE_GROUP_ENDS ? FARLOG_OK : result;
}

/* acknowledge_record -- its level is the lowest of the required legs. OK or UNKNOWN. */
static int acknowledge_record(struct farlog_route_position *position)
{
	uint32_t level = FARLOG_LEVEL_ARCHIVED;

	ROUTE_EACH(i, position->required)
	{
		const struct farlog_route_result *outcome = &position->legs[i];

		if (outcome->result != FARLOG_OK)
			return FARLOG_UNKNOWN;
		if (outcome->position.level < level)
			level = outcome->position.level;
	}
	if (position->required != 0)
		position->level = level;
	return FARLOG_OK;
}

/* run_group -- write a group and wait for it. *done counts the leading records that are acknowledged. */
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
		if (acknowledge_record(&step->positions[index]) != FARLOG_OK)
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

/* resolve_leg -- whose result is UNKNOWN. */
static int resolve_leg(struct route_leg *leg, struct farlog_route_result *outcome, uint64_t deadline_ns)
{
	struct farlog_position found;
	int result;

	if (outcome->is_buffered)
		result = farlog_shared_resolve(leg->buffer, outcome->position.lsn, deadline_ns, &found);
	else if (leg->buffer != NULL && !route_own_ring(leg))
		return FARLOG_UNKNOWN; /* its carrier owns the ring: a record that is put into the spill now comes later */
	else
		result = farlog_resolve(leg->writer, outcome->position.lsn, deadline_ns, &found);
	if (result == FARLOG_OK)
		outcome->position = found;
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
		struct farlog_route_result *outcome = &position->legs[i];

		if (outcome->result == FARLOG_UNKNOWN)
			outcome->result = resolve_leg(&route->legs[i], outcome, deadline_ns);
		if (outcome->result == FARLOG_OK)
			level = outcome->position.level < level ? outcome->position.level : level;
		else if (outcome->result == FARLOG_UNKNOWN)
			result = FARLOG_UNKNOWN;
		else if (result == FARLOG_OK)
			result = FARLOG_NOT_FOUND;
	}
	position->level = result == FARLOG_OK && position->required != 0 ? level : FARLOG_LEVEL_NONE;
	return result;
}

static bool has_backlog(struct route_leg *leg)
{
	return leg->buffer != NULL &&
		(!route_append_gap(leg) || atomic_load_acquire(&leg->carried_lsn) != shared_published_lsn(leg->buffer));
}

int farlog_route_catch_up(farlog_route *route, uint64_t deadline_ns)
{
	uint64_t until_ns = clock_after_ns(deadline_ns);
	int result = FARLOG_OK;

	for (unsigned i = 0; i < route->leg_count; i++)
		while (!route->is_ended && has_backlog(&route->legs[i])) {
			/* a fenced leg carries nothing more */
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
