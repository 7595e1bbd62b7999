/* Block devices that are not as they should be, on a loop device over a file: read-only, in use, somebody else's, another LBA than before, shrunk, gone while it is written
 * to. Needs the right to set up loop devices; without it, skipped. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "region_nvme.h"
#include "unit.h"
#include "writer.h"

#define FILE_LEN (8u << 20)

static char file[280];
static char device[64]; /* "" = none */
static char uri[80];

static int run(const char *format, ...)
{
	char command[700];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	return system(command);
}

static void detach(void)
{
	if (device[0] != '\0')
		run("losetup -d %s", device);
	device[0] = '\0';
}

/* attach -- the file by a loop device with these options. */
static void attach(const char *options)
{
	char command[400];
	FILE *output;

	snprintf(command, sizeof(command), "losetup -f --show %s '%s' 2>/dev/null", options, file);
	output = popen(command, "r");
	assert_non_null(output);
	if (fgets(device, sizeof(device), output) == NULL)
		device[0] = '\0';
	pclose(output);
	device[strcspn(device, "\n")] = '\0';
	if (device[0] == '\0') {
		print_message("loop: losetup gave no device: it needs root, and loop devices\n");
		skip();
	}
	snprintf(uri, sizeof(uri), "nvme:%s", device);
}

static int make_file(void **state)
{
	(void)state;
	snprintf(file, sizeof(file), "%s", unit_path(unit_file_uri("loop")));
	return run("truncate -s %u '%s'", FILE_LEN, file);
}

static int end_device(void **state)
{
	(void)state;
	detach();
	return 0;
}

static void expect_format(int result, const char *text)
{
	struct farlog_error error = {0};

	assert_int_equal(farlog_ring_format(uri, NULL, &error), result);
	if (strstr(error.text, text) == NULL)
		fail_msg("expected \"%s\" in: %s", text, error.text);
}

static void expect_open(int result, const char *text)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	assert_int_equal(farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, &error), result);
	if (strstr(error.text, text) == NULL)
		fail_msg("expected \"%s\" in: %s", text, error.text);
	farlog_writer_close(writer);
}

static void open__read_only_device(void **state)
{
	farlog_reader *reader;

	(void)state;
	attach("");
	expect_format(FARLOG_OK, "");
	detach();
	attach("-r");
	expect_open(FARLOG_IO, "is read-only");
	expect_format(FARLOG_IO, "is read-only");
	reader = unit_read(uri, FARLOG_START_HEAD, false); /* reading does not need more */
	farlog_reader_close(reader);
}

/* A file system is named, mounted or not, and is there after the refusal. */
static void format__file_system(void **state)
{
	char place[300];

	(void)state;
	attach("");
	if (run("mkfs.ext4 -q -L orders %s >/dev/null 2>&1", device) != 0) {
		print_message("loop: mkfs.ext4 is missing\n");
		skip();
	}
	expect_format(FARLOG_EXISTS, "ext4, a file system, label orders");
	expect_open(FARLOG_NOT_A_RING, "a device without a ring");
	snprintf(place, sizeof(place), "%s.mount", file);
	if (run("mkdir '%s' && mount %s '%s' 2>/dev/null", place, device, place) == 0) {
		expect_format(FARLOG_HELD, "is in use: mounted");
		assert_int_equal(farlog_ring_format(uri, &(struct farlog_ring_config){.is_forced = 1}, NULL), FARLOG_HELD);
		run("umount '%s'", place);
	} else {
		print_message("loop: mounting is not permitted here\n");
	}
	run("rmdir '%s'", place);
	assert_int_equal(farlog_ring_format(uri, &(struct farlog_ring_config){.is_forced = 1}, NULL), FARLOG_OK);
	expect_open(FARLOG_OK, "");
}

static void open__lba_has_changed(void **state)
{
	(void)state;
	attach("-b 512");
	expect_format(FARLOG_OK, "");
	detach();
	attach("-b 4096");
	expect_open(FARLOG_UNSUPPORTED, "made for LBAs of 512 bytes, and the device now has LBAs of 4096");
	detach();
	attach("-b 512");
	expect_open(FARLOG_OK, "");
}

static void open__device_has_shrunk(void **state)
{
	(void)state;
	attach("");
	expect_format(FARLOG_OK, "");
	detach();
	assert_int_equal(truncate(file, FILE_LEN / 2), 0);
	attach("");
	expect_open(FARLOG_CORRUPT, "the end of it is not here");
}

/* Half of a device goes while a writer is in it: what was acknowledged before is there, and nothing is acknowledged that could not be written. */
static void append__device_shrinks_under_it(void **state)
{
	static uint8_t payload[32 << 10];
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload)};
	struct farlog_position position = {0};
	uint64_t acked_lsn = 0;
	farlog_writer *writer;
	int result = FARLOG_OK;

	(void)state;
	attach("");
	expect_format(FARLOG_OK, "");
	assert_int_equal(farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE, .policy = FARLOG_POLICY_REJECT), &writer, NULL), FARLOG_OK);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(farlog_append(writer, &entry, 30000000000u, &position), FARLOG_OK);
	assert_int_equal(truncate(file, FILE_LEN / 2), 0);
	assert_int_equal(run("losetup -c %s", device), 0);
	while (result == FARLOG_OK) {
		acked_lsn = position.end_lsn;
		result = farlog_append(writer, &entry, 30000000000u, &position);
	}
	assert_int_equal(result, FARLOG_UNKNOWN); /* where the device ends now */
	assert_true(acked_lsn <= FILE_LEN / 2);
	assert_int_equal(farlog_append(writer, &entry, 30000000000u, &position), FARLOG_CLOSED);
	assert_int_not_equal(nvme_of(writer->region)->trouble[0], '\0');
	assert_int_not_equal(farlog_writer_close(writer), FARLOG_OK);
	assert_int_equal(truncate(file, FILE_LEN), 0);
	assert_int_equal(run("losetup -c %s", device), 0);
	assert_int_equal(farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, NULL), FARLOG_OK);
	assert_true(farlog_writer_recovery(writer)->tail_lsn >= acked_lsn);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_file, end_device)

static const struct CMUnitTest tests[] = {
	CASE(open__read_only_device),
	CASE(format__file_system),
	CASE(open__lba_has_changed),
	CASE(open__device_has_shrunk),
	CASE(append__device_shrinks_under_it),
};
RUN_GROUP(loop, tests)
