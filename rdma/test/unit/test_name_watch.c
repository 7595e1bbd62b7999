/* test_name_watch.c -- a ring's file goes while a writer has it open: removed, replaced, renamed. The writer is refused
 * where what it writes would be found by nobody, and only there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "farlog/replace.h"
#include "ring/layout.h"
#include "mem/watch.h"
#include "unit.h"

#define RING_SIZE (LAYOUT_DATA_OFF + (4u << 20))
#define RECORD_MAX 4096u
#define WAIT_NS 60000000000u /* it is never what a test measures */
#define COUNT 3u

static const struct farlog_entry entry = {.data = "x", .len = 1};

/* append_until -- the result that is waited for. Rings are large enough that none gets full before. */
static void append_until(farlog_writer *writer, int wanted, struct farlog_position *position)
{
	uint64_t until_ns = clock_after_ns(WAIT_NS);
	int result;

	while ((result = farlog_append(writer, &entry, 0, position)) != wanted) {
		/* by members: too few are left for what is under way */
		assert_true(result == FARLOG_OK || result == FARLOG_UNKNOWN);
		assert_true(clock_monotonic_ns() < until_ns);
		usleep(1000);
	}
}

static const char *hung_path; /* a look at this name does not come back before it is another one */
static uint64_t look_count;   /* looks that have come back */

void __real_name_watch_check(struct name_watch *watch);
void __wrap_name_watch_check(struct name_watch *watch);

void __wrap_name_watch_check(struct name_watch *watch)
{
	const char *hung;

	while ((hung = __atomic_load_n(&hung_path, __ATOMIC_ACQUIRE)) != NULL && watch->path != NULL &&
		strcmp(hung, watch->path) == 0)
		usleep(1000);
	__real_name_watch_check(watch);
	__atomic_add_fetch(&look_count, 1, __ATOMIC_RELEASE);
}

/* await_looks -- until names have been looked at so often. */
static void await_looks(unsigned count)
{
	uint64_t from = __atomic_load_n(&look_count, __ATOMIC_ACQUIRE);
	uint64_t until_ns = clock_after_ns(WAIT_NS);

	while (__atomic_load_n(&look_count, __ATOMIC_ACQUIRE) < from + count) {
		assert_true(clock_monotonic_ns() < until_ns);
		usleep(1000);
	}
}

static void copy_file(const char *from, const char *to)
{
	char command[1200];

	snprintf(command, sizeof(command), "cp %s %s", from, to);
	assert_int_equal(system(command), 0);
}

static void name_watch__removed(void **state)
{
	const char *const uris[] = {unit_tmpfs_uri("gone"), unit_file_uri("gone")};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct farlog_position position;
		struct farlog_error error = {0};
		char uri[512];
		farlog_writer *writer;

		snprintf(uri, sizeof(uri), "%s", uris[i]);
		unit_format(uri, RING_SIZE, RECORD_MAX);
		writer = unit_open(uri);
		assert_int_equal(farlog_append(writer, &entry, WAIT_NS, &position), FARLOG_OK);
		assert_int_equal(unlink(unit_path(uri)), 0);
		append_until(writer, FARLOG_FENCED, &position);
		assert_int_equal(position.epoch, 2);
		assert_int_equal(farlog_append(writer, &entry, 0, &position), FARLOG_FENCED);
		farlog_writer_close(writer);
		assert_int_equal(
			farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, &error), FARLOG_NOT_FOUND);
		assert_non_null(strstr(error.text, "there is no file"));
	}
}

static void name_watch__removed_under_a_shared_writer(void **state)
{
	const char *uri = unit_tmpfs_uri("gone");
	uint64_t until_ns = clock_after_ns(WAIT_NS);
	struct farlog_position position;
	farlog_shared *shared;
	int result;

	(void)state;
	unit_format(uri, RING_SIZE, RECORD_MAX);
	assert_int_equal(farlog_shared_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &shared, NULL), FARLOG_OK);
	assert_int_equal(unlink(unit_path(uri)), 0);
	while ((result = farlog_shared_append(shared, &entry, 0, &position)) != FARLOG_FENCED) {
		assert_int_equal(result, FARLOG_OK);
		assert_true(clock_monotonic_ns() < until_ns);
		usleep(1000);
	}
	farlog_shared_close(shared);
}

/* What is put aside and replaced is not where anybody looks; it is whole, and opens again. */
static void name_watch__replaced(void **state)
{
	struct farlog_position position;
	char uri[512];
	char aside[600];
	farlog_writer *writer;

	(void)state;
	snprintf(uri, sizeof(uri), "%s", unit_tmpfs_uri("gone"));
	snprintf(aside, sizeof(aside), "%s.aside", unit_path(uri));
	unit_format(uri, RING_SIZE, RECORD_MAX);
	writer = unit_open(uri);
	assert_int_equal(rename(unit_path(uri), aside), 0);
	await_looks(3);
	assert_int_equal(farlog_append(writer, &entry, WAIT_NS, &position), FARLOG_OK); /* renamed: its records are there */
	copy_file(aside, unit_path(uri));
	append_until(writer, FARLOG_FENCED, &position);
	farlog_writer_close(writer);
	assert_int_equal(rename(aside, unit_path(uri)), 0);
	writer = unit_open(uri);
	assert_int_equal(farlog_append(writer, &entry, WAIT_NS, &position), FARLOG_OK);
	assert_int_equal(position.epoch, 2);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

/* Two of three hold each record: without one appends go on, which it does not count for; without two nothing is
 * acknowledged. */
static void name_watch__members(void **state)
{
	struct farlog_writer_member members[COUNT];
	struct farlog_ring_config config = {.size_bytes = RING_SIZE,
		.record_len_max = RECORD_MAX,
		.is_forced = 1,
		.salt = 0x1234567800000001u,
		.stream_name = "members"};
	uint64_t until_ns = clock_after_ns(WAIT_NS);
	struct farlog_position position;
	struct farlog_error error = {0};
	char whole[2048] = "members:2";
	char paths[COUNT][512];
	farlog_writer *writer;

	(void)state;
	for (unsigned i = 0; i < COUNT; i++) {
		static const char *const names[COUNT] = {"one", "two", "three"};
		const char *uri = unit_tmpfs_uri(names[i]);

		snprintf(paths[i], sizeof(paths[i]), "%s", unit_path(uri));
		snprintf(whole + strlen(whole), sizeof(whole) - strlen(whole), " %s", uri);
		unlink(paths[i]);
		assert_int_equal(farlog_ring_format(uri, &config, &error), FARLOG_OK);
	}
	if (farlog_writer_open(whole, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	assert_int_equal(unlink(paths[1]), 0);
	do {
		assert_int_equal(farlog_append(writer, &entry, WAIT_NS, &position), FARLOG_OK);
		assert_int_equal(farlog_writer_members(writer, members, COUNT), COUNT);
		assert_true(clock_monotonic_ns() < until_ns);
		usleep(1000);
	} while (members[1].state == FARLOG_MEMBER_UP);
	assert_int_equal(farlog_append(writer, &entry, WAIT_NS, &position), FARLOG_OK);
	assert_int_equal(position.copies, 2);
	assert_int_equal(members[1].state, FARLOG_MEMBER_OUT);
	assert_int_equal(unlink(paths[2]), 0);
	append_until(writer, FARLOG_FENCED, &position);
	farlog_writer_close(writer);
}

/* await_clock -- until the thread that keeps time has come by so often: its version goes up by two each time. */
static void await_clock(unsigned count)
{
	uint64_t from = __atomic_load_n(&clock_anchor.version, __ATOMIC_ACQUIRE);
	uint64_t until_ns = clock_after_ns(WAIT_NS);

	while (__atomic_load_n(&clock_anchor.version, __ATOMIC_ACQUIRE) < from + 2u * count) {
		assert_true(clock_monotonic_ns() < until_ns);
		usleep(1000);
	}
}

/* A file system that does not answer holds up neither the clock nor who opens, closes, or is looked after on another
 * one; when it answers, what happened on it meanwhile is seen. */
static void name_watch__hangs(void **state)
{
	struct farlog_position position;
	char hung[512];
	char other[512];
	farlog_writer *writers[2];

	(void)state;
	snprintf(hung, sizeof(hung), "%s", unit_tmpfs_uri("hung"));
	snprintf(other, sizeof(other), "%s", unit_file_uri("other"));
	unit_format(hung, RING_SIZE, RECORD_MAX);
	unit_format(other, RING_SIZE, RECORD_MAX);
	writers[0] = unit_open(hung);
	__atomic_store_n(&hung_path, unit_path(hung), __ATOMIC_RELEASE);
	writers[1] = unit_open(other);
	await_clock(3);
	await_looks(3);
	assert_int_equal(farlog_append(writers[0], &entry, WAIT_NS, &position), FARLOG_OK);
	assert_int_equal(unlink(unit_path(hung)), 0);
	assert_int_equal(unlink(unit_path(other)), 0);
	append_until(writers[1], FARLOG_FENCED, &position);
	farlog_writer_close(writers[1]);
	assert_int_equal(farlog_append(writers[0], &entry, WAIT_NS, &position), FARLOG_OK); /* nobody knows yet */
	__atomic_store_n(&hung_path, NULL, __ATOMIC_RELEASE);
	append_until(writers[0], FARLOG_FENCED, &position);
	farlog_writer_close(writers[0]);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(name_watch__removed),
	cmocka_unit_test(name_watch__removed_under_a_shared_writer),
	cmocka_unit_test(name_watch__replaced),
	cmocka_unit_test(name_watch__members),
	cmocka_unit_test(name_watch__hangs),
};

RUN_GROUP(name_watch, tests)
