/* The outcomes of an append, one by one: what the caller is told, and what is then true. */
#include "base/clock.h"
#include "ring/layout.h"
#include "unit.h"
#include "log/shared.h"
#include "log/writer.h"

#define CAPACITY 16384u
#define SIZE (LAYOUT_DATA_OFF + CAPACITY)

static void append__too_large_and_invalid_write_nothing(void **state)
{
	struct farlog_entry nothing = {.data = NULL, .len = 5};
	struct farlog_entry keyless = {.data = "x", .len = 1, .key = NULL, .key_len = 3};
	struct farlog_position position;
	struct farlog_cursors cursors;
	farlog_writer *writer;

	(void)state;
	unit_fault(SIZE, 1024);
	writer = unit_open(FAULT_URI);
	assert_int_equal(unit_append(writer, 1024 - 64 + 1, 1, &position), FARLOG_TOO_LARGE);
	assert_int_equal(farlog_append(writer, &nothing, 0, &position), FARLOG_INVALID);
	assert_int_equal(farlog_append(writer, &keyless, 0, &position), FARLOG_INVALID);
	farlog_writer_cursors(writer, &cursors);
	assert_int_equal(cursors.appended_lsn, 128);
	assert_int_equal(unit_append(writer, 1024 - 64, 1, &position), FARLOG_OK);
	assert_int_equal(unit_append(writer, 0, 1, &position), FARLOG_OK);
	farlog_writer_close(writer);
}

static void append__full_is_told_at_once_or_at_the_deadline(void **state)
{
	struct farlog_entry entry = {.data = "x", .len = 1};
	struct farlog_position position;
	struct farlog_error error;
	farlog_writer *writer;
	uint64_t start_ns;

	(void)state;
	unit_fault(SIZE, 1024);
	assert_int_equal(farlog_writer_open(FAULT_URI, CONFIG(.policy = FARLOG_POLICY_BLOCK), &writer, &error), FARLOG_OK);
	while (farlog_try_append(writer, &entry, &position) == FARLOG_OK)
		;
	start_ns = clock_monotonic_ns();
	assert_int_equal(farlog_append(writer, &entry, 20000000, &position), FARLOG_FULL);
	assert_true(clock_monotonic_ns() - start_ns >= 20000000);
	assert_int_equal(farlog_try_append(writer, &entry, &position), FARLOG_FULL);
	assert_int_equal(farlog_submit(writer, &entry, &position), FARLOG_FULL);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

static void append__full_ring_goes_on_lap_after_lap(void **state)
{
	const char *uri = unit_tmpfs_uri("block");
	static uint8_t buffer[SIZE];
	struct farlog_batch batch;
	struct farlog_position position;
	struct farlog_error error;
	farlog_writer *writer;
	farlog_reader *drain;

	(void)state;
	unit_format(uri, SIZE, 1024);
	drain = unit_read(uri, FARLOG_START_HEAD, true);
	assert_int_equal(
		farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE, .policy = FARLOG_POLICY_REJECT), &writer, &error),
		FARLOG_OK);
	for (unsigned lap = 0; lap < 20; lap++) {
		while (unit_append(writer, unit_below(900), 1, &position) == FARLOG_OK)
			;
		assert_int_equal(farlog_reader_read(drain, buffer, sizeof(buffer), &batch), FARLOG_OK);
		assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	}
	farlog_reader_close(drain);
	farlog_writer_close(writer);
}

static void append__unknown_when_the_region_fails_then_closed(void **state)
{
	struct farlog_position position;
	struct farlog_cursors before;
	farlog_writer *writer;
	uint64_t durable_lsn;
	void *payload;

	(void)state;
	unit_fault(SIZE, 1024);
	writer = unit_open(FAULT_URI);
	assert_int_equal(unit_append(writer, 64, 1, &position), FARLOG_OK);
	farlog_writer_cursors(writer, &before);
	farlog_fault_arm(FAULT_NAME, 1); /* the write goes through, the persist does not */
	assert_int_equal(unit_append(writer, 64, 1, &position), FARLOG_UNKNOWN);
	assert_int_equal(position.lsn, before.appended_lsn);
	assert_int_equal(position.epoch, 1);
	assert_int_equal(unit_append(writer, 64, 1, &position), FARLOG_CLOSED);
	assert_int_equal(unit_submit(writer, 64, 1, &position), FARLOG_CLOSED);
	assert_int_equal(farlog_claim(writer, 4, 0, NULL, 0, &payload), FARLOG_CLOSED);
	assert_int_equal(farlog_poll(writer, &durable_lsn), FARLOG_UNKNOWN);
	assert_int_equal(durable_lsn, before.durable_lsn);
	assert_int_equal(farlog_wait(writer, before.appended_lsn + 64, 0), FARLOG_UNKNOWN);
	assert_int_equal(farlog_writer_close(writer), FARLOG_UNKNOWN);
	farlog_fault_crash(FAULT_NAME);
}

/* A region whose flush never comes back: nothing hangs, and the outcome is honest. */
static int poll_never(struct region *region)
{
	(void)region;
	return FARLOG_OK;
}

static void append__unknown_at_the_deadline_then_resolved(void **state)
{
	struct region_ops stuck;
	const struct region_ops *working;
	struct farlog_position position;
	struct farlog_position resolved;
	farlog_writer *writer;
	uint64_t start_ns;

	(void)state;
	unit_fault(SIZE, 1024);
	writer = unit_open(FAULT_URI);
	working = writer->region->ops;
	stuck = *working;
	stuck.data.poll = poll_never;
	writer->region->ops = &stuck;
	start_ns = clock_monotonic_ns();
	assert_int_equal(
		farlog_append(writer, &(struct farlog_entry){.data = "x", .len = 1}, 5000000, &position), FARLOG_UNKNOWN);
	assert_true(clock_monotonic_ns() - start_ns >= 5000000);
	assert_int_equal(farlog_resolve(writer, position.lsn, 1000000, &resolved), FARLOG_UNKNOWN);
	writer->region->ops = working;
	assert_int_equal(farlog_resolve(writer, position.lsn, 0, &resolved), FARLOG_OK);
	assert_int_equal(resolved.seq, position.seq);
	assert_int_equal(resolved.end_lsn, position.end_lsn);
	assert_int_equal(resolved.level, FARLOG_LEVEL_PERSISTENT);
	assert_int_equal(unit_append(writer, 1, 1, &position), FARLOG_OK); /* the writer goes on */
	farlog_writer_close(writer);
}

static struct farlog_counters latencies(const farlog_writer *writer)
{
	return *writer->counters;
}

/* What ended UNKNOWN is the longest latency while it lasts, and one of the latencies when it is over; the time in which
 * nobody waited for it is not. */
static void append__latency_of_what_was_late(void **state)
{
	struct region_ops stuck;
	const struct region_ops *working;
	struct farlog_position late;
	struct farlog_position position;
	struct farlog_position resolved;
	farlog_writer *writer;
	uint64_t begun_ns;
	uint64_t left_ns;

	(void)state;
	unit_fault(SIZE, 1024);
	writer = unit_open(FAULT_URI);
	working = writer->region->ops;
	stuck = *working;
	stuck.data.poll = poll_never;
	writer->region->ops = &stuck;
	begun_ns = clock_monotonic_ns();
	assert_int_equal(
		farlog_append(writer, &(struct farlog_entry){.data = "x", .len = 1}, 5000000, &late), FARLOG_UNKNOWN);
	assert_true(latencies(writer).latency_max_ns >= 5000000);
	assert_int_equal(
		farlog_append(writer, &(struct farlog_entry){.data = "y", .len = 1}, 5000000, &position), FARLOG_UNKNOWN);
	assert_true(latencies(writer).latency_max_ns >= 10000000); /* since the first of them */
	assert_int_equal(farlog_resolve(writer, late.lsn, 5000000, &resolved), FARLOG_UNKNOWN);
	assert_true(latencies(writer).latency_max_ns >= 15000000);
	assert_int_equal(latencies(writer).latency_count, 0);
	left_ns = clock_monotonic_ns();
	writer->region->ops = working;
	while (!region_is_done(writer->region, writer->persist_tag)) /* without the writer */
		assert_int_equal(working->data.poll(writer->region), FARLOG_OK);
	while (clock_monotonic_ns() - left_ns < 20000000)
		; /* nobody asks */
	assert_int_equal(farlog_resolve(writer, late.lsn, 0, &resolved), FARLOG_OK);
	assert_int_equal(latencies(writer).latency_count, 1);
	assert_true(latencies(writer).latency_sum_ns >= 15000000);
	assert_true(latencies(writer).latency_sum_ns <= left_ns - begun_ns);
	assert_true(latencies(writer).latency_max_ns == latencies(writer).latency_sum_ns);
	farlog_writer_close(writer);
}

static void shared__latency_of_what_was_late(void **state)
{
	struct region_ops stuck;
	const struct region_ops *working;
	struct farlog_position late;
	struct farlog_position resolved;
	struct farlog_error error;
	farlog_shared *shared;
	struct farlog_writer *writer;

	(void)state;
	unit_fault(SIZE, 1024);
	assert_int_equal(farlog_shared_open(FAULT_URI, CONFIG(0), &shared, &error), FARLOG_OK);
	writer = shared_writer(shared);
	working = writer->region->ops;
	stuck = *working;
	stuck.data.poll = poll_never;
	writer->region->ops = &stuck;
	assert_int_equal(
		farlog_shared_append(shared, &(struct farlog_entry){.data = "x", .len = 1}, 5000000, &late), FARLOG_UNKNOWN);
	assert_true(latencies(writer).latency_max_ns >= 5000000);
	assert_int_equal(latencies(writer).latency_count, 0);
	writer->region->ops = working;
	assert_int_equal(farlog_shared_resolve(shared, late.lsn, 0, &resolved), FARLOG_OK);
	assert_int_equal(latencies(writer).latency_count, 1);
	assert_true(latencies(writer).latency_sum_ns >= 5000000);
	assert_int_equal(farlog_shared_close(shared), FARLOG_OK);
}

static void batch__unknown_names_what_may_be_written(void **state)
{
	struct farlog_entry entries[4];
	struct farlog_position positions[4];
	farlog_writer *writer;
	size_t done;
	size_t submitted;

	(void)state;
	unit_fault(SIZE, 1024);
	writer = unit_open(FAULT_URI);
	for (unsigned i = 0; i < 4; i++)
		entries[i] = (struct farlog_entry){.data = "x", .len = 1};
	farlog_fault_arm(FAULT_NAME, 4);
	assert_int_equal(farlog_append_batch(writer, entries, 4, 0, positions, &done, &submitted), FARLOG_UNKNOWN);
	assert_int_equal(done, 0);
	assert_int_equal(submitted, 4);
	assert_int_equal(positions[3].seq, 4);
	assert_int_equal(farlog_append_batch(writer, entries, 4, 0, positions, &done, &submitted), FARLOG_CLOSED);
	assert_int_equal(submitted, 0);
	farlog_writer_close(writer);
	farlog_fault_crash(FAULT_NAME);
}

static void lose_acknowledged_bytes(const char *uri)
{
	struct farlog_position position;
	struct farlog_error error;
	struct region *region;
	farlog_writer *writer;
	static const uint8_t zeros[64] __attribute__((aligned(64)));

	unit_format(uri, SIZE, 1024);
	writer = unit_open(uri);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(unit_append(writer, 64, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	assert_int_equal(region_open(uri, &(struct region_options){.access = REGION_WRITE}, &region, &error), FARLOG_OK);
	region->ops->data.write(region, LAYOUT_DATA_OFF + 256, zeros, sizeof(zeros));
	region->ops->close(region);
	assert_int_equal(farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, &error), FARLOG_CORRUPT);
	assert_non_null(strstr(error.text, "lsn 256"));
	assert_non_null(strstr(error.text, "farlog dump"));
}

static void open__corrupt_when_acknowledged_bytes_are_gone(void **state)
{
	(void)state;
	lose_acknowledged_bytes(unit_file_uri("gone"));
	lose_acknowledged_bytes(unit_tmpfs_uri("gone"));
}

static void open__full_ring_has_no_room_for_an_epoch(void **state)
{
	struct farlog_position position;
	struct farlog_error error;
	farlog_writer *writer;

	(void)state;
	unit_fault(SIZE, 1024);
	writer = unit_open(FAULT_URI);
	while (unit_append(writer, 64, 1, &position) == FARLOG_OK)
		;
	farlog_writer_close(writer);
	assert_int_equal(farlog_writer_open(FAULT_URI, CONFIG(.level = 0), &writer, &error), FARLOG_FULL);
	assert_non_null(strstr(error.text, "start its drain"));
}

/* The newest superblock rots away after its epoch was drained: going on with the older one would use an epoch twice. */
static void open__corrupt_when_the_head_knows_a_higher_epoch(void **state)
{
	const char *uri = unit_tmpfs_uri("rot");
	static uint8_t buffer[SIZE];
	struct farlog_batch batch;
	struct farlog_error error;
	struct region *region;
	farlog_writer *writer;
	farlog_reader *drain;

	(void)state;
	unit_format(uri, SIZE, 1024);
	writer = unit_open(uri); /* generation 2, in place A */
	drain = unit_read(uri, FARLOG_START_HEAD, true);
	assert_int_equal(farlog_reader_read(drain, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	farlog_reader_close(drain);
	farlog_writer_close(writer);
	assert_int_equal(region_open(uri, &(struct region_options){.access = REGION_WRITE}, &region, &error), FARLOG_OK);
	region->ops->data.store_word(region, LAYOUT_SUPERBLOCK_A_OFF + 72, 1);
	region->ops->close(region);
	assert_int_equal(farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, &error), FARLOG_CORRUPT);
	assert_non_null(strstr(error.text, "epoch 1"));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(append__too_large_and_invalid_write_nothing),
	cmocka_unit_test(append__full_is_told_at_once_or_at_the_deadline),
	cmocka_unit_test(append__full_ring_goes_on_lap_after_lap),
	cmocka_unit_test(append__unknown_when_the_region_fails_then_closed),
	cmocka_unit_test(append__unknown_at_the_deadline_then_resolved),
	cmocka_unit_test(append__latency_of_what_was_late),
	cmocka_unit_test(shared__latency_of_what_was_late),
	cmocka_unit_test(batch__unknown_names_what_may_be_written),
	cmocka_unit_test(open__corrupt_when_acknowledged_bytes_are_gone),
	cmocka_unit_test(open__corrupt_when_the_head_knows_a_higher_epoch),
	cmocka_unit_test(open__full_ring_has_no_room_for_an_epoch),
};
RUN_GROUP(outcome, tests)
