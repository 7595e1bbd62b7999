/* test_members_replace.c -- a ring is put in the place of a member's while the writer runs: what it is sent, what it is
 * told and when, and who counts meanwhile. */
#include "farlog/replace.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
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
#define NEW 3u /* the ring in the place of the first */
#define WHOLE "members:2 fault:swap-1 fault:swap-2 fault:swap-3"
#define AFTER "members:2 fault:swap-4 fault:swap-2 fault:swap-3"
#define STEPS_MAX 2000u
#define WAIT_NS 10000000000u

static const char *const names[COUNT + 1] = {"swap-1", "swap-2", "swap-3", "swap-4"};
static const char *const uris[COUNT + 1] = {"fault:swap-1", "fault:swap-2", "fault:swap-3", "fault:swap-4"};

static void format_one(const char *uri)
{
	struct farlog_ring_config config = {
		.size_bytes = LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN, .record_len_max = 1024, .is_forced = 1, .salt = 0x79};
	struct farlog_error error = {0};

	if (farlog_ring_format(uri, &config, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
}

static farlog_writer *open_whole(const char *uri)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	if (farlog_writer_open(uri, CONFIG(.deadline_ns = 50000000, .policy = FARLOG_POLICY_REJECT), &writer, &error) !=
		FARLOG_OK)
		fail_msg("%s", error.text);
	return writer;
}

static farlog_writer *begin(void)
{
	members_are_tended = true;
	farlog_fault_set_clock(1000000000u);
	for (unsigned i = 0; i <= COUNT; i++) {
		format_one(uris[i]);
		farlog_fault_reseed(names[i], i + 1);
		farlog_fault_set_slowness(names[i], 0);
	}
	return open_whole(WHOLE);
}

static void end(farlog_writer *writer)
{
	(void)farlog_writer_close(writer);
	farlog_fault_set_clock(0);
	members_are_tended = false;
	for (unsigned i = 0; i <= COUNT; i++)
		farlog_fault_drop(names[i]);
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

static void replace_first(farlog_writer *writer, const char *uri)
{
	struct farlog_ring_status status;
	struct farlog_error error = {0};

	assert_int_equal(farlog_ring_inspect(uri, &status, &error), FARLOG_OK);
	if (farlog_writer_replace_member(
			writer, 0, &(struct farlog_member_ring){.uri = uri, .ring_uuid = status.ring_uuid}, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
}

static uint32_t state_of_first(farlog_writer *writer)
{
	struct farlog_writer_member members[COUNT];

	assert_int_equal(farlog_writer_members(writer, members, COUNT), COUNT);
	return members[0].state;
}

static void step(farlog_writer *writer)
{
	uint64_t durable_lsn;

	members_tend(writer->region);
	may_fail(writer->region->ops->data.poll(writer->region));
	may_fail(farlog_poll(writer, &durable_lsn));
}

static bool is_taken(farlog_writer *writer)
{
	for (unsigned i = 0; i < STEPS_MAX && state_of_first(writer) != FARLOG_MEMBER_UP; i++)
		step(writer);
	return state_of_first(writer) == FARLOG_MEMBER_UP;
}

static void append_some(farlog_writer *writer, unsigned count)
{
	struct farlog_position position;

	for (unsigned i = 0; i < count; i++)
		assert_int_equal(unit_append(writer, 200, 7, &position), FARLOG_OK);
}

/* release -- the drain's head on one of them, up to all that was appended. */
static void release(farlog_writer *writer, unsigned i)
{
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_DRAIN};
	struct superblock superblock = superblock_of(i);
	struct head_slot slot = {
		.head_lsn = writer->ring.appended_lsn, .head_seq = writer->ring.next_seq, .last_epoch = writer->epoch};
	struct region *region;

	assert_int_equal(region_open(uris[i], &options, &region, NULL), FARLOG_OK);
	assert_int_equal(head_store(region, &superblock, &slot), FARLOG_OK);
	region->ops->data.store_word(region, LAYOUT_CREDIT_OFF, slot.head_lsn);
	region->ops->close(region);
}

/* replace__counts_when_it_has_all -- then the stream goes on without any other one of the two, and the next writer
 * finds all in it. */
static void replace__counts_when_it_has_all(void **state)
{
	farlog_writer *writer = begin();
	struct farlog_position position;

	(void)state;
	append_some(writer, 5);
	replace_first(writer, uris[NEW]);
	assert_int_equal(state_of_first(writer), FARLOG_MEMBER_AWAY);
	assert_int_equal(unit_append(writer, 200, 7, &position), FARLOG_OK);
	assert_int_equal(position.copies, 2);
	assert_true(is_taken(writer));
	farlog_fault_set_away(names[1], 1);
	assert_int_equal(unit_append(writer, 200, 7, &position), FARLOG_OK);
	assert_int_equal(position.copies, 2);
	(void)farlog_writer_close(writer);
	farlog_fault_set_away(names[1], 0);
	farlog_fault_set_away(names[2], 1); /* which has the last one: of those that are left only the new ring does */
	writer = open_whole(AFTER);
	assert_int_equal(farlog_writer_recovery(writer)->record_count, 8);
	end(writer);
}

/* holds_log -- the ring has, durably, all that lies behind its superblock's head. */
static bool holds_log(const farlog_writer *writer, unsigned i, uint64_t end_lsn)
{
	uint8_t there[LAYOUT_BLOCK_LEN];
	uint64_t from_lsn = superblock_of(i).floor_lsn;

	farlog_fault_media(names[i], LAYOUT_DATA_OFF, there, sizeof(there));
	return memcmp(there + from_lsn, writer->region->base + LAYOUT_DATA_OFF + from_lsn, end_lsn - from_lsn) == 0;
}

static bool is_told_with_all(void)
{
	farlog_writer *writer = begin();
	bool has_all = true;

	append_some(writer, 5);
	farlog_fault_set_remote(names[NEW], 1);
	farlog_fault_set_slowness(names[NEW], 250);
	replace_first(writer, uris[NEW]);
	for (unsigned i = 0; i < STEPS_MAX && superblock_of(NEW).writer_epoch == 0; i++)
		step(writer);
	assert_int_equal(superblock_of(NEW).writer_epoch, writer->epoch);
	has_all = holds_log(writer, NEW, writer->ring.appended_lsn);
	end(writer);
	return has_all;
}

/* replace__told_with_all -- a ring that knows the epoch is asked by the next opening, and has to have what was
 * acknowledged without it. */
static void replace__told_with_all(void **state)
{
	(void)state;
	assert_true(is_told_with_all());
}

static uint64_t floor_after(uint64_t *credit_lsn)
{
	farlog_writer *writer = begin();
	uint64_t floor_lsn;

	append_some(writer, 4);
	release(writer, 0); /* two of three are enough to write over it; one of them goes */
	release(writer, 1);
	append_some(writer, 10);
	*credit_lsn = region_load_word(writer->region, LAYOUT_CREDIT_OFF);
	assert_true(*credit_lsn > 0);
	replace_first(writer, uris[NEW]);
	assert_true(is_taken(writer));
	floor_lsn = superblock_of(NEW).floor_lsn;
	end(writer);
	return floor_lsn;
}

/* replace__begins_at_a_head -- below it the ring has nothing: who reads the members' logs from the highest head on must
 * learn it, also where the heads that allowed to write over what was there are the former ring's and that of a member
 * that is away. */
static void replace__begins_at_a_head(void **state)
{
	uint64_t credit_lsn;

	(void)state;
	assert_true(floor_after(&credit_lsn) >= credit_lsn);
}

static bool is_told_alone(void)
{
	farlog_writer *writer = begin();
	bool is_told;

	(void)farlog_writer_close(writer);
	farlog_fault_set_away(names[2], 1);
	writer = open_whole(WHOLE); /* an epoch that the third does not know */
	append_some(writer, 3);
	replace_first(writer, uris[NEW]);
	is_told = is_taken(writer);
	assert_int_equal(superblock_of(NEW).writer_epoch, is_told ? writer->epoch : 0);
	farlog_fault_set_away(names[2], 0);
	assert_true(is_taken(writer));
	end(writer);
	return is_told;
}

/* replace__told_behind_others -- not while an earlier epoch may still be opened in the former ring and one that does
 * not know this one. */
static void replace__told_behind_others(void **state)
{
	(void)state;
	assert_false(is_told_alone());
}

/* append_untold -- the third does not know the epoch, so that the new ring, which has all, is not told it either: what
 * comes of an append that the new ring and the second have. */
static int append_untold(void)
{
	farlog_writer *writer = begin();
	struct farlog_position position;
	int result;

	(void)farlog_writer_close(writer);
	farlog_fault_set_away(names[2], 1);
	writer = open_whole(WHOLE);
	append_some(writer, 3);
	replace_first(writer, uris[NEW]);
	assert_false(is_taken(writer));
	assert_true(holds_log(writer, NEW, writer->ring.appended_lsn));
	result = unit_append(writer, 200, 7, &position);
	assert_int_equal(superblock_of(NEW).writer_epoch, 0);
	farlog_fault_set_away(names[2], 0);
	end(writer);
	return result;
}

/* replace__counts_when_it_is_told -- one that knows no epoch is not asked for the log by the next opening: what it has
 * is no copy. */
static void replace__counts_when_it_is_told(void **state)
{
	(void)state;
	assert_int_equal(append_untold(), FARLOG_UNKNOWN);
}

/* replace__not_new -- nor is the former ring ever taken back. */
static void replace__not_new(void **state)
{
	farlog_writer *writer = begin();

	(void)state;
	append_some(writer, 1);
	(void)farlog_writer_close(open_whole(uris[NEW]));
	replace_first(writer, uris[NEW]);
	assert_false(is_taken(writer));
	assert_int_equal(state_of_first(writer), FARLOG_MEMBER_OUT);
	replace_first(writer, uris[0]);
	assert_false(is_taken(writer));
	format_one(uris[NEW]);
	replace_first(writer, uris[NEW]);
	assert_true(is_taken(writer));
	append_some(writer, 1);
	end(writer);
}

/* replace__again -- the ring in the place of the first is lost as well, before it counts and after. */
static void replace__again(void **state)
{
	farlog_writer *writer = begin();

	(void)state;
	append_some(writer, 3);
	farlog_fault_set_away(names[NEW], 1);
	farlog_fault_set_away(names[NEW], 0);
	replace_first(writer, uris[NEW]);
	step(writer);
	format_one(uris[0]);
	replace_first(writer, uris[0]);
	assert_true(is_taken(writer));
	format_one(uris[NEW]);
	replace_first(writer, uris[NEW]);
	assert_int_not_equal(state_of_first(writer), FARLOG_MEMBER_UP);
	assert_true(is_taken(writer));
	assert_true(holds_log(writer, NEW, writer->ring.appended_lsn));
	end(writer);
}

static void replace__bad_input(void **state)
{
	farlog_writer *writer = begin();
	static const uint8_t uuid[16] = {1};
	struct farlog_error error = {0};

	(void)state;
	assert_int_equal(
		farlog_writer_replace_member(writer, COUNT, &(struct farlog_member_ring){"fault:swap-4", uuid, NULL}, &error),
		FARLOG_INVALID);
	assert_int_equal(
		farlog_writer_replace_member(writer, 0, &(struct farlog_member_ring){"fault:swap-4", NULL, NULL}, &error),
		FARLOG_INVALID);
	assert_int_equal(farlog_writer_replace_member(writer, 0, &(struct farlog_member_ring){WHOLE, uuid, NULL}, &error),
		FARLOG_INVALID);
	assert_non_null(strstr(error.text, "expected the URI of one ring"));
	assert_int_equal(state_of_first(writer), FARLOG_MEMBER_UP);
	end(writer);
	unit_fault(LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN, 1024);
	writer = unit_open(FAULT_URI);
	assert_int_equal(
		farlog_writer_replace_member(writer, 0, &(struct farlog_member_ring){"fault:swap-4", uuid, NULL}, &error),
		FARLOG_UNSUPPORTED);
	assert_int_equal(farlog_writer_members(writer, NULL, 0), 0);
	(void)farlog_writer_close(writer);
}

/* replace__first_keeps_the_counters -- which are looked for by the uuid of the first member. */
static void replace__first_keeps_the_counters(void **state)
{
	char directory[] = "/dev/shm/farlog-unit-replace-XXXXXX";
	struct farlog_writer_config config = {
		.deadline_ns = 50000000, .policy = FARLOG_POLICY_REJECT, .counters_dir = directory};
	struct farlog_member_counters counters[COUNT];
	struct farlog_counters before, after;
	struct farlog_error error = {0};
	uint8_t uuids[2][16];
	farlog_writer *writer = begin();
	char path[120];
	unsigned count;

	(void)state;
	(void)farlog_writer_close(writer);
	assert_non_null(mkdtemp(directory));
	if (farlog_writer_open(WHOLE, &config, &writer, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	append_some(writer, 3);
	memcpy(uuids[0], superblock_of(0).ring_uuid, 16);
	memcpy(uuids[1], superblock_of(NEW).ring_uuid, 16);
	replace_first(writer, uris[NEW]);
	assert_true(is_taken(writer));
	append_some(writer, 3);
	assert_int_equal(farlog_counters_read(directory, uuids[0], &before, &error), FARLOG_OK);
	assert_int_equal(farlog_counters_read(directory, uuids[1], &after, &error), FARLOG_OK);
	assert_int_equal(after.record_count, before.record_count);
	assert_true(after.record_count >= 6);
	assert_int_equal(farlog_member_counters_read(directory, uuids[1], counters, COUNT, &count, &error), FARLOG_OK);
	assert_int_equal(count, COUNT);
	end(writer);
	for (unsigned i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/", directory);
		for (unsigned j = 0; j < 16; j++)
			snprintf(path + strlen(path), 3, "%02x", uuids[i][j]);
		assert_int_equal(unlink(strcat(path, ".counters")), 0);
	}
	assert_int_equal(rmdir(directory), 0);
}

static void *append_on(void *context)
{
	farlog_writer *writer = context;
	struct farlog_position position;

	for (unsigned i = 0; i < 20000 && unit_append(writer, 100, 3, &position) == FARLOG_OK; i++)
		if (i % 64 == 63)
			nanosleep(&(struct timespec){0, 1000000}, NULL);
	return NULL;
}

/* replace__while_appending -- with the threads that a writer has: a member is told to be another ring again and
 * again. */
static void replace__while_appending(void **state)
{
	char whole[4096];
	char kept[COUNT + 1][512];
	int used = snprintf(whole, sizeof(whole), "members:2");
	farlog_writer *writer;
	pthread_t thread;

	(void)state;
	for (unsigned i = 0; i <= COUNT; i++) {
		struct farlog_ring_config config = {
			.size_bytes = LAYOUT_DATA_OFF + (4u << 20), .record_len_max = 1024, .is_forced = 1, .salt = 0x80};

		snprintf(kept[i], sizeof(kept[i]), "%s", unit_tmpfs_uri(names[i]));
		assert_int_equal(farlog_ring_format(kept[i], &config, NULL), FARLOG_OK);
		used += i < COUNT ? snprintf(whole + used, sizeof(whole) - (size_t)used, " %s", kept[i]) : 0;
	}
	assert_int_equal(farlog_writer_open(whole, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, NULL), FARLOG_OK);
	assert_int_equal(pthread_create(&thread, NULL, append_on, writer), 0);
	for (unsigned turn = 0; turn < 3; turn++) {
		const char *uri = kept[turn % 2 == 0 ? NEW : 0];
		struct farlog_ring_config config = {
			.size_bytes = LAYOUT_DATA_OFF + (4u << 20), .record_len_max = 1024, .is_forced = 1, .salt = 0x80};
		uint64_t until = clock_after_ns(WAIT_NS);

		if (turn > 0) {
			unlink(unit_path(uri));
			assert_int_equal(farlog_ring_format(uri, &config, NULL), FARLOG_OK);
		}
		replace_first(writer, uri);
		while (state_of_first(writer) != FARLOG_MEMBER_UP && clock_monotonic_ns() < until)
			nanosleep(&(struct timespec){0, 1000000}, NULL);
		assert_int_equal(state_of_first(writer), FARLOG_MEMBER_UP);
	}
	pthread_join(thread, NULL);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(replace__counts_when_it_has_all),
	cmocka_unit_test(replace__told_with_all),
	cmocka_unit_test(replace__begins_at_a_head),
	cmocka_unit_test(replace__told_behind_others),
	cmocka_unit_test(replace__counts_when_it_is_told),
	cmocka_unit_test(replace__not_new),
	cmocka_unit_test(replace__again),
	cmocka_unit_test(replace__bad_input),
	cmocka_unit_test(replace__first_keeps_the_counters),
	cmocka_unit_test(replace__while_appending),
};

RUN_GROUP(members_replace, tests)
