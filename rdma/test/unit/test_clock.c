#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "unit.h"

static uint64_t realtime_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Between two anchors time is one straight line: it cannot go back. Across an anchor it may be set by what the rate was
 * off. */
static void clock__goes_forward_with_the_ticks(void **state)
{
	struct clock_reading before = {0};
	uint64_t version = 0;

	(void)state;
	for (unsigned i = 0; i < 200000; i++) {
		uint64_t seen = __atomic_load_n(&clock_anchor.version, __ATOMIC_ACQUIRE);
		struct clock_reading now;

		clock_read(clock_ticks(), &now);
		if (seen == version && seen == __atomic_load_n(&clock_anchor.version, __ATOMIC_ACQUIRE))
			assert_true(now.utc_ns >= before.utc_ns);
		version = seen;
		before = now;
	}
}

/* It is the kernel's time to within what a preempted test can tell. */
static void clock__is_the_kernels_time(void **state)
{
	uint64_t best_ns = UINT64_MAX;

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		uint64_t earliest_ns = realtime_ns();
		struct clock_reading now;
		uint64_t latest_ns;
		uint64_t off_ns;

		clock_read(clock_ticks(), &now);
		latest_ns = realtime_ns();
		off_ns = now.utc_ns < earliest_ns ? earliest_ns - now.utc_ns :
			now.utc_ns > latest_ns        ? now.utc_ns - latest_ns :
											0;
		best_ns = off_ns < best_ns ? off_ns : best_ns;
	}
	assert_true(best_ns < 10000000);
}

static void clock__error_is_known_only_when_disciplined(void **state)
{
	struct timex discipline = {0};
	struct clock_reading now;
	int status = adjtimex(&discipline);
	bool is_disciplined = status >= 0 && status != TIME_ERROR && !(discipline.status & STA_UNSYNC);

	(void)state;
	clock_read(clock_ticks(), &now);
	if (is_disciplined)
		assert_true(now.error_ns >= (uint64_t)discipline.maxerror * 1000 / 2);
	else
		assert_int_equal(now.error_ns, UINT32_MAX);
}

static void clock__elapsed_matches_the_monotonic_clock(void **state)
{
	uint64_t start_ns = clock_monotonic_ns();
	uint64_t start_ticks = clock_ticks();
	struct timespec nap = {0, 30000000};
	uint64_t took_ns;
	uint64_t elapsed_ns;

	(void)state;
	nanosleep(&nap, NULL);
	elapsed_ns = clock_elapsed_ns(clock_ticks() - start_ticks);
	took_ns = clock_monotonic_ns() - start_ns;
	assert_in_range(elapsed_ns, took_ns / 2, took_ns * 2);
}

static void clock__started_twice_stopped_once(void **state)
{
	struct clock_reading before;
	struct clock_reading after;

	(void)state;
	assert_int_equal(clock_start(), 0);
	clock_stop();
	clock_read(clock_ticks(), &before);
	clock_read(clock_ticks(), &after);
	assert_true(before.utc_ns > 1600000000000000000ull);
}

static void *start_and_stop(void *context)
{
	for (int i = 0; i < 40; i++) {
		if (clock_start() != 0)
			*(int *)context = 1;
		clock_stop();
	}
	return NULL;
}

/* A stop that overlaps a start once waited for the new sampler instead of its own. The test's time is limited by its
 * runner. */
static void clock__start_beside_stop_returns(void **state)
{
	pthread_t threads[4];
	int failed[4] = {0};

	(void)state;
	clock_stop(); /* main's: now the sampler really comes and goes */
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, start_and_stop, &failed[i]), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(failed[i], 0);
	}
	assert_int_equal(clock_start(), 0);
}

/* A hardware clock that was asked for and gives no answer must not leave a bound as if it had agreed. */
static void clock__named_phc_that_gives_no_time(void **state)
{
	struct clock_reading now;

	(void)state;
	clock_stop(); /* main's: the setting is read by the first start */
	setenv("FARLOG_CLOCK_PHC", "/nonexistent/ptp0", 1);
	assert_int_equal(clock_start(), ENOENT);
	setenv("FARLOG_CLOCK_PHC", "/dev/null", 1);
	assert_int_equal(clock_start(), 0);
	clock_read(clock_ticks(), &now);
	assert_int_equal(now.error_ns, UINT32_MAX);
	clock_stop();
	unsetenv("FARLOG_CLOCK_PHC");
	assert_int_equal(clock_start(), 0);
}

static void *start_for_ever(void *context)
{
	for (;;)
		if (clock_start() == 0)
			clock_stop();
	return context;
}

/* The sampler's lock is held for nearly all of the time, also when this process forks; its children must be able to
 * start the clock all the same. */
static int fork_while_starting(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, start_for_ever, NULL) != 0)
		return 2;
	for (unsigned i = 0; i < 20; i++) {
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			alarm(20);
			_exit(clock_start() != 0 || (__atomic_load_n(&clock_anchor.version, __ATOMIC_RELAXED) & 1) != 0);
		}
		if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
			return 1;
	}
	return 0;
}

static void clock__starts_in_the_child_of_a_fork(void **state)
{
	pid_t pid;
	int status;

	(void)state;
#if defined(__SANITIZE_THREAD__)
	print_message("clock: skipped: ThreadSanitizer allows no thread in the child of a process with threads; the builds "
				  "without it run this\n");
	skip();
#endif
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		_exit(fork_while_starting());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(clock__goes_forward_with_the_ticks),
	cmocka_unit_test(clock__is_the_kernels_time),
	cmocka_unit_test(clock__error_is_known_only_when_disciplined),
	cmocka_unit_test(clock__elapsed_matches_the_monotonic_clock),
	cmocka_unit_test(clock__started_twice_stopped_once),
	cmocka_unit_test(clock__start_beside_stop_returns),
	cmocka_unit_test(clock__starts_in_the_child_of_a_fork),
	cmocka_unit_test(clock__named_phc_that_gives_no_time),
};
RUN_GROUP(clock, tests)
