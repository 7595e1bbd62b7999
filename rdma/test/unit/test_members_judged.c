/* test_members_judged.c -- which logs an opening goes by: not one whose media lost what was acknowledged, and not one
 * that another writer of the same number began. On adversarial memories. */
#include "ring/layout.h"
#include "ring/record.h"
#include "adversary/clock.h"
#include "adversary/memory.h"
#include "fault/tended.h"
#include "members/members.h"
#include "region/superblock.h"
#include "unit.h"
#include "log/writer.h"

#define COUNT 3u
#define WHOLE "members:2 fault:judged-1 fault:judged-2 fault:judged-3"
#define CAPACITY (8u * LAYOUT_BLOCK_LEN)
#define LOST_LEN 4096u
#define RECORD_COUNT 40u /* of each part of the log: more than LOST_LEN */
#define PAYLOAD_LEN 200u
#define EPOCH_PAYLOAD_LEN 32u /* a record as long as an EPOCH record */
#define EPOCH_LEN 128u
#define UNDONE_LSN (CAPACITY - EPOCH_LEN - 192u) /* behind an EPOCH record here a record finds no room before the end */
#define STEPS_MAX 400u
#define LOCKS_MAX 4u /* that an opening asks of a member, and more */
#define ACKED_EPOCH 2u
#define REFUSED (-1)

static const char *const names[COUNT] = {"judged-1", "judged-2", "judged-3"};
static const char *const uris[COUNT] = {"fault:judged-1", "fault:judged-2", "fault:judged-3"};
static uint64_t acked[2 * RECORD_COUNT]; /* by their LSN */
static unsigned acked_count;
static uint64_t acked_end_lsn;

static void make(void)
{
	struct farlog_ring_config config = {
		.size_bytes = LAYOUT_DATA_OFF + CAPACITY, .record_len_max = 1024, .is_forced = 1, .salt = 0x7d};
	struct farlog_error error = {0};

	members_are_tended = true;
	farlog_fault_set_clock(1000000000u); /* what an opening waits for is over at once */
	acked_count = 0;
	for (unsigned i = 0; i < COUNT; i++) {
		farlog_fault_drop(names[i]);
		if (farlog_ring_format(uris[i], &config, &error) != FARLOG_OK)
			fail_msg("%s", error.text);
		farlog_fault_reseed(names[i], i + 1);
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

static int open_whole(farlog_writer **writer, struct farlog_error *error)
{
	return farlog_writer_open(WHOLE, CONFIG(.deadline_ns = 50000000, .policy = FARLOG_POLICY_REJECT), writer, error);
}

static farlog_writer *must_open(void)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	if (open_whole(&writer, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	return writer;
}

static struct farlog_position must_append(farlog_writer *writer, uint32_t len)
{
	struct farlog_position position;

	assert_int_equal(unit_append(writer, len, 1, &position), FARLOG_OK);
	return position;
}

static void append_some(farlog_writer *writer)
{
	for (unsigned i = 0; i < RECORD_COUNT; i++) {
		struct farlog_position position = must_append(writer, PAYLOAD_LEN);

		acked[acked_count++] = position.lsn;
		acked_end_lsn = position.end_lsn;
	}
}

/* put -- bytes into a member, durably. */
static void put(unsigned i, uint64_t off, const void *bytes, uint64_t len)
{
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_DRAIN};
	struct region_span span = {off, len};
	struct region *region;

	assert_int_equal(region_open(uris[i], &options, &region, NULL), FARLOG_OK);
	region->ops->data.write(region, off, bytes, len);
	assert_int_equal(region_persist_wait(region, &span, 1), FARLOG_OK);
	region->ops->close(region);
}

static void erase(unsigned i, uint64_t from_lsn, uint64_t len)
{
	static const uint8_t zeros[CAPACITY];

	put(i, LAYOUT_DATA_OFF + from_lsn, zeros, len);
}

/* forget_hints -- what a power cut may leave of words that nobody flushed. */
static void forget_hints(unsigned i)
{
	static const uint8_t zeros[16];

	put(i, LAYOUT_TAIL_HINT_OFF, zeros, sizeof(zeros));
}

static struct superblock superblock_of(unsigned i)
{
	struct region_options options = {.access = REGION_READ, .role = REGION_ROLE_READER};
	struct superblock superblock;
	struct region *region;

	assert_int_equal(region_open(uris[i], &options, &region, NULL), FARLOG_OK);
	assert_int_equal(superblock_load(region, uris[i], &superblock, NULL), FARLOG_OK);
	region->ops->close(region);
	return superblock;
}

static void set_away(unsigned i, bool is_away)
{
	farlog_fault_set_away(names[i], is_away);
}

/* ---------------------------------------------------------------- lost bytes */

/* make_epochs -- so many behind the first one, on the first two members alone, of which epoch 2 has all that is
 * acknowledged. The third member has the first epoch. With more than one, all hints are gone. */
static void make_epochs(unsigned epoch_count)
{
	farlog_writer *writer;

	make();
	writer = must_open();
	(void)must_append(writer, PAYLOAD_LEN);
	(void)farlog_writer_close(writer);
	set_away(2, true);
	for (unsigned i = 0; i < epoch_count; i++) {
		writer = must_open();
		if (i == 0)
			append_some(writer);
		(void)farlog_writer_close(writer);
	}
	set_away(2, false);
	for (unsigned i = 0; i < COUNT && epoch_count > 1; i++)
		forget_hints(i);
}

/* count_missing -- of what was acknowledged, in the log that an opening comes to; REFUSED: it comes to none. */
static int count_missing(struct farlog_error *error)
{
	struct farlog_position found;
	int missing_count = 0;
	farlog_writer *writer;

	if (open_whole(&writer, error) != FARLOG_OK)
		return REFUSED;
	for (unsigned i = 0; i < acked_count; i++)
		missing_count += farlog_resolve(writer, acked[i], 50000000, &found) != FARLOG_OK || found.epoch != ACKED_EPOCH;
	(void)farlog_writer_close(writer);
	return missing_count;
}

/* lose -- the first member loses the piece of its log that begins there, and one other member is away. What is
 * missing then. */
static int lose(unsigned epoch_count, uint64_t from_lsn, unsigned away, struct farlog_error *error)
{
	int missing_count;

	make_epochs(epoch_count);
	erase(0, from_lsn, LOST_LEN);
	if (away < COUNT)
		set_away(away, true);
	missing_count = count_missing(error);
	if (away < COUNT)
		set_away(away, false);
	return missing_count;
}

/* check_lost -- each piece in turn. With one member more to read the log has all; without, an opening by the one that
 * lost and one that never had it refuses, and names the former. */
static void check_lost(unsigned epoch_count)
{
	make_epochs(epoch_count);
	assert_true(acked_end_lsn > 2 * LOST_LEN);
	for (uint64_t lsn = 0; lsn < acked_end_lsn; lsn += LOST_LEN) {
		struct farlog_error error = {0};

		assert_int_equal(lose(epoch_count, lsn, COUNT, &error), 0);
		assert_int_equal(lose(epoch_count, lsn, 1, &error), REFUSED);
		if (strstr(error.text, "member 1") == NULL || strstr(error.text, "it has lost records that it had") == NULL)
			fail_msg("lost from lsn %lu: \"%s\"", lsn, error.text);
	}
	end();
}

/* open__lost_what_its_hint_covers -- bytes that a member's medium lost, wherever they lay, are not taken for the
 * log's end. */
static void open__lost_what_its_hint_covers(void **state)
{
	(void)state;
	check_lost(1);
}

/* open__lost_what_its_epoch_is_behind -- nor where a power cut took the hint: all below the beginning of the epoch
 * that the member knows was there. */
static void open__lost_what_its_epoch_is_behind(void **state)
{
	(void)state;
	check_lost(2);
}

/* open__lost_by_two_and_told_by_one -- two members have lost the last records, of which one was never told that they
 * are acknowledged. It and the third, which never had them, are enough to open, and their log is sound: the first one's
 * hint alone tells what would be dropped. Without that one an operator goes on. */
static void open__lost_by_two_and_told_by_one(void **state)
{
	struct farlog_error error = {0};

	(void)state;
	make_epochs(1);
	for (unsigned i = 0; i < 2; i++)
		erase(i, acked[acked_count - 1], LOST_LEN);
	forget_hints(1);
	assert_int_equal(count_missing(&error), REFUSED);
	assert_int_equal(error.result, FARLOG_CORRUPT);
	if (strstr(error.text, "member 1") == NULL || strstr(error.text, "was told that records up to lsn") == NULL)
		fail_msg("\"%s\"", error.text);
	set_away(0, true);
	assert_int_equal(count_missing(&error), 1);
	end();
}

/* ---------------------------------------------------------------- logs that are alike by their epochs */

/* copy -- a piece of one member's log to another one. */
static void copy(unsigned from, unsigned to, uint64_t from_lsn, uint64_t to_lsn)
{
	uint8_t bytes[LOST_LEN];

	farlog_fault_media(names[from], LAYOUT_DATA_OFF + from_lsn, bytes, to_lsn - from_lsn);
	put(to, LAYOUT_DATA_OFF + from_lsn, bytes, to_lsn - from_lsn);
}

static void drain_all(void)
{
	static uint8_t bytes[CAPACITY];
	struct farlog_batch batch;
	farlog_reader *reader = unit_read(WHOLE, FARLOG_START_HEAD, true);

	while (farlog_reader_read(reader, bytes, sizeof(bytes), &batch) == FARLOG_OK)
		assert_int_equal(farlog_reader_release(reader, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	farlog_reader_close(reader);
}

/* fill_to -- the stream's log ends there. */
static void fill_to(farlog_writer *writer, uint64_t end_lsn)
{
	while (writer->ring.appended_lsn < end_lsn) {
		(void)must_append(writer, PAYLOAD_LEN);
		if (writer->ring.appended_lsn < CAPACITY / 2)
			drain_all();
	}
	assert_int_equal(writer->ring.appended_lsn, end_lsn);
}

/* leave_undone -- the second member alone has a record that begins there. It was never acknowledged, and nobody has a
 * word of it. */
static void leave_undone(uint64_t lsn)
{
	farlog_writer *writer = must_open();

	fill_to(writer, lsn);
	(void)must_append(writer, EPOCH_PAYLOAD_LEN);
	(void)farlog_writer_close(writer);
	for (unsigned i = 0; i < COUNT; i++) {
		forget_hints(i);
		if (i != 1)
			erase(i, lsn, CAPACITY - lsn);
	}
}

/* go_on_without_second -- an epoch with one record. Where it begins. */
static uint64_t go_on_without_second(struct farlog_position *position)
{
	farlog_writer *writer;
	uint64_t begun_lsn;

	set_away(1, true);
	writer = must_open();
	begun_lsn = farlog_writer_recovery(writer)->tail_lsn;
	*position = must_append(writer, PAYLOAD_LEN);
	(void)farlog_writer_close(writer);
	set_away(1, false);
	return begun_lsn;
}

/* bring_back_second -- an epoch began on the first and the third, in the place of a record that the second has, and
 * behind its first record lies a PAD up to the ring's end. When the second joined it was sent all, and a power cut
 * took the first record and left the PAD, so that its log goes on from the one epoch to the other behind the place
 * where this began. Then the next epoch came without it. True: after the opening behind that its log is the others'.
 * */
static bool bring_back_second(void)
{
	uint8_t right[CAPACITY - UNDONE_LSN];
	uint8_t there[CAPACITY - UNDONE_LSN];
	struct farlog_position position;
	farlog_writer *writer;

	make();
	leave_undone(UNDONE_LSN);
	assert_int_equal(go_on_without_second(&position), UNDONE_LSN);
	assert_int_equal(position.lsn, CAPACITY);
	copy(0, 1, UNDONE_LSN + EPOCH_LEN, CAPACITY);
	assert_int_equal(go_on_without_second(&position), position.end_lsn);
	writer = must_open();
	assert_int_equal(must_append(writer, PAYLOAD_LEN).copies, COUNT);
	(void)farlog_writer_close(writer);
	farlog_fault_media(names[0], LAYOUT_DATA_OFF + UNDONE_LSN, right, sizeof(right));
	farlog_fault_media(names[1], LAYOUT_DATA_OFF + UNDONE_LSN, there, sizeof(there));
	return memcmp(right, there, sizeof(right)) == 0;
}

static void open__epochs_alike_and_logs_not(void **state)
{
	(void)state;
	assert_true(bring_back_second());
	end();
}

/* vanish -- nobody reaches any of them any more. */
static void vanish(void *context)
{
	(void)context;
	for (unsigned i = 0; i < COUNT; i++)
		set_away(i, true);
}

/* tell_first_alone -- an opening of epoch 2 ends when the first member knows it, and no other one does. */
static void tell_first_alone(void)
{
	bool is_alone = false;

	for (unsigned step = 0; step < STEPS_MAX && !is_alone; step++) {
		struct farlog_error error = {0};
		farlog_writer *writer;

		make();
		writer = must_open();
		(void)must_append(writer, PAYLOAD_LEN);
		(void)farlog_writer_close(writer);
		farlog_fault_call(names[0], step, vanish, NULL);
		if (open_whole(&writer, &error) == FARLOG_OK)
			(void)farlog_writer_close(writer);
		farlog_fault_call(names[0], UINT64_MAX, NULL, NULL);
		for (unsigned i = 0; i < COUNT; i++)
			set_away(i, false);
		is_alone = superblock_of(0).writer_epoch == 2 && superblock_of(1).writer_epoch == 1 &&
			superblock_of(2).writer_epoch == 1;
	}
	assert_true(is_alone);
}

/* state_of_namesake -- the next writer has the other two, and takes the same number. How it sees the first, when that
 * is back. */
static uint32_t state_of_namesake(void)
{
	struct farlog_writer_member members[COUNT];
	struct farlog_position position;
	farlog_writer *writer;

	tell_first_alone();
	set_away(0, true);
	writer = must_open();
	assert_int_equal(writer->epoch, superblock_of(1).writer_epoch);
	assert_int_equal(writer->epoch, 2);
	set_away(0, false);
	for (unsigned i = 0; i < RECORD_COUNT; i++) {
		members_tend(writer->region);
		position = must_append(writer, PAYLOAD_LEN);
	}
	assert_int_equal(farlog_writer_members(writer, members, COUNT), COUNT);
	assert_int_equal(position.copies, members[0].state == FARLOG_MEMBER_UP ? COUNT : COUNT - 1);
	(void)farlog_writer_close(writer);
	return members[0].state;
}

/* join__epoch_of_a_namesake -- without grants two writers may take one number, of which only one comes to its first
 * record. What the other one told a member was of another log: it is out until the next opening. */
static void join__epoch_of_a_namesake(void **state)
{
	(void)state;
	assert_int_equal(state_of_namesake(), FARLOG_MEMBER_OUT);
	end();
}

/* ---------------------------------------------------------------- another writer in the middle of an opening */

/* Who comes in between, and what it was told. */
struct other {
	uint32_t epoch; /* of its grant; 0 = none */
	farlog_writer *writer;
	struct farlog_position position;
	uint32_t own_epoch; /* 0: it did not come in */
};

/* come_between -- another process opens the stream, appends and ends. */
static void come_between(void *context)
{
	struct other *other = context;
	struct farlog_writer_config config = {.counters_dir = "", .deadline_ns = 50000000, .epoch = other->epoch};
	struct farlog_error error = {0};

	if (farlog_writer_open(WHOLE, &config, &other->writer, &error) != FARLOG_OK)
		return;
	other->position = must_append(other->writer, PAYLOAD_LEN);
	other->own_epoch = other->writer->epoch;
	(void)farlog_writer_close(other->writer);
}

/* open_around -- an opening, with a whole other one before that lock of a member. True: that one came in. */
static bool open_around(unsigned member, unsigned step, uint32_t epoch, uint32_t other_epoch)
{
	struct farlog_writer_config config = {.counters_dir = "", .deadline_ns = 50000000, .epoch = epoch};
	struct other other = {.epoch = other_epoch};
	struct farlog_error error = {0};
	struct farlog_position found;
	farlog_writer *writer;

	make();
	writer = must_open();
	(void)must_append(writer, PAYLOAD_LEN);
	(void)farlog_writer_close(writer);
	farlog_fault_call_at_lock(names[member], step, come_between, &other);
	if (farlog_writer_open(WHOLE, &config, &writer, &error) == FARLOG_OK) {
		assert_int_not_equal(writer->epoch, other.own_epoch);
		(void)farlog_writer_close(writer);
	}
	farlog_fault_call_at_lock(names[member], UINT64_MAX, NULL, NULL);
	if (other.own_epoch == 0)
		return false;
	writer = must_open();
	if (farlog_resolve(writer, other.position.lsn, 50000000, &found) != FARLOG_OK || found.epoch != other.own_epoch)
		fail_msg("another writer came before lock %u of member %u: its record at lsn %lu of epoch %u is lost (%s)",
			step, member + 1, other.position.lsn, other.own_epoch, error.text);
	(void)farlog_writer_close(writer);
	return true;
}

/* open__another_one_comes_first -- between a look at the members and their locks another writer opens the stream,
 * appends and ends. What it was told is acknowledged stays, also where the one that goes on has an older grant. */
static void open__another_one_comes_first(void **state)
{
	static const uint32_t grants[][2] = {{0, 0}, {5, 6}, {6, 5}};

	(void)state;
	for (unsigned i = 0; i < sizeof(grants) / sizeof(grants[0]); i++) {
		unsigned came_count = 0;

		for (unsigned member = 0; member < COUNT; member++)
			for (unsigned step = 0; step < LOCKS_MAX; step++)
				came_count += open_around(member, step, grants[i][0], grants[i][1]);
		assert_in_range(came_count, 1, COUNT);
	}
	end();
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(open__lost_what_its_hint_covers),
	cmocka_unit_test(open__lost_what_its_epoch_is_behind),
	cmocka_unit_test(open__lost_by_two_and_told_by_one),
	cmocka_unit_test(open__epochs_alike_and_logs_not),
	cmocka_unit_test(join__epoch_of_a_namesake),
	cmocka_unit_test(open__another_one_comes_first),
};

RUN_GROUP(members_judged, tests)
