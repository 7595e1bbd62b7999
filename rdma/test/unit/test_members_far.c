/* test_members_far.c -- one member is far, the others are near: its records come into the copy that all are sent
 * from. */
#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "adversary/blocks.h"
#include "base/clock.h"
#include "ring/layout.h"
#include "members/reader.h"
#include "fault/tended.h"
#include "members/members.h"
#include "unit.h"
#include "log/writer.h"

#define NAME "unit-far-member"
#define FAR_URI "block-fault:" NAME
#define NEAR_COUNT 2u
#define RING_SIZE (LAYOUT_DATA_OFF + (2u << 20))
#define RECORD_LEN 15000u
#define SHARED_COUNT 10u
#define TRIES 1000u
#define LONGER_COUNT 100u /* beyond the first piece that a far log is read in */

static char near_uris[NEAR_COUNT][512];
static char whole_uri[2048];

static void format_one(const char *uri)
{
	struct farlog_ring_config config = {.size_bytes = RING_SIZE,
		.record_len_max = 16384,
		.is_forced = 1,
		.salt = 7,
		.align = 512,
		.stream_name = "members"};
	struct farlog_error error = {0};

	if (farlog_ring_format(uri, &config, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
}

static void make_members(void)
{
	static const char *const names[NEAR_COUNT] = {"near-one", "near-two"};

	for (unsigned i = 0; i < NEAR_COUNT; i++) {
		if (near_uris[i][0] == '\0')
			snprintf(near_uris[i], sizeof(near_uris[i]), "%s", unit_tmpfs_uri(names[i]));
		unlink(unit_path(near_uris[i]));
		format_one(near_uris[i]);
	}
	farlog_block_drop(NAME);
	farlog_block_shape(512, 0);
	format_one(FAR_URI);
}

static farlog_writer *open_members(unsigned needed)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	snprintf(whole_uri, sizeof(whole_uri), "members:%u %s %s %s", needed, near_uris[0], near_uris[1], FAR_URI);
	if (farlog_writer_open(
			whole_uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE, .deadline_ns = 5000000000u), &writer, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	return writer;
}

/* wipe_near -- the near members never had what begins there, nor any word of it. */
static void wipe_near(uint64_t from_lsn)
{
	static uint8_t blank[RING_SIZE - LAYOUT_DATA_OFF];

	for (unsigned i = 0; i < NEAR_COUNT; i++) {
		FILE *file = fopen(unit_path(near_uris[i]), "r+");

		assert_non_null(file);
		assert_int_equal(fseek(file, LAYOUT_TAIL_HINT_OFF, SEEK_SET), 0);
		assert_int_equal(fwrite(blank, 1, 16, file), 16);
		assert_int_equal(fseek(file, (long)(LAYOUT_DATA_OFF + from_lsn), SEEK_SET), 0);
		assert_int_equal(fwrite(blank, 1, sizeof(blank) - from_lsn, file), sizeof(blank) - from_lsn);
		fclose(file);
	}
}

/* has_record -- is it, unchanged, where its acknowledgement says? */
static bool has_record(const char *uri, const struct farlog_position *position, uint8_t fill)
{
	struct farlog_batch batch;
	static uint8_t buf[RING_SIZE];
	farlog_reader *reader = unit_read(uri, FARLOG_START_HEAD, false);
	bool is_there = false;

	while (farlog_reader_read(reader, buf, sizeof(buf), &batch) == FARLOG_OK)
		if (position->lsn >= batch.first_lsn && position->lsn < batch.next_lsn)
			is_there = buf[position->lsn - batch.first_lsn + RECORD_HEADER_LEN] == fill;
	farlog_reader_close(reader);
	return is_there;
}

static void fail_far(void *context)
{
	*(bool *)context = true;
	farlog_block_trouble(NAME, 0, EIO);
}

/* play -- the far one alone has records that were never acknowledged, and fails at that operation of the next opening.
 * False: it did not come to that operation. */
static bool play(unsigned operation)
{
	struct farlog_position position;
	bool has_failed = false;
	uint64_t shared_lsn;
	farlog_writer *writer;

	make_members();
	writer = open_members(3);
	for (unsigned i = 0; i < SHARED_COUNT; i++)
		assert_int_equal(unit_append(writer, RECORD_LEN, 1, &position), FARLOG_OK);
	shared_lsn = (position.end_lsn + 511) / 512 * 512;
	for (unsigned i = 0; i < LONGER_COUNT; i++)
		assert_int_equal(unit_append(writer, RECORD_LEN, 2, &position), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	wipe_near(shared_lsn);

	farlog_block_call(NAME, operation, fail_far, &has_failed);
	writer = open_members(2);
	assert_int_equal(unit_append(writer, RECORD_LEN, 3, &position), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	farlog_block_call(NAME, UINT64_MAX, NULL, NULL);
	farlog_block_trouble(NAME, 0, 0);
	for (unsigned i = 0; i < NEAR_COUNT; i++)
		if (!has_record(near_uris[i], &position, 3))
			fail_msg(
				"far member failed at operation %u: lsn %lu was acknowledged with %u copies, and %s does not have it",
				operation, position.lsn, position.copies, near_uris[i]);
	return has_failed;
}

/* open__far_member_fails_midway -- what it brought into the copy beyond the best log is no part of it. */
static void open__far_member_fails_midway(void **state)
{
	unsigned operation = 1;

	(void)state;
	/* an opening does without a near one that is not there in a moment, and on a machine with much to do that would be
	 * too few: each is opened in its turn */
	members_are_tended = true;
	while (play(operation))
		operation++;
	members_are_tended = false;
	assert_true(operation > 10);
	farlog_block_drop(NAME);
}

static void delay_far(void *context)
{
	(void)context;
	nanosleep(&(struct timespec){0, 400000000}, NULL); /* longer than an opening waits for one that it can do without */
}

/* open__first_waits_for_the_slowest -- a stream's first opening needs all of its members: one that takes its time is no
 * reason to refuse. */
static void open__first_waits_for_the_slowest(void **state)
{
	struct farlog_position position;
	farlog_writer *writer;

	(void)state;
	make_members();
	farlog_block_call(NAME, 1, delay_far, NULL);
	writer = open_members(2);
	farlog_block_call(NAME, UINT64_MAX, NULL, NULL);
	assert_int_equal(unit_append(writer, RECORD_LEN, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	farlog_block_drop(NAME);
}

/* read__waits_for_one_that_knows_the_log -- one is new, and where the stream begins only both others can tell, of which
 * one takes its time: that is no reason to refuse. */
static void read__waits_for_one_that_knows_the_log(void **state)
{
	struct farlog_position position;
	farlog_writer *writer;
	unsigned tries = 0;

	(void)state;
	make_members();
	writer = open_members(3);
	assert_int_equal(unit_append(writer, RECORD_LEN, 4, &position), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	snprintf(whole_uri, sizeof(whole_uri), "members:2 %s %s %s", near_uris[0], near_uris[1], FAR_URI);
	format_one(near_uris[1]);
	farlog_block_call(NAME, 1, delay_far, NULL);
	while (!has_record(whole_uri, &position, 4) && tries < TRIES) /* a reader asks its members by turns */
		tries++;
	assert_in_range(tries, 0, TRIES - 1);
	farlog_block_call(NAME, UINT64_MAX, NULL, NULL);
	farlog_block_drop(NAME);
}

/* What a member was handed, by who stands between the writer and its region. */
struct handed {
	struct region_ops ops;
	const struct region_ops *own;
	const uint8_t *first; /* of the copy that all are sent from */
	uint64_t len;
	bool is_copied;
};

static struct handed handed[NEAR_COUNT];

static void take_handed(unsigned i, struct region *region, uint64_t off, const void *src, size_t len)
{
	handed[i].is_copied |= src != handed[i].first + off;
	handed[i].len += len;
	handed[i].own->data.write(region, off, src, len);
}

static void write_first(struct region *region, uint64_t off, const void *src, size_t len)
{
	take_handed(0, region, off, src, len);
}

static void write_second(struct region *region, uint64_t off, const void *src, size_t len)
{
	take_handed(1, region, off, src, len);
}

static void stand_between(struct region_members *whole)
{
	static void (*const writes[NEAR_COUNT])(struct region *, uint64_t, const void *, size_t) = {
		write_first, write_second};

	members_acquire(whole);
	for (unsigned i = 0; i < NEAR_COUNT; i++) {
		struct region *region = whole->members[i].region;

		handed[i] = (struct handed){.ops = *region->ops, .own = region->ops, .first = whole->copy};
		handed[i].ops.data.write = writes[i];
		region->ops = &handed[i].ops;
	}
	members_release(whole);
}

/* append__one_copy_for_all -- near members are handed the very bytes that the record was built in, each once; a far one
 * sends from the same memory, which it has mapped. Nobody has a copy of his own made. */
static void append__one_copy_for_all(void **state)
{
	struct farlog_position position;
	struct region_members *whole;
	struct region *far;
	farlog_writer *writer;
	uint64_t begun_lsn;
	uint64_t off;

	(void)state;
	make_members();
	writer = open_members(NEAR_COUNT + 1);
	whole = members_of(writer->region);
	far = whole->members[NEAR_COUNT].region;
	stand_between(whole);
	begun_lsn = writer->ring.appended_lsn;
	for (uint8_t i = 0; i < SHARED_COUNT; i++)
		assert_int_equal(unit_append(writer, RECORD_LEN, i, &position), FARLOG_OK);
	for (unsigned i = 0; i < NEAR_COUNT; i++) {
		assert_false(handed[i].is_copied);
		assert_int_equal(handed[i].len, position.end_lsn - begun_lsn);
		whole->members[i].region->ops = handed[i].own;
	}
	off = LAYOUT_DATA_OFF + position.end_lsn + LAYOUT_BLOCK_LEN; /* where nothing is yet */
	assert_ptr_not_equal(far->base, whole->copy);
	assert_int_equal(far->base[off], 0);
	whole->copy[off] = 1;
	assert_int_equal(far->base[off], 1);
	whole->copy[off] = 0;
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

/* What the members were asked for headers, by who stands between the writer and their regions. */
static struct asked {
	struct region_ops ops;
	const struct region_ops *own;
	const struct region *region;
	uint64_t until_ns; /* of the last fetch */
	unsigned count;
} asked[NEAR_COUNT + 1];

static int fetch_asked(struct region *region, uint64_t off, uint64_t len)
{
	unsigned i = 0;

	while (asked[i].region != region)
		i++;
	asked[i].until_ns = region->until_ns;
	asked[i].count++;
	return asked[i].own->data.fetch(region, off, len);
}

/* expect_deadline -- all members are asked for their headers, each until the one moment at which this resolve ends. */
static void expect_deadline(
	farlog_writer *writer, const struct farlog_position *position, uint64_t duration_ns, uint64_t expected_ns)
{
	uint64_t begun_ns = clock_monotonic_ns();
	struct farlog_position found;

	for (unsigned i = 0; i <= NEAR_COUNT; i++)
		asked[i].count = 0;
	assert_int_equal(farlog_resolve(writer, position->lsn, duration_ns, &found), FARLOG_OK);
	assert_int_equal(found.seq, position->seq);
	for (unsigned i = 0; i <= NEAR_COUNT; i++) {
		assert_int_equal(asked[i].count, 1);
		assert_int_equal(asked[i].until_ns, asked[0].until_ns);
		assert_in_range(asked[i].until_ns, begun_ns + expected_ns, clock_monotonic_ns() + expected_ns);
		assert_int_equal(asked[i].region->until_ns, 0); /* what is fetched later has none */
	}
}

/* resolve__deadline_is_that_of_each_member -- of a record of the epoch before: a member that does not answer takes no
 * more time than who asks has, named or not. */
static void resolve__deadline_is_that_of_each_member(void **state)
{
	struct farlog_position position;
	struct region_members *whole;
	farlog_writer *writer;

	(void)state;
	make_members();
	writer = open_members(NEAR_COUNT + 1);
	assert_int_equal(unit_append(writer, RECORD_LEN, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	writer = open_members(NEAR_COUNT + 1);
	whole = members_of(writer->region);
	members_acquire(whole);
	for (unsigned i = 0; i <= NEAR_COUNT; i++) {
		struct region *region = whole->members[i].region;

		asked[i] = (struct asked){.ops = *region->ops, .own = region->ops, .region = region};
		asked[i].ops.data.fetch = fetch_asked;
		region->ops = &asked[i].ops;
	}
	members_release(whole);
	expect_deadline(writer, &position, 3000000000u, 3000000000u);
	expect_deadline(writer, &position, 0, 5000000000u); /* the writer's own */
	for (unsigned i = 0; i <= NEAR_COUNT; i++)
		whole->members[i].region->ops = asked[i].own;
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

static uint8_t read_bytes[RING_SIZE];

/* await_far -- read until the far member is open and answers, or does not. */
static struct reader_member *await_far(farlog_reader *drain, bool is_there)
{
	struct reader_member *far = &drain->members->member[NEAR_COUNT];
	struct farlog_batch batch;

	for (unsigned tries = 0; (far->reader != NULL && !far->is_away) != is_there; tries++) {
		int result = farlog_reader_read(drain, read_bytes, sizeof(read_bytes), &batch);

		assert_true(result == FARLOG_OK || result == FARLOG_NOT_YET);
		assert_in_range(tries, 0, 20 * TRIES);
		usleep(1000);
	}
	return far;
}

/* read__removed_device_is_opened_again_at_once -- a device that fails may answer again, and is asked again for a while;
 * one that the kernel has removed never will. */
static void read__removed_device_is_opened_again_at_once(void **state)
{
	struct farlog_position position;
	struct reader_member *far;
	farlog_writer *writer;
	farlog_reader *drain;

	(void)state;
	make_members();
	members_are_tended = true; /* an opening takes each member in turn */
	writer = open_members(2);
	assert_int_equal(unit_append(writer, RECORD_LEN, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	drain = unit_read(whole_uri, FARLOG_START_HEAD, true);
	await_far(drain, true);

	farlog_block_trouble(NAME, 0, EIO);
	far = await_far(drain, false);
	assert_int_not_equal(far->reopen_at_ns, 0); /* a moment later */
	farlog_block_trouble(NAME, 0, 0);
	await_far(drain, true);

	farlog_block_trouble(NAME, 0, ENODEV);
	await_far(drain, false);
	assert_int_equal(far->reopen_at_ns, 0);
	while (far->reader != NULL) /* it is let go while no other one is there */
		may_fail(farlog_reader_read(drain, read_bytes, sizeof(read_bytes), &(struct farlog_batch){0}));
	farlog_block_trouble(NAME, 0, 0);
	await_far(drain, true);
	assert_int_equal(atomic_load_relaxed(&far->reader->region->is_removed), 0);
	farlog_reader_close(drain);
	members_are_tended = false;
	farlog_block_drop(NAME);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(append__one_copy_for_all),
	cmocka_unit_test(resolve__deadline_is_that_of_each_member),
	cmocka_unit_test(read__waits_for_one_that_knows_the_log),
	cmocka_unit_test(open__first_waits_for_the_slowest),
	cmocka_unit_test(open__far_member_fails_midway),
	cmocka_unit_test(read__removed_device_is_opened_again_at_once),
};

RUN_GROUP(members_far, tests)
