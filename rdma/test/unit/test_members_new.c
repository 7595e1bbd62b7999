/* test_members_new.c -- a ring that was put in the place of a member: what it must not know before others do, whenever
 * its opening is cut short. */
#include <stdio.h>

#include "ring/layout.h"
#include "adversary/clock.h"
#include "adversary/memory.h"
#include "fault/tended.h"
#include "members/members.h"
#include "region/superblock.h"
#include "unit.h"

#define COUNT 3u
#define WHOLE "members:2 fault:new-1 fault:new-2 fault:new-3"
#define STEPS_MAX 400u

static const char *const names[COUNT] = {"new-1", "new-2", "new-3"};
static const char *const uris[COUNT] = {"fault:new-1", "fault:new-2", "fault:new-3"};

static void format_one(unsigned i)
{
	struct farlog_ring_config config = {
		.size_bytes = LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN, .record_len_max = 1024, .is_forced = 1, .salt = 0x77};
	struct farlog_error error = {0};

	if (farlog_ring_format(uris[i], &config, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
}

static void begin(void)
{
	members_are_tended = true;
	farlog_fault_set_clock(1000000000u); /* what an opening waits for is over at once */
}

static void end(void)
{
	farlog_fault_set_clock(0);
	members_are_tended = false;
	for (unsigned i = 0; i < COUNT; i++)
		farlog_fault_drop(names[i]);
}

static void make_new(void)
{
	for (unsigned i = 0; i < COUNT; i++) {
		farlog_fault_drop(names[i]);
		format_one(i);
		farlog_fault_set_slowness(names[i], 0);
	}
}

static int open_whole(farlog_writer **writer)
{
	struct farlog_error error = {0};

	return farlog_writer_open(WHOLE, CONFIG(.deadline_ns = 50000000), writer, &error);
}

static uint32_t epoch_of(unsigned i)
{
	struct region_options options = {.access = REGION_READ, .role = REGION_ROLE_READER};
	struct superblock superblock;
	struct region *region;

	assert_int_equal(region_open(uris[i], &options, &region, NULL), FARLOG_OK);
	assert_int_equal(superblock_load(region, uris[i], &superblock, NULL), FARLOG_OK);
	region->ops->close(region);
	return superblock.writer_epoch;
}

/* vanish -- nobody reaches any of them any more. */
static void vanish(void *context)
{
	(void)context;
	for (unsigned i = 0; i < COUNT; i++)
		farlog_fault_set_away(names[i], 1);
}

/* cut_short -- the first member is new, and the opening of epoch 2 ends after so many operations of one of them. True:
 * it ended earlier by itself. */
static bool cut_short(unsigned member, unsigned step, bool *is_known_alone)
{
	farlog_writer *writer = NULL;
	bool is_open;

	make_new();
	assert_int_equal(open_whole(&writer), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	format_one(0);
	farlog_fault_call(names[member], step, vanish, NULL);
	is_open = open_whole(&writer) == FARLOG_OK;
	farlog_fault_call(names[member], UINT64_MAX, NULL, NULL);
	if (is_open)
		farlog_writer_close(writer);
	for (unsigned i = 0; i < COUNT; i++)
		farlog_fault_set_away(names[i], 0);
	*is_known_alone |= epoch_of(0) == 2 && (epoch_of(1) < 2 || epoch_of(2) < 2);
	return is_open;
}

static bool is_ever_known_alone(void)
{
	bool is_known_alone = false;

	for (unsigned member = 0; member < COUNT; member++) {
		unsigned step = 0;

		while (step < STEPS_MAX && !cut_short(member, step, &is_known_alone))
			step++;
		assert_in_range(step, 5, STEPS_MAX - 1);
	}
	return is_known_alone;
}

/* epoch__new_ring_is_last -- the writer of epoch 1 may go on in the old ring and one other, unless both others know
 * epoch 2. So until they do the new ring must not look as if its word counted. */
static void epoch__new_ring_is_last(void **state)
{
	(void)state;
	begin();
	assert_false(is_ever_known_alone());
	end();
}

/* drain -- open one, and where records are wanted read and release them. Result of the opening. */
static int drain(bool is_read)
{
	static uint8_t bytes[LAYOUT_BLOCK_LEN];
	struct farlog_reader_config config = {.is_drain = 1};
	struct farlog_error error = {0};
	struct farlog_batch batch;
	farlog_reader *reader;
	int result = farlog_reader_open(WHOLE, &config, &reader, &error);

	if (result != FARLOG_OK)
		return result;
	if (is_read) {
		assert_int_equal(farlog_reader_read(reader, bytes, sizeof(bytes), &batch), FARLOG_OK);
		assert_int_equal(farlog_reader_release(reader, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	}
	farlog_reader_close(reader);
	return result;
}

/* drain_beside_new_ring -- the head was moved in the first member, whose ring is lost and replaced, and in the last
 * one, which is away. */
static int drain_beside_new_ring(void)
{
	farlog_writer *writer = NULL;
	struct farlog_position position;
	int result;

	make_new();
	assert_int_equal(open_whole(&writer), FARLOG_OK);
	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	farlog_fault_set_away(names[1], 1);
	assert_int_equal(drain(true), FARLOG_OK);
	farlog_fault_set_away(names[1], 0);
	format_one(0);
	farlog_fault_set_away(names[2], 1);
	result = drain(false);
	farlog_fault_set_away(names[2], 0);
	return result;
}

/* drain__new_ring_is_no_witness -- of how far the stream is stored: with it and one other ring a drain would begin
 * below that, and store records again. */
static void drain__new_ring_is_no_witness(void **state)
{
	(void)state;
	begin();
	assert_int_equal(drain_beside_new_ring(), FARLOG_IO);
	end();
}

/* open_new_without_last -- the first two rings are new, and the last one is away, which may know more. */
static int open_new_without_last(void)
{
	farlog_writer *writer = NULL;
	int result;

	make_new();
	farlog_fault_set_away(names[2], 1);
	result = open_whole(&writer);
	if (result == FARLOG_OK)
		farlog_writer_close(writer);
	farlog_fault_set_away(names[2], 0);
	return result;
}

/* open__new_rings_are_no_stream -- unless all are there. */
static void open__new_rings_are_no_stream(void **state)
{
	(void)state;
	begin();
	assert_int_equal(open_new_without_last(), FARLOG_IO);
	end();
}

/* count_blank -- by an operator's word: those that know no epoch count as they are. How many did not. */
static unsigned count_blank(bool is_first_left)
{
	struct farlog_error error = {0};
	unsigned count = 0;

	for (unsigned i = is_first_left; i < COUNT; i++)
		if (epoch_of(i) == 0) {
			count++;
			if (farlog_ring_accept_loss(uris[i], &error) != FARLOG_OK)
				fail_msg("%s", error.text);
		}
	return count;
}

static void vanish_last(void *context)
{
	(void)context;
	farlog_fault_set_away(names[COUNT - 1], 1);
}

/* leave_last_untold -- the first opening loses the last member after so many of its operations, and goes on with two; a
 * record is acknowledged. Then the first member is lost, and a new ring stands in its place. True: the last one knows
 * no epoch. */
static bool leave_last_untold(unsigned step, struct farlog_position *position)
{
	farlog_writer *writer = NULL;
	bool is_open;

	make_new();
	farlog_fault_call(names[COUNT - 1], step, vanish_last, NULL);
	is_open = open_whole(&writer) == FARLOG_OK;
	if (is_open) {
		assert_int_equal(unit_append(writer, 100, 1, position), FARLOG_OK);
		farlog_writer_close(writer);
	}
	farlog_fault_call(names[COUNT - 1], UINT64_MAX, NULL, NULL);
	farlog_fault_set_away(names[COUNT - 1], 0);
	if (!is_open || epoch_of(COUNT - 1) != 0)
		return false;
	farlog_fault_drop(names[0]);
	format_one(0);
	return true;
}

/* open__member_never_told -- one ring alone knows what was acknowledged, beside a new one, and one that was never told
 * an epoch. That last one had no part in anything: when it counts as it is, which the control plane has its target do,
 * the stream opens by the log of the one that knows, and nothing is lost. */
static void open__member_never_told(void **state)
{
	unsigned played_count = 0;

	(void)state;
	begin();
	for (unsigned step = 0; step < STEPS_MAX; step++) {
		struct farlog_position position;
		struct farlog_position found;
		farlog_writer *writer = NULL;

		if (!leave_last_untold(step, &position))
			continue;
		played_count++;
		assert_int_equal(open_whole(&writer), FARLOG_IO);
		assert_int_equal(count_blank(true), 1);
		assert_int_equal(open_whole(&writer), FARLOG_OK);
		assert_int_equal(farlog_resolve(writer, position.lsn, 50000000, &found), FARLOG_OK);
		assert_int_equal(found.epoch, position.epoch);
		assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	}
	assert_true(played_count > 0);
	end();
}

/* open__first_one_cut_short -- wherever the stream's very first opening ends, there is a way to open it. */
static void open__first_one_cut_short(void **state)
{
	unsigned refused_count = 0;

	(void)state;
	begin();
	for (unsigned member = 0; member < COUNT; member++)
		for (unsigned step = 0; step < STEPS_MAX; step++) {
			farlog_writer *writer = NULL;
			bool is_open;

			make_new();
			farlog_fault_call(names[member], step, vanish, NULL);
			is_open = open_whole(&writer) == FARLOG_OK;
			farlog_fault_call(names[member], UINT64_MAX, NULL, NULL);
			if (is_open)
				farlog_writer_close(writer);
			for (unsigned i = 0; i < COUNT; i++)
				farlog_fault_set_away(names[i], 0);
			if (is_open)
				break;
			if (open_whole(&writer) != FARLOG_OK) {
				refused_count++;
				assert_int_equal(count_blank(false), COUNT - 1);
				assert_int_equal(open_whole(&writer), FARLOG_OK);
			}
			assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
		}
	assert_true(refused_count > 0);
	end();
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(open__member_never_told),
	cmocka_unit_test(open__first_one_cut_short),
	cmocka_unit_test(open__new_rings_are_no_stream),
	cmocka_unit_test(drain__new_ring_is_no_witness),
	cmocka_unit_test(epoch__new_ring_is_last),
};

RUN_GROUP(members_new, tests)
