/* bench_encrypt.c -- what encryption adds to an append: blocks of both alternate. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "base/clock.h"

#define BLOCK_COUNT 2000u /* as in bench_append.c */
#define SKIPPED_COUNT 100u
#define SAMPLE_COUNT_MAX (8u << 20)
#define DRAIN_EVERY 32u

static uint8_t payload[BENCH_PAYLOAD_LEN] __attribute__((aligned(64)));

/* make_keys -- a file with one key; what it is makes no difference. */
static void make_keys(char path[64])
{
	int fd;

	strcpy(path, "/dev/shm/farlog-bench-keys-XXXXXX");
	fd = mkstemp(path);
	if (fd < 0)
		bench_fail("keys", "no file for them");
	for (unsigned i = 0; i < 32; i++)
		if (write(fd, "5a", 2) != 2)
			bench_fail("keys", "cannot be written");
	close(fd);
}

static void make_encrypted(struct bench_ring *ring, char key_path[64])
{
	struct farlog_ring_config config = {
		.size_bytes = BENCH_RING_LEN, .is_forced = 1, .encryption = FARLOG_ENCRYPTION_AES_256_GCM};
	struct farlog_error error;

	bench_ring_make(ring, "encrypted", BENCH_RING_LEN);
	if (farlog_ring_format(ring->uri, &config, &error) != FARLOG_OK)
		bench_fail("format", error.text);
	make_keys(key_path);
	setenv("FARLOG_KEY_FILE", key_path, 1);
	bench_ring_open(ring);
	unsetenv("FARLOG_KEY_FILE");
	unlink(key_path);
}

static void append_block(struct bench_ring *ring, struct bench_samples *samples)
{
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload), .class_id = 1};
	struct farlog_position position;
	uint64_t before = clock_ticks();

	for (unsigned i = 0; i < BLOCK_COUNT; i++) {
		uint64_t after;

		if (farlog_append(ring->writer, &entry, 0, &position) != FARLOG_OK)
			bench_fail("append", "not acknowledged");
		after = clock_ticks();
		if (i >= SKIPPED_COUNT)
			bench_sample(samples, after - before);
		before = after;
	}
}

void bench_encrypt(void)
{
	static const double quantiles[] = {0.5, 0.99};
	static const char *const names[] = {"mem.append.256.encrypted", "mem.append.256.encrypted.p99"};
	struct bench_ring encrypted, plain;
	struct bench_samples ours, floor_samples;
	uint64_t start_ns;
	char key_path[64];

	bench_pin(0);
	make_encrypted(&encrypted, key_path);
	bench_ring_make(&plain, "plain", BENCH_RING_LEN);
	bench_ring_open(&plain);
	bench_samples_make(&ours, SAMPLE_COUNT_MAX);
	bench_samples_make(&floor_samples, SAMPLE_COUNT_MAX);
	start_ns = clock_monotonic_ns();
	for (unsigned block = 1; (double)(clock_monotonic_ns() - start_ns) < bench_seconds * 1e9; block++) {
		append_block(&encrypted, &ours);
		append_block(&plain, &floor_samples);
		if (block % DRAIN_EVERY == 0) {
			bench_ring_drain(&encrypted);
			bench_ring_drain(&plain);
		}
	}
	for (unsigned i = 0; i < 2; i++)
		bench_report(&(struct bench_case){.name = names[i],
			.ours = bench_quantile_ns(&ours, quantiles[i]),
			.floor = bench_quantile_ns(&floor_samples, quantiles[i]),
			.unit = "ns",
			.flush = farlog_writer_contract(encrypted.writer)->flush_name,
			.level = "visible",
			.note = i == 0 ? "p50; floor: the same append, not encrypted" : ""});
	bench_samples_free(&ours);
	bench_samples_free(&floor_samples);
	bench_ring_close(&encrypted);
	bench_ring_close(&plain);
}
