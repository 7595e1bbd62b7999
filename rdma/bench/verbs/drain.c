/* drain.c -- see drain.h. What is drained was written by a writer beside the ring; both sides READ up to 1 MiB at a
 * time, one after the other. */
#include "drain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define PIECE_LEN (1u << 20)
#define FILL_LEN (16ull << 20)

struct amount {
	uint64_t ns;
	uint64_t bytes;
};

_Noreturn static void fail(const char *what, const char *text)
{
	fprintf(stderr, "bench_verbs: drain: %s: %s\n", what, text);
	exit(1);
}

/* fill -- by a writer that is gone when the drain comes. */
static void fill(const char *uri, uint32_t payload_len)
{
	static uint8_t payload[4096];
	struct farlog_writer_config config = {
		.level = FARLOG_LEVEL_VISIBLE, .counters_dir = "", .policy = FARLOG_POLICY_REJECT};
	struct farlog_error error = {0};
	farlog_writer *writer;
	struct farlog_entry entry = {.data = payload, .len = payload_len, .class_id = 1};
	struct farlog_position position = {0};
	uint64_t until_lsn;
	int result;

	if (farlog_writer_open(uri, &config, &writer, &error) != FARLOG_OK)
		fail("open writer", error.text);
	until_lsn = farlog_writer_recovery(writer)->tail_lsn + FILL_LEN;
	do {
		result = farlog_append(writer, &entry, 0, &position);
		if (result != FARLOG_OK)
			fail("append", farlog_result_text(result));
	} while (position.end_lsn < until_lsn);
	farlog_writer_close(writer);
}

static void drain_all(farlog_reader *reader, uint8_t *buf, struct amount *amount)
{
	uint64_t start_ns = clock_monotonic_ns();
	struct farlog_batch batch;
	int result;

	while ((result = farlog_reader_read(reader, buf, PIECE_LEN, &batch)) == FARLOG_OK) {
		amount->bytes += batch.len;
		result = farlog_reader_release(reader, batch.next_lsn, batch.next_seq, batch.last_epoch);
		if (result != FARLOG_OK)
			fail("release", farlog_result_text(result));
	}
	if (result != FARLOG_NOT_YET)
		fail("read", farlog_result_text(result));
	amount->ns += clock_monotonic_ns() - start_ns;
}

static void read_as_much(struct floor *floor, uint64_t bytes, struct amount *amount)
{
	uint64_t start_ns = clock_monotonic_ns();

	for (uint64_t at = 0; at < bytes; at += PIECE_LEN)
		floor_read(floor, bytes - at < PIECE_LEN ? (uint32_t)(bytes - at) : PIECE_LEN);
	amount->ns += clock_monotonic_ns() - start_ns;
	amount->bytes += bytes;
}

static double us_per_mb(const struct amount *amount)
{
	return (double)amount->ns / 1e3 / ((double)amount->bytes / 1e6);
}

static void print(const char *name, double ours, double floor, const char *unit, const char *note)
{
	printf("{\"name\":\"%s\",\"ours\":%.3f,\"floor\":%.3f,\"ratio\":%.3f,\"unit\":\"%s\",\"flush\":\"rdma-flush\","
		   "\"level\":\"visible\",\"note\":\"%s\"",
		name, ours, floor, ours / floor, unit, note);
}

void drain_measure(const struct drain_ends *ends, struct floor *floor, void (*end_line)(void))
{
	struct farlog_reader_config far = {.is_drain = 1, .grant_token = ends->token};
	struct amount ours = {0}, bare = {0};
	struct farlog_error error = {0};
	farlog_reader *reader;
	uint8_t *buf = calloc(1, PIECE_LEN);
	char note[128];
	double reads;

	if (buf == NULL || farlog_reader_open(ends->far_uri, &far, &reader, &error) != FARLOG_OK)
		fail("open", error.text);
	reads = -(double)farlog_reader_reads(reader);
	fill(ends->near_uri, ends->payload_len);
	drain_all(reader, buf, &ours);
	read_as_much(floor, ours.bytes, &bare);
	reads += (double)farlog_reader_reads(reader);
	snprintf(note, sizeof(note), "%.0f MB/s a core, both ends and the release; floor: %.0f MB/s, READs of 1 MiB",
		1e6 / us_per_mb(&ours), 1e6 / us_per_mb(&bare));
	print("verbs.drain", us_per_mb(&ours), us_per_mb(&bare), "us/MB", note);
	end_line();
	print("verbs.drain.reads", reads / ((double)ours.bytes / 1e6), 1e6 / PIECE_LEN, "READ/MB", "floor: READs of 1 MiB");
	end_line();
	farlog_reader_close(reader);
	free(buf);
}
