/* Batches on routes: as many single appends, in groups; how many are acknowledged when a part fails. The tests carry by
 * hand. */
#include <stdlib.h>

#include "ring/layout.h"
#include "ring/record.h"
#include "route/step.h"
#include "adversary/clock.h"
#include "unit.h"

#define SIZE (LAYOUT_DATA_OFF + (64u << 10))
#define SECOND_NS 1000000000ull
#define BATCH_MAX 1000u

static struct farlog_route_position positions[BATCH_MAX];
static struct farlog_entry entries[BATCH_MAX];
static uint64_t numbers[BATCH_MAX];
static size_t done, submitted;

static struct farlog_route_leg leg_of(const char *name, const char *uri)
{
	return (struct farlog_route_leg){.name = name,
		.uri = uri,
		.is_required = 1,
		.config = {.level = FARLOG_LEVEL_VISIBLE, .deadline_ns = 20000000, .counters_dir = ""}};
}

static farlog_route *open_legs(const struct farlog_route_leg *legs, uint32_t count)
{
	struct farlog_route_config config = {.name = "desk7", .legs = legs, .leg_count = count};
	struct farlog_error error = {0};
	farlog_route *route;

	if (route_open(&config, false, &route, &error) != FARLOG_OK)
		fail_msg("open route: %s", error.text);
	return route;
}

/* fill -- a batch of class 1, whose payloads are first, first + 1, ... */
static void fill(uint64_t first, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		numbers[i] = first + i;
		entries[i] = (struct farlog_entry){.data = &numbers[i], .len = sizeof(numbers[i]), .class_id = 1};
	}
}

/* fault_ring -- and the time goes on by looks alone, however busy the machine is, until that is set back. */
static const char *fault_ring(const char *uri, uint64_t size_bytes, uint64_t seed)
{
	farlog_fault_drop(uri + strlen("fault:"));
	farlog_fault_set_clock(SECOND_NS);
	if (size_bytes != 0)
		unit_format(uri, size_bytes, 0);
	farlog_fault_reseed(uri + strlen("fault:"), seed);
	return uri;
}

/* assert_holds -- a ring has exactly first, first + step, ... last. */
static void assert_holds(const char *uri, uint64_t first, uint64_t last, uint64_t step)
{
	farlog_reader *reader = unit_read(uri, FARLOG_START_HEAD, false);
	static uint8_t buf[256 << 10];
	struct farlog_batch batch;
	uint64_t expected = first;

	while (farlog_reader_read(reader, buf, sizeof(buf), &batch) == FARLOG_OK)
		for (size_t at = 0; at < batch.len;) {
			struct record_header header;
			uint64_t number;

			memcpy(&header, buf + at, sizeof(header));
			if (header.flags == 0) {
				memcpy(&number, buf + at + RECORD_HEADER_LEN, sizeof(number));
				assert_int_equal(number, expected);
				expected += step;
			}
			at += header.flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN :
												   record_extent(64, header.key_len, header.payload_len);
		}
	assert_int_equal(expected, last + step);
	farlog_reader_close(reader);
}

/* More than a group; records that no leg takes are passed over, and criticality is each one's own. */
static void batch__each_record_to_its_legs(void **state)
{
	static const struct farlog_class_range first_class = {1, 1};
	struct farlog_route_leg legs[2] = {
		leg_of("even", unit_tmpfs_uri("even")), leg_of("grave", unit_tmpfs_uri("grave"))};
	uint32_t criticalities[600];
	farlog_route *route;

	(void)state;
	for (unsigned i = 0; i < 2; i++)
		unit_format(legs[i].uri, 4 * SIZE, 0);
	legs[0].classes = &first_class;
	legs[0].class_count = 1;
	legs[1].criticality_min = 5;
	route = open_legs(legs, 2);
	fill(0, 600);
	for (unsigned i = 0; i < 600; i++) {
		entries[i].class_id = i % 2 == 0 ? 1 : 2;
		criticalities[i] = i % 3 == 0 ? 5 : 4;
	}
	assert_int_equal(
		farlog_route_append_batch(route, entries, criticalities, 600, 0, positions, &done, &submitted), FARLOG_OK);
	assert_int_equal(done, 600);
	assert_int_equal(submitted, 600);
	assert_int_equal(positions[0].required, 3);
	assert_int_equal(positions[1].required, 0);
	assert_int_equal(positions[2].required, 1);
	assert_int_equal(positions[3].required, 2);
	assert_int_equal(positions[598].level, FARLOG_LEVEL_VISIBLE);
	assert_int_equal(positions[1].level, FARLOG_LEVEL_NONE);
	assert_int_equal(farlog_route_append_batch(route, entries, NULL, 0, 0, positions, &done, &submitted), FARLOG_OK);
	assert_int_equal(submitted, 0);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	assert_holds(legs[0].uri, 0, 598, 2);
	assert_holds(legs[1].uri, 0, 597, 3);
}

/* What finds room is acknowledged, what finds none is nowhere: in the wide leg neither. */
static void batch__one_leg_full(void **state)
{
	struct farlog_route_leg legs[2] = {
		leg_of("wide", unit_tmpfs_uri("wide")), leg_of("narrow", unit_tmpfs_uri("narrow"))};
	farlog_route *route;

	(void)state;
	unit_format(legs[0].uri, 4 * SIZE, 0);
	unit_format(legs[1].uri, SIZE, 0);
	legs[1].config.deadline_ns = 1000000;
	route = open_legs(legs, 2);
	fill(1, 900);
	assert_int_equal(
		farlog_route_append_batch(route, entries, NULL, 900, 0, positions, &done, &submitted), FARLOG_FULL);
	assert_true(done > ROUTE_GROUP_COUNT && done < 900);
	assert_int_equal(submitted, done);
	assert_int_equal(positions[done].legs[0].result, FARLOG_OK);
	assert_int_equal(positions[done].legs[1].result, FARLOG_FULL);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	assert_holds(legs[0].uri, 1, done, 1);
	assert_holds(legs[1].uri, 1, done, 1);
}

static void batch__record_too_large_in_the_middle(void **state)
{
	static uint8_t large[2000];
	struct farlog_route_leg legs[2] = {leg_of("a", unit_tmpfs_uri("a")), leg_of("b", unit_tmpfs_uri("b"))};
	farlog_route *route;

	(void)state;
	unit_format(legs[0].uri, SIZE, 4096);
	unit_format(legs[1].uri, SIZE, 1024);
	route = open_legs(legs, 2);
	fill(1, 9);
	entries[5].data = large;
	entries[5].len = sizeof(large);
	assert_int_equal(
		farlog_route_append_batch(route, entries, NULL, 9, 0, positions, &done, &submitted), FARLOG_TOO_LARGE);
	assert_int_equal(done, 5);
	assert_int_equal(submitted, 5);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	assert_int_equal(farlog_route_close(NULL, 0), FARLOG_OK);
	assert_holds(legs[0].uri, 1, 5, 1);
	assert_holds(legs[1].uri, 1, 5, 1);
}

/* One leg has all, the other never answers: none is acknowledged, and each can be looked at. */
static void batch__one_leg_unknown(void **state)
{
	struct farlog_route_leg legs[2] = {
		leg_of("a", fault_ring("fault:batch-a", 4 * SIZE, 3)), leg_of("b", fault_ring("fault:batch-b", 4 * SIZE, 5))};
	farlog_route *route;

	(void)state;
	legs[0].config.level = legs[1].config.level = FARLOG_LEVEL_PERSISTENT;
	legs[0].config.deadline_ns = legs[1].config.deadline_ns = 1000000;
	route = open_legs(legs, 2);
	farlog_fault_set_slowness("batch-b", 256);
	fill(1, 400);
	assert_int_equal(
		farlog_route_append_batch(route, entries, NULL, 400, 0, positions, &done, &submitted), FARLOG_UNKNOWN);
	assert_int_equal(done, 0);
	assert_int_equal(submitted, ROUTE_GROUP_COUNT);
	assert_int_equal(positions[9].legs[0].result, FARLOG_OK);
	assert_int_equal(positions[9].legs[1].result, FARLOG_UNKNOWN);
	assert_int_equal(positions[9].level, FARLOG_LEVEL_NONE);
	farlog_fault_set_slowness("batch-b", 128);
	for (unsigned i = 0; i < submitted; i++)
		assert_int_equal(farlog_route_resolve(route, &positions[i], SECOND_NS), FARLOG_OK);
	assert_int_equal(farlog_route_append_batch(
						 route, entries + submitted, NULL, 400 - submitted, SECOND_NS, positions, &done, &submitted),
		FARLOG_OK);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	assert_holds(legs[1].uri, 1, 400, 1);
	farlog_fault_set_clock(0);
}

/* A leg that is late sends its run to the spill as a whole, and everything behind it; its ring gets each once. */
static void batch__late_run_goes_to_the_spill(void **state)
{
	struct farlog_route_leg leg = leg_of("far", fault_ring("fault:batch-far", 4 * SIZE, 7));
	struct farlog_leg_stats stats;
	farlog_route *route;

	(void)state;
	leg.policy = FARLOG_ROUTE_SPILL;
	leg.spill_uri = fault_ring("fault:batch-spill", 0, 9);
	leg.buffer_bytes = 4 * SIZE;
	leg.config.deadline_ns = 1000000;
	leg.config.level = FARLOG_LEVEL_PERSISTENT;
	route = open_legs(&leg, 1);
	assert_int_equal(farlog_route_catch_up(route, SECOND_NS), FARLOG_OK);
	assert_false(route_carry(&route->legs[0]));
	fill(1, 400);
	assert_int_equal(farlog_route_append_batch(route, entries, NULL, 100, 0, positions, &done, &submitted), FARLOG_OK);
	assert_int_equal(positions[99].legs[0].is_buffered, 0);
	farlog_fault_set_slowness("batch-far", 256);
	assert_int_equal(
		farlog_route_append_batch(route, entries + 100, NULL, 300, 0, positions, &done, &submitted), FARLOG_OK);
	assert_int_equal(done, 300);
	assert_int_equal(positions[0].legs[0].is_buffered, 1);
	assert_int_equal(positions[299].legs[0].is_buffered, 1);
	farlog_fault_set_slowness("batch-far", 128);
	assert_int_equal(farlog_route_catch_up(route, SECOND_NS), FARLOG_OK);
	assert_int_equal(farlog_route_stats(route, 0, &stats), FARLOG_OK);
	assert_int_equal(stats.spilled_count, 300);
	assert_int_equal(stats.carried_count, 300);
	assert_int_equal(stats.acked_count, 400);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	assert_holds(leg.uri, 1, 400, 1);
	farlog_fault_set_clock(0);
}

/* The spill is smaller than the batch: it goes in groups for which it has room, and none is left between ring and
 * spill. */
static void batch__spill_smaller_than_the_batch(void **state)
{
	struct farlog_route_leg leg = leg_of("far", fault_ring("fault:batch-far", 4 * SIZE, 11));
	farlog_route *route;
	uint64_t acked;

	(void)state;
	leg.policy = FARLOG_ROUTE_SPILL;
	leg.spill_uri = fault_ring("fault:batch-spill", 0, 13);
	leg.buffer_bytes = LAYOUT_DATA_OFF + (8u << 10);
	leg.config.level = FARLOG_LEVEL_PERSISTENT;
	leg.config.deadline_ns = 1000000;
	route = open_legs(&leg, 1);
	assert_int_equal(farlog_route_catch_up(route, SECOND_NS), FARLOG_OK);
	assert_false(route_carry(&route->legs[0]));
	fill(1, 300);
	assert_int_equal(
		farlog_route_append_batch(route, entries, NULL, 300, SECOND_NS, positions, &done, &submitted), FARLOG_OK);
	farlog_fault_set_slowness("batch-far", 256);
	fill(301, 200);
	assert_int_equal(
		farlog_route_append_batch(route, entries, NULL, 200, SECOND_NS, positions, &done, &submitted), FARLOG_FULL);
	assert_true(done > 20 && done < 100);
	assert_int_equal(done, submitted);
	acked = 300 + done;
	farlog_fault_set_slowness("batch-far", 128);
	assert_int_equal(farlog_route_catch_up(route, SECOND_NS), FARLOG_OK);
	assert_false(route_carry(&route->legs[0]));
	fill(acked + 1, 100);
	assert_int_equal(
		farlog_route_append_batch(route, entries, NULL, 100, SECOND_NS, positions, &done, &submitted), FARLOG_OK);
	assert_int_equal(farlog_route_close(route, SECOND_NS), FARLOG_OK);
	assert_holds(leg.uri, 1, acked + 100, 1);
	farlog_fault_set_clock(0);
}

/* A leg that drops gets what its memory takes, and holds up nothing. */
static void batch__optional_leg_drops(void **state)
{
	struct farlog_route_leg legs[2] = {leg_of("kept", unit_tmpfs_uri("kept")), leg_of("slow", unit_tmpfs_uri("slow"))};
	farlog_route *route;
	size_t taken = 0;

	(void)state;
	unit_format(legs[0].uri, 4 * SIZE, 0);
	unit_format(legs[1].uri, 4 * SIZE, 0);
	legs[1].is_required = 0;
	legs[1].policy = FARLOG_ROUTE_DROP;
	legs[1].buffer_bytes = SIZE;
	route = open_legs(legs, 2);
	fill(1, 900);
	assert_int_equal(farlog_route_append_batch(route, entries, NULL, 900, 0, positions, &done, &submitted), FARLOG_OK);
	while (taken < 900 && positions[taken].dropped == 0)
		taken++;
	assert_true(taken > 0 && taken < 900);
	assert_int_equal(positions[899].dropped, 2);
	(void)farlog_route_close(route, SECOND_NS);
	assert_holds(legs[0].uri, 1, 900, 1);
	assert_holds(legs[1].uri, 1, taken, 1);
}

static unsigned staged_count;
static int (*stage_before)(
	struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t ticks, struct farlog_position *position);

/* stage_then_news -- from the sixth record on the leg's level is another one: as when the host agent tells of it while
 * a group is put together. */
static int stage_then_news(
	struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t ticks, struct farlog_position *position)
{
	struct farlog_writer_settings terms = {.level = FARLOG_LEVEL_VISIBLE, .policy = FARLOG_POLICY_BLOCK};

	if (++staged_count <= 5)
		return stage_before(writer, entry, ticks, position);
	assert_int_equal(farlog_writer_settings_set(writer, &terms, NULL), FARLOG_OK);
	return writer->stage(writer, entry, ticks, position);
}

/* Each record is acknowledged at the level that it was written at, whatever came behind it in its group. */
static void batch__level_of_each_record(void **state)
{
	struct farlog_route_leg leg = leg_of("terms", unit_tmpfs_uri("terms"));
	farlog_route *route;

	(void)state;
	unit_format(leg.uri, 4 * SIZE, 0);
	leg.config.level = FARLOG_LEVEL_POSTED;
	route = open_legs(&leg, 1);
	staged_count = 0;
	stage_before = route->legs[0].writer->stage;
	route->legs[0].writer->stage = stage_then_news;
	fill(1, 10);
	assert_int_equal(farlog_route_append_batch(route, entries, NULL, 10, 0, positions, &done, &submitted), FARLOG_OK);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(positions[i].legs[0].position.level, i < 5 ? FARLOG_LEVEL_POSTED : FARLOG_LEVEL_VISIBLE);
	assert_int_equal(farlog_route_close(route, SECOND_NS), FARLOG_OK);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(batch__level_of_each_record),
	cmocka_unit_test(batch__each_record_to_its_legs),
	cmocka_unit_test(batch__one_leg_full),
	cmocka_unit_test(batch__record_too_large_in_the_middle),
	cmocka_unit_test(batch__one_leg_unknown),
	cmocka_unit_test(batch__late_run_goes_to_the_spill),
	cmocka_unit_test(batch__spill_smaller_than_the_batch),
	cmocka_unit_test(batch__optional_leg_drops),
};

RUN_GROUP(route_batch, tests)
