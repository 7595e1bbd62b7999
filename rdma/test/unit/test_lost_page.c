/* A page of a mapped ring that its media does not give: each call on that ring says so, other rings go on, and what
 * could not be read is never taken for empty, drained or durable. A file that is cut off gives the same SIGBUS as a
 * disk that fails a read. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "farlog/health.h"
#include "log/writer.h"
#include "ring/layout.h"
#include "unit.h"

#define CAPACITY 65536u
#define SIZE (LAYOUT_DATA_OFF + CAPACITY)
#define RECORD_COUNT 20u

/* guard_mappings -- cmocka sets a handler of its own for each test, which would be in the place of farlog's. */
static void guard_mappings(void)
{
	static struct sigaction farlogs;
	struct farlog_error error;

	if (farlogs.sa_sigaction != NULL) {
		assert_int_equal(sigaction(SIGBUS, &farlogs, NULL), 0);
		return;
	}
	assert_int_equal(farlog_guard_mappings(&error), FARLOG_OK);
	assert_int_equal(sigaction(SIGBUS, NULL, &farlogs), 0);
}

static farlog_writer *start_ring(const char *uri)
{
	struct farlog_position position;
	farlog_writer *writer;

	guard_mappings();
	unit_format(uri, SIZE, 4096);
	writer = unit_open(uri);
	for (unsigned i = 0; i < RECORD_COUNT; i++)
		assert_int_equal(unit_append(writer, 1000, (uint8_t)i, &position), FARLOG_OK);
	return writer;
}

/* cut -- all pages of the file from off on. */
static void cut(const char *uri, uint64_t off)
{
	assert_int_equal(truncate(unit_path(uri), (off_t)off), 0);
}

static void check_read_fails(farlog_reader *reader)
{
	static uint8_t buffer[CAPACITY];
	struct farlog_batch batch;
	int result = FARLOG_OK;

	while (result == FARLOG_OK)
		result = farlog_reader_read(reader, buffer, sizeof(buffer), &batch);
	assert_int_equal(result, FARLOG_IO);
	assert_int_equal(farlog_reader_read(reader, buffer, sizeof(buffer), &batch), FARLOG_IO);
}

static void ring_of(const char *uri, uint64_t cut_off)
{
	const char *other_uri = unit_tmpfs_uri("sound");
	farlog_writer *other = start_ring(other_uri);
	farlog_writer *writer = start_ring(uri);
	farlog_reader *drain = unit_read(uri, FARLOG_START_HEAD, true);
	struct farlog_ring_status status;
	struct farlog_position position;
	int result;

	cut(uri, cut_off);
	check_read_fails(drain);
	assert_int_equal(farlog_reader_status(drain, &status), FARLOG_IO);
	for (unsigned i = 0; i < 2 * RECORD_COUNT; i++) {
		result = unit_append(writer, 1000, 1, &position);
		if (result != FARLOG_OK)
			break;
	}
	assert_true(result == FARLOG_IO || result == FARLOG_UNKNOWN || result == FARLOG_CLOSED);
	assert_int_equal(unit_append(other, 1000, 1, &position), FARLOG_OK);
	farlog_reader_close(drain);
	may_fail(farlog_writer_close(writer)); /* what it appended last is not durable */
	assert_int_equal(farlog_writer_close(other), FARLOG_OK);
}

static void ring__loses_a_page_of_its_data(void **state)
{
	(void)state;
	ring_of(unit_tmpfs_uri("data"), LAYOUT_DATA_OFF + 4096);
	ring_of(unit_file_uri("data"), LAYOUT_DATA_OFF + 4096);
}

static void ring__loses_its_header(void **state)
{
	(void)state;
	ring_of(unit_tmpfs_uri("header"), 0);
	ring_of(unit_file_uri("header"), 0);
}

/* The next opening of a ring whose page is back finds all records. */
static void ring__is_whole_again_when_its_media_is(void **state)
{
	const char *uri = unit_tmpfs_uri("again");
	farlog_writer *writer = start_ring(uri);
	farlog_reader *drain = unit_read(uri, FARLOG_START_HEAD, true);
	struct farlog_error error;
	struct farlog_ring_status status;
	static uint8_t bytes[SIZE];
	int fd = open(unit_path(uri), O_RDWR);

	(void)state;
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	assert_int_equal(pread(fd, bytes, SIZE, 0), SIZE);
	cut(uri, LAYOUT_DATA_OFF);
	check_read_fails(drain);
	assert_int_equal(pwrite(fd, bytes, SIZE, 0), SIZE);
	check_read_fails(drain); /* until it is opened again: its mapping has a page of zeros */
	farlog_reader_close(drain);
	assert_int_equal(farlog_ring_inspect(uri, &status, &error), FARLOG_OK);
	assert_int_equal(status.lag_records, RECORD_COUNT + 1); /* and the EPOCH record */
	close(fd);
}

/* A SIGBUS that is none of farlog's ends the process as before, and so does one that another process sends. */
static void bus_error__of_others_is_theirs(void **state)
{
	(void)state;
	for (unsigned is_sent = 0; is_sent < 2; is_sent++) {
		int status;
		pid_t child = fork();

		assert_true(child >= 0);
		if (child == 0) {
			struct farlog_error error;
			FILE *file = tmpfile();
			volatile uint8_t *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(file), 0);

			signal(SIGBUS, SIG_DFL); /* not that of a sanitizer */
			if (farlog_guard_mappings(&error) == FARLOG_OK)
				_exit(is_sent ? kill(getpid(), SIGBUS) : map[0]);
			_exit(1);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGBUS);
	}
}

static void (*called_before)(int, siginfo_t *, void *);

/* end_well, pass_on -- handlers of a program: before farlog's, and after it. */
static void end_well(int number, siginfo_t *info, void *context)
{
	(void)number, (void)info, (void)context;
	_exit(0);
}

static void pass_on(int number, siginfo_t *info, void *context)
{
	called_before(number, info, context);
}

static void set_handler(void (*handler)(int, siginfo_t *, void *))
{
	struct sigaction action = {.sa_flags = SA_SIGINFO};
	struct sigaction before;

	action.sa_sigaction = handler;
	if (sigaction(SIGBUS, &action, &before) != 0)
		_exit(2);
	called_before = before.sa_sigaction;
}

/* check_in_child -- in a process without a handler of farlog's. play ends it: code 0, all is well. */
static void check_in_child(void (*play)(void))
{
	int status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		alarm(60);
		play();
		_exit(3);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void play_chain(void)
{
	struct farlog_error error;
	FILE *file = tmpfile();
	volatile uint8_t *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(file), 0);

	set_handler(end_well);
	if (farlog_guard_mappings(&error) != FARLOG_OK || farlog_guard_mappings(&error) != FARLOG_OK)
		_exit(4);
	set_handler(pass_on);
	if (farlog_guard_mappings(&error) != FARLOG_INVALID)
		_exit(5);
	_exit(6 + map[0]);
}

/* A handler that was set after farlog's and calls it: a second farlog_guard_mappings does not make the two call each
 * other without end. */
static void bus_error__goes_through_a_later_handler(void **state)
{
	(void)state;
	check_in_child(play_chain);
}

static const char *early_uri;

static void play_early(void)
{
	siginfo_t info = {.si_signo = SIGBUS, .si_code = BUS_MCEERR_AO};
	struct farlog_error error;

	set_handler(end_well);
	if (farlog_guard_mappings(&error) != FARLOG_OK)
		_exit(4);
	info.si_addr = (void *)(uintptr_t)unit_open(early_uri)->region->base;
	if (syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGBUS, &info) != 0)
		_exit(5);
}

/* Memory of a ring that was found bad before anybody accessed it (BUS_MCEERR_AO): the signal comes at any place, and is
 * for the handler before. */
static void bus_error__that_no_access_has_raised(void **state)
{
	(void)state;
	early_uri = unit_tmpfs_uri("early");
	unit_format(early_uri, SIZE, 4096);
	check_in_child(play_early);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(bus_error__goes_through_a_later_handler),
	cmocka_unit_test(bus_error__that_no_access_has_raised),
	cmocka_unit_test(bus_error__of_others_is_theirs),
	cmocka_unit_test(ring__loses_a_page_of_its_data),
	cmocka_unit_test(ring__loses_its_header),
	cmocka_unit_test(ring__is_whole_again_when_its_media_is),
};
RUN_GROUP(lost_page, tests)
