/* test_members_behind.c -- a member that an acknowledgement did not wait for: what it has, and is told, when nothing
 * more is appended. */
#include "farlog/replace.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "adversary/blocks.h"
#include "base/clock.h"
#include "ring/layout.h"
#include "adversary/memory.h"
#include "fault/tended.h"
#include "members/members.h"
#include "unit.h"
#include "log/writer.h"

#define COUNT 3u
#define SLOW 2u
#define WHOLE "members:2 fault:behind-1 fault:behind-2 fault:behind-3"
#define BLOCKS "behind-blocks"
#define OF_256_SLOW 253u
#define OF_256_JOINING 200u /* some appends are confirmed there before the one that it waits for */
#define ROUNDS 20u
#define MOMENTS_LEAST 6u /* its superblock and fence, the reservation, and both again */
#define REST_NS 200000000u
#define WAIT_NS 20000000000u
#define NEXT_WAIT_NS 2000000000u /* who is shut out, and never told by whom, waits that long */

static const char *const names[COUNT] = {"behind-1", "behind-2", "behind-3"};
static const char *const uris[COUNT] = {"fault:behind-1", "fault:behind-2", "fault:behind-3"};

static void make_members(void)
{
	struct farlog_ring_config config = {
		.size_bytes = LAYOUT_DATA_OFF + 4 * LAYOUT_BLOCK_LEN, .record_len_max = 1024, .is_forced = 1, .salt = 0x7a};
	struct farlog_error error = {0};

	for (unsigned i = 0; i < COUNT; i++) {
		farlog_fault_drop(names[i]);
		if (farlog_ring_format(uris[i], &config, &error) != FARLOG_OK)
			fail_msg("%s", error.text);
		farlog_fault_reseed(names[i], i + 1);
		farlog_fault_set_slowness(names[i], 0);
	}
}

static farlog_writer *open_members(void)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	if (farlog_writer_open(WHOLE, CONFIG(.deadline_ns = WAIT_NS, .policy = FARLOG_POLICY_REJECT), &writer, &error) !=
		FARLOG_OK)
		fail_msg("%s", error.text);
	return writer;
}

/* hinted_of -- as its writer has told it: what a reader of this member alone goes by. */
static uint64_t hinted_of(const char *uri)
{
	farlog_reader *reader = unit_read(uri, FARLOG_START_HEAD, false);
	struct farlog_ring_status status;

	may_fail(farlog_reader_status(reader, &status));
	farlog_reader_close(reader);
	return status.durable_lsn;
}

/* close__waits_for_the_slow -- behind an orderly close nobody sends a member what it lacks, until the stream is opened
 * again. */
static void close__waits_for_the_slow(void **state)
{
	struct farlog_position position;

	(void)state;
	make_members();
	farlog_fault_set_slowness(names[SLOW], OF_256_SLOW);
	for (unsigned round = 0; round < ROUNDS; round++) {
		farlog_writer *writer = open_members();

		assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
		assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
		for (unsigned i = 0; i < COUNT; i++)
			assert_int_equal(hinted_of(uris[i]), position.end_lsn);
	}
}

/* join__full_ring -- one comes back when the ring is full, and nobody drains: it is sent everything, and told that it
 * has it, although nothing is appended any more. */
static void join__full_ring(void **state)
{
	uint64_t until = clock_after_ns(WAIT_NS);
	uint64_t full_lsn = 0;
	struct farlog_position position;
	farlog_writer *writer;

	(void)state;
	make_members();
	writer = open_members();
	farlog_fault_set_away(names[SLOW], 1);
	while (unit_append(writer, 500, 2, &position) == FARLOG_OK)
		full_lsn = position.end_lsn;
	nanosleep(&(struct timespec){0, 10000000}, NULL); /* longer than between two hints */
	assert_int_equal(unit_append(writer, 500, 2, &position), FARLOG_FULL);
	assert_int_equal(hinted_of(uris[0]), full_lsn);
	farlog_fault_set_away(names[SLOW], 0);
	while (hinted_of(uris[SLOW]) < full_lsn && clock_monotonic_ns() < until)
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	assert_int_equal(hinted_of(uris[SLOW]), full_lsn);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

static void wait_for(farlog_writer *writer, enum farlog_member_state state)
{
	uint64_t until = clock_after_ns(WAIT_NS);
	struct farlog_writer_member members[COUNT];

	do {
		nanosleep(&(struct timespec){0, 1000000}, NULL);
		assert_int_equal(farlog_writer_members(writer, members, COUNT), COUNT);
	} while (members[SLOW].state != state && clock_monotonic_ns() < until);
	assert_int_equal(members[SLOW].state, state);
}

static farlog_writer *open_with_blocks(void)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	if (farlog_writer_open("members:2 fault:behind-1 fault:behind-2 block-fault:" BLOCKS,
			CONFIG(.deadline_ns = WAIT_NS), &writer, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	return writer;
}

/* join__blocks_that_failed -- a device fails what it was sent, and works again. Its member comes back, but not while
 * that may still land. */
static void join__blocks_that_failed(void **state)
{
	struct farlog_ring_config config = {
		.size_bytes = LAYOUT_DATA_OFF + 65536, .record_len_max = 1024, .is_forced = 1, .salt = 0x7b, .align = 512};
	struct farlog_error error = {0};
	struct farlog_position position;
	farlog_writer *writer;
	uint64_t failed_ns;

	(void)state;
	farlog_block_drop(BLOCKS);
	farlog_block_shape(512, 0);
	farlog_block_rest(REST_NS);
	for (unsigned i = 0; i < COUNT; i++) {
		farlog_fault_drop(names[i]);
		if (farlog_ring_format(i == SLOW ? "block-fault:" BLOCKS : uris[i], &config, &error) != FARLOG_OK)
			fail_msg("%s", error.text);
	}
	writer = open_with_blocks();
	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	failed_ns = clock_monotonic_ns();
	farlog_block_trouble(BLOCKS, 0, EIO);
	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	wait_for(writer, FARLOG_MEMBER_AWAY);
	farlog_block_trouble(BLOCKS, 0, 0);
	wait_for(writer, FARLOG_MEMBER_UP);
	assert_true(clock_monotonic_ns() - failed_ns >= REST_NS);
	assert_int_equal(farlog_heartbeat(writer, 0, &position), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	assert_int_equal(hinted_of("block-fault:" BLOCKS), position.end_lsn);
	farlog_block_rest(0);
}

/* lose_blocks -- a writer on host 1, whose member on blocks has failed, before it was told the epoch or behind that,
 * and works again; it comes again when it is told to. */
static farlog_writer *lose_blocks(bool knows_epoch)
{
	struct farlog_ring_config config = {
		.size_bytes = LAYOUT_DATA_OFF + 65536, .record_len_max = 1024, .is_forced = 1, .salt = 0x7c, .align = 512};
	struct farlog_error error = {0};
	struct farlog_position position;
	farlog_writer *writer;

	farlog_block_drop(BLOCKS);
	farlog_block_hosts(1);
	farlog_block_host(1);
	farlog_block_shape(512, 0);
	for (unsigned i = 0; i < COUNT; i++) {
		farlog_fault_drop(names[i]);
		if (farlog_ring_format(i == SLOW ? "block-fault:" BLOCKS : uris[i], &config, &error) != FARLOG_OK)
			fail_msg("%s", error.text);
	}
	members_are_tended = true;
	writer = open_with_blocks();
	if (!knows_epoch) {
		assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
		farlog_block_trouble(BLOCKS, 0, EIO);
		writer = open_with_blocks();
	}
	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	farlog_block_trouble(BLOCKS, 0, EIO);
	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	members_tend(writer->region);
	farlog_block_trouble(BLOCKS, 0, 0);
	return writer;
}

static enum farlog_member_state state_of_blocks(farlog_writer *writer)
{
	struct farlog_writer_member members[COUNT];

	assert_int_equal(farlog_writer_members(writer, members, COUNT), COUNT);
	return (enum farlog_member_state)members[SLOW].state;
}

/* succeed -- the next writer, on host 2, takes over what is on the blocks. */
static void succeed(void *context)
{
	struct farlog_error error = {0};
	farlog_writer **next = context;

	farlog_block_host(2);
	if (farlog_writer_open("block-fault:" BLOCKS, CONFIG(.deadline_ns = NEXT_WAIT_NS), next, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	farlog_block_host(1);
}

static void end_both(farlog_writer *zombie, farlog_writer *next)
{
	farlog_writer_close(next);
	farlog_writer_close(zombie);
	members_are_tended = false;
	farlog_block_hosts(0);
	farlog_block_host(0);
}

/* append_behind_a_zombie -- the first writer would have its member again after the next one has come. What came of that
 * one's next append, and how the first one sees the member. */
static int append_behind_a_zombie(enum farlog_member_state *state)
{
	farlog_writer *zombie = lose_blocks(true);
	struct farlog_position position;
	farlog_writer *next;
	int result;

	assert_int_equal(state_of_blocks(zombie), FARLOG_MEMBER_AWAY);
	succeed(&next);
	assert_int_equal(unit_append(next, 100, 2, &position), FARLOG_OK);
	members_tend(zombie->region);
	*state = state_of_blocks(zombie);
	result = unit_append(next, 100, 2, &position);
	end_both(zombie, next);
	return result;
}

/* join__takes_nothing_from_a_successor -- whom it finds there when it comes again: it is out, and he goes on. */
static void join__takes_nothing_from_a_successor(void **state)
{
	enum farlog_member_state seen;

	(void)state;
	assert_int_equal(append_behind_a_zombie(&seen), FARLOG_OK);
	assert_int_equal(seen, FARLOG_MEMBER_OUT);
}

/* come_meanwhile -- the successor, after so many operations of the device: the member counts for the first writer no
 * more, whose records there nobody would find. False: it had not so many. */
static bool come_meanwhile(bool knows_epoch, unsigned moment)
{
	farlog_writer *zombie = lose_blocks(knows_epoch);
	struct farlog_position position;
	farlog_writer *next = NULL;
	bool has_come;

	farlog_block_call(BLOCKS, moment, succeed, &next);
	members_tend(zombie->region);
	farlog_block_call(BLOCKS, UINT64_MAX, NULL, NULL);
	has_come = next != NULL;
	for (unsigned i = 0; i < ROUNDS && has_come; i++) {
		assert_int_equal(unit_append(zombie, 100, 1, &position), FARLOG_OK); /* by the others */
		members_tend(zombie->region);
	}
	if (has_come && state_of_blocks(zombie) != FARLOG_MEMBER_OUT)
		fail_msg("behind operation %u it is %d, expected %d", moment, state_of_blocks(zombie), FARLOG_MEMBER_OUT);
	end_both(zombie, next);
	return has_come;
}

static void join__successor_comes_meanwhile(void **state)
{
	(void)state;
	for (unsigned told = 0; told < 2; told++) {
		unsigned moment = 0;

		while (come_meanwhile(told != 0, moment))
			moment++;
		assert_true(moment >= MOMENTS_LEAST);
	}
}

/* lose_connections -- of the writer that a member has now. */
static void lose_connections(unsigned first, unsigned end)
{
	for (unsigned i = first; i < end; i++)
		farlog_fault_kill_writer(names[i]);
}

/* hint__not_where_the_epoch_is_unknown -- a member that was away at a takeover is sent records of the new epoch, and
 * its connection breaks before the epoch is stored there. The former writer then puts a record of its own in their
 * place. The member has not lost what it once confirmed: with one other member it is enough to open the stream. */
static void hint__not_where_the_epoch_is_unknown(void **state)
{
	struct farlog_error error = {0};
	struct farlog_position position;
	const struct member *behind;
	farlog_writer *former;
	farlog_writer *next;
	uint64_t hint_lsn;

	(void)state;
	make_members();
	members_are_tended = true;
	former = open_members();
	assert_int_equal(unit_append(former, 100, 1, &position), FARLOG_OK);
	farlog_fault_set_away(names[SLOW], 1);
	lose_connections(0, SLOW);
	next = open_members();
	next->hint_interval_ticks = 0; /* with each append */
	assert_int_equal(farlog_submit(former, &(struct farlog_entry){.data = "late", .len = 4}, &position), FARLOG_OK);
	farlog_fault_set_away(names[SLOW], 0);
	hint_lsn = hinted_of(uris[SLOW]);

	farlog_fault_set_slowness(names[SLOW], OF_256_JOINING);
	members_tend(next->region);
	behind = &members_of(next->region)->members[SLOW];
	for (unsigned i = 0; i < ROUNDS && behind->durable_lsn <= hint_lsn; i++)
		assert_int_equal(unit_append(next, 100, 2, &position), FARLOG_OK);
	assert_int_equal(unit_append(next, 100, 2, &position), FARLOG_OK); /* which stores hints first */
	assert_true(behind->durable_lsn > hint_lsn);
	assert_false(behind->knows_epoch);
	farlog_fault_set_slowness(names[SLOW], 0);
	lose_connections(SLOW, COUNT);
	for (unsigned i = 0; i < ROUNDS; i++) {
		members_tend(former->region);
		assert_int_equal(former->region->ops->data.poll(former->region), FARLOG_OK);
	}
	farlog_writer_close(former);
	farlog_writer_close(next);

	farlog_fault_set_away(names[0], 1);
	if (farlog_writer_open(WHOLE, CONFIG(.deadline_ns = WAIT_NS), &next, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	assert_int_equal(farlog_writer_close(next), FARLOG_OK);
	members_are_tended = false;
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(hint__not_where_the_epoch_is_unknown),
	cmocka_unit_test(join__takes_nothing_from_a_successor),
	cmocka_unit_test(join__successor_comes_meanwhile),
	cmocka_unit_test(join__blocks_that_failed),
	cmocka_unit_test(close__waits_for_the_slow),
	cmocka_unit_test(join__full_ring),
};

RUN_GROUP(members_behind, tests)
