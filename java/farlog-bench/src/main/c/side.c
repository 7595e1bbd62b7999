/* side.c -- the C half of the Java benchmark: the same appends, timed the same way, in the same process and on the same
 * thread.
 *
 * A block is one downcall. Every record is timed by two readings of CLOCK_MONOTONIC, as System.nanoTime does it. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "farlog/farlog.h"

#define PAYLOAD_COUNT 64u
#define DRAIN_BUF_LEN (1u << 20)

struct side {
	farlog_writer *writer;
	farlog_reader *drain;
	uint8_t *buf;
	uint32_t len;
	uint8_t payloads[PAYLOAD_COUNT][256] __attribute__((aligned(64)));
};

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

void bench_side_close(struct side *side)
{
	if (side == NULL)
		return;
	farlog_reader_close(side->drain);
	farlog_writer_close(side->writer);
	free(side->buf);
	free(side);
}

/* bench_side_open -- a writer at `visible` and a drain of the ring at uri; payloads of len bytes, at most 256. NULL:
 * refused. */
struct side *bench_side_open(const char *uri, uint32_t len)
{
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .counters_dir = ""};
	struct farlog_reader_config drain = {.is_drain = 1};
	struct side *side = aligned_alloc(64, sizeof(*side));

	if (side == NULL || len > sizeof(side->payloads[0]))
		return NULL;
	memset(side, 0, sizeof(*side));
	side->len = len;
	side->buf = malloc(DRAIN_BUF_LEN);
	for (size_t i = 0; i < sizeof(side->payloads); i++)
		((uint8_t *)side->payloads)[i] = (uint8_t)(i * 31 + i / 256);
	if (side->buf != NULL && farlog_writer_open(uri, &config, &side->writer, NULL) == FARLOG_OK &&
		farlog_reader_open(uri, &drain, &side->drain, NULL) == FARLOG_OK)
		return side;
	bench_side_close(side);
	return NULL;
}

static int append(struct side *side, uint32_t i)
{
	struct farlog_entry entry = {.data = side->payloads[i % PAYLOAD_COUNT], .len = side->len, .class_id = 1};
	struct farlog_position position;

	return farlog_append(side->writer, &entry, 0, &position);
}

/* bench_side_block -- count records back to back. */
int bench_side_block(struct side *side, int64_t *samples_ns, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		int64_t before = now_ns();
		int result = append(side, i);

		samples_ns[i] = now_ns() - before;
		if (result != FARLOG_OK)
			return result;
	}
	return FARLOG_OK;
}

/* bench_side_paced -- count records due every interval_ns; a late one counts from its due time. */
int bench_side_paced(struct side *side, int64_t *samples_ns, uint32_t count, int64_t interval_ns)
{
	int64_t due = now_ns() + interval_ns;

	for (uint32_t i = 0; i < count; i++, due += interval_ns) {
		int result;

		while (now_ns() < due)
			;
		result = append(side, i);
		samples_ns[i] = now_ns() - due;
		if (result != FARLOG_OK)
			return result;
	}
	return FARLOG_OK;
}

int bench_side_drain(struct side *side)
{
	struct farlog_batch batch;
	int result;

	while ((result = farlog_reader_read(side->drain, side->buf, DRAIN_BUF_LEN, &batch)) == FARLOG_OK) {
		result = farlog_reader_release(side->drain, batch.next_lsn, batch.next_seq, batch.last_epoch);
		if (result != FARLOG_OK)
			return result;
	}
	return result == FARLOG_NOT_YET ? FARLOG_OK : result;
}
