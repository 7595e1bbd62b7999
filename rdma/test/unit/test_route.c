/* Routes: which legs take a record, what the append says, and what becomes of what a leg's ring cannot take. The tests
 * carry by hand, but for those that are named after threads. */
#include "ring/layout.h"
#include "ring/record.h"
#include "route/route.h"
#include "failing_read.h"
#include "legs.h"

static const struct farlog_class_range orders[] = {{1, 3}, {9, 9}};

static void route__selects_by_class_and_criticality(void **state)
{
	struct farlog_route_leg legs[3] = {legs_leg_of("all", unit_tmpfs_uri("all")),
		legs_leg_of("orders", unit_tmpfs_uri("orders")), legs_leg_of("grave", unit_tmpfs_uri("grave"))};
	struct farlog_route_position position;
	farlog_route *route;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		unit_format(legs[i].uri, SIZE, 0);
		legs[i].is_required = 1;
	}
	legs[1].classes = orders;
	legs[1].class_count = 2;
	legs[2].criticality_min = 5;
	route = legs_open_legs(legs, 3, false);
	assert_int_equal(legs_append(route, 2, 0, 1, &position), FARLOG_OK);
	assert_int_equal(position.required, 3);
	assert_int_equal(position.level, FARLOG_LEVEL_VISIBLE);
	assert_int_equal(legs_append(route, 4, 5, 2, &position), FARLOG_OK);
	assert_int_equal(position.required, 5);
	assert_int_equal(legs_append(route, 9, 4, 3, &position), FARLOG_OK);
	assert_int_equal(position.required, 3);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	legs_assert_numbers(legs[0].uri, 1, 3);
	legs_assert_numbers(legs[2].uri, 2, 2);
}

static void route__no_leg_takes_it(void **state)
{
	struct farlog_route_leg leg = legs_leg_of("orders", unit_tmpfs_uri("orders"));
	struct farlog_route_position position;
	farlog_route *route;

	(void)state;
	unit_format(leg.uri, SIZE, 0);
	leg.is_required = 1;
	leg.classes = orders;
	leg.class_count = 2;
	route = legs_open_legs(&leg, 1, false);
	assert_int_equal(legs_append(route, 7, 9, 1, &position), FARLOG_NOT_FOUND);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
}

/* A refusal by one means that none has it. */
static void route__one_required_leg_full(void **state)
{
	struct farlog_route_leg legs[2] = {
		legs_leg_of("wide", unit_tmpfs_uri("wide")), legs_leg_of("narrow", unit_tmpfs_uri("narrow"))};
	struct farlog_route_position position;
	farlog_route *route;
	uint64_t number = 0;
	int result;

	(void)state;
	unit_format(legs[0].uri, 4 * SIZE, 0);
	unit_format(legs[1].uri, SIZE, 0);
	legs[0].is_required = legs[1].is_required = 1;
	legs[1].config.deadline_ns = 1000000;
	route = legs_open_legs(legs, 2, false);
	while ((result = legs_append(route, 1, 0, number + 1, &position)) == FARLOG_OK)
		number++;
	assert_int_equal(result, FARLOG_FULL);
	assert_int_equal(position.legs[0].result, FARLOG_OK);
	assert_int_equal(position.legs[1].result, FARLOG_FULL);
	assert_int_equal(position.level, FARLOG_LEVEL_NONE);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	legs_assert_numbers(legs[0].uri, 1, number);
	legs_assert_numbers(legs[1].uri, 1, number);
}

static void route__required_leg_fenced(void **state)
{
	struct farlog_route_leg legs[2] = {legs_leg_of("a", unit_tmpfs_uri("a")), legs_leg_of("b", unit_tmpfs_uri("b"))};
	struct farlog_route_position position;
	struct farlog_error error;
	farlog_route *route;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		unit_format(legs[i].uri, SIZE, 0);
		legs[i].is_required = 1;
	}
	route = legs_open_legs(legs, 2, false);
	assert_int_equal(legs_append(route, 1, 0, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_ring_fence(legs[1].uri, 7, &error), FARLOG_OK);
	assert_int_equal(legs_append(route, 1, 0, 2, &position), FARLOG_FENCED);
	assert_int_equal(position.legs[1].position.epoch, 7);
	(void)farlog_route_close(route, 0);
	legs_assert_numbers(legs[0].uri, 1, 1);
}

static void route__too_large_for_one_leg(void **state)
{
	struct farlog_route_leg legs[2] = {legs_leg_of("a", unit_tmpfs_uri("a")), legs_leg_of("b", unit_tmpfs_uri("b"))};
	struct farlog_route_position position;
	uint8_t payload[2000] = {0};
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload)};
	farlog_route *route;

	(void)state;
	unit_format(legs[0].uri, SIZE, 4096);
	unit_format(legs[1].uri, SIZE, 1024);
	legs[0].is_required = legs[1].is_required = 1;
	route = legs_open_legs(legs, 2, false);
	assert_int_equal(farlog_route_append(route, &entry, 0, 0, &position), FARLOG_TOO_LARGE);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	assert_int_equal(legs_numbers_in(legs[0].uri, NULL, 0, NULL), 0);
}

/* One of two has it, the other never answers: not known, and by the deadline. Then it answers. */
static void route__one_required_leg_unknown(void **state)
{
	struct farlog_route_leg legs[2] = {
		legs_leg_of("a", legs_fault_ring("fault:route-a", 3)), legs_leg_of("b", legs_fault_ring("fault:route-b", 5))};
	struct farlog_route_position position;
	farlog_route *route;

	(void)state;
	legs[0].is_required = legs[1].is_required = 1;
	legs[0].config.level = legs[1].config.level = FARLOG_LEVEL_PERSISTENT;
	route = legs_open_legs(legs, 2, false);
	farlog_fault_set_slowness("route-b", 256);
	assert_int_equal(legs_append(route, 1, 0, 1, &position), FARLOG_UNKNOWN);
	assert_int_equal(position.legs[0].result, FARLOG_OK);
	assert_int_equal(position.legs[1].result, FARLOG_UNKNOWN);
	assert_int_equal(farlog_route_resolve(route, &position, 1000000), FARLOG_UNKNOWN);
	farlog_fault_set_slowness("route-b", 128);
	assert_int_equal(farlog_route_resolve(route, &position, SECOND_NS), FARLOG_OK);
	assert_int_equal(position.level, FARLOG_LEVEL_PERSISTENT);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
}

static void route__bad_configuration(void **state)
{
	struct farlog_route_leg good = legs_leg_of("good", "mem:/nowhere");
	struct farlog_class_range backwards = {3, 1};
	struct farlog_error error;
	farlog_route *route;
	struct {
		struct farlog_route_leg leg;
		const char *word;
	} cases[] = {{good, "x"}, {good, "x"}, {good, "x"}, {good, "x"}, {good, "x"}, {good, "x"}};

	(void)state;
	cases[0].leg.name = "", cases[0].word = "name";
	cases[1].leg.uri = NULL, cases[1].word = "either a uri or an open writer";
	cases[2].leg.is_required = 1, cases[2].leg.policy = FARLOG_ROUTE_DROP, cases[2].word = "policy drop";
	cases[3].leg.policy = FARLOG_ROUTE_SPILL, cases[3].word = "without spill_uri";
	cases[4].leg.classes = &backwards, cases[4].leg.class_count = 1, cases[4].word = "lower one first";
	cases[5].leg.policy = FARLOG_ROUTE_SPILL, cases[5].leg.spill_uri = "ofi:tcp://a:1/x",
	cases[5].word = "of this host";
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct farlog_route_config config = {.name = "r", .legs = &cases[i].leg, .leg_count = 1};

		assert_int_equal(farlog_route_open(&config, &route, &error), FARLOG_INVALID);
		assert_non_null(strstr(error.text, cases[i].word));
		assert_null(route);
	}
}

/* All policies with their threads, beside each other. Under ThreadSanitizer as well. */
static void route__threads_carry_while_appends_go_on(void **state)
{
	struct farlog_route_leg legs[4] = {legs_leg_of("a", unit_tmpfs_uri("a")), legs_leg_of("b", unit_tmpfs_uri("b")),
		legs_leg_of("c", unit_tmpfs_uri("c")), legs_leg_of("d", unit_tmpfs_uri("d"))};
	struct farlog_route_position position;
	struct farlog_leg_stats stats;
	farlog_route *route;

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		unit_format(legs[i].uri, 16 * SIZE, 0);
	legs[0].is_required = legs[1].is_required = 1;
	legs[1].policy = legs[2].policy = FARLOG_ROUTE_SPILL;
	legs[1].spill_uri = unit_tmpfs_uri("spill-b");
	legs[2].spill_uri = unit_tmpfs_uri("spill-c");
	legs[1].spill_level = legs[2].spill_level = FARLOG_LEVEL_VISIBLE;
	legs[3].policy = FARLOG_ROUTE_DROP;
	legs[3].buffer_bytes = 16 * SIZE;
	legs[1].buffer_bytes = legs[2].buffer_bytes = SIZE * 16;
	route = legs_open_legs(legs, 4, true);
	for (uint64_t i = 1; i <= 2000; i++) {
		assert_int_equal(legs_append(route, 1, 0, i, &position), FARLOG_OK);
		assert_int_equal(position.level, FARLOG_LEVEL_VISIBLE);
		if (i % 100 == 0)
			assert_int_equal(farlog_route_stats(route, 1, &stats), FARLOG_OK);
	}
	assert_int_equal(farlog_route_close(route, 20 * SECOND_NS), FARLOG_OK);
	for (unsigned i = 0; i < 4; i++)
		legs_assert_numbers(legs[i].uri, 1, 2000);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(route__selects_by_class_and_criticality),
	cmocka_unit_test(route__no_leg_takes_it),
	cmocka_unit_test(route__one_required_leg_full),
	cmocka_unit_test(route__required_leg_fenced),
	cmocka_unit_test(route__too_large_for_one_leg),
	cmocka_unit_test(route__one_required_leg_unknown),
	cmocka_unit_test(route__bad_configuration),
	cmocka_unit_test(route__threads_carry_while_appends_go_on),
};

RUN_GROUP(route, tests)
