/* test_reader_members.c -- a stream with three members, read from whichever has its log. Their bytes are put there as a
 * writer of them all would, by copying what one of one has made. */
#include <stdio.h>
#include <unistd.h>

#include "farlog/member.h"
#include "ring/layout.h"
#include "members/reader.h"
#include "ring/record.h"
#include "region/region.h"
#include "region/superblock.h"
#include "unit.h"

#define CAPACITY 65536u
#define SIZE (LAYOUT_DATA_OFF + CAPACITY)
#define PAYLOAD_LEN 100u
#define COUNT 3u
#define TRIES 20000u /* of 1 ms, until a member is found again */

static uint8_t buffer[SIZE];
static const char *uris[COUNT];
static char uri[1024];

static void make(void) /* three empty rings of one stream */
{
	for (unsigned i = 0; i < COUNT; i++) {
		struct farlog_ring_config config = {.size_bytes = SIZE,
			.record_len_max = 1024,
			.stream_id = 7,
			.salt = 0x1234567,
			.stream_name = "desk7/orders"};

		uris[i] = unit_tmpfs_uri("member");
		assert_int_equal(farlog_ring_format(uris[i], &config, NULL), FARLOG_OK);
	}
	snprintf(uri, sizeof(uri), "members:2 %s %s %s", uris[0], uris[1], uris[2]);
}

static struct region *open_bytes(unsigned i)
{
	struct region *region;

	assert_int_equal(region_open(uris[i], &(struct region_options){.access = REGION_WRITE}, &region, NULL), FARLOG_OK);
	return region;
}

/* copy -- what a writer puts into a second member: its epoch and its hints, and of its records those in [from, to). The
 * head is the drain's. */
static void copy(unsigned from, unsigned to, uint64_t from_lsn, uint64_t to_lsn)
{
	struct region *source = open_bytes(from);
	struct region *sink = open_bytes(to);
	uint8_t *base = (uint8_t *)(uintptr_t)sink->base;
	struct superblock told, own;

	assert_int_equal(
		superblock_load(source, uris[from], &told, NULL) + superblock_load(sink, uris[to], &own, NULL), FARLOG_OK);
	memcpy(told.ring_uuid, own.ring_uuid, sizeof(own.ring_uuid));
	told.generation += own.generation;
	assert_int_equal(superblock_store(sink, &told, false), FARLOG_OK);
	memcpy(base + LAYOUT_TAIL_HINT_OFF, source->base + LAYOUT_TAIL_HINT_OFF, 16);
	memcpy(base + LAYOUT_DATA_OFF + from_lsn, source->base + LAYOUT_DATA_OFF + from_lsn, to_lsn - from_lsn);
	source->ops->close(source);
	sink->ops->close(sink);
}

/* forget_hints -- of a writer that died before it could tell. */
static void forget_hints(unsigned i)
{
	struct region *region = open_bytes(i);

	region->ops->data.store_word(region, LAYOUT_TAIL_HINT_OFF, 0);
	region->ops->data.store_word(region, LAYOUT_DURABLE_HINT_OFF, 0);
	region->ops->close(region);
}

/* write_to -- an epoch with so many records, in one member alone. The result is where its log ends. */
static uint64_t write_to(unsigned i, uint32_t epoch, unsigned count)
{
	struct farlog_position position = {0};
	struct farlog_error error = {0};
	farlog_writer *writer;

	if (farlog_writer_open(uris[i], CONFIG(.level = FARLOG_LEVEL_VISIBLE, .epoch = epoch), &writer, &error) !=
		FARLOG_OK)
		fail_msg("open: %s", error.text);
	for (unsigned n = 0; n < count; n++)
		assert_int_equal(unit_append(writer, PAYLOAD_LEN, (uint8_t)epoch, &position), FARLOG_OK);
	farlog_writer_close(writer);
	return position.end_lsn;
}

static farlog_reader *open_members(bool is_drain)
{
	return unit_read(uri, FARLOG_START_HEAD, is_drain);
}

/* await_batch -- members are asked by turns: what one has comes after a moment. */
static void await_batch(farlog_reader *reader, struct farlog_batch *batch)
{
	int result = FARLOG_NOT_YET;

	for (unsigned n = 0; n < TRIES && result != FARLOG_OK; n++) {
		result = farlog_reader_read(reader, buffer, sizeof(buffer), batch);
		if (result != FARLOG_OK && result != FARLOG_NOT_YET && result != FARLOG_IO)
			break;
		if (result != FARLOG_OK)
			usleep(1000);
	}
	if (result != FARLOG_OK)
		fail_msg("read: %s", farlog_result_name(result));
}

static uint64_t head_of(unsigned i)
{
	struct farlog_ring_status status;

	assert_int_equal(farlog_ring_inspect(uris[i], &status, NULL), FARLOG_OK);
	return status.head_lsn;
}

static void members__read_and_release_reach_all(void **state)
{
	struct farlog_member_status members[COUNT];
	struct farlog_ring_status status;
	struct farlog_batch batch;
	farlog_reader *drain;
	uint64_t end_lsn;

	(void)state;
	make();
	end_lsn = write_to(0, 1, 20);
	copy(0, 1, 0, end_lsn);
	copy(0, 2, 0, end_lsn);
	drain = open_members(true);
	await_batch(drain, &batch);
	assert_int_equal(batch.next_lsn, end_lsn);
	assert_int_equal(batch.record_count, 21);
	assert_false(batch.is_rewound);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	for (unsigned i = 0; i < COUNT; i++)
		assert_int_equal(head_of(i), end_lsn);
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
	make();
	end_lsn = write_to(1, 1, 20);
	copy(1, 0, 0, end_lsn);
	copy(1, 2, 0, end_lsn);
	snprintf(away, sizeof(away), "%s.away", unit_path(uris[0]));
	assert_int_equal(rename(unit_path(uris[0]), away), 0);
	drain = open_members(true);
	await_batch(drain, &batch);
	assert_int_equal(batch.next_lsn, end_lsn);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	farlog_reader_members(drain, members, COUNT);
	assert_int_equal(members[0].state, FARLOG_MEMBER_AWAY);
	assert_non_null(strstr(members[0].text, unit_path(uris[0])));
	assert_int_equal(rename(away, unit_path(uris[0])), 0);
	for (unsigned n = 0; n < TRIES && head_of(0) != end_lsn; n++) {
		assert_int_equal(farlog_reader_read(drain, buffer, sizeof(buffer), &batch), FARLOG_NOT_YET);
		usleep(1000);
	}
	assert_int_equal(head_of(0), end_lsn);
	farlog_reader_close(drain);
}

static void members__too_few_are_refused_by_name(void **state)
{
	struct farlog_reader_config config = {.is_drain = 1};
	struct farlog_error error = {0};
	farlog_reader *reader;

	(void)state;
	make();
	unlink(unit_path(uris[1]));
	unlink(unit_path(uris[2]));
	assert_int_equal(farlog_reader_open(uri, &config, &reader, &error), FARLOG_NOT_FOUND);
	assert_null(reader);
	if (strstr(error.text, "1 of the stream's 3 members could be opened, expected 2 at least; member 2") == NULL ||
		strstr(error.text, unit_path(uris[1])) == NULL)
		fail_msg("\"%s\"", error.text);
}

static void members__ring_of_another_stream_is_none(void **state)
{
	struct farlog_ring_config config = {.size_bytes = SIZE, .record_len_max = 1024, .stream_id = 8, .is_forced = 1};
	struct farlog_member_status members[COUNT];
	farlog_reader *reader;

	(void)state;
	make();
	assert_int_equal(farlog_ring_format(uris[2], &config, NULL), FARLOG_OK);
	reader = open_members(false);
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
	make();
	snprintf(blocks, sizeof(blocks), "nvme:%s", unit_path(unit_file_uri("blocks")));
	for (unsigned i = COUNT; i-- > 0; config.size_bytes = LAYOUT_DATA_OFF + status.capacity_bytes) {
		uris[2] = blocks;
		assert_int_equal(farlog_ring_format(uris[i], &config, NULL), FARLOG_OK);
		assert_int_equal(farlog_ring_inspect(uris[i], &status, NULL), FARLOG_OK);
	}
	snprintf(uri, sizeof(uri), "members:3 %s %s %s", uris[0], uris[1], uris[2]);
	assert_int_equal(farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, NULL), FARLOG_OK);
	assert_int_equal(unit_append(writer, PAYLOAD_LEN, 1, &position), FARLOG_OK);
	farlog_writer_close(writer);
	drain = open_members(true);
	await_batch(drain, &batch);
	assert_int_equal(batch.next_lsn, position.end_lsn);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	for (unsigned i = 0; i < COUNT; i++)
		assert_int_equal(head_of(i), position.end_lsn);
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
	make();
	end_lsn = write_to(0, 1, 20);
	copy(0, 1, 0, end_lsn);
	copy(0, 2, 0, end_lsn);
	for (unsigned i = 0; i < COUNT; i++) {
		struct region *region = open_bytes(i);

		/* in each another one */
		region->ops->data.write(region, LAYOUT_DATA_OFF + 128 + 192 * (3 + 4 * i), zeros, sizeof(zeros));
		region->ops->close(region);
	}
	reader = open_members(false);
	while (read_count < 21) {
		await_batch(reader, &batch);
		read_count += batch.record_count;
	}
	assert_int_equal(read_count, 21);
	assert_int_equal(batch.next_lsn, end_lsn);
	farlog_reader_close(reader);
	for (unsigned i = 0; i < COUNT; i++) {
		struct region *region = open_bytes(i);

		region->ops->data.write(
			region, LAYOUT_DATA_OFF + 128 + 192 * 3, zeros, sizeof(zeros)); /* and in all this one */
		region->ops->close(region);
	}
	reader = open_members(false);
	await_batch(reader, &batch);
	for (unsigned n = 0; n < 100; n++) {
		int result = farlog_reader_read(reader, buffer, sizeof(buffer), &batch);

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
	make();
	end_lsn = write_to(0, 1, 40);
	copy(0, 1, 0, end_lsn);
	copy(0, 2, 0, 128 + 192 * 10);
	forget_hints(2);
	reader = open_members(false);
	reader->members->current = 2;
	for (uint64_t count = 0; count < 41; count += batch.record_count)
		await_batch(reader, &batch);
	assert_int_equal(batch.next_lsn, end_lsn);
	farlog_reader_close(reader);
}

/* Two members went on without the first, from where they had the log. What only the first had was given to nobody. */
static void members__epoch_passes_one_by(void **state)
{
	struct farlog_batch batch;
	farlog_reader *drain;
	uint64_t shared_lsn;
	uint64_t end_lsn;

	(void)state;
	make();
	write_to(0, 1, 20);
	shared_lsn = 128 + 192 * 12;
	copy(0, 1, 0, shared_lsn);
	copy(0, 2, 0, shared_lsn);
	forget_hints(0);
	forget_hints(1);
	forget_hints(2);
	drain = open_members(true);
	drain->members->current = 1;
	await_batch(drain, &batch);
	assert_int_equal(batch.next_lsn, shared_lsn);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	end_lsn = write_to(1, 2, 30);
	copy(1, 2, 0, end_lsn);
	await_batch(drain, &batch);
	assert_false(batch.is_rewound);
	assert_int_equal(batch.first_lsn, shared_lsn);
	assert_int_equal(batch.record_count, 31);
	assert_int_equal(batch.last_epoch, 2);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	assert_int_equal(head_of(1), end_lsn);
	assert_int_equal(head_of(2), end_lsn);
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
	make();
	write_to(0, 1, 20);
	copy(0, 1, 0, shared_lsn);
	copy(0, 2, 0, shared_lsn);
	for (unsigned i = 0; i < COUNT; i++)
		forget_hints(i);
	drain = open_members(true);
	drain->members->current = 1;
	await_batch(drain, &batch);
	assert_int_equal(batch.next_lsn, shared_lsn);
	write_to(1, 2, 40);
	end_lsn = write_to(1, 3, 1);
	copy(1, 2, 0, end_lsn);
	copy(1, 0, 0, end_lsn);
	drain->members->current = 0;
	await_batch(drain, &batch);
	assert_int_equal(batch.first_lsn, shared_lsn);
	assert_int_equal(batch.record_count, 43);
	assert_int_equal(batch.next_lsn, end_lsn);
	farlog_reader_close(drain);
}

/* erase -- what lies in a member from there on. */
static void erase(unsigned i, uint64_t from_lsn)
{
	struct region *region = open_bytes(i);

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

	make();
	end_lsn = write_to(0, 1, 2);
	write_to(0, 3, 1);
	erase(0, end_lsn);
	copy(0, 2, 0, 128);
	forget_hints(0);
	forget_hints(2);
	unlink(unit_path(uris[1]));
	drain = open_members(true);
	for (unsigned n = 0; n < 100; n++) {
		if (farlog_reader_read(drain, buffer, 192, &batch) == FARLOG_OK)
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
	make();
	write_to(0, 1, 100);
	end_lsn = write_to(0, 2, 1);
	copy(0, 2, 0, end_lsn);
	for (unsigned i = 0; i < COUNT; i++)
		forget_hints(i);
	drain = open_members(true);
	for (unsigned n = 0; n < TRIES && next_lsn < end_lsn; n++) {
		if (farlog_reader_read(drain, buffer, 2048, &batch) == FARLOG_OK)
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
	make();
	writer = unit_open(uris[1]);
	assert_int_equal(unit_append(writer, PAYLOAD_LEN, 1, &position), FARLOG_OK);
	assert_int_equal(unit_append(writer, 32, 1, &position), FARLOG_OK); /* as long as an epoch's first record */
	assert_int_equal(unit_append(writer, PAYLOAD_LEN, 1, &position), FARLOG_OK);
	assert_int_equal(unit_append(writer, PAYLOAD_LEN, 1, &position), FARLOG_OK);
	farlog_writer_close(writer);
	copy(1, 0, 0, shared_lsn);
	forget_hints(0);
	write_to(0, 2, 2);
	end_lsn = write_to(0, 3, 1);
	copy(0, 2, 0, end_lsn);
	copy(0, 1, 0, 0);
	for (unsigned i = 0; i < COUNT; i++)
		forget_hints(i);
	drain = open_members(true);
	drain->members->current = 1;
	await_batch(drain, &batch);
	assert_int_equal(batch.first_lsn, 0);
	assert_int_equal(batch.next_lsn, end_lsn);
	right = open_bytes(0);
	assert_memory_equal(buffer, right->base + LAYOUT_DATA_OFF, end_lsn);
	right->ops->close(right);
	farlog_reader_close(drain);
}

/* release_unshared -- of records that only the first member has. True: a head was moved over them. */
static bool release_unshared(void)
{
	struct farlog_batch batch;
	farlog_reader *drain;
	bool is_moved;

	make();
	write_to(0, 1, 20);
	copy(0, 1, 0, 128);
	copy(0, 2, 0, 128);
	for (unsigned i = 0; i < COUNT; i++)
		forget_hints(i);
	drain = open_members(true);
	drain->members->current = 0;
	await_batch(drain, &batch);
	may_fail(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch));
	is_moved = head_of(0) > 128 || head_of(1) > 128 || head_of(2) > 128;
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
	make();
	end_lsn = write_to(0, 1, 20);
	copy(0, 2, 0, end_lsn);
	copy(0, 1, 0, 128);
	for (unsigned i = 0; i < COUNT; i++)
		forget_hints(i);
	drain = open_members(true);
	for (uint64_t count = 0; count < 21; count += batch.record_count)
		await_batch(drain, &batch);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	for (unsigned i = 0; i < COUNT; i++)
		assert_int_equal(head_of(i), end_lsn);
	farlog_reader_close(drain);
}

static void members__drained_by_one_alone(void **state)
{
	struct farlog_reader_config config = {.is_drain = 1};
	struct farlog_error error = {0};
	farlog_reader *second;
	farlog_reader *drain;

	(void)state;
	make();
	drain = open_members(true);
	assert_int_equal(farlog_reader_open(uri, &config, &second, &error), FARLOG_HELD);
	assert_non_null(strstr(error.text, "already being drained"));
	farlog_reader_close(drain);
	farlog_reader_close(open_members(true));
}

static void members__reading_starts_elsewhere(void **state)
{
	struct farlog_reader_config config = {.start = FARLOG_START_LSN, .lsn = 128 + 192 * 4};
	struct farlog_error error = {0};
	struct farlog_batch batch;
	farlog_reader *reader;
	uint64_t end_lsn;

	(void)state;
	make();
	end_lsn = write_to(1, 1, 20);
	copy(1, 0, 0, end_lsn);
	assert_int_equal(farlog_reader_open(uri, &config, &reader, &error), FARLOG_OK);
	await_batch(reader, &batch);
	assert_int_equal(batch.first_lsn, 128 + 192 * 4);
	assert_int_equal(batch.record_count, 16);
	farlog_reader_close(reader);
	reader = unit_read(uri, FARLOG_START_TAIL, false);
	assert_int_equal(farlog_reader_read(reader, buffer, sizeof(buffer), &batch), FARLOG_NOT_YET);
	farlog_reader_close(reader);
	config.lsn += 8;
	assert_int_equal(farlog_reader_open(uri, &config, &reader, &error), FARLOG_NOT_FOUND);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(members__read_and_release_reach_all),
	cmocka_unit_test(members__one_is_missing_and_comes_back),
	cmocka_unit_test(members__too_few_are_refused_by_name),
	cmocka_unit_test(members__ring_of_another_stream_is_none),
	cmocka_unit_test(members__one_is_on_blocks),
	cmocka_unit_test(members__record_is_corrupt_in_one),
	cmocka_unit_test(members__one_lags),
	cmocka_unit_test(members__epoch_passes_one_by),
	cmocka_unit_test(members__epoch_in_between_is_not_missed),
	cmocka_unit_test(members__epoch_without_a_record),
	cmocka_unit_test(members__old_epoch_of_many_batches),
	cmocka_unit_test(members__joiner_holds_what_was_undone),
	cmocka_unit_test(members__head_waits_for_enough_of_them),
	cmocka_unit_test(members__head_moves_without_the_writers_word),
	cmocka_unit_test(members__drained_by_one_alone),
	cmocka_unit_test(members__reading_starts_elsewhere),
};
RUN_GROUP(reader_members, tests)
