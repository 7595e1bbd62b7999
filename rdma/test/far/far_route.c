/* far_route.c -- a route over libfabric, whose optional legs' targets are stopped and killed while required appends go
 * on: those must not wait for them, what was spilled is carried when the target is back, what was dropped is counted in
 * a GAP. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "far_test.h"
#include "farlog/route.h"
#include "ring/layout.h"
#include "ring/record.h"
#include "adversary/memory.h"

#define BLOCK_COUNT 8u
#define BLOCK_LEN 100u
/* of the p99s, in blocks that take turns: what waits for a stopped target takes thousands of times as long */
#define TIMES_WORSE 5u

enum { ORDERS, AUDIT, METRICS, BED_COUNT };

struct far_route {
	struct bed beds[BED_COUNT];
	char spill_path[128];
	char spill_uri[160];
	farlog_route *route;
	uint64_t number;
};

static bool open_route(struct far_route *far)
{
	static const char *const names[BED_COUNT] = {"orders", "audit", "metrics"};
	struct farlog_route_leg legs[BED_COUNT];
	struct farlog_route_config config = {.name = "far", .legs = legs, .leg_count = BED_COUNT};
	struct farlog_error error = {0};
	uint8_t token[FARLOG_TOKEN_LEN];

	memset(legs, 0, sizeof(legs));
	host_token('a', token);
	snprintf(far->spill_path, sizeof(far->spill_path), "/dev/shm/farlog-far-route-%ld.spill", (long)getpid());
	snprintf(far->spill_uri, sizeof(far->spill_uri), "mem:%s", far->spill_path);
	for (unsigned i = 0; i < BED_COUNT; i++) {
		if (!bed_make(&far->beds[i], "/dev/shm", "ofi:tcp://127.0.0.1:0") ||
			!CHECK_ASK(&far->beds[i].host, "grant ring 0 2 a"))
			return false;
		legs[i] = (struct farlog_route_leg){.name = names[i],
			.uri = far->beds[i].uri,
			.is_required = i == ORDERS,
			.config = {.level = far->beds[i].level,
				.epoch = 2,
				.counters_dir = "",
				.grant_token = token,
				.deadline_ns = LONG_NS}};
	}
	legs[AUDIT].policy = FARLOG_ROUTE_SPILL;
	legs[AUDIT].spill_uri = far->spill_uri;
	legs[AUDIT].spill_level = FARLOG_LEVEL_VISIBLE;
	legs[AUDIT].buffer_bytes = 4 * RING_BYTES;
	legs[METRICS].buffer_bytes = LAYOUT_DATA_OFF + (64u << 10);
	return CHECK_OK(farlog_route_open(&config, &far->route, &error));
}

static void close_route(struct far_route *far)
{
	(void)farlog_route_close(far->route, LONG_NS);
	for (unsigned i = 0; i < BED_COUNT; i++)
		bed_free(&far->beds[i]);
	unlink(far->spill_path);
}

/* append_next -- the time that it took. */
static uint64_t append_next(struct far_route *far)
{
	uint64_t words[64];
	uint64_t number = far->number++;
	struct farlog_entry entry = {.data = words, .len = (uint32_t)(8 + number % 63 * 8), .class_id = 1};
	struct farlog_route_position position;
	uint64_t start_ns = clock_monotonic_ns();
	int result;

	for (unsigned i = 0; i < 64; i++)
		words[i] = number;
	result = farlog_route_append(far->route, &entry, 0, 0, &position);
	CHECK(result == FARLOG_OK);
	CHECK(position.level == far->beds[ORDERS].level);
	return clock_monotonic_ns() - start_ns;
}

static int compare(const void *a, const void *b)
{
	uint64_t first = *(const uint64_t *)a;
	uint64_t second = *(const uint64_t *)b;

	return (first > second) - (first < second);
}

static uint64_t p99(uint64_t *times, unsigned count)
{
	qsort(times, count, sizeof(times[0]), compare);
	return times[count * 99 / 100];
}

static void signal_optional(struct far_route *far, int signal_number)
{
	kill(far->beds[AUDIT].host.pid, signal_number);
	kill(far->beds[METRICS].host.pid, signal_number);
}

/* measure -- how many times longer the required append takes, at its p99, while the optional legs' targets are
 * stopped. */
static double measure(struct far_route *far, unsigned block_count, unsigned block_len)
{
	static uint64_t running[BLOCK_COUNT * BLOCK_LEN], stopped[BLOCK_COUNT * BLOCK_LEN];
	unsigned count = 0;

	for (unsigned block = 0; block < block_count; block++) {
		CHECK(farlog_route_catch_up(far->route, LONG_NS) == FARLOG_OK);
		for (unsigned i = 0; i < block_len; i++)
			running[count + i] = append_next(far);
		signal_optional(far, SIGSTOP);
		for (unsigned i = 0; i < block_len; i++)
			stopped[count + i] = append_next(far);
		signal_optional(far, SIGCONT);
		count += block_len;
	}
	return (double)p99(stopped, count) / (double)p99(running, count);
}

/* check_metrics -- numbers in order, and the gaps between them say exactly what is missing. */
static void check_metrics(const struct far_route *far, uint64_t dropped)
{
	struct farlog_error error = {0};
	static uint8_t buffer[256 << 10];
	farlog_reader *reader = NULL;
	struct farlog_batch batch;
	uint64_t next = 0, missing = 0;

	CHECK_OK(farlog_reader_open(far->beds[METRICS].local_uri, NULL, &reader, &error));
	while (reader != NULL && farlog_reader_read(reader, buffer, sizeof(buffer), &batch) == FARLOG_OK)
		for (size_t at = 0; at < batch.len;) {
			struct record_header header;
			struct farlog_gap gap;
			uint64_t number;

			memcpy(&header, buffer + at, sizeof(header));
			memcpy(&gap, buffer + at + RECORD_HEADER_LEN, header.flags == RECORD_FLAG_GAP ? sizeof(gap) : 0);
			memcpy(&number, buffer + at + RECORD_HEADER_LEN, sizeof(number));
			if (header.flags == RECORD_FLAG_GAP) {
				CHECK(gap.from_number == next + 1 && gap.to_number == next + gap.count);
				missing += gap.count;
				next += gap.count;
			} else if (header.flags == 0)
				CHECK(number == next++);
			at += header.flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN :
												   record_extent(64, header.key_len, header.payload_len);
		}
	farlog_reader_close(reader);
	CHECK(next == far->number);
	CHECK(missing == dropped && dropped > 0);
}

static void expect_all(const char *uri, uint64_t count)
{
	struct farlog_error error = {0};
	farlog_reader *reader = NULL;

	if (CHECK_OK(farlog_reader_open(uri, NULL, &reader, &error)))
		expect_numbers(reader, 0, count);
	farlog_reader_close(reader);
}

/* come_back -- the audit's target was killed, the other one stands still: records wait here, and there is less room for
 * the other one's. */
static void come_back(struct far_route *far)
{
	struct farlog_leg_stats stats;

	kill(far->beds[METRICS].host.pid, SIGSTOP);
	host_kill(&far->beds[AUDIT].host);
	for (unsigned i = 0; i < 500; i++)
		(void)append_next(far);
	CHECK(farlog_route_stats(far->route, AUDIT, &stats) == FARLOG_OK && stats.behind_bytes > 0 &&
		stats.dropped_count == 0);
	CHECK(farlog_route_stats(far->route, METRICS, &stats) == FARLOG_OK && stats.dropped_count > 0);
	kill(far->beds[METRICS].host.pid, SIGCONT);
	if (!bed_again(&far->beds[AUDIT]) || !CHECK_ASK(&far->beds[AUDIT].host, "grant ring 0 2 a"))
		return;
	CHECK(farlog_route_catch_up(far->route, LONG_NS) == FARLOG_OK);
	(void)append_next(far);
	CHECK(farlog_route_catch_up(far->route, LONG_NS) == FARLOG_OK);
	CHECK(farlog_route_stats(far->route, METRICS, &stats) == FARLOG_OK);
	expect_all(far->beds[ORDERS].local_uri, far->number);
	expect_all(far->beds[AUDIT].local_uri, far->number);
	check_metrics(far, stats.dropped_count);
}

void test_route(void)
{
	struct far_route far = {.number = 0};
	double times;

	if (open_route(&far)) {
		times = measure(&far, BLOCK_COUNT, BLOCK_LEN);
		printf("far: route: p99 of required appends with the optional targets stopped / running: %.2f\n", times);
		CHECK(times < TIMES_WORSE);
		if (times < TIMES_WORSE)
			come_back(&far);
	}
	close_route(&far);
}
