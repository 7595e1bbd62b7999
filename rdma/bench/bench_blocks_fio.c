/* bench_blocks_fio.c -- a ring on blocks against fio with the same flags, in turns of 0.3 s; without fio it says so. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "base/clock.h"

#define TURN_COUNT 15u
#define TURN_MS 300u
#define READ_LEN (1u << 20)
#define DRAIN_LEN (4u << 20)
#define DRAIN_COUNT 4u /* drainings of one turn */

static int by_value(const void *left, const void *right)
{
	double a = *(const double *)left;
	double b = *(const double *)right;

	return (a > b) - (a < b);
}

static double median(double *values, unsigned count)
{
	qsort(values, count, sizeof(values[0]), by_value);
	return values[count / 2];
}

/* run_fio -- the first number above 0 behind this name in its JSON. */
static double run_fio(const char *path, const char *options, const char *name)
{
	char command[900];
	char line[400];
	double value = 0;
	FILE *output;

	snprintf(command, sizeof(command),
		"fio --name=floor --filename='%s' --ioengine=io_uring --direct=1 --fixedbufs --registerfiles --iodepth=1 "
		"--size=64M "
		"--runtime=%ums --time_based --clat_percentiles=0 --lat_percentiles=1 --percentile_list=50 "
		"--output-format=json %s",
		path, TURN_MS, options);
	output = popen(command, "r");
	if (output == NULL)
		bench_fail("fio", command);
	while (fgets(line, sizeof(line), output) != NULL) {
		const char *at = strstr(line, name);

		if (at != NULL && value == 0)
			value = strtod(at + strlen(name) + strspn(at + strlen(name), "\" :"), NULL);
	}
	if (pclose(output) != 0 || value == 0)
		bench_fail("fio", command);
	return value;
}

static uint64_t drain_all(farlog_reader *drain, uint8_t *buffer, bool is_released)
{
	struct farlog_batch batch;
	uint64_t len = 0;

	while (farlog_reader_read(drain, buffer, DRAIN_LEN, &batch) == FARLOG_OK) {
		len += batch.next_lsn - batch.first_lsn;
		if (is_released && farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch) != FARLOG_OK)
			bench_fail("fio", "release");
	}
	return len;
}

static farlog_reader *open_drain(const char *uri)
{
	farlog_reader *drain;

	if (farlog_reader_open(uri, &(struct farlog_reader_config){.is_drain = 1}, &drain, NULL) != FARLOG_OK)
		bench_fail("open drain", uri);
	return drain;
}

/* append_for_a_turn -- median ns of an append whose record takes 4096 bytes. */
static double append_for_a_turn(const char *uri, farlog_writer *writer, uint8_t *buffer)
{
	static uint8_t payload[4096 - 64];
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload)};
	struct farlog_position position;
	struct bench_samples samples;
	farlog_reader *drain = open_drain(uri);
	uint64_t start_ns = clock_monotonic_ns();
	double value;

	bench_samples_make(&samples, 1u << 18);
	while (clock_monotonic_ns() - start_ns < TURN_MS * 1000000u) {
		for (unsigned i = 0; i < 200; i++) {
			uint64_t start = clock_ticks();

			if (farlog_append(writer, &entry, 5000000000u, &position) != FARLOG_OK)
				bench_fail("append", uri);
			bench_sample(&samples, clock_ticks() - start);
		}
		drain_all(drain, buffer, true);
	}
	farlog_reader_close(drain);
	value = bench_quantile_ns(&samples, 0.5);
	bench_samples_free(&samples);
	return value;
}

static void measure_append(const char *uri, const char *path, uint8_t *buffer)
{
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .counters_dir = ""};
	double ours[TURN_COUNT];
	double theirs[TURN_COUNT];
	farlog_writer *writer;
	bool is_plain;

	if (farlog_writer_open(uri, &config, &writer, NULL) != FARLOG_OK)
		bench_fail("open", uri);
	is_plain = strcmp(farlog_writer_contract(writer)->flush_name, "write") == 0;
	for (unsigned i = 0; i < TURN_COUNT; i++) {
		ours[i] = append_for_a_turn(uri, writer, buffer);
		theirs[i] = run_fio(path, is_plain ? "--rw=write --bs=4k" : "--rw=write --bs=4k --sync=dsync", "\"50.000000\"");
	}
	bench_report(&(struct bench_case){.name = "blocks.append.4096.fio",
		.ours = median(ours, TURN_COUNT),
		.floor = median(theirs, TURN_COUNT),
		.unit = "ns",
		.flush = farlog_writer_contract(writer)->flush_name,
		.level = farlog_level_name((int)farlog_writer_contract(writer)->level),
		.note = "p50 against fio's, 4 KiB, one at a time, same flags; medians of fifteen turns"});
	farlog_writer_close(writer);
}

/* measure_drain -- ns a MiB of the ring, which was filled before. */
static void measure_drain(const char *uri, const char *path, uint8_t *buffer)
{
	static uint8_t payload[4096 - 64];
	struct farlog_writer_config config = {
		.level = FARLOG_LEVEL_VISIBLE, .counters_dir = "", .policy = FARLOG_POLICY_REJECT};
	struct farlog_position position;
	double ours[TURN_COUNT];
	double theirs[TURN_COUNT];
	farlog_writer *writer;

	if (farlog_writer_open(uri, &config, &writer, NULL) != FARLOG_OK)
		bench_fail("open", uri);
	while (
		farlog_submit(writer, &(struct farlog_entry){.data = payload, .len = sizeof(payload)}, &position) == FARLOG_OK)
		;
	farlog_writer_close(writer);
	for (unsigned i = 0; i < TURN_COUNT; i++) {
		uint64_t taken_ns = 0;
		uint64_t len = 0;

		for (unsigned n = 0; n < DRAIN_COUNT; n++) {
			farlog_reader *drain = open_drain(uri);
			uint64_t start_ns = clock_monotonic_ns();

			len += drain_all(drain, buffer, false);
			taken_ns += clock_monotonic_ns() - start_ns;
			farlog_reader_close(drain);
		}
		ours[i] = (double)taken_ns / ((double)len / READ_LEN);
		theirs[i] = 1e9 / (run_fio(path, "--rw=read --bs=1M", "\"bw_bytes\"") / READ_LEN);
	}
	bench_report(&(struct bench_case){.name = "blocks.drain.fio",
		.ours = median(ours, TURN_COUNT),
		.floor = median(theirs, TURN_COUNT),
		.unit = "ns/MiB",
		.flush = "none",
		.level = "none",
		.note = "read and checked, against fio reading 1 MiB at a time; medians of fifteen turns"});
}

void bench_blocks_fio(const char *ring_uri, const char *path, bool is_drained)
{
	uint8_t *buffer = malloc(DRAIN_LEN);

	if (system("command -v fio >/dev/null 2>&1") != 0) {
		fprintf(stderr, "blocks: fio is not installed: its cases are left out\n");
	} else if (buffer == NULL) {
		bench_fail("fio", "out of memory");
	} else {
		memset(buffer, 0, DRAIN_LEN);
		measure_append(ring_uri, path, buffer);
		if (is_drained)
			measure_drain(ring_uri, path, buffer);
	}
	free(buffer);
}
