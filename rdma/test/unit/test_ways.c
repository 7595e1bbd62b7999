/* The ways in which a ring on blocks sends its commands: by the kernel's block layer with a call or without, by polled
 * queues, as bare NVMe commands. On a file those that a file has; on a namespace all of them, with
 * FARLOG_TEST_NVME=/dev/nvmeXnY, whose contents go. With FARLOG_TEST_NVME_STOP and FARLOG_TEST_NVME_GO, commands of the
 * shell that make it answer nothing and go on, also what happens meanwhile. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "blocks/passthrough.h"
#include "base/clock.h"
#include "blocks/nvme.h"
#include "unit.h"
#include "log/writer.h"

#define SIZE (LAYOUT_DATA_OFF + (1u << 20))
#define THREAD_COUNT 4
#define THREAD_RECORD_COUNT 50u
#define ALONE_COUNT 220u

static uint8_t payload[3000];

static void *append_some(void *context)
{
	struct farlog_entry entry = {.data = payload, .len = 192};
	struct farlog_position position;
	uint64_t count = 0;

	for (unsigned i = 0; i < THREAD_RECORD_COUNT; i++)
		count += farlog_shared_append(context, &entry, 30000000000u, &position) == FARLOG_OK;
	return (void *)count;
}

static void append_together(const char *uri)
{
	pthread_t threads[THREAD_COUNT];
	farlog_shared *shared;
	uint64_t count = 0;
	void *told;

	assert_int_equal(farlog_shared_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &shared, NULL), FARLOG_OK);
	for (unsigned i = 0; i < THREAD_COUNT; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, append_some, shared), 0);
	for (unsigned i = 0; i < THREAD_COUNT; i++) {
		assert_int_equal(pthread_join(threads[i], &told), 0);
		count += (uint64_t)told;
	}
	assert_int_equal(count, THREAD_COUNT * THREAD_RECORD_COUNT);
	assert_int_equal(farlog_shared_close(shared), FARLOG_OK);
}

/* append_alone -- one at a time, and several under one commit that is only looked after now and then. */
static void append_alone(const char *uri)
{
	struct farlog_position position;
	struct farlog_error error = {0};
	farlog_writer *writer;
	uint64_t durable_lsn = 0;

	if (farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	print_message(
		"ways: %s: %s, %s\n", uri, farlog_writer_contract(writer)->flush_name, farlog_writer_contract(writer)->probe);
	for (uint32_t i = 0; i < ALONE_COUNT - 20; i++)
		assert_int_equal(farlog_append(writer, &(struct farlog_entry){.data = payload, .len = i * 13 % sizeof(payload)},
							 30000000000u, &position),
			FARLOG_OK);
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(
			farlog_submit(writer, &(struct farlog_entry){.data = payload, .len = 192}, &position), FARLOG_OK);
	while (durable_lsn < position.end_lsn)
		assert_int_equal(farlog_poll(writer, &durable_lsn), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

static void drain_all(const char *uri, uint64_t expected_count)
{
	static uint8_t buffer[4 << 20];
	struct farlog_batch batch;
	farlog_reader *drain = unit_read(uri, FARLOG_START_HEAD, true);
	uint64_t count = 0;

	while (farlog_reader_read(drain, buffer, sizeof(buffer), &batch) == FARLOG_OK) {
		count += batch.record_count;
		assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	}
	assert_int_equal(count, expected_count);
	farlog_reader_close(drain);
}

static void go(const char *path, const char *options)
{
	struct farlog_error error = {0};
	char uri[320];
	int result;

	snprintf(uri, sizeof(uri), "nvme:%s%s", path, options);
	result = farlog_ring_format(uri,
		&(struct farlog_ring_config){
			.size_bytes = strncmp(path, "/dev/", 5) == 0 ? 0 : SIZE, .record_len_max = 8192, .is_forced = 1},
		&error);
	if (result == FARLOG_UNSUPPORTED && strncmp(path, "/dev/", 5) != 0) {
		print_message("ways: %s\n", error.text);
		skip();
	}
	if (result != FARLOG_OK)
		fail_msg("%s", error.text);
	append_alone(uri);
	append_together(uri);
	drain_all(uri, ALONE_COUNT + THREAD_COUNT * THREAD_RECORD_COUNT + 2);
	append_alone(uri); /* after a recovery */
}

static void file__each_way(void **state)
{
	static const char *const options[] = {"", "?poll=none&commands=kernel", "?poll=sq"};
	char path[280];

	(void)state;
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		snprintf(path, sizeof(path), "%s", unit_path(unit_file_uri("ways")));
		go(path, options[i]);
	}
}

/* What the device says of a command that it refuses: a read behind its end. */
static void expect_status(const char *path)
{
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_FORMAT};
	struct region_nvme *nvme;
	struct farlog_error error = {0};
	struct region *region;
	char uri[320];

	snprintf(uri, sizeof(uri), "nvme:%s?commands=nvme", path);
	if (region_open(uri, &options, &region, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	nvme = nvme_of(region);
	nvme_lock_queue(&nvme->are_calls_busy);
	assert_int_equal(
		nvme_call(nvme, BLOCK_READ, nvme->device->size_bytes, nvme->window, 4096, NVME_PATIENCE_NS), FARLOG_IO);
	nvme_unlock_queue(&nvme->are_calls_busy);
	/* LBA Out of Range; Linux's target over a RAM disk says Internal Error */
	assert_int_not_equal(nvme->device->status & 0x7FF, 0);
	assert_non_null(strstr(nvme->trouble, "NVMe status 0x"));
	print_message("ways: %s\n", nvme->trouble);
	region->ops->close(region);
}

static void namespace__each_way(void **state)
{
	static const char *const options[] = {"?poll=none", "?poll=sq", "?commands=nvme&poll=none",
		"?commands=nvme&poll=sq", "?poll=io", "?commands=nvme&poll=io"};
	const char *path = getenv("FARLOG_TEST_NVME");
	bool has_poll = getenv("FARLOG_TEST_NVME_POLL") != NULL;

	(void)state;
	if (path == NULL) {
		print_message("ways: set FARLOG_TEST_NVME to an NVMe namespace whose contents may go, FARLOG_TEST_NVME_POLL=1 "
					  "when it has poll queues\n");
		skip();
	}
	for (size_t i = 0; i < (has_poll ? 6 : 4); i++)
		go(path, options[i]);
	expect_status(path);
}

/* A device that answers nothing: the append ends at its deadline, the place of what is under way is not used again, and
 * what has come back in the end is there. */
static void expect_patience(const char *path, const char *options)
{
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload)};
	struct farlog_position stuck;
	struct farlog_position position;
	struct farlog_cursors cursors;
	farlog_writer *writer;
	uint64_t start_ns;
	uint64_t took_ns;
	uint64_t count = 3; /* EPOCH, the first, the stuck one */
	char uri[320];

	snprintf(uri, sizeof(uri), "nvme:%s%s", path, options);
	assert_int_equal(
		farlog_ring_format(uri, &(struct farlog_ring_config){.record_len_max = 8192, .is_forced = 1}, NULL), FARLOG_OK);
	assert_int_equal(
		farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE, .policy = FARLOG_POLICY_REJECT), &writer, NULL),
		FARLOG_OK);
	assert_int_equal(farlog_append(writer, &entry, 30000000000u, &position), FARLOG_OK);
	assert_int_equal(system(getenv("FARLOG_TEST_NVME_STOP")), 0);
	start_ns = clock_monotonic_ns();
	assert_int_equal(farlog_append(writer, &entry, 500000000u, &stuck), FARLOG_UNKNOWN);
	took_ns = clock_monotonic_ns() - start_ns;
	print_message("ways: %s: unknown after %lu ms of 500\n", uri, took_ns / 1000000u);
	assert_true(took_ns >= 500000000u && took_ns < 1500000000u);
	/* up to the place of the first byte that is not durable */
	while (farlog_submit(writer, &entry, &position) == FARLOG_OK)
		count++;
	farlog_writer_cursors(writer, &cursors);
	assert_true(cursors.durable_lsn <= stuck.lsn && cursors.head_lsn <= cursors.durable_lsn);
	assert_true(cursors.appended_lsn - cursors.head_lsn <= cursors.capacity_bytes);
	assert_int_equal(farlog_wait(writer, stuck.end_lsn, 100000000u), FARLOG_UNKNOWN);
	assert_int_equal(system(getenv("FARLOG_TEST_NVME_GO")), 0);
	assert_int_equal(farlog_wait(writer, stuck.end_lsn, 60000000000u), FARLOG_OK);
	if (farlog_wait(writer, cursors.appended_lsn, 60000000000u) != FARLOG_OK)
		fail_msg("durable up to %lu of %lu: %s", writer->durable_lsn, cursors.appended_lsn,
			nvme_of(writer->region)->trouble);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	drain_all(uri, count);
}

static void namespace__answers_nothing(void **state)
{
	const char *path = getenv("FARLOG_TEST_NVME");

	(void)state;
	if (path == NULL || getenv("FARLOG_TEST_NVME_STOP") == NULL || getenv("FARLOG_TEST_NVME_GO") == NULL) {
		print_message("ways: set FARLOG_TEST_NVME, FARLOG_TEST_NVME_STOP and FARLOG_TEST_NVME_GO\n");
		skip();
	}
	expect_patience(path, "?poll=none");
	expect_patience(path, "?poll=sq");
	expect_patience(path, "?commands=nvme&poll=none");
	if (getenv("FARLOG_TEST_NVME_POLL") != NULL)
		expect_patience(path, "?poll=io");
}

static void status__names(void **state)
{
	uint16_t status;

	(void)state;
	assert_int_equal(passthrough_failure(0, &status), 0);
	assert_int_equal(passthrough_failure(-ENODEV, &status), ENODEV);
	assert_int_equal(status, 0);
	assert_int_equal(passthrough_failure(0x4083, &status), EBADE); /* do not retry */
	assert_int_equal(status, 0x4083);
	assert_string_equal(passthrough_status_name(status), "Reservation Conflict");
	assert_int_equal(passthrough_failure(0x7F0, &status), EIO);
	assert_string_equal(passthrough_status_name(status), "");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(status__names),
	cmocka_unit_test(file__each_way),
	cmocka_unit_test(namespace__each_way),
	cmocka_unit_test(namespace__answers_nothing),
};
RUN_GROUP(ways, tests)
