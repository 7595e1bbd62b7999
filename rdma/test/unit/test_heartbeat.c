/* Heartbeats of shared writers and of routes: when they come, and that they take no record's place. */
#include <stdlib.h>
#include <time.h>

#include "farlog/heartbeat.h"
#include "farlog/replace.h"
#include "farlog/route_name.h"
#include "ring/layout.h"
#include "ring/record.h"
#include "route/route.h"
#include "unit.h"

#define SIZE (LAYOUT_DATA_OFF + (64u << 10))
#define SECOND_NS 1000000000ull

static struct farlog_route_leg leg_of(const char *name, const char *uri)
{
	return (struct farlog_route_leg){.name = name,
		.uri = uri,
		.is_required = 1,
		.config = {.level = FARLOG_LEVEL_VISIBLE, .deadline_ns = SECOND_NS, .counters_dir = ""}};
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

/* count -- heartbeats and plain records in a ring; the plain ones bear 1, 2, ... */
static void count(const char *uri, unsigned *beats, unsigned *plain)
{
	farlog_reader *reader = unit_read(uri, FARLOG_START_HEAD, false);
	static uint8_t buf[256 << 10];
	struct farlog_batch batch;

	*beats = *plain = 0;
	while (farlog_reader_read(reader, buf, sizeof(buf), &batch) == FARLOG_OK)
		for (size_t at = 0; at < batch.len;) {
			struct record_header header;
			uint64_t number;

			memcpy(&header, buf + at, sizeof(header));
			*beats += header.flags == RECORD_FLAG_HEARTBEAT;
			if (header.flags == 0) {
				memcpy(&number, buf + at + RECORD_HEADER_LEN, sizeof(number));
				assert_int_equal(number, ++*plain);
			}
			at += header.flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN :
												   record_extent(64, header.key_len, header.payload_len);
		}
	farlog_reader_close(reader);
}

static int append(farlog_route *route, uint16_t class_id, uint64_t number)
{
	struct farlog_entry entry = {.data = &number, .len = sizeof(number), .class_id = class_id};
	struct farlog_route_position position;

	return farlog_route_append(route, &entry, 0, 0, &position);
}

/* Only the leg that had nothing since the last time gets one. */
static void heartbeat__route_with_an_idle_leg(void **state)
{
	static const struct farlog_class_range ones = {1, 1}, twos = {2, 2};
	struct farlog_route_leg legs[2] = {leg_of("busy", unit_tmpfs_uri("busy")), leg_of("idle", unit_tmpfs_uri("idle"))};
	unsigned beats, plain;
	farlog_route *route;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		unit_format(legs[i].uri, SIZE, 0);
		legs[i].class_count = 1;
	}
	legs[0].classes = &ones;
	legs[1].classes = &twos;
	route = open_legs(legs, 2);
	assert_int_equal(append(route, 1, 1), FARLOG_OK);
	assert_int_equal(farlog_route_heartbeat(route, SECOND_NS), FARLOG_OK);
	assert_int_equal(append(route, 1, 2), FARLOG_OK);
	assert_int_equal(farlog_route_heartbeat(route, 0), FARLOG_OK);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	count(legs[0].uri, &beats, &plain);
	assert_int_equal(beats, 0);
	assert_int_equal(plain, 2);
	count(legs[1].uri, &beats, &plain);
	assert_int_equal(beats, 2);
	assert_int_equal(plain, 0);
}

static void heartbeat__route_full_and_fenced(void **state)
{
	struct farlog_route_leg leg = leg_of("a", unit_tmpfs_uri("a"));
	struct farlog_error error;
	farlog_route *route;
	uint64_t number = 0;

	(void)state;
	unit_format(leg.uri, SIZE, 0);
	leg.config.policy = FARLOG_POLICY_REJECT;
	route = open_legs(&leg, 1);
	while (append(route, 1, ++number) == FARLOG_OK)
		;
	assert_int_equal(farlog_route_heartbeat(route, 0), FARLOG_OK); /* a record was offered since the last */
	while (farlog_route_heartbeat(route, 0) == FARLOG_OK)
		;
	assert_int_equal(farlog_route_heartbeat(route, 0), FARLOG_FULL);
	assert_int_equal(farlog_ring_fence(leg.uri, 7, &error), FARLOG_OK);
	assert_int_equal(farlog_route_heartbeat(route, 0), FARLOG_FENCED);
	(void)farlog_route_close(route, 0);
}

/* By its thread, behind what waits; and what is appended after it comes once, also when the leg's ring dies before it
 * is carried. */
static void heartbeat__leg_that_is_carried(void **state)
{
	struct farlog_route_leg leg = leg_of("late", unit_tmpfs_uri("late"));
	unsigned beats, plain;
	farlog_route *route;

	(void)state;
	unit_format(leg.uri, SIZE, 0);
	leg.is_required = 0;
	leg.policy = FARLOG_ROUTE_SPILL;
	leg.spill_uri = unit_tmpfs_uri("spill");
	leg.spill_level = FARLOG_LEVEL_VISIBLE;
	leg.buffer_bytes = SIZE;
	route = open_legs(&leg, 1);
	assert_int_equal(append(route, 1, 1), FARLOG_OK);
	assert_int_equal(farlog_route_heartbeat(route, 0), FARLOG_OK); /* not idle */
	assert_int_equal(farlog_route_heartbeat(route, 0), FARLOG_OK); /* due, and behind the record */
	while (route_carry(&route->legs[0]))
		;
	assert_int_equal(append(route, 1, 2), FARLOG_OK);
	assert_int_equal(farlog_route_close(route, 1), FARLOG_UNKNOWN); /* the second one stays in the spill */
	route = open_legs(&leg, 1);
	assert_int_equal(farlog_route_catch_up(route, SECOND_NS), FARLOG_OK);
	assert_int_equal(append(route, 1, 3), FARLOG_OK);
	assert_int_equal(farlog_route_close(route, SECOND_NS), FARLOG_OK);
	count(leg.uri, &beats, &plain);
	assert_int_equal(beats, 1);
	assert_int_equal(plain, 3);
}

static void nap(void)
{
	nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* They come by themselves while nothing else does, and end when they are told to. Under ThreadSanitizer as well. */
static void heartbeat__shared_writer_by_itself(void **state)
{
	const char *uri = unit_tmpfs_uri("shared");
	struct farlog_writer_config config = {
		.level = FARLOG_LEVEL_VISIBLE, .counters_dir = "", .deadline_ns = 10 * SECOND_NS};
	struct farlog_cursors cursors;
	struct farlog_position position;
	struct farlog_error error;
	farlog_shared *shared;
	unsigned beats, plain;
	uint64_t seq, number = 1;

	(void)state;
	unit_format(uri, SIZE, 0);
	assert_int_equal(farlog_shared_open(uri, &config, &shared, &error), FARLOG_OK);
	assert_int_equal(farlog_shared_heartbeats(shared, 999999), FARLOG_INVALID);
	farlog_shared_cursors(shared, &cursors);
	seq = cursors.next_seq;
	assert_int_equal(farlog_shared_heartbeat(shared, 0, &position), FARLOG_OK);
	assert_int_equal(position.seq, seq);
	assert_int_equal(farlog_shared_heartbeats(shared, 2000000), FARLOG_OK);
	for (unsigned i = 0; i < 20000 && cursors.next_seq < seq + 4; i++) {
		nap();
		farlog_shared_cursors(shared, &cursors);
	}
	assert_true(cursors.next_seq >= seq + 4);
	assert_int_equal(farlog_shared_heartbeats(shared, 0), FARLOG_OK);
	farlog_shared_cursors(shared, &cursors);
	seq = cursors.next_seq;
	assert_int_equal(
		farlog_shared_append(shared, &(struct farlog_entry){.data = &number, .len = sizeof(number)}, 0, &position),
		FARLOG_OK);
	assert_int_equal(position.seq, seq);
	assert_int_equal(farlog_shared_heartbeats(shared, 3600 * SECOND_NS), FARLOG_OK);
	assert_int_equal(farlog_shared_close(shared), FARLOG_OK); /* at once, not in half an hour */
	count(uri, &beats, &plain);
	assert_true(beats >= 4);
	assert_int_equal(plain, 1);
}

static void heartbeat__members_of_a_leg(void **state)
{
	struct farlog_route_leg leg = leg_of("one", unit_tmpfs_uri("one"));
	struct farlog_member_ring ring = {"mem:/nowhere", (const uint8_t *)"0123456789abcdef", NULL};
	struct farlog_writer_member members[FARLOG_MEMBER_COUNT_MAX];
	struct farlog_error error;
	farlog_route *route;

	(void)state;
	unit_format(leg.uri, SIZE, 0);
	route = open_legs(&leg, 1);
	assert_int_equal(farlog_route_members(route, 0, members, FARLOG_MEMBER_COUNT_MAX), 0);
	assert_int_equal(farlog_route_replace_member(route, 0, 0, &ring, &error), FARLOG_UNSUPPORTED);
	assert_int_equal(farlog_route_replace_member(route, 3, 0, &ring, &error), FARLOG_INVALID);
	assert_non_null(strstr(error.text, "has no leg 3"));
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	assert_int_equal(farlog_route_open_name("mem:/x", NULL, &route, &error), FARLOG_INVALID);
	assert_non_null(strstr(error.text, "expected farlog://ROUTE"));
	assert_int_equal(
		farlog_route_open_name("farlog://x?agent=/nowhere/a.sock", NULL, &route, &error), FARLOG_NOT_FOUND);
	assert_non_null(strstr(error.text, "uri \"farlog://x"));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(heartbeat__route_with_an_idle_leg),
	cmocka_unit_test(heartbeat__route_full_and_fenced),
	cmocka_unit_test(heartbeat__leg_that_is_carried),
	cmocka_unit_test(heartbeat__shared_writer_by_itself),
	cmocka_unit_test(heartbeat__members_of_a_leg),
};

RUN_GROUP(heartbeat, tests)
