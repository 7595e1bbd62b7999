/* test_far_window.c -- drains and readers of a ring on another host: what they read through a window, and what memory
 * they take. The target is in this process, over libfabric on the loopback; the writer is local. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "frail_way.h"
#include "ring/layout.h"
#include "ring/record.h"
#include "unit.h"

#define LARGE_RING_LEN (256u << 20)
#define LARGE_RECORD_LEN (3u << 20) /* three windows */
#define IN_TIME_NS 20000000000u
#define ANON_GROWTH_MAX (8u << 20)
#define OPENED_RING_LEN (8u << 20)
#define TIP_PAYLOAD_LEN_MAX 380u
#define TIP_READS_BESIDE 24u /* of headers, pieces that are still short, the ring's end, and the last look */
#define OPENED_RECORD_LEN (300u << 10)
#define PACKED_RING_LEN (LAYOUT_DATA_OFF + (64u << 10))

static const uint8_t token[FARLOG_TOKEN_LEN] = "a drain's token";

struct far_bed {
	const char *local_uri;
	farlog_target *target;
	char uri[400];
};

/* make_bed -- a ring that is served here. False: there is no libfabric on this machine. */
static bool make_bed(struct far_bed *bed, uint64_t ring_len, uint32_t record_len_max, uint32_t role)
{
	struct farlog_grant grant = {.role = role};
	struct farlog_error error = {0};
	int result = farlog_target_open("ofi:tcp://127.0.0.1:0", &bed->target, &error);

	if (result == FARLOG_UNSUPPORTED)
		return false;
	if (result != FARLOG_OK)
		fail_msg("%s", error.text);
	bed->local_uri = unit_tmpfs_uri("window");
	unit_format(bed->local_uri, ring_len, record_len_max);
	memcpy(grant.token, token, sizeof(token));
	assert_int_equal(farlog_target_serve(bed->target, "ring", bed->local_uri, NULL, &error), FARLOG_OK);
	assert_int_equal(farlog_target_grant(bed->target, "ring", &grant, &error), FARLOG_OK);
	snprintf(bed->uri, sizeof(bed->uri), "%s/ring", farlog_target_uri(bed->target));
	return true;
}

static void free_bed(struct far_bed *bed)
{
	farlog_target_close(bed->target);
	remove(unit_path(bed->local_uri));
}

static int open_far(
	const struct far_bed *bed, struct farlog_reader_config config, farlog_reader **reader, struct farlog_error *error)
{
	config.grant_token = token;
	return farlog_reader_open(bed->uri, &config, reader, error);
}

/* append_mixed -- records of every length up to len_max, whose bytes tell their number. */
static void append_mixed(farlog_writer *writer, uint64_t until_lsn, uint32_t len_max)
{
	uint8_t *payload = malloc(len_max);
	struct farlog_position position = {0};

	assert_non_null(payload);
	for (unsigned i = 0; position.end_lsn + 2ull * len_max < until_lsn; i++) {
		struct farlog_entry entry = {.data = payload,
			.len = i % 5 == 0 ? len_max - (uint32_t)unit_below(64) : (uint32_t)unit_below(len_max / 2)};

		for (uint32_t at = 0; at < entry.len; at += 8)
			payload[at] = (uint8_t)(i + at / 8);
		assert_int_equal(farlog_append(writer, &entry, 0, &position), FARLOG_OK);
	}
	free(payload);
}

/* read_some -- batch after batch until *len is at least len_min, or the tip. Adds their bytes to *len, and to *sum so
 * that no two orders of them give the same. */
static int read_some(farlog_reader *reader, bool is_drain, uint64_t len_min, uint64_t *len, uint64_t *sum)
{
	static uint8_t buffer[8u << 20];
	struct farlog_batch batch;
	int result = FARLOG_OK;

	while (*len < len_min && (result = farlog_reader_read(reader, buffer, sizeof(buffer), &batch)) == FARLOG_OK) {
		for (uint64_t at = 0; at < batch.len; at += 8) {
			uint64_t word;

			memcpy(&word, buffer + at, 8);
			*sum = *sum * 31 + word;
		}
		*len += batch.len;
		if (is_drain)
			assert_int_equal(
				farlog_reader_release(reader, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	}
	return result;
}

static uint64_t read_all(farlog_reader *reader, bool is_drain, uint64_t *len)
{
	uint64_t sum = 0;

	*len = 0;
	assert_int_equal(read_some(reader, is_drain, UINT64_MAX, len, &sum), FARLOG_NOT_YET);
	return sum;
}

/* anonymous_bytes -- what this process has of its own: not the target's mapping of the ring's file. */
static uint64_t anonymous_bytes(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	char line[200];
	uint64_t kib = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file) != NULL)
		sscanf(line, "RssAnon: %lu kB", &kib);
	fclose(file);
	assert_true(kib > 0);
	return kib << 10;
}

static void far_window__memory_does_not_grow_with_the_ring(void **state)
{
	struct far_bed bed;
	struct farlog_error error = {0};
	farlog_writer *writer;
	farlog_reader *local;
	farlog_reader *drain;
	uint64_t local_len;
	uint64_t local_sum;
	uint64_t len = 0;
	uint64_t sum = 0;
	uint64_t closed;
	uint64_t early;
	uint64_t late;

	(void)state;
	if (!make_bed(&bed, LARGE_RING_LEN, 4u << 20, FARLOG_GRANT_DRAIN))
		skip();
	writer = unit_open(bed.local_uri);
	append_mixed(writer, LARGE_RING_LEN - (4u << 20), LARGE_RECORD_LEN);
	local = unit_read(bed.local_uri, FARLOG_START_HEAD, false);
	local_sum = read_all(local, false, &local_len);
	farlog_reader_close(local);
	assert_true(local_len > LARGE_RING_LEN / 10 * 9);
	closed = anonymous_bytes();
	if (open_far(&bed, (struct farlog_reader_config){.is_drain = 1}, &drain, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	/* libfabric takes what it works with at the first bytes, 34 MiB in its version 2.1: that is no part of the ring. */
	assert_int_equal(read_some(drain, true, LARGE_RING_LEN / 4, &len, &sum), FARLOG_OK);
	early = anonymous_bytes();
	assert_int_equal(read_some(drain, true, UINT64_MAX, &len, &sum), FARLOG_NOT_YET);
	late = anonymous_bytes();
	assert_int_equal(len, local_len);
	assert_true(sum == local_sum);
	printf(
		"far window: a ring of %u MiB drained: %lu KiB of memory before, %lu KiB with a quarter, %lu KiB at the end\n",
		LARGE_RING_LEN >> 20, closed >> 10, early >> 10, late >> 10);
	assert_true(late < early + ANON_GROWTH_MAX);
	assert_true(late < closed + LARGE_RING_LEN / 4);
	farlog_reader_close(drain);
	farlog_writer_close(writer);
	free_bed(&bed);
}

/* undrained_over_the_end -- a ring of which most is undrained, beginning far in and going on at its start. */
static void undrained_over_the_end(const struct far_bed *bed)
{
	farlog_writer *writer = unit_open(bed->local_uri);
	farlog_reader *drain = unit_read(bed->local_uri, FARLOG_START_HEAD, true);
	uint64_t len;

	append_mixed(writer, OPENED_RING_LEN / 8 * 5, OPENED_RECORD_LEN);
	read_all(drain, true, &len);
	append_mixed(writer, OPENED_RING_LEN / 8 * 11, OPENED_RECORD_LEN);
	farlog_reader_close(drain);
	farlog_writer_close(writer);
}

/* open_undrained -- a far writer of a ring of which much is undrained, through whoever is at `port`; 0: the target
 * itself. It must find what is found in place, not less, and go on behind it. */
static void open_undrained(const struct far_bed *bed, unsigned port)
{
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .counters_dir = ""};
	struct farlog_grant grant = {.role = FARLOG_GRANT_WRITER};
	struct farlog_ring_status status;
	struct farlog_error error = {0};
	struct farlog_position position;
	farlog_writer *writer;
	char uri[sizeof(bed->uri)];

	assert_int_equal(farlog_ring_inspect(bed->local_uri, &status, &error), FARLOG_OK);
	assert_true(
		status.head_lsn / OPENED_RING_LEN < status.appended_lsn / OPENED_RING_LEN && status.lag_bytes > 5u << 20);
	memcpy(grant.token, token, sizeof(token));
	grant.token[0]++;
	config.epoch = grant.epoch = status.writer_epoch + 1;
	config.grant_token = grant.token;
	assert_int_equal(farlog_target_grant(bed->target, "ring", &grant, &error), FARLOG_OK);
	snprintf(uri, sizeof(uri), "%s", bed->uri);
	if (port != 0)
		snprintf(uri, sizeof(uri), "ofi:tcp://127.0.0.1:%u/ring", port);
	if (farlog_writer_open(uri, &config, &writer, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	assert_int_equal(farlog_writer_recovery(writer)->tail_lsn, status.appended_lsn);
	assert_int_equal(farlog_writer_recovery(writer)->record_count, status.lag_records);
	assert_int_equal(
		farlog_append(writer, &(struct farlog_entry){.data = "x", .len = 1}, IN_TIME_NS, &position), FARLOG_OK);
	farlog_writer_close(writer);
}

/* A far writer fetches its ring in pieces, and records lie across their ends. */
static void far_window__writer_finds_all_that_is_undrained(void **state)
{
	struct far_bed bed;
	farlog_reader *local;
	uint64_t len;

	(void)state;
	if (!make_bed(&bed, LAYOUT_DATA_OFF + OPENED_RING_LEN, 1u << 20, FARLOG_GRANT_DRAIN))
		skip();
	undrained_over_the_end(&bed);
	open_undrained(&bed, 0);
	local = unit_read(bed.local_uri, FARLOG_START_HEAD, false);
	read_all(local, false, &len);
	farlog_reader_close(local);
	assert_true(len > 5u << 20); /* the records before the new epoch are still what they were */
	free_bed(&bed);
}

/* A connection that breaks while a writer is being opened, at its header or in the middle of what is undrained, costs
 * time and not the opening. */
static void far_window__broken_while_a_writer_opens(void **state)
{
	static const uint64_t breaks_after[] = {600, 100000, 3u << 20};
	struct far_bed bed;

	(void)state;
	if (!make_bed(&bed, LAYOUT_DATA_OFF + OPENED_RING_LEN, 1u << 20, FARLOG_GRANT_DRAIN))
		skip();
	undrained_over_the_end(&bed);
	for (unsigned i = 0; i < sizeof(breaks_after) / sizeof(breaks_after[0]); i++) {
		struct frail_way way;

		frail_way_start(&way, farlog_target_uri(bed.target), breaks_after[i]);
		open_undrained(&bed, way.port);
		frail_way_stop(&way);
		assert_int_equal(way.connection_count, 2);
	}
	free_bed(&bed);
}

/* submit_many -- under one flush, so that no hint of them is in the ring: to a reader all of them are the tip. */
static void submit_many(farlog_writer *writer, uint32_t payload_len, unsigned count)
{
	struct farlog_position position = {0};
	uint8_t payload[TIP_PAYLOAD_LEN_MAX];

	for (unsigned i = 0; i < count; i++) {
		struct farlog_entry entry = {.data = payload, .len = payload_len};

		memset(payload, (int)(i * 7 + i / 251), sizeof(payload));
		assert_int_equal(farlog_submit(writer, &entry, &position), FARLOG_OK);
	}
	assert_int_equal(farlog_wait(writer, position.end_lsn, 0), FARLOG_OK);
}

/* tip_in_few_reads -- the records lie over the ring's end in the second round. What a drain takes them with is pieces,
 * not a READ or three each. */
static void tip_in_few_reads(uint32_t payload_len, uint32_t record_len)
{
	struct farlog_error error = {0};
	struct far_bed bed;
	farlog_writer *writer;
	farlog_reader *drain;

	if (!make_bed(&bed, LAYOUT_DATA_OFF + OPENED_RING_LEN, 4096, FARLOG_GRANT_DRAIN))
		skip();
	writer = unit_open(bed.local_uri);
	if (open_far(&bed, (struct farlog_reader_config){.is_drain = 1}, &drain, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	for (unsigned round = 0; round < 3; round++) {
		farlog_reader *local = unit_read(bed.local_uri, FARLOG_START_HEAD, false);
		uint64_t reads = farlog_reader_reads(drain);
		uint64_t local_len;
		uint64_t len;
		uint64_t sum;

		submit_many(writer, payload_len, OPENED_RING_LEN / 4 * 3 / record_len);
		sum = read_all(local, false, &local_len);
		farlog_reader_close(local);
		assert_true(read_all(drain, true, &len) == sum);
		assert_true(len == local_len && len > OPENED_RING_LEN / 3 * 2);
		reads = farlog_reader_reads(drain) - reads;
		printf("far window: %lu READs of %lu KiB at the tip\n", reads, len >> 10);
		assert_true(reads <= 2 * (len >> 20) + TIP_READS_BESIDE);
	}
	farlog_reader_close(drain);
	farlog_writer_close(writer);
	free_bed(&bed);
}

/* Records of 448 bytes: behind the EPOCH record the ring is no multiple of them, and a PAD lies at its end. */
static void far_window__tip_in_few_reads(void **state)
{
	(void)state;
	tip_in_few_reads(380, 448);
}

/* Records of 128 bytes, the EPOCH record among them: one ends where the ring ends. */
static void far_window__tip_over_the_end_without_pad(void **state)
{
	(void)state;
	tip_in_few_reads(60, 128);
}

/* seek_to -- a far reader that starts at lsn reads on from there. */
static void seek_to(const struct far_bed *bed, uint64_t lsn, uint64_t len_left)
{
	struct farlog_error error = {0};
	farlog_reader *reader;
	uint64_t len;

	if (open_far(bed, (struct farlog_reader_config){.start = FARLOG_START_LSN, .lsn = lsn}, &reader, &error) !=
		FARLOG_OK)
		fail_msg("%s", error.text);
	read_all(reader, false, &len);
	assert_int_equal(len, len_left);
	farlog_reader_close(reader);
}

/* Seeking walks over records of more than a piece, and past the ring's end. */
static void far_window__seeks(void **state)
{
	struct far_bed bed;
	struct farlog_position middle;
	struct farlog_position last;
	struct farlog_error error = {0};
	farlog_writer *writer;
	farlog_reader *reader;
	uint64_t len;

	(void)state;
	if (!make_bed(&bed, LAYOUT_DATA_OFF + (4u << 20), 1u << 20, FARLOG_GRANT_READER))
		skip();
	writer = unit_open(bed.local_uri);
	for (unsigned i = 0; i < 40; i++) {
		assert_int_equal(unit_append(writer, 300000 + i, (uint8_t)i, &middle), i < 13 ? FARLOG_OK : FARLOG_FULL);
		if (i < 13)
			last = middle;
	}
	reader = unit_read(bed.local_uri, FARLOG_START_HEAD, true);
	read_all(reader, true, &len);
	farlog_reader_close(reader);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(unit_append(writer, 330000, 1, i == 4 ? &middle : &last), FARLOG_OK); /* round the end */
	seek_to(&bed, middle.lsn, last.end_lsn - middle.lsn);
	seek_to(&bed, last.end_lsn, 0);
	assert_int_equal(open_far(&bed, (struct farlog_reader_config){.start = FARLOG_START_LSN, .lsn = middle.lsn + 64},
						 &reader, &error),
		FARLOG_NOT_FOUND);
	assert_int_equal(
		open_far(&bed, (struct farlog_reader_config){.start = FARLOG_START_TAIL}, &reader, &error), FARLOG_OK);
	read_all(reader, false, &len);
	assert_int_equal(len, 0);
	assert_int_equal(unit_append(writer, 1000, 1, &last), FARLOG_OK);
	read_all(reader, false, &len);
	assert_int_equal(len, last.end_lsn - last.lsn);
	farlog_reader_close(reader);
	farlog_writer_close(writer);
	free_bed(&bed);
}

static void *forget_soon(void *context)
{
	struct far_bed *bed = context;

	nanosleep(&(struct timespec){0, (long)unit_below(6000000)}, NULL);
	assert_int_equal(farlog_target_forget(bed->target, "ring", NULL), FARLOG_OK);
	return NULL;
}

/* A target that goes away, at whatever step of a read, is not a damaged ring. */
static void far_window__target_gone(void **state)
{
	static uint8_t buffer[4096];

	(void)state;
	for (unsigned round = 0; round < 10; round++) {
		struct far_bed bed;
		struct farlog_error error = {0};
		struct farlog_batch batch;
		farlog_writer *writer;
		farlog_reader *drain;
		pthread_t forgetting;
		int result;

		if (!make_bed(&bed, LAYOUT_DATA_OFF + (4u << 20), 0, FARLOG_GRANT_DRAIN))
			skip();
		writer = unit_open(bed.local_uri);
		append_mixed(writer, 4u << 20, 2000);
		if (open_far(&bed, (struct farlog_reader_config){.is_drain = 1}, &drain, &error) != FARLOG_OK)
			fail_msg("%s", error.text);
		assert_int_equal(pthread_create(&forgetting, NULL, forget_soon, &bed), 0);
		while ((result = farlog_reader_read(drain, buffer, sizeof(buffer), &batch)) == FARLOG_OK)
			continue;
		assert_int_equal(pthread_join(forgetting, NULL), 0);
		assert_int_equal(result, FARLOG_IO);
		farlog_reader_close(drain);
		farlog_writer_close(writer);
		free_bed(&bed);
	}
}

/* A ring of a directory is served like any other; it cannot be removed under its far writer, and once it is removed
 * nobody comes to what took its place by its old name. */
static void far_packed__served_and_removed(void **state)
{
	struct farlog_grant grant = {.role = FARLOG_GRANT_WRITER, .epoch = 3};
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE,
		.counters_dir = "",
		.grant_token = token,
		.epoch = 3,
		.deadline_ns = 10000000000ull};
	struct farlog_error error = {0};
	const char *region_uri = unit_tmpfs_uri("served");
	struct farlog_position position;
	farlog_target *target;
	farlog_writer *writer;
	uint64_t until_ns;
	char ring[2][400];
	char uri[400];
	int result;

	(void)state;
	if (farlog_target_open("ofi:tcp://127.0.0.1:0", &target, &error) == FARLOG_UNSUPPORTED)
		skip();
	for (unsigned i = 0; i < 2; i++) {
		snprintf(ring[i], sizeof(ring[i]), "%s?ring=desk%u/orders&size=%u", region_uri, i, 1u << 20);
		unit_format(ring[i], PACKED_RING_LEN, 0);
	}
	memcpy(grant.token, token, sizeof(token));
	assert_int_equal(farlog_target_serve(target, "desk1.orders", ring[1], NULL, &error), FARLOG_OK);
	assert_int_equal(farlog_target_grant(target, "desk1.orders", &grant, &error), FARLOG_OK);
	snprintf(uri, sizeof(uri), "%s/desk1.orders", farlog_target_uri(target));
	if (farlog_writer_open(uri, &config, &writer, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	assert_int_equal(farlog_writer_contract(writer)->size_bytes, PACKED_RING_LEN);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(unit_append(writer, 500, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_ring_remove(ring[1], 1, &error), FARLOG_HELD);
	assert_int_equal(farlog_target_fence(target, "desk1.orders", 4, NULL, &error), FARLOG_OK);
	assert_int_equal(unit_append(writer, 500, 1, &position), FARLOG_FENCED);
	farlog_writer_close(writer);
	until_ns = clock_after_ns(10000000000ull);
	do /* its goodbye is on its way for a moment */
		result = farlog_ring_remove(ring[1], 0, &error);
	while (result == FARLOG_HELD && clock_monotonic_ns() < until_ns);
	assert_int_equal(result, FARLOG_EXISTS);
	assert_int_equal(farlog_ring_remove(ring[1], 1, &error), FARLOG_OK);
	unit_format(ring[1], PACKED_RING_LEN, 0); /* of the same name, in the same place, and another ring */
	assert_int_equal(farlog_target_fence(target, "desk1.orders", 9, NULL, &error), FARLOG_NOT_FOUND);
	memset(grant.token, 'n', sizeof(grant.token));
	grant.epoch = config.epoch = 9;
	config.grant_token = grant.token;
	assert_int_equal(farlog_target_grant(target, "desk1.orders", &grant, &error), FARLOG_OK);
	assert_int_equal(farlog_writer_open(uri, &config, &writer, &error), FARLOG_NOT_A_RING);
	assert_non_null(strstr(error.text, "removed"));
	farlog_target_close(target);
	assert_int_equal(farlog_ring_remove(ring[1], 0, &error), FARLOG_OK);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(far_window__memory_does_not_grow_with_the_ring),
	cmocka_unit_test(far_window__seeks),
	cmocka_unit_test(far_window__tip_in_few_reads),
	cmocka_unit_test(far_window__tip_over_the_end_without_pad),
	cmocka_unit_test(far_window__writer_finds_all_that_is_undrained),
	cmocka_unit_test(far_window__broken_while_a_writer_opens),
	cmocka_unit_test(far_window__target_gone),
	cmocka_unit_test(far_packed__served_and_removed),
};
RUN_GROUP(far_window, tests)
