/* bench_far.c -- appends to a ring of another process by libfabric's tcp provider over loopback.
 *
 * The floor of a ring on tmpfs is what the wire costs: a spinning ping-pong of 256 bytes there and 64 back over one TCP
 * connection between the same two cores. That of a file is an msync of one page of the same file system. The target and
 * the other end of the ping-pong share a core: the target spins, and is stopped while it is the other's turn. A block's
 * first samples are not counted. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_far.h"
#include "base/clock.h"

#define BLOCK_COUNT 2000u
#define FILE_BLOCK_COUNT 50u
#define SKIPPED_COUNT 100u
#define SAMPLE_COUNT_MAX (4u << 20)
#define DRAIN_EVERY 32u
#define OUTSTANDING_COUNT 64u
#define ANSWER_LEN 64u
#define PATIENCE_NS 2000000000u
#define SPIN_NS 200000u
#define LINE_LEN 512u

static void no_delay(int fd)
{
	int yes = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

/* receive -- spinning; false: the peer has gone, or nothing came for spin_ns. */
static bool receive(int fd, uint8_t *buf, size_t len, uint64_t spin_ns)
{
	uint64_t start_ns = clock_monotonic_ns();
	size_t got = 0;

	while (got < len) {
		ssize_t count = recv(fd, buf + got, len - got, MSG_DONTWAIT);

		if (count == 0 || (count < 0 && got == 0 && clock_monotonic_ns() - start_ns > spin_ns))
			return false;
		got += count > 0 ? (size_t)count : 0;
	}
	return true;
}

static void echo(int listener)
{
	int fd = accept(listener, NULL, NULL);
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	uint8_t buf[BENCH_RECORD_LEN] = {0};

	no_delay(fd);
	while (poll(&ready, 1, -1) == 1)
		while (receive(fd, buf, BENCH_RECORD_LEN, SPIN_NS))
			if (send(fd, buf, ANSWER_LEN, MSG_NOSIGNAL) != ANSWER_LEN)
				return;
}

void far_token(uint32_t epoch, uint8_t token[FARLOG_TOKEN_LEN])
{
	memset(token, 0x42, FARLOG_TOKEN_LEN);
	memcpy(token, &epoch, sizeof(epoch));
}

static int grant_all(farlog_target *target, struct farlog_error *error)
{
	int result = FARLOG_OK;

	for (uint32_t epoch = 0; epoch <= FAR_EPOCH_LAST && result == FARLOG_OK; epoch++) {
		struct farlog_grant grant = {.role = FARLOG_GRANT_WRITER, .epoch = epoch};

		if (epoch < FAR_EPOCH_FIRST)
			grant = (struct farlog_grant){.role = epoch == 0 ? FARLOG_GRANT_DRAIN : FARLOG_GRANT_READER};
		far_token(epoch, grant.token);
		result = farlog_target_grant(target, "bench", &grant, error);
	}
	return result;
}

static void serve(const char *region_uri, int out)
{
	struct farlog_error error = {0};
	char line[LINE_LEN] = "";
	farlog_target *target;

	if (farlog_target_open("ofi:tcp://127.0.0.1:0?wait=spin", &target, &error) == FARLOG_OK &&
		farlog_target_serve(target, "bench", region_uri, NULL, &error) == FARLOG_OK &&
		grant_all(target, &error) == FARLOG_OK)
		snprintf(line, sizeof(line), "%.150s/bench", farlog_target_uri(target));
	else
		snprintf(line, sizeof(line), "! %.500s", error.text);
	if (write(out, line, sizeof(line)) == sizeof(line))
		for (;;)
			pause();
}

/* start_process -- on the core that is not ours; it ends with us. 0 in it. */
static pid_t start_process(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		bench_pin(1);
	}
	return pid;
}

static void start_echo(struct other *other)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t address_len = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (bind(listener, (struct sockaddr *)&address, address_len) != 0 || listen(listener, 1) != 0 ||
		getsockname(listener, (struct sockaddr *)&address, &address_len) != 0)
		bench_fail("far", "no socket on the loopback");
	other->echo = start_process();
	if (other->echo == 0) {
		echo(listener);
		_exit(0);
	}
	other->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(other->socket, (struct sockaddr *)&address, address_len) != 0)
		bench_fail("far", "no ping-pong");
	no_delay(other->socket);
	close(listener);
}

void far_end(struct other *other)
{
	kill(other->target, SIGKILL);
	kill(other->echo, SIGKILL);
	waitpid(other->target, NULL, 0);
	waitpid(other->echo, NULL, 0);
	close(other->socket);
}

bool far_start(struct other *other, const char *region_uri)
{
	char line[LINE_LEN] = "";
	int out[2];

	if (pipe(out) != 0)
		bench_fail("far", "no pipe");
	start_echo(other);
	other->target = start_process();
	if (other->target == 0)
		serve(region_uri, out[1]);
	close(out[1]);
	if (read(out[0], line, sizeof(line)) != sizeof(line) || line[0] == '!') {
		fprintf(stderr, "far: skipped: %s\n", line + 1);
		far_end(other);
		return false;
	}
	close(out[0]);
	snprintf(other->uri, sizeof(other->uri), "%.150s", line);
	return true;
}

/* ring_open -- the writer is far, the drain is not: what it costs is not measured here. options: of the URI, behind
 * wait=spin. */
static void ring_open(struct bench_ring *ring, const struct other *other, const char *options)
{
	uint8_t token[FARLOG_TOKEN_LEN];
	struct farlog_writer_config config = {
		.level = FARLOG_LEVEL_VISIBLE, .counters_dir = "", .epoch = FAR_EPOCH_FIRST, .grant_token = token};
	struct farlog_reader_config drain = {.is_drain = 1};
	struct farlog_error error;
	char uri[192];

	far_token(FAR_EPOCH_FIRST, token);
	snprintf(uri, sizeof(uri), "%s?wait=spin%s", other->uri, options);
	if (farlog_writer_open(uri, &config, &ring->writer, &error) != FARLOG_OK ||
		farlog_reader_open(ring->uri, &drain, &ring->drain, &error) != FARLOG_OK)
		bench_fail("far", error.text);
	ring->buf = malloc(1u << 20);
	if (ring->buf == NULL)
		bench_fail("far", "out of memory");
}

static uint8_t payload[BENCH_PAYLOAD_LEN];

static void append_block(struct bench_ring *ring, unsigned count, struct bench_samples *samples)
{
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload), .class_id = 1};
	struct farlog_position position;
	uint64_t before = clock_ticks();

	for (unsigned i = 0; i < count; i++) {
		uint64_t after;

		payload[0]++;
		if (farlog_append(ring->writer, &entry, PATIENCE_NS, &position) != FARLOG_OK)
			bench_fail("far append", "not acknowledged");
		after = clock_ticks();
		if (i >= count / 20)
			bench_sample(samples, after - before);
		before = after;
	}
}

static void submit_block(struct bench_ring *ring, struct bench_samples *samples)
{
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload), .class_id = 1};
	struct farlog_position position;

	for (unsigned i = 0; i < BLOCK_COUNT / OUTSTANDING_COUNT; i++) {
		uint64_t before = clock_ticks();

		for (unsigned j = 0; j < OUTSTANDING_COUNT; j++)
			if (farlog_submit(ring->writer, &entry, &position) != FARLOG_OK)
				bench_fail("far submit", "refused");
		if (farlog_wait(ring->writer, position.end_lsn, PATIENCE_NS) != FARLOG_OK)
			bench_fail("far wait", "not acknowledged");
		if (i > 0)
			bench_sample(samples, clock_ticks() - before);
	}
}

static void ping_pong_block(const struct other *other, struct bench_samples *samples)
{
	uint8_t record[BENCH_RECORD_LEN] = {1};
	uint64_t before;

	kill(other->target, SIGSTOP);
	before = clock_ticks();

	for (unsigned i = 0; i < BLOCK_COUNT; i++) {
		uint64_t after;

		if (send(other->socket, record, sizeof(record), MSG_NOSIGNAL) != sizeof(record) ||
			!receive(other->socket, record, ANSWER_LEN, PATIENCE_NS))
			bench_fail("far", "the ping-pong broke");
		after = clock_ticks();
		if (i >= SKIPPED_COUNT)
			bench_sample(samples, after - before);
		before = after;
	}
	kill(other->target, SIGCONT);
}

static void report(
	const char *name, double ours, double floor, const struct bench_ring *ring, const char *level, const char *note)
{
	bench_report(&(struct bench_case){.name = name,
		.ours = ours,
		.floor = floor,
		.unit = "ns",
		.level = level,
		.note = note,
		.flush = farlog_writer_contract(ring->writer)->flush_name});
}

static bool is_time_left(uint64_t start_ns)
{
	return (double)(clock_monotonic_ns() - start_ns) < bench_seconds * 1e9;
}

/* One method on tmpfs; names: of append, its p99, submit. ofi-commit is offered for the level visible alone; target-cpu
 * is what the levels above take too. */
static void tmpfs_ring(const char *options, const char *const names[3])
{
	struct bench_samples ours, submitted, wire;
	struct bench_ring ring;
	struct other other;
	uint64_t start_ns;

	bench_ring_make(&ring, "far", BENCH_RING_LEN);
	if (!far_start(&other, ring.uri)) {
		unlink(ring.path);
		return;
	}
	ring_open(&ring, &other, options);
	bench_samples_make(&ours, SAMPLE_COUNT_MAX);
	bench_samples_make(&submitted, SAMPLE_COUNT_MAX);
	bench_samples_make(&wire, SAMPLE_COUNT_MAX);
	start_ns = clock_monotonic_ns();
	for (unsigned block = 1; is_time_left(start_ns); block++) {
		append_block(&ring, BLOCK_COUNT, &ours);
		ping_pong_block(&other, &wire);
		submit_block(&ring, &submitted);
		if (block % DRAIN_EVERY == 0)
			bench_ring_drain(&ring);
	}
	report(names[0], bench_quantile_ns(&ours, 0.5), bench_quantile_ns(&wire, 0.5), &ring, "visible",
		"p50; floor: spinning TCP ping-pong, 256 and 64 bytes");
	report(names[1], bench_quantile_ns(&ours, 0.99), bench_quantile_ns(&wire, 0.99), &ring, "visible", "");
	report(names[2], bench_quantile_ns(&submitted, 0.5) / OUTSTANDING_COUNT, 0, &ring, "visible",
		"a record; submit of 64, one wait");
	bench_samples_free(&ours);
	bench_samples_free(&submitted);
	bench_samples_free(&wire);
	bench_ring_close(&ring);
	far_end(&other);
}

static void msync_block(uint8_t *map, struct bench_samples *samples)
{
	for (unsigned i = 0; i < FILE_BLOCK_COUNT; i++) {
		uint64_t before = clock_ticks();

		memset(map + 4096u * i, (int)(i + samples->count), BENCH_RECORD_LEN);
		if (msync(map + 4096u * i, 4096, MS_SYNC) != 0)
			bench_fail("far", "msync");
		if (i >= FILE_BLOCK_COUNT / 20)
			bench_sample(samples, clock_ticks() - before);
	}
}

static void file_ring(void)
{
	struct bench_samples ours, plain;
	struct bench_ring ring;
	struct bench_ring scratch;
	struct other other;
	uint64_t start_ns;
	uint8_t *map;
	FILE *file;

	setenv("FARLOG_BENCH_DIR", "/var/tmp", 1); /* the last case of this run that looks at it */
	bench_ring_make(&ring, "far-file", BENCH_RING_LEN);
	bench_ring_make(&scratch, "far-floor", 1u << 20);
	unsetenv("FARLOG_BENCH_DIR");
	file = fopen(scratch.path, "r+");
	map = file == NULL ? MAP_FAILED : mmap(NULL, 1u << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
	if (map == MAP_FAILED || !far_start(&other, ring.uri)) {
		unlink(ring.path);
		unlink(scratch.path);
		return;
	}
	ring_open(&ring, &other, "");
	bench_samples_make(&ours, 1u << 16);
	bench_samples_make(&plain, 1u << 16);
	start_ns = clock_monotonic_ns();
	while (is_time_left(start_ns)) {
		append_block(&ring, FILE_BLOCK_COUNT, &ours);
		msync_block(map, &plain);
	}
	report("ofi.append.256.file", bench_quantile_ns(&ours, 0.5), bench_quantile_ns(&plain, 0.5), &ring, "persistent",
		"p50; the target's msync; floor: msync of one page");
	bench_samples_free(&ours);
	bench_samples_free(&plain);
	munmap(map, 1u << 20);
	fclose(file);
	unlink(scratch.path);
	bench_ring_close(&ring);
	far_end(&other);
}

void bench_far(void)
{
	bench_pin(0);
	bench_far_open();
	bench_far_drain();
	tmpfs_ring("&flush=ofi-commit", (const char *const[]){"ofi.append.256", "ofi.append.256.p99", "ofi.submit.256.64"});
	tmpfs_ring("&flush=target-cpu",
		(const char *const[]){
			"ofi.append.256.target-cpu", "ofi.append.256.target-cpu.p99", "ofi.submit.256.64.target-cpu"});
	file_ring();
}
