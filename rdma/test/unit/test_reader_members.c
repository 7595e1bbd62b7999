/* test_reader_members.c -- a stream with three members, read from whichever has its log. Their bytes are put there as a
 * writer of them all would, by copying what one of one has made. */
#include <stdio.h>
#include <unistd.h>

#include "farlog/member.h"
#include "members/reader.h"
#include "ring/record.h"
#include "three.h"

static void members__read_and_release_reach_all(void **state)
{
	struct farlog_member_status members[COUNT];
	struct farlog_ring_status status;
	struct farlog_batch batch;
	farlog_reader *drain;
	uint64_t end_lsn;

	(void)state;
	three_make();
	end_lsn = three_write_to(0, 1, 20);
	three_copy(0, 1, 0, end_lsn);
	three_copy(0, 2, 0, end_lsn);
	drain = three_open_members(true);
	three_await_batch(drain, &batch);
	assert_int_equal(batch.next_lsn, end_lsn);
	assert_int_equal(batch.record_count, 21);
	assert_false(batch.is_rewound);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	for (unsigned i = 0; i < COUNT; i++)
		assert_int_equal(three_head_of(i), end_lsn);
	assert_int_equal(farlog_reader_members(drain, members, COUNT), COUNT);
	for (unsigned i = 0; i < COUNT; i++) {
		assert_int_equal(members[i].state, FARLOG_MEMBER_UP);
		assert_int_equal(members[i].head_lsn, end_lsn);
	}
	assert_int_equal(farlog_reader_status(drain, &status), FARLOG_OK);
	assert_int_equal(status.head_lsn, end_lsn);
	assert_int_equal(status.lag_bytes, 0);
	assert_int_equal(
		farlog_reader_release(drain, batch.next_lsn - 64, batch.next_seq - 1, batch.last_epoch), FARLOG_INVALID);
	farlog_reader_close(drain);
}

/* A member that has gone is done without; when it is there again its head moves up. */
static void members__one_is_missing_and_comes_back(void **state)
{
	struct farlog_member_status members[COUNT];
	char away[300];
	struct farlog_batch batch;
	farlog_reader *drain;
	uint64_t end_lsn;

	(void)state;
	three_make();
	end_lsn = three_write_to(1, 1, 20);
	three_copy(1, 0, 0, end_lsn);
	three_copy(1, 2, 0, end_lsn);
	snprintf(away, sizeof(away), "%s.away", unit_path(three_uris[0]));
	assert_int_equal(rename(unit_path(three_uris[0]), away), 0);
	drain = three_open_members(true);
	three_await_batch(drain, &batch);
	assert_int_equal(batch.next_lsn, end_lsn);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	farlog_reader_members(drain, members, COUNT);
	assert_int_equal(members[0].state, FARLOG_MEMBER_AWAY);
	assert_non_null(strstr(members[0].text, unit_path(three_uris[0])));
	assert_int_equal(rename(away, unit_path(three_uris[0])), 0);
	for (unsigned n = 0; n < TRIES && three_head_of(0) != end_lsn; n++) {
		assert_int_equal(farlog_reader_read(drain, three_buffer, sizeof(three_buffer), &batch), FARLOG_NOT_YET);
		usleep(1000);
	}
	assert_int_equal(three_head_of(0), end_lsn);
	farlog_reader_close(drain);
}

static void members__too_few_are_refused_by_name(void **state)
{
	struct farlog_reader_config config = {.is_drain = 1};
	struct farlog_error error = {0};
	farlog_reader *reader;

	(void)state;
	three_make();
	unlink(unit_path(three_uris[1]));
	unlink(unit_path(three_uris[2]));
	assert_int_equal(farlog_reader_open(three_uri, &config, &reader, &error), FARLOG_NOT_FOUND);
	assert_null(reader);
	if (strstr(error.text, "1 of the stream's 3 members could be opened, expected 2 at least; member 2") == NULL ||
		strstr(error.text, unit_path(three_uris[1])) == NULL)
		fail_msg("\"%s\"", error.text);
}

static void members__ring_of_another_stream_is_none(void **state)
{
	struct farlog_ring_config config = {.size_bytes = SIZE, .record_len_max = 1024, .stream_id = 8, .is_forced = 1};
	struct farlog_member_status members[COUNT];
	farlog_reader *reader;

	(void)state;
	three_make();
	assert_int_equal(farlog_ring_format(three_uris[2], &config, NULL), FARLOG_OK);
	reader = three_open_members(false);
	farlog_reader_members(reader, members, COUNT);
	assert_int_equal(members[2].state, FARLOG_MEMBER_AWAY);
	assert_non_null(strstr(members[2].text, "it is of another stream"));
	farlog_reader_close(reader);
}

/* Rings of one stream may lie on blocks and in memory, where every record fills whole blocks: a drain reads and
 * releases them all, as the writer writes them all. */
static void members__one_is_on_blocks(void **state)
{
	struct farlog_ring_config config = {
		.size_bytes = SIZE, .align = 4096, .record_len_max = 8192, .stream_id = 7, .salt = 0x1234567, .is_forced = 1};
	struct farlog_ring_status status;
	struct farlog_position position;
	struct farlog_batch batch;
	farlog_writer *writer;
	farlog_reader *drain;
	char blocks[300];

	(void)state;
	three_make();
	snprintf(blocks, sizeof(blocks), "nvme:%s", unit_path(unit_file_uri("blocks")));
	for (unsigned i = COUNT; i-- > 0; config.size_bytes = LAYOUT_DATA_OFF + status.capacity_bytes) {
		three_uris[2] = blocks;
		assert_int_equal(farlog_ring_format(three_uris[i], &config, NULL), FARLOG_OK);
		assert_int_equal(farlog_ring_inspect(three_uris[i], &status, NULL), FARLOG_OK);
	}
	snprintf(three_uri, sizeof(three_uri), "members:3 %s %s %s", three_uris[0], three_uris[1], three_uris[2]);
	assert_int_equal(farlog_writer_open(three_uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, NULL), FARLOG_OK);
	assert_int_equal(unit_append(writer, PAYLOAD_LEN, 1, &position), FARLOG_OK);
	farlog_writer_close(writer);
	drain = three_open_members(true);
	three_await_batch(drain, &batch);
	assert_int_equal(batch.next_lsn, position.end_lsn);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	for (unsigned i = 0; i < COUNT; i++)
		assert_int_equal(three_head_of(i), position.end_lsn);
	farlog_reader_close(drain);
}

/* A record that one member lost is read from another one; that the media of one are bad shows only where nobody has
 * it. */
static void members__record_is_corrupt_in_one(void **state)
{
	uint8_t zeros[64] __attribute__((aligned(64))) = {0};
	struct farlog_batch batch;
	farlog_reader *reader;
	uint64_t end_lsn;
	uint64_t read_count = 0;

	(void)state;
	three_make();
	end_lsn = three_write_to(0, 1, 20);
	three_copy(0, 1, 0, end_lsn);
	three_copy(0, 2, 0, end_lsn);
	for (unsigned i = 0; i < COUNT; i++) {
		struct region *region = three_open_bytes(i);

		/* in each another one */
		region->ops->data.write(region, LAYOUT_DATA_OFF + 128 + 192 * (3 + 4 * i), zeros, sizeof(zeros));
		region->ops->close(region);
	}
	reader = three_open_members(false);
	while (read_count < 21) {
		three_await_batch(reader, &batch);
		read_count += batch.record_count;
	}
	assert_int_equal(read_count, 21);
	assert_int_equal(batch.next_lsn, end_lsn);
	farlog_reader_close(reader);
	for (unsigned i = 0; i < COUNT; i++) {
		struct region *region = three_open_bytes(i);

		region->ops->data.write(
			region, LAYOUT_DATA_OFF + 128 + 192 * 3, zeros, sizeof(zeros)); /* and in all this one */
		region->ops->close(region);
	}
	reader = three_open_members(false);
	three_await_batch(reader, &batch);
	for (unsigned n = 0; n < 100; n++) {
		int result = farlog_reader_read(reader, three_buffer, sizeof(three_buffer), &batch);

		if (result == FARLOG_CORRUPT)
			break;
		assert_true(n < 99);
		usleep(1000);
	}
	assert_int_equal(batch.first_lsn, 128 + 192 * 3);
	farlog_reader_close(reader);
}

/* The member that is read from stands still while the others go on. */
static void members__one_lags(void **state)
{
	struct farlog_batch batch;
	farlog_reader *reader;
	uint64_t end_lsn;

	(void)state;
	three_make();
	end_lsn = three_write_to(0, 1, 40);
	three_copy(0, 1, 0, end_lsn);
	three_copy(0, 2, 0, 128 + 192 * 10);
	three_forget_hints(2);
	reader = three_open_members(false);
	reader->members->current = 2;
	for (uint64_t count = 0; count < 41; count += batch.record_count)
		three_await_batch(reader, &batch);
	assert_int_equal(batch.next_lsn, end_lsn);
	farlog_reader_close(reader);
}

/* release_unshared -- of records that only the first member has. True: a head was moved over them. */
static bool release_unshared(void)
{
	struct farlog_batch batch;
	farlog_reader *drain;
	bool is_moved;

	three_make();
	three_write_to(0, 1, 20);
	three_copy(0, 1, 0, 128);
	three_copy(0, 2, 0, 128);
	for (unsigned i = 0; i < COUNT; i++)
		three_forget_hints(i);
	drain = three_open_members(true);
	drain->members->current = 0;
	three_await_batch(drain, &batch);
	may_fail(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch));
	is_moved = three_head_of(0) > 128 || three_head_of(1) > 128 || three_head_of(2) > 128;
	farlog_reader_close(drain);
	return is_moved;
}

static void members__head_waits_for_enough_of_them(void **state)
{
	(void)state;
	assert_false(release_unshared());
}

/* An idle writer's last word is old: the members are asked, and two are enough. */
static void members__head_moves_without_the_writers_word(void **state)
{
	struct farlog_batch batch;
	farlog_reader *drain;
	uint64_t end_lsn;

	(void)state;
	three_make();
	end_lsn = three_write_to(0, 1, 20);
	three_copy(0, 2, 0, end_lsn);
	three_copy(0, 1, 0, 128);
	for (unsigned i = 0; i < COUNT; i++)
		three_forget_hints(i);
	drain = three_open_members(true);
	for (uint64_t count = 0; count < 21; count += batch.record_count)
		three_await_batch(drain, &batch);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	for (unsigned i = 0; i < COUNT; i++)
		assert_int_equal(three_head_of(i), end_lsn);
	farlog_reader_close(drain);
}

static void members__drained_by_one_alone(void **state)
{
	struct farlog_reader_config config = {.is_drain = 1};
	struct farlog_error error = {0};
	farlog_reader *second;
	farlog_reader *drain;

	(void)state;
	three_make();
	drain = three_open_members(true);
	assert_int_equal(farlog_reader_open(three_uri, &config, &second, &error), FARLOG_HELD);
	assert_non_null(strstr(error.text, "already being drained"));
	farlog_reader_close(drain);
	farlog_reader_close(three_open_members(true));
}

static void members__reading_starts_elsewhere(void **state)
{
	struct farlog_reader_config config = {.start = FARLOG_START_LSN, .lsn = 128 + 192 * 4};
	struct farlog_error error = {0};
	struct farlog_batch batch;
	farlog_reader *reader;
	uint64_t end_lsn;

	(void)state;
	three_make();
	end_lsn = three_write_to(1, 1, 20);
	three_copy(1, 0, 0, end_lsn);
	assert_int_equal(farlog_reader_open(three_uri, &config, &reader, &error), FARLOG_OK);
	three_await_batch(reader, &batch);
	assert_int_equal(batch.first_lsn, 128 + 192 * 4);
	assert_int_equal(batch.record_count, 16);
	farlog_reader_close(reader);
	reader = unit_read(three_uri, FARLOG_START_TAIL, false);
	assert_int_equal(farlog_reader_read(reader, three_buffer, sizeof(three_buffer), &batch), FARLOG_NOT_YET);
	farlog_reader_close(reader);
	config.lsn += 8;
	assert_int_equal(farlog_reader_open(three_uri, &config, &reader, &error), FARLOG_NOT_FOUND);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(members__read_and_release_reach_all),
	cmocka_unit_test(members__one_is_missing_and_comes_back),
	cmocka_unit_test(members__too_few_are_refused_by_name),
	cmocka_unit_test(members__ring_of_another_stream_is_none),
	cmocka_unit_test(members__one_is_on_blocks),
	cmocka_unit_test(members__record_is_corrupt_in_one),
	cmocka_unit_test(members__one_lags),
	cmocka_unit_test(members__head_waits_for_enough_of_them),
	cmocka_unit_test(members__head_moves_without_the_writers_word),
	cmocka_unit_test(members__drained_by_one_alone),
	cmocka_unit_test(members__reading_starts_elsewhere),
};
RUN_GROUP(reader_members, tests)
