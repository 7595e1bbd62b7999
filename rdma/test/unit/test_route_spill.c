/* Routes whose legs cannot take a record at once: it goes through a spill or is counted as a gap. */
#include "ring/layout.h"
#include "ring/record.h"
#include "route/route.h"
#include "failing_read.h"
#include "legs.h"

/* The spill takes what comes late, the ring gets it once although it had it already, and then records go straight on
 * again. */
static void route__required_leg_spills_and_comes_back(void **state)
{
	struct farlog_route_leg leg = legs_leg_of("far", legs_fault_ring("fault:route-far", 7));
	struct farlog_route_position position;
	struct farlog_leg_stats stats;
	farlog_route *route;

	(void)state;
	farlog_fault_drop("route-spill");
	leg.is_required = 1;
	leg.policy = FARLOG_ROUTE_SPILL;
	leg.spill_uri = "fault:route-spill";
	leg.buffer_bytes = SIZE;
	leg.config.level = FARLOG_LEVEL_PERSISTENT;
	route = legs_open_legs(&leg, 1, false);
	assert_int_equal(farlog_route_catch_up(route, SECOND_NS), FARLOG_OK);
	assert_false(route_carry(&route->legs[0]));
	assert_int_equal(legs_append(route, 1, 0, 1, &position), FARLOG_OK);
	assert_int_equal(position.legs[0].is_buffered, 0);
	farlog_fault_set_slowness("route-far", 256);
	assert_int_equal(legs_append(route, 1, 0, 2, &position), FARLOG_OK);
	assert_int_equal(position.legs[0].is_buffered, 1);
	assert_int_equal(legs_append(route, 1, 0, 3, &position), FARLOG_OK);
	assert_int_equal(position.legs[0].is_buffered, 1);
	assert_int_equal(farlog_route_catch_up(route, 1000000), FARLOG_UNKNOWN);
	farlog_fault_set_slowness("route-far", 128);
	assert_int_equal(farlog_route_catch_up(route, SECOND_NS), FARLOG_OK);
	assert_false(route_carry(&route->legs[0]));
	assert_int_equal(legs_append(route, 1, 0, 4, &position), FARLOG_OK);
	assert_int_equal(position.legs[0].is_buffered, 0);
	assert_int_equal(farlog_route_stats(route, 0, &stats), FARLOG_OK);
	assert_int_equal(stats.spilled_count, 2);
	assert_int_equal(stats.carried_count, 2);
	assert_int_equal(stats.acked_count, 4);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	legs_assert_numbers(leg.uri, 1, 4);
}

/* A spill that cannot be read once, at any of the reads of the next route: what the leg's ring has of it is not
 * appended there again. */
static void route__spill_that_cannot_be_read_once(void **state)
{
	(void)state;
	for (unsigned failing = 1; failing <= 8; failing++) {
		struct farlog_route_leg leg = legs_leg_of("far", legs_fault_ring("fault:route-far", 7));
		struct farlog_route_config config = {.name = "desk7", .legs = &leg, .leg_count = 1};
		struct farlog_route_position position;
		farlog_route *route;

		farlog_fault_drop("route-spill");
		leg.is_required = 1;
		leg.policy = FARLOG_ROUTE_SPILL;
		leg.spill_uri = "fault:route-spill";
		leg.buffer_bytes = SIZE;
		leg.config.level = FARLOG_LEVEL_PERSISTENT;
		route = legs_open_legs(&leg, 1, false);
		assert_int_equal(farlog_route_catch_up(route, SECOND_NS), FARLOG_OK);
		assert_false(route_carry(&route->legs[0]));
		assert_int_equal(legs_append(route, 1, 0, 1, &position), FARLOG_OK);
		farlog_fault_set_slowness("route-far", 256);
		assert_int_equal(legs_append(route, 1, 0, 2, &position), FARLOG_OK);
		assert_int_equal(legs_append(route, 1, 0, 3, &position), FARLOG_OK);
		assert_int_equal(position.legs[0].is_buffered, 1);
		/* they are in its ring, and not yet durable there */
		assert_int_equal(farlog_route_catch_up(route, 1000000), FARLOG_UNKNOWN);
		(void)farlog_route_close(route, 1);
		farlog_fault_set_slowness("route-far", 128);

		unit_failing_reads = failing;
		if (route_open(&config, false, &route, &(struct farlog_error){0}) != FARLOG_OK)
			route = legs_open_legs(&leg, 1, false);
		assert_int_equal(farlog_route_catch_up(route, SECOND_NS), FARLOG_OK);
		unit_failing_reads = 0;
		assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
		legs_assert_numbers(leg.uri, 1, 3);
	}
}

/* Its ring is not even there when the route is opened. */
static void route__required_leg_away_at_opening(void **state)
{
	struct farlog_route_leg leg = legs_leg_of("late", unit_tmpfs_uri("late"));
	struct farlog_route_position position;
	struct farlog_leg_stats stats;
	farlog_route *route;

	(void)state;
	leg.is_required = 1;
	leg.policy = FARLOG_ROUTE_SPILL;
	leg.spill_uri = unit_tmpfs_uri("spill");
	leg.spill_level = FARLOG_LEVEL_VISIBLE;
	leg.buffer_bytes = SIZE;
	route = legs_open_legs(&leg, 1, true);
	for (uint64_t i = 1; i <= 50; i++)
		assert_int_equal(legs_append(route, 1, 0, i, &position), FARLOG_OK);
	assert_int_equal(position.legs[0].is_buffered, 1);
	assert_int_equal(farlog_route_stats(route, 0, &stats), FARLOG_OK);
	assert_int_equal(stats.state, FARLOG_LEG_AWAY);
	assert_non_null(strstr(stats.text, "late"));
	unit_format(leg.uri, SIZE, 0);
	assert_int_equal(farlog_route_catch_up(route, 20 * SECOND_NS), FARLOG_OK);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	legs_assert_numbers(leg.uri, 1, 50);
}

/* A ring that nobody drains: what does not fit waits in the spill, also beyond the end of the process's route, and the
 * next one goes on. */
static void route__spill_is_carried_by_the_next_route(void **state)
{
	struct farlog_route_leg leg = legs_leg_of("small", unit_tmpfs_uri("small"));
	struct farlog_route_position position;
	uint64_t numbers[2048];
	farlog_route *route;
	unsigned carried = 0;
	unsigned openings = 0;
	int result;

	(void)state;
	unit_format(leg.uri, SIZE, 0);
	leg.policy = FARLOG_ROUTE_SPILL;
	leg.spill_uri = unit_tmpfs_uri("spill");
	leg.spill_level = FARLOG_LEVEL_VISIBLE;
	leg.buffer_bytes = 4 * SIZE;
	route = legs_open_legs(&leg, 1, true);
	for (uint64_t i = 1; i <= 1200; i++) {
		assert_int_equal(legs_append(route, 1, 0, i, &position), FARLOG_OK);
		assert_int_equal(position.optional, 1);
		assert_int_equal(position.level, FARLOG_LEVEL_NONE);
		assert_int_equal(position.legs[0].position.level, FARLOG_LEVEL_VISIBLE);
	}
	for (;;) { /* what fits, or what its time allows on a machine that has much else to do */
		result = farlog_route_close(route, 100000000);
		carried += legs_numbers_in(leg.uri, numbers + carried, 2048 - carried, NULL);
		legs_drain_all(leg.uri);
		openings++;
		if (result != FARLOG_UNKNOWN || openings == 200)
			break;
		route = legs_open_legs(&leg, 1, true);
	}
	assert_int_equal(result, FARLOG_OK);
	assert_true(openings >= 3); /* the ring has room for less than half of them */
	assert_int_equal(carried, 1200);
	for (unsigned i = 0; i < 1200; i++)
		assert_int_equal(numbers[i], i + 1);
}

/* What has no room is counted, and the count comes before the next record that has. */
static void route__dropped_records_are_a_gap(void **state)
{
	struct farlog_route_leg legs[2] = {
		legs_leg_of("kept", unit_tmpfs_uri("kept")), legs_leg_of("slow", unit_tmpfs_uri("slow"))};
	struct farlog_route_position position;
	struct farlog_leg_stats stats;
	struct farlog_gap gap = {0};
	uint64_t numbers[2048];
	farlog_route *route;
	unsigned count;
	uint64_t taken = 0;

	(void)state;
	unit_format(legs[0].uri, 4 * SIZE, 0);
	unit_format(legs[1].uri, 4 * SIZE, 0);
	legs[0].is_required = 1;
	legs[1].policy = FARLOG_ROUTE_DROP;
	legs[1].buffer_bytes = SIZE;
	route = legs_open_legs(legs, 2, false);
	for (uint64_t i = 1; i <= 700; i++) {
		assert_int_equal(legs_append(route, 1, 0, i, &position), FARLOG_OK);
		taken += position.dropped == 0;
		assert_int_equal(position.legs[1].result, position.dropped == 0 ? FARLOG_OK : FARLOG_FULL);
	}
	assert_true(taken > 0 && taken < 700);
	while (route_carry(&route->legs[1]))
		;
	assert_int_equal(legs_append(route, 1, 0, 701, &position), FARLOG_OK);
	assert_int_equal(position.dropped, 0);
	assert_int_equal(farlog_route_catch_up(route, SECOND_NS), FARLOG_OK);
	assert_int_equal(farlog_route_stats(route, 1, &stats), FARLOG_OK);
	assert_int_equal(stats.dropped_count, 700 - taken);
	assert_int_equal(stats.gap_count, 1);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	count = legs_numbers_in(legs[1].uri, numbers, 2048, &gap);
	assert_int_equal(count, taken + 1);
	assert_int_equal(numbers[count - 1], 701);
	assert_int_equal(gap.reason, FARLOG_GAP_FULL);
	assert_int_equal(gap.count, 700 - taken);
	assert_int_equal(gap.from_number, taken + 1);
	assert_int_equal(gap.to_number, 700);
	assert_true(gap.from_ts_ns <= gap.to_ts_ns && gap.from_ts_ns != 0);
}

/* What waits in memory alone when a route ends is gone: it is counted as dropped, and nobody waits for a leg that has
 * lost its stream. */
static void route__memory_is_dropped_at_the_end(void **state)
{
	(void)state;
	for (unsigned is_fenced = 0; is_fenced < 2; is_fenced++) {
		struct farlog_route_leg leg = legs_leg_of("gone", is_fenced ? unit_tmpfs_uri("fenced") : "mem:/nowhere/at/all");
		struct farlog_route_position position;
		struct farlog_leg_stats stats;
		farlog_route *route;

		leg.policy = FARLOG_ROUTE_DROP;
		if (is_fenced)
			unit_format(leg.uri, SIZE, 0);
		route = legs_open_legs(&leg, 1, false);
		assert_int_equal(legs_append(route, 1, 0, 1, &position), FARLOG_OK);
		while (route_carry(&route->legs[0]))
			;
		if (is_fenced)
			assert_int_equal(farlog_ring_fence(leg.uri, 9, NULL), FARLOG_OK);
		(void)route_carry(&route->legs[0]);
		for (uint64_t i = 2; i <= 4; i++)
			assert_int_equal(legs_append(route, 1, 0, i, &position), FARLOG_OK);
		assert_int_equal(position.dropped, 0);
		assert_int_equal(position.level, FARLOG_LEVEL_NONE);
		assert_int_equal(farlog_route_end(route, is_fenced ? 1000 * SECOND_NS : SECOND_NS / 100), FARLOG_UNKNOWN);
		assert_int_equal(farlog_route_end(route, 0), FARLOG_CLOSED);
		assert_int_equal(legs_append(route, 1, 0, 5, &position), FARLOG_CLOSED);
		assert_int_equal(farlog_route_stats(route, 0, &stats), FARLOG_OK);
		assert_int_equal(stats.dropped_count, is_fenced ? 3 : 4);
		assert_int_equal(stats.offered_count, stats.acked_count + stats.dropped_count);
		assert_int_equal(stats.behind_bytes, 0);
		assert_int_equal(farlog_route_close(route, 0), FARLOG_UNKNOWN);
	}
}

/* Its ring takes shorter records than its memory: a gap in its place, and the ones around it. */
static void route__carried_record_too_large(void **state)
{
	struct farlog_route_leg leg = legs_leg_of("short", unit_tmpfs_uri("short"));
	struct farlog_route_position position;
	uint8_t payload[3000] = {0};
	struct farlog_entry large = {.data = payload, .len = sizeof(payload), .class_id = 1};
	struct farlog_gap gap = {0};
	farlog_route *route;
	uint64_t numbers[2];

	(void)state;
	unit_format(leg.uri, SIZE, 1024);
	route = legs_open_legs(&leg, 1, false);
	assert_int_equal(legs_append(route, 1, 0, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_route_append(route, &large, 0, 0, &position), FARLOG_OK);
	assert_int_equal(legs_append(route, 1, 0, 2, &position), FARLOG_OK);
	assert_int_equal(farlog_route_close(route, SECOND_NS), FARLOG_OK);
	assert_int_equal(legs_numbers_in(leg.uri, numbers, 2, &gap), 2);
	assert_int_equal(gap.reason, FARLOG_GAP_TOO_LARGE);
}

/* A spill that belongs to another leg is not emptied into this one's ring. */
static void route__spill_of_another_leg(void **state)
{
	struct farlog_route_leg leg = legs_leg_of("mine", unit_tmpfs_uri("ring"));
	struct farlog_route_config config = {.name = "r", .legs = &leg, .leg_count = 1};
	struct farlog_error error;
	farlog_route *route;

	(void)state;
	leg.policy = FARLOG_ROUTE_SPILL;
	leg.spill_uri = unit_tmpfs_uri("spill");
	leg.spill_level = FARLOG_LEVEL_VISIBLE;
	unit_format(leg.spill_uri, SIZE, 0);
	assert_int_equal(farlog_route_open(&config, &route, &error), FARLOG_NOT_A_RING);
	leg.is_required = 1;
	leg.config.level = FARLOG_LEVEL_PERSISTENT;
	leg.spill_uri = unit_tmpfs_uri("other");
	assert_int_equal(farlog_route_open(&config, &route, &error), FARLOG_LEVEL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(route__required_leg_spills_and_comes_back),
	cmocka_unit_test(route__spill_that_cannot_be_read_once),
	cmocka_unit_test(route__required_leg_away_at_opening),
	cmocka_unit_test(route__spill_is_carried_by_the_next_route),
	cmocka_unit_test(route__dropped_records_are_a_gap),
	cmocka_unit_test(route__memory_is_dropped_at_the_end),
	cmocka_unit_test(route__carried_record_too_large),
	cmocka_unit_test(route__spill_of_another_leg),
};
RUN_GROUP(route_spill, tests)
