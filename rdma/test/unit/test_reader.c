#include <stdio.h>

#include "ring/layout.h"
#include "ring/record.h"
#include "region/region.h"
#include "unit.h"

#define CAPACITY 16384u
#define SIZE (LAYOUT_DATA_OFF + CAPACITY)

static uint8_t buffer[SIZE];

static struct region *open_bytes(const char *uri)
{
	struct region *region;

	assert_int_equal(region_open(uri, &(struct region_options){.access = REGION_WRITE}, &region, NULL), FARLOG_OK);
	return region;
}

static void read__nothing_then_all_then_nothing(void **state)
{
	const char *uri = unit_tmpfs_uri("read");
	struct farlog_position position;
	struct farlog_batch batch;
	farlog_writer *writer;
	farlog_reader *reader;

	(void)state;
	unit_format(uri, SIZE, 1024);
	reader = unit_read(uri, FARLOG_START_HEAD, false);
	assert_int_equal(farlog_reader_read(reader, buffer, sizeof(buffer), &batch), FARLOG_NOT_YET);
	writer = unit_open(uri);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_reader_read(reader, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_int_equal(batch.record_count, 11);
	assert_int_equal(batch.first_lsn, 0);
	assert_int_equal(batch.next_lsn, position.end_lsn);
	assert_int_equal(batch.next_seq, 11);
	assert_int_equal(batch.len, position.end_lsn);
	assert_true(batch.last_ts_ns > 0);
	assert_int_equal(farlog_reader_read(reader, buffer, sizeof(buffer), &batch), FARLOG_NOT_YET);
	farlog_reader_close(reader);
	farlog_writer_close(writer);
}

/* The tip rule: whatever words of the newest record have landed, it is returned whole or not at all. */
static void read__half_written_record_is_not_returned(void **state)
{
	const char *uri = unit_tmpfs_uri("tip");
	struct farlog_position position;
	struct farlog_batch batch;
	struct region *region;
	farlog_writer *writer;
	farlog_reader *reader;
	uint8_t whole[448] __attribute__((aligned(64)));
	uint8_t half[448] __attribute__((aligned(64)));

	(void)state;
	unit_format(uri, SIZE, 1024);
	writer = unit_open(uri);
	reader = unit_read(uri, FARLOG_START_TAIL, false);
	assert_int_equal(unit_append(writer, 380, 9, &position), FARLOG_OK);
	region = open_bytes(uri);
	assert_int_equal(region->ops->data.read(region, LAYOUT_DATA_OFF + position.lsn, whole, sizeof(whole)), FARLOG_OK);
	for (unsigned i = 0; i < 300; i++) {
		memcpy(half, whole, sizeof(half));
		for (unsigned word = 0; word < 436 / 8; word++)
			if (unit_below(i % 5 + 2) == 0)
				memset(half + 8 * word, 0, 8);
		region->ops->data.write(region, LAYOUT_DATA_OFF + position.lsn, half, sizeof(half));
		/* The hint says that all is there: a lie that only other processors could tell. */
		if (memcmp(half, whole, sizeof(half)) != 0)
			assert_true(farlog_reader_read(reader, buffer, sizeof(buffer), &batch) != FARLOG_OK);
	}
	region->ops->data.write(region, LAYOUT_DATA_OFF + position.lsn, whole, sizeof(whole));
	assert_int_equal(farlog_reader_read(reader, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_memory_equal(buffer, whole, sizeof(whole));
	region->ops->close(region);
	farlog_reader_close(reader);
	farlog_writer_close(writer);
}

static void read__buffer_too_small(void **state)
{
	const char *uri = unit_tmpfs_uri("small");
	struct farlog_position position;
	struct farlog_batch batch;
	farlog_writer *writer;
	farlog_reader *reader;

	(void)state;
	unit_format(uri, SIZE, 1024);
	writer = unit_open(uri);
	reader = unit_read(uri, FARLOG_START_TAIL, false);
	assert_int_equal(unit_append(writer, 700, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_reader_read(reader, buffer, 700, &batch), FARLOG_TOO_LARGE);
	assert_int_equal(batch.len, 768);
	assert_int_equal(farlog_reader_read(reader, buffer, 10, &batch), FARLOG_TOO_LARGE);
	assert_true(batch.len > 10);
	assert_int_equal(farlog_reader_read(reader, buffer, 768, &batch), FARLOG_OK);
	assert_int_equal(batch.record_count, 1);
	farlog_reader_close(reader);
	farlog_writer_close(writer);
}

/* Every buffer size gives the same records in the same order, over many laps and PADs. */
static void read__any_buffer_size_gives_the_same_log(void **state)
{
	const char *uri = unit_tmpfs_uri("sizes");
	struct farlog_position position;
	struct farlog_batch batch;
	farlog_writer *writer;
	farlog_reader *drain;
	uint64_t seq = 0;

	(void)state;
	unit_format(uri, SIZE, 1024);
	writer = unit_open(uri);
	drain = unit_read(uri, FARLOG_START_HEAD, true);
	for (unsigned i = 0; i < 3000; i++) {
		int result;

		for (uint64_t burst = unit_below(8); burst > 0; burst--)
			unit_submit(writer, (uint32_t)unit_below(900), 1, &position);
		result = farlog_reader_read(drain, buffer, 1024 + unit_below(4096), &batch);
		assert_true(result == FARLOG_OK || result == FARLOG_NOT_YET);
		if (result != FARLOG_OK)
			continue;
		for (uint64_t at = 0; at < batch.len;) {
			struct record_header header;

			memcpy(&header, buffer + at, sizeof(header));
			assert_int_equal(header.seq, seq);
			seq += !(header.flags & RECORD_FLAG_PAD);
			at += header.flags & RECORD_FLAG_PAD ? 64 : record_extent(64, header.key_len, header.payload_len);
		}
		assert_int_equal(batch.next_seq, seq);
		assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	}
	assert_true(seq > 2000);
	farlog_reader_close(drain);
	farlog_writer_close(writer);
}

static void read__overtaken(void **state)
{
	const char *uri = unit_tmpfs_uri("overrun");
	struct farlog_position position;
	struct farlog_batch batch;
	farlog_writer *writer;
	farlog_reader *reader;
	farlog_reader *drain;

	(void)state;
	unit_format(uri, SIZE, 1024);
	writer = unit_open(uri);
	reader = unit_read(uri, FARLOG_START_HEAD, false);
	drain = unit_read(uri, FARLOG_START_HEAD, true);
	for (unsigned lap = 0; lap < 3; lap++) {
		while (unit_append(writer, 200, 1, &position) == FARLOG_OK)
			;
		assert_int_equal(farlog_reader_read(drain, buffer, sizeof(buffer), &batch), FARLOG_OK);
		assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	}
	assert_int_equal(farlog_reader_read(reader, buffer, sizeof(buffer), &batch), FARLOG_OVERRUN);
	farlog_reader_close(reader);
	farlog_reader_close(drain);
	farlog_writer_close(writer);
}

/* break_a_record -- of two that were acknowledged, the first. The ring is there, and empty. */
static void break_a_record(const char *uri)
{
	struct farlog_position position;
	struct farlog_position broken;
	struct farlog_batch batch;
	struct region *region;
	farlog_writer *writer = unit_open(uri);
	farlog_reader *drain;
	uint8_t zeros[64] __attribute__((aligned(64))) = {0};

	assert_int_equal(unit_append(writer, 64, 1, &broken), FARLOG_OK);
	assert_int_equal(unit_append(writer, 64, 1, &position), FARLOG_OK);
	farlog_writer_close(writer); /* stores the hint */
	region = open_bytes(uri);
	region->ops->data.write(region, LAYOUT_DATA_OFF + broken.lsn, zeros, sizeof(zeros));
	region->ops->close(region);
	drain = unit_read(uri, FARLOG_START_HEAD, true);
	assert_int_equal(farlog_reader_read(drain, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_int_equal(batch.next_lsn, broken.lsn);
	assert_int_equal(farlog_reader_read(drain, buffer, sizeof(buffer), &batch), FARLOG_CORRUPT);
	assert_int_equal(batch.first_lsn, broken.lsn);
	farlog_reader_close(drain);
}

static void read__corrupt_record_below_durable(void **state)
{
	const char *uri = unit_tmpfs_uri("broken");

	(void)state;
	unit_fault(SIZE, 1024);
	break_a_record(FAULT_URI);
	unit_format(uri, SIZE, 1024);
	break_a_record(uri);
}

/* Hints that cannot be are no evidence that the media has lost anything: a far writer may have stored any word there,
 * and its successor opens all the same. */
static void read__impossible_hints_accuse_nobody(void **state)
{
	static const uint64_t words[] = {1ull << 62, UINT64_MAX, SIZE * 2, 8};
	const char *uri = unit_tmpfs_uri("hints");
	struct farlog_position position;
	struct farlog_batch batch;

	(void)state;
	unit_format(uri, SIZE, 1024);
	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		farlog_writer *writer = unit_open(uri);
		farlog_reader *reader = unit_read(uri, FARLOG_START_TAIL, false);
		struct region *region = open_bytes(uri);

		assert_int_equal(unit_append(writer, 64, (uint8_t)i, &position), FARLOG_OK);
		farlog_writer_close(writer);
		region->ops->data.store_word(region, LAYOUT_TAIL_HINT_OFF, words[i]);
		region->ops->data.store_word(region, LAYOUT_DURABLE_HINT_OFF, words[i]);
		region->ops->close(region);
		assert_int_equal(farlog_reader_read(reader, buffer, sizeof(buffer), &batch), FARLOG_OK);
		assert_int_equal(batch.next_lsn, position.end_lsn);
		assert_int_equal(farlog_reader_read(reader, buffer, sizeof(buffer), &batch), FARLOG_NOT_YET);
		farlog_reader_close(reader);
	}
	farlog_writer_close(unit_open(uri));
}

static void open__start_at_lsn_tail_and_held(void **state)
{
	const char *uri = unit_tmpfs_uri("start");
	struct farlog_reader_config config = {.start = FARLOG_START_LSN};
	struct farlog_position positions[5];
	struct farlog_batch batch;
	struct farlog_error error;
	farlog_writer *writer;
	farlog_reader *reader;
	farlog_reader *drain;

	(void)state;
	unit_format(uri, SIZE, 1024);
	writer = unit_open(uri);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(unit_append(writer, 300, 1, &positions[i]), FARLOG_OK);
	config.lsn = positions[3].lsn;
	assert_int_equal(farlog_reader_open(uri, &config, &reader, &error), FARLOG_OK);
	assert_int_equal(farlog_reader_read(reader, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_int_equal(batch.first_lsn, positions[3].lsn);
	assert_int_equal(batch.record_count, 2);
	farlog_reader_close(reader);
	config.lsn += 64;
	assert_int_equal(farlog_reader_open(uri, &config, &reader, &error), FARLOG_NOT_FOUND);
	assert_null(reader);
	reader = unit_read(uri, FARLOG_START_TAIL, false);
	assert_int_equal(farlog_reader_read(reader, buffer, sizeof(buffer), &batch), FARLOG_NOT_YET);
	farlog_reader_close(reader);
	drain = unit_read(uri, FARLOG_START_HEAD, true);
	assert_int_equal(
		farlog_reader_open(uri, &(struct farlog_reader_config){.is_drain = 1}, &reader, &error), FARLOG_HELD);
	assert_int_equal(farlog_reader_read(drain, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	config.lsn = positions[3].lsn;
	assert_int_equal(farlog_reader_open(uri, &config, &reader, &error), FARLOG_OVERRUN);
	farlog_reader_close(drain);
	farlog_writer_close(writer);
}

static void release__refuses_what_was_not_read_and_going_back(void **state)
{
	const char *uri = unit_tmpfs_uri("release");
	struct farlog_position position;
	struct farlog_ring_status status;
	struct farlog_cursors cursors;
	struct farlog_batch batch;
	farlog_writer *writer;
	farlog_reader *drain;
	farlog_reader *reader;

	(void)state;
	unit_format(uri, SIZE, 1024);
	writer = unit_open(uri);
	drain = unit_read(uri, FARLOG_START_HEAD, true);
	reader = unit_read(uri, FARLOG_START_HEAD, false);
	assert_int_equal(unit_append(writer, 64, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_reader_release(drain, 128, 1, 1), FARLOG_INVALID); /* not read yet */
	assert_int_equal(farlog_reader_read(drain, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_int_equal(farlog_reader_read(reader, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_int_equal(farlog_reader_release(reader, 256, 2, 1), FARLOG_INVALID); /* no drain */
	assert_int_equal(farlog_reader_release(drain, 256, 2, 1), FARLOG_OK);
	assert_int_equal(farlog_reader_release(drain, 256, 2, 1), FARLOG_OK);
	assert_int_equal(farlog_reader_release(drain, 128, 1, 1), FARLOG_INVALID);
	farlog_writer_cursors(writer, &cursors);
	assert_int_equal(cursors.head_lsn, 256);
	assert_int_equal(farlog_reader_status(drain, &status), FARLOG_OK);
	assert_int_equal(status.head_lsn, 256);
	assert_int_equal(status.credit_lsn, 256);
	assert_int_equal(status.lag_bytes, 0);
	farlog_reader_close(drain);
	farlog_reader_close(reader);
	farlog_writer_close(writer);
}

/* What is scribbled over the next record is named by the check that it fails; an intact record is none of that. */
static void suspect__names_the_check(void **state)
{
	static const struct {
		uint32_t off;
		uint32_t len;
		uint64_t value;
		bool is_claimed;
		const char *text;
	} scribbles[] = {
		{0, 4, 0, false, "no record claims this place: magic 0"},
		{8, 8, 64, false, "no record claims this place"},
		{4, 1, 9, true, "version 9 with a header of 7 words; expected version 1 with 7"},
		{16, 4, 8, true, "epoch 8; expected 1 at least and 1 at most"},
		{16, 4, 0, true, "epoch 0; expected 1"},
		{20, 4, 0x7fffffff, true,
			"payload length 2147483647 and key length 0; expected a record of 1024 bytes at most"},
		{46, 2, 0xffff, true, "payload length 100 and key length 65535; expected a record of 1024 bytes at most"},
		{24, 8, 7, true, "seq 7; expected 2"},
		{44, 2, 5, true, "192 bytes that fail their checksum"},
		{80, 1, 0x55, true, "192 bytes that fail their checksum"},
		{184, 8, 1, true, "192 bytes with trailer 0x1; expected"},
	};
	const char *uri = unit_tmpfs_uri("suspect");
	struct farlog_position position;
	struct farlog_suspect suspect;
	struct farlog_batch batch;
	struct region *region;
	farlog_writer *writer;
	farlog_reader *reader;
	uint8_t *record;

	(void)state;
	unit_format(uri, SIZE, 1024);
	writer = unit_open(uri);
	reader = unit_read(uri, FARLOG_START_HEAD, false);
	assert_int_equal(unit_append(writer, 10, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_reader_read(reader, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_int_equal(farlog_reader_suspect(reader, &suspect), FARLOG_OK);
	assert_false(suspect.is_claimed);
	assert_int_equal(unit_append(writer, 100, 2, &position), FARLOG_OK);
	assert_int_equal(farlog_reader_suspect(reader, &suspect), FARLOG_NOT_YET);
	region = open_bytes(uri);
	record = (uint8_t *)(uintptr_t)region->base + LAYOUT_DATA_OFF + position.lsn;
	for (unsigned i = 0; i < sizeof(scribbles) / sizeof(scribbles[0]); i++) {
		uint8_t before[8];

		memcpy(before, record + scribbles[i].off, scribbles[i].len);
		memcpy(record + scribbles[i].off, &scribbles[i].value, scribbles[i].len);
		assert_int_equal(farlog_reader_suspect(reader, &suspect), FARLOG_OK);
		if (suspect.lsn != position.lsn || suspect.is_claimed != scribbles[i].is_claimed ||
			strstr(suspect.text, scribbles[i].text) == NULL)
			fail_msg("scribble %u: lsn %lu, claimed %u, \"%s\"; expected \"%s\"", i, suspect.lsn, suspect.is_claimed,
				suspect.text, scribbles[i].text);
		memcpy(record + scribbles[i].off, before, scribbles[i].len);
	}
	assert_int_equal(farlog_reader_suspect(reader, &suspect), FARLOG_NOT_YET);
	region->ops->close(region);
	farlog_reader_close(reader);
	farlog_writer_close(writer);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(read__nothing_then_all_then_nothing),
	cmocka_unit_test(read__half_written_record_is_not_returned),
	cmocka_unit_test(read__buffer_too_small),
	cmocka_unit_test(read__any_buffer_size_gives_the_same_log),
	cmocka_unit_test(read__overtaken),
	cmocka_unit_test(read__corrupt_record_below_durable),
	cmocka_unit_test(read__impossible_hints_accuse_nobody),
	cmocka_unit_test(open__start_at_lsn_tail_and_held),
	cmocka_unit_test(suspect__names_the_check),
	cmocka_unit_test(release__refuses_what_was_not_read_and_going_back),
};
RUN_GROUP(reader, tests)
