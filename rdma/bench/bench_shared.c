/* bench_shared.c -- many threads on one ring: two must not be slower than one. */
#include <pthread.h>
#include <string.h>

#include "bench.h"
#include "base/atomics.h"
#include "base/clock.h"

#define THREAD_COUNT_MAX 2u
#define BLOCK_COUNT 20000u /* records of one thread in a block */

struct crew {
	farlog_shared *shared;
	unsigned thread_count;
	pthread_barrier_t barrier;
	uint64_t took_ticks[THREAD_COUNT_MAX];
};

struct member {
	struct crew *crew;
	unsigned index;
};

static void *append_block(void *context)
{
	struct member *member = context;
	struct crew *crew = member->crew;
	uint8_t payload[BENCH_PAYLOAD_LEN];
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload), .class_id = 1};
	struct farlog_position position;
	uint64_t start;

	bench_pin(member->index);
	memset(payload, 0x5A + (int)member->index, sizeof(payload));
	pthread_barrier_wait(&crew->barrier);
	start = clock_ticks();
	for (unsigned i = 0; i < BLOCK_COUNT; i++)
		if (farlog_shared_append(crew->shared, &entry, 1000000000u, &position) != FARLOG_OK)
			bench_fail("shared append", "refused");
	crew->took_ticks[member->index] = clock_ticks() - start;
	return NULL;
}

/* run_block -- ticks a record of all threads together: the slowest thread's time over all records. */
static uint64_t run_block(farlog_shared *shared, unsigned thread_count)
{
	struct crew crew = {.shared = shared, .thread_count = thread_count};
	struct member members[THREAD_COUNT_MAX];
	pthread_t threads[THREAD_COUNT_MAX];
	uint64_t slowest = 0;

	pthread_barrier_init(&crew.barrier, NULL, thread_count);
	for (unsigned i = 0; i < thread_count; i++) {
		members[i] = (struct member){&crew, i};
		if (pthread_create(&threads[i], NULL, append_block, &members[i]) != 0)
			bench_fail("shared", "cannot start a thread");
	}
	for (unsigned i = 0; i < thread_count; i++) {
		pthread_join(threads[i], NULL);
		slowest = crew.took_ticks[i] > slowest ? crew.took_ticks[i] : slowest;
	}
	pthread_barrier_destroy(&crew.barrier);
	return slowest / thread_count;
}

void bench_shared(void)
{
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .counters_dir = ""};
	struct farlog_reader_config drain = {.is_drain = 1};
	struct bench_samples one, two;
	struct bench_ring ring;
	farlog_shared *shared;
	struct farlog_error error;
	uint64_t start_ns;

	bench_ring_make(&ring, "shared", BENCH_RING_LEN);
	bench_ring_open(&ring); /* for its buffer and drain; its writer makes way */
	farlog_writer_close(ring.writer);
	ring.writer = NULL;
	(void)drain;
	if (farlog_shared_open(ring.uri, &config, &shared, &error) != FARLOG_OK)
		bench_fail("open shared writer", error.text);
	bench_samples_make(&one, 1u << 16);
	bench_samples_make(&two, 1u << 16);
	start_ns = clock_monotonic_ns();
	while ((double)(clock_monotonic_ns() - start_ns) < bench_seconds * 1e9) {
		bench_sample(&one, run_block(shared, 1));
		bench_sample(&two, run_block(shared, 2));
		bench_ring_drain(&ring);
	}
	bench_report(&(struct bench_case){
		.name = "mem.shared.256",
		.ours = bench_quantile_ns(&two, 0.5) / BLOCK_COUNT,
		.floor = bench_quantile_ns(&one, 0.5) / BLOCK_COUNT,
		.unit = "ns",
		.flush = farlog_shared_contract(shared)->flush_name,
		.level = "visible",
		.note = "a record; 2 threads against 1",
	});
	farlog_shared_close(shared);
	bench_samples_free(&one);
	bench_samples_free(&two);
	bench_ring_close(&ring);
}
