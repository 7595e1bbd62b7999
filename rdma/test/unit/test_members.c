/* test_members.c -- one writer, several rings: what they hold, how many are needed, who is refused, and who comes
 * later. */
#include "farlog/member.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "ring/layout.h"
#include "adversary/memory.h"
#include "members/members.h"
#include "unit.h"
#include "log/writer.h"

#define COUNT 3u
#define RING_SIZE (LAYOUT_DATA_OFF + 65536u)
#define RECORD_MAX 4096u
#define WAIT_NS 5000000000u

static const char *uris[COUNT];
static char whole_uri[4096];

static void format_one(const char *uri, uint64_t salt, uint64_t size_bytes)
{
	struct farlog_ring_config config = {
		.size_bytes = size_bytes, .record_len_max = RECORD_MAX, .is_forced = 1, .salt = salt, .stream_name = "members"};
	struct farlog_error error = {0};

	if (farlog_ring_format(uri, &config, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
}

static const char *name_members(unsigned needed)
{
	static const char *const names[COUNT] = {"one", "two", "three"};
	int used = snprintf(whole_uri, sizeof(whole_uri), "members:%u", needed);

	for (unsigned i = 0; i < COUNT; i++) {
		static char kept[COUNT][512];

		snprintf(kept[i], sizeof(kept[i]), "%s", unit_tmpfs_uri(names[i]));
		uris[i] = kept[i];
		used += snprintf(whole_uri + used, sizeof(whole_uri) - (size_t)used, " %s", uris[i]);
	}
	return whole_uri;
}

static const char *make_members(unsigned needed)
{
	name_members(needed);
	for (unsigned i = 0; i < COUNT; i++) {
		unlink(unit_path(uris[i]));
		format_one(uris[i], 0x1234567800000001u, RING_SIZE);
	}
	return whole_uri;
}

static farlog_writer *open_members(const char *uri)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	if (farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	return writer;
}

/* drain_one -- all that a member has, and its head up to there. How many records with this first byte. */
static unsigned drain_one(const char *uri, uint8_t fill, bool is_released)
{
	uint8_t buf[65536];
	struct farlog_batch batch;
	farlog_reader *reader = unit_read(uri, FARLOG_START_HEAD, true);
	unsigned count = 0;

	while (farlog_reader_read(reader, buf, sizeof(buf), &batch) == FARLOG_OK) {
		for (uint64_t off = 0; off < batch.len;) {
			const struct record_header *header = (const struct record_header *)(buf + off);

			count += !(header->flags & (RECORD_FLAG_PAD | RECORD_FLAG_EPOCH)) &&
				buf[off + RECORD_HEADER_LEN + header->key_len] == fill;
			off += header->flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN :
													 record_extent(64, header->key_len, header->payload_len);
		}
		if (is_released)
			assert_int_equal(
				farlog_reader_release(reader, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	}
	farlog_reader_close(reader);
	return count;
}

static void append__members_alike(void **state)
{
	farlog_writer *writer = open_members(make_members(2));
	struct farlog_position position;

	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(unit_append(writer, 100 + i, 7, &position), FARLOG_OK);
		assert_int_equal(position.copies, COUNT);
		assert_int_equal(position.level, FARLOG_LEVEL_VISIBLE);
	}
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	for (unsigned i = 0; i < COUNT; i++)
		assert_int_equal(drain_one(uris[i], 7, false), 100);
}

static void append__credit_of_one_is_not_enough(void **state)
{
	farlog_writer *writer = open_members(make_members(2));
	struct farlog_position position;
	int result = FARLOG_OK;

	(void)state;
	while (result == FARLOG_OK)
		result = unit_append(writer, 1000, 1, &position);
	assert_int_equal(result, FARLOG_FULL);
	drain_one(uris[2], 1, true);
	/* a recovery from the other two would begin below */
	assert_int_equal(unit_append(writer, 1000, 1, &position), FARLOG_FULL);
	drain_one(uris[0], 1, true);
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(unit_append(writer, 1000, 2, &position), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	assert_int_equal(drain_one(uris[0], 2, false), 50);
}

static void open__one_member_gone(void **state)
{
	struct farlog_position position;
	farlog_writer *writer = open_members(make_members(2));

	(void)state;
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(unit_append(writer, 200, 3, &position), FARLOG_OK);
	farlog_writer_close(writer);
	for (unsigned gone = 0; gone < COUNT; gone++) {
		char aside[600];

		snprintf(aside, sizeof(aside), "%s.aside", unit_path(uris[gone]));
		assert_int_equal(rename(unit_path(uris[gone]), aside), 0);
		writer = open_members(whole_uri);
		/* with an EPOCH record for each time */
		assert_int_equal(farlog_writer_recovery(writer)->record_count, 21 + 2 * gone);
		assert_int_equal(unit_append(writer, 200, 3, &position), FARLOG_OK);
		assert_int_equal(position.copies, 2);
		farlog_writer_close(writer);
		assert_int_equal(rename(aside, unit_path(uris[gone])), 0);
	}
}

static void open__too_few_members(void **state)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	(void)state;
	make_members(2);
	unlink(unit_path(uris[0]));
	unlink(unit_path(uris[2]));
	assert_int_not_equal(
		farlog_writer_open(whole_uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, &error), FARLOG_OK);
	assert_non_null(strstr(error.text, "1 of 3 members"));
	assert_non_null(strstr(error.text, "expected 2"));
	assert_non_null(strstr(error.text, uris[0]));
	assert_non_null(strstr(error.text, uris[2]));
	assert_null(strstr(error.text, uris[1]));
}

static void open__other_salt(void **state)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	(void)state;
	make_members(2);
	format_one(uris[1], 0x9900000001u, RING_SIZE);
	assert_int_equal(
		farlog_writer_open(whole_uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, &error), FARLOG_NOT_A_RING);
	assert_non_null(strstr(error.text, "member 2"));
	assert_non_null(strstr(error.text, "salt 9900000001"));
}

static void open__bad_uri(void **state)
{
	static const struct {
		const char *uri;
		const char *text;
	} cases[] = {
		{"members: mem:/a mem:/b", "no number of members"},
		{"members:x mem:/a mem:/b", "no number of members"},
		{"members:1 mem:/a", "fewer than two"},
		{"members:3 mem:/a mem:/b", "more members are needed"},
		{"members:1 mem:/a mem:/a", "named twice"},
		{"members:1 mem:/a  mem:/b", "two spaces"},
		{"members:1 mem:/a members:1", "has members itself"},
	};
	struct farlog_error error;
	farlog_writer *writer;

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(farlog_writer_open(cases[i].uri, CONFIG(0), &writer, &error), FARLOG_INVALID);
		if (strstr(error.text, cases[i].text) == NULL)
			fail_msg("%s: %s", cases[i].uri, error.text);
	}
}

static void open__level_of_too_few(void **state)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	(void)state;
	make_members(2);
	assert_int_equal(
		farlog_writer_open(whole_uri, CONFIG(.level = FARLOG_LEVEL_PERSISTENT), &writer, &error), FARLOG_LEVEL);
	assert_non_null(strstr(error.text, "2 of 3"));
	assert_non_null(strstr(error.text, "1: tmpfs"));
}

static void open__held(void **state)
{
	struct farlog_error error = {0};
	farlog_writer *first = open_members(make_members(2));
	farlog_writer *writer;

	(void)state;
	assert_int_equal(
		farlog_writer_open(whole_uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, &error), FARLOG_HELD);
	assert_non_null(strstr(error.text, "living writer"));
	farlog_writer_close(first);
}

static void open__ring_that_is_new(void **state)
{
	struct farlog_error error = {0};
	struct farlog_position position;
	farlog_writer *writer = open_members(make_members(2));

	(void)state;
	assert_int_equal(unit_append(writer, 200, 3, &position), FARLOG_OK);
	farlog_writer_close(writer);
	format_one(uris[0], 0x1234567800000001u, RING_SIZE);
	unlink(unit_path(uris[1]));
	/* Two are there, but what the new one has in the place of an old one's records nobody knows. */
	assert_int_not_equal(
		farlog_writer_open(whole_uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, &error), FARLOG_OK);
	assert_non_null(strstr(error.text, "it is new"));
	/* The operator says that it is lost: the log that is left counts. */
	assert_int_equal(farlog_ring_accept_loss(uris[0], &error), FARLOG_OK);
	writer = open_members(whole_uri);
	assert_int_equal(farlog_writer_recovery(writer)->record_count, 2);
	assert_int_equal(farlog_writer_recovery(writer)->epoch, 2);
	assert_int_equal(farlog_ring_accept_loss(uris[0], &error), FARLOG_HELD);
	farlog_writer_close(writer);
	format_one(uris[1], 0x1234567800000001u, RING_SIZE);
	format_one(uris[0], 0x1234567800000001u, RING_SIZE);
}

/* open__first_reaches_all -- nobody who is reached knows an epoch, and one is away: what was put in the place of
 * another ring knows none, either. */
static void open__first_reaches_all(void **state)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	(void)state;
	make_members(2);
	unlink(unit_path(uris[2]));
	assert_int_equal(farlog_writer_open(whole_uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, &error), FARLOG_IO);
	assert_non_null(strstr(error.text, "all of these are new"));
	format_one(uris[2], 0x1234567800000001u, RING_SIZE);
	farlog_writer_close(open_members(whole_uri));
}

/* join__while_open -- a member that is not there at the opening: it is told the epoch when it comes, sent all that is
 * undrained, and counts. */
static void join__while_open(void **state)
{
	struct farlog_position position;
	farlog_writer *writer;
	uint64_t until;

	(void)state;
	farlog_writer_close(open_members(make_members(2))); /* the first opening takes all */
	unlink(unit_path(uris[1]));
	writer = open_members(whole_uri);
	for (unsigned i = 0; i < 30; i++)
		assert_int_equal(unit_append(writer, 500, 4, &position), FARLOG_OK);
	assert_int_equal(position.copies, 2);
	format_one(uris[1], 0x1234567800000001u, RING_SIZE);
	until = clock_after_ns(WAIT_NS);
	while (position.copies < 3 && clock_monotonic_ns() < until) {
		assert_int_equal(farlog_heartbeat(writer, 0, &position), FARLOG_OK);
		nanosleep(&(struct timespec){0, 5000000}, NULL);
	}
	assert_int_equal(position.copies, 3);
	assert_int_equal(drain_one(uris[1], 4, false), 30);
	farlog_writer_close(writer);
}

static void move_aside(unsigned member, bool is_back)
{
	char aside[600];

	snprintf(aside, sizeof(aside), "%s.aside", unit_path(uris[member]));
	assert_int_equal(is_back ? rename(aside, unit_path(uris[member])) : rename(unit_path(uris[member]), aside), 0);
}

/* is_told -- that the members are in these states, and those that are up have all below end_lsn. */
static bool is_told(const char *directory, const uint8_t uuid[16], const enum farlog_member_state states[COUNT],
	uint64_t end_lsn, struct farlog_member_counters counters[COUNT])
{
	struct farlog_error error;
	unsigned count;

	if (farlog_member_counters_read(directory, uuid, counters, COUNT, &count, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	assert_int_equal(count, COUNT);
	for (unsigned i = 0; i < COUNT; i++)
		if (counters[i].state != states[i] ||
			(states[i] == FARLOG_MEMBER_UP && (counters[i].lag_bytes != 0 || counters[i].confirmed_lsn != end_lsn)))
			return false;
	return true;
}

/* counters__tell_of_each_member -- also when the first is away, by whose uuid they are looked for; it comes back, and
 * is counted. */
static void counters__tell_of_each_member(void **state)
{
	static const enum farlog_member_state without[COUNT] = {FARLOG_MEMBER_AWAY, FARLOG_MEMBER_UP, FARLOG_MEMBER_UP};
	static const enum farlog_member_state all[COUNT] = {FARLOG_MEMBER_UP, FARLOG_MEMBER_UP, FARLOG_MEMBER_UP};
	char directory[] = "/dev/shm/farlog-unit-members-XXXXXX";
	struct farlog_member_counters counters[COUNT];
	struct farlog_ring_status status;
	struct farlog_position position;
	struct farlog_error error = {0};
	uint8_t uuids[COUNT][16];
	struct farlog_writer_config config = {
		.level = FARLOG_LEVEL_VISIBLE, .counters_dir = directory, .ring_uuid = uuids[0]};
	uint64_t until = clock_after_ns(WAIT_NS);
	farlog_writer *writer;
	char path[120];

	(void)state;
	assert_non_null(mkdtemp(directory));
	farlog_writer_close(open_members(make_members(2))); /* the first opening takes all */
	for (unsigned i = 0; i < COUNT; i++) {
		assert_int_equal(farlog_ring_inspect(uris[i], &status, &error), FARLOG_OK);
		memcpy(uuids[i], status.ring_uuid, 16);
	}
	move_aside(0, false);
	if (farlog_writer_open(whole_uri, &config, &writer, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(unit_append(writer, 200, 3, &position), FARLOG_OK);
	while (!is_told(directory, uuids[0], without, position.end_lsn, counters) && clock_monotonic_ns() < until)
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	assert_true(is_told(directory, uuids[0], without, position.end_lsn, counters));
	assert_int_equal(counters[0].lag_bytes, position.end_lsn);
	move_aside(0, true);
	while (!is_told(directory, uuids[0], all, position.end_lsn, counters) && clock_monotonic_ns() < until)
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	assert_true(is_told(directory, uuids[0], all, position.end_lsn, counters));
	assert_true(counters[0].rejoin_count >= 1);
	assert_int_equal(counters[1].rejoin_count + counters[1].eviction_count, 0);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	snprintf(path, sizeof(path), "%s/", directory);
	for (unsigned i = 0; i < 16; i++)
		snprintf(path + strlen(path), 3, "%02x", uuids[0][i]);
	assert_int_equal(unlink(strcat(path, ".counters")), 0);
	assert_int_equal(rmdir(directory), 0);
}

static void keep_bytes(unsigned member, uint64_t off, uint64_t len, uint8_t *bytes, bool is_put)
{
	FILE *file = fopen(unit_path(uris[member]), is_put ? "r+" : "r");

	assert_non_null(file);
	assert_int_equal(fseek(file, (long)off, SEEK_SET), 0);
	assert_int_equal(is_put ? fwrite(bytes, 1, len, file) : fread(bytes, 1, len, file), len);
	fclose(file);
}

/* open__epoch_cuts -- the first member has more of epoch 1 than was acknowledged. Epoch 2 begins below that on the
 * other two, and its first record reaches only the second, where a drain may see it. A recovery from the first and the
 * third, whose superblock alone knows of epoch 2, must not go back to what the first one has: the log would be another
 * one than the drain has seen, and of lower epochs. */
static void open__epoch_cuts(void **state)
{
	static uint8_t blank[64];
	farlog_writer *writer = open_members(make_members(2));
	struct farlog_position position;
	uint64_t begun_lsn;

	(void)state;
	assert_int_equal(unit_append(writer, 200, 1, &position), FARLOG_OK);
	begun_lsn = position.end_lsn;
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(unit_append(writer, 200, 2, &position), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	/* the five were never acknowledged: two members do not have them, nor any word of them */
	for (unsigned i = 0; i < COUNT; i++) {
		keep_bytes(i, LAYOUT_TAIL_HINT_OFF, 16, blank, true);
		for (uint64_t off = begun_lsn; i > 0 && off < position.end_lsn; off += 64)
			keep_bytes(i, LAYOUT_DATA_OFF + off, 64, blank, true);
	}
	move_aside(0, false);
	writer = open_members(whole_uri);
	assert_int_equal(farlog_writer_recovery(writer)->tail_lsn, begun_lsn);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	keep_bytes(2, LAYOUT_TAIL_HINT_OFF, 16, blank, true);
	keep_bytes(2, LAYOUT_DATA_OFF + begun_lsn, 64, blank, true);
	move_aside(0, true);
	move_aside(1, false);
	writer = open_members(whole_uri);
	assert_int_equal(farlog_writer_recovery(writer)->tail_lsn, begun_lsn);
	assert_int_equal(farlog_writer_recovery(writer)->epoch, 3);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	move_aside(1, true);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(append__members_alike),
	cmocka_unit_test(append__credit_of_one_is_not_enough),
	cmocka_unit_test(open__one_member_gone),
	cmocka_unit_test(open__too_few_members),
	cmocka_unit_test(open__other_salt),
	cmocka_unit_test(open__bad_uri),
	cmocka_unit_test(open__level_of_too_few),
	cmocka_unit_test(open__held),
	cmocka_unit_test(open__ring_that_is_new),
	cmocka_unit_test(open__first_reaches_all),
	cmocka_unit_test(join__while_open),
	cmocka_unit_test(open__epoch_cuts),
	cmocka_unit_test(counters__tell_of_each_member),
};

RUN_GROUP(members, tests)
