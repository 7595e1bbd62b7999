/* far_members.c -- a stream with three rings at a target of this process: one of them slow, and all of them fenced
 * while no next writer comes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "far_test.h"
#include "members/members.h"
#include "log/writer.h"

#define COUNT 3u
#define EPOCH 2u

static const char *const names[COUNT] = {"one", "two", "three"};
static const char *const plain[COUNT] = {"", "", ""};
static const char *const spinning[COUNT] = {"?wait=spin", "?wait=spin", "?wait=spin"};
static const char *const rails[COUNT] = {"?from=127.0.0.2", "?from=127.0.0.3", "?from=127.0.0.2"};

struct stream {
	farlog_target *target;
	farlog_writer *writer;
	char paths[COUNT][96];
};

static bool serve_one(struct stream *stream, unsigned i)
{
	struct farlog_ring_config config = {.size_bytes = RING_BYTES, .is_forced = 1, .salt = 7, .stream_name = "members"};
	struct farlog_grant grant = {.role = FARLOG_GRANT_WRITER, .epoch = EPOCH, .token = {(uint8_t)i, 1}};
	struct farlog_error error = {0};
	char uri[128];

	snprintf(stream->paths[i], sizeof(stream->paths[i]), "/dev/shm/farlog-far-%ld-%s", (long)getpid(), names[i]);
	snprintf(uri, sizeof(uri), "mem:%s?flush=auto", stream->paths[i]);
	return CHECK_OK(farlog_ring_format(uri, &config, &error)) &&
		CHECK_OK(farlog_target_serve(stream->target, names[i], uri, NULL, &error)) &&
		CHECK_OK(farlog_target_grant(stream->target, names[i], &grant, &error));
}

/* make_stream -- two of three are needed. options: of each ring's URI. */
static bool make_stream(struct stream *stream, const char *address, const char *const options[COUNT])
{
	uint8_t tokens[COUNT * FARLOG_TOKEN_LEN] = {0};
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE,
		.epoch = EPOCH,
		.counters_dir = "",
		.grant_token = tokens,
		.deadline_ns = LONG_NS};
	struct farlog_error error = {0};
	char uri[512];
	int used = snprintf(uri, sizeof(uri), "members:2");
	bool is_there;

	memset(stream, 0, sizeof(*stream));
	is_there = CHECK_OK(farlog_target_open(address, &stream->target, &error));
	for (unsigned i = 0; i < COUNT && is_there; i++) {
		tokens[FARLOG_TOKEN_LEN * i] = (uint8_t)i;
		tokens[FARLOG_TOKEN_LEN * i + 1] = 1;
		is_there = serve_one(stream, i);
		used += snprintf(uri + used, sizeof(uri) - (size_t)used, " %s/%s%s", farlog_target_uri(stream->target),
			names[i], options[i]);
	}
	return is_there && CHECK_OK(farlog_writer_open(uri, &config, &stream->writer, &error));
}

static void free_stream(struct stream *stream)
{
	if (stream->writer != NULL)
		(void)farlog_writer_close(stream->writer);
	farlog_target_close(stream->target);
	for (unsigned i = 0; i < COUNT; i++)
		unlink(stream->paths[i]);
}

static bool is_in(const struct stream *stream, unsigned i, enum farlog_member_state state)
{
	return atomic_load_relaxed(&members_of(stream->writer->region)->counters[i].state) == state;
}

static void wait_until_in(struct stream *stream, unsigned i, enum farlog_member_state state)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);

	while (!is_in(stream, i, state) && clock_monotonic_ns() < until_ns)
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	CHECK(is_in(stream, i, state));
}

/* A member that takes longer than its deadline is waited for by nobody, is counted, and catches up; by links that spin,
 * which have nothing to sleep on. */
void test_slow_member(void)
{
	struct farlog_position position = {0};
	struct stream stream;

	if (make_stream(&stream, "ofi:tcp://127.0.0.1:0?test-flush-delay=60ms:three", spinning)) {
		for (uint64_t i = 0; i < 20; i++) {
			CHECK(append_number(stream.writer, i, LONG_NS, &position) == FARLOG_OK);
			CHECK(position.copies == 2 || i == 0);
		}
		wait_until_in(&stream, 2, FARLOG_MEMBER_LATE);
		CHECK(members_of(stream.writer->region)->counters[2].demotion_count >= 1);
		CHECK(members_of(stream.writer->region)->counters[2].eviction_count == 0);
		wait_until_in(&stream, 2, FARLOG_MEMBER_UP);
		CHECK(members_of(stream.writer->region)->counters[2].confirmed_lsn == position.end_lsn);
	}
	free_stream(&stream);
}

/* wait_for_record -- its bytes are there, and on no other word of the target. */
static void wait_for_record(const struct stream *stream, unsigned i, uint64_t lsn)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);
	int fd = open(stream->paths[i], O_RDONLY | O_CLOEXEC);
	uint32_t magic = 0;

	while (magic != RECORD_MAGIC && clock_monotonic_ns() < until_ns)
		if (pread(fd, &magic, sizeof(magic), (off_t)(LAYOUT_DATA_OFF + lsn)) != sizeof(magic))
			break;
	CHECK(magic == RECORD_MAGIC);
	close(fd);
}

static void fence_all(struct stream *stream)
{
	struct farlog_error error = {0};

	for (unsigned i = 0; i < COUNT; i++)
		CHECK_OK(farlog_target_fence(stream->target, names[i], EPOCH + 1, NULL, &error));
}

/* What has come to all members, and was fenced before any of them could say so: it is in every log to come, and that is
 * known before the next writer. */
void test_fenced_under_way(void)
{
	static const uint8_t data[100];
	struct farlog_entry entry = {.data = data, .len = sizeof(data), .class_id = 1};
	struct farlog_position position = {0};
	struct farlog_position found;
	struct stream stream;
	uint64_t start_ns;
	uint64_t durable_lsn;
	int waited;

	if (make_stream(&stream, "ofi:tcp://127.0.0.1:0?test-flush-delay=300ms", plain)) {
		CHECK(farlog_submit(stream.writer, &entry, &position) == FARLOG_OK);
		CHECK(farlog_poll(stream.writer, &durable_lsn) == FARLOG_OK); /* it is on its way */
		for (unsigned i = 0; i < COUNT; i++)
			wait_for_record(&stream, i, position.lsn);
		fence_all(&stream);
		start_ns = clock_monotonic_ns();
		waited = farlog_wait(stream.writer, position.end_lsn, LONG_NS);
		/* OK: this machine was so slow that the delay was over before the fence */
		CHECK(waited == FARLOG_UNKNOWN || waited == FARLOG_OK);
		CHECK(farlog_resolve(stream.writer, position.lsn, LONG_NS, &found) == FARLOG_OK);
		CHECK(found.seq == position.seq && found.end_lsn == position.end_lsn);
		CHECK(clock_monotonic_ns() - start_ns < LONG_NS / 2);
		CHECK(append_number(stream.writer, 1, LONG_NS, &position) == FARLOG_FENCED);
	}
	free_stream(&stream);
}

/* All members fence the writer, and nobody comes after it: what it appends is in none of their logs. */
void test_fenced_members(void)
{
	struct farlog_position position = {0};
	struct stream stream;

	if (make_stream(&stream, "ofi:tcp://127.0.0.1:0", plain)) {
		uint64_t start_ns;

		for (uint64_t i = 0; i < 20; i++)
			CHECK(append_number(stream.writer, i, LONG_NS, &position) == FARLOG_OK);
		wait_until_in(&stream, 2, FARLOG_MEMBER_UP);
		fence_all(&stream);
		start_ns = clock_monotonic_ns();
		CHECK(append_number(stream.writer, 20, LONG_NS, &position) == FARLOG_FENCED);
		CHECK(clock_monotonic_ns() - start_ns < LONG_NS / 2);
	}
	free_stream(&stream);
}

/* count_connections -- from 127.0.0.LAST to the target's port, as the kernel lists them. */
static unsigned count_connections(const struct stream *stream, unsigned last)
{
	const char *port = strrchr(farlog_target_uri(stream->target), ':') + 1;
	FILE *file = fopen("/proc/self/net/tcp", "r");
	unsigned count = 0;
	char line[256];

	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		unsigned from, from_port, to, to_port, state;

		if (sscanf(line, " %*u: %8x:%4x %8x:%4x %2x", &from, &from_port, &to, &to_port, &state) == 5)
			count += state == 1 && from == (last << 24 | 0x7f) && to_port == (unsigned)atoi(port);
	}
	if (file != NULL)
		fclose(file);
	return count;
}

/* Members over two rails: each connection goes out by the address that its URI names. */
void test_rails(void)
{
	struct farlog_position position = {0};
	struct stream stream;

	if (make_stream(&stream, "ofi:tcp://127.0.0.1:0", rails)) {
		for (uint64_t i = 0; i < 20; i++)
			CHECK(append_number(stream.writer, i, LONG_NS, &position) == FARLOG_OK);
		for (unsigned i = 0; i < COUNT; i++)
			wait_until_in(&stream, i, FARLOG_MEMBER_UP);
		CHECK(count_connections(&stream, 2) == 2);
		CHECK(count_connections(&stream, 3) == 1);
		CHECK(count_connections(&stream, 1) == 0);
	}
	free_stream(&stream);
}
