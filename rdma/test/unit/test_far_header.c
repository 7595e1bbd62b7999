/* test_far_header.c -- what a drain reads without a look at the header of its ring on another host, and what it does
 * not. The target is in this process, over libfabric on the loopback; the writers are local. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "ring/layout.h"
#include "ring/record.h"
#include "unit.h"

#define RING_LEN (LAYOUT_DATA_OFF + (8u << 20))
#define BATCH_LEN (128u << 10)
#define BACKLOG_LEN (4u << 20)
#define PAYLOAD_LEN 700u
#define FILLING_LEN 192u /* of payload: its records fill a batch to the last byte */
#define READS_BESIDE 8u  /* of headers at the beginning, the tip, and the look that finds nothing */

static const uint8_t token[FARLOG_TOKEN_LEN] = "a drain's token";

static uint32_t payload_len = PAYLOAD_LEN;

struct far_bed {
	const char *local_uri;
	farlog_target *target;
	farlog_reader *drain;
};

/* What came out of a drain. Without a copy: a record is told by its lsn and epoch. */
struct taken {
	uint64_t next_lsn; /* where the next one must begin */
	uint64_t record_count;
	uint64_t batch_count;
	uint32_t epoch;
};

/* make_bed -- a ring with a backlog of a writer that is gone. False: there is no libfabric on this machine. */
static bool make_bed(struct far_bed *bed)
{
	struct farlog_grant grant = {.role = FARLOG_GRANT_DRAIN};
	struct farlog_reader_config config = {.is_drain = 1, .grant_token = token};
	struct farlog_error error = {0};
	char uri[400];
	int result = farlog_target_open("ofi:tcp://127.0.0.1:0", &bed->target, &error);

	if (result == FARLOG_UNSUPPORTED)
		return false;
	if (result != FARLOG_OK)
		fail_msg("%s", error.text);
	bed->local_uri = unit_tmpfs_uri("header");
	unit_format(bed->local_uri, RING_LEN, 4096);
	memcpy(grant.token, token, sizeof(token));
	assert_int_equal(farlog_target_serve(bed->target, "ring", bed->local_uri, NULL, &error), FARLOG_OK);
	assert_int_equal(farlog_target_grant(bed->target, "ring", &grant, &error), FARLOG_OK);
	snprintf(uri, sizeof(uri), "%s/ring", farlog_target_uri(bed->target));
	if (farlog_reader_open(uri, &config, &bed->drain, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	return true;
}

static void free_bed(struct far_bed *bed)
{
	farlog_reader_close(bed->drain);
	farlog_target_close(bed->target);
	remove(unit_path(bed->local_uri));
}

/* append_len -- acknowledged records of so many bytes of the ring. Where they end. */
static uint64_t append_len(farlog_writer *writer, uint64_t len)
{
	struct farlog_position position;
	uint64_t first_lsn;

	assert_int_equal(unit_append(writer, payload_len, 1, &position), FARLOG_OK);
	first_lsn = position.lsn;
	while (position.end_lsn - first_lsn < len)
		assert_int_equal(unit_append(writer, payload_len, 1, &position), FARLOG_OK);
	return position.end_lsn;
}

/* write_backlog -- by a writer of its own, whose last word in the header is where its records end. */
static uint64_t write_backlog(const struct far_bed *bed, uint64_t len)
{
	farlog_writer *writer = unit_open(bed->local_uri);
	uint64_t end_lsn = append_len(writer, len);

	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	return end_lsn;
}

static void put(const struct far_bed *bed, uint64_t off, const void *bytes, size_t len)
{
	int fd = open(unit_path(bed->local_uri), O_WRONLY);

	assert_true(fd >= 0 && pwrite(fd, bytes, len, (off_t)off) == (ssize_t)len);
	close(fd);
}

static void put_word(const struct far_bed *bed, uint64_t off, uint64_t word)
{
	put(bed, off, &word, sizeof(word));
}

/* take -- one batch, whose records follow one another and those before. What reading gave. */
static int take(struct far_bed *bed, struct taken *taken, struct farlog_batch *batch)
{
	static uint8_t buffer[BATCH_LEN];
	int result = farlog_reader_read(bed->drain, buffer, sizeof(buffer), batch);

	if (result != FARLOG_OK)
		return result;
	if (batch->is_rewound)
		taken->next_lsn = batch->first_lsn;
	for (uint64_t at = 0; at < batch->len;) {
		struct record_header header;

		memcpy(&header, buffer + at, sizeof(header));
		assert_int_equal(header.lsn, taken->next_lsn);
		assert_true(header.epoch >= taken->epoch);
		taken->epoch = header.epoch;
		taken->record_count += !(header.flags & RECORD_FLAG_PAD);
		taken->next_lsn += header.flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN + (uint64_t)header.payload_len :
															record_extent(64, header.key_len, header.payload_len);
		at += header.flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN :
											   record_extent(64, header.key_len, header.payload_len);
	}
	assert_int_equal(batch->next_lsn, taken->next_lsn);
	taken->batch_count++;
	return FARLOG_OK;
}

static void release(struct far_bed *bed, const struct farlog_batch *batch)
{
	assert_int_equal(farlog_reader_release(bed->drain, batch->next_lsn, batch->next_seq, batch->last_epoch), FARLOG_OK);
}

static void take_all(struct far_bed *bed, struct taken *taken)
{
	struct farlog_batch batch;
	int result;

	while ((result = take(bed, taken, &batch)) == FARLOG_OK)
		release(bed, &batch);
	assert_int_equal(result, FARLOG_NOT_YET);
}

/* One look at the header tells of all batches that lie below what was durable then. */
static void far_header__asked_once_for_what_is_durable(void **state)
{
	struct far_bed bed;
	struct taken taken = {0};

	(void)state;
	if (!make_bed(&bed))
		skip();
	for (unsigned lap = 0; lap < 3; lap++) { /* over the ring's end, and behind it */
		uint64_t end_lsn = write_backlog(&bed, BACKLOG_LEN);
		uint64_t reads = farlog_reader_reads(bed.drain);
		uint64_t batches = taken.batch_count;

		take_all(&bed, &taken);
		assert_int_equal(taken.next_lsn, end_lsn);
		reads = farlog_reader_reads(bed.drain) - reads;
		batches = taken.batch_count - batches;
		printf("far header: %lu READs for %lu batches\n", reads, batches);
		assert_true(batches >= BACKLOG_LEN / BATCH_LEN && reads <= batches + READS_BESIDE);
	}
	free_bed(&bed);
}

static void far_header__asked_once_where_batches_are_filled(void **state)
{
	payload_len = FILLING_LEN;
	far_header__asked_once_for_what_is_durable(state);
	payload_len = PAYLOAD_LEN;
}

/* A word that cannot be is not believed: each batch looks for itself. */
static void far_header__foreign_word_is_not_believed(void **state)
{
	static const uint64_t words[] = {UINT64_MAX, 1ull << 40};
	struct far_bed bed;
	struct taken taken = {0};

	(void)state;
	if (!make_bed(&bed))
		skip();
	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		uint64_t end_lsn = write_backlog(&bed, BACKLOG_LEN);
		uint64_t reads = farlog_reader_reads(bed.drain);
		uint64_t batches = taken.batch_count;
		struct farlog_batch batch;

		put_word(&bed, LAYOUT_DURABLE_HINT_OFF, words[i]);
		if (i == 1)
			put_word(&bed, LAYOUT_TAIL_HINT_OFF, words[i]);
		while (taken.next_lsn + BATCH_LEN < end_lsn) {
			assert_int_equal(take(&bed, &taken, &batch), FARLOG_OK);
			release(&bed, &batch);
		}
		assert_true(farlog_reader_reads(bed.drain) - reads >= 2 * (taken.batch_count - batches));
		put_word(&bed, LAYOUT_DURABLE_HINT_OFF, end_lsn);
		put_word(&bed, LAYOUT_TAIL_HINT_OFF, end_lsn);
		take_all(&bed, &taken);
		assert_int_equal(taken.next_lsn, end_lsn);
	}
	free_bed(&bed);
}

/* The next writer comes in the middle of a backlog and goes on behind it: each record once, in order, whatever was read
 * before it came. */
static void far_header__new_writer_between_batches(void **state)
{
	struct far_bed bed;
	struct taken taken = {0};
	struct farlog_batch batch;
	uint64_t record_count;
	uint64_t end_lsn;

	(void)state;
	if (!make_bed(&bed))
		skip();
	end_lsn = write_backlog(&bed, BACKLOG_LEN / 2);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(take(&bed, &taken, &batch), FARLOG_OK);
		release(&bed, &batch);
	}
	assert_true(taken.next_lsn + BATCH_LEN < end_lsn);
	record_count = write_backlog(&bed, BACKLOG_LEN / 2);
	assert_true(record_count > end_lsn);
	end_lsn = record_count;
	take_all(&bed, &taken);
	assert_int_equal(taken.next_lsn, end_lsn);
	assert_int_equal(taken.epoch, 2);
	free_bed(&bed);
}

/* A power cut takes records that were visible and not acknowledged, a drain had read some of them, and the next writer
 * begins below: the very next look must tell, before anything of it is released. So what lies beyond the durable word
 * is never read without a look, however much the writer has announced. */
static void far_header__log_goes_back_behind_a_batch(void **state)
{
	static uint8_t nothing[BACKLOG_LEN];
	struct far_bed bed;
	struct taken taken = {0};
	struct farlog_batch batch;
	struct farlog_batch last = {0};
	farlog_writer *writer;
	uint64_t durable_lsn;
	uint64_t tail_lsn;

	(void)state;
	if (!make_bed(&bed))
		skip();
	writer = unit_open(bed.local_uri);
	durable_lsn = append_len(writer, BACKLOG_LEN / 2);
	tail_lsn = append_len(writer, BACKLOG_LEN / 2);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	put_word(&bed, LAYOUT_DURABLE_HINT_OFF, durable_lsn);
	while (taken.next_lsn <= durable_lsn) {
		if (last.next_lsn != 0)
			release(&bed, &last);
		assert_int_equal(take(&bed, &taken, &last), FARLOG_OK);
	}
	assert_true(taken.next_lsn + 2 * BATCH_LEN < tail_lsn);
	/* The cut, and the next writer. Farther on, bytes of the old log have outlived it. */
	put(&bed, LAYOUT_DATA_OFF + durable_lsn, nothing, taken.next_lsn - durable_lsn);
	put_word(&bed, LAYOUT_TAIL_HINT_OFF, durable_lsn);
	writer = unit_open(bed.local_uri);
	assert_int_equal(farlog_writer_recovery(writer)->tail_lsn, durable_lsn);
	tail_lsn = append_len(writer, 4096);
	assert_int_equal(take(&bed, &taken, &batch), FARLOG_OK);
	assert_true(batch.is_rewound);
	assert_int_equal(batch.first_lsn, durable_lsn);
	release(&bed, &batch);
	take_all(&bed, &taken);
	assert_int_equal(taken.next_lsn, tail_lsn);
	farlog_writer_close(writer);
	free_bed(&bed);
}

/* serve_again -- the target's host has come back, and knows the same grant. */
static void serve_again(struct far_bed *bed, const char *listen_uri)
{
	struct farlog_grant grant = {.role = FARLOG_GRANT_DRAIN};
	struct farlog_error error = {0};

	memcpy(grant.token, token, sizeof(token));
	if (farlog_target_open(listen_uri, &bed->target, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	assert_int_equal(farlog_target_serve(bed->target, "ring", bed->local_uri, NULL, &error), FARLOG_OK);
	assert_int_equal(farlog_target_grant(bed->target, "ring", &grant, &error), FARLOG_OK);
}

static int release_when_back(struct far_bed *bed, const struct farlog_batch *batch)
{
	uint64_t until_ns = clock_after_ns(20000000000u);
	int result;

	do
		result = farlog_reader_release(bed->drain, batch->next_lsn, batch->next_seq, batch->last_epoch);
	while (result == FARLOG_IO && clock_monotonic_ns() < until_ns);
	return result;
}

/* The target's host loses power between a batch and its release, and with it records that were visible and not
 * acknowledged; the next writer's begin below the batch's end. To release it would give them away: it is refused, and
 * the next look tells why. */
static void far_header__log_goes_back_before_a_release(void **state)
{
	static uint8_t nothing[BACKLOG_LEN];
	struct farlog_ring_status status;
	struct farlog_error error = {0};
	struct far_bed bed;
	struct taken taken = {0};
	struct farlog_batch batch;
	farlog_writer *writer;
	uint64_t durable_lsn;
	uint64_t tail_lsn;
	char listen_uri[200];

	(void)state;
	if (!make_bed(&bed))
		skip();
	writer = unit_open(bed.local_uri);
	durable_lsn = append_len(writer, BATCH_LEN / 4);
	append_len(writer, BATCH_LEN / 4);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	assert_int_equal(take(&bed, &taken, &batch), FARLOG_OK);
	assert_true(batch.next_lsn > durable_lsn + BATCH_LEN / 8);
	snprintf(listen_uri, sizeof(listen_uri), "%s", farlog_target_uri(bed.target));
	farlog_target_close(bed.target);
	put(&bed, LAYOUT_DATA_OFF + durable_lsn, nothing, batch.next_lsn - durable_lsn);
	put_word(&bed, LAYOUT_DURABLE_HINT_OFF, durable_lsn);
	put_word(&bed, LAYOUT_TAIL_HINT_OFF, durable_lsn);
	serve_again(&bed, listen_uri);
	writer = unit_open(bed.local_uri);
	tail_lsn = append_len(writer, 4096);
	assert_true(tail_lsn < batch.next_lsn);
	assert_int_equal(release_when_back(&bed, &batch), FARLOG_INVALID);
	assert_int_equal(farlog_ring_inspect(bed.local_uri, &status, &error), FARLOG_OK);
	assert_int_equal(status.head_lsn, 0);
	assert_int_equal(take(&bed, &taken, &batch), FARLOG_OK);
	assert_true(batch.is_rewound && batch.first_lsn == durable_lsn);
	release(&bed, &batch);
	take_all(&bed, &taken);
	assert_int_equal(taken.next_lsn, tail_lsn);
	farlog_writer_close(writer);
	free_bed(&bed);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(far_header__asked_once_for_what_is_durable),
	cmocka_unit_test(far_header__asked_once_where_batches_are_filled),
	cmocka_unit_test(far_header__foreign_word_is_not_believed),
	cmocka_unit_test(far_header__new_writer_between_batches),
	cmocka_unit_test(far_header__log_goes_back_behind_a_batch),
	cmocka_unit_test(far_header__log_goes_back_before_a_release),
};
RUN_GROUP(far_header, tests)
