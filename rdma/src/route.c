/* route.c -- one append to the legs that its class and criticality select.
 *
 * First every required leg is asked whether it can take the record, and nothing is written anywhere before all can: a refusal means nowhere. Then it is
 * written to all of them, their flushes started, the optional legs served, and all required ones waited for together. */
#include "route.h"

#include <poll.h>
#include <string.h>
#include <time.h>

#include "err.h"
#include "mutant.h"

#define SPIN_NS 20000u
#define NAP_NS 50000u
#define NAP_LAST_NS 1000000u
#define SLEEPER_COUNT 4u
#define CATCH_UP_NAP_NS 200000

enum way {
	WAY_DIRECT = 0,
	WAY_SPILL = 1,     /* by way of the spill, as the records before it */
	WAY_TURN = 2,      /* it is the first that goes there */
};

/* One append, on its caller's stack. */
struct step {
	struct farlog_route *route;
	const struct farlog_entry *entry;
	struct farlog_route_position *position;
	uint64_t start_ticks;
	uint64_t start_ns;    /* 0 = not looked at yet */
	uint64_t deadline_ns; /* 0 = each leg's own */
	uint8_t ways[FARLOG_ROUTE_LEG_COUNT_MAX];
};

static uint64_t until(struct step *step, unsigned i)
{
	uint64_t duration_ns = atomic_load_relaxed(&step->route->legs[i].deadline_ns);

	if (step->deadline_ns != 0 && (!step->route->legs[i].has_spill || step->deadline_ns < duration_ns))
		duration_ns = step->deadline_ns;
	if (step->start_ns == 0)
		step->start_ns = clock_monotonic_ns();
	return duration_ns > UINT64_MAX - step->start_ns ? UINT64_MAX : step->start_ns + duration_ns;
}

static void select_legs(const struct farlog_route *route, uint16_t class_id, uint32_t criticality, struct farlog_route_position *position)
{
	uint32_t mask = route->class_legs[class_id];

	position->level = FARLOG_LEVEL_NONE;
	position->required = 0;
	position->optional = 0;
	position->dropped = 0;
	ROUTE_EACH(i, mask) {
		if (criticality < route->legs[i].criticality_min)
			continue;
		*(route->legs[i].is_required ? &position->required : &position->optional) |= 1u << i;
		position->legs[i] = (struct farlog_route_result){.result = FARLOG_OK};
	}
}

/* ask_writer -- would it take the record now? */
static int ask_writer(struct farlog_writer *writer, const struct farlog_entry *entry)
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
	return leg->place.uri != NULL ? leg->place.config.policy == FARLOG_POLICY_REJECT : leg->far->policy == FARLOG_POLICY_REJECT;
}

/* ask_leg -- and by which way. A ring that has no room is waited for until the leg's deadline, then the spill takes the record. */
static int ask_leg(struct step *step, unsigned i, bool is_late)
{
	struct route_leg *leg = &step->route->legs[i];
	int result = FARLOG_OK;

	if (atomic_load_acquire(&leg->state) == FARLOG_LEG_FENCED)
		return FARLOG_FENCED;
	step->ways[i] = WAY_SPILL;
	if (leg->buffer == NULL || route_take_turn(leg)) {
		step->ways[i] = WAY_DIRECT;
		result = ask_writer(leg->far, step->entry);
		if (!leg->has_spill || (result != FARLOG_CLOSED && !(result == FARLOG_FULL && (is_late || does_reject(leg)))))
			return result;
		step->ways[i] = WAY_TURN;
	}
	return route_ask_buffer(leg, step->entry);
}

/* rank -- of several refusals the highest counts. */
static int rank(int result)
{
	switch (result) {
	case FARLOG_OK: return 0;
	case FARLOG_FULL: return 1;
	case FARLOG_INVALID: return 2;
	case FARLOG_TOO_LARGE: return 3;
	case FARLOG_FENCED: return 4;
	default: return 5;
	}
}

/* ask_all -- the worst of the required legs' answers; each one's own is in the position. *is_hopeful: waiting may help. */
static int ask_all(struct step *step, bool *is_hopeful)
{
	int worst = FARLOG_OK;

	*is_hopeful = true;
	ROUTE_EACH(i, step->position->required) {
		struct route_leg *leg = &step->route->legs[i];
		bool is_late = step->start_ns != 0 && clock_monotonic_ns() >= until(step, i);
		int result = ask_leg(step, i, is_late);

		step->position->legs[i].result = result;
		if (result == FARLOG_FULL && (is_late || does_reject(leg)))
			*is_hopeful = false;
		if (rank(result) > rank(worst))
			worst = result;
	}
	return worst;
}

static void count_refusal(struct step *step)
{
	ROUTE_EACH(i, step->position->required) {
		struct route_leg *leg = &step->route->legs[i];
		struct farlog_route_result *said = &step->position->legs[i];

		if (said->result != FARLOG_OK && step->ways[i] == WAY_DIRECT && leg->far != NULL)
			(void)writer_refuse(leg->far, said->result, &said->position);
		else if (said->result == FARLOG_FENCED)
			said->position.epoch = (uint32_t)atomic_load_relaxed(&leg->fenced_epoch);
	}
}

/* find_room -- until all required legs can take the record, or one refuses it. What was submitted before goes on meanwhile. */
static int find_room(struct step *step)
{
	bool is_hopeful;
	int result = ask_all(step, &is_hopeful);

	for (unsigned turns = 0; result == FARLOG_FULL && is_hopeful; turns++) {
		if (step->start_ns == 0)
			step->start_ns = clock_monotonic_ns();
		ROUTE_EACH(i, step->position->required)
			if (step->ways[i] == WAY_DIRECT && writer_pump(step->route->legs[i].far) == FARLOG_OK)
				region_push(step->route->legs[i].far->region);
		if (turns > 50)
			nanosleep(&(struct timespec){0, NAP_NS}, NULL);
		result = ask_all(step, &is_hopeful);
	}
	if (result != FARLOG_OK)
		count_refusal(step);
	return result;
}

/* put_into_spill -- and, for the first one, say there from which seq on the leg's ring may have what is in it. */
static int put_into_spill(struct step *step, unsigned i, uint64_t far_seq)
{
	struct route_leg *leg = &step->route->legs[i];
	struct farlog_route_result *said = &step->position->legs[i];
	int result = FARLOG_OK;

	if (step->ways[i] == WAY_TURN)
		result = route_turn_to_spill(leg, far_seq);
	if (result == FARLOG_OK)
		result = shared_submit(leg->buffer, step->entry, 0, &said->position);
	if (result != FARLOG_OK)
		return result;
	said->is_buffered = 1;
	atomic_add(&leg->counters.spilled_count, 1);
	if (step->ways[i] == WAY_TURN)
		route_give_turn(leg);
	return FARLOG_OK;
}

/* post -- write to all required legs, and start their flushes. False: the very first one refused, nothing was written. */
static int post(struct step *step)
{
	bool is_written = false;

	ROUTE_EACH(i, step->position->required) {
		struct route_leg *leg = &step->route->legs[i];
		struct farlog_route_result *said = &step->position->legs[i];

		said->result = step->ways[i] == WAY_DIRECT ? farlog_submit(leg->far, step->entry, &said->position)
			: put_into_spill(step, i, step->ways[i] == WAY_TURN ? leg->far->ring.next_seq : 0);
		if (said->result != FARLOG_OK && !is_written)
			return said->result == FARLOG_IO ? FARLOG_CLOSED : said->result;
		is_written |= said->result == FARLOG_OK;
		if (said->result == FARLOG_OK && step->ways[i] == WAY_DIRECT && writer_pump(leg->far) == FARLOG_OK)
			region_push(leg->far->region);
	}
	ROUTE_EACH(i, step->position->required)
		atomic_add(&step->route->legs[i].counters.offered_count, 1);
	return FARLOG_OK;
}

static void offer_optional(struct step *step)
{
	ROUTE_EACH(i, step->position->optional) {
		struct route_leg *leg = &step->route->legs[i];

		if (route_offer(leg, step->entry, &step->position->legs[i]) != FARLOG_OK)
			step->position->dropped |= 1u << i;
		for (uint64_t late_ns = clock_after_ns(500000000); MUTANT(OPTIONAL_AWAITED) && clock_monotonic_ns() < late_ns;)
			if (atomic_load_acquire(&leg->carried_lsn) >= shared_published_lsn(leg->buffer) || nanosleep(&(struct timespec){0, NAP_NS}, NULL) != 0)
				break;
	}
}

/* acknowledge -- the leg's ring has it. */
static void acknowledge(struct step *step, unsigned i)
{
	struct route_leg *leg = &step->route->legs[i];
	struct farlog_position *position = &step->position->legs[i].position;
	uint64_t ticks = clock_ticks();

	position->level = leg->far->level;
	position->copies = writer_copies(leg->far);
	if (ticks - leg->far->hint_ticks > leg->far->hint_interval_ticks)
		writer_hint(leg->far, ticks, leg->far->ring.appended_lsn, leg->far->durable_lsn);
	stats_latency(leg->far->counters, clock_elapsed_ns(ticks - step->start_ticks));
	atomic_add(&leg->counters.acked_count, 1);
}

/* look -- at one leg that is waited for. NOT_YET: go on. */
static int look(struct step *step, unsigned i)
{
	struct farlog_writer *far = step->route->legs[i].far;
	uint64_t end_lsn = step->position->legs[i].position.end_lsn;
	int result = far->durable_lsn >= end_lsn ? FARLOG_OK : writer_pump(far);

	if (far->durable_lsn >= end_lsn)
		return FARLOG_OK;
	region_push(far->region);
	if (result == FARLOG_OK)
		result = writer_shut_out(far);
	return result == FARLOG_OK ? FARLOG_NOT_YET : result;
}

/* sleep_for -- until one of several regions may have something, or a moment. */
static void sleep_for(struct step *step, uint32_t pending, uint64_t left_ns)
{
	struct pollfd fds[SLEEPER_COUNT * FARLOG_ROUTE_LEG_COUNT_MAX];
	unsigned count = 0;
	bool is_blind = false;
	uint64_t nap_ns;

	ROUTE_EACH(i, pending) {
		struct region *region = step->route->legs[i].far->region;
		int found[SLEEPER_COUNT];
		unsigned found_count = region->ops->sleepers != NULL ? region->ops->sleepers(region, found, SLEEPER_COUNT) : 0;

		is_blind |= found_count == 0;
		for (unsigned j = 0; j < found_count; j++)
			fds[count++] = (struct pollfd){.fd = found[j], .events = POLLIN};
	}
	nap_ns = is_blind ? NAP_NS : NAP_LAST_NS;
	if (nap_ns > left_ns)
		nap_ns = left_ns;
	(void)ppoll(fds, count, &(struct timespec){0, (long)nap_ns}, NULL);
}

/* pause_for -- the legs that are still waited for. */
static void pause_for(struct step *step, uint32_t pending, uint64_t now_ns, uint64_t until_ns)
{
	unsigned first = (unsigned)__builtin_ctz(pending);
	struct farlog_writer *far = step->route->legs[first].far;

	if ((pending & (pending - 1)) == 0 && far->region->ops->wait != NULL)
		far->region->ops->wait(far->region, until_ns - now_ns);
	else if (now_ns - step->start_ns < SPIN_NS || far->wait == FARLOG_WAIT_SPIN)
		cpu_relax();
	else
		sleep_for(step, pending, until_ns - now_ns);
}

/* await -- all legs that were written directly, together: each until its own deadline. */
static void await(struct step *step)
{
	uint32_t pending = 0;

	ROUTE_EACH(i, step->position->required)
		if (step->ways[i] == WAY_DIRECT && step->position->legs[i].result == FARLOG_OK)
			pending |= 1u << i;
	while (pending != 0) {
		uint64_t first_until_ns = UINT64_MAX;
		uint64_t now_ns = 0;

		ROUTE_EACH(i, pending) {
			struct farlog_route_result *said = &step->position->legs[i];
			uint64_t until_ns;
			int result = look(step, i);

			if (result == FARLOG_NOT_YET) {
				until_ns = until(step, i);
				now_ns = now_ns != 0 ? now_ns : clock_monotonic_ns();
				result = now_ns >= until_ns ? FARLOG_UNKNOWN : result;
				first_until_ns = until_ns < first_until_ns ? until_ns : first_until_ns;
			}
			if (result == FARLOG_NOT_YET)
				continue;
			pending &= ~(1u << i);
			said->result = result;
			if (result == FARLOG_OK)
				acknowledge(step, i);
		}
		if (pending != 0)
			pause_for(step, pending, now_ns, first_until_ns);
	}
}

/* end_direct -- a leg that did not answer in time: its spill takes the record, which the leg's ring may have as well. */
static void end_direct(struct step *step, unsigned i)
{
	struct route_leg *leg = &step->route->legs[i];
	struct farlog_route_result *said = &step->position->legs[i];
	struct farlog_position posted = said->position;

	if (said->result == FARLOG_FENCED) {
		(void)writer_refuse(leg->far, FARLOG_FENCED, &said->position);
		return;
	}
	atomic_bump(&leg->far->counters->unknown_count, 1);
	atomic_add(&leg->counters.unknown_count, 1);
	if (!leg->has_spill || writer_is_fenced(leg->far))
		return;
	step->ways[i] = WAY_TURN;
	if (put_into_spill(step, i, posted.seq) != FARLOG_OK)
		said->position = posted;
	else
		said->result = FARLOG_OK;
}

/* end_spilled -- it counts when the spill has it durably. */
static void end_spilled(struct step *step, unsigned i)
{
	struct route_leg *leg = &step->route->legs[i];
	struct farlog_route_result *said = &step->position->legs[i];
	struct farlog_writer *writer = shared_writer(leg->buffer);

	if (!MUTANT(SPILL_UNFLUSHED) && shared_settle(leg->buffer, said->position.end_lsn, clock_after_ns(writer->deadline_ns)) != FARLOG_OK) {
		said->result = FARLOG_UNKNOWN;
		return;
	}
	said->position.level = writer->level;
	said->position.copies = 1;
}

/* conclude -- the worst of the required legs. */
static int conclude(struct step *step)
{
	struct farlog_route_position *position = step->position;
	uint32_t level = FARLOG_LEVEL_ARCHIVED;
	int result = FARLOG_OK;

	ROUTE_EACH(i, position->required) {
		struct farlog_route_result *said = &position->legs[i];

		if (step->ways[i] == WAY_DIRECT && said->result != FARLOG_OK && said->position.end_lsn != 0)
			end_direct(step, i);
		if (said->is_buffered)
			end_spilled(step, i);
		if (said->result != FARLOG_OK)
			result = FARLOG_UNKNOWN;
		if (said->position.level < level)
			level = said->position.level;
	}
	if (result == FARLOG_OK && position->required != 0)
		position->level = level;
	return result;
}

int farlog_route_append(farlog_route *route, const struct farlog_entry *entry, uint32_t criticality, uint64_t deadline_ns,
	struct farlog_route_position *position)
{
	struct step step = {.route = route, .entry = entry, .position = position, .start_ticks = clock_ticks(), .deadline_ns = deadline_ns};
	int result;

	select_legs(route, entry->class_id, criticality, position);
	if (route->is_closed)
		return FARLOG_CLOSED;
	if ((position->required | position->optional) == 0)
		return FARLOG_NOT_FOUND;
	result = find_room(&step);
	if (result == FARLOG_OK)
		result = post(&step);
	if (result != FARLOG_OK)
		return result;
	offer_optional(&step);
	await(&step);
	return conclude(&step);
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
	ROUTE_EACH(i, position->required) {
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
	return leg->buffer != NULL && (!route_tell_gap(leg) || atomic_load_acquire(&leg->carried_lsn) != shared_published_lsn(leg->buffer));
}

int farlog_route_catch_up(farlog_route *route, uint64_t deadline_ns)
{
	uint64_t until_ns = clock_after_ns(deadline_ns);

	for (unsigned i = 0; i < route->leg_count; i++)
		while (is_behind(&route->legs[i])) {
			if (clock_monotonic_ns() >= until_ns)
				return FARLOG_UNKNOWN;
			if (route->is_threaded)
				nanosleep(&(struct timespec){0, CATCH_UP_NAP_NS}, NULL);
			else
				(void)route_carry(&route->legs[i]);
		}
	return FARLOG_OK;
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
