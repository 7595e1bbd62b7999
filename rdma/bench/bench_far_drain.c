/* bench_far_drain.c -- a drain on another host, and a writer that opens a ring there, by libfabric's tcp provider over
 * loopback.
 *
 * The drain reads, checks and releases a ring that a writer beside it has filled; the target takes part on another
 * core. The floor are READs of 1 MiB one after the other of as many bytes, over a link of the same kind, into one
 * place: nothing is looked at or copied. Both spin, and they take turns ring by ring. Of an opening the floor is that
 * of an empty ring of the least size: connecting, the handshake, an epoch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench_far.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "far/far.h"

#define PIECE_LEN (1u << 20)
#define OPENED_LEN (256ull << 20)
#define LEAST_LEN (1ull << 20)
#define OPEN_COUNT 20u

static void *room(size_t len)
{
	void *bytes = malloc(len);

	if (bytes == NULL)
		bench_fail("far drain", "out of memory");
	memset(bytes, 0, len);
	return bytes;
}

/* fill -- with records of 256 bytes until there is no room. */
static void fill(farlog_writer *writer)
{
	static uint8_t payload[BENCH_PAYLOAD_LEN];
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload), .class_id = 1};
	struct farlog_position position = {0};
	int result;

	while ((result = farlog_append(writer, &entry, 0, &position)) == FARLOG_OK)
		;
	if (result != FARLOG_FULL)
		bench_fail("far drain", "the ring does not fill");
}

/* drain -- all there is. What it took in ns. */
static uint64_t drain(farlog_reader *reader, uint8_t *buf, uint64_t *len)
{
	uint64_t start_ns = clock_monotonic_ns();
	struct farlog_batch batch;
	int result;

	*len = 0;
	while ((result = farlog_reader_read(reader, buf, PIECE_LEN, &batch)) == FARLOG_OK) {
		*len += batch.len;
		if (farlog_reader_release(reader, batch.next_lsn, batch.next_seq, batch.last_epoch) != FARLOG_OK)
			bench_fail("far drain", "not released");
	}
	if (result != FARLOG_NOT_YET)
		bench_fail("far drain", farlog_result_text(result));
	return clock_monotonic_ns() - start_ns;
}

/* link_open -- nothing of ours but the handshake lies between these READs and libfabric. */
static struct far_link *link_open(const char *text)
{
	struct far_hello hello = {
		.magic = FAR_HELLO_MAGIC, .version = FAR_VERSION, .role = REGION_ROLE_READER, .client_id = 1};
	struct far_refusal refusal;
	struct farlog_error error = {.text = "uri"};
	struct far_link *link = NULL;
	struct uri uri;

	far_token(1, hello.token); /* the reader's */
	if (uri_parse(text, &uri, &error) != FARLOG_OK || far_ofi.open(text, &uri, &link, &error) != FARLOG_OK)
		bench_fail("far drain", error.text);
	hello.ring_hash = crc32c_update(0, uri.ring, strlen(uri.ring));
	link->window_len = PIECE_LEN;
	if (link->ops->connect(link, &hello, &refusal, 2000000000u, &error) != FARLOG_OK)
		bench_fail("far drain", error.text);
	return link;
}

static void link_close(struct far_link *link)
{
	uint8_t *copy = link->copy;
	uint64_t copy_len = link->copy_len;

	link->ops->disconnect(link);
	link->ops->close(link);
	munmap(copy, copy_len);
}

/* bare -- READs of so many bytes. What they took in ns. */
static uint64_t bare(struct far_link *link, uint64_t len)
{
	static uint64_t tag;
	uint64_t start_ns = clock_monotonic_ns();

	for (uint64_t at = 0; at < len; at += PIECE_LEN) {
		struct region_span span = {LAYOUT_DATA_OFF + at, len - at < PIECE_LEN ? len - at : PIECE_LEN};

		link->window_off = at;
		if (link->ops->read(link, span, ++tag) != FARLOG_OK)
			bench_fail("far drain", link->broken);
		while (link->done.read_tag != tag)
			if (link->ops->poll(link) != FARLOG_OK)
				bench_fail("far drain", link->broken);
	}
	return clock_monotonic_ns() - start_ns;
}

static void drain_rounds(farlog_writer *writer, farlog_reader *reader, struct far_link *link, uint8_t *buf)
{
	uint64_t start_ns = clock_monotonic_ns();
	uint64_t ours_ns = 0, bare_ns = 0, total = 0;
	uint64_t reads_before = farlog_reader_reads(reader);
	char note[160];
	double mb;
	double reads;

	while ((double)(clock_monotonic_ns() - start_ns) < bench_seconds * 1e9) {
		uint64_t len;

		fill(writer);
		ours_ns += drain(reader, buf, &len);
		bare_ns += bare(link, len);
		total += len;
	}
	mb = (double)total / 1e6;
	reads = (double)(farlog_reader_reads(reader) - reads_before) / mb;
	snprintf(note, sizeof(note),
		"%.0f MB/s a core, releases and all; floor: %.0f MB/s, READs of 1 MiB of the same link",
		mb / ((double)ours_ns / 1e9), mb / ((double)bare_ns / 1e9));
	bench_report(&(struct bench_case){.name = "ofi.drain",
		.ours = (double)ours_ns / 1e3 / mb,
		.floor = (double)bare_ns / 1e3 / mb,
		.unit = "us/MB",
		.flush = "target cpu",
		.level = "visible",
		.note = note});
	bench_report(&(struct bench_case){.name = "ofi.drain.reads",
		.ours = reads,
		.floor = 1e6 / PIECE_LEN,
		.unit = "READ/MB",
		.flush = "target cpu",
		.level = "visible",
		.note = "posted by the drain; floor: READs of 1 MiB"});
}

void bench_far_drain(void)
{
	struct farlog_writer_config local = {
		.level = FARLOG_LEVEL_VISIBLE, .counters_dir = "", .policy = FARLOG_POLICY_REJECT};
	uint8_t token[FARLOG_TOKEN_LEN];
	struct farlog_reader_config far = {.is_drain = 1, .grant_token = token};
	struct farlog_error error;
	struct bench_ring ring;
	struct other other;
	struct far_link *link;
	farlog_writer *writer;
	farlog_reader *reader;
	uint8_t *buf = room(PIECE_LEN);
	char uri[192];

	far_token(0, token);
	bench_ring_make(&ring, "far-drain", BENCH_RING_LEN);
	if (far_start(&other, ring.uri)) {
		snprintf(uri, sizeof(uri), "%s?wait=spin", other.uri);
		if (farlog_writer_open(ring.uri, &local, &writer, &error) != FARLOG_OK ||
			farlog_reader_open(uri, &far, &reader, &error) != FARLOG_OK)
			bench_fail("far drain", error.text);
		link = link_open(uri);
		drain_rounds(writer, reader, link, buf);
		link_close(link);
		farlog_reader_close(reader);
		farlog_writer_close(writer);
		far_end(&other);
	}
	unlink(ring.path);
	free(buf);
}

/* time_openings -- of a far writer, each with the next epoch. The median in ns; 0 = there is no libfabric. */
static double time_openings(uint64_t ring_len)
{
	struct bench_ring ring;
	struct bench_samples samples;
	struct other other;
	double median = 0;
	char uri[192];

	bench_ring_make(&ring, "far-open", ring_len);
	if (far_start(&other, ring.uri)) {
		bench_samples_make(&samples, OPEN_COUNT);
		snprintf(uri, sizeof(uri), "%s?wait=spin", other.uri);
		for (uint32_t epoch = FAR_EPOCH_FIRST; epoch < FAR_EPOCH_FIRST + OPEN_COUNT; epoch++) {
			uint8_t token[FARLOG_TOKEN_LEN];
			struct farlog_writer_config config = {
				.level = FARLOG_LEVEL_VISIBLE, .counters_dir = "", .epoch = epoch, .grant_token = token};
			struct farlog_error error;
			farlog_writer *writer;
			uint64_t before = clock_ticks();

			far_token(epoch, token);
			if (farlog_writer_open(uri, &config, &writer, &error) != FARLOG_OK)
				bench_fail("far open", error.text);
			bench_sample(&samples, clock_ticks() - before);
			farlog_writer_close(writer);
		}
		median = bench_quantile_ns(&samples, 0.5);
		bench_samples_free(&samples);
		far_end(&other);
	}
	unlink(ring.path);
	return median;
}

void bench_far_open(void)
{
	double floor_ns = time_openings(LEAST_LEN);
	double ours_ns = floor_ns > 0 ? time_openings(OPENED_LEN) : 0;

	if (ours_ns > 0)
		bench_report(&(struct bench_case){.name = "ofi.open",
			.ours = ours_ns / 1e6,
			.floor = floor_ns / 1e6,
			.unit = "ms",
			.flush = "target cpu",
			.level = "visible",
			.note = "a writer of an empty ring of 256 MiB, median; floor: of 1 MiB"});
}
