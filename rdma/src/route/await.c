/* route/await.c -- waits for the records of a group on all required legs together, and handles legs that are late. */
#include "route/step.h"

#include <poll.h>

#include "base/clock.h"
#include "base/err.h"
#include "log/late.h"

#define SPIN_NS 20000u
#define NAP_NS 50000u
#define NAP_LAST_NS 1000000u
#define SLEEPER_COUNT 4u

/* check_durable -- of one leg that is waited for. NOT_YET: keep waiting. */
static int check_durable(struct route_step *step, unsigned i)
{
	struct farlog_writer *writer = step->route->legs[i].writer;
	uint64_t end_lsn = step->runs[i].end_lsn;
	int result = writer->durable_lsn >= end_lsn ? FARLOG_OK : writer_advance_flush(writer);

	if (writer->durable_lsn >= end_lsn)
		return FARLOG_OK;
	region_push(writer->region);
	if (result == FARLOG_OK)
		result = writer_fenced_result(writer);
	return result == FARLOG_OK ? FARLOG_NOT_YET : result;
}

/* sleep_pending -- until the region of a pending leg may have completed something, for NAP_LAST_NS at most. */
static void sleep_pending(struct route_step *step, uint32_t pending, uint64_t left_ns)
{
	struct pollfd fds[SLEEPER_COUNT * FARLOG_ROUTE_LEG_COUNT_MAX];
	unsigned count = 0;
	bool has_unpollable = false;
	uint64_t nap_ns;

	ROUTE_EACH(i, pending)
	{
		struct region *region = step->route->legs[i].writer->region;
		int found[SLEEPER_COUNT];
		unsigned found_count = region->ops->data.list_wait_fds(region, found, SLEEPER_COUNT);

		has_unpollable |= found_count == 0;
		for (unsigned j = 0; j < found_count; j++)
			fds[count++] = (struct pollfd){.fd = found[j], .events = POLLIN};
	}
	nap_ns = has_unpollable ? NAP_NS : NAP_LAST_NS;
	if (nap_ns > left_ns)
		nap_ns = left_ns;
	(void)clock_poll(fds, count, nap_ns);
}

/* wait_pending -- for a moment, for any of the pending legs. */
static void wait_pending(struct route_step *step, uint32_t pending, uint64_t now_ns, uint64_t until_ns)
{
	unsigned first = (unsigned)__builtin_ctz(pending);
	struct farlog_writer *writer = step->route->legs[first].writer;

	if ((pending & (pending - 1)) == 0 && !writer->region->caps.is_spinning)
		writer->region->ops->data.wait(writer->region, until_ns - now_ns);
	else if (now_ns - step->start_ns < SPIN_NS || writer->wait == FARLOG_WAIT_SPIN)
		cpu_relax();
	else
		sleep_pending(step, pending, until_ns - now_ns);
}

/* record_latency -- and store a hint: the leg's ring has all of the group. */
static void record_latency(struct route_step *step, unsigned i)
{
	struct farlog_writer *writer = step->route->legs[i].writer;
	uint64_t ticks = clock_ticks();

	if (ticks - writer->hint_ticks > writer->hint_interval_ticks)
		writer_store_hints(writer, ticks, writer->ring.appended_lsn, writer->durable_lsn);
	stats_latency(writer->counters, clock_elapsed_ns(ticks - step->start_ticks));
}

/* is_in_run -- the record was written to this leg, and not rejected by it. */
static bool is_in_run(const struct route_step *step, size_t index, unsigned i)
{
	const struct farlog_route_position *position = &step->positions[index];

	return (position->required >> i & 1) != 0 && position->legs[i].result == FARLOG_OK &&
		position->legs[i].position.end_lsn != 0;
}

/* spill_unknown -- of a leg that did not answer in time: put the records from `from` on that are UNKNOWN into its
 * spill, in order; its ring may have them as well. Records that do not fit stay UNKNOWN. */
static void spill_unknown(struct route_step *step, unsigned i, size_t from)
{
	struct route_leg *leg = &step->route->legs[i];
	bool is_first = true;

	for (size_t index = from; index < step->end; index++) {
		struct farlog_route_result *outcome = &step->positions[index].legs[i];

		if ((step->positions[index].required >> i & 1) == 0 || outcome->result != FARLOG_UNKNOWN)
			continue;
		if (route_put_into_spill(step, i, index, is_first, outcome->position.seq) != FARLOG_OK)
			break;
		outcome->result = FARLOG_OK;
		is_first = false;
	}
	if (!is_first)
		route_pass_ring(leg);
}

/* finish_direct -- results of the records that were appended directly: OK as far as the ring is durable, `result`
 * behind that. */
static void finish_direct(struct route_step *step, unsigned i, int result)
{
	struct route_leg *leg = &step->route->legs[i];
	uint64_t durable_lsn = leg->writer->durable_lsn;
	uint8_t copies = writer_copies(leg->writer);
	size_t unconfirmed = step->end;

	if (result == FARLOG_OK)
		record_latency(step, i);
	for (size_t index = step->first; index < step->end; index++) {
		struct farlog_route_result *outcome = &step->positions[index].legs[i];

		if (!is_in_run(step, index, i))
			continue;
		if (outcome->position.end_lsn <= durable_lsn) {
			outcome->position.level = writer_level_at(leg->writer, outcome->position.lsn);
			outcome->position.copies = copies;
			atomic_add(&leg->counters.acked_count, 1);
			continue;
		}
		unconfirmed = index < unconfirmed ? index : unconfirmed;
		outcome->result = result;
		if (result == FARLOG_FENCED)
			may_fail(
				writer_reject_append(leg->writer, FARLOG_FENCED, &outcome->position)); /* only counts the rejection */
		else
			atomic_add(&leg->counters.unknown_count, 1);
	}
	if (result == FARLOG_OK || result == FARLOG_FENCED)
		return;
	atomic_bump(&leg->writer->counters->unknown_count, 1);
	if (leg->has_spill && !writer_is_fenced(leg->writer))
		spill_unknown(step, i, unconfirmed);
}

/* finish_spilled -- records in a spill are acknowledged when they are durable there. */
static void finish_spilled(struct route_step *step, unsigned i)
{
	struct route_leg *leg = &step->route->legs[i];
	struct farlog_writer *writer = shared_writer(leg->buffer);
	uint64_t durable_lsn = UINT64_MAX;

	if (shared_wait_durable(leg->buffer, step->runs[i].end_lsn, clock_after_ns(writer->deadline_ns)) != FARLOG_OK)
		durable_lsn = shared_durable_lsn(leg->buffer);
	for (size_t index = step->first; index < step->end; index++) {
		struct farlog_route_result *outcome = &step->positions[index].legs[i];

		if ((step->positions[index].required >> i & 1) == 0 || !outcome->is_buffered)
			continue;
		if (outcome->position.end_lsn > durable_lsn) {
			outcome->result = FARLOG_UNKNOWN;
			continue;
		}
		outcome->position.level = writer->level;
		outcome->position.copies = 1;
	}
}

/* has_spilled -- did the last record of the leg go to the spill? The first ones may have been appended directly. */
static bool has_spilled(const struct route_step *step, unsigned i)
{
	for (size_t index = step->end; index-- > step->first;)
		if ((step->positions[index].required >> i & 1) != 0 && step->positions[index].legs[i].result == FARLOG_OK)
			return step->positions[index].legs[i].is_buffered != 0;
	return false;
}

static void finish_leg(struct route_step *step, unsigned i, int result)
{
	if (step->runs[i].path == ROUTE_PATH_DIRECT)
		finish_direct(step, i, result);
	if (step->route->legs[i].has_spill && has_spilled(step, i))
		finish_spilled(step, i);
}

/* find_pending -- the legs with records that were appended directly. */
static uint32_t find_pending(const struct route_step *step)
{
	uint32_t pending = 0;

	for (unsigned i = 0; i < step->route->leg_count; i++)
		if (step->runs[i].is_begun && step->runs[i].path == ROUTE_PATH_DIRECT)
			pending |= 1u << i;
	return pending;
}

/* check_deadline -- of a leg that is not durable: NOT_YET, or UNKNOWN at its deadline, which makes it late from now
 * on, however long other legs are waited for. */
static int check_deadline(struct route_step *step, unsigned i, uint64_t *now_ns, uint64_t *first_until_ns)
{
	uint64_t until_ns = route_until(step, i);

	*now_ns = *now_ns != 0 ? *now_ns : clock_monotonic_ns();
	if (*now_ns < until_ns) {
		*first_until_ns = until_ns < *first_until_ns ? until_ns : *first_until_ns;
		return FARLOG_NOT_YET;
	}
	late_begin(step->route->legs[i].writer, step->runs[i].end_lsn, step->start_ns);
	return FARLOG_UNKNOWN;
}

void route_await(struct route_step *step)
{
	uint32_t pending = find_pending(step);

	while (pending != 0) {
		uint64_t first_until_ns = UINT64_MAX;
		uint64_t now_ns = 0;

		ROUTE_EACH(i, pending)
		{
			int result = check_durable(step, i);

			if (result == FARLOG_NOT_YET)
				result = check_deadline(step, i, &now_ns, &first_until_ns);
			if (result == FARLOG_NOT_YET)
				continue;
			pending &= ~(1u << i);
			step->runs[i].result = result;
		}
		if (pending != 0)
			wait_pending(step, pending, now_ns, first_until_ns);
		ROUTE_EACH(i, pending)
		late_touch(step->route->legs[i].writer);
	}
	for (unsigned i = 0; i < step->route->leg_count; i++)
		if (step->runs[i].is_begun)
			finish_leg(step, i, step->runs[i].result);
}
