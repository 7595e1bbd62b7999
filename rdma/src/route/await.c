/* route/await.c -- waiting for what a group has written to its required legs, all together, and what becomes of those
 * that do not answer in time. */
#include "route/step.h"

#include <poll.h>
#include <time.h>

#include "base/err.h"
#include "log/late.h"

#define SPIN_NS 20000u
#define NAP_NS 50000u
#define NAP_LAST_NS 1000000u
#define SLEEPER_COUNT 4u

/* look -- at one leg that is waited for. NOT_YET: go on. */
static int look(struct route_step *step, unsigned i)
{
	struct farlog_writer *far = step->route->legs[i].far;
	uint64_t end_lsn = step->runs[i].end_lsn;
	int result = far->durable_lsn >= end_lsn ? FARLOG_OK : writer_pump(far);

	if (far->durable_lsn >= end_lsn)
		return FARLOG_OK;
	region_push(far->region);
	if (result == FARLOG_OK)
		result = writer_shut_out(far);
	return result == FARLOG_OK ? FARLOG_NOT_YET : result;
}

/* sleep_for -- until one of several regions may have something, or a moment. */
static void sleep_for(struct route_step *step, uint32_t pending, uint64_t left_ns)
{
	struct pollfd fds[SLEEPER_COUNT * FARLOG_ROUTE_LEG_COUNT_MAX];
	unsigned count = 0;
	bool is_blind = false;
	uint64_t nap_ns;

	ROUTE_EACH(i, pending)
	{
		struct region *region = step->route->legs[i].far->region;
		int found[SLEEPER_COUNT];
		unsigned found_count = region->ops->data.sleepers(region, found, SLEEPER_COUNT);

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
static void pause_for(struct route_step *step, uint32_t pending, uint64_t now_ns, uint64_t until_ns)
{
	unsigned first = (unsigned)__builtin_ctz(pending);
	struct farlog_writer *far = step->route->legs[first].far;

	if ((pending & (pending - 1)) == 0 && !far->region->caps.is_spinning)
		far->region->ops->data.wait(far->region, until_ns - now_ns);
	else if (now_ns - step->start_ns < SPIN_NS || far->wait == FARLOG_WAIT_SPIN)
		cpu_relax();
	else
		sleep_for(step, pending, until_ns - now_ns);
}

/* acknowledge -- the leg's ring has all of the group. */
static void acknowledge(struct route_step *step, unsigned i)
{
	struct farlog_writer *far = step->route->legs[i].far;
	uint64_t ticks = clock_ticks();

	if (ticks - far->hint_ticks > far->hint_interval_ticks)
		writer_hint(far, ticks, far->ring.appended_lsn, far->durable_lsn);
	stats_latency(far->counters, clock_elapsed_ns(ticks - step->start_ticks));
}

/* has_posted -- the record is in this leg's run, not refused by it. */
static bool has_posted(const struct route_step *step, size_t index, unsigned i)
{
	const struct farlog_route_position *position = &step->positions[index];

	return (position->required >> i & 1) != 0 && position->legs[i].result == FARLOG_OK &&
		position->legs[i].position.end_lsn != 0;
}

/* spill_run -- a leg that did not answer in time: its spill takes, in their order, the records from `from` on that are
 * not known to be in the leg's ring, which may have them as well. Those that find no place there stay unknown. */
static void spill_run(struct route_step *step, unsigned i, size_t from)
{
	struct route_leg *leg = &step->route->legs[i];
	bool is_first = true;

	for (size_t index = from; index < step->end; index++) {
		struct farlog_route_result *said = &step->positions[index].legs[i];

		if ((step->positions[index].required >> i & 1) == 0 || said->result != FARLOG_UNKNOWN)
			continue;
		if (route_put_into_spill(step, i, index, is_first, said->position.seq) != FARLOG_OK)
			break;
		said->result = FARLOG_OK;
		is_first = false;
	}
	if (!is_first)
		route_give_turn(leg);
}

/* end_direct -- each record of the group: the leg's ring has it; or `result`, from the first one on that it is not
 * known to have. */
static void end_direct(struct route_step *step, unsigned i, int result)
{
	struct route_leg *leg = &step->route->legs[i];
	uint64_t durable_lsn = leg->far->durable_lsn;
	uint8_t copies = writer_copies(leg->far);
	size_t late = step->end;

	if (result == FARLOG_OK)
		acknowledge(step, i);
	for (size_t index = step->first; index < step->end; index++) {
		struct farlog_route_result *said = &step->positions[index].legs[i];

		if (!has_posted(step, index, i))
			continue;
		if (said->position.end_lsn <= durable_lsn) {
			said->position.level = writer_level_at(leg->far, said->position.lsn);
			said->position.copies = copies;
			atomic_add(&leg->counters.acked_count, 1);
			continue;
		}
		late = index < late ? index : late;
		said->result = result;
		if (result == FARLOG_FENCED)
			may_fail(writer_refuse(leg->far, FARLOG_FENCED, &said->position)); /* it only counts */
		else
			atomic_add(&leg->counters.unknown_count, 1);
	}
	if (result == FARLOG_OK || result == FARLOG_FENCED)
		return;
	if (late < step->end && !leg->far->is_failed)
		late_note(leg->far, step->positions[late].legs[i].position.end_lsn, step->start_ns);
	atomic_bump(&leg->far->counters->unknown_count, 1);
	if (leg->has_spill && !writer_is_fenced(leg->far))
		spill_run(step, i, late);
}

/* end_spilled -- what the group has in a spill counts when that has it durably. */
static void end_spilled(struct route_step *step, unsigned i)
{
	struct route_leg *leg = &step->route->legs[i];
	struct farlog_writer *writer = shared_writer(leg->buffer);
	uint64_t durable_lsn = UINT64_MAX;

	if (shared_settle(leg->buffer, step->runs[i].end_lsn, clock_after_ns(writer->deadline_ns)) != FARLOG_OK)
		durable_lsn = shared_durable_lsn(leg->buffer);
	for (size_t index = step->first; index < step->end; index++) {
		struct farlog_route_result *said = &step->positions[index].legs[i];

		if ((step->positions[index].required >> i & 1) == 0 || !said->is_buffered)
			continue;
		if (said->position.end_lsn > durable_lsn) {
			said->result = FARLOG_UNKNOWN;
			continue;
		}
		said->position.level = writer->level;
		said->position.copies = 1;
	}
}

/* has_buffered -- of a leg whose run may have gone both ways: straight on, and the rest to the spill. */
static bool has_buffered(const struct route_step *step, unsigned i)
{
	for (size_t index = step->end; index-- > step->first;)
		if ((step->positions[index].required >> i & 1) != 0 && step->positions[index].legs[i].result == FARLOG_OK)
			return step->positions[index].legs[i].is_buffered != 0;
	return false;
}

static void end_leg(struct route_step *step, unsigned i, int result)
{
	if (step->runs[i].way == ROUTE_WAY_DIRECT)
		end_direct(step, i, result);
	if (step->route->legs[i].has_spill && has_buffered(step, i))
		end_spilled(step, i);
}

/* first_pending -- the legs that have something to be waited for. */
static uint32_t first_pending(const struct route_step *step)
{
	uint32_t pending = 0;

	for (unsigned i = 0; i < step->route->leg_count; i++)
		if (step->runs[i].is_begun && step->runs[i].way == ROUTE_WAY_DIRECT)
			pending |= 1u << i;
	return pending;
}

void route_await(struct route_step *step)
{
	uint32_t pending = first_pending(step);

	while (pending != 0) {
		uint64_t first_until_ns = UINT64_MAX;
		uint64_t now_ns = 0;

		ROUTE_EACH(i, pending)
		{
			uint64_t until_ns;
			int result = look(step, i);

			if (result == FARLOG_NOT_YET) {
				until_ns = route_until(step, i);
				now_ns = now_ns != 0 ? now_ns : clock_monotonic_ns();
				result = now_ns >= until_ns ? FARLOG_UNKNOWN : result;
				first_until_ns = until_ns < first_until_ns ? until_ns : first_until_ns;
			}
			if (result == FARLOG_NOT_YET)
				continue;
			pending &= ~(1u << i);
			step->runs[i].result = result;
		}
		if (pending != 0)
			pause_for(step, pending, now_ns, first_until_ns);
		ROUTE_EACH(i, pending)
		late_look(step->route->legs[i].far);
	}
	for (unsigned i = 0; i < step->route->leg_count; i++)
		if (step->runs[i].is_begun)
			end_leg(step, i, step->runs[i].result);
}
