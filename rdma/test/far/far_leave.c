/* far_leave.c -- closing: the role is free when close returns, whatever was under way; and close returns, whatever has
 * become of the target. */
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "base/clock.h"
#include "far_test.h"
#include "log/writer.h"

#define ROUND_COUNT 4u
#define GRANT_COUNT 50u      /* of writers in advance: nothing lies between a close and the opening behind it */
#define LIMIT_NS 500000000u  /* far_link.c's for a target that does not answer */
#define SLACK_NS 1500000000u /* for a busy machine; what a close must not wait for takes longer */
#define KILL_AFTER_NS 100000000

/* close_in -- how long a close took. */
static uint64_t close_in(farlog_writer *writer, int *result)
{
	uint64_t start_ns = clock_monotonic_ns();

	*result = farlog_writer_close(writer);
	return clock_monotonic_ns() - start_ns;
}

/* grant_writers -- of epochs from first_epoch on, the tokens 'A' and so on. */
static bool grant_writers(struct bed *bed, unsigned first_epoch)
{
	for (unsigned i = 0; i < GRANT_COUNT; i++)
		if (!CHECK_ASK(&bed->host, "grant ring 0 %u %c", first_epoch + i, 'A' + (int)i))
			return false;
	return true;
}

/* writers_in_turn -- one after the other; every other one leaves while what it submitted is under way. What was
 * acknowledged is there in the end. */
static void writers_in_turn(struct bed *bed)
{
	struct farlog_position position = {0};
	uint64_t acknowledged_lsn = 0;
	unsigned held_count = 0;

	for (unsigned i = 0; i < ROUND_COUNT * GRANT_COUNT; i++) {
		struct farlog_error error = {0};
		farlog_writer *writer;

		if (i % GRANT_COUNT == 0 && !grant_writers(bed, 2 + i))
			return;
		writer = open_far_writer(bed, "", 2 + i, (char)('A' + i % GRANT_COUNT), &error);
		held_count += error.result == FARLOG_HELD;
		if (writer == NULL)
			continue;
		CHECK(farlog_writer_recovery(writer)->tail_lsn >= acknowledged_lsn);
		CHECK(append_number(writer, i, LONG_NS, &position) == FARLOG_OK);
		acknowledged_lsn = position.end_lsn;
		if (i % 2 == 0) {
			CHECK(farlog_submit(writer, &(struct farlog_entry){.data = "left", .len = 4}, &position) == FARLOG_OK);
			writer->deadline_ns = 1;
		}
		farlog_writer_close(writer);
	}
	if (held_count > 0)
		printf("far: %s: %u of %u openings right after a close found the ring held\n", now_testing, held_count,
			ROUND_COUNT * GRANT_COUNT);
	CHECK(held_count == 0);
}

static void drains_in_turn(struct bed *bed)
{
	unsigned held_count = 0;

	if (!CHECK_ASK(&bed->host, "grant ring 1 0 x") || !CHECK_ASK(&bed->host, "grant ring 1 0 y"))
		return;
	for (unsigned i = 0; i < ROUND_COUNT * GRANT_COUNT; i++) {
		uint8_t token[FARLOG_TOKEN_LEN];
		struct farlog_reader_config config = {.is_drain = 1, .grant_token = token};
		struct farlog_error error = {0};
		farlog_reader *drain = NULL;

		host_token(i % 2 == 0 ? 'x' : 'y', token);
		held_count += farlog_reader_open(bed->uri, &config, &drain, &error) == FARLOG_HELD;
		farlog_reader_close(drain);
	}
	CHECK(held_count == 0);
}

static void in_turn(void)
{
	for (unsigned is_blocking = 0; is_blocking < 2; is_blocking++) {
		struct bed bed;

		snprintf(now_testing, sizeof(now_testing), "leave: in turn, wait %s", is_blocking ? "block" : "spin");
		if (bed_make(&bed, "/dev/shm",
				is_blocking ? "ofi:tcp://127.0.0.1:0?wait=block" : "ofi:tcp://127.0.0.1:0?wait=spin")) {
			writers_in_turn(&bed);
			drains_in_turn(&bed);
		}
		bed_free(&bed);
	}
}

/* in_hand -- a local writer finds the role free, too: it does not come by the thread that gives it back. */
static void in_hand(void)
{
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .counters_dir = ""};
	struct farlog_error error = {0};
	struct bed bed;

	snprintf(now_testing, sizeof(now_testing), "leave: to a local writer");
	if (bed_make(&bed, "/dev/shm", "ofi:tcp://127.0.0.1:0")) {
		for (uint32_t epoch = 2; epoch < 42; epoch += 2) {
			farlog_writer *local = NULL;
			farlog_writer *writer;

			if (!CHECK_ASK(&bed.host, "grant ring 0 %u a", epoch))
				break;
			writer = open_far_writer(&bed, "", epoch, 'a', &error);
			CHECK_OK(error.result);
			farlog_writer_close(writer);
			CHECK_OK(farlog_writer_open(bed.local_uri, &config, &local, &error));
			farlog_writer_close(local);
		}
	}
	bed_free(&bed);
}

/* ---------------------------------------------------------------- a target that is not there */

/* All is acknowledged, and the target is gone: with its host still there to say so, or not. */
static void from_the_dead(int signal_number, uint64_t limit_ns)
{
	struct farlog_position position;
	struct bed bed;
	farlog_writer *writer = open_with_records(&bed, 1, &position);
	int result;

	snprintf(now_testing, sizeof(now_testing), "leave: target after signal %d", signal_number);
	if (writer != NULL) {
		kill(bed.host.pid, signal_number);
		CHECK(close_in(writer, &result) < limit_ns);
		CHECK(result == FARLOG_OK);
	}
	bed_free(&bed);
}

static void *kill_later(void *context)
{
	nanosleep(&(struct timespec){0, KILL_AFTER_NS}, NULL);
	kill(*(pid_t *)context, SIGKILL);
	return NULL;
}

/* It has the request, perhaps, and dies before it answers. */
static void dies_meanwhile(void)
{
	struct farlog_position position;
	struct bed bed;
	farlog_writer *writer = open_with_records(&bed, 1, &position);
	pthread_t killer;
	int result;

	snprintf(now_testing, sizeof(now_testing), "leave: target dies meanwhile");
	if (writer != NULL) {
		kill(bed.host.pid, SIGSTOP);
		CHECK(pthread_create(&killer, NULL, kill_later, &bed.host.pid) == 0);
		CHECK(close_in(writer, &result) < LIMIT_NS + SLACK_NS);
		pthread_join(killer, NULL);
	}
	bed_free(&bed);
}

/* A target that was killed with a record under way: close has its deadline for that, and none for leaving. */
static void dead_with_records(void)
{
	struct farlog_entry entry = {.data = "left", .len = 4};
	struct farlog_position position;
	struct bed bed;
	farlog_writer *writer = open_with_records(&bed, 1, &position);
	int result;

	snprintf(now_testing, sizeof(now_testing), "leave: target killed with a record under way");
	if (writer != NULL) {
		kill(bed.host.pid, SIGSTOP);
		CHECK(farlog_submit(writer, &entry, &position) == FARLOG_OK);
		kill(bed.host.pid, SIGKILL);
		writer->deadline_ns = LIMIT_NS;
		CHECK(close_in(writer, &result) < LIMIT_NS + SLACK_NS);
		CHECK(result == FARLOG_UNKNOWN);
	}
	bed_free(&bed);
}

void test_leave(void)
{
	in_turn();
	in_hand();
	from_the_dead(SIGKILL, SLACK_NS);
	from_the_dead(SIGSTOP, LIMIT_NS + SLACK_NS);
	dies_meanwhile();
	dead_with_records();
}
