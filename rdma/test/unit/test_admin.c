#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "farlog/takeover.h"
#include "ring/layout.h"
#include "unit.h"

#define SIZE (LAYOUT_DATA_OFF + 65536u)

static int format_with(const char *uri, struct farlog_ring_config config, struct farlog_error *error)
{
	memset(error, 0, sizeof(*error));
	return farlog_ring_format(uri, &config, error);
}

static void format__bad_numbers_make_no_file(void **state)
{
	const struct farlog_ring_config cases[] = {
		{.size_bytes = 5000},
		{.size_bytes = LAYOUT_DATA_OFF},
		{.size_bytes = 0},
		{.size_bytes = SIZE, .align = 96},
		{.size_bytes = SIZE, .align = 8192},
		{.size_bytes = SIZE, .record_len_max = 100},
		{.size_bytes = SIZE, .record_len_max = 65536},
		{.size_bytes = SIZE, .salt = 1ull << 32},
		{.size_bytes = SIZE, .stream_name = "a-name-that-is-longer-than-the-sixty-three-bytes-which-it-has-room-for"},
	};
	const char *uri = unit_tmpfs_uri("bad");
	struct farlog_error error;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(format_with(uri, cases[i], &error), FARLOG_INVALID);
		assert_non_null(strstr(error.text, uri));
		assert_int_equal(access(unit_path(uri), F_OK), -1);
	}
}

static void format__ring_or_foreign_bytes_are_there(void **state)
{
	const char *uri = unit_tmpfs_uri("there");
	struct farlog_error error;
	int fd = open(unit_path(uri), O_RDWR | O_CREAT, 0600);

	(void)state;
	assert_int_equal(ftruncate(fd, SIZE), 0);
	assert_int_equal(pwrite(fd, "diary", 5, 4000), 5);
	close(fd);
	assert_int_equal(format_with(uri, (struct farlog_ring_config){0}, &error), FARLOG_EXISTS);
	assert_non_null(strstr(error.text, "holds other data and no ring"));
	assert_int_equal(
		format_with(uri, (struct farlog_ring_config){.is_forced = 1, .stream_name = "desk7/orders"}, &error),
		FARLOG_OK);
	assert_int_equal(format_with(uri, (struct farlog_ring_config){0}, &error), FARLOG_EXISTS);
	assert_non_null(strstr(error.text, "desk7/orders"));
	assert_int_equal(
		format_with(uri, (struct farlog_ring_config){.is_forced = 1, .size_bytes = 2 * SIZE - LAYOUT_DATA_OFF}, &error),
		FARLOG_INVALID);
}

static void format__held_by_writer_or_drain(void **state)
{
	const char *uri = unit_tmpfs_uri("held");
	struct farlog_ring_config config = {.is_forced = 1};
	struct farlog_error error;
	farlog_writer *writer;
	farlog_reader *drain;

	(void)state;
	unit_format(uri, SIZE, 0);
	writer = unit_open(uri);
	assert_int_equal(format_with(uri, config, &error), FARLOG_HELD);
	farlog_writer_close(writer);
	drain = unit_read(uri, FARLOG_START_HEAD, true);
	assert_int_equal(format_with(uri, config, &error), FARLOG_HELD);
	farlog_reader_close(drain);
	assert_int_equal(format_with(uri, config, &error), FARLOG_OK);
}

static void inspect__living_and_dead_writer(void **state)
{
	const char *uri = unit_tmpfs_uri("inspect");
	struct farlog_ring_status status;
	struct farlog_position position;
	struct farlog_error error;
	farlog_writer *writer;

	(void)state;
	unit_format(uri, SIZE, 0);
	assert_int_equal(farlog_ring_inspect(uri, &status, &error), FARLOG_OK);
	assert_int_equal(status.writer_epoch, 0);
	assert_int_equal(status.lag_bytes, 0);
	assert_int_equal(status.capacity_bytes, 65536);
	writer = unit_open(uri);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(unit_append(writer, 64, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_ring_inspect(uri, &status, &error), FARLOG_OK);
	assert_int_equal(status.is_writer_held, 1);
	assert_int_equal(status.lag_bytes, 6 * 128);
	assert_int_equal(status.lag_records, 6);
	assert_true(status.oldest_ts_ns > 0);
	farlog_writer_close(writer);
	assert_int_equal(farlog_ring_inspect(uri, &status, &error), FARLOG_OK);
	assert_int_equal(status.is_writer_held, 0);
	assert_int_equal(status.appended_lsn, 6 * 128);
	assert_int_equal(status.lag_records, 6);
	assert_int_equal(status.writer_epoch, 1);
	assert_non_null(strstr(status.writer_id, "pid="));
}

/* see -- what a look by the mark says, and one that knows nothing of earlier ones, is the same. */
static void see(const char *uri, struct farlog_ring_mark *mark)
{
	struct farlog_ring_status status;
	struct farlog_ring_status whole;
	struct farlog_error error;

	assert_int_equal(farlog_ring_look(uri, mark, &status, &error), FARLOG_OK);
	assert_int_equal(farlog_ring_inspect(uri, &whole, &error), FARLOG_OK);
	assert_int_equal(status.appended_lsn, whole.appended_lsn);
	assert_int_equal(status.durable_lsn, whole.durable_lsn);
	assert_int_equal(status.lag_bytes, whole.lag_bytes);
	assert_int_equal(status.lag_records, whole.lag_records);
	assert_int_equal(status.oldest_ts_ns, whole.oldest_ts_ns);
	assert_int_equal(status.newest_ts_ns, whole.newest_ts_ns);
	assert_int_equal(mark->lsn, whole.appended_lsn);
}

static void drain_some(farlog_reader *drain, size_t len)
{
	struct farlog_batch batch;
	uint8_t buffer[SIZE];
	int result = farlog_reader_read(drain, buffer, len, &batch);

	assert_true(result == FARLOG_OK || result == FARLOG_NOT_YET);
	if (result == FARLOG_OK)
		assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
}

/* look__says_what_inspect_says -- of a ring whose writer is on another host, as far as anybody can see: it keeps its
 * counters to itself. By several laps, writers and PADs, with the head behind the mark, at it and beyond; then other
 * rings lie there. */
static void look__says_what_inspect_says(void **state)
{
	const char *uri = unit_tmpfs_uri("look");
	struct farlog_ring_mark mark = {0};
	struct farlog_ring_config config = {.is_forced = 1};
	struct farlog_position position;
	struct farlog_error error;
	farlog_writer *writer;
	farlog_reader *drain;

	(void)state;
	unit_format(uri, SIZE, 0);
	see(uri, &mark);
	writer = unit_open(uri);
	drain = unit_read(uri, FARLOG_START_HEAD, true);
	for (unsigned i = 0; i < 400; i++) {
		if (unit_append(writer, 200 + (uint32_t)unit_below(2000), (uint8_t)i, &position) != FARLOG_OK)
			drain_some(drain, SIZE);
		if (unit_below(3) == 0)
			see(uri, &mark);
		if (unit_below(5) == 0)
			drain_some(drain, 4096);
		if (unit_below(40) == 0) {
			farlog_writer_close(writer);
			see(uri, &mark);
			writer = unit_open(uri);
		}
	}
	for (unsigned i = 0; i < 100; i++) /* more than a lap behind the last look's back */
		if (unit_append(writer, 2000, (uint8_t)i, &position) != FARLOG_OK)
			drain_some(drain, SIZE);
	see(uri, &mark);
	drain_some(drain, SIZE);
	see(uri, &mark);
	farlog_writer_close(writer);
	farlog_reader_close(drain);
	for (unsigned count = 6; count > 0; count -= 2) {
		assert_int_equal(format_with(uri, config, &error), FARLOG_OK);
		writer = unit_open(uri);
		for (unsigned i = 0; i < count; i++)
			assert_int_equal(unit_append(writer, 64, 1, &position), FARLOG_OK);
		farlog_writer_close(writer);
		see(uri, &mark);
	}
}

/* look__reads_what_is_new -- a record below the mark that the media lost is not found out; by a later writer's look it
 * is, and by an inspection at once. */
static void look__reads_what_is_new(void **state)
{
	const char *uri = unit_tmpfs_uri("look-new");
	struct farlog_ring_mark mark = {0};
	struct farlog_ring_status status;
	struct farlog_position position;
	struct farlog_error error;
	farlog_writer *writer;
	uint64_t end_lsn;
	int fd;

	(void)state;
	unit_format(uri, SIZE, 0);
	writer = unit_open(uri);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(unit_append(writer, 64, 1, &position), FARLOG_OK);
	end_lsn = position.end_lsn;
	farlog_writer_close(writer);
	see(uri, &mark);
	fd = open(unit_path(uri), O_RDWR);
	assert_int_equal(pwrite(fd, "lost", 4, LAYOUT_DATA_OFF + 256 + 64), 4);
	assert_int_equal(farlog_ring_look(uri, &mark, &status, &error), FARLOG_OK);
	assert_int_equal(status.appended_lsn, end_lsn);
	assert_int_equal(status.lag_records, 6);
	assert_int_equal(farlog_ring_inspect(uri, &status, &error), FARLOG_OK);
	assert_int_equal(status.appended_lsn, 256);
	mark.generation--;
	see(uri, &mark);
	close(fd);
}

static void prepare__loads_what_is_there(void **state)
{
	struct farlog_error error;
	int result;

	(void)state;
	assert_int_equal(farlog_prepare("mem:/no/such/ring", &error), FARLOG_OK);
	/* which scheme there is says the opening */
	assert_int_equal(farlog_prepare("gopher://host:1/ring", &error), FARLOG_OK);
	assert_int_equal(farlog_prepare("ofi:tcp://host:port:1/ring", &error), FARLOG_INVALID);
	assert_int_equal(farlog_prepare("members:9 mem:/a mem:/b", &error), FARLOG_INVALID);
	result = farlog_prepare("members:1 mem:/a ofi:tcp://127.0.0.1:1/a", &error);
	assert_true(result == FARLOG_OK || result == FARLOG_UNSUPPORTED);
	assert_int_equal(farlog_prepare("ofi:tcp://127.0.0.1:1/a", &error), result);
}

static void inspect__missing_and_blank(void **state)
{
	const char *uri = unit_tmpfs_uri("blank");
	struct farlog_ring_status status;
	struct farlog_error error;
	int fd;

	(void)state;
	assert_int_equal(farlog_ring_inspect(uri, &status, &error), FARLOG_NOT_FOUND);
	assert_int_equal(error.os_errno, ENOENT);
	assert_non_null(strstr(error.text, "to make a ring there: farlog ring format 'mem:"));
	assert_int_equal(farlog_ring_inspect("mem:/nowhere/at/all.ring", &status, &error), FARLOG_NOT_FOUND);
	assert_non_null(
		strstr(error.text, "mkdir -p '/nowhere/at' && farlog ring format 'mem:/nowhere/at/all.ring' --size 64MiB"));
	fd = open(unit_path(uri), O_RDWR | O_CREAT, 0600);
	assert_int_equal(ftruncate(fd, SIZE), 0);
	close(fd);
	assert_int_equal(farlog_ring_inspect(uri, &status, &error), FARLOG_NOT_A_RING);
	assert_non_null(strstr(error.text, "farlog ring format"));
}

static void fence__living_writer_stops(void **state)
{
	const char *uri = unit_tmpfs_uri("fence");
	struct farlog_position position;
	struct farlog_error error;
	farlog_writer *writer;
	farlog_writer *second;
	uint64_t durable_lsn;
	void *payload;

	(void)state;
	unit_format(uri, SIZE, 0);
	writer = unit_open(uri);
	assert_int_equal(unit_append(writer, 10, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_ring_fence(uri, 5, &error), FARLOG_OK);
	assert_int_equal(farlog_ring_fence(uri, 3, &error), FARLOG_OK); /* never goes back */
	assert_int_equal(unit_append(writer, 10, 1, &position), FARLOG_FENCED);
	assert_int_equal(position.epoch, 5);
	assert_int_equal(unit_submit(writer, 10, 1, &position), FARLOG_FENCED);
	assert_int_equal(farlog_poll(writer, &durable_lsn), FARLOG_FENCED);
	assert_int_equal(farlog_claim(writer, 10, 0, NULL, 0, &payload), FARLOG_FENCED);
	assert_int_equal(farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &second, &error), FARLOG_HELD);
	farlog_writer_close(writer);
	assert_int_equal(
		farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE, .epoch = 4), &second, &error), FARLOG_FENCED);
	assert_non_null(strstr(error.text, "epoch 4"));
	writer = unit_open(uri);
	assert_int_equal(farlog_writer_recovery(writer)->epoch, 5);
	assert_int_equal(farlog_writer_recovery(writer)->record_count, 2);
	farlog_writer_close(writer);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(format__bad_numbers_make_no_file),
	cmocka_unit_test(format__ring_or_foreign_bytes_are_there),
	cmocka_unit_test(format__held_by_writer_or_drain),
	cmocka_unit_test(inspect__living_and_dead_writer),
	cmocka_unit_test(look__says_what_inspect_says),
	cmocka_unit_test(look__reads_what_is_new),
	cmocka_unit_test(prepare__loads_what_is_there),
	cmocka_unit_test(inspect__missing_and_blank),
	cmocka_unit_test(fence__living_writer_stops),
};
RUN_GROUP(admin, tests)
