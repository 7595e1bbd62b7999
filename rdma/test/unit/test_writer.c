#include <stdio.h>
#include <stdlib.h>

#include "ring/layout.h"
#include "unit.h"

#define CAPACITY 16384u
#define SIZE (LAYOUT_DATA_OFF + CAPACITY)

static void open__refusals_name_both_sides(void **state)
{
	const char *uri = unit_tmpfs_uri("open");
	uint8_t other_uuid[16] = {1};
	struct farlog_error error;
	farlog_writer *writer;
	farlog_writer *second;

	(void)state;
	assert_int_equal(farlog_writer_open(uri, NULL, &writer, &error), FARLOG_NOT_FOUND);
	unit_format(uri, SIZE, 0);
	assert_int_equal(farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_PERSISTENT), &writer, &error), FARLOG_LEVEL);
	assert_non_null(strstr(error.text, "persistent"));
	assert_non_null(strstr(error.text, "visible"));
	assert_int_equal(farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_STORED), &writer, &error), FARLOG_INVALID);
	assert_int_equal(farlog_writer_open(uri, CONFIG(.policy = 9), &writer, &error), FARLOG_INVALID);
	assert_int_equal(farlog_writer_open(uri, CONFIG(.warn_percent = 101), &writer, &error), FARLOG_INVALID);
	assert_int_equal(
		farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE, .ring_uuid = other_uuid), &writer, &error),
		FARLOG_NOT_A_RING);
	assert_null(writer);
	assert_int_equal(
		farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE, .writer_name = "first"), &writer, &error),
		FARLOG_OK);
	assert_int_equal(farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &second, &error), FARLOG_HELD);
	assert_non_null(strstr(error.text, "name=first"));
	farlog_writer_close(writer);
}

static void open__epochs_rise(void **state)
{
	const char *uri = unit_tmpfs_uri("epochs");
	struct farlog_error error;
	farlog_writer *writer;

	(void)state;
	unit_format(uri, SIZE, 0);
	for (uint32_t epoch = 1; epoch <= 3; epoch++) {
		writer = unit_open(uri);
		assert_int_equal(farlog_writer_recovery(writer)->epoch, epoch);
		assert_int_equal(farlog_writer_recovery(writer)->prev_epoch, epoch - 1);
		farlog_writer_close(writer);
	}
	assert_int_equal(
		farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE, .epoch = 3), &writer, &error), FARLOG_FENCED);
	assert_int_equal(
		farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE, .epoch = 9), &writer, &error), FARLOG_OK);
	assert_int_equal(farlog_writer_recovery(writer)->epoch, 9);
	farlog_writer_close(writer);
}

static void append__position_and_cursors(void **state)
{
	struct farlog_position position;
	struct farlog_cursors cursors;
	farlog_writer *writer;

	(void)state;
	unit_fault(SIZE, 1024);
	writer = unit_open(FAULT_URI);
	assert_int_equal(unit_append(writer, 192, 7, &position), FARLOG_OK);
	assert_int_equal(position.lsn, 128); /* after the EPOCH record */
	assert_int_equal(position.end_lsn, 384);
	assert_int_equal(position.seq, 1);
	assert_int_equal(position.epoch, 1);
	assert_int_equal(position.level, FARLOG_LEVEL_PERSISTENT);
	assert_int_equal(position.copies, 1);
	assert_int_equal(farlog_heartbeat(writer, 0, &position), FARLOG_OK);
	assert_int_equal(position.end_lsn, 448);
	farlog_writer_cursors(writer, &cursors);
	assert_int_equal(cursors.appended_lsn, 448);
	assert_int_equal(cursors.durable_lsn, 448);
	assert_int_equal(cursors.head_lsn, 0);
	assert_int_equal(cursors.next_seq, 3);
	farlog_writer_close(writer);
}

static void submit__durable_by_poll_wait_and_next_append(void **state)
{
	struct farlog_position position;
	farlog_writer *writer;
	uint64_t durable_lsn = 0;

	(void)state;
	unit_fault(SIZE, 1024);
	writer = unit_open(FAULT_URI);
	assert_int_equal(unit_submit(writer, 64, 1, &position), FARLOG_OK);
	assert_int_equal(position.level, FARLOG_LEVEL_POSTED);
	while (durable_lsn < position.end_lsn)
		assert_int_equal(farlog_poll(writer, &durable_lsn), FARLOG_OK);
	assert_int_equal(unit_submit(writer, 64, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_wait(writer, position.end_lsn, 0), FARLOG_OK);
	assert_int_equal(farlog_wait(writer, position.end_lsn + 64, 0), FARLOG_INVALID);
	farlog_writer_close(writer);
}

static void batch__one_flush_and_partly_full(void **state)
{
	struct farlog_entry entries[300];
	struct farlog_position positions[300];
	farlog_writer *writer;
	size_t done;
	size_t submitted;

	(void)state;
	unit_fault(SIZE, 1024);
	writer = unit_open(FAULT_URI);
	for (unsigned i = 0; i < 300; i++)
		entries[i] = (struct farlog_entry){.data = "0123456789", .len = 10, .class_id = (uint16_t)i};
	assert_int_equal(farlog_append_batch(writer, entries, 30, 0, positions, &done, &submitted), FARLOG_OK);
	assert_int_equal(done, 30);
	assert_int_equal(positions[29].seq, 30);
	assert_int_equal(positions[29].level, FARLOG_LEVEL_PERSISTENT);
	assert_int_equal(farlog_append_batch(writer, entries, 300, 0, positions, &done, &submitted), FARLOG_FULL);
	assert_int_equal(done, submitted);
	assert_int_equal(done, (CAPACITY - 128 - 30 * 128) / 128);
	assert_int_equal(farlog_append_batch(writer, entries, 0, 0, positions, &done, &submitted), FARLOG_OK);
	farlog_writer_close(writer);
}

static void claim__filled_in_place(void **state)
{
	const char *uri = unit_tmpfs_uri("claim");
	struct farlog_position position;
	struct farlog_batch batch;
	uint8_t buffer[4096];
	farlog_writer *writer;
	farlog_reader *reader;
	void *payload;

	(void)state;
	unit_format(uri, SIZE, 1024);
	writer = unit_open(uri);
	assert_int_equal(farlog_commit(writer, 0, &position), FARLOG_INVALID);
	assert_int_equal(farlog_claim(writer, 2000, 0, NULL, 0, &payload), FARLOG_TOO_LARGE);
	assert_int_equal(farlog_claim(writer, 20, 3, NULL, 4, &payload), FARLOG_INVALID);
	assert_int_equal(farlog_claim(writer, 20, 3, "ORD9", 4, &payload), FARLOG_OK);
	memset(payload, 'p', 20);
	assert_int_equal(farlog_commit(writer, 0, &position), FARLOG_OK);
	assert_int_equal(farlog_commit(writer, 0, &position), FARLOG_INVALID);
	reader = unit_read(uri, FARLOG_START_HEAD, false);
	assert_int_equal(farlog_reader_read(reader, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_int_equal(batch.record_count, 2);
	assert_memory_equal(buffer + 128 + 56, "ORD9pppppppppppppppppppp", 24);
	assert_int_equal(farlog_claim(writer, 20, 3, NULL, 0, &payload), FARLOG_OK);
	assert_int_equal(unit_append(writer, 1, 1, &position), FARLOG_OK); /* uses the staging buffer: the claim is gone */
	assert_int_equal(farlog_commit(writer, 0, &position), FARLOG_INVALID);
	farlog_reader_close(reader);
	farlog_writer_close(writer);
}

static void claim__full_leaves_it_standing(void **state)
{
	const char *uri = unit_tmpfs_uri("claim-full");
	struct farlog_position position;
	struct farlog_batch batch;
	static uint8_t buffer[SIZE];
	farlog_writer *writer;
	farlog_reader *drain;
	void *payload;

	(void)state;
	unit_format(uri, SIZE, 1024);
	writer = unit_open(uri);
	drain = unit_read(uri, FARLOG_START_HEAD, true);
	while (unit_append(writer, 64, 1, &position) == FARLOG_OK)
		;
	assert_int_equal(farlog_claim(writer, 8, 1, NULL, 0, &payload), FARLOG_OK);
	memcpy(payload, "standing", 8);
	assert_int_equal(farlog_commit(writer, 0, &position), FARLOG_FULL);
	assert_int_equal(farlog_reader_read(drain, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	assert_int_equal(farlog_commit(writer, 0, &position), FARLOG_OK);
	assert_int_equal(farlog_reader_read(drain, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_memory_equal(buffer + 56, "standing", 8);
	farlog_reader_close(drain);
	farlog_writer_close(writer);
}

/* fill_under_pressure -- until there is no room; after each record the counters must say what the bytes in use do. */
static void fill_under_pressure(
	farlog_writer *writer, bool is_submit, const char *directory, const char *uri, struct farlog_counters *counters)
{
	struct farlog_entry entry = {.data = directory, .len = 8};
	struct farlog_position position;
	struct farlog_ring_status status;
	struct farlog_cursors cursors;
	struct farlog_error error = {0};
	uint64_t used;

	assert_int_equal(farlog_ring_inspect(uri, &status, &error), FARLOG_OK);
	for (;;) {
		int result = is_submit ? farlog_submit(writer, &entry, &position) : farlog_append(writer, &entry, 0, &position);

		farlog_writer_cursors(writer, &cursors);
		assert_int_equal(farlog_counters_read(directory, status.ring_uuid, counters, &error), FARLOG_OK);
		used = cursors.appended_lsn - cursors.head_lsn;
		assert_int_equal(counters->pressure, (used >= CAPACITY / 100 * 50) + (used >= CAPACITY / 100 * 75));
		assert_int_equal(counters->pressure, cursors.pressure);
		if (result == FARLOG_FULL)
			break;
		assert_int_equal(result, FARLOG_OK);
	}
	assert_int_equal(farlog_wait(writer, cursors.appended_lsn, 0), FARLOG_OK);
}

static void drain_all(const char *uri)
{
	farlog_reader *drain = unit_read(uri, FARLOG_START_HEAD, true);
	uint8_t drained[CAPACITY];
	struct farlog_batch batch;

	while (farlog_reader_read(drain, drained, sizeof(drained), &batch) == FARLOG_OK)
		assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	farlog_reader_close(drain);
}

/* By the way that persistent memory takes, and by a plain copy. */
static void pressure__warn_and_alarm(void **state)
{
	static const char *const methods[] = {"none", "auto"};
	char directory[] = "/dev/shm/farlog-unit-counters-XXXXXX";
	struct farlog_counters counters;
	struct farlog_error error = {0};
	farlog_writer *writer;
	char uri[300];

	(void)state;
	assert_non_null(mkdtemp(directory));
	for (unsigned i = 0; i < 2; i++) {
		const char *plain = unit_tmpfs_uri("pressure");

		snprintf(uri, sizeof(uri), "%s?flush=%s", plain, methods[i]);
		unit_format(plain, SIZE, 1024);
		assert_int_equal(farlog_writer_open(uri,
							 &(struct farlog_writer_config){.level = FARLOG_LEVEL_VISIBLE,
								 .policy = FARLOG_POLICY_REJECT,
								 .warn_percent = 50,
								 .alarm_percent = 75,
								 .counters_dir = directory},
							 &writer, &error),
			FARLOG_OK);
		for (unsigned lap = 1; lap <= 4; lap++) {
			fill_under_pressure(writer, lap % 2 == 0, directory, plain, &counters);
			assert_int_equal(counters.warn_count, lap);
			assert_int_equal(counters.alarm_count, lap);
			assert_int_equal(counters.full_count, lap);
			drain_all(plain);
		}
		assert_int_equal(counters.record_count, 4 * CAPACITY / 128 - 1); /* and the EPOCH record */
		assert_int_equal(counters.latency_count, 2 * CAPACITY / 128 - 1);
		farlog_writer_close(writer);
	}
	snprintf(uri, sizeof(uri), "rm -r %s", directory);
	assert_int_equal(system(uri), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(open__refusals_name_both_sides),
	cmocka_unit_test(open__epochs_rise),
	cmocka_unit_test(append__position_and_cursors),
	cmocka_unit_test(submit__durable_by_poll_wait_and_next_append),
	cmocka_unit_test(batch__one_flush_and_partly_full),
	cmocka_unit_test(claim__filled_in_place),
	cmocka_unit_test(claim__full_leaves_it_standing),
	cmocka_unit_test(pressure__warn_and_alarm),
};
RUN_GROUP(writer, tests)
