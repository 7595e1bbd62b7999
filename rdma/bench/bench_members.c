/* bench_members.c -- a stream with three rings, two of which an acknowledgement needs, over libfabric's tcp provider
 * and the loopback.
 *
 * Its floor is one such ring, in turns with it. All rings are of one target, whose thread spins on the core that is not
 * the writer's: three targets that spin need three more cores, and three that sleep measure the scheduler. So the
 * members answer one behind the other, as they do not on three hosts. Then three members, one of which is slow, against
 * three that are not: its target's worker sleeps before each flush (test-flush-delay). Then all of them sleep, side by
 * side, as media take their time: what an acknowledgement waits for is not the processor of this host then. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_members.h"
#include "base/clock.h"

#define STREAM_COUNT 3u
#define RING_COUNT 7u /* one alone, three, and three of which the last is slow */
#define BLOCK_COUNT 1000u
#define SAMPLE_COUNT_MAX (4u << 20)
#define DRAIN_EVERY 16u
#define PATIENCE_NS 2000000000u
#define LINE_LEN 512u

/* ---------------------------------------------------------------- targets */

/* fill_token -- of a writer's grant for one ring of a target. */
static void fill_token(uint32_t epoch, unsigned ring, uint8_t token[FARLOG_TOKEN_LEN])
{
	memset(token, 0x42, FARLOG_TOKEN_LEN);
	memcpy(token, &epoch, sizeof(epoch));
	memcpy(token + sizeof(epoch), &ring, sizeof(ring));
}

struct farlog_writer_config members_config(
	uint32_t epoch, unsigned first, unsigned step, uint8_t tokens[MEMBER_COUNT * FARLOG_TOKEN_LEN])
{
	for (unsigned i = 0; i < MEMBER_COUNT; i++)
		fill_token(epoch, first + step * i, tokens + FARLOG_TOKEN_LEN * i);
	return (struct farlog_writer_config){
		.level = FARLOG_LEVEL_VISIBLE, .counters_dir = "", .epoch = epoch, .grant_token = tokens};
}

static int serve_one(
	farlog_target *target, unsigned ring, const char *name, const char *region_uri, struct farlog_error *error)
{
	int result = farlog_target_serve(target, name, region_uri, NULL, error);

	for (uint32_t epoch = MEMBERS_EPOCH_FIRST; epoch <= MEMBERS_EPOCH_LAST && result == FARLOG_OK; epoch++) {
		struct farlog_grant grant = {.role = FARLOG_GRANT_WRITER, .epoch = epoch};

		fill_token(epoch, ring, grant.token);
		result = farlog_target_grant(target, name, &grant, error);
	}
	return result;
}

static void serve(
	const char *address, const char *const *names, const char *const *region_uris, unsigned count, int out)
{
	struct farlog_error error = {0};
	char line[LINE_LEN] = "";
	farlog_target *target;
	int result = farlog_target_open(address, &target, &error);

	for (unsigned i = 0; i < count && result == FARLOG_OK; i++)
		result = serve_one(target, i, names[i], region_uris[i], &error);
	if (result == FARLOG_OK)
		snprintf(line, sizeof(line), "%.150s", farlog_target_uri(target));
	else
		snprintf(line, sizeof(line), "! %.500s", error.text);
	if (write(out, line, sizeof(line)) == sizeof(line))
		for (;;)
			pause();
}

bool members_target_start(struct members_target *target, const char *address, const char *const *names,
	const char *const *region_uris, unsigned count)
{
	char line[LINE_LEN] = "";
	int out[2];

	if (pipe(out) != 0)
		bench_fail("members", "no pipe");
	target->pid = fork();
	if (target->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		bench_pin(1);
		serve(address, names, region_uris, count, out[1]);
		_exit(1);
	}
	close(out[1]);
	if (read(out[0], line, sizeof(line)) != sizeof(line) || line[0] == '!') {
		fprintf(stderr, "members: skipped: %s\n", line + 1);
		members_target_end(target);
		return false;
	}
	close(out[0]);
	snprintf(target->uri, sizeof(target->uri), "%.150s", line);
	return true;
}

void members_target_end(struct members_target *target)
{
	kill(target->pid, SIGKILL);
	waitpid(target->pid, NULL, 0);
}

/* ---------------------------------------------------------------- appends */

/* One stream: its rings, which are drained here where they are near, and its writer. */
struct stream {
	unsigned first; /* of the rings */
	unsigned count;
	farlog_writer *writer;
	struct bench_samples samples;
};

static struct bench_ring rings[RING_COUNT];
static char names[RING_COUNT][8];

static void make_rings(void)
{
	struct farlog_ring_config config = {
		.size_bytes = BENCH_RING_LEN, .is_forced = 1, .salt = 0x77, .stream_name = "bench"};
	struct farlog_error error;

	for (unsigned i = 0; i < RING_COUNT; i++) {
		snprintf(names[i], sizeof(names[i]), "ring%u", i);
		bench_ring_make(&rings[i], names[i], BENCH_RING_LEN);
		if (farlog_ring_format(rings[i].uri, &config, &error) != FARLOG_OK)
			bench_fail("members", error.text);
	}
}

static void open_stream(struct stream *stream, const struct members_target *target)
{
	uint8_t tokens[MEMBER_COUNT * FARLOG_TOKEN_LEN];
	struct farlog_writer_config config = members_config(MEMBERS_EPOCH_FIRST, stream->first, 1, tokens);
	struct farlog_reader_config drain = {.is_drain = 1};
	struct farlog_error error;
	char uri[1024];
	int used = stream->count > 1 ? snprintf(uri, sizeof(uri), "members:2") : 0;

	for (unsigned i = stream->first; i < stream->first + stream->count; i++) {
		used += snprintf(uri + used, sizeof(uri) - (size_t)used, "%s%s/%s?wait=spin&flush=target-cpu",
			stream->count > 1 ? " " : "", target->uri, names[i]);
		if (farlog_reader_open(rings[i].uri, &drain, &rings[i].drain, &error) != FARLOG_OK)
			bench_fail("members", error.text);
		rings[i].buf = malloc(1u << 20);
		if (rings[i].buf == NULL)
			bench_fail("members", "out of memory");
	}
	if (farlog_writer_open(uri, &config, &stream->writer, &error) != FARLOG_OK)
		bench_fail("members", error.text);
	bench_samples_make(&stream->samples, SAMPLE_COUNT_MAX);
}

static void append_block(struct stream *stream)
{
	static uint8_t payload[BENCH_PAYLOAD_LEN];
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload), .class_id = 1};
	struct farlog_position position;
	uint64_t before = clock_ticks();

	for (unsigned i = 0; i < BLOCK_COUNT; i++) {
		uint64_t after;

		payload[0]++;
		if (farlog_append(stream->writer, &entry, PATIENCE_NS, &position) != FARLOG_OK)
			bench_fail("members", "an append was not acknowledged");
		after = clock_ticks();
		if (i >= BLOCK_COUNT / 20)
			bench_sample(&stream->samples, after - before);
		before = after;
	}
}

static void report(const char *name, struct stream *ours, struct stream *floor, double quantile, const char *note)
{
	bench_report(&(struct bench_case){.name = name,
		.ours = bench_quantile_ns(&ours->samples, quantile),
		.floor = bench_quantile_ns(&floor->samples, quantile),
		.unit = "ns",
		.flush = "target-cpu",
		.level = "visible",
		.note = note});
}

/* tell_of_memory -- of rings whose flush takes no time, the last of which is slow; tell_of_medium -- of rings whose
 * flush does. */
static void tell_of_memory(struct stream *streams)
{
	report("members.append.256", &streams[1], &streams[0], 0.5, "p50, 2 of 3; floor: one ring there");
	report("members.append.256.p99", &streams[1], &streams[0], 0.99, "2 of 3; floor: one ring there");
	report("members.slow.256", &streams[2], &streams[1], 0.5, "p50, one of 3 slower by 10 ms; floor: none slower");
	report("members.slow.256.p99", &streams[2], &streams[1], 0.99, "one of 3 slower by 10 ms; floor: none slower");
}

static void tell_of_medium(struct stream *streams)
{
	report("members.medium.256", &streams[1], &streams[0], 0.5,
		"p50, 2 of 3, each flush after a sleep of 20 us; floor: one ring there");
	report("members.medium.256.p99", &streams[1], &streams[0], 0.99,
		"2 of 3, each flush after a sleep of 20 us; floor: one ring there");
}

static void append_in_turns(struct stream streams[STREAM_COUNT])
{
	uint64_t start_ns = clock_monotonic_ns();

	for (unsigned block = 1; (double)(clock_monotonic_ns() - start_ns) < STREAM_COUNT * bench_seconds * 1e9; block++) {
		for (unsigned i = 0; i < STREAM_COUNT; i++)
			append_block(&streams[i]);
		for (unsigned i = 0; i < RING_COUNT && block % DRAIN_EVERY == 0; i++)
			bench_ring_drain(&rings[i]);
	}
}

static void acknowledgements(const char *address, void (*tell)(struct stream *streams))
{
	struct stream streams[STREAM_COUNT] = {
		{.first = 0, .count = 1}, {.first = 1, .count = MEMBER_COUNT}, {.first = 4, .count = MEMBER_COUNT}};
	const char *ring_names[RING_COUNT];
	const char *ring_uris[RING_COUNT];
	struct members_target target;

	make_rings();
	for (unsigned i = 0; i < RING_COUNT; i++) {
		ring_names[i] = names[i];
		ring_uris[i] = rings[i].uri;
	}
	if (members_target_start(&target, address, ring_names, ring_uris, RING_COUNT)) {
		for (unsigned i = 0; i < STREAM_COUNT; i++)
			open_stream(&streams[i], &target);
		append_in_turns(streams);
		tell(streams);
		for (unsigned i = 0; i < STREAM_COUNT; i++) {
			farlog_writer_close(streams[i].writer);
			bench_samples_free(&streams[i].samples);
		}
		members_target_end(&target);
	}
	for (unsigned i = 0; i < RING_COUNT; i++) {
		farlog_reader_close(rings[i].drain);
		free(rings[i].buf);
		unlink(rings[i].path);
	}
}

void bench_members(void)
{
	bench_pin(0);
	acknowledgements("ofi:tcp://127.0.0.1:0?wait=spin&test-flush-delay=10ms:ring6", tell_of_memory);
	acknowledgements("ofi:tcp://127.0.0.1:0?wait=spin&test-flush-delay=20us", tell_of_medium);
	bench_members_sockets();
	bench_members_loss();
	bench_members_takeover();
}
