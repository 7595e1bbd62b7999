#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stats.h"
#include "unit.h"

static void histogram__bucket_bounds_hold(void **state)
{
	(void)state;
	for (uint64_t latency_ns = 0; latency_ns < 5000; latency_ns++)
		assert_true(latency_ns <= farlog_histogram_bucket_ns(stats_bucket(latency_ns)));
	for (unsigned i = 0; i < 100000; i++) {
		uint64_t latency_ns = unit_random() >> (22 + unit_below(42));
		unsigned bucket = stats_bucket(latency_ns);
		uint64_t upper_ns = farlog_histogram_bucket_ns(bucket);

		assert_true(bucket < FARLOG_HISTOGRAM_BUCKET_COUNT);
		assert_true(latency_ns <= upper_ns);
		assert_true(bucket == 0 || latency_ns > farlog_histogram_bucket_ns(bucket - 1));
		assert_true(upper_ns - latency_ns <= latency_ns / 31 + 1); /* at most 3.2 % wide */
	}
	assert_int_equal(stats_bucket(UINT64_MAX), FARLOG_HISTOGRAM_BUCKET_COUNT - 1);
	for (unsigned bucket = 1; bucket < FARLOG_HISTOGRAM_BUCKET_COUNT; bucket++)
		assert_true(farlog_histogram_bucket_ns(bucket) > farlog_histogram_bucket_ns(bucket - 1));
}

static void histogram__quantiles(void **state)
{
	static struct farlog_counters counters;

	(void)state;
	memset(&counters, 0, sizeof(counters));
	assert_int_equal(farlog_histogram_quantile_ns(&counters, 0.5), 0);
	for (uint64_t i = 1; i <= 1000; i++)
		stats_latency(&counters, i * 1000);
	assert_in_range(farlog_histogram_quantile_ns(&counters, 0.5), 495000, 520000);
	assert_in_range(farlog_histogram_quantile_ns(&counters, 0.99), 985000, 1000000);
	assert_int_equal(farlog_histogram_quantile_ns(&counters, 1.0), 1000000);
	assert_int_equal(counters.latency_count, 1000);
	assert_int_equal(counters.latency_sum_ns, 500500000);
}

static void counters__survive_their_writer_and_refuse_foreign_files(void **state)
{
	char directory[] = "/dev/shm/farlog-unit-stats-XXXXXX";
	uint8_t uuid[16] = {0xAB, 0xCD};
	struct farlog_counters *counters;
	struct farlog_counters seen;
	struct farlog_error error;
	char path[200];
	FILE *file;
	int lock_fd;

	(void)state;
	assert_non_null(mkdtemp(directory));
	assert_int_equal(farlog_counters_read(directory, uuid, &seen, &error), FARLOG_NOT_FOUND);
	assert_int_equal(stats_open(directory, uuid, &counters, &lock_fd, &error), FARLOG_OK);
	assert_int_equal(farlog_counters_read(directory, uuid, &seen, &error), FARLOG_OK);
	assert_int_equal(seen.clock_err_ns, UINT32_MAX); /* nothing is known of it before the writer is open */
	atomic_store_relaxed(&counters->record_count, 42);
	stats_latency(counters, 100);
	stats_close(counters, lock_fd);
	assert_int_equal(farlog_counters_read(directory, uuid, &seen, &error), FARLOG_OK);
	assert_int_equal(seen.record_count, 42);
	assert_int_equal(seen.latency_max_ns, 100);
	snprintf(path, sizeof(path), "%s/abcd%028d.counters", directory, 0);
	file = fopen(path, "r+");
	assert_non_null(file);
	fputs("FOREIGN!", file);
	fclose(file);
	assert_int_equal(farlog_counters_read(directory, uuid, &seen, &error), FARLOG_CORRUPT);
	assert_int_equal(truncate(path, 10), 0);
	assert_int_equal(farlog_counters_read(directory, uuid, &seen, &error), FARLOG_CORRUPT);
	assert_int_equal(stats_open("/nowhere/at/all", uuid, &counters, &lock_fd, &error), FARLOG_IO);
	assert_non_null(strstr(error.text, "/nowhere/at/all"));
	unlink(path);
	rmdir(directory);
}

/* Whoever may write the file, as another process of the same user, has no say in which of this process's descriptors is
 * closed: what was in the file was taken for one. */
static void counters__close_what_was_opened(void **state)
{
	char directory[] = "/dev/shm/farlog-unit-stats-XXXXXX";
	uint8_t uuid[16] = {0xAB, 0xCE};
	struct farlog_counters *counters;
	struct farlog_error error;
	uint64_t words[5];
	char path[200];
	int lock_fd, mine, file;

	(void)state;
	assert_non_null(mkdtemp(directory));
	assert_int_equal(stats_open(directory, uuid, &counters, &lock_fd, &error), FARLOG_OK);
	assert_true(lock_fd >= 0);
	snprintf(path, sizeof(path), "%s/abce%028d.counters", directory, 0);
	mine = open("/dev/null", O_RDONLY | O_CLOEXEC);
	file = open(path, O_RDWR | O_CLOEXEC);
	assert_true(mine >= 0 && file >= 0);
	assert_int_equal(flock(file, LOCK_EX | LOCK_NB), -1);
	for (unsigned i = 0; i < 5; i++)
		words[i] = (uint64_t)mine + 1;
	/* all that is neither checked nor a counter */
	assert_int_equal(pwrite(file, words, sizeof(words), 24), sizeof(words));
	stats_close(counters, lock_fd);
	assert_int_equal(fcntl(lock_fd, F_GETFD), -1);
	assert_int_equal(fcntl(mine, F_GETFD), FD_CLOEXEC);
	assert_int_equal(flock(file, LOCK_EX | LOCK_NB), 0);
	close(file);
	close(mine);
	unlink(path);
	rmdir(directory);
}

/* Any local user may make files where writers of all users leave their counters. Who reads them neither waits, nor
 * follows a link, nor dies when the file is cut off meanwhile. */
static void counters__of_a_hostile_user_harm_nobody(void **state)
{
	char directory[] = "/dev/shm/farlog-unit-stats-XXXXXX";
	uint8_t uuid[16] = {0xAB, 0xCF};
	struct farlog_counters seen;
	struct farlog_error error;
	char path[200];
	char sound[220];
	pid_t cutter;
	int file;

	(void)state;
	assert_non_null(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/abcf%028d.counters", directory, 0);
	snprintf(sound, sizeof(sound), "%s.sound", path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(farlog_counters_read(directory, uuid, &seen, &error), FARLOG_CORRUPT);
	assert_non_null(strstr(error.text, "expected a regular file"));
	unlink(path);
	file = open(sound, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(file >= 0);
	assert_int_equal(ftruncate(file, 65536), 0);
	assert_int_equal(symlink(sound, path), 0);
	assert_int_equal(farlog_counters_read(directory, uuid, &seen, &error), FARLOG_IO);
	assert_int_equal(error.os_errno, ELOOP);
	assert_int_equal(rename(sound, path), 0);
	cutter = fork();
	if (cutter == 0)
		for (;;)
			if (ftruncate(file, 0) != 0 || ftruncate(file, 65536) != 0)
				_exit(1);
	assert_true(cutter > 0);
	for (unsigned i = 0; i < 20000; i++)
		assert_int_equal(farlog_counters_read(directory, uuid, &seen, &error), FARLOG_CORRUPT);
	kill(cutter, SIGKILL);
	assert_int_equal(waitpid(cutter, NULL, 0), cutter);
	close(file);
	unlink(path);
	rmdir(directory);
}

/* opens_private -- a writer's counters in this directory are its own, and no file is made. */
static void opens_private(const char *directory)
{
	uint8_t uuid[16] = {0xAB, 0xD0};
	struct farlog_counters *counters = NULL;
	struct farlog_counters seen;
	struct farlog_error error;
	int lock_fd;

	assert_int_equal(stats_open(directory, uuid, &counters, &lock_fd, &error), FARLOG_OK);
	assert_int_equal(lock_fd, -1);
	assert_int_equal(farlog_counters_read(directory, uuid, &seen, &error), FARLOG_NOT_FOUND);
	stats_close(counters, lock_fd);
}

/* A user who makes the counters' directory before everybody else could take files away, or have them written elsewhere:
 * nothing is written into another user's directory that all may change, nor through a link. */
static void counters__are_not_written_where_another_user_says(void **state)
{
	char directory[] = "/dev/shm/farlog-unit-stats-XXXXXX";
	char link[60];

	(void)state;
	assert_non_null(mkdtemp(directory));
	snprintf(link, sizeof(link), "%s.link", directory);
	assert_int_equal(symlink(directory, link), 0);
	opens_private(link);
	unlink(link);
	if (geteuid() == 0) {
		assert_int_equal(chmod(directory, 01777), 0);
		assert_int_equal(chown(directory, 65534, 65534), 0);
		opens_private(directory);
	}
	rmdir(directory);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(histogram__bucket_bounds_hold),
	cmocka_unit_test(histogram__quantiles),
	cmocka_unit_test(counters__survive_their_writer_and_refuse_foreign_files),
	cmocka_unit_test(counters__close_what_was_opened),
	cmocka_unit_test(counters__of_a_hostile_user_harm_nobody),
	cmocka_unit_test(counters__are_not_written_where_another_user_says),
};
RUN_GROUP(stats, tests)
