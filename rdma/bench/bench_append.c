/* bench_append.c -- one synchronous append at a time, back to back and at a fixed rate; and groups under one flush. */
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "base/clock.h"

#define BLOCK_COUNT 2000u  /* records in a block; blocks of ours and of the floor alternate */
#define SKIPPED_COUNT 100u /* of each block: they pay for what ran before */
#define SAMPLE_COUNT_MAX (8u << 20)
#define DRAIN_EVERY 32u /* blocks between two drains: 16 MiB, a quarter of the ring */
#define GROUP_COUNT 32u
#define OPEN_RATE 100000u

/* The payload changes from record to record, as real ones do, and stays in the cache. */
static uint8_t payloads[64][BENCH_RECORD_LEN] __attribute__((aligned(64)));

static void make_payloads(void)
{
	uint64_t state = 88172645463325252u;

	for (size_t i = 0; i < sizeof(payloads); i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		((uint8_t *)payloads)[i] = (uint8_t)state;
	}
}

static struct farlog_entry entry_of(unsigned i)
{
	return (struct farlog_entry){.data = payloads[i % 64], .len = BENCH_PAYLOAD_LEN, .class_id = 1};
}

static void append_one(struct bench_ring *ring, unsigned i)
{
	struct farlog_entry entry = entry_of(i);
	struct farlog_position position;
	int result = farlog_append(ring->writer, &entry, 0, &position);

	if (result != FARLOG_OK)
		bench_fail("append", farlog_result_text(result));
}

static void floor_one(struct bench_floor *floor, unsigned i, enum bench_crc crc)
{
	bench_floor_write(floor, payloads[i % 64], crc);
	bench_floor_fence();
}

static void append_block(struct bench_ring *ring, struct bench_samples *samples)
{
	uint64_t before = clock_ticks();

	for (unsigned i = 0; i < BLOCK_COUNT; i++) {
		uint64_t after;

		append_one(ring, i);
		after = clock_ticks();
		if (i >= SKIPPED_COUNT)
			bench_sample(samples, after - before);
		before = after;
	}
}

static void floor_block(struct bench_floor *floor, enum bench_crc crc, struct bench_samples *samples)
{
	uint64_t before = clock_ticks();

	for (unsigned i = 0; i < BLOCK_COUNT; i++) {
		uint64_t after;

		floor_one(floor, i, crc);
		after = clock_ticks();
		if (i >= SKIPPED_COUNT)
			bench_sample(samples, after - before);
		before = after;
	}
}

static void report(const char *name, double quantile, struct bench_samples *ours, struct bench_samples *floor_samples,
	const struct bench_ring *ring, const char *note)
{
	bench_report(&(struct bench_case){
		.name = name,
		.ours = bench_quantile_ns(ours, quantile),
		.floor = bench_quantile_ns(floor_samples, quantile),
		.unit = "ns",
		.flush = farlog_writer_contract(ring->writer)->flush_name,
		.level = "visible",
		.note = note,
	});
}

static bool time_is_left(uint64_t start_ns)
{
	return (double)(clock_monotonic_ns() - start_ns) < bench_seconds * 1e9;
}

static void closed_loop(struct bench_ring *ring, struct bench_floor *floor)
{
	struct bench_samples ours, plain, serial;
	uint64_t start_ns = clock_monotonic_ns();
	char note[96];

	bench_samples_make(&ours, SAMPLE_COUNT_MAX);
	bench_samples_make(&plain, SAMPLE_COUNT_MAX);
	bench_samples_make(&serial, SAMPLE_COUNT_MAX);
	for (unsigned block = 1; time_is_left(start_ns); block++) {
		append_block(ring, &ours);
		floor_block(floor, BENCH_CRC_CORE, &plain);
		floor_block(floor, BENCH_CRC_SERIAL, &serial);
		if (block % DRAIN_EVERY == 0)
			bench_ring_drain(ring);
	}
	snprintf(note, sizeof(note), "p50; floor: CRC, copy by %s, sfence", floor->method_name);
	report("mem.append.256", 0.5, &ours, &plain, ring, note);
	report("mem.append.256.p99", 0.99, &ours, &plain, ring, "");
	report("mem.append.256.p999", 0.999, &ours, &plain, ring, "");
	report("mem.append.256.serial", 0.5, &ours, &serial, ring, "p50; floor with one crc32q after another");
	bench_samples_free(&ours);
	bench_samples_free(&plain);
	bench_samples_free(&serial);
}

/* open_block -- records are due at fixed times; one that is late because the one before was slow counts from its due
 * time, so that a stall is felt by all that it delayed. */
static void open_block(
	struct bench_ring *ring, struct bench_floor *floor, uint64_t interval_ticks, struct bench_samples *samples)
{
	uint64_t due = clock_ticks() + interval_ticks;

	for (unsigned i = 0; i < BLOCK_COUNT; i++, due += interval_ticks) {
		while (clock_ticks() < due)
			;
		if (ring != NULL)
			append_one(ring, i);
		else
			floor_one(floor, i, BENCH_CRC_CORE);
		if (i >= SKIPPED_COUNT)
			bench_sample(samples, clock_ticks() - due);
	}
}

static void open_loop(struct bench_ring *ring, struct bench_floor *floor)
{
	struct bench_samples ours, plain;
	uint64_t start_ns = clock_monotonic_ns();
	uint64_t second_ns = clock_elapsed_ns(1000000000u);
	uint64_t interval_ticks = 1000000000ull * (1000000000ull / OPEN_RATE) / second_ns;

	bench_samples_make(&ours, SAMPLE_COUNT_MAX);
	bench_samples_make(&plain, SAMPLE_COUNT_MAX);
	for (unsigned block = 1; time_is_left(start_ns); block++) {
		open_block(ring, NULL, interval_ticks, &ours);
		open_block(NULL, floor, interval_ticks, &plain);
		if (block % DRAIN_EVERY == 0)
			bench_ring_drain(ring);
	}
	report("mem.append.256.open", 0.5, &ours, &plain, ring, "p50 at 100,000/s, from the due time");
	report("mem.append.256.open.p999", 0.999, &ours, &plain, ring, "");
	bench_samples_free(&ours);
	bench_samples_free(&plain);
}

void bench_append(void)
{
	struct bench_ring ring;
	struct bench_floor floor;

	bench_pin(0);
	make_payloads();
	bench_ring_make(&ring, "append", BENCH_RING_LEN);
	bench_ring_open(&ring);
	bench_floor_make(&floor, "append");
	closed_loop(&ring, &floor);
	bench_ring_drain(&ring);
	open_loop(&ring, &floor);
	bench_floor_free(&floor);
	bench_ring_close(&ring);
}

static struct farlog_entry entries[GROUP_COUNT]; /* they lie ready, as the floor's records do */

static void submit_group(struct bench_ring *ring)
{
	struct farlog_position position;

	for (unsigned i = 0; i < GROUP_COUNT; i++)
		if (farlog_submit(ring->writer, &entries[i], &position) != FARLOG_OK)
			bench_fail("submit", "refused");
	if (farlog_wait(ring->writer, position.end_lsn, 0) != FARLOG_OK)
		bench_fail("wait", "not durable in time");
}

static void batch_group(struct bench_ring *ring)
{
	struct farlog_position positions[GROUP_COUNT];
	size_t done, submitted;

	if (farlog_append_batch(ring->writer, entries, GROUP_COUNT, 0, positions, &done, &submitted) != FARLOG_OK)
		bench_fail("append_batch", "refused");
}

static void floor_group(struct bench_floor *floor)
{
	for (unsigned i = 0; i < GROUP_COUNT; i++)
		bench_floor_write(floor, payloads[i % 64], BENCH_CRC_CORE);
	bench_floor_fence();
}

/* group_blocks -- samples are ticks of a whole block: the cost of a group would drown in that of reading the clock
 * twice. */
static void group_blocks(struct bench_ring *ring, struct bench_floor *floor, struct bench_samples samples[3])
{
	for (unsigned kind = 0; kind < 3; kind++) {
		uint64_t start = 0;

		for (unsigned i = 0; i < BLOCK_COUNT / GROUP_COUNT; i++) {
			if (i == 2)
				start = clock_ticks();
			if (kind == 0)
				submit_group(ring);
			else if (kind == 1)
				batch_group(ring);
			else
				floor_group(floor);
		}
		bench_sample(&samples[kind], clock_ticks() - start);
	}
}

void bench_submit(void)
{
	static const char *const names[] = {"mem.submit.256", "mem.batch.256"};
	static const char *const notes[] = {"a record; submit of 32, one wait", "a record; append_batch of 32"};
	struct bench_samples samples[3];
	struct bench_ring ring;
	struct bench_floor floor;
	uint64_t start_ns;
	double record_count = (BLOCK_COUNT / GROUP_COUNT - 2) * GROUP_COUNT;

	bench_pin(0);
	make_payloads();
	for (unsigned i = 0; i < GROUP_COUNT; i++)
		entries[i] = entry_of(i);
	bench_ring_make(&ring, "submit", BENCH_RING_LEN);
	bench_ring_open(&ring);
	bench_floor_make(&floor, "submit");
	for (unsigned kind = 0; kind < 3; kind++)
		bench_samples_make(&samples[kind], 1u << 20);
	start_ns = clock_monotonic_ns();
	for (unsigned block = 1; time_is_left(start_ns); block++) {
		group_blocks(&ring, &floor, samples);
		if (block % (DRAIN_EVERY / 2) == 0)
			bench_ring_drain(&ring);
	}
	for (unsigned kind = 0; kind < 2; kind++)
		bench_report(&(struct bench_case){
			.name = names[kind],
			.ours = bench_quantile_ns(&samples[kind], 0.5) / record_count,
			.floor = bench_quantile_ns(&samples[2], 0.5) / record_count,
			.unit = "ns",
			.flush = farlog_writer_contract(ring.writer)->flush_name,
			.level = "visible",
			.note = notes[kind],
		});
	for (unsigned kind = 0; kind < 3; kind++)
		bench_samples_free(&samples[kind]);
	bench_floor_free(&floor);
	bench_ring_close(&ring);
}
