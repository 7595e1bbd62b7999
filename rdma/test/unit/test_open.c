/* test_open.c -- a writer opens while its drain is at work.
 *
 * The drain stores a head slot at each moment of the opening in turn, and has not flushed it when the power goes, much
 * later: after the writer has reused the space below that head and acknowledged what it wrote there. Then every
 * acknowledged record must still be found. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "mem/persist.h"
#include "region/superblock.h"
#include "unit.h"

#define RING_SIZE (LAYOUT_DATA_OFF + 8192u)
#define RECORD_MAX 512u
#define MOMENTS 24u
#define SEEDS 6u

static struct head_slot drained;

/* store_head -- the first half of what a release does: visible, not flushed. */
static void store_head(void *context)
{
	struct head_slot slot __attribute__((aligned(LAYOUT_LINE_LEN))) = drained;
	struct superblock superblock;
	struct region *region;

	(void)context;
	if (region_open(FAULT_URI, &(struct region_options){.access = REGION_WRITE}, &region, NULL) != FARLOG_OK)
		return;
	if (superblock_load(region, FAULT_URI, &superblock, NULL) == FARLOG_OK) {
		slot.crc32c = crc32c_update((uint32_t)superblock.salt, &slot, offsetof(struct head_slot, crc32c));
		region->ops->data.write(region, LAYOUT_HEAD_B_OFF, &slot, sizeof(slot));
	}
	region->ops->close(region);
}

/* prepare -- a ring that is nearly full and read to its end, but not released. */
static void prepare(void)
{
	uint8_t buf[RING_SIZE];
	struct farlog_batch batch;
	struct farlog_position position;
	farlog_writer *writer;
	farlog_reader *reader;

	unit_fault(RING_SIZE, RECORD_MAX);
	writer = unit_open(FAULT_URI);
	while (unit_append(writer, 192, 1, &position) == FARLOG_OK && position.end_lsn < 6144)
		;
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	reader = unit_read(FAULT_URI, FARLOG_START_HEAD, false);
	assert_int_equal(farlog_reader_read(reader, buf, sizeof(buf), &batch), FARLOG_OK);
	farlog_reader_close(reader);
	drained =
		(struct head_slot){.head_lsn = batch.next_lsn, .head_seq = batch.next_seq, .last_epoch = batch.last_epoch};
}

/* survives -- one life: the head is stored at `moment` of the opening, the space is reused, the power goes. Is the log
 * whole? */
static bool survives(uint64_t moment, uint64_t seed)
{
	struct farlog_writer_config config = {.counters_dir = "", .policy = FARLOG_POLICY_REJECT};
	struct farlog_position position = {0};
	uint64_t acknowledged_lsn;
	struct farlog_ring_status status;
	farlog_writer *writer = NULL;
	bool is_whole;

	prepare();
	farlog_fault_call(FAULT_NAME, moment, store_head, NULL);
	assert_int_equal(farlog_writer_open(FAULT_URI, &config, &writer, NULL), FARLOG_OK);
	acknowledged_lsn = farlog_writer_recovery(writer)->tail_lsn;
	for (int i = 0; i < 24 && unit_append(writer, 192, 2, &position) == FARLOG_OK; i++)
		acknowledged_lsn = position.end_lsn;
	farlog_fault_call(FAULT_NAME, UINT64_MAX, NULL, NULL);
	farlog_fault_reseed(FAULT_NAME, seed);
	farlog_fault_crash(FAULT_NAME);
	farlog_writer_close(writer);
	/* By inspection: the ring may be too full for another epoch. */
	is_whole = farlog_ring_inspect(FAULT_URI, &status, NULL) == FARLOG_OK && status.appended_lsn >= acknowledged_lsn;
	return is_whole;
}

static unsigned count_losses(void)
{
	unsigned losses = 0;

	for (uint64_t moment = 0; moment < MOMENTS; moment++)
		for (uint64_t seed = 1; seed <= SEEDS; seed++)
			losses += !survives(moment, seed);
	return losses;
}

static void open__head_stored_beside_it(void **state)
{
	(void)state;
	assert_int_equal(count_losses(), 0);
}

static void open__deadline_of_for_ever_does_not_wrap(void **state)
{
	struct farlog_entry entry = {.data = "x", .len = 1};
	struct farlog_position position;
	farlog_writer *writer;

	(void)state;
	unit_fault(RING_SIZE, RECORD_MAX);
	writer = unit_open(FAULT_URI);
	for (int i = 0; i < 20; i++) /* a flush of this memory takes a few polls: some of these have to wait */
		assert_int_equal(farlog_append(writer, &entry, UINT64_MAX, &position), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

static void open__fence_far_above_the_last_epoch_is_refused(void **state)
{
	struct farlog_error error;

	(void)state;
	unit_fault(RING_SIZE, RECORD_MAX);
	assert_int_equal(farlog_ring_fence(FAULT_URI, UINT32_MAX, &error), FARLOG_INVALID);
	assert_non_null(strstr(error.text, "4294967295"));
	assert_int_equal(farlog_ring_fence(FAULT_URI, 7, &error), FARLOG_OK);
	assert_int_equal(farlog_ring_fence(FAULT_URI, 3, &error), FARLOG_OK); /* never lowered */
	{
		farlog_writer *writer = unit_open(FAULT_URI);

		assert_int_equal(farlog_writer_recovery(writer)->epoch, 7);
		farlog_writer_close(writer);
	}
}

#define CHANGED_LEN 1000u
#define CHANGED_COUNT 20000u

static uint8_t changing[CHANGED_LEN];
static bool is_changing_over;

static void *change(void *context)
{
	(void)context;
	for (unsigned i = 0; !__atomic_load_n(&is_changing_over, __ATOMIC_RELAXED); i++)
		memset(changing, (int)(i & 0xFF), CHANGED_LEN);
	return NULL;
}

static void append_what_changes(const char *uri)
{
	struct farlog_position position;
	struct farlog_batch batch;
	uint8_t *buf = malloc(1 << 20);
	uint64_t count = 0;
	farlog_writer *writer;
	farlog_reader *reader;
	pthread_t thread;

	unit_format(uri, 32u << 20, 4096);
	writer = unit_open(uri);
	is_changing_over = false;
	assert_int_equal(pthread_create(&thread, NULL, change, NULL), 0);
	for (unsigned i = 0; i < CHANGED_COUNT; i++) {
		struct farlog_entry entry = {
			.data = changing, .len = CHANGED_LEN - i % CHANGED_LEN, .key = changing, .key_len = (uint16_t)(i % 3)};

		assert_int_equal(farlog_append(writer, &entry, 0, &position), FARLOG_OK);
	}
	__atomic_store_n(&is_changing_over, true, __ATOMIC_RELAXED);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	reader = unit_read(uri, FARLOG_START_HEAD, false);
	while (farlog_reader_read(reader, buf, 1 << 20, &batch) == FARLOG_OK)
		count += batch.record_count;
	assert_int_equal(count, CHANGED_COUNT + 1); /* and the EPOCH record */
	farlog_reader_close(reader);
	free(buf);
}

/* An application that changes its buffer while it is appended gets mixed bytes; it must not get a record that fails its
 * check, for that would hide all records behind it. By every way that bytes take to a region. Not in the group of
 * writers: the race is the point, and the thread sanitizer would report it. */
static void open__bytes_that_change_during_append_stay_valid(void **state)
{
	static const enum farlog_flush_method methods[] = {
		FARLOG_FLUSH_NONE, FARLOG_FLUSH_CLWB, FARLOG_FLUSH_CLFLUSHOPT, FARLOG_FLUSH_NT_STORE, FARLOG_FLUSH_CVAP};
	char uri[512];

	(void)state;
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		if (!persist_is_supported(methods[i]))
			continue;
		snprintf(uri, sizeof(uri), "%s?flush=%s", unit_tmpfs_uri("changing"), persist_method_name(methods[i]));
		append_what_changes(uri);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(open__head_stored_beside_it),
	cmocka_unit_test(open__deadline_of_for_ever_does_not_wrap),
	cmocka_unit_test(open__bytes_that_change_during_append_stay_valid),
	cmocka_unit_test(open__fence_far_above_the_last_epoch_is_refused),
};

RUN_GROUP(open, tests)
