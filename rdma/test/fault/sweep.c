/* sweep.c -- every call into kernel and libraries is made to fail once, in turn, in each scenario on each kind of
 * region.
 *
 * Proved: nothing fails open. A scenario that says OK has done its work; one that does not has lost no acknowledged
 * record, says which call failed and why, and works when it is done again. Each run begins with the same bytes: a ring
 * whose writer was killed behind RECORDS acknowledged records, one that is drained, or none. SEED=n, PERCENT=n of the
 * calls, drawn by the seed (100). usage: sweep [kind [scenario]] */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "base/clock.h"
#include "runs.h"
#include "sweep_world.h"

static const struct kind kinds[] = {
	{"file", "mem:", "", "/var/tmp", 1, 1, ONE, false},
	{"directory", "mem:", "?ring=desk/orders&size=1048576", "/dev/shm", 1, 1, MANY, false},
	{"blocks", "nvme:", "?flush=dsync", "/var/tmp", 1, 1, DEVICE, true},
	{"members", "mem:", "", "/dev/shm", 2, 2, MEMBERS, false},
	{"target", "mem:", "", "/var/tmp", 1, 1, TARGET, false},
	{"route", "mem:", "", "/dev/shm", 1, 1, ROUTE, false},
	{"one-of-two", "mem:", "", "/var/tmp", 2, 1, SPARE, false},
};

/* leave -- in a process that is killed: a ring with acknowledged records and no writer. */
static int leave_ring(void)
{
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		if (run_format() == FARLOG_OK && append_some(1, RECORDS, false) == FARLOG_OK)
			kill(getpid(), SIGKILL);
		fprintf(stderr, "%s\n", run.error.text);
		_exit(2);
	}
	return waitpid(child, &status, 0) == child && WIFSIGNALED(status) ? 0 : -1;
}

static bool make_images(const struct kind *kind)
{
	struct farlog_ring_status status;
	uint64_t numbers[NUMBERS];
	unsigned count;

	name_files(kind);
	put_files(START_NONE);
	if (leave_ring() != 0)
		return false;
	keep_files(START_LEFT);
	if (kind->file_count == 1 && farlog_ring_inspect(run.uri, &status, &run.error) == FARLOG_OK)
		images.lag_records = status.lag_records;
	if (drain_ring(numbers, &count) != FARLOG_OK || count != RECORDS)
		return false;
	keep_files(START_DRAINED);
	if (kind->file_count > 1)
		return true;
	put_files(START_LEFT);
	if (damage_record() != FARLOG_OK)
		return false;
	keep_files(START_DAMAGED);
	return true;
}

static char usual_text[sizeof(run.error.text)]; /* what a scenario says when no call fails */

/* says_why -- the error has the reason of the call that failed. Of memory it may say so in words of its own, which are
 * as plain. */
static bool says_why(void)
{
	if (strstr(run.error.text, strerror(calls_errno())) != NULL)
		return true;
	/* What failed at the other end of a connection is not told to this one. */
	if ((run.kind->of & TARGET) != 0 && !calls_was_own())
		return true;
	return calls_errno() == ENOMEM &&
		(run.error.result == FARLOG_NO_MEMORY || strstr(run.error.text, "out of memory") != NULL);
}

/* play_one -- a scenario whose n-th call fails. The number of calls; *is_reached: there was an n-th. */
static unsigned play_one(const struct scenario *scenario, enum calls_kind failure, unsigned n, bool *is_reached)
{
	unsigned count;
	int result;

	memset(run.is_acked, 0, sizeof(run.is_acked));
	memset(run.is_absent, 0, sizeof(run.is_absent));
	memset(&run.error, 0, sizeof(run.error));
	run.failure[0] = '\0';
	for (unsigned i = 1; scenario->start != START_NONE && scenario->start != START_DRAINED && i <= RECORDS; i++)
		run.is_acked[i] = true;
	put_files(scenario->start);
	alarm(HANG_S);
	if (scenario->prepare != NULL && (result = scenario->prepare()) != FARLOG_OK) {
		FAIL("prepared: %s: %s", farlog_result_name(result), run.error.text);
		*is_reached = false;
		return 0;
	}
	calls_arm(failure, n);
	result = scenario->play();
	count = calls_disarm();
	*is_reached = calls_failed() != NULL;
	if (!*is_reached)
		strcpy(usual_text, run.error.text);
	if (result != FARLOG_OK && *is_reached && run.error.result != FARLOG_OK &&
		strcmp(run.error.text, usual_text) != 0 && !says_why())
		FAIL("the error does not say why: \"%s\"", run.error.text);
	else
		scenario->judge(result);
	alarm(0);
	return count;
}

static unsigned long seed, percent;
static unsigned run_count, failed_count;

/* is_drawn -- by the seed, whether a run is among the ones that are played. */
static bool is_drawn(unsigned scenario, unsigned failure, unsigned n)
{
	uint64_t x = (seed + run.kind->name[0] * 7919u + scenario * 104729u + failure * 1299709u + n) * 0x9E3779B97F4A7C15u;

	return (x >> 33) % 100 < percent;
}

static void sweep(unsigned scenario_index, enum calls_kind failure)
{
	const struct scenario *scenario = &scenarios[scenario_index];
	bool is_reached = true;
	unsigned count, played = 0;

	count = play_one(scenario, failure, UINT_MAX, &is_reached);
	run_count++;
	if (run.failure[0] != '\0') {
		printf("[  FAILED  ] %s, %s, without a failure: %s\n", run.kind->name, scenario->name, run.failure);
		failed_count++;
	}
	is_reached = true;
	for (unsigned n = 1; n <= count && is_reached; n++) {
		if (!is_drawn(scenario_index, failure, n))
			continue;
		printf("[ RUN      ] %s %s %s %u\n", run.kind->name, scenario->name, calls_kind_name(failure), n);
		(void)play_one(scenario, failure, n, &is_reached);
		played++;
		if (run.failure[0] == '\0')
			continue;
		printf("[  FAILED  ] %s, %s, %s of call %u, %s: %s\n", run.kind->name, scenario->name, calls_kind_name(failure),
			n, calls_failed() != NULL ? calls_failed() : "none", run.failure);
		failed_count++;
	}
	run_count += played;
	printf("sweep: %s: %s: %s: %u calls, %u runs\n", run.kind->name, scenario->name, calls_kind_name(failure), count,
		played);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	seed = runs_number("SEED", clock_monotonic_ns() & 0xFFFFFFFF);
	percent = runs_number("PERCENT", 100);
	printf("sweep: %lu percent of the calls, seed=%lu: SEED=%lu PERCENT=%lu rdma/test/run.sh sweep\n", percent, seed,
		seed, percent);
	for (unsigned k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		if (argc > 1 && strcmp(argv[1], kinds[k].name) != 0)
			continue;
		if ((kinds[k].of & TARGET) != 0 && !target_is_possible()) {
			printf("sweep: %s: skipped: %s\n", kinds[k].name, run.error.text);
			continue;
		}
		if (!make_images(&kinds[k])) {
			printf("sweep: %s: no ring to begin with: %s\n", kinds[k].name, run.error.text);
			failed_count++;
			continue;
		}
		for (unsigned i = 0; scenarios[i].name != NULL; i++)
			for (unsigned failure = 0; (scenarios[i].of & kinds[k].of) != 0 && failure < CALLS_KIND_COUNT; failure++)
				if (argc < 3 || strcmp(argv[2], scenarios[i].name) == 0)
					sweep(i, failure);
		remove_files();
	}
	printf("sweep: %u passed, %u failed\n", run_count - failed_count, failed_count);
	return failed_count > 0 || run_count == 0;
}
