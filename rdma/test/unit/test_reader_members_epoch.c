/* A stream with three members whose logs differ: a writer passed one of them by, and its epoch is the newest. */
#include <unistd.h>

#include "members/reader.h"
#include "three.h"

/* Two members went on without the first, from where they had the log. What only the first had was given to nobody. */
static void members__epoch_passes_one_by(void **state)
{
	struct farlog_batch batch;
	farlog_reader *drain;
	uint64_t shared_lsn;
	uint64_t end_lsn;

	(void)state;
	three_make();
	three_write_to(0, 1, 20);
	shared_lsn = 128 + 192 * 12;
	three_copy(0, 1, 0, shared_lsn);
	three_copy(0, 2, 0, shared_lsn);
	three_forget_hints(0);
	three_forget_hints(1);
	three_forget_hints(2);
	drain = three_open_members(true);
	drain->members->current = 1;
	three_await_batch(drain, &batch);
	assert_int_equal(batch.next_lsn, shared_lsn);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	end_lsn = three_write_to(1, 2, 30);
	three_copy(1, 2, 0, end_lsn);
	three_await_batch(drain, &batch);
	assert_false(batch.is_rewound);
	assert_int_equal(batch.first_lsn, shared_lsn);
	assert_int_equal(batch.record_count, 31);
	assert_int_equal(batch.last_epoch, 2);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	assert_int_equal(three_head_of(1), end_lsn);
	assert_int_equal(three_head_of(2), end_lsn);
	farlog_reader_close(drain);
}

/* Between the two epochs that the first member has seen there was a third one, elsewhere, which began below what it
 * had. */
static void members__epoch_in_between_is_not_missed(void **state)
{
	struct farlog_batch batch;
	farlog_reader *drain;
	uint64_t shared_lsn = 128 + 192 * 5;
	uint64_t end_lsn;

	(void)state;
	three_make();
	three_write_to(0, 1, 20);
	three_copy(0, 1, 0, shared_lsn);
	three_copy(0, 2, 0, shared_lsn);
	for (unsigned i = 0; i < COUNT; i++)
		three_forget_hints(i);
	drain = three_open_members(true);
	drain->members->current = 1;
	three_await_batch(drain, &batch);
	assert_int_equal(batch.next_lsn, shared_lsn);
	three_write_to(1, 2, 40);
	end_lsn = three_write_to(1, 3, 1);
	three_copy(1, 2, 0, end_lsn);
	three_copy(1, 0, 0, end_lsn);
	drain->members->current = 0;
	three_await_batch(drain, &batch);
	assert_int_equal(batch.first_lsn, shared_lsn);
	assert_int_equal(batch.record_count, 43);
	assert_int_equal(batch.next_lsn, end_lsn);
	farlog_reader_close(drain);
}

/* erase -- what lies in a member from there on. */
static void erase(unsigned i, uint64_t from_lsn)
{
	struct region *region = three_open_bytes(i);

	memset((uint8_t *)(uintptr_t)region->base + LAYOUT_DATA_OFF + from_lsn, 0, CAPACITY - from_lsn);
	region->ops->close(region);
}

/* read_of_old_epoch -- the third writer got as far as its superblocks, on the first member and the last, which had what
 * the first writer left; the last one has lost all but the first record of that. How many are given out. */
static uint64_t read_of_old_epoch(void)
{
	struct farlog_batch batch;
	farlog_reader *drain;
	uint64_t count = 0;
	uint64_t end_lsn;

	three_make();
	end_lsn = three_write_to(0, 1, 2);
	three_write_to(0, 3, 1);
	erase(0, end_lsn);
	three_copy(0, 2, 0, 128);
	three_forget_hints(0);
	three_forget_hints(2);
	unlink(unit_path(three_uris[1]));
	drain = three_open_members(true);
	for (unsigned n = 0; n < 100; n++) {
		if (farlog_reader_read(drain, three_buffer, 192, &batch) == FARLOG_OK)
			count += batch.record_count;
		usleep(1000);
	}
	farlog_reader_close(drain);
	return count;
}

static void members__epoch_without_a_record(void **state)
{
	(void)state;
	assert_int_equal(read_of_old_epoch(), 0);
}

/* What a former writer left is more than a batch; the next one has begun behind it, and nobody has said how far that
 * goes. */
static void members__old_epoch_of_many_batches(void **state)
{
	struct farlog_batch batch;
	farlog_reader *drain;
	uint64_t end_lsn;
	uint64_t next_lsn = 0;

	(void)state;
	three_make();
	three_write_to(0, 1, 100);
	end_lsn = three_write_to(0, 2, 1);
	three_copy(0, 2, 0, end_lsn);
	for (unsigned i = 0; i < COUNT; i++)
		three_forget_hints(i);
	drain = three_open_members(true);
	for (unsigned n = 0; n < TRIES && next_lsn < end_lsn; n++) {
		if (farlog_reader_read(drain, three_buffer, 2048, &batch) == FARLOG_OK)
			next_lsn = batch.next_lsn;
		else
			usleep(1000);
	}
	assert_int_equal(next_lsn, end_lsn);
	farlog_reader_close(drain);
}

/* A member was away over two takeovers, has the newest epoch again and not yet its log: what it holds in the place of
 * the second writer's records are as long as those. */
static void members__joiner_holds_what_was_undone(void **state)
{
	struct farlog_position position = {0};
	struct farlog_batch batch;
	struct region *right;
	farlog_reader *drain;
	farlog_writer *writer;
	uint64_t shared_lsn = 128 + 192;
	uint64_t end_lsn;

	(void)state;
	three_make();
	writer = unit_open(three_uris[1]);
	assert_int_equal(unit_append(writer, PAYLOAD_LEN, 1, &position), FARLOG_OK);
	assert_int_equal(unit_append(writer, 32, 1, &position), FARLOG_OK); /* as long as an epoch's first record */
	assert_int_equal(unit_append(writer, PAYLOAD_LEN, 1, &position), FARLOG_OK);
	assert_int_equal(unit_append(writer, PAYLOAD_LEN, 1, &position), FARLOG_OK);
	farlog_writer_close(writer);
	three_copy(1, 0, 0, shared_lsn);
	three_forget_hints(0);
	three_write_to(0, 2, 2);
	end_lsn = three_write_to(0, 3, 1);
	three_copy(0, 2, 0, end_lsn);
	three_copy(0, 1, 0, 0);
	for (unsigned i = 0; i < COUNT; i++)
		three_forget_hints(i);
	drain = three_open_members(true);
	drain->members->current = 1;
	three_await_batch(drain, &batch);
	assert_int_equal(batch.first_lsn, 0);
	assert_int_equal(batch.next_lsn, end_lsn);
	right = three_open_bytes(0);
	assert_memory_equal(three_buffer, right->base + LAYOUT_DATA_OFF, end_lsn);
	right->ops->close(right);
	farlog_reader_close(drain);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(members__epoch_passes_one_by),
	cmocka_unit_test(members__epoch_in_between_is_not_missed),
	cmocka_unit_test(members__epoch_without_a_record),
	cmocka_unit_test(members__old_epoch_of_many_batches),
	cmocka_unit_test(members__joiner_holds_what_was_undone),
};
RUN_GROUP(reader_members_epoch, tests)
