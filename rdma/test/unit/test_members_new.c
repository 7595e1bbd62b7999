/* test_members_new.c -- a ring that was put in the place of a member: what it must not know before others do, whenever its opening is cut short. */
#include <stdio.h>

#include "layout.h"
#include "mutant.h"
#include "region_fault.h"
#include "region_members.h"
#include "superblock.h"
#include "unit.h"

#define COUNT 3u
#define WHOLE "members:2 fault:new-1 fault:new-2 fault:new-3"
#define STEPS_MAX 400u

static const char *const names[COUNT] = {"new-1", "new-2", "new-3"};
static const char *const uris[COUNT] = {"fault:new-1", "fault:new-2", "fault:new-3"};

static void format_one(unsigned i)
{
	struct farlog_ring_config config = {.size_bytes = LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN, .record_len_max = 1024, .is_forced = 1, .salt = 0x77};
	struct farlog_error error = {0};

	if (farlog_ring_format(uris[i], &config, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
}

static int open_whole(farlog_writer **writer)
{
	struct farlog_error error = {0};

	return farlog_writer_open(WHOLE, CONFIG(.deadline_ns = 50000000), writer, &error);
}

static uint32_t epoch_of(unsigned i)
{
	struct region_ask ask = {.access = REGION_READ, .role = REGION_ROLE_READER};
	struct superblock superblock;
	struct region *region;

	assert_int_equal(region_open(uris[i], &ask, &region, NULL), FARLOG_OK);
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

/* cut_short -- the first member is new, and the opening of epoch 2 ends after so many operations of one of them. True: it ended earlier by itself. */
static bool cut_short(unsigned member, unsigned step, bool *is_known_alone)
{
	farlog_writer *writer = NULL;
	bool is_open;

	for (unsigned i = 0; i < COUNT; i++) {
		farlog_fault_drop(names[i]);
		format_one(i);
		farlog_fault_set_slowness(names[i], 0);
	}
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

/* epoch__new_ring_is_last -- the writer of epoch 1 may go on in the old ring and one other, unless both others know epoch 2. So until they do the new ring must
 * not look as if its word counted. */
static void epoch__new_ring_is_last(void **state)
{
	(void)state;
	members_are_tended = true;
	farlog_fault_set_clock(1000000000u); /* what an opening waits for is over at once */
	assert_false(is_ever_known_alone());
	farlog_fault_set_mutant(MUTANT_NEW_RING_FIRST);
	assert_true(is_ever_known_alone());
	farlog_fault_set_mutant(MUTANT_NONE);
	farlog_fault_set_clock(0);
	members_are_tended = false;
	for (unsigned i = 0; i < COUNT; i++)
		farlog_fault_drop(names[i]);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(epoch__new_ring_is_last),
};

RUN_GROUP(members_new, tests)
