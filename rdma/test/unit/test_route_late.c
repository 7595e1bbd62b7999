/* The latency of a record on a leg that has not answered by the deadline: until when it counts, and on which leg. The
 * time goes on by looks alone, however busy the machine is. */
#include "adversary/blocks.h"
#include "adversary/clock.h"
#include "ring/layout.h"
#include "route/route.h"
#include "unit.h"

#define SIZE (LAYOUT_DATA_OFF + (64u << 10))
#define SECOND_NS 1000000000ull
#define SHORT_NS 1000000u
#define LONG_NS 4000000u
#define BLOCKS "late-blocks"

static farlog_route *route;

static struct farlog_route_leg leg_of(const char *name, const char *uri)
{
	return (struct farlog_route_leg){.name = name,
		.uri = uri,
		.is_required = 1,
		.config = {.wait = FARLOG_WAIT_SPIN, .deadline_ns = SHORT_NS, .counters_dir = ""}};
}

static const char *fault_ring(const char *uri)
{
	farlog_fault_drop(uri + strlen("fault:"));
	unit_format(uri, SIZE, 0);
	farlog_fault_reseed(uri + strlen("fault:"), unit_random() | 1);
	return uri;
}

/* block_ring -- in a namespace that several hosts reach. */
static const char *block_ring(void)
{
	static const char uri[] = "block-fault:" BLOCKS;

	farlog_block_drop(BLOCKS);
	farlog_block_hosts(1);
	farlog_block_shape(512, 1);
	unit_format(uri, 0x3000u + (64u << 10), 8192);
	farlog_block_hosts(0);
	farlog_block_reseed(BLOCKS, unit_random() | 1);
	return uri;
}

static void begin(const struct farlog_route_leg *legs, uint32_t count)
{
	struct farlog_route_config config = {.name = "desk7", .legs = legs, .leg_count = count};
	struct farlog_error error = {0};

	if (route_open(&config, false, &route, &error) != FARLOG_OK)
		fail_msg("open route: %s", error.text);
	farlog_fault_set_clock(SECOND_NS);
}

static void end(void)
{
	farlog_fault_set_clock(0);
	(void)farlog_route_close(route, 0);
}

static int append(uint64_t deadline_ns, struct farlog_route_position *position)
{
	struct farlog_entry entry = {.data = "x", .len = 1, .class_id = 1};

	return farlog_route_append(route, &entry, 0, deadline_ns, position);
}

static struct farlog_counters latencies(unsigned leg)
{
	return *route->legs[leg].writer->counters;
}

static const struct region_ops *working;
static uint64_t answers_at_ns; /* UINT64_MAX = never */

static int poll_at_last(struct region *region)
{
	return clock_monotonic_ns() < answers_at_ns ? FARLOG_OK : working->data.poll(region);
}

/* replace_ops -- of a leg's region. Its writer's hints are stored by the clock's thread, which reads them too: that is
 * over before. */
static void replace_ops(unsigned leg, const struct region_ops *ops)
{
	struct farlog_writer *writer = route->legs[leg].writer;

	clock_remove_task(&writer->guest);
	writer->region->ops = ops;
}

/* stick -- the region of this leg tells nothing until that time. */
static void stick(unsigned leg, uint64_t until_ns)
{
	static struct region_ops stuck;
	struct region *region = route->legs[leg].writer->region;

	working = region->ops;
	stuck = *working;
	stuck.data.poll = poll_at_last;
	replace_ops(leg, &stuck);
	answers_at_ns = until_ns;
}

/* What ended UNKNOWN is the longest latency of its leg while it lasts, and one of the latencies when it is over; the
 * time in which nobody waited for it is not. The leg that had answered knows nothing of it. */
static void late__until_somebody_learns_that_it_is_durable(void **state)
{
	struct farlog_route_leg legs[2] = {
		leg_of("a", fault_ring("fault:late-a")), leg_of("b", fault_ring("fault:late-b"))};
	struct farlog_route_position first, second;
	struct region *region;

	(void)state;
	begin(legs, 2);
	stick(1, UINT64_MAX);
	region = route->legs[1].writer->region;
	assert_int_equal(append(SHORT_NS, &first), FARLOG_UNKNOWN);
	assert_int_equal(first.legs[0].result, FARLOG_OK);
	assert_true(latencies(1).latency_max_ns >= SHORT_NS);
	assert_int_equal(append(SHORT_NS, &second), FARLOG_UNKNOWN);
	assert_true(latencies(1).latency_max_ns >= 2 * SHORT_NS); /* since the first of them */
	assert_int_equal(latencies(1).latency_count, 0);
	assert_int_equal(latencies(0).latency_count, 2);
	region->ops = working;
	while (!region_is_done(region, route->legs[1].writer->persist_tag)) /* without the writer */
		assert_int_equal(working->data.poll(region), FARLOG_OK);
	farlog_fault_set_clock(10 * SECOND_NS); /* nobody asks */
	assert_int_equal(farlog_route_resolve(route, &first, SECOND_NS), FARLOG_OK);
	assert_int_equal(latencies(1).latency_count, 1);
	assert_true(latencies(1).latency_sum_ns >= 2 * SHORT_NS);
	assert_true(latencies(1).latency_sum_ns < SECOND_NS);
	assert_int_equal(latencies(1).latency_max_ns, latencies(1).latency_sum_ns);
	end();
}

/* It is durable while a later append waits, which has waited for it as well. */
static void late__durable_while_a_later_one_waits(void **state)
{
	struct farlog_route_leg leg = leg_of("a", fault_ring("fault:late-a"));
	struct farlog_route_position first, second;

	(void)state;
	begin(&leg, 1);
	stick(0, SECOND_NS + LONG_NS);
	assert_int_equal(append(SHORT_NS, &first), FARLOG_UNKNOWN);
	assert_int_equal(append(SECOND_NS, &second), FARLOG_OK);
	assert_int_equal(latencies(0).latency_count, 2);
	assert_true(latencies(0).latency_max_ns >= LONG_NS - SHORT_NS);
	end();
}

/* A leg that is late by its own deadline is not waited for any more, however long the other one is. */
static void late__while_another_leg_is_waited_for(void **state)
{
	struct farlog_route_leg legs[2] = {
		leg_of("a", fault_ring("fault:late-a")), leg_of("b", fault_ring("fault:late-b"))};
	struct farlog_route_position position;

	(void)state;
	legs[1].config.deadline_ns = LONG_NS;
	begin(legs, 2);
	farlog_fault_set_slowness("late-a", 256);
	farlog_fault_set_slowness("late-b", 256);
	assert_int_equal(append(0, &position), FARLOG_UNKNOWN);
	assert_true(latencies(0).latency_max_ns >= SHORT_NS);
	assert_true(latencies(0).latency_max_ns < LONG_NS);
	assert_true(latencies(1).latency_max_ns >= LONG_NS);
	farlog_fault_set_slowness("late-a", 128);
	farlog_fault_set_slowness("late-b", 128);
	end();
}

static uint64_t longest_wait_ns;

static void wait_briefly(struct region *region, uint64_t timeout_ns)
{
	longest_wait_ns = timeout_ns > longest_wait_ns ? timeout_ns : longest_wait_ns;
	working->data.wait(region, 1);
}

/* A leg that was late says nothing of how long the other one is waited for: until its own deadline. */
static void late__wait_for_another_leg_is_bounded(void **state)
{
	struct farlog_route_leg legs[2] = {leg_of("a", fault_ring("fault:late-a")), leg_of("b", block_ring())};
	struct farlog_route_position position;
	struct region_ops waited;

	(void)state;
	legs[0].config.deadline_ns = SHORT_NS + 500; /* it is over between two looks at the clock */
	legs[1].config.deadline_ns = LONG_NS;
	begin(legs, 2);
	farlog_fault_set_slowness("late-a", 256);
	farlog_block_trouble(BLOCKS, 1, 0);
	working = route->legs[1].writer->region->ops;
	waited = *working;
	waited.data.wait = wait_briefly;
	replace_ops(1, &waited);
	assert_int_equal(append(0, &position), FARLOG_UNKNOWN);
	assert_true(longest_wait_ns > 0);
	assert_true(longest_wait_ns <= LONG_NS);
	farlog_fault_set_slowness("late-a", 128);
	farlog_block_trouble(BLOCKS, 0, 0);
	end();
}

/* What a fence ended was not waited for until a deadline: it has no latency, whether it is there or not. */
static void late__not_when_a_fence_ended_it(void **state)
{
	struct farlog_route_leg leg = leg_of("a", block_ring());
	struct farlog_route_position position;

	(void)state;
	farlog_block_host(1);
	leg.config.deadline_ns = 3600 * SECOND_NS;
	begin(&leg, 1);
	farlog_fault_set_clock(0);
	farlog_block_host(2);
	for (unsigned takeover = 0; takeover < 3; takeover++) /* the third hides where the log of ours ended */
		assert_int_equal(farlog_writer_close(unit_open(leg.uri)), FARLOG_OK);
	farlog_block_host(0);
	farlog_fault_set_clock(SECOND_NS);
	assert_int_equal(append(0, &position), FARLOG_UNKNOWN);
	assert_int_equal(latencies(0).latency_max_ns, 0);
	end();
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(late__until_somebody_learns_that_it_is_durable),
	cmocka_unit_test(late__durable_while_a_later_one_waits),
	cmocka_unit_test(late__while_another_leg_is_waited_for),
	cmocka_unit_test(late__wait_for_another_leg_is_bounded),
	cmocka_unit_test(late__not_when_a_fence_ended_it),
};
RUN_GROUP(route_late, tests)
