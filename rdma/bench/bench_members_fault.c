/* bench_members_fault.c -- the time that a failure takes: of a member, until the next acknowledgement, and of the
 * writer, until that of the next one.
 *
 * Members have targets in processes of their own here, which sleep when nothing comes. The next writer waits in a
 * process that has been started, as a standby does; who tells it to begin, and how soon that one knows, is the control
 * plane's and not in these figures. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench_members.h"
#include "base/clock.h"

#define LOSS_COUNT 15u
#define TAKEOVER_COUNT 15u
#define LOSS_RING_LEN (8ull << 20)
#define TAKEOVER_RING_LEN (96ull << 20)
#define UNDRAINED_LEN (64ull << 20)
#define WARM_COUNT 200u
#define PATIENCE_NS 20000000000u

static struct bench_ring rings[MEMBER_COUNT];
static struct members_target targets[MEMBER_COUNT];
static const char ring_name[] = "ring";

static bool start_target(unsigned i, const char *address)
{
	const char *name = ring_name;
	const char *uri = rings[i].uri;

	return members_target_start(&targets[i], address, &name, &uri, 1);
}

/* make_stream -- its rings and their targets, and its URI. */
static bool make_stream(uint64_t ring_len, char *uri, size_t room)
{
	struct farlog_ring_config config = {.size_bytes = ring_len, .is_forced = 1, .salt = 0x77, .stream_name = "bench"};
	int used = snprintf(uri, room, "members:2");
	bool is_there = true;

	for (unsigned i = 0; i < MEMBER_COUNT && is_there; i++) {
		struct farlog_error error;
		char name[16];

		snprintf(name, sizeof(name), "fault%u", i);
		bench_ring_make(&rings[i], name, ring_len);
		if (farlog_ring_format(rings[i].uri, &config, &error) != FARLOG_OK)
			bench_fail("members", error.text);
		is_there = start_target(i, "ofi:tcp://127.0.0.1:0");
		used += snprintf(uri + used, room - (size_t)used, " %s/%s", targets[i].uri, ring_name);
	}
	return is_there;
}

static void remove_stream(void)
{
	for (unsigned i = 0; i < MEMBER_COUNT; i++) {
		members_target_end(&targets[i]);
		unlink(rings[i].path);
	}
}

static farlog_writer *open_writer(const char *uri, uint32_t epoch)
{
	uint8_t tokens[MEMBER_COUNT * FARLOG_TOKEN_LEN];
	struct farlog_writer_config config = members_config(epoch, 0, 0, tokens);
	struct farlog_error error;
	farlog_writer *writer;

	if (farlog_writer_open(uri, &config, &writer, &error) != FARLOG_OK)
		bench_fail("members", error.text);
	return writer;
}

static uint64_t append_one(farlog_writer *writer, struct farlog_position *position)
{
	static const uint8_t payload[BENCH_PAYLOAD_LEN];
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload), .class_id = 1};
	uint64_t before = clock_monotonic_ns();

	if (farlog_append(writer, &entry, PATIENCE_NS, position) != FARLOG_OK)
		bench_fail("members", "an append was not acknowledged");
	return clock_monotonic_ns() - before;
}

static int compare(const void *a, const void *b)
{
	return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

static void report(const char *name, double *values, unsigned count, double floor_ns, const char *note)
{
	char full[64];

	qsort(values, count, sizeof(*values), compare);
	bench_report(&(struct bench_case){.name = name,
		.ours = values[count / 2],
		.floor = floor_ns,
		.unit = "ns",
		.flush = "default",
		.level = "visible",
		.note = note});
	snprintf(full, sizeof(full), "%s.worst", name);
	bench_report(&(struct bench_case){.name = full,
		.ours = values[count - 1],
		.floor = floor_ns,
		.unit = "ns",
		.flush = "default",
		.level = "visible",
		.note = note});
}

/* ---------------------------------------------------------------- a member */

/* wait_for_all -- until every member counts again. */
static void wait_for_all(farlog_writer *writer)
{
	uint64_t until_ns = clock_after_ns(PATIENCE_NS);
	struct farlog_position position = {0};

	while (position.copies < MEMBER_COUNT) {
		append_one(writer, &position);
		if (clock_monotonic_ns() >= until_ns)
			bench_fail("members", "a member whose target was started again does not come back");
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
}

void bench_members_loss(void)
{
	double lost_ns[LOSS_COUNT];
	double plain_ns[LOSS_COUNT];
	farlog_writer *writer;
	char uri[1024];
	char note[120];

	if (make_stream(LOSS_RING_LEN, uri, sizeof(uri))) {
		writer = open_writer(uri, MEMBERS_EPOCH_FIRST);
		for (unsigned round = 0; round < LOSS_COUNT; round++) {
			struct members_target *lost = &targets[round % MEMBER_COUNT];
			struct farlog_position position;
			char address[200];

			wait_for_all(writer);
			for (unsigned i = 0; i < WARM_COUNT; i++)
				plain_ns[round] = (double)append_one(writer, &position);
			kill(lost->pid, SIGKILL);
			lost_ns[round] = (double)append_one(writer, &position);
			waitpid(lost->pid, NULL, 0);
			for (unsigned i = 0; i < WARM_COUNT; i++) {
				double took_ns = (double)append_one(writer, &position);

				if (took_ns > lost_ns[round])
					lost_ns[round] = took_ns;
			}
			snprintf(address, sizeof(address), "%s", lost->uri);
			if (!start_target(round % MEMBER_COUNT, address))
				bench_fail("members", "a target could not be started again");
		}
		snprintf(note, sizeof(note),
			"the longest append after the loss of 1 of 3 targets (SIGKILL); floor: the last one before; deadline %lu "
			"ns",
			(unsigned long)farlog_writer_contract(writer)->deadline_default_ns);
		qsort(plain_ns, LOSS_COUNT, sizeof(*plain_ns), compare);
		report("members.loss", lost_ns, LOSS_COUNT, plain_ns[LOSS_COUNT / 2], note);
		farlog_writer_close(writer);
	}
	remove_stream();
}

/* ---------------------------------------------------------------- the writer */

/* The first byte that comes from the other process. */
static void take_byte(int fd, const char *what)
{
	char byte;

	if (read(fd, &byte, 1) != 1)
		bench_fail("members", what);
}

/* A writer in a process of its own: it opens when it is told to, appends, says so, and appends on until it is
 * killed. */
struct standby {
	pid_t pid;
	int tell;
	int hear;
};

int bench_members_writer(int argc, char **argv)
{
	struct farlog_position position;
	farlog_writer *writer;

	if (argc != 2 || clock_start() != 0)
		return 1;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (write(STDOUT_FILENO, "r", 1) != 1)
		return 1;
	take_byte(STDIN_FILENO, "nobody is there to begin for");
	writer = open_writer(argv[0], (uint32_t)atoi(argv[1]));
	append_one(writer, &position);
	if (write(STDOUT_FILENO, "a", 1) != 1)
		return 1;
	for (;;) {
		append_one(writer, &position);
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
}

static void start_standby(struct standby *standby, const char *uri, uint32_t epoch)
{
	char epoch_text[16];
	int in[2];
	int out[2];

	snprintf(epoch_text, sizeof(epoch_text), "%u", epoch);
	if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
		bench_fail("members", "no pipe");
	standby->pid = fork();
	if (standby->pid == 0) {
		dup2(in[0], STDIN_FILENO);
		dup2(out[1], STDOUT_FILENO);
		execl("/proc/self/exe", "bench", BENCH_MEMBERS_WRITER, uri, epoch_text, (char *)NULL);
		_exit(1);
	}
	close(in[0]);
	close(out[1]);
	standby->tell = in[1];
	standby->hear = out[0];
	take_byte(standby->hear, "a standby did not start");
}

static void begin(struct standby *standby)
{
	if (write(standby->tell, "b", 1) != 1)
		bench_fail("members", "a standby has gone");
	take_byte(standby->hear, "a writer did not take over");
}

static void end(struct standby *standby)
{
	waitpid(standby->pid, NULL, 0);
	close(standby->tell);
	close(standby->hear);
}

static void fill(const char *uri)
{
	farlog_writer *writer = open_writer(uri, MEMBERS_EPOCH_FIRST);
	static const uint8_t payload[BENCH_PAYLOAD_LEN];
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload), .class_id = 1};
	struct farlog_position position = {0};

	while (position.end_lsn < UNDRAINED_LEN) {
		for (unsigned i = 0; i < 1000; i++)
			if (farlog_submit(writer, &entry, &position) != FARLOG_OK)
				bench_fail("members", "submit was refused");
		if (farlog_wait(writer, position.end_lsn, PATIENCE_NS) != FARLOG_OK)
			bench_fail("members", "what was submitted was not acknowledged");
	}
	if (farlog_writer_close(writer) != FARLOG_OK)
		bench_fail("members", "close");
}

void bench_members_takeover(void)
{
	double took_ns[TAKEOVER_COUNT];
	struct standby writer;
	char uri[1024];

	if (make_stream(TAKEOVER_RING_LEN, uri, sizeof(uri))) {
		fill(uri);
		start_standby(&writer, uri, MEMBERS_EPOCH_FIRST + 1);
		begin(&writer);
		for (unsigned round = 0; round < TAKEOVER_COUNT; round++) {
			struct standby next;
			uint64_t killed_ns;

			start_standby(&next, uri, MEMBERS_EPOCH_FIRST + 2 + round);
			killed_ns = clock_monotonic_ns();
			kill(writer.pid, SIGKILL);
			begin(&next);
			took_ns[round] = (double)(clock_monotonic_ns() - killed_ns);
			end(&writer);
			writer = next;
		}
		kill(writer.pid, SIGKILL);
		end(&writer);
		report("members.takeover.64mib", took_ns, TAKEOVER_COUNT, 0,
			"from SIGKILL of the writer to the first acknowledgement of the next, 2 of 3, 64 MiB undrained");
	}
	remove_stream();
}
