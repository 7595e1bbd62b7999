/* bench_recover.c -- opening a ring full of undrained records against one CRC pass over the same bytes. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "ring/layout.h"

#define ROUND_COUNT 7u

static volatile uint32_t crc_sink;

static void fill(struct bench_ring *ring)
{
	uint8_t payload[BENCH_PAYLOAD_LEN];
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload), .class_id = 1};
	struct farlog_position position;

	memset(payload, 0x5A, sizeof(payload));
	while (farlog_try_append(ring->writer, &entry, &position) == FARLOG_OK)
		payload[position.seq % sizeof(payload)]++;
}

/* make_room -- the next opening appends an EPOCH record: a few records leave. */
static void make_room(struct bench_ring *ring)
{
	struct farlog_batch batch;

	if (farlog_reader_read(ring->drain, ring->buf, 64u << 10, &batch) != FARLOG_OK ||
		farlog_reader_release(ring->drain, batch.next_lsn, batch.next_seq, batch.last_epoch) != FARLOG_OK)
		bench_fail("release", "refused");
}

/* open_ns -- what an opening says its recovery took, and how many bytes it looked at. */
static double open_ns(struct bench_ring *ring, uint64_t *scanned_bytes)
{
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .counters_dir = ""};
	const struct farlog_recovery *recovery;
	struct farlog_error error;
	double took_ns;

	if (farlog_writer_open(ring->uri, &config, &ring->writer, &error) != FARLOG_OK)
		bench_fail("open writer", error.text);
	recovery = farlog_writer_recovery(ring->writer);
	took_ns = (double)recovery->duration_ns;
	*scanned_bytes = recovery->scanned_bytes;
	farlog_writer_close(ring->writer);
	ring->writer = NULL;
	return took_ns;
}

static double crc_pass_ns(const uint8_t *data, uint64_t len)
{
	uint64_t start = clock_ticks();

	crc_sink = crc32c_update(0, data, len);
	return (double)clock_elapsed_ns(clock_ticks() - start);
}

static const uint8_t *map_ring(const struct bench_ring *ring)
{
	int fd = open(ring->path, O_RDONLY);
	const uint8_t *map = mmap(NULL, BENCH_RING_LEN, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);

	close(fd);
	if (map == MAP_FAILED)
		bench_fail(ring->path, "cannot be mapped");
	return map;
}

void bench_recover(void)
{
	struct bench_ring ring;
	const uint8_t *map;
	double ours = 0;
	double floor = 0;

	bench_pin(0);
	bench_ring_make(&ring, "recover", BENCH_RING_LEN);
	bench_ring_open(&ring);
	fill(&ring);
	farlog_writer_close(ring.writer);
	map = map_ring(&ring);
	for (unsigned round = 0; round < ROUND_COUNT; round++) {
		uint64_t scanned_bytes;
		double took;

		make_room(&ring);
		took = open_ns(&ring, &scanned_bytes) / (double)scanned_bytes;
		ours = round == 0 || took < ours ? took : ours;
		took = crc_pass_ns(map + LAYOUT_DATA_OFF, scanned_bytes) / (double)scanned_bytes;
		floor = round == 0 || took < floor ? took : floor;
	}
	bench_report(&(struct bench_case){.name = "recover.scan",
		.ours = ours * 1000,
		.floor = floor * 1000,
		.unit = "ps/byte",
		.flush = "auto",
		.level = "visible",
		.note = "least of 7; 64 MiB undrained, 256-byte records, with write-back and orphan search"});
	munmap((void *)map, BENCH_RING_LEN);
	bench_ring_close(&ring);
}
