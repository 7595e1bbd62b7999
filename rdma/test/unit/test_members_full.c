/* test_members_full.c -- a full ring of several members, and drains that have to find their way: each test is one of
 * the ways in which a stream once stood still, or was stored twice. On adversarial memories, in time that the test
 * makes. */
#include "base/err.h"
#include "adversary/clock.h"
#include "adversary/memory.h"
#include "fault/tended.h"
#include "members/members.h"
#include "region/superblock.h"
#include "ring/layout.h"
#include "ring/record.h"
#include "unit.h"
#include "log/writer.h"

#define COUNT 3u
#define WHOLE "members:2 fault:full-1 fault:full-2 fault:full-3"
#define EPOCH_LEN 128u        /* of an EPOCH record */
#define LOOK_NS 25000000u     /* a little longer than a reader waits before it looks at all members again */
#define REOPEN_NS 2600000000u /* and before it opens one again */
#define TURNS 40u

static const char *const names[COUNT] = {"full-1", "full-2", "full-3"};
static const char *const uris[COUNT] = {"fault:full-1", "fault:full-2", "fault:full-3"};
static uint64_t now_ns;

static void begin(void)
{
	struct farlog_ring_config config = {
		.size_bytes = LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN, .record_len_max = 1024, .is_forced = 1, .salt = 0x77};
	struct farlog_error error = {0};

	members_are_tended = true;
	now_ns = 1000000000u;
	farlog_fault_set_clock(now_ns);
	for (unsigned i = 0; i < COUNT; i++) {
		farlog_fault_drop(names[i]);
		if (farlog_ring_format(uris[i], &config, &error) != FARLOG_OK)
			fail_msg("%s", error.text);
		farlog_fault_set_slowness(names[i], 0);
	}
}

static void end(void)
{
	farlog_fault_set_clock(0);
	members_are_tended = false;
	for (unsigned i = 0; i < COUNT; i++)
		farlog_fault_drop(names[i]);
}

static void wait_ns(uint64_t ns)
{
	now_ns += ns;
	farlog_fault_set_clock(now_ns);
}

/* let_be_away -- those members, and no others, are. One that was is as it was, and its connections are new. */
static void let_be_away(bool first, bool second, bool third)
{
	const bool are_away[COUNT] = {first, second, third};

	for (unsigned i = 0; i < COUNT; i++)
		farlog_fault_set_away(names[i], are_away[i]);
}

/* forget_hints -- what a power cut may leave of words that nobody flushed. */
static void forget_hints(unsigned i)
{
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_READER};
	struct region *region;

	assert_int_equal(region_open(uris[i], &options, &region, NULL), FARLOG_OK);
	region->ops->data.store_word(region, LAYOUT_TAIL_HINT_OFF, 0);
	region->ops->data.store_word(region, LAYOUT_DURABLE_HINT_OFF, 0);
	region->ops->close(region);
}

static int open_writer(farlog_writer **writer)
{
	struct farlog_error error = {0};

	return farlog_writer_open(WHOLE, CONFIG(.policy = FARLOG_POLICY_REJECT, .deadline_ns = 50000000), writer, &error);
}

/* What is kept for the next writer's epoch is kept from short records, too, however late the writer is to be warned. */
static void full__keeps_the_room_of_an_epoch(void **state)
{
	static const uint32_t percents[] = {70, 99, 100};
	struct farlog_writer_config config = {
		.policy = FARLOG_POLICY_REJECT, .counters_dir = "", .deadline_ns = 50000000, .alarm_percent = 100};

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct farlog_position position;
		struct farlog_cursors cursors;
		farlog_writer *writer;

		begin();
		config.warn_percent = percents[i];
		assert_int_equal(farlog_writer_open(WHOLE, &config, &writer, NULL), FARLOG_OK);
		while (unit_append(writer, 0, 0, &position) == FARLOG_OK)
			;
		farlog_writer_cursors(writer, &cursors);
		assert_true(cursors.capacity_bytes - (cursors.appended_lsn - cursors.head_lsn) >= 2 * EPOCH_LEN);
		assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
		assert_int_equal(open_writer(&writer), FARLOG_OK);
		assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
		end();
	}
}

/* write_some -- an epoch with so many records. */
static void write_some(unsigned count)
{
	struct farlog_position position;
	farlog_writer *writer;

	assert_int_equal(open_writer(&writer), FARLOG_OK);
	for (unsigned n = 0; n < count; n++)
		assert_int_equal(unit_append(writer, 64, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

/* fill -- an epoch, and records until there is room for none. How many, with the EPOCH record. */
static uint64_t fill(void)
{
	struct farlog_position position;
	farlog_writer *writer;
	uint64_t count = 1;

	assert_int_equal(open_writer(&writer), FARLOG_OK);
	while (unit_append(writer, 0, 1, &position) == FARLOG_OK)
		count++;
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	return count;
}

static farlog_reader *open_drain(void)
{
	struct farlog_reader_config config = {.is_drain = 1};
	struct farlog_error error = {0};
	farlog_reader *reader;

	if (farlog_reader_open(WHOLE, &config, &reader, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	return reader;
}

/* drain_parts -- for a while, so many bytes at a time. How many records; *last is how the last look ended that was not
 * a batch. */
static uint64_t drain_parts(farlog_reader *reader, size_t part_len, uint64_t pause_ns, int *last)
{
	static uint8_t bytes[LAYOUT_BLOCK_LEN];
	struct farlog_batch batch;
	uint64_t count = 0;

	*last = FARLOG_OK;
	for (unsigned left = TURNS; left > 0 && *last != FARLOG_HELD; left--) {
		int result = farlog_reader_read(reader, bytes, part_len, &batch);

		if (result == FARLOG_OK) {
			count += batch.record_count;
			may_fail(farlog_reader_release(reader, batch.next_lsn, batch.next_seq, batch.last_epoch));
			continue;
		}
		*last = result;
		wait_ns(pause_ns);
	}
	return count;
}

static uint64_t drain_some(farlog_reader *reader, uint64_t pause_ns, int *last)
{
	return drain_parts(reader, LAYOUT_BLOCK_LEN, pause_ns, last);
}

/* ---------------------------------------------------------------- full rings */

static int open_full(void)
{
	farlog_writer *writer;
	int result;

	begin();
	fill();
	result = open_writer(&writer);
	if (result == FARLOG_OK)
		farlog_writer_close(writer);
	return result;
}

/* open__full_of_records -- a writer comes to a stream that its records fill, and whose drain is away: appends have left
 * it room for its epoch. */
static void open__full_of_records(void **state)
{
	(void)state;
	assert_int_equal(open_full(), FARLOG_OK);
	end();
}

/* fill_by_openings -- the room that records leave is taken by two writers, the last of which had two members. One of
 * these is lost then, and the other one does not know any more how far all was acknowledged. How many records there
 * are. */
static uint64_t fill_by_openings(void)
{
	uint64_t count;

	begin();
	count = fill();
	write_some(0);
	let_be_away(false, false, true);
	write_some(0);
	let_be_away(true, false, false);
	forget_hints(1);
	forget_hints(2);
	return count + 2;
}

/* drain_behind_opening -- of a ring that has no room for an epoch. How many records. *result: of the opening behind
 * that. */
static uint64_t drain_behind_opening(int *result)
{
	farlog_writer *writer;
	farlog_reader *reader;
	uint64_t count;
	int last;

	assert_int_equal(open_writer(&writer), FARLOG_FULL);
	reader = open_drain();
	count = drain_some(reader, LOOK_NS, &last);
	farlog_reader_close(reader);
	*result = open_writer(&writer);
	if (*result == FARLOG_OK)
		farlog_writer_close(writer);
	return count;
}

/* open__full_of_epochs -- one member alone knows the last epoch, so that nothing can be drained; the next writer, which
 * would make it two, finds no room for its EPOCH record. It tells the members its epoch all the same, which they are
 * told when they have all that lies below it: so the drain goes on, and so does the stream. No record is missing. */
static void open__full_of_epochs(void **state)
{
	farlog_reader *reader;
	uint64_t count;
	int last;

	(void)state;
	count = fill_by_openings();
	reader = open_drain();
	assert_int_equal(drain_some(reader, LOOK_NS, &last), 0);
	/* nor what both have: where an older epoch begins, by a member that knows no other, says nothing */
	assert_int_equal(drain_parts(reader, EPOCH_LEN * 4, LOOK_NS, &last), 0);
	farlog_reader_close(reader);
	assert_int_equal(drain_behind_opening(&last), count);
	assert_int_equal(last, FARLOG_OK);
	end();
}

/* ---------------------------------------------------------------- drains */

/* lose -- the writer's connection to the first member breaks; the drain's does not. */
static void lose(void *context)
{
	farlog_fault_kill_writer(names[0]);
	if (context != NULL)
		farlog_fault_call(names[0], 0, lose, context);
}

/* write_without_first -- the next writer has the other two. */
static void write_without_first(void)
{
	farlog_fault_call(names[0], 0, lose, &now_ns);
	write_some(0);
	farlog_fault_call(names[0], UINT64_MAX, NULL, NULL);
	farlog_fault_kill_writer(names[0]);
}

/* read_of_left_behind -- the writer after the first has not the member that the drain reads, and dies before it can say
 * how far all is acknowledged; the drain sees that one's epoch at one member, which alone can give out nothing. The
 * third writer has all, and leaves the drain the member that it read first. How many records of those two the drain
 * finds. */
static uint64_t read_of_left_behind(void)
{
	farlog_reader *reader;
	uint64_t count;
	int last;

	begin();
	write_some(1);
	reader = open_drain();
	assert_int_equal(drain_some(reader, LOOK_NS, &last), 2);
	write_without_first();
	forget_hints(1);
	farlog_fault_set_away(names[2], 1);
	assert_int_equal(drain_some(reader, LOOK_NS, &last), 0);
	farlog_fault_set_away(names[2], 0);
	write_some(0);
	farlog_fault_set_away(names[1], 1);
	farlog_fault_set_away(names[2], 1);
	count = drain_some(reader, REOPEN_NS, &last);
	farlog_reader_close(reader);
	return count;
}

static void drain__member_read_is_looked_at(void **state)
{
	(void)state;
	assert_int_equal(read_of_left_behind(), 2);
	end();
}

/* end_of_passed -- a drain moved the head on one member alone, and ended; the next one began while that was away, below
 * its head. How that one ends when it is back. */
static int end_of_passed(void)
{
	static uint8_t bytes[LAYOUT_BLOCK_LEN];
	struct farlog_batch batch;
	farlog_reader *reader;
	int last;

	begin();
	write_some(3);
	reader = open_drain();
	assert_int_equal(farlog_reader_read(reader, bytes, sizeof(bytes), &batch), FARLOG_OK);
	farlog_fault_set_away(names[1], 1);
	farlog_fault_set_away(names[2], 1);
	assert_int_equal(farlog_reader_release(reader, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_IO);
	farlog_reader_close(reader);
	let_be_away(true, false, false);
	reader = open_drain();
	let_be_away(false, false, false);
	wait_ns(REOPEN_NS);
	(void)drain_some(reader, REOPEN_NS, &last);
	farlog_reader_close(reader);
	return last;
}

/* drain__head_heard_of_late -- all below it is in the store, and what this drain would store there is stored
 * already. */
static void drain__head_heard_of_late(void **state)
{
	(void)state;
	assert_int_equal(end_of_passed(), FARLOG_HELD);
	end();
}

/* ---------------------------------------------------------------- what the last writer left */

/* release_at -- the drain's head on one of them. */
static void release_at(unsigned i, const struct head_slot *slot)
{
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_DRAIN};
	struct superblock superblock;
	struct region *region;

	assert_int_equal(region_open(uris[i], &options, &region, NULL), FARLOG_OK);
	assert_int_equal(superblock_load(region, uris[i], &superblock, NULL), FARLOG_OK);
	assert_int_equal(head_store(region, &superblock, slot), FARLOG_OK);
	region->ops->data.store_word(region, LAYOUT_CREDIT_OFF, slot->head_lsn);
	region->ops->close(region);
}

/* go_round -- a record of the writer before lies at the heads of two members, and the ring has been written over up to
 * there. The third member's head is where it was. */
static farlog_writer *go_round(struct farlog_position *inherited)
{
	struct farlog_position position;
	farlog_writer *writer;
	struct head_slot slot;

	begin();
	assert_int_equal(open_writer(&writer), FARLOG_OK);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(unit_append(writer, 500, 1, inherited), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	assert_int_equal(open_writer(&writer), FARLOG_OK);
	slot = (struct head_slot){.head_lsn = inherited->lsn, .head_seq = inherited->seq, .last_epoch = inherited->epoch};
	release_at(0, &slot);
	release_at(1, &slot);
	while (unit_append(writer, 500, 2, &position) == FARLOG_OK)
		;
	return writer;
}

/* resolve__heads_are_away -- those that allowed to write over what lay below the record are at members that have gone:
 * by the head of the one that is left the log cannot be walked any more, which says nothing of the record. */
static void resolve__heads_are_away(void **state)
{
	struct farlog_position inherited;
	struct farlog_position found;
	farlog_writer *writer;

	(void)state;
	writer = go_round(&inherited);
	assert_int_equal(farlog_resolve(writer, inherited.lsn, 50000000, &found), FARLOG_OK);
	(void)farlog_writer_close(writer);
	writer = go_round(&inherited);
	farlog_fault_set_away(names[0], 1);
	farlog_fault_set_away(names[1], 1);
	may_fail(writer->region->ops->data.poll(writer->region)); /* two of three are away: the members' poll says so */
	members_tend(writer->region);
	assert_int_equal(farlog_resolve(writer, inherited.lsn, 50000000, &found), FARLOG_UNKNOWN);
	(void)farlog_writer_close(writer);
	let_be_away(false, false, false);
	end();
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(resolve__heads_are_away),
	cmocka_unit_test(full__keeps_the_room_of_an_epoch),
	cmocka_unit_test(open__full_of_records),
	cmocka_unit_test(open__full_of_epochs),
	cmocka_unit_test(drain__member_read_is_looked_at),
	cmocka_unit_test(drain__head_heard_of_late),
};

RUN_GROUP(members_full, tests)
