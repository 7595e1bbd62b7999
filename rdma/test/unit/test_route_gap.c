/* GAPs on a leg whose ring has no room for them. The tests carry by hand. */
#include <stdio.h>
#include "ring/layout.h"
#include "route/route.h"
#include "unit.h"

#define SIZE (LAYOUT_DATA_OFF + (64u << 10))
#define SECOND_NS 1000000000ull

static int append(farlog_route *route, uint64_t number, struct farlog_route_position *position)
{
	struct farlog_entry entry = {.data = &number, .len = sizeof(number), .class_id = 1};

	return farlog_route_append(route, &entry, 0, 0, position);
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

/* fill_and_drop -- so many records, one that is too large for the leg's ring, and another one: what the ring had taken
 * before it was drained. */
static uint64_t fill_and_drop(unsigned count, const char *name)
{
	struct farlog_route_leg leg = {.name = name,
		.uri = unit_tmpfs_uri(name),
		.policy = FARLOG_ROUTE_DROP,
		.buffer_bytes = 16 * SIZE,
		.config = {.level = FARLOG_LEVEL_VISIBLE, .deadline_ns = 20000000, .counters_dir = ""}};
	struct farlog_route_config config = {.name = "desk7", .legs = &leg, .leg_count = 1};
	struct farlog_route_position position;
	uint8_t payload[3000] = {0};
	struct farlog_entry large = {.data = payload, .len = sizeof(payload), .class_id = 1};
	struct farlog_leg_stats stats;
	uint64_t acked;
	farlog_route *route;

	unit_format(leg.uri, SIZE, 1024);
	assert_int_equal(route_open(&config, false, &route, NULL), FARLOG_OK);
	for (uint64_t i = 1; i <= count; i++)
		assert_int_equal(append(route, i, &position), FARLOG_OK);
	assert_int_equal(farlog_route_append(route, &large, 0, 0, &position), FARLOG_OK);
	assert_int_equal(append(route, count + 1, &position), FARLOG_OK);
	for (unsigned turn = 0; turn < 50; turn++)
		(void)route_carry(&route->legs[0]);
	assert_int_equal(farlog_route_stats(route, 0, &stats), FARLOG_OK);
	acked = stats.acked_count;
	for (unsigned turn = 0; turn < 50 && stats.behind_bytes != 0; turn++) {
		drain_all(leg.uri);
		for (unsigned i = 0; i < 50; i++)
			(void)route_carry(&route->legs[0]);
		assert_int_equal(farlog_route_stats(route, 0, &stats), FARLOG_OK);
	}
	assert_int_equal(stats.behind_bytes, 0);
	assert_int_equal(stats.gap_count, 1);
	assert_int_equal(stats.dropped_count, 1);
	/* the GAP is acknowledged, too */
	assert_int_equal(stats.offered_count + stats.gap_count, stats.acked_count + stats.dropped_count);
	assert_int_equal(farlog_route_close(route, SECOND_NS), FARLOG_OK);
	return acked;
}

/* A GAP that finds no room in the leg's ring is put there later: once, and counted once. */
static void route_gap__finds_no_room(void **state)
{
	uint64_t room = fill_and_drop(3000, "unfit");
	unsigned late = 0;
	char name[16];

	(void)state;
	for (unsigned count = (unsigned)room - 4; count <= room; count++) {
		snprintf(name, sizeof(name), "unfit%u", count);
		late += fill_and_drop(count, name) <= count;
	}
	assert_int_not_equal(late, 0); /* at least one found the ring full when its GAP was to be put */
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(route_gap__finds_no_room),
};

RUN_GROUP(route_gap, tests)
