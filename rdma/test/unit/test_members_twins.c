/* test_members_twins.c -- a ring beside its copy: who opens them for writing or reading refuses them, and so does who
 * has the stream open when the copy comes. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "farlog/member.h"
#include "ring/layout.h"
#include "members/members.h"
#include "unit.h"
#include "log/writer.h"

#define COUNT 3u
#define WAIT_NS 20000000000u

static char uris[COUNT][512];
static char whole_uri[2048];

/* make -- three rings that a writer has had together. */
static void make(void)
{
	int used = snprintf(whole_uri, sizeof(whole_uri), "members:2");
	struct farlog_ring_config config = {.size_bytes = LAYOUT_DATA_OFF + 65536u,
		.record_len_max = 1024,
		.is_forced = 1,
		.salt = 0x1234567800000001u,
		.stream_name = "twins"};
	struct farlog_position position;
	farlog_writer *writer;

	for (unsigned i = 0; i < COUNT; i++) {
		snprintf(uris[i], sizeof(uris[i]), "%s", unit_tmpfs_uri("twin"));
		used += snprintf(whole_uri + used, sizeof(whole_uri) - (size_t)used, " %s", uris[i]);
		assert_int_equal(farlog_ring_format(uris[i], &config, NULL), FARLOG_OK);
	}
	assert_int_equal(farlog_writer_open(whole_uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, NULL), FARLOG_OK);
	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

/* copy_over -- in the way of a copy that comes whole: nobody sees the half of it. */
static void copy_over(unsigned from, unsigned to)
{
	char command[1600];

	snprintf(command, sizeof(command), "cp %s %s.new && mv %s.new %s", unit_path(uris[from]), unit_path(uris[to]),
		unit_path(uris[to]), unit_path(uris[to]));
	assert_int_equal(system(command), 0);
}

static void assert_names(const char *text, const char *first, const char *second)
{
	if (strstr(text, first) == NULL || strstr(text, second) == NULL || strstr(text, "have one uuid") == NULL)
		fail_msg("\"%s\": expected it to name \"%s\" and \"%s\", which have one uuid", text, first, second);
}

static void pause_shortly(void)
{
	nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static void open__copy_of_a_member(void **state)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	(void)state;
	make();
	copy_over(0, 2);
	assert_int_equal(
		farlog_writer_open(whole_uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, &error), FARLOG_NOT_A_RING);
	assert_names(error.text, uris[0], uris[2]);
}

/* The stream goes on without it. */
static void join__copy_of_a_member(void **state)
{
	struct farlog_position position;
	uint64_t until_ns = clock_after_ns(WAIT_NS);
	struct region_members *whole;
	farlog_writer *writer;
	bool is_refused = false;

	(void)state;
	make();
	unlink(unit_path(uris[2]));
	assert_int_equal(farlog_writer_open(whole_uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, NULL), FARLOG_OK);
	whole = members_of(writer->region);
	copy_over(0, 2);
	while (!is_refused && clock_monotonic_ns() < until_ns) {
		assert_int_equal(unit_append(writer, 200, 3, &position), FARLOG_OK);
		assert_true(position.copies <= 2);
		pthread_mutex_lock(&whole->mutex);
		is_refused = member_state(&whole->members[2]) == MEMBER_WRONG_RING;
		pthread_mutex_unlock(&whole->mutex);
		pause_shortly();
	}
	assert_true(is_refused);
	assert_names(whole->members[2].public_error.text, uris[0], uris[2]);
	farlog_writer_close(writer);
}

/* read_twins -- a copy is refused when a reader opens, and when it comes later: then it is none of the stream's
 * members, and says why. */
static void read_twins(bool is_drain)
{
	struct farlog_reader_config config = {.is_drain = is_drain};
	struct farlog_member_status members[COUNT] = {{0}};
	uint64_t until_ns = clock_after_ns(WAIT_NS);
	struct farlog_error error = {0};
	struct farlog_batch batch;
	uint8_t buf[4096];
	farlog_reader *reader;

	make();
	copy_over(1, 2);
	assert_int_equal(farlog_reader_open(whole_uri, &config, &reader, &error), FARLOG_NOT_A_RING);
	assert_names(error.text, uris[1], uris[2]);
	make();
	unlink(unit_path(uris[2]));
	config.start = FARLOG_START_HEAD;
	if (farlog_reader_open(whole_uri, &config, &reader, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	copy_over(0, 2);
	while (strstr(members[2].text, "have one uuid") == NULL && clock_monotonic_ns() < until_ns) {
		may_fail(farlog_reader_read(reader, buf, sizeof(buf), &batch));
		farlog_reader_members(reader, members, COUNT);
		pause_shortly();
	}
	assert_names(members[2].text, "members 1, ", "and 3, ");
	assert_int_equal(members[2].state, FARLOG_MEMBER_AWAY);
	farlog_reader_close(reader);
}

static void read__copy_of_a_member(void **state)
{
	(void)state;
	read_twins(false);
}

static void drain__copy_of_a_member(void **state)
{
	(void)state;
	read_twins(true);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(open__copy_of_a_member),
	cmocka_unit_test(join__copy_of_a_member),
	cmocka_unit_test(read__copy_of_a_member),
	cmocka_unit_test(drain__copy_of_a_member),
};

RUN_GROUP(members_twins, tests)
