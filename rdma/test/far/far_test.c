/* far_test.c -- rings on another host, by libfabric's tcp provider over loopback: what is appended is there, what is
 * fenced stays out, and what breaks in between is repaired or told.
 *
 * usage: far_test [CASE]. The target is another process, so that it can be killed; its rings are on tmpfs and in a file
 * (msync). Every wait is for a thing that is checked, with a limit that is far beyond it. */
#include "far_test.h"

#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ring/record.h"

#define BUFFER_LEN (64u << 10)
#define CYCLE_COUNT 1000u

unsigned failed;
bool is_skipped;
char now_testing[96];

/* ---------------------------------------------------------------- cases */

static const char *const kinds[][4] = {
	/* directory, flush, wait of both ends, the method that must come of it */
	{"/dev/shm", "auto", "spin", "ofi-commit"},
	{"/dev/shm", "ofi-commit", "block", "ofi-commit"},
	{"/dev/shm", "target-cpu", "spin", "target-cpu"},
	{"/dev/shm", "target-cpu", "block", "target-cpu"},
	{"/dev/shm", "ofi-delivery", "block", "ofi-delivery"},
	{"/var/tmp", "auto", "block", "target-cpu"},
};

static void append_and_read(struct bed *bed, const char *options, const char *method)
{
	struct farlog_position position;
	farlog_writer *writer;
	farlog_reader *reader;
	uint64_t count = bed->level == FARLOG_LEVEL_PERSISTENT ? 50 : 500;

	if (!CHECK_ASK(&bed->host, "grant ring 0 2 a"))
		return;
	writer = open_or_report(bed, options, 2, 'a');
	if (writer == NULL)
		return;
	CHECK(strcmp(farlog_writer_contract(writer)->flush_name, method) == 0);
	for (uint64_t i = 0; i < count; i++) {
		CHECK(append_number(writer, i, LONG_NS, &position) == FARLOG_OK);
		CHECK(position.level == bed->level && position.epoch == 2);
	}
	reader = open_reader(bed->local_uri, false, 'a');
	if (reader != NULL)
		expect_numbers(reader, 0, count);
	farlog_reader_close(reader);
	CHECK(farlog_writer_close(writer) == FARLOG_OK);
}

static void test_append(void)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		char listen_uri[64];
		char options[64];
		struct bed bed;

		snprintf(now_testing, sizeof(now_testing), "append %s %s %s", kinds[i][0], kinds[i][1], kinds[i][2]);
		snprintf(listen_uri, sizeof(listen_uri), "ofi:tcp://127.0.0.1:0?wait=%s", kinds[i][2]);
		snprintf(options, sizeof(options), "?wait=%s&flush=%s", kinds[i][2], kinds[i][1]);
		if (bed_make(&bed, kinds[i][0], listen_uri))
			append_and_read(&bed, options, kinds[i][3]);
		bed_free(&bed);
	}
}

static void test_level(void)
{
	struct farlog_error error;
	struct bed bed;

	/* FI_COMMIT_COMPLETE never makes a plain file persistent, and tmpfs is not persistent by any method. */
	if (bed_make(&bed, "/var/tmp", "ofi:tcp://127.0.0.1:0") && CHECK_ASK(&bed.host, "grant ring 0 2 a")) {
		CHECK(open_far_writer(&bed, "?flush=ofi-commit", 2, 'a', &error) == NULL && error.result == FARLOG_LEVEL);
		CHECK(strstr(error.text, "target-cpu") != NULL);
	}
	bed_free(&bed);
	if (bed_make(&bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") && CHECK_ASK(&bed.host, "grant ring 0 2 a")) {
		uint8_t token[FARLOG_TOKEN_LEN];
		struct farlog_writer_config config = {
			.level = FARLOG_LEVEL_PERSISTENT, .epoch = 2, .counters_dir = "", .grant_token = token};
		farlog_writer *writer;

		host_token('a', token);
		CHECK(farlog_writer_open(bed.uri, &config, &writer, &error) == FARLOG_LEVEL);
	}
	bed_free(&bed);
}

static void test_fence(void)
{
	struct farlog_position position = {0};
	struct farlog_error error = {0};
	farlog_writer *old = NULL;
	farlog_writer *new = NULL;
	farlog_reader *reader;
	struct bed bed;
	uint64_t tail_lsn = 0;
	uint64_t acknowledged_lsn;

	if (!bed_make(&bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") || !CHECK_ASK(&bed.host, "grant ring 0 2 a"))
		goto done;
	old = open_or_report(&bed, "", 2, 'a');
	for (uint64_t i = 0; i < 20 && old != NULL; i++)
		CHECK(append_number(old, i, LONG_NS, &position) == FARLOG_OK);
	acknowledged_lsn = position.end_lsn;
	if (old == NULL || !CHECK_ASK(&bed.host, "fence ring 5"))
		goto done;
	CHECK(sscanf(bed.host.reply, "OK %lu", &tail_lsn) == 1 && tail_lsn == acknowledged_lsn);
	CHECK(append_number(old, 99, LONG_NS, &position) == FARLOG_FENCED && position.epoch == 5);
	/* And from now on, also when it has reconnected in between. */
	CHECK(append_number(old, 99, LONG_NS, &position) == FARLOG_FENCED);
	CHECK(!host_ask(&bed.host, "grant ring 0 4 b") && strncmp(bed.host.reply, "FENCED", 6) == 0);
	if (!CHECK_ASK(&bed.host, "grant ring 0 5 c"))
		goto done;
	new = open_or_report(&bed, "", 5, 'c');
	for (uint64_t i = 20; i < 40 && new != NULL; i++)
		CHECK(append_number(new, i, LONG_NS, &position) == FARLOG_OK);
	CHECK(append_number(old, 99, LONG_NS, &position) == FARLOG_FENCED);
	/* HELD: the token is the old handle's */
	CHECK(open_far_writer(&bed, "", 2, 'a', &error) == NULL && error.result != FARLOG_OK);
	reader = open_reader(bed.local_uri, false, 'a');
	if (reader != NULL)
		expect_numbers(reader, 0, 40);
	farlog_reader_close(reader);
done:
	farlog_writer_close(old);
	farlog_writer_close(new);
	bed_free(&bed);
}

static void test_restart(void)
{
	struct farlog_position position;
	farlog_reader *reader;
	struct bed bed;
	farlog_writer *writer = NULL;
	uint64_t number = 0;

	if (!bed_make(&bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") || !CHECK_ASK(&bed.host, "grant ring 0 2 a"))
		goto done;
	writer = open_or_report(&bed, "", 2, 'a');
	for (unsigned round = 0; round < 3 && writer != NULL; round++) {
		int result;

		for (unsigned i = 0; i < 50; i++)
			CHECK(append_number(writer, number++, LONG_NS, &position) == FARLOG_OK);
		host_kill(&bed.host);
		result = append_number(writer, number++, 20000000u, &position); /* nobody is there: its outcome is not known */
		CHECK(result == FARLOG_UNKNOWN);
		if (!bed_again(&bed) || !CHECK_ASK(&bed.host, "grant ring 0 2 a"))
			goto done;
		/* The same bytes are sent again, and then it is known. */
		CHECK(farlog_resolve(writer, position.lsn, LONG_NS, &position) == FARLOG_OK);
	}
	reader = open_reader(bed.local_uri, false, 'a');
	if (reader != NULL)
		expect_numbers(reader, 0, number);
	farlog_reader_close(reader);
done:
	farlog_writer_close(writer);
	bed_free(&bed);
}

/* drain_numbers -- by the drain, until `count` records of numbers from `first` on have come. */
static bool drain_numbers(farlog_reader *drain, uint64_t first, uint64_t count)
{
	static uint8_t buffer[BUFFER_LEN] __attribute__((aligned(64)));
	struct farlog_batch batch;
	uint64_t seen = 0;
	time_t until = time(NULL) + (time_t)(LONG_NS / 1000000000u);

	while (seen < count && time(NULL) < until) {
		int result = farlog_reader_read(drain, buffer, sizeof(buffer), &batch);

		if (result == FARLOG_NOT_YET)
			continue;
		if (!check_ok(result, "read by the drain", farlog_result_text(result), __LINE__) ||
			!check_numbers(buffer, &batch, first, &seen))
			return false;
		result = farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch);
		if (!check_ok(result, "release by the drain", farlog_result_text(result), __LINE__))
			return false;
	}
	CHECK(seen == count);
	return seen == count;
}

/* fill_room -- append until the ring is full, or `count_max` were appended. A credit is on its way after a release:
 * FULL may pass. */
static uint64_t fill_room(farlog_writer *writer, uint64_t number, uint64_t count_max)
{
	struct farlog_position position;
	time_t until = time(NULL) + (time_t)(LONG_NS / 1000000000u);
	uint64_t count = 0;

	while (count < count_max && (count == 0 || count_max != UINT64_MAX || time(NULL) < until)) {
		int result = append_number(writer, number + count, LONG_NS, &position);

		if (result == FARLOG_FULL && (count_max == UINT64_MAX || time(NULL) >= until))
			break;
		if (result != FARLOG_FULL && !check_ok(result, "append", farlog_result_text(result), __LINE__))
			break;
		count += result == FARLOG_OK;
	}
	return count;
}

/* Writer and drain are both far: the drain's credit goes through the target to the writer, several times round the
 * ring. */
static void test_drain(void)
{
	struct bed bed;
	farlog_writer *writer = NULL;
	farlog_reader *drain = NULL;
	unsigned before = failed;
	uint64_t number = 0;
	uint64_t count;

	if (!bed_make(&bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") || !CHECK_ASK(&bed.host, "grant ring 0 2 a") ||
		!CHECK_ASK(&bed.host, "grant ring 1 0 d"))
		goto done;
	writer = open_or_report(&bed, "", 2, 'a');
	drain = open_reader(bed.uri, true, 'd');
	if (writer == NULL || drain == NULL)
		goto done;
	count = fill_room(writer, 0, UINT64_MAX);
	CHECK(count > RING_BYTES / 1024);
	for (unsigned lap = 0; lap < 3 && failed == before; lap++) {
		CHECK(drain_numbers(drain, number, count));
		number += count;
		count = fill_room(writer, number, 500);
		CHECK(count == 500);
	}
	CHECK(drain_numbers(drain, number, count));
done:
	farlog_reader_close(drain);
	farlog_writer_close(writer);
	bed_free(&bed);
}

static void refused(const struct bed *bed, uint32_t epoch, char letter, int result, const char *text)
{
	struct farlog_error error = {0};
	farlog_writer *writer = open_far_writer(bed, "", epoch, letter, &error);

	if (writer != NULL || error.result != result || strstr(error.text, text) == NULL ||
		strstr(error.text, bed->uri) == NULL) {
		printf("far: %s: expected %s \"...%s...\" and the URI, got %s \"%s\"\n", now_testing,
			farlog_result_name(result), text, farlog_result_name(error.result), error.text);
		failed++;
	}
	farlog_writer_close(writer);
}

static void test_refusals(void)
{
	struct bed bed;
	struct bed other;
	farlog_writer *writer = NULL;

	if (!bed_make(&bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") || !CHECK_ASK(&bed.host, "grant ring 0 2 a") ||
		!CHECK_ASK(&bed.host, "grant ring 1 0 d"))
		goto done;
	refused(&bed, 2, 'x', FARLOG_INVALID, "no grant");
	refused(&bed, 2, 'd', FARLOG_INVALID, "another role");
	refused(&bed, 1, 'a', FARLOG_FENCED, "epoch 1 is fenced");
	refused(&bed, 9, 'a', FARLOG_INVALID, "of epoch 2, and not of 9");
	other = bed;
	strcat(other.uri, "x");
	refused(&other, 2, 'a', FARLOG_NOT_A_RING, "another ring");
	writer = open_or_report(&bed, "", 2, 'a');
	refused(&bed, 2, 'a', FARLOG_HELD, "another client");
	CHECK(host_ask(&bed.host, "grant ring 0 3 b"));
	refused(&bed, 3, 'b', FARLOG_HELD, "holds this role");
	farlog_writer_close(writer);
	writer = NULL;
	CHECK(host_ask(&bed.host, "forget ring"));
	refused(&bed, 3, 'b', FARLOG_INVALID, "no grant");
done:
	farlog_writer_close(writer);
	bed_free(&bed);
}

void await_no_writer(struct bed *bed)
{
	time_t until = time(NULL) + (time_t)(LONG_NS / 1000000000u);
	unsigned writers = 1;

	while (writers > 0 && time(NULL) < until)
		CHECK(host_ask(&bed->host, "counters ring") && sscanf(bed->host.reply, "OK %*u %*u %*u %u", &writers) == 1);
	CHECK(writers == 0);
}

/* A client that is killed leaves its role; the next one goes on behind what it was acknowledged. */
static void test_killed_client(void)
{
	struct bed bed;
	farlog_writer *writer = NULL;
	uint64_t number = 0;
	pid_t pid;
	int out[2];
	FILE *acknowledged;

	if (!bed_make(&bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") || !CHECK_ASK(&bed.host, "grant ring 0 2 a") ||
		pipe(out) != 0)
		goto done;
	pid = fork();
	if (pid == 0) {
		dup2(out[1], 1);
		execl("/proc/self/exe", "far_test", "client", bed.uri, NULL);
		_exit(127);
	}
	close(out[1]);
	acknowledged = fdopen(out[0], "r");
	while (number < 200 && fscanf(acknowledged, "%lu", &number) == 1)
		;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	while (fscanf(acknowledged, "%lu", &number) == 1)
		;
	fclose(acknowledged);
	CHECK(number >= 200);
	await_no_writer(&bed);
	if (!CHECK_ASK(&bed.host, "grant ring 0 3 b"))
		goto done;
	writer = open_or_report(&bed, "", 3, 'b');
	CHECK(writer != NULL && farlog_writer_recovery(writer)->record_count > number); /* its EPOCH record is one more */
done:
	farlog_writer_close(writer);
	bed_free(&bed);
}

static int append_until_killed(const char *uri)
{
	struct bed bed = {0};
	struct farlog_error error;
	struct farlog_position position;
	farlog_writer *writer;

	snprintf(bed.uri, sizeof(bed.uri), "%s", uri);
	bed.level = FARLOG_LEVEL_VISIBLE;
	writer = open_far_writer(&bed, "", 2, 'a', &error);
	for (uint64_t number = 1; writer != NULL && append_number(writer, number, LONG_NS, &position) == FARLOG_OK;
		number++) {
		printf("%lu\n", number);
		fflush(stdout);
	}
	return 1;
}

/* 1,000 connections come and go: neither end keeps files or memory of them. */
static void test_cycles(void)
{
	unsigned files[2] = {0, 0};
	size_t heap[2] = {0, 0};
	unsigned before = failed;
	struct bed bed;

	if (!bed_make(&bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") || !CHECK_ASK(&bed.host, "grant ring 3 0 r"))
		goto done;
	for (unsigned i = 0; i < CYCLE_COUNT && failed == before; i++) {
		connect_and_read(&bed, 'r');
		if (i == CYCLE_COUNT / 10) { /* pools of the library have grown by now */
			CHECK(host_ask(&bed.host, "usage") && sscanf(bed.host.reply, "OK %u %zu", &files[0], &heap[0]) == 2);
			files[0] += open_file_count();
			heap[0] += mallinfo2().uordblks;
		}
	}
	/* the last goodbye is on its way */
	for (time_t until = time(NULL) + 20; time(NULL) < until && (files[1] == 0 || files[1] > files[0]);) {
		CHECK(host_ask(&bed.host, "usage") && sscanf(bed.host.reply, "OK %u %zu", &files[1], &heap[1]) == 2);
		files[1] += open_file_count();
		heap[1] += mallinfo2().uordblks;
	}
	printf("far: %u connections: %u files and %zu bytes of heap before, %u and %zu after\n", CYCLE_COUNT, files[0],
		heap[0], files[1], heap[1]);
	CHECK(files[1] <= files[0] && heap[1] < heap[0] + (64u << 10));
done:
	bed_free(&bed);
}

static const int signal_numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGINT, SIGTERM};
#define SIGNAL_COUNT (sizeof(signal_numbers) / sizeof(signal_numbers[0]))
static struct sigaction signals_before[SIGNAL_COUNT]; /* that libfabric was loaded */

/* Loading libfabric loads libraries that install handlers: they must not stay. */
static void test_signals(void)
{
	for (size_t i = 0; i < SIGNAL_COUNT; i++) {
		struct sigaction now;

		CHECK(sigaction(signal_numbers[i], NULL, &now) == 0 && now.sa_handler == signals_before[i].sa_handler);
	}
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"signals", test_signals},
	{"append", test_append},
	{"level", test_level},
	{"fence", test_fence},
	{"restart", test_restart},
	{"drain", test_drain},
	{"refusals", test_refusals},
	{"killed_client", test_killed_client},
	{"hostile", test_hostile},
	{"header", test_header},
	{"cycles", test_cycles},
	{"commit", test_commit},
	{"zombie", test_zombie},
	{"token", test_token},
	{"leave", test_leave},
	{"lost_page", test_lost_page},
	{"twins", test_twins},
	{"slow", test_slow},
	{"flood", test_flood},
	{"unauthenticated", test_unauthenticated},
	{"handshake", test_handshake},
	{"carried", test_carried},
	{"stub", test_stub},
	{"route", test_route},
	{"formatted_again", test_formatted_again},
	{"slow_member", test_slow_member},
	{"fenced_members", test_fenced_members},
	{"fenced_under_way", test_fenced_under_way},
	{"kept_by_one", test_kept_by_one},
	{"comeback_members", test_comeback_members},
	{"comeback_head", test_comeback_head},
	{"comeback_ring", test_comeback_ring},
	{"rails", test_rails},
	{"silent", test_silent},
	{"two_deadlines", test_two_deadlines},
	{"two_taken", test_two_taken},
	{"wakeup_late", test_wakeup_late},
	{"wakeup_taken", test_wakeup_taken},
	{"wakeup_sleepers", test_wakeup_sleepers},
	{"wakeup_worker", test_wakeup_worker},
};

int main(int argc, char **argv)
{
	struct farlog_error error = {0};
	unsigned passed_count = 0;
	unsigned failed_count = 0;
	unsigned skipped_count = 0;
	farlog_target *target;

	if (argc == 3 && strcmp(argv[1], "host") == 0)
		return host_main(argv[2]);
	if (argc == 3 && strcmp(argv[1], "client") == 0)
		return append_until_killed(argv[2]);
	if (argc == 3 && strcmp(argv[1], "open") == 0)
		return open_and_tell(argv[2]);
	setvbuf(stdout, NULL, _IOLBF, 0); /* what a sanitizer ends has told which test it was in */
	for (size_t i = 0; i < SIGNAL_COUNT; i++)
		sigaction(signal_numbers[i], NULL, &signals_before[i]);
	if (farlog_target_open("ofi:tcp://127.0.0.1:0", &target, &error) == FARLOG_UNSUPPORTED) {
		printf("far: skipped: %s\n", error.text);
		return 0;
	}
	farlog_target_close(target);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsigned before = failed;

		if (argc > 1 && strcmp(argv[1], cases[i].name) != 0)
			continue;
		snprintf(now_testing, sizeof(now_testing), "%s", cases[i].name);
		printf("[ RUN      ] %s\n", now_testing);
		is_skipped = false;
		cases[i].run();
		failed_count += failed != before;
		skipped_count += failed == before && is_skipped;
		passed_count += failed == before && !is_skipped;
	}
	printf("far: %u passed, %u failed, %u skipped\n", passed_count, failed_count, skipped_count);
	return failed_count > 0 || passed_count + skipped_count == 0;
}
