/* far_wakeup.c -- no wait sleeps when what it is for has arrived.
 *
 * An answer may arrive before the wait, between its last check and its sleep, or in the sleep. The first two are made
 * certain here (ofi_faults.h), and not left to chance. Sleeps are counted, not timed: a sleep that ends
 * because its time is over, with its answer at hand, is the fault. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "far_links.h"
#include "farlog/reader_waits.h"
#include "ofi_faults.h"
#include "target/ofi.h"
#include "log/writer.h"

#define RECORD_COUNT 200u
#define ROUND_COUNT 50u
#define FOR_EVER_NS (10 * LONG_NS) /* of a sleep that has to be ended by an event */
#define IDLE_NS 1000000u           /* of one that need not */

struct counting {
	pthread_t thread;
	farlog_target *target;
	uint64_t is_stopping;
};

static uint8_t buffer[64u << 10] __attribute__((aligned(64)));

/* Every answer is a word that the target writes, which makes no completion. */
static farlog_writer *open_writer(struct bed *bed)
{
	struct farlog_error error = {0};
	farlog_writer *writer = NULL;

	if (bed_make(bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") && CHECK_ASK(&bed->host, "grant ring 0 2 a"))
		writer = open_far_writer(bed, "?flush=target-cpu", 2, 'a', &error);
	CHECK_OK(error.result);
	return writer;
}

static farlog_reader *open_drain(struct bed *bed)
{
	uint8_t token[FARLOG_TOKEN_LEN];
	struct farlog_reader_config config = {.is_drain = true, .grant_token = token};
	struct farlog_error error = {0};
	farlog_reader *drain = NULL;
	char uri[256];

	host_token('d', token);
	snprintf(uri, sizeof(uri), "%s?flush=target-cpu", bed->uri);
	if (CHECK_ASK(&bed->host, "grant ring 1 0 d"))
		CHECK_OK(farlog_reader_open(uri, &config, &drain, &error));
	return drain;
}

/* drain_one -- read until something has come, and release it. */
static bool drain_one(farlog_reader *drain)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);
	struct farlog_batch batch;
	int result = FARLOG_NOT_YET;

	while (result == FARLOG_NOT_YET && clock_monotonic_ns() < until_ns)
		result = farlog_reader_read(drain, buffer, sizeof(buffer), &batch);
	return check_ok(result, "farlog_reader_read", farlog_result_text(result), __LINE__) &&
		check_ok(
			farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), "release", "", __LINE__);
}

/* The answer arrives between the last check of a wait and fi_trywait, each time: that call takes it from the socket, so
 * that no event is left to end a sleep. A drain, its cold calls and its releases, and a writer. */
void test_wakeup_late(void)
{
	struct farlog_position position;
	struct bed bed;
	farlog_writer *writer = open_writer(&bed);
	farlog_reader *drain = writer != NULL ? open_drain(&bed) : NULL;
	unsigned before = failed;
	uint64_t expired = 0;
	uint64_t count;

	for (uint64_t i = 0; i < RECORD_COUNT && drain != NULL && failed == before; i++) {
		atomic_store_relaxed(&ofi_wait_is_late, 1);
		CHECK(append_number(writer, i, LONG_NS, &position) == FARLOG_OK);
		CHECK(drain_one(drain));
		count = farlog_reader_waits(drain, &expired);
		CHECK(expired == 0 && writer->region->waits.expired_count == 0);
		CHECK(count <= 2 * (i + 2)); /* the end of our own WRITE may end a wait as well */
	}
	atomic_store_relaxed(&ofi_wait_is_late, 0);
	CHECK(drain != NULL && farlog_reader_waits(drain, NULL) + writer->region->waits.count > 0);
	farlog_reader_close(drain);
	farlog_writer_close(writer);
	bed_free(&bed);
}

static void start_persist(struct region *region)
{
	struct region_span span = {LAYOUT_DATA_OFF, 64}; /* as it was */

	CHECK(region->ops->data.persist(region, &span, 1, ++region->tag) == FARLOG_OK);
}

static void finish_persist(struct region *region)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);

	while (!region_is_done(region, region->tag) && clock_monotonic_ns() < until_ns)
		CHECK(region->ops->data.poll(region) == FARLOG_OK);
	CHECK(region_is_done(region, region->tag));
}

/* The answer was taken by a poll after this thread has checked for it, as by another thread of a shared writer that
 * asks for its credit. */
void test_wakeup_taken(void)
{
	struct farlog_position position;
	struct bed bed;
	farlog_writer *writer = open_writer(&bed);
	struct region *region = writer != NULL ? writer->region : NULL;
	uint64_t count;

	if (region == NULL)
		goto done;
	CHECK(append_number(writer, 0, LONG_NS, &position) == FARLOG_OK);
	start_persist(region);
	finish_persist(region);
	count = region->waits.count;
	region->ops->data.wait(region, LONG_NS);
	CHECK(region->waits.count == count); /* nothing is under way whose end would end a sleep */
done:
	farlog_writer_close(writer);
	bed_free(&bed);
}

/* As the first, where several regions are slept for at once and nobody calls their `wait`. */
void test_wakeup_sleepers(void)
{
	struct farlog_position position;
	struct bed bed;
	farlog_writer *writer = open_writer(&bed);
	struct region *region = writer != NULL ? writer->region : NULL;
	unsigned tried = 0;
	int fds[4];

	if (region == NULL)
		goto done;
	CHECK(append_number(writer, 0, LONG_NS, &position) == FARLOG_OK);
	atomic_store_relaxed(&ofi_wait_is_late, 1);
	for (unsigned i = 0; i < ROUND_COUNT; i++) {
		start_persist(region);
		if (!region_is_done(region, region->tag)) {
			tried++;
			CHECK(region->ops->data.list_wait_fds(region, fds, 4) == 0);
		}
		finish_persist(region);
	}
	CHECK(tried > 0);
	atomic_store_relaxed(&ofi_wait_is_late, 0);
done:
	farlog_writer_close(writer);
	bed_free(&bed);
}

/* set_idle -- how long the target's thread sleeps when nothing wakes it, and lets pass between two ticks. */
static void set_idle(farlog_target *target, uint64_t idle_ns)
{
	struct ofi_listener *listener = target->listener;

	atomic_store_relaxed(&listener->doze_ns, idle_ns);
	atomic_store_relaxed(&listener->tick_ns, idle_ns);
}

/* keep_counting -- holds the target's mutex again and again. */
static void *keep_counting(void *context)
{
	struct counting *counting = context;
	struct farlog_target_counters counters;

	while (!atomic_load_acquire(&counting->is_stopping))
		CHECK(farlog_target_counters_read(counting->target, "ring", &counters) == FARLOG_OK);
	return NULL;
}

/* A target's thread sends at once what a ring's worker has flushed: one that sleeps until something wakes it, and one
 * that never sleeps and lets no time pass that would make it look; also while others hold the target's mutex. */
static void worker_wakes(const char *listen_uri)
{
	struct farlog_ring_config config = {
		.size_bytes = RING_BYTES, .record_len_max = 8192, .is_forced = 1, .stream_name = "worker"};
	struct farlog_grant grant = {.role = FARLOG_GRANT_WRITER, .epoch = 2, .token = {7}};
	struct farlog_writer_config wanted = {.level = FARLOG_LEVEL_VISIBLE,
		.epoch = 2,
		.counters_dir = "",
		.grant_token = grant.token,
		.deadline_ns = LONG_NS};
	struct farlog_error error = {0};
	struct farlog_position position;
	farlog_target *target = NULL;
	farlog_writer *writer = NULL;
	struct counting counting = {.is_stopping = 0};
	unsigned before = failed;
	char path[96];
	char uri[160];

	snprintf(path, sizeof(path), "/dev/shm/farlog-far-%ld-worker", (long)getpid());
	snprintf(uri, sizeof(uri), "mem:%s", path);
	if (CHECK_OK(farlog_ring_format(uri, &config, &error)) &&
		CHECK_OK(farlog_target_open(listen_uri, &target, &error)) &&
		CHECK_OK(farlog_target_serve(target, "ring", uri, NULL, &error)) &&
		CHECK_OK(farlog_target_grant(target, "ring", &grant, &error))) {
		snprintf(uri, sizeof(uri), "%s/ring?flush=target-cpu", farlog_target_uri(target));
		CHECK_OK(farlog_writer_open(uri, &wanted, &writer, &error));
	}
	if (writer != NULL) {
		set_idle(target, FOR_EVER_NS);
		counting.target = target;
		CHECK(pthread_create(&counting.thread, NULL, keep_counting, &counting) == 0);
	}
	for (uint64_t i = 0; i < RECORD_COUNT && writer != NULL && failed == before; i++)
		CHECK(append_number(writer, i, LONG_NS, &position) == FARLOG_OK);
	CHECK(writer != NULL && writer->region->waits.expired_count == 0 && writer->region->reconnect_count == 0);
	if (writer != NULL) {
		atomic_store_release(&counting.is_stopping, 1);
		pthread_join(counting.thread, NULL);
		set_idle(target, IDLE_NS);
	}
	farlog_writer_close(writer);
	farlog_target_close(target);
	unlink(path);
}

void test_wakeup_worker(void)
{
	worker_wakes("ofi:tcp://127.0.0.1:0?test-flush-delay=20us");
	worker_wakes("ofi:tcp://127.0.0.1:0?wait=spin&test-flush-delay=20us");
}
