/* bench_verbs.c -- appends to a ring of another process by verbs, over whatever RDMA device has this address (SoftRoCE
 * will do), against a bare program that posts the same work requests.
 *
 * usage: bench_verbs ADDRESS                 times, one JSON line a case, in the form of `make bench`
 *        bench_verbs ADDRESS single          of single appends alone
 *        bench_verbs ADDRESS queue           of queues of 16 alone
 *        bench_verbs ADDRESS persistent DAX  times of an append with a persistent flush, to this device DAX; what lies
 *                                            there is destroyed
 *        bench_verbs ADDRESS drain           a drain on another host, and its READs
 *        bench_verbs ADDRESS instructions    instructions of an append, and whose they are
 *        bench_verbs ADDRESS appends N       N appends and nothing beside, for a profiler
 *
 * Built with BENCH_COUNTS it counts instead: what an append posts. Ours and the floor take turns in short blocks; the
 * other ends of both are one process. Both spin. Meant for the testbed's counting clock: elsewhere what a device in
 * software does takes what time it gets. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "count.h"
#include "drain.h"
#include "far/verbs.h"
#include "far/verbs_counts.h"
#include "farlog/farlog.h"
#include "floor.h"
#include "far/region.h"
#include "ring/stream.h"
#include "log/writer.h"

#define RING_LEN (0x3000u + (32u << 20))
#define PAYLOAD_LEN 192u
#define RECORD_LEN 256u
#define QUEUE_COUNT 16u
#define BLOCK_COUNT 4u
/* the least of so many comes to the same in every run: what the kernel schedules in between is never quite the same */
#define APPEND_ROUND_COUNT 1500u
#define QUEUE_ROUND_COUNT 300u /* there is room for no more */
#define COUNTED_COUNT 1000u
#define STEPPED_COUNT 100u
#define LONG_NS 10000000000u
#define FLOOR_PATH "/dev/shm/farlog-bench-verbs.floor"
#define RING_PATH "/dev/shm/farlog-bench-verbs.ring"
#define WRITER_EPOCH_FIRST 2u
#define DEVICE_FLOOR_OFF (48ull << 20) /* of a device DAX; the ring lies below */

/* What the other side tells of itself, or why it cannot. */
struct invitation {
	char uri[160];
	char failed[512];
	char address[64];
	uint16_t floor_port;
};

static const uint8_t token[FARLOG_TOKEN_LEN] = {0x42, 1, 2, 3};
static bool is_single = true; /* what is measured */
static bool is_queue = true;
static const char *device; /* DAX, of ring and floor; NULL: both are on tmpfs */

_Noreturn static void fail(const char *what, const char *text)
{
	fprintf(stderr, "bench_verbs: %s: %s\n", what, text);
	exit(1);
}

/* ---------------------------------------------------------------- the other side */

static void grant(farlog_target *target, uint32_t role, uint32_t epoch, struct invitation *invitation)
{
	struct farlog_grant granted = {.role = role, .epoch = epoch};
	struct farlog_error error = {0};

	memcpy(granted.token, token, sizeof(token));
	granted.token[0] = (uint8_t)epoch;
	if (farlog_target_grant(target, "bench", &granted, &error) != FARLOG_OK)
		snprintf(invitation->failed, sizeof(invitation->failed), "%s", error.text);
}

static void serve(const char *address, int out)
{
	struct farlog_ring_config config = {.size_bytes = RING_LEN, .is_forced = 1, .stream_name = "bench"};
	struct invitation invitation = {0};
	struct farlog_error error = {0};
	struct rdma_cm_id *listener = NULL;
	farlog_target *target;
	struct floor_memory memory = {.path = FLOOR_PATH};
	char region[128];
	char uri[128];

	if (device != NULL)
		snprintf(region, sizeof(region), "mem:%s?ring=bench", device);
	else
		snprintf(region, sizeof(region), "mem:%s", RING_PATH);
	snprintf(uri, sizeof(uri), "verbs://%s:0", address);
	if (farlog_target_open(uri, &target, &error) != FARLOG_OK ||
		farlog_ring_format(region, &config, &error) != FARLOG_OK ||
		farlog_target_serve(target, "bench", region, NULL, &error) != FARLOG_OK)
		snprintf(invitation.failed, sizeof(invitation.failed), "%s", error.text);
	/* A grant for each writer that will come, one after the other, and one for a drain. */
	for (uint32_t epoch = WRITER_EPOCH_FIRST; invitation.failed[0] == '\0' && epoch < WRITER_EPOCH_FIRST + 2; epoch++)
		grant(target, FARLOG_GRANT_WRITER, epoch, &invitation);
	if (invitation.failed[0] == '\0')
		grant(target, FARLOG_GRANT_DRAIN, 0, &invitation);
	if (invitation.failed[0] == '\0') {
		snprintf(invitation.address, sizeof(invitation.address), "%s", address);
		listener = floor_listen(address, &invitation.floor_port);
		snprintf(invitation.uri, sizeof(invitation.uri), "%.140s/bench", farlog_target_uri(target));
	}
	if (write(out, &invitation, sizeof(invitation)) != sizeof(invitation) || invitation.failed[0] != '\0')
		exit(1);
	if (device != NULL)
		memory = (struct floor_memory){.path = device, .off = DEVICE_FLOOR_OFF, .is_device = true};
	floor_serve(listener, &memory);
	for (;;)
		pause();
}

static pid_t start_other(const char *address, struct invitation *invitation)
{
	int out[2];
	pid_t pid;

	if (pipe(out) != 0)
		floor_fail("pipe");
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(address, out[1]);
	}
	close(out[1]);
	if (read(out[0], invitation, sizeof(*invitation)) != sizeof(*invitation))
		fail("target", "it ended");
	if (invitation->failed[0] != '\0')
		fail("target", invitation->failed);
	close(out[0]);
	return pid;
}

static farlog_writer *open_writer(const struct invitation *invitation, const char *method, uint32_t epoch)
{
	uint8_t own[FARLOG_TOKEN_LEN];
	struct farlog_writer_config config = {.level = device != NULL ? FARLOG_LEVEL_PERSISTENT : FARLOG_LEVEL_VISIBLE,
		.wait = FARLOG_WAIT_SPIN,
		.counters_dir = "",
		.epoch = epoch,
		.grant_token = own,
		.deadline_ns = LONG_NS};
	struct farlog_error error = {0};
	farlog_writer *writer;
	char uri[192];

	memcpy(own, token, sizeof(own));
	own[0] = (uint8_t)epoch;
	snprintf(uri, sizeof(uri), "%s?flush=%s", invitation->uri, method);
	if (farlog_writer_open(uri, &config, &writer, &error) != FARLOG_OK)
		fail(uri, error.text);
	return writer;
}

/* ---------------------------------------------------------------- ours */

static uint8_t payload[PAYLOAD_LEN];

static void append(farlog_writer *writer)
{
	struct farlog_entry entry = {.data = payload, .len = PAYLOAD_LEN, .class_id = 1};
	struct farlog_position position;

	payload[0]++;
	if (farlog_append(writer, &entry, LONG_NS, &position) != FARLOG_OK)
		fail("append", "not acknowledged");
}

#ifndef BENCH_COUNTS
static void append_queue(farlog_writer *writer)
{
	struct farlog_entry entry = {.data = payload, .len = PAYLOAD_LEN, .class_id = 1};
	struct farlog_position position = {0};

	for (unsigned i = 0; i < QUEUE_COUNT; i++) {
		payload[0]++;
		if (farlog_submit(writer, &entry, &position) != FARLOG_OK)
			fail("submit", "not taken");
	}
	if (farlog_wait(writer, position.end_lsn, LONG_NS) != FARLOG_OK)
		fail("wait", "not acknowledged");
}
#endif

/* print_count -- the usual one of what was seen. */
static void print_count(const char *method, const char *name, const uint64_t *seen, uint64_t count, const char *note)
{
	uint64_t sum = 0;
	uint64_t usual = seen[0];
	uint64_t usual_count = 0;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t same = 0;

		sum += seen[i];
		for (uint64_t j = 0; j < count; j++)
			same += seen[j] == seen[i];
		if (same > usual_count) {
			usual_count = same;
			usual = seen[i];
		}
	}
	printf("{\"name\":\"verbs.append.256.%s.%s\",\"ours\":%lu,\"floor\":null,\"ratio\":null,\"unit\":\"count\","
		   "\"flush\":\"%s\",\"level\":\"visible\","
		   "\"note\":\"of %lu of %lu appends; mean %.3f%s\"",
		method, name, usual, method, usual_count, count, (double)sum / (double)count, note);
}

#ifdef BENCH_COUNTS
/* ---------------------------------------------------------------- what an append posts */

static uint64_t requests(const struct verbs_counts *counts)
{
	return counts->write_count + counts->read_count + counts->flush_count + counts->send_count;
}

static void measure(const struct invitation *invitation, const char *method, uint32_t epoch, void (*end_line)(void))
{
	static uint64_t seen[3][COUNTED_COUNT];
	static const char *const names[] = {"requests", "doorbells", "completions"};
	farlog_writer *writer = open_writer(invitation, method, epoch);
	const struct verbs_counts *counts = verbs_counts_of(&verbs_link_of(far_of(writer->region)->link)->queue);
	struct verbs_counts before;

	for (unsigned i = 0; i < COUNTED_COUNT; i++) {
		before = *counts;
		append(writer);
		seen[0][i] = requests(counts) - requests(&before);
		seen[1][i] = counts->doorbell_count - before.doorbell_count;
		seen[2][i] = counts->completion_count - before.completion_count;
	}
	for (unsigned i = 0; i < 3; i++) {
		print_count(method, names[i], seen[i], COUNTED_COUNT, ", with the hints of where the log ends");
		end_line();
	}
	farlog_writer_close(writer);
}

#else

/* ---------------------------------------------------------------- times */

struct times {
	uint64_t least;
	uint64_t sum;
	uint64_t count;
};

static void take(struct times *times, uint64_t ticks)
{
	if (times->count == 0 || ticks < times->least)
		times->least = ticks;
	times->sum += ticks;
	times->count++;
}

struct sides {
	farlog_writer *writer;
	struct floor *floor;
	unsigned queue_count; /* 1: appends */
	bool is_flush;
	bool is_one_pair; /* the floor sends the queue's bytes in one piece, as ours does */
};

static void block_of_ours(const struct sides *sides, struct times *times)
{
	for (unsigned i = 0; i < BLOCK_COUNT; i++) {
		uint64_t before = clock_ticks();

		if (sides->queue_count == 1)
			append(sides->writer);
		else
			append_queue(sides->writer);
		take(times, clock_ticks() - before);
	}
}

static void block_of_floor(const struct sides *sides, struct times *times)
{
	unsigned pair_count = sides->is_one_pair ? 1 : sides->queue_count;
	uint32_t len = sides->queue_count / pair_count * RECORD_LEN;

	for (unsigned i = 0; i < BLOCK_COUNT; i++) {
		uint64_t before = clock_ticks();

		floor_pairs(sides->floor, pair_count, len, sides->is_flush);
		take(times, clock_ticks() - before);
	}
}

static void print_times(
	const char *name, const char *method, const char *suffix, double ours, double floor, const char *note)
{
	printf("{\"name\":\"%s.%s%s%s\",\"ours\":%.1f,\"floor\":%.1f,\"ratio\":%.3f,\"unit\":\"ns\",\"flush\":\"%s\","
		   "\"level\":\"%s\",\"note\":\"%s\"",
		name, method, device != NULL ? ".persistent" : "", suffix, ours, floor, ours / floor, method,
		device != NULL ? "persistent" : "visible", note);
}

static double mean_ns(const struct times *times)
{
	return (double)clock_elapsed_ns(times->sum) / (double)times->count;
}

static void compare(
	const struct sides *sides, const char *name, const char *method, const char *note, void (*end_line)(void))
{
	struct times ours = {0}, floor = {0}, ignored = {0};
	unsigned round_count = sides->queue_count > 1 ? QUEUE_ROUND_COUNT :
		device != NULL                            ? 2 * APPEND_ROUND_COUNT :
													APPEND_ROUND_COUNT;

	block_of_ours(sides, &ignored);
	block_of_floor(sides, &ignored);
	for (unsigned i = 0; i < round_count; i++) {
		block_of_ours(sides, &ours);
		block_of_floor(sides, &floor);
	}
	print_times(name, method, "", (double)clock_elapsed_ns(ours.least), (double)clock_elapsed_ns(floor.least), note);
	end_line();
	print_times(name, method, ".mean", mean_ns(&ours), mean_ns(&floor), note);
	end_line();
}

static void compare_queues(struct sides *sides, const char *method, void (*end_line)(void))
{
	sides->queue_count = QUEUE_COUNT;
	compare(sides, "verbs.submit.16", method, "a queue of 16; floor: 16 pairs, one doorbell", end_line);
	sides->is_one_pair = true;
	compare(sides, "verbs.submit.16.piece", method, "a queue of 16; floor: one pair of 4096 bytes", end_line);
}

static void measure(const struct invitation *invitation, const char *method, uint32_t epoch, void (*end_line)(void))
{
	static struct floor floor;
	struct sides sides = {.floor = &floor, .is_flush = strcmp(method, "rdma-flush") == 0};

	if (floor.id == NULL)
		floor_connect(&floor, invitation->address, invitation->floor_port);
	if (sides.is_flush && !floor.has_flush)
		fail("floor", "this device has no FLUSH");
	floor.is_persistent = device != NULL;
	sides.writer = open_writer(invitation, method, epoch);
	sides.queue_count = 1;
	if (is_single)
		compare(&sides, "verbs.append.256", method,
			device != NULL ? "floor: the same pair, on the same device DAX" : "floor: the same pair", end_line);
	if (is_queue)
		compare_queues(&sides, method, end_line);
	farlog_writer_close(sides.writer);
}

#endif

/* ---------------------------------------------------------------- instructions of an append */

static void run_counted(void *context)
{
	farlog_writer *writer;

	if (clock_start() != 0)
		fail("clock", "cannot start its sampler");
	writer = open_writer(context, "rdma-flush", 2);
	writer->hint_interval_ticks = UINT64_MAX; /* stepping takes so long that each append would carry a hint */
	for (;;) {
		count_next();
		append(writer);
	}
}

static void measure_instructions(struct invitation *invitation, void (*end_line)(void))
{
	static struct count counts[STEPPED_COUNT];
	static uint64_t seen[STEPPED_COUNT];
	static const char *const names[] = {"instructions", "instructions.verbs", "instructions.libc"};
	const char *way = stream_is_supported() ? ", record by 64-byte registers" : ", record by general registers";

	count_calls(run_counted, invitation, (const void *)(uintptr_t)farlog_append, counts, STEPPED_COUNT);
	for (unsigned owner = 0; owner < COUNT_OWNER_COUNT; owner++) {
		for (unsigned i = 0; i < STEPPED_COUNT; i++)
			seen[i] = counts[i].instructions[owner];
		print_count("rdma-flush", names[owner], seen, STEPPED_COUNT, way);
		end_line();
	}
	for (unsigned i = 0; i < STEPPED_COUNT; i++)
		seen[i] = counts[i].call_count;
	print_count("rdma-flush", "calls.verbs", seen, STEPPED_COUNT, way);
	end_line();
}

static const char *environment(const char *name)
{
	const char *value = getenv(name);

	return value != NULL ? value : "unknown";
}

static void end_line(void)
{
	printf(",\"machine\":\"%s\",\"date\":\"%s\"}\n", environment("FARLOG_BENCH_MACHINE"),
		environment("FARLOG_BENCH_DATE"));
	fflush(stdout);
}

static void measure_here(const struct invitation *invitation)
{
	measure(invitation, "rdma-flush", WRITER_EPOCH_FIRST, end_line);
	if (device == NULL)
		measure(invitation, "rdma-read", WRITER_EPOCH_FIRST + 1, end_line);
}

static void append_often(const struct invitation *invitation, long count)
{
	farlog_writer *writer = open_writer(invitation, "rdma-flush", WRITER_EPOCH_FIRST);

	for (; count > 0; count--)
		append(writer);
	farlog_writer_close(writer);
}

static void measure_drain(const struct invitation *invitation)
{
	struct drain_ends ends = {.near_uri = "mem:" RING_PATH, .far_uri = invitation->uri, .payload_len = PAYLOAD_LEN};
	static struct floor floor;

	floor_connect(&floor, invitation->address, invitation->floor_port);
	memcpy(ends.token, token, sizeof(token));
	ends.token[0] = 0;
	drain_measure(&ends, &floor, end_line);
}

/* run -- what the command line asks for. */
static void run(struct invitation *invitation, const char *mode, const char *argument)
{
	if (strcmp(mode, "instructions") == 0) {
		measure_instructions(invitation, end_line); /* by a child, which has a clock of its own */
		return;
	}
	if (clock_start() != 0)
		fail("clock", "cannot start its sampler");
	if (strcmp(mode, "appends") == 0)
		append_often(invitation, strtol(argument, NULL, 10));
	else if (strcmp(mode, "drain") == 0)
		measure_drain(invitation);
	else
		measure_here(invitation);
	clock_stop();
}

static bool is_known(int count, const char *mode)
{
	switch (count) {
	case 2:
		return true;
	case 3:
		return strcmp(mode, "single") == 0 || strcmp(mode, "queue") == 0 || strcmp(mode, "instructions") == 0 ||
			strcmp(mode, "drain") == 0;
	case 4:
		return strcmp(mode, "appends") == 0 || strcmp(mode, "persistent") == 0;
	default:
		return false;
	}
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[2] : "";
	const char *argument = argc > 3 ? argv[3] : "";
	struct invitation invitation;
	pid_t other;

	if (!is_known(argc, mode)) {
		fprintf(stderr,
			"usage: bench_verbs ADDRESS [single | queue | persistent DAX | drain | instructions | appends N]\n");
		return 2;
	}
	if (strcmp(mode, "persistent") == 0)
		device = argument;
	is_single = strcmp(mode, "queue") != 0;
	is_queue = strcmp(mode, "single") != 0 && device == NULL;
	other = start_other(argv[1], &invitation);
	run(&invitation, mode, argument);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	unlink(RING_PATH);
	unlink(FLOOR_PATH);
	return 0;
}
