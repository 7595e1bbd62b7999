/* far_twins.c -- two living drains with one token: the older one is told that its place is taken, once and for good,
 * and nothing of it lands on what the newer one has released. */
#include <pthread.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "far_test.h"
#include "ring/record.h"

#define RECORD_COUNT 40u
#define TWIN_COUNT 2u

static uint8_t buffers[TWIN_COUNT][256u << 10] __attribute__((aligned(64)));

static farlog_reader *open_twin(const struct bed *bed, uint32_t is_drain, char token_letter)
{
	uint8_t token[FARLOG_TOKEN_LEN];
	struct farlog_reader_config config = {.is_drain = is_drain, .grant_token = token};
	struct farlog_error error = {0};
	farlog_reader *reader = NULL;

	host_token(token_letter, token);
	CHECK_OK(farlog_reader_open(bed->uri, &config, &reader, &error));
	return reader;
}

/* fill -- a ring with records, and a drain's grant for both of the twins. */
static bool fill(struct bed *bed)
{
	struct farlog_error error = {0};
	struct farlog_position position;
	farlog_writer *writer;

	if (!bed_make(bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") || !CHECK_ASK(&bed->host, "grant ring 0 2 a") ||
		!CHECK_ASK(&bed->host, "grant ring 1 0 d") || !CHECK_ASK(&bed->host, "grant ring 3 0 r"))
		return false;
	writer = open_far_writer(bed, "", 2, 'a', &error);
	if (!CHECK_OK(error.result))
		return false;
	for (uint64_t i = 0; i < RECORD_COUNT; i++)
		CHECK(append_number(writer, i, LONG_NS, &position) == FARLOG_OK);
	CHECK(farlog_writer_close(writer) == FARLOG_OK);
	return true;
}

/* admissions -- that the target has seen. */
static unsigned admissions(struct bed *bed)
{
	unsigned count = 0;

	CHECK(host_ask(&bed->host, "counters ring") && sscanf(bed->host.reply, "OK %u", &count) == 1);
	return count;
}

/* await_verdict -- what a call says when it no longer says IO. */
static int await_verdict(farlog_reader *reader, unsigned twin)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);
	struct farlog_batch batch;
	int result = FARLOG_IO;

	while (result == FARLOG_IO && clock_monotonic_ns() < until_ns)
		result = farlog_reader_read(reader, buffers[twin], sizeof(buffers[twin]), &batch);
	return result;
}

static void older_one_is_told(uint32_t is_drain, char token_letter)
{
	struct farlog_ring_status status;
	struct farlog_batch batch[2] = {0};
	farlog_reader *twins[TWIN_COUNT] = {NULL};
	struct bed bed;
	unsigned admitted;

	snprintf(now_testing, sizeof(now_testing), "twins: two %s", is_drain ? "drains" : "readers");
	if (!fill(&bed))
		goto done;
	twins[0] = open_twin(&bed, is_drain, token_letter);
	CHECK(farlog_reader_read(twins[0], buffers[0], sizeof(buffers[0]), &batch[0]) == FARLOG_OK);
	twins[1] = open_twin(&bed, is_drain, token_letter);
	admitted = admissions(&bed);
	for (unsigned i = 0; i < 3; i++)
		CHECK(await_verdict(twins[0], 0) == FARLOG_HELD);
	CHECK(farlog_reader_status(twins[0], &status) == FARLOG_HELD);
	CHECK(farlog_reader_read(twins[1], buffers[1], sizeof(buffers[1]), &batch[1]) == FARLOG_OK &&
		batch[1].next_lsn == batch[0].next_lsn);
	if (is_drain) {
		CHECK(farlog_reader_release(twins[1], batch[1].next_lsn, batch[1].next_seq, batch[1].last_epoch) == FARLOG_OK);
		CHECK(
			farlog_reader_release(twins[0], batch[0].next_lsn, batch[0].next_seq, batch[0].last_epoch) == FARLOG_HELD);
	}
	CHECK(admissions(&bed) == admitted);
done:
	farlog_reader_close(twins[0]);
	farlog_reader_close(twins[1]);
	bed_free(&bed);
}

/* release_half -- the first record of what this drain has read, which is below all that its twin releases. */
static int release_half(farlog_reader *drain, const struct farlog_batch *batch, unsigned twin)
{
	const struct record_header *header = (const void *)buffers[twin];
	uint64_t extent = record_extent(64, header->key_len, header->payload_len);

	return farlog_reader_release(drain, batch->first_lsn + extent, header->seq + 1, header->epoch);
}

/* A drain that has not looked for a while releases what another one has gone past. is_restarted: the target has
 * forgotten who came before whom. */
static void release_below_head(bool is_restarted)
{
	struct farlog_ring_status status;
	struct farlog_batch batch[2] = {0};
	farlog_reader *twins[TWIN_COUNT] = {NULL};
	struct farlog_error error = {0};
	struct bed bed;
	int result;

	snprintf(now_testing, sizeof(now_testing), "twins: a release below the head%s",
		is_restarted ? ", the target restarted" : "");
	if (!fill(&bed))
		goto done;
	twins[0] = open_twin(&bed, 1, 'd');
	CHECK(farlog_reader_read(twins[0], buffers[0], sizeof(buffers[0]), &batch[0]) == FARLOG_OK);
	twins[1] = open_twin(&bed, 1, 'd');
	CHECK(farlog_reader_read(twins[1], buffers[1], sizeof(buffers[1]), &batch[1]) == FARLOG_OK &&
		batch[1].next_lsn == batch[0].next_lsn);
	CHECK(farlog_reader_release(twins[1], batch[1].next_lsn, batch[1].next_seq, batch[1].last_epoch) == FARLOG_OK);
	if (is_restarted) {
		farlog_reader_close(twins[1]);
		twins[1] = NULL;
		host_kill(&bed.host);
		if (!bed_again(&bed) || !CHECK_ASK(&bed.host, "grant ring 1 0 d"))
			goto done;
	}
	do
		result = release_half(twins[0], &batch[0], 0);
	while (result == FARLOG_IO);
	CHECK(result == FARLOG_HELD);
	CHECK_OK(farlog_ring_inspect(bed.local_uri, &status, &error));
	CHECK(status.head_lsn == batch[1].next_lsn && status.credit_lsn == batch[1].next_lsn);
done:
	farlog_reader_close(twins[0]);
	farlog_reader_close(twins[1]);
	bed_free(&bed);
}

/* What one of two drains that run at once gets. */
struct race {
	farlog_reader *drain;
	unsigned twin;
	int result;
	uint64_t is_told; /* that it is out */
	uint64_t released_lsn;
	uint64_t *done_lsn;
};

static void *run_race(void *context)
{
	struct race *race = context;
	farlog_reader *drain = race->drain;
	uint64_t until_ns = clock_after_ns(LONG_NS);

	race->result = FARLOG_NOT_YET;
	while (drain != NULL &&
		(race->result == FARLOG_NOT_YET || race->result == FARLOG_IO || race->result == FARLOG_OK) &&
		atomic_load_acquire(race->done_lsn) == 0 && clock_monotonic_ns() < until_ns) {
		struct farlog_batch batch;

		race->result = farlog_reader_read(drain, buffers[race->twin], 4096, &batch);
		if (race->result == FARLOG_OK)
			race->result = farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch);
		if (race->result == FARLOG_OK)
			race->released_lsn = batch.next_lsn;
	}
	atomic_store_release(&race->is_told, race->result == FARLOG_HELD);
	return NULL;
}

/* Two threads, each as a daemon does it: one of them drains to the end, and the other is out. */
static void at_once(void)
{
	struct farlog_ring_status status = {0};
	struct farlog_error error = {0};
	uint64_t done_lsn = 0;
	uint64_t until_ns = clock_after_ns(LONG_NS);
	struct race races[TWIN_COUNT] = {0};
	pthread_t threads[TWIN_COUNT];
	struct bed bed;

	snprintf(now_testing, sizeof(now_testing), "twins: at once");
	if (!fill(&bed))
		goto done;
	for (unsigned i = 0; i < TWIN_COUNT; i++)
		races[i] = (struct race){.drain = open_twin(&bed, 1, 'd'), .twin = i, .done_lsn = &done_lsn};
	for (unsigned i = 0; i < TWIN_COUNT; i++)
		CHECK(pthread_create(&threads[i], NULL, run_race, &races[i]) == 0);
	/* The ring is empty, and one of them has been told. */
	while (clock_monotonic_ns() < until_ns &&
		(status.lag_records != 0 || status.head_lsn == 0 ||
			(atomic_load_acquire(&races[0].is_told) == 0 && atomic_load_acquire(&races[1].is_told) == 0)))
		CHECK_OK(farlog_ring_inspect(bed.local_uri, &status, &error));
	atomic_store_release(&done_lsn, status.head_lsn);
	for (unsigned i = 0; i < TWIN_COUNT; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK((races[0].result == FARLOG_HELD) != (races[1].result == FARLOG_HELD));
	CHECK(races[0].released_lsn == status.head_lsn || races[1].released_lsn == status.head_lsn);
	CHECK(admissions(&bed) == 3); /* the writer, and each of the two once */
done:
	farlog_reader_close(races[0].drain);
	farlog_reader_close(races[1].drain);
	bed_free(&bed);
}

void test_twins(void)
{
	older_one_is_told(1, 'd');
	older_one_is_told(0, 'r');
	release_below_head(false);
	release_below_head(true);
	at_once();
}
