/* bench_ring.c -- the ring under test and the floor beside it, both on tmpfs with the flush forced. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "mem/persist.h"

#define DRAIN_BUF_LEN (1u << 20)

static const char *directory(void)
{
	const char *chosen = getenv("FARLOG_BENCH_DIR");

	return chosen != NULL ? chosen : "/dev/shm";
}

void bench_ring_make(struct bench_ring *ring, const char *name, uint64_t size_bytes)
{
	struct farlog_ring_config config = {.size_bytes = size_bytes, .is_forced = 1};
	struct farlog_error error;

	memset(ring, 0, sizeof(*ring));
	snprintf(ring->path, sizeof(ring->path), "%s/farlog-bench-%ld-%s", directory(), (long)getpid(), name);
	snprintf(ring->uri, sizeof(ring->uri), "mem:%s?flush=auto", ring->path);
	if (farlog_ring_format(ring->uri, &config, &error) != FARLOG_OK)
		bench_fail("format", error.text);
}

void bench_ring_open(struct bench_ring *ring)
{
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .counters_dir = ""};
	struct farlog_reader_config drain = {.is_drain = 1};
	struct farlog_error error;

	if (farlog_writer_open(ring->uri, &config, &ring->writer, &error) != FARLOG_OK)
		bench_fail("open writer", error.text);
	if (farlog_reader_open(ring->uri, &drain, &ring->drain, &error) != FARLOG_OK)
		bench_fail("open drain", error.text);
	ring->buf = malloc(DRAIN_BUF_LEN);
	if (ring->buf == NULL)
		bench_fail("open drain", "out of memory");
}

void bench_ring_close(struct bench_ring *ring)
{
	farlog_reader_close(ring->drain);
	farlog_writer_close(ring->writer);
	free(ring->buf);
	unlink(ring->path);
}

void bench_ring_drain(struct bench_ring *ring)
{
	struct farlog_batch batch;

	while (farlog_reader_read(ring->drain, ring->buf, DRAIN_BUF_LEN, &batch) == FARLOG_OK)
		if (farlog_reader_release(ring->drain, batch.next_lsn, batch.next_seq, batch.last_epoch) != FARLOG_OK)
			bench_fail("release", "refused");
}

static const enum farlog_flush_method candidates[] = {
	FARLOG_FLUSH_NT_STORE, FARLOG_FLUSH_CLFLUSHOPT, FARLOG_FLUSH_CLWB, FARLOG_FLUSH_CVAP};

static persist_copy_fn floor_copy;
static volatile uint32_t crc_sink;

static uint64_t time_method(struct bench_floor *floor, enum farlog_flush_method method)
{
	static const uint8_t record[BENCH_RECORD_LEN] __attribute__((aligned(64)));
	uint64_t start;

	floor_copy = persist_find_copy(method);
	start = clock_ticks();
	for (unsigned i = 0; i < BENCH_RING_LEN / BENCH_RECORD_LEN; i++) {
		bench_floor_write(floor, record, BENCH_CRC_CORE);
		bench_floor_fence();
	}
	return clock_ticks() - start;
}

void bench_floor_make(struct bench_floor *floor, const char *name)
{
	uint64_t best = UINT64_MAX;
	int fd;

	memset(floor, 0, sizeof(*floor));
	snprintf(floor->path, sizeof(floor->path), "%s/farlog-bench-%ld-%s.floor", directory(), (long)getpid(), name);
	fd = open(floor->path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || posix_fallocate(fd, 0, (off_t)BENCH_RING_LEN) != 0)
		bench_fail(floor->path, "cannot be made");
	floor->map = mmap(NULL, BENCH_RING_LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	close(fd);
	if (floor->map == MAP_FAILED)
		bench_fail(floor->path, "cannot be mapped");
	for (size_t i = 0; i < sizeof(candidates) / sizeof(candidates[0]); i++) {
		uint64_t took;

		if (!persist_is_supported(candidates[i]))
			continue;
		took = time_method(floor, candidates[i]);
		if (took < best) {
			best = took;
			floor->method = candidates[i];
		}
	}
	floor_copy = persist_find_copy(floor->method);
	floor->method_name = persist_method_name(floor->method);
}

void bench_floor_free(struct bench_floor *floor)
{
	munmap(floor->map, BENCH_RING_LEN);
	unlink(floor->path);
}

#if defined(__x86_64__)
#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t crc_serial(const uint8_t *data)
{
	uint64_t crc = UINT32_MAX;

	for (unsigned off = 0; off < BENCH_RECORD_LEN; off += 8) {
		uint64_t word;

		memcpy(&word, data + off, sizeof(word));
		crc = _mm_crc32_u64(crc, word);
	}
	return ~(uint32_t)crc;
}
#else
static uint32_t crc_serial(const uint8_t *data)
{
	return crc32c_update(0, data, BENCH_RECORD_LEN);
}
#endif

void bench_floor_write(struct bench_floor *floor, const uint8_t *record, enum bench_crc crc)
{
	floor_copy(floor->map + floor->off, record, BENCH_RECORD_LEN);
	crc_sink = crc == BENCH_CRC_CORE ? crc32c_update(0, record, BENCH_RECORD_LEN) : crc_serial(record);
	floor->off = (floor->off + BENCH_RECORD_LEN) & (BENCH_RING_LEN - 1);
}

void bench_floor_fence(void)
{
	persist_fence();
}
