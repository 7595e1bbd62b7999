/* test_disk_space.c -- several processes make the same ring's file at the same moment, and for one of them the disk has
 * no room. */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "ring/layout.h"
#include "unit.h"

#define RING_SIZE (LAYOUT_DATA_OFF + (1u << 20))
#define WAIT_NS 60000000000u /* it is never what a test measures */

static int told[2];     /* the first process has seen that the file is empty */
static int released[2]; /* and may go on */

static void stand(void)
{
	char word = 'x';

	if (write(told[1], &word, 1) != 1 || read(released[0], &word, 1) != 1)
		_exit(3);
}

static bool stands; /* before this process gives a file its blocks */

int __real_posix_fallocate64(int fd, off64_t from, off64_t len);
int __wrap_posix_fallocate64(int fd, off64_t from, off64_t len);

int __wrap_posix_fallocate64(int fd, off64_t from, off64_t len)
{
	if (stands)
		stand();
	return __real_posix_fallocate64(fd, from, len);
}

static int format(const char *uri, uint64_t size_bytes)
{
	struct farlog_ring_config config = {
		.size_bytes = size_bytes, .record_len_max = 4096, .salt = 0x1234567800000001u, .stream_name = "made"};

	return farlog_ring_format(uri, &config, NULL);
}

/* fork_maker -- a process that makes the ring; the first one stands before it gives the file its blocks, which then
 * fails. */
static pid_t fork_maker(const char *uri, bool is_first)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid != 0)
		return pid;
	if (is_first) {
		struct rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};

		signal(SIGXFSZ, SIG_IGN);
		stands = true;
		if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
			_exit(2);
	}
	_exit(format(uri, is_first ? 2 * RING_SIZE : RING_SIZE) == FARLOG_OK ? 0 : 1);
}

/* is_waiting -- whether a process waits for a file's lock, as the kernel shows it. */
static bool is_waiting(pid_t pid)
{
	char wanted[64];
	char line[256];
	bool is_found = false;
	FILE *locks = fopen("/proc/locks", "r");

	assert_non_null(locks);
	snprintf(wanted, sizeof(wanted), " %d ", (int)pid);
	while (!is_found && fgets(line, sizeof(line), locks) != NULL)
		is_found = strstr(line, "-> FLOCK") != NULL && strstr(line, wanted) != NULL;
	fclose(locks);
	return is_found;
}

/* until_stopped -- until it has ended or waits for the first one. */
static bool until_stopped(pid_t pid, int *status)
{
	uint64_t until_ns = clock_after_ns(WAIT_NS);

	for (;;) {
		if (waitpid(pid, status, WNOHANG) == pid)
			return true;
		if (is_waiting(pid))
			return false;
		assert_true(clock_monotonic_ns() < until_ns);
		usleep(1000);
	}
}

/* What one has made is not emptied by another one whose attempt fails: neither when the file was there and empty, nor
 * when the one that fails has made it. */
static void disk_space__two_make_one_file(void **state)
{
	(void)state;
	for (unsigned is_there = 0; is_there < 2; is_there++) {
		const char *uri = unit_tmpfs_uri("made");
		int status = -1;
		struct stat info;
		char word;
		bool has_ended;
		pid_t first;
		pid_t second;

		unlink(unit_path(uri));
		if (is_there) {
			FILE *file = fopen(unit_path(uri), "w");

			assert_non_null(file);
			fclose(file);
		}
		assert_int_equal(pipe(told), 0);
		assert_int_equal(pipe(released), 0);
		first = fork_maker(uri, true);
		assert_int_equal(read(told[0], &word, 1), 1);
		second = fork_maker(uri, false);
		has_ended = until_stopped(second, &status);
		assert_int_equal(write(released[1], "x", 1), 1);
		if (!has_ended)
			assert_int_equal(waitpid(second, &status, 0), second);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		assert_int_equal(waitpid(first, &status, 0), first);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
		assert_int_equal(stat(unit_path(uri), &info), 0);
		assert_int_equal(info.st_size, RING_SIZE);
		assert_int_equal(farlog_writer_close(unit_open(uri)), FARLOG_OK);
		for (unsigned i = 0; i < 2; i++) {
			close(told[i]);
			close(released[i]);
		}
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(disk_space__two_make_one_file),
};

RUN_GROUP(disk_space, tests)
