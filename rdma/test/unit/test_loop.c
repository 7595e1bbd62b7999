/* Block devices that are not as they should be, on a loop device over a file: read-only, in use, somebody else's,
 * another LBA than before, shrunk, gone while it is written to. Needs the right to set up loop devices; without it,
 * skipped. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "blocks/nvme.h"
#include "unit.h"
#include "log/writer.h"

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

static void resize_to(off_t len)
{
	assert_int_equal(truncate(file, len), 0);
	assert_int_equal(run("losetup -c %s", device), 0);
}

/* Half of a device goes while a writer is in it: what was acknowledged before is there, and nothing is acknowledged
 * that could not be written. */
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
	assert_int_equal(
		farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE, .policy = FARLOG_POLICY_REJECT), &writer, NULL),
		FARLOG_OK);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(farlog_append(writer, &entry, 30000000000u, &position), FARLOG_OK);
	resize_to(FILE_LEN / 2);
	while (result == FARLOG_OK) {
		acked_lsn = position.end_lsn;
		result = farlog_append(writer, &entry, 30000000000u, &position);
	}
	assert_int_equal(result, FARLOG_UNKNOWN); /* where the device ends now */
	assert_true(acked_lsn <= FILE_LEN / 2);
	assert_int_equal(farlog_append(writer, &entry, 30000000000u, &position), FARLOG_CLOSED);
	assert_int_not_equal(nvme_of(writer->region)->trouble[0], '\0');
	assert_int_not_equal(farlog_writer_close(writer), FARLOG_OK);
	resize_to(FILE_LEN);
	assert_int_equal(farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, NULL), FARLOG_OK);
	assert_true(farlog_writer_recovery(writer)->tail_lsn >= acked_lsn);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

/* read__device_is_removed -- a command that fails, and one to a device that has no bytes any more, as the kernel leaves
 * one that it removed. */
static void read__device_is_removed(void **state)
{
	struct farlog_error error = {0};
	struct region *region;

	(void)state;
	attach("");
	expect_format(FARLOG_OK, "");
	if (region_open(uri, &(struct region_options){.access = REGION_READ}, &region, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	assert_int_equal(region_fetch(region, 0, LAYOUT_DATA_OFF), FARLOG_OK);
	resize_to(LAYOUT_BLOCK_LEN);
	assert_int_equal(region_fetch(region, 0, LAYOUT_DATA_OFF), FARLOG_IO);
	assert_int_equal(region->is_removed, 0);
	resize_to(0);
	assert_int_equal(region_fetch(region, 0, LAYOUT_DATA_OFF), FARLOG_IO);
	assert_int_equal(region->is_removed, 1);
	assert_non_null(strstr(region->last_error, "No such device"));
	region->ops->close(region);
	expect_open(FARLOG_NOT_FOUND, "has no bytes");
}

static char mounted[300]; /* "" = nothing is */

static void mount_disk(void)
{
	attach("");
	snprintf(mounted, sizeof(mounted), "%s.disk", file);
	assert_int_equal(run("mkdir -p '%s' && mkfs.ext4 -q -F -m 0 %s", mounted, device), 0);
	if (run("mount %s '%s'", device, mounted) != 0) {
		run("rmdir '%s'", mounted);
		mounted[0] = '\0';
		print_message("loop: no ext4 can be mounted here\n");
		skip();
	}
}

static int end_disk(void **state)
{
	if (mounted[0] != '\0')
		run("umount '%s' && rmdir '%s'", mounted, mounted);
	mounted[0] = '\0';
	return end_device(state);
}

static uint64_t disk_free(void)
{
	struct statvfs disk;

	assert_int_equal(statvfs(mounted, &disk), 0);
	return disk.f_bavail * disk.f_frsize;
}

static void expect_no_room(const char *scheme, uint64_t size_bytes)
{
	struct farlog_ring_config config = {.size_bytes = size_bytes};
	struct farlog_error error = {0};
	char ring[sizeof(mounted) + 16];

	snprintf(ring, sizeof(ring), "%s:%s/ring", scheme, mounted);
	assert_int_equal(farlog_ring_format(ring, &config, &error), FARLOG_IO);
	assert_int_equal(error.os_errno, ENOSPC);
	if (strstr(error.text, "stay for others") == NULL || strstr(error.text, "/ring has ") == NULL)
		fail_msg("expected what is free and what stays in: %s", error.text);
}

/* ext4 gives all that is free before it says that this is too little: who writes beside a ring that is far too large
 * must not notice it. */
static void format__ring_is_larger_than_the_disk(void **state)
{
	static const char *const schemes[] = {"mem", "nvme"};
	struct farlog_ring_config config = {0};
	struct farlog_error error = {0};
	char ring[sizeof(mounted) + 16];
	uint64_t free_bytes;

	(void)state;
	mount_disk();
	free_bytes = disk_free();
	for (unsigned i = 0; i < 2; i++) {
		expect_no_room(schemes[i], 1ull << 40);
		expect_no_room(schemes[i], free_bytes / 65536 * 65536); /* it would fit, and leave nothing */
		assert_int_equal(disk_free(), free_bytes);
	}
	/* a file that is there is not removed, and has nothing either */
	assert_int_equal(run("touch '%s/ring'", mounted), 0);
	expect_no_room("mem", 1ull << 40);
	assert_int_equal(run("test -f '%s/ring'", mounted), 0);
	assert_int_equal(disk_free(), free_bytes);
	config.size_bytes = free_bytes / 2 / 65536 * 65536;
	snprintf(ring, sizeof(ring), "mem:%s/ring", mounted);
	if (farlog_ring_format(ring, &config, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_file, end_device)

static const struct CMUnitTest tests[] = {
	CASE(open__read_only_device),
	CASE(format__file_system),
	CASE(open__lba_has_changed),
	CASE(open__device_has_shrunk),
	CASE(append__device_shrinks_under_it),
	CASE(read__device_is_removed),
	cmocka_unit_test_setup_teardown(format__ring_is_larger_than_the_disk, make_file, end_disk),
};
RUN_GROUP(loop, tests)
