/* bench_blocks.c -- rings on blocks against io_uring alone, with the same flags on the same kind of file or device.
 *
 * FARLOG_BENCH_BLOCKS=PATH,PATH names two files or devices, whose contents go; else two files of /var/tmp are made. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomics.h"
#include "bench.h"
#include "base/clock.h"
#include "ring/layout.h"
#include "blocks/lib_uring.h"

#define SIZE (64u << 20)
#define WRITE_LEN 4096u
#define TURN_COUNT 50u /* writes of one before it is the other's turn */
#define WAITER_COUNT 32u
#define READ_LEN (1u << 20)
#define LBA_LEN_MAX 4096u

static char ring_uri[300];
static char floor_path[256];
static const char *made[2]; /* files to be removed */

/* ---- the floor: one write at a time, as fio's io_uring engine does with fixed buffer and file, and O_DSYNC */

struct raw {
	const struct lib_uring *lib;
	struct io_uring ring;
	uint8_t *bytes;
	uint64_t off;
	int fd;
};

static void raw_open(struct raw *raw)
{
	struct farlog_error error;

	if (lib_uring_load(&raw->lib, &error) != FARLOG_OK)
		bench_fail("blocks", error.text);
	raw->fd = open(floor_path, O_RDWR | O_DIRECT | O_CLOEXEC);
	raw->bytes = aligned_alloc(4096, READ_LEN);
	raw->off = 0;
	if (raw->fd < 0 || raw->bytes == NULL || raw->lib->queue_init(8, &raw->ring, 0) != 0 ||
		raw->lib->register_files(&raw->ring, &raw->fd, 1) != 0 ||
		raw->lib->register_buffers(&raw->ring, &(struct iovec){raw->bytes, READ_LEN}, 1) != 0)
		bench_fail("blocks", floor_path);
	memset(raw->bytes, 0x5A, READ_LEN);
}

static void raw_close(struct raw *raw)
{
	raw->lib->queue_exit(&raw->ring);
	close(raw->fd);
	free(raw->bytes);
}

static void raw_write(struct raw *raw, uint32_t len, bool is_plain)
{
	struct __kernel_timespec patience = {5, 0};
	struct io_uring_sqe *sqe = io_uring_get_sqe(&raw->ring);
	struct io_uring_cqe *answer;

	io_uring_prep_write_fixed(sqe, 0, raw->bytes, len, raw->off, 0);
	sqe->flags |= IOSQE_FIXED_FILE;
	sqe->rw_flags = is_plain ? 0 : RWF_DSYNC;
	if (raw->lib->submit_and_wait_timeout(&raw->ring, &answer, 1, &patience, NULL) < 0 || answer->res != (int)len)
		bench_fail("blocks", "a write of the floor failed");
	io_uring_cq_advance(&raw->ring, 1);
	raw->off = raw->off + 2 * len <= SIZE ? raw->off + len : 0;
}

/* ---- ours */

static const char *file_of(unsigned i, const char *asked, char path[256])
{
	int fd;

	if (asked != NULL) {
		snprintf(path, 256, "%.255s", asked);
		return path;
	}
	snprintf(path, 256, "/var/tmp/farlog-bench-%ld-%u", (long)getpid(), i);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || posix_fallocate(fd, 0, SIZE) != 0)
		bench_fail("make", path);
	close(fd);
	made[i] = path;
	return path;
}

static void remove_files(void)
{
	for (unsigned i = 0; i < 2; i++)
		if (made[i] != NULL)
			unlink(made[i]);
}

/* fill -- every block written once: the first write of a fresh file costs its file system more. */
static void fill(const char *path)
{
	uint8_t *zeros = aligned_alloc(4096, READ_LEN);
	int fd = open(path, O_WRONLY | O_DIRECT | O_CLOEXEC);

	if (fd < 0 || zeros == NULL)
		bench_fail("fill", path);
	memset(zeros, 0, READ_LEN);
	for (uint64_t off = 0; off < SIZE; off += READ_LEN)
		if (pwrite(fd, zeros, READ_LEN, (off_t)off) != READ_LEN)
			bench_fail("fill", path);
	fsync(fd);
	close(fd);
	free(zeros);
}

static void format_aligned(uint32_t align)
{
	struct farlog_error error;

	if (farlog_ring_format(ring_uri,
			&(struct farlog_ring_config){.is_forced = 1, .record_len_max = 65536, .align = align}, &error) != FARLOG_OK)
		bench_fail("format", error.text);
}

static void format_ring(void)
{
	format_aligned(0);
}

static farlog_reader *open_drain(void)
{
	struct farlog_error error;
	farlog_reader *drain;

	if (farlog_reader_open(ring_uri, &(struct farlog_reader_config){.is_drain = 1}, &drain, &error) != FARLOG_OK)
		bench_fail("open drain", error.text);
	return drain;
}

/* drain_all -- returns the bytes of the ring that were read. */
static uint64_t drain_all(farlog_reader *drain, uint8_t *buffer, bool is_released)
{
	struct farlog_batch batch;
	uint64_t bytes = 0;

	while (farlog_reader_read(drain, buffer, 4 * READ_LEN, &batch) == FARLOG_OK) {
		bytes += batch.next_lsn - batch.first_lsn;
		if (is_released && farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch) != FARLOG_OK)
			bench_fail("release", ring_uri);
	}
	return bytes;
}

/* go_round -- once round the ring, unmeasured: the first write to what a device was told to zero may cost what lies
 * behind it more. */
static void go_round(farlog_writer *writer)
{
	static uint8_t payload[WRITE_LEN - 64];
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload)};
	struct farlog_position position = {0};
	farlog_reader *drain = open_drain();
	uint8_t *buffer = malloc(4 * READ_LEN);

	while (position.end_lsn < SIZE) {
		for (unsigned i = 0; i < 256; i++)
			if (farlog_submit(writer, &entry, &position) != FARLOG_OK)
				bench_fail("submit", "refused");
		if (farlog_wait(writer, position.end_lsn, 30000000000u) != FARLOG_OK)
			bench_fail("wait", "the device does not answer");
		drain_all(drain, buffer, true);
	}
	farlog_reader_close(drain);
	free(buffer);
}

static void report_append(const char *name, struct bench_samples *ours, struct bench_samples *floor_samples,
	double quantile, farlog_writer *writer, const char *note)
{
	bench_report(&(struct bench_case){.name = name,
		.ours = bench_quantile_ns(ours, quantile),
		.floor = bench_quantile_ns(floor_samples, quantile),
		.unit = "ns",
		.flush = farlog_writer_contract(writer)->flush_name,
		.level = farlog_level_name((int)farlog_writer_contract(writer)->level),
		.note = note});
}

/* append_turns -- ours and the floor in turns, which writes as many bytes as an append takes of the device, and with
 * `bare` others of 4096. */
static void append_turns(farlog_writer *writer, uint32_t payload_len, struct bench_samples *ours,
	struct bench_samples *equal, struct bench_samples *bare)
{
	static uint8_t payload[WRITE_LEN];
	struct farlog_entry entry = {.data = payload, .len = payload_len};
	bool is_plain = strcmp(farlog_writer_contract(writer)->flush_name, "write") == 0;
	uint32_t lba_len = farlog_writer_contract(writer)->granularity;
	struct farlog_position position = {0};
	farlog_reader *drain = open_drain();
	uint8_t *buffer = malloc(4 * READ_LEN);
	uint64_t start_ns = clock_monotonic_ns();
	struct raw raw;

	raw_open(&raw);
	while ((double)(clock_monotonic_ns() - start_ns) < 2 * bench_seconds * 1e9) {
		for (unsigned i = 0; i < TURN_COUNT; i++) {
			uint64_t start = clock_ticks();

			if (farlog_append(writer, &entry, 5000000000u, &position) != FARLOG_OK)
				bench_fail("append", "refused");
			bench_sample(ours, clock_ticks() - start);
		}
		for (unsigned i = 0; i < (bare != NULL ? 2 : 1) * TURN_COUNT; i++) {
			uint32_t len = i < TURN_COUNT ?
				((uint32_t)(position.end_lsn - position.lsn) + lba_len - 1) / lba_len * lba_len :
				WRITE_LEN;
			uint64_t start = clock_ticks();

			raw_write(&raw, len, is_plain);
			bench_sample(i < TURN_COUNT ? equal : bare, clock_ticks() - start);
		}
		drain_all(drain, buffer, true);
	}
	raw_close(&raw);
	farlog_reader_close(drain);
	free(buffer);
}

static void measure_append(void)
{
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .counters_dir = ""};
	struct bench_samples samples[5];
	struct farlog_error error;
	farlog_writer *writer;

	if (farlog_writer_open(ring_uri, &config, &writer, &error) != FARLOG_OK)
		bench_fail("open", error.text);
	go_round(writer);
	for (unsigned i = 0; i < 5; i++)
		bench_samples_make(&samples[i], 1u << 20);
	append_turns(writer, WRITE_LEN - 64, &samples[0], &samples[1], NULL);
	report_append("blocks.append.4096.p50", &samples[0], &samples[1], 0.5, writer,
		"4096 bytes of the device each; io_uring alone, one write at a time, same flags");
	report_append("blocks.append.4096.p99", &samples[0], &samples[1], 0.99, writer, "the same");
	append_turns(writer, WRITE_LEN, &samples[2], &samples[3], &samples[4]);
	report_append("blocks.append.4096+64.p50", &samples[2], &samples[3], 0.5, writer,
		"a payload of 4096 bytes, which with its record takes an LBA more; the floor writes as much");
	report_append("blocks.append.4096+64.4096.p50", &samples[2], &samples[4], 0.5, writer,
		"the same against a floor that writes 4096");
	farlog_writer_close(writer);
	for (unsigned i = 0; i < 5; i++)
		bench_samples_free(&samples[i]);
}

/* append_group -- so many records under one commit. Returns its ticks. */
static uint64_t append_group(farlog_writer *writer, unsigned count)
{
	static uint8_t payload[BENCH_PAYLOAD_LEN];
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload)};
	struct farlog_position position;
	uint64_t start = clock_ticks();

	for (unsigned i = 0; i < count; i++)
		if (farlog_submit(writer, &entry, &position) != FARLOG_OK)
			bench_fail("submit", "refused");
	if (farlog_wait(writer, position.end_lsn, 5000000000u) != FARLOG_OK)
		bench_fail("wait", "the device does not answer");
	return clock_ticks() - start;
}

/* measure_packed -- 32 records that wait for one commit, packed into its LBAs, against one record a commit and an LBA,
 * in turns. */
static void measure_packed(void)
{
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .counters_dir = ""};
	struct bench_samples packed, single;
	uint8_t *buffer = malloc(4 * READ_LEN);
	farlog_reader *drain = open_drain();
	uint64_t start_ns = clock_monotonic_ns();
	farlog_writer *writer;

	if (farlog_writer_open(ring_uri, &config, &writer, NULL) != FARLOG_OK)
		bench_fail("open", ring_uri);
	bench_samples_make(&packed, 1u << 18);
	bench_samples_make(&single, 1u << 18);
	while ((double)(clock_monotonic_ns() - start_ns) < bench_seconds * 1e9) {
		for (unsigned i = 0; i < TURN_COUNT; i++) {
			bench_sample(&packed, append_group(writer, WAITER_COUNT) / WAITER_COUNT);
			bench_sample(&single, append_group(writer, 1));
		}
		drain_all(drain, buffer, true);
	}
	bench_report(&(struct bench_case){.name = "blocks.packed.256",
		.ours = bench_quantile_ns(&packed, 0.5),
		.floor = bench_quantile_ns(&single, 0.5),
		.unit = "ns",
		.flush = farlog_writer_contract(writer)->flush_name,
		.level = farlog_level_name((int)farlog_writer_contract(writer)->level),
		.note = "a record; 32 under one commit against one record a commit, an LBA each"});
	farlog_writer_close(writer);
	farlog_reader_close(drain);
	free(buffer);
	bench_samples_free(&packed);
	bench_samples_free(&single);
}

struct crowd {
	farlog_shared *shared;
	uint64_t count;
	uint64_t is_over;
};

static void *append_until_over(void *context)
{
	static uint8_t payload[BENCH_PAYLOAD_LEN];
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload)};
	struct farlog_position position;
	struct crowd *crowd = context;
	uint64_t count = 0;

	while (!atomic_load_acquire(&crowd->is_over)) {
		int result = farlog_shared_append(crowd->shared, &entry, 5000000000u, &position);

		if (result != FARLOG_OK)
			bench_fail("shared append", farlog_result_name(result));
		count++;
	}
	__atomic_fetch_add(&crowd->count, count, __ATOMIC_RELAXED);
	return NULL;
}

/* measure_crowd -- records a second of so many threads. */
static double measure_crowd(unsigned thread_count)
{
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .counters_dir = ""};
	pthread_t threads[WAITER_COUNT];
	uint8_t *buffer = malloc(4 * READ_LEN);
	struct crowd crowd = {0};
	struct farlog_error error;
	farlog_reader *drain = open_drain();
	uint64_t start_ns;
	double seconds;

	if (farlog_shared_open(ring_uri, &config, &crowd.shared, &error) != FARLOG_OK)
		bench_fail("open shared", error.text);
	start_ns = clock_monotonic_ns();
	for (unsigned i = 0; i < thread_count; i++)
		if (pthread_create(&threads[i], NULL, append_until_over, &crowd) != 0)
			bench_fail("shared", "cannot start a thread");
	while ((double)(clock_monotonic_ns() - start_ns) < bench_seconds * 1e9) {
		usleep(20000);
		drain_all(drain, buffer, true);
	}
	atomic_store_release(&crowd.is_over, 1);
	for (unsigned i = 0; i < thread_count; i++)
		pthread_join(threads[i], NULL);
	seconds = (double)(clock_monotonic_ns() - start_ns) / 1e9;
	farlog_shared_close(crowd.shared);
	farlog_reader_close(drain);
	free(buffer);
	return (double)crowd.count / seconds;
}

/* read_plainly -- ns a MiB. */
static double read_plainly(uint64_t len)
{
	uint8_t *buffer = aligned_alloc(4096, READ_LEN);
	int fd = open(ring_uri + strlen("nvme:"), O_RDONLY | O_DIRECT | O_CLOEXEC);
	uint64_t start_ns = clock_monotonic_ns();

	if (fd < 0 || buffer == NULL)
		bench_fail("read", ring_uri);
	for (uint64_t off = 0; off < len; off += READ_LEN)
		if (pread(fd, buffer, READ_LEN, (off_t)off) != READ_LEN)
			bench_fail("read", ring_uri);
	close(fd);
	free(buffer);
	return (double)(clock_monotonic_ns() - start_ns) / (double)(len >> 20);
}

static void measure_drain(void)
{
	static uint8_t payload[WRITE_LEN - 64];
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload)};
	struct farlog_writer_config config = {
		.level = FARLOG_LEVEL_VISIBLE, .counters_dir = "", .policy = FARLOG_POLICY_REJECT};
	struct farlog_position position;
	struct bench_samples ours, plain;
	uint8_t *buffer = malloc(4 * READ_LEN);
	farlog_writer *writer;
	uint64_t len;

	format_ring();
	if (farlog_writer_open(ring_uri, &config, &writer, NULL) != FARLOG_OK)
		bench_fail("open", ring_uri);
	while (farlog_submit(writer, &entry, &position) == FARLOG_OK)
		;
	farlog_writer_close(writer);
	bench_samples_make(&ours, 64);
	bench_samples_make(&plain, 64);
	memset(buffer, 0, 4 * READ_LEN);
	for (unsigned i = 0; i < 8; i++) {
		farlog_reader *drain = open_drain();
		uint64_t start = clock_ticks();

		len = drain_all(drain, buffer, false);
		bench_sample(&ours, (clock_ticks() - start) / (len >> 20));
		farlog_reader_close(drain);
		bench_sample(&plain,
			(uint64_t)(read_plainly(len & ~(uint64_t)(READ_LEN - 1)) /
				((double)clock_elapsed_ns(1u << 20) / (1u << 20))));
	}
	bench_report(&(struct bench_case){.name = "blocks.drain",
		.ours = bench_quantile_ns(&ours, 0.5),
		.floor = bench_quantile_ns(&plain, 0.5),
		.unit = "ns/MiB",
		.flush = "none",
		.level = "none",
		.note = "read and checked; reading alone, O_DIRECT, 1 MiB at a time"});
	free(buffer);
	bench_samples_free(&ours);
	bench_samples_free(&plain);
}

/* make_ready -- the ring, and what the floor writes to. */
static void make_ready(void)
{
	static char paths[2][256];
	char asked[600];
	const char *environment = getenv("FARLOG_BENCH_BLOCKS");
	char *second = NULL;

	snprintf(asked, sizeof(asked), "%s", environment != NULL ? environment : "");
	if (environment != NULL && (second = strchr(asked, ',')) == NULL)
		bench_fail("FARLOG_BENCH_BLOCKS", "expected two paths with a comma between them");
	if (second != NULL)
		*second++ = '\0';
	atexit(remove_files);
	snprintf(ring_uri, sizeof(ring_uri), "nvme:%s", file_of(0, second != NULL ? asked : NULL, paths[0]));
	snprintf(floor_path, sizeof(floor_path), "%s", file_of(1, second, paths[1]));
	fill(paths[0]);
	fill(paths[1]);
	format_ring();
}

void bench_blocks_append(void)
{
	make_ready();
	measure_append();
	bench_blocks_fio(ring_uri, floor_path, false);
}

void bench_blocks(void)
{
	double apart, one, many;

	make_ready();
	measure_append();
	measure_packed();
	format_aligned(LBA_LEN_MAX); /* one record an LBA, as before records were packed */
	apart = measure_crowd(WAITER_COUNT);
	format_ring();
	one = measure_crowd(1);
	many = measure_crowd(WAITER_COUNT);
	bench_report(&(struct bench_case){.name = "blocks.shared.256",
		.ours = 1e9 / many,
		.floor = 1e9 / one,
		.unit = "ns",
		.flush = "as above",
		.level = "as above",
		.note = "a record; 32 threads against 1"});
	bench_report(&(struct bench_case){.name = "blocks.shared.256.apart",
		.ours = 1e9 / many,
		.floor = 1e9 / apart,
		.unit = "ns",
		.flush = "as above",
		.level = "as above",
		.note = "a record; 32 threads, packed against 4096 bytes a record"});
	measure_drain();
	format_ring();
	bench_blocks_fio(ring_uri, floor_path, true);
}
