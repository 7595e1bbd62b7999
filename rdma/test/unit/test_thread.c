/* Threads of the library leave a program's signals to the program's own threads, whatever starts them: what the kernel
 * says of each thread that is there besides those that were there before. */
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "farlog/heartbeat.h"
#include "farlog/route.h"
#include "ring/layout.h"
#include "unit.h"

#define SIZE (LAYOUT_DATA_OFF + (64u << 10))
#define THREAD_COUNT_MAX 256u
#define BEAT_NS 1000000000u

static long before[THREAD_COUNT_MAX];
static unsigned before_count;

static bool was_before(long thread)
{
	for (unsigned i = 0; i < before_count; i++)
		if (before[i] == thread)
			return true;
	return false;
}

/* blocked_signals -- bit n - 1: signal n. False: the thread has ended. */
static bool blocked_signals(long thread, unsigned long long *mask)
{
	char path[60];
	char line[200];
	bool is_there = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%ld/status", thread);
	file = fopen(path, "r");
	while (file != NULL && !is_there && fgets(line, sizeof(line), file) != NULL)
		is_there = sscanf(line, "SigBlk: %llx", mask) == 1;
	if (file != NULL)
		fclose(file);
	return is_there;
}

static bool is_in(unsigned long long mask, int signal)
{
	return mask >> (signal - 1) & 1;
}

/* started_signals -- as blocked_signals, once the thread is in its own function: until then glibc blocks also what is
 * its own, which lies between SIGSYS and SIGRTMIN, and which no mask of a program holds. */
static bool started_signals(long thread, unsigned long long *mask)
{
	bool is_there = blocked_signals(thread, mask);

	while (is_there && is_in(*mask, SIGSYS + 1)) {
		sched_yield();
		is_there = blocked_signals(thread, mask);
	}
	return is_there;
}

/* check_thread -- what anybody may send it is blocked; a fault of its own goes to the program's handler. */
static void check_thread(long thread, unsigned long long mask, const char *what)
{
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};

	for (int signal = 1; signal <= SIGRTMAX; signal++) {
		bool is_fault = false;

		for (unsigned i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
			is_fault |= signal == faults[i];
		if (signal == SIGKILL || signal == SIGSTOP || (signal > SIGSYS && signal < SIGRTMIN)) /* nobody can */
			continue;
		if (is_in(mask, signal) == is_fault)
			fail_msg("%s: thread %ld of the library: signal %d (%s) is %sblocked", what, thread, signal,
				strsignal(signal), is_fault ? "" : "not ");
	}
}

/* each_thread -- remember those that are there; or look at the ones that have come since, and count them. */
static unsigned each_thread(const char *what)
{
	DIR *directory = opendir("/proc/self/task");
	unsigned long long mask;
	unsigned count = 0;

	assert_non_null(directory);
	for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
		long thread = strtol(entry->d_name, NULL, 10);

		if (thread == 0)
			continue;
		if (what == NULL) {
			assert_true(before_count < THREAD_COUNT_MAX);
			before[before_count++] = thread;
		} else if (!was_before(thread) && started_signals(thread, &mask)) {
			check_thread(thread, mask, what);
			count++;
		}
	}
	closedir(directory);
	return count;
}

static void remember_threads(void)
{
	before_count = 0;
	each_thread(NULL);
}

static void thread__of_a_writer_on_a_file(void **state)
{
	const char *uri = unit_file_uri("threads");
	farlog_writer *writer;

	(void)state;
	unit_format(uri, SIZE, 4096);
	remember_threads();
	writer = unit_open(uri);
	assert_true(each_thread("writer on a file") >= 1); /* of msync; and the one that watches names */
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

static void thread__of_heartbeats(void **state)
{
	const char *uri = unit_tmpfs_uri("threads");
	farlog_shared *shared;

	(void)state;
	unit_format(uri, SIZE, 4096);
	assert_int_equal(farlog_shared_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &shared, NULL), FARLOG_OK);
	remember_threads();
	assert_int_equal(farlog_shared_heartbeats(shared, BEAT_NS), FARLOG_OK);
	assert_true(each_thread("heartbeats") >= 1);
	assert_int_equal(farlog_shared_close(shared), FARLOG_OK);
}

static void format_members(char uri[2000])
{
	struct farlog_ring_config config = {.size_bytes = SIZE, .record_len_max = 4096, .salt = 77, .is_forced = 1};
	int len = snprintf(uri, 2000, "members:2");

	for (unsigned i = 0; i < 3; i++) {
		const char *member = unit_tmpfs_uri("member");

		assert_int_equal(farlog_ring_format(member, &config, NULL), FARLOG_OK);
		len += snprintf(uri + len, 2000 - (size_t)len, " %s", member);
	}
}

static void thread__of_members(void **state)
{
	struct farlog_error error = {0};
	farlog_writer *writer;
	farlog_reader *reader;
	char uri[2000];

	(void)state;
	format_members(uri);
	remember_threads();
	if (farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, &error) != FARLOG_OK)
		fail_msg("open: %s", error.text);
	assert_true(each_thread("writer of members") >= 4); /* of each, and of all */
	remember_threads();
	reader = unit_read(uri, FARLOG_START_HEAD, false);
	assert_true(each_thread("reader of members") >= 3);
	farlog_reader_close(reader);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

static void thread__of_a_route(void **state)
{
	struct farlog_route_leg leg = {.name = "a",
		.uri = unit_tmpfs_uri("leg"),
		.policy = FARLOG_ROUTE_DROP,
		.buffer_bytes = SIZE,
		.config = {.level = FARLOG_LEVEL_VISIBLE, .counters_dir = ""}};
	struct farlog_route_config config = {.name = "desk7", .legs = &leg, .leg_count = 1};
	farlog_route *route;

	(void)state;
	unit_format(leg.uri, SIZE, 4096);
	remember_threads();
	assert_int_equal(farlog_route_open(&config, &route, NULL), FARLOG_OK);
	assert_true(each_thread("route") >= 1);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
}

static void thread__of_the_clock(void **state)
{
	(void)state;
	clock_stop(); /* main has started it */
	remember_threads();
	assert_int_equal(clock_start(), 0);
	assert_true(each_thread("clock") >= 1);
}

static void thread__of_a_target_and_its_client(void **state)
{
	static const uint8_t token[FARLOG_TOKEN_LEN] = "a writer's token";
	struct farlog_grant grant = {.role = FARLOG_GRANT_WRITER, .epoch = 2};
	struct farlog_writer_config config = {
		.level = FARLOG_LEVEL_VISIBLE, .epoch = 2, .grant_token = token, .counters_dir = ""};
	const char *local_uri = unit_file_uri("threads");
	struct farlog_error error = {0};
	farlog_target *target;
	farlog_writer *writer;
	char uri[400];

	(void)state;
	unit_format(local_uri, SIZE, 4096);
	memcpy(grant.token, token, sizeof(token));
	remember_threads();
	if (farlog_target_open("ofi:tcp://127.0.0.1:0", &target, &error) == FARLOG_UNSUPPORTED)
		skip();
	assert_int_equal(farlog_target_serve(target, "ring", local_uri, NULL, &error), FARLOG_OK);
	assert_int_equal(farlog_target_grant(target, "ring", &grant, &error), FARLOG_OK);
	assert_true(each_thread("target") >= 3); /* two listen, one flushes */
	remember_threads();
	snprintf(uri, sizeof(uri), "%s/ring", farlog_target_uri(target));
	assert_int_equal(farlog_writer_open(uri, &config, &writer, &error), FARLOG_OK);
	assert_true(each_thread("client") >= 1);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	farlog_target_close(target);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(thread__of_the_clock),
	cmocka_unit_test(thread__of_a_target_and_its_client),
	cmocka_unit_test(thread__of_a_writer_on_a_file),
	cmocka_unit_test(thread__of_heartbeats),
	cmocka_unit_test(thread__of_members),
	cmocka_unit_test(thread__of_a_route),
};
RUN_GROUP(thread, tests)
