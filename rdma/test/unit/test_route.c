/* Routes: which legs take a record, what the append says, and what becomes of what a leg's ring cannot take. The tests
 * carry by hand, but for those that are named after threads. */
#include <stdlib.h>

#include "ring/layout.h"
#include "ring/record.h"
#include "route/route.h"
#include "failing_read.h"
#include "unit.h"

#define SIZE (LAYOUT_DATA_OFF + (64u << 10))
#define SECOND_NS 1000000000ull

static const struct farlog_class_range orders[] = {{1, 3}, {9, 9}};

static struct farlog_route_leg leg_of(const char *name, const char *uri)
{
	return (struct farlog_route_leg){.name = name,
		.uri = uri,
		.config = {.level = FARLOG_LEVEL_VISIBLE, .deadline_ns = 20000000, .counters_dir = ""}};
}

static farlog_route *open_legs(const struct farlog_route_leg *legs, uint32_t count, bool is_threaded)
{
	struct farlog_route_config config = {.name = "desk7", .legs = legs, .leg_count = count};
	struct farlog_error error = {0};
	farlog_route *route;

	if (route_open(&config, is_threaded, &route, &error) != FARLOG_OK)
		fail_msg("open route: %s", error.text);
	return route;
}

static int append(farlog_route *route, uint16_t class_id, uint32_t criticality, uint64_t number,
	struct farlog_route_position *position)
{
	struct farlog_entry entry = {.data = &number, .len = sizeof(number), .class_id = class_id};

	return farlog_route_append(route, &entry, criticality, 0, position);
}

static const char *fault_ring(const char *uri, uint64_t seed)
{
	farlog_fault_drop(uri + strlen("fault:"));
	unit_format(uri, SIZE, 0);
	farlog_fault_reseed(uri + strlen("fault:"), seed);
	return uri;
}

/* numbers_in -- of the plain records in a ring, from its head on; GAPs are told by *gap. */
static unsigned numbers_in(const char *uri, uint64_t *numbers, unsigned room, struct farlog_gap *gap)
{
	farlog_reader *reader = unit_read(uri, FARLOG_START_HEAD, false);
	static uint8_t buf[256 << 10];
	struct farlog_batch batch;
	unsigned count = 0;

	while (farlog_reader_read(reader, buf, sizeof(buf), &batch) == FARLOG_OK)
		for (size_t at = 0; at < batch.len;) {
			struct record_header header;

			memcpy(&header, buf + at, sizeof(header));
			if (header.flags == RECORD_FLAG_GAP && gap != NULL)
				memcpy(gap, buf + at + RECORD_HEADER_LEN, sizeof(*gap));
			if (header.flags == 0) {
				assert_true(count < room);
				memcpy(&numbers[count++], buf + at + RECORD_HEADER_LEN + header.key_len, sizeof(numbers[0]));
			}
			at += header.flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN :
												   record_extent(64, header.key_len, header.payload_len);
		}
	farlog_reader_close(reader);
	return count;
}

static void assert_numbers(const char *uri, uint64_t first, uint64_t last)
{
	uint64_t numbers[2048];
	unsigned count = numbers_in(uri, numbers, 2048, NULL);

	assert_int_equal(count, last - first + 1);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(numbers[i], first + i);
}

static void drain_all(const char *uri)
{
	farlog_reader *reader = unit_read(uri, FARLOG_START_HEAD, true);
	static uint8_t buf[256 << 10];
	struct farlog_batch batch;

	while (farlog_reader_read(reader, buf, sizeof(buf), &batch) == FARLOG_OK)
		assert_int_equal(farlog_reader_release(reader, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	farlog_reader_close(reader);
}

static void route__selects_by_class_and_criticality(void **state)
{
	struct farlog_route_leg legs[3] = {leg_of("all", unit_tmpfs_uri("all")), leg_of("orders", unit_tmpfs_uri("orders")),
		leg_of("grave", unit_tmpfs_uri("grave"))};
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
	route = open_legs(legs, 3, false);
	assert_int_equal(append(route, 2, 0, 1, &position), FARLOG_OK);
	assert_int_equal(position.required, 3);
	assert_int_equal(position.level, FARLOG_LEVEL_VISIBLE);
	assert_int_equal(append(route, 4, 5, 2, &position), FARLOG_OK);
	assert_int_equal(position.required, 5);
	assert_int_equal(append(route, 9, 4, 3, &position), FARLOG_OK);
	assert_int_equal(position.required, 3);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	assert_numbers(legs[0].uri, 1, 3);
	assert_numbers(legs[2].uri, 2, 2);
}

static void route__no_leg_takes_it(void **state)
{
	struct farlog_route_leg leg = leg_of("orders", unit_tmpfs_uri("orders"));
	struct farlog_route_position position;
	farlog_route *route;

	(void)state;
	unit_format(leg.uri, SIZE, 0);
	leg.is_required = 1;
	leg.classes = orders;
	leg.class_count = 2;
	route = open_legs(&leg, 1, false);
	assert_int_equal(append(route, 7, 9, 1, &position), FARLOG_NOT_FOUND);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
}

/* A refusal by one means that none has it. */
static void route__one_required_leg_full(void **state)
{
	struct farlog_route_leg legs[2] = {
		leg_of("wide", unit_tmpfs_uri("wide")), leg_of("narrow", unit_tmpfs_uri("narrow"))};
	struct farlog_route_position position;
	farlog_route *route;
	uint64_t number = 0;
	int result;

	(void)state;
	unit_format(legs[0].uri, 4 * SIZE, 0);
	unit_format(legs[1].uri, SIZE, 0);
	legs[0].is_required = legs[1].is_required = 1;
	legs[1].config.deadline_ns = 1000000;
	route = open_legs(legs, 2, false);
	while ((result = append(route, 1, 0, number + 1, &position)) == FARLOG_OK)
		number++;
	assert_int_equal(result, FARLOG_FULL);
	assert_int_equal(position.legs[0].result, FARLOG_OK);
	assert_int_equal(position.legs[1].result, FARLOG_FULL);
	assert_int_equal(position.level, FARLOG_LEVEL_NONE);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	assert_numbers(legs[0].uri, 1, number);
	assert_numbers(legs[1].uri, 1, number);
}

static void route__required_leg_fenced(void **state)
{
	struct farlog_route_leg legs[2] = {leg_of("a", unit_tmpfs_uri("a")), leg_of("b", unit_tmpfs_uri("b"))};
	struct farlog_route_position position;
	struct farlog_error error;
	farlog_route *route;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		unit_format(legs[i].uri, SIZE, 0);
		legs[i].is_required = 1;
	}
	route = open_legs(legs, 2, false);
	assert_int_equal(append(route, 1, 0, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_ring_fence(legs[1].uri, 7, &error), FARLOG_OK);
	assert_int_equal(append(route, 1, 0, 2, &position), FARLOG_FENCED);
	assert_int_equal(position.legs[1].position.epoch, 7);
	(void)farlog_route_close(route, 0);
	assert_numbers(legs[0].uri, 1, 1);
}

static void route__too_large_for_one_leg(void **state)
{
	struct farlog_route_leg legs[2] = {leg_of("a", unit_tmpfs_uri("a")), leg_of("b", unit_tmpfs_uri("b"))};
	struct farlog_route_position position;
	uint8_t payload[2000] = {0};
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload)};
	farlog_route *route;

	(void)state;
	unit_format(legs[0].uri, SIZE, 4096);
	unit_format(legs[1].uri, SIZE, 1024);
	legs[0].is_required = legs[1].is_required = 1;
	route = open_legs(legs, 2, false);
	assert_int_equal(farlog_route_append(route, &entry, 0, 0, &position), FARLOG_TOO_LARGE);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	assert_int_equal(numbers_in(legs[0].uri, NULL, 0, NULL), 0);
}

/* One of two has it, the other never answers: not known, and by the deadline. Then it answers. */
static void route__one_required_leg_unknown(void **state)
{
	struct farlog_route_leg legs[2] = {
		leg_of("a", fault_ring("fault:route-a", 3)), leg_of("b", fault_ring("fault:route-b", 5))};
	struct farlog_route_position position;
	farlog_route *route;

	(void)state;
	legs[0].is_required = legs[1].is_required = 1;
	legs[0].config.level = legs[1].config.level = FARLOG_LEVEL_PERSISTENT;
	route = open_legs(legs, 2, false);
	farlog_fault_set_slowness("route-b", 256);
	assert_int_equal(append(route, 1, 0, 1, &position), FARLOG_UNKNOWN);
	assert_int_equal(position.legs[0].result, FARLOG_OK);
	assert_int_equal(position.legs[1].result, FARLOG_UNKNOWN);
	assert_int_equal(farlog_route_resolve(route, &position, 1000000), FARLOG_UNKNOWN);
	farlog_fault_set_slowness("route-b", 128);
	assert_int_equal(farlog_route_resolve(route, &position, SECOND_NS), FARLOG_OK);
	assert_int_equal(position.level, FARLOG_LEVEL_PERSISTENT);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
}

/* The spill takes what comes late, the ring gets it once although it had it already, and then records go straight on
 * again. */
static void route__required_leg_spills_and_comes_back(void **state)
{
	struct farlog_route_leg leg = leg_of("far", fault_ring("fault:route-far", 7));
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
	route = open_legs(&leg, 1, false);
	assert_int_equal(farlog_route_catch_up(route, SECOND_NS), FARLOG_OK);
	assert_false(route_carry(&route->legs[0]));
	assert_int_equal(append(route, 1, 0, 1, &position), FARLOG_OK);
	assert_int_equal(position.legs[0].is_buffered, 0);
	farlog_fault_set_slowness("route-far", 256);
	assert_int_equal(append(route, 1, 0, 2, &position), FARLOG_OK);
	assert_int_equal(position.legs[0].is_buffered, 1);
	assert_int_equal(append(route, 1, 0, 3, &position), FARLOG_OK);
	assert_int_equal(position.legs[0].is_buffered, 1);
	assert_int_equal(farlog_route_catch_up(route, 1000000), FARLOG_UNKNOWN);
	farlog_fault_set_slowness("route-far", 128);
	assert_int_equal(farlog_route_catch_up(route, SECOND_NS), FARLOG_OK);
	assert_false(route_carry(&route->legs[0]));
	assert_int_equal(append(route, 1, 0, 4, &position), FARLOG_OK);
	assert_int_equal(position.legs[0].is_buffered, 0);
	assert_int_equal(farlog_route_stats(route, 0, &stats), FARLOG_OK);
	assert_int_equal(stats.spilled_count, 2);
	assert_int_equal(stats.carried_count, 2);
	assert_int_equal(stats.acked_count, 4);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	assert_numbers(leg.uri, 1, 4);
}

/* A spill that cannot be read once, at any of the reads of the next route: what the leg's ring has of it is not
 * appended there again. */
static void route__spill_that_cannot_be_read_once(void **state)
{
	(void)state;
	for (unsigned failing = 1; failing <= 8; failing++) {
		struct farlog_route_leg leg = leg_of("far", fault_ring("fault:route-far", 7));
		struct farlog_route_config config = {.name = "desk7", .legs = &leg, .leg_count = 1};
		struct farlog_route_position position;
		farlog_route *route;

		farlog_fault_drop("route-spill");
		leg.is_required = 1;
		leg.policy = FARLOG_ROUTE_SPILL;
		leg.spill_uri = "fault:route-spill";
		leg.buffer_bytes = SIZE;
		leg.config.level = FARLOG_LEVEL_PERSISTENT;
		route = open_legs(&leg, 1, false);
		assert_int_equal(farlog_route_catch_up(route, SECOND_NS), FARLOG_OK);
		assert_false(route_carry(&route->legs[0]));
		assert_int_equal(append(route, 1, 0, 1, &position), FARLOG_OK);
		farlog_fault_set_slowness("route-far", 256);
		assert_int_equal(append(route, 1, 0, 2, &position), FARLOG_OK);
		assert_int_equal(append(route, 1, 0, 3, &position), FARLOG_OK);
		assert_int_equal(position.legs[0].is_buffered, 1);
		/* they are in its ring, and not yet durable there */
		assert_int_equal(farlog_route_catch_up(route, 1000000), FARLOG_UNKNOWN);
		(void)farlog_route_close(route, 1);
		farlog_fault_set_slowness("route-far", 128);

		unit_failing_reads = failing;
		if (route_open(&config, false, &route, &(struct farlog_error){0}) != FARLOG_OK)
			route = open_legs(&leg, 1, false);
		assert_int_equal(farlog_route_catch_up(route, SECOND_NS), FARLOG_OK);
		unit_failing_reads = 0;
		assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
		assert_numbers(leg.uri, 1, 3);
	}
}

/* Its ring is not even there when the route is opened. */
static void route__required_leg_away_at_opening(void **state)
{
	struct farlog_route_leg leg = leg_of("late", unit_tmpfs_uri("late"));
	struct farlog_route_position position;
	struct farlog_leg_stats stats;
	farlog_route *route;

	(void)state;
	leg.is_required = 1;
	leg.policy = FARLOG_ROUTE_SPILL;
	leg.spill_uri = unit_tmpfs_uri("spill");
	leg.spill_level = FARLOG_LEVEL_VISIBLE;
	leg.buffer_bytes = SIZE;
	route = open_legs(&leg, 1, true);
	for (uint64_t i = 1; i <= 50; i++)
		assert_int_equal(append(route, 1, 0, i, &position), FARLOG_OK);
	assert_int_equal(position.legs[0].is_buffered, 1);
	assert_int_equal(farlog_route_stats(route, 0, &stats), FARLOG_OK);
	assert_int_equal(stats.state, FARLOG_LEG_AWAY);
	assert_non_null(strstr(stats.text, "late"));
	unit_format(leg.uri, SIZE, 0);
	assert_int_equal(farlog_route_catch_up(route, 20 * SECOND_NS), FARLOG_OK);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	assert_numbers(leg.uri, 1, 50);
}

/* A ring that nobody drains: what does not fit waits in the spill, also beyond the end of the process's route, and the
 * next one goes on. */
static void route__spill_is_carried_by_the_next_route(void **state)
{
	struct farlog_route_leg leg = leg_of("small", unit_tmpfs_uri("small"));
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
	route = open_legs(&leg, 1, true);
	for (uint64_t i = 1; i <= 1200; i++) {
		assert_int_equal(append(route, 1, 0, i, &position), FARLOG_OK);
		assert_int_equal(position.optional, 1);
		assert_int_equal(position.level, FARLOG_LEVEL_NONE);
		assert_int_equal(position.legs[0].position.level, FARLOG_LEVEL_VISIBLE);
	}
	for (;;) { /* what fits, or what its time allows on a machine that has much else to do */
		result = farlog_route_close(route, 100000000);
		carried += numbers_in(leg.uri, numbers + carried, 2048 - carried, NULL);
		drain_all(leg.uri);
		openings++;
		if (result != FARLOG_UNKNOWN || openings == 200)
			break;
		route = open_legs(&leg, 1, true);
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
	struct farlog_route_leg legs[2] = {leg_of("kept", unit_tmpfs_uri("kept")), leg_of("slow", unit_tmpfs_uri("slow"))};
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
	route = open_legs(legs, 2, false);
	for (uint64_t i = 1; i <= 700; i++) {
		assert_int_equal(append(route, 1, 0, i, &position), FARLOG_OK);
		taken += position.dropped == 0;
		assert_int_equal(position.legs[1].result, position.dropped == 0 ? FARLOG_OK : FARLOG_FULL);
	}
	assert_true(taken > 0 && taken < 700);
	while (route_carry(&route->legs[1]))
		;
	assert_int_equal(append(route, 1, 0, 701, &position), FARLOG_OK);
	assert_int_equal(position.dropped, 0);
	assert_int_equal(farlog_route_catch_up(route, SECOND_NS), FARLOG_OK);
	assert_int_equal(farlog_route_stats(route, 1, &stats), FARLOG_OK);
	assert_int_equal(stats.dropped_count, 700 - taken);
	assert_int_equal(stats.gap_count, 1);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	count = numbers_in(legs[1].uri, numbers, 2048, &gap);
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
		struct farlog_route_leg leg = leg_of("gone", is_fenced ? unit_tmpfs_uri("fenced") : "mem:/nowhere/at/all");
		struct farlog_route_position position;
		struct farlog_leg_stats stats;
		farlog_route *route;

		leg.policy = FARLOG_ROUTE_DROP;
		if (is_fenced)
			unit_format(leg.uri, SIZE, 0);
		route = open_legs(&leg, 1, false);
		assert_int_equal(append(route, 1, 0, 1, &position), FARLOG_OK);
		while (route_carry(&route->legs[0]))
			;
		if (is_fenced)
			assert_int_equal(farlog_ring_fence(leg.uri, 9, NULL), FARLOG_OK);
		(void)route_carry(&route->legs[0]);
		for (uint64_t i = 2; i <= 4; i++)
			assert_int_equal(append(route, 1, 0, i, &position), FARLOG_OK);
		assert_int_equal(position.dropped, 0);
		assert_int_equal(position.level, FARLOG_LEVEL_NONE);
		assert_int_equal(farlog_route_end(route, is_fenced ? 1000 * SECOND_NS : SECOND_NS / 100), FARLOG_UNKNOWN);
		assert_int_equal(farlog_route_end(route, 0), FARLOG_CLOSED);
		assert_int_equal(append(route, 1, 0, 5, &position), FARLOG_CLOSED);
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
	struct farlog_route_leg leg = leg_of("short", unit_tmpfs_uri("short"));
	struct farlog_route_position position;
	uint8_t payload[3000] = {0};
	struct farlog_entry large = {.data = payload, .len = sizeof(payload), .class_id = 1};
	struct farlog_gap gap = {0};
	farlog_route *route;
	uint64_t numbers[2];

	(void)state;
	unit_format(leg.uri, SIZE, 1024);
	route = open_legs(&leg, 1, false);
	assert_int_equal(append(route, 1, 0, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_route_append(route, &large, 0, 0, &position), FARLOG_OK);
	assert_int_equal(append(route, 1, 0, 2, &position), FARLOG_OK);
	assert_int_equal(farlog_route_close(route, SECOND_NS), FARLOG_OK);
	assert_int_equal(numbers_in(leg.uri, numbers, 2, &gap), 2);
	assert_int_equal(gap.reason, FARLOG_GAP_TOO_LARGE);
}

static void route__bad_configuration(void **state)
{
	struct farlog_route_leg good = leg_of("good", "mem:/nowhere");
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

/* A spill that belongs to another leg is not emptied into this one's ring. */
static void route__spill_of_another_leg(void **state)
{
	struct farlog_route_leg leg = leg_of("mine", unit_tmpfs_uri("ring"));
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

/* All policies with their threads, beside each other. Under ThreadSanitizer as well. */
static void route__threads_carry_while_appends_go_on(void **state)
{
	struct farlog_route_leg legs[4] = {leg_of("a", unit_tmpfs_uri("a")), leg_of("b", unit_tmpfs_uri("b")),
		leg_of("c", unit_tmpfs_uri("c")), leg_of("d", unit_tmpfs_uri("d"))};
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
	route = open_legs(legs, 4, true);
	for (uint64_t i = 1; i <= 2000; i++) {
		assert_int_equal(append(route, 1, 0, i, &position), FARLOG_OK);
		assert_int_equal(position.level, FARLOG_LEVEL_VISIBLE);
		if (i % 100 == 0)
			assert_int_equal(farlog_route_stats(route, 1, &stats), FARLOG_OK);
	}
	assert_int_equal(farlog_route_close(route, 20 * SECOND_NS), FARLOG_OK);
	for (unsigned i = 0; i < 4; i++)
		assert_numbers(legs[i].uri, 1, 2000);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(route__selects_by_class_and_criticality),
	cmocka_unit_test(route__no_leg_takes_it),
	cmocka_unit_test(route__one_required_leg_full),
	cmocka_unit_test(route__required_leg_fenced),
	cmocka_unit_test(route__too_large_for_one_leg),
	cmocka_unit_test(route__one_required_leg_unknown),
	cmocka_unit_test(route__required_leg_spills_and_comes_back),
	cmocka_unit_test(route__spill_that_cannot_be_read_once),
	cmocka_unit_test(route__required_leg_away_at_opening),
	cmocka_unit_test(route__spill_is_carried_by_the_next_route),
	cmocka_unit_test(route__dropped_records_are_a_gap),
	cmocka_unit_test(route__memory_is_dropped_at_the_end),
	cmocka_unit_test(route__carried_record_too_large),
	cmocka_unit_test(route__bad_configuration),
	cmocka_unit_test(route__spill_of_another_leg),
	cmocka_unit_test(route__threads_carry_while_appends_go_on),
};

RUN_GROUP(route, tests)
