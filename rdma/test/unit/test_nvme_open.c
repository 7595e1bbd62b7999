/* A ring on blocks that is opened or formatted: devices that are not what they were, and what may not be
 * formatted over. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "adversary/blocks.h"
#include "blocks/name.h"
#include "blocks/nvme.h"
#include "farlog/host.h"
#include "region/superblock.h"
#include "device.h"

static void expect_open(const char *uri, int result, const char *text)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	assert_int_equal(farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, &error), result);
	if (strstr(error.text, text) == NULL)
		fail_msg("expected \"%s\" in: %s", text, error.text);
}

static void open__namespace_has_shrunk(void **state)
{
	const char *uri = device_file_uri("shrunk");

	(void)state;
	unit_format(uri, SIZE, 8192);
	assert_int_equal(truncate(uri + strlen("nvme:"), SIZE / 2), 0);
	expect_open(uri, FARLOG_CORRUPT, "the end of it is not here");
}

/* More than this host could copy: a file with a hole. */
static void open__ring_beyond_memory(void **state)
{
	const char *uri = device_file_uri("huge");
	int fd = open(uri + strlen("nvme:"), O_CREAT | O_RDWR | O_CLOEXEC, 0600);

	(void)state;
	assert_true(fd >= 0);
	if (ftruncate(fd, 4ll << 40) != 0) {
		close(fd);
		skip(); /* a file system of small files */
	}
	close(fd);
	expect_open(uri, FARLOG_NO_MEMORY, "make a ring on a partition");
}

/* A ring on blocks is none in memory, nor the other way round: what lies where is not the same. */
static void open__by_the_other_scheme(void **state)
{
	const char *path = device_file_uri("scheme") + strlen("nvme:");
	char mem[300];
	char nvme[300];

	(void)state;
	snprintf(mem, sizeof(mem), "mem:%s", path);
	snprintf(nvme, sizeof(nvme), "nvme:%s", path);
	unit_format(nvme, SIZE, 8192);
	expect_open(mem, FARLOG_UNSUPPORTED, "made on blocks");
	unlink(path);
	unit_format(mem, SIZE, 8192);
	expect_open(nvme, FARLOG_UNSUPPORTED, "made in memory");
}

static void superblock__lba_has_changed(void **state)
{
	static uint8_t bytes[LAYOUT_DATA_OFF] __attribute__((aligned(64)));
	struct region region = {.base = bytes, .caps.commit_len = 4096, .contract.size_bytes = SIZE};
	struct superblock superblock;
	struct farlog_error error;
	struct region *made;
	struct region_options options = {.access = REGION_READ, .role = REGION_ROLE_READER};

	(void)state;
	device_make(512);
	assert_int_equal(region_open(URI, &options, &made, &error), FARLOG_OK);
	memcpy(bytes, made->base, sizeof(bytes));
	made->ops->close(made);
	assert_int_equal(superblock_load(&region, "nvme:x", &superblock, &error), FARLOG_UNSUPPORTED);
	assert_non_null(strstr(error.text, "made for LBAs of 512 bytes"));
	region.caps.commit_len = 512;
	assert_int_equal(superblock_load(&region, "nvme:x", &superblock, &error), FARLOG_OK);
}

static void put_bytes(const char *path, off_t off, const void *bytes, size_t len)
{
	int fd = open(path, O_WRONLY);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, len, off), len);
	close(fd);
}

static void expect_format(const char *uri, int result, const char *text)
{
	struct farlog_error error = {0};

	assert_int_equal(farlog_ring_format(uri, NULL, &error), result);
	if (strstr(error.text, text) == NULL)
		fail_msg("expected \"%s\" in: %s", text, error.text);
}

/* What is on a device is named before it is lost. */
static void format__names_what_is_there(void **state)
{
	static const uint8_t entry[] = {
		0x80, 0x00, 0x02, 0x00, 0x83, 0xff, 0xff, 0xff, 0x01, 0x00, 0x00, 0x00, 0x40, 0x00, 0x00, 0x00};
	const char *uri = device_file_uri("foreign");
	const char *path = uri + strlen("nvme:");
	int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	close(fd);
	put_bytes(path, 20000, "x", 1);
	expect_format(uri, FARLOG_EXISTS, "bytes that are not zero (first at block 4)");
	put_bytes(path, 446, entry, sizeof(entry));
	put_bytes(path, 510, "\x55\xaa", 2);
	expect_format(uri, FARLOG_EXISTS, "a partition table (dos)");
	expect_open(uri, FARLOG_NOT_A_RING, "a device without a ring");
	assert_int_equal(farlog_ring_format(uri, &(struct farlog_ring_config){.is_forced = 1}, NULL), FARLOG_OK);
	expect_format(uri, FARLOG_EXISTS, "already holds a ring");
}

static void open__refused_by_name(void **state)
{
	struct farlog_error error = {0};
	const char *file;
	char uri[320];

	(void)state;
	expect_open("nvme:/dev/null", FARLOG_INVALID, "character device");
	expect_open("nvme:/dev", FARLOG_INVALID, "a directory");
	expect_open("nvme:/dev/farlog-is-not-there", FARLOG_NOT_FOUND, "/dev/farlog-is-not-there");
	expect_open("nvme:loop0", FARLOG_INVALID, "expected the path of a block device");
	expect_open("nvme:/dev/null?ring=a", FARLOG_INVALID, "character device");
	expect_open("nvme:/dev/loop0?poll=fast", FARLOG_INVALID, "expected none, io or sq");
	expect_open("nvme:/dev/loop0?commands=scsi", FARLOG_INVALID, "expected kernel or nvme");
	expect_open("mem:/dev/shm/x?poll=sq", FARLOG_INVALID, "is for nvme:");
	file = device_file_uri("ways");
	unit_format(file, SIZE, 8192);
	snprintf(uri, sizeof(uri), "%s?poll=io", file);
	expect_open(uri, FARLOG_UNSUPPORTED, "has no poll queues");
	snprintf(uri, sizeof(uri), "%s?commands=nvme", file);
	expect_open(uri, FARLOG_UNSUPPORTED, "is for a whole NVMe namespace");
	device_make(4096);
	assert_int_equal(
		farlog_ring_format(URI, &(struct farlog_ring_config){.record_len_max = 2048, .is_forced = 1}, &error),
		FARLOG_INVALID);
	assert_non_null(strstr(error.text, "less than an LBA"));
}

/* A tree such as sysfs has it: two subsystems, of which one has two namespaces, and one is connected twice. */
static void make_sysfs(char root[300])
{
	static const char *const devices[][3] = {{"nvme0n1", "nqn.2014-08.com.example:a", "1"},
		{"nvme0n2", "nqn.2014-08.com.example:a", "2"}, {"nvme1n1", "nqn.2014-08.com.example:b", "7"},
		{"nvme2n1", "nqn.2014-08.com.example:c", "1"}, {"nvme3n1", "nqn.2014-08.com.example:c", "1"},
		{"nvme1c1n1", "nqn.2014-08.com.example:b", "7"}}; /* what nvme1n1 stands on, with native multipathing */
	char command[900];

	snprintf(root, 300, "%s", unit_path(unit_tmpfs_uri("sysfs")));
	for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
		snprintf(command, sizeof(command),
			"d='%s/block/%s'; mkdir -p $d/device && echo '%s' > $d/device/subsysnqn && echo %s > $d/nsid", root,
			devices[i][0], devices[i][1], devices[i][2]);
		assert_int_equal(system(command), 0);
	}
	snprintf(command, sizeof(command), "echo 1 > '%s/block/nvme1c1n1/hidden'", root);
	assert_int_equal(system(command), 0);
}

static void expect_namespace(const char *sysfs, const char *name, int result, const char *text)
{
	struct farlog_error error = {0};
	char path[64] = "";

	assert_int_equal(block_find_namespace(name, name, sysfs, path, sizeof(path), &error), result);
	if (strstr(result == FARLOG_OK ? path : error.text, text) == NULL)
		fail_msg("%s: expected \"%s\" in: %s%s", name, text, path, error.text);
}

static void namespace__by_its_subsystems_name(void **state)
{
	char root[300];
	char command[320];
	char long_name[300] = "nqn.2014-08.com.example:";

	(void)state;
	make_sysfs(root);
	memset(long_name + strlen(long_name), 'x', 224 - strlen(long_name));
	expect_namespace(root, "nqn.2014-08.com.example:a/1", FARLOG_OK, "/dev/nvme0n1");
	expect_namespace(root, "nqn.2014-08.com.example:a/2", FARLOG_OK, "/dev/nvme0n2");
	expect_namespace(root, "nqn.2014-08.com.example:b", FARLOG_OK, "/dev/nvme1n1");
	expect_namespace(root, "nqn.2014-08.com.example:a", FARLOG_NOT_FOUND, "name the namespace");
	expect_namespace(root, "nqn.2014-08.com.example:c/1", FARLOG_NOT_FOUND, "connected twice");
	expect_namespace(root, "nqn.2014-08.com.example:b/1", FARLOG_NOT_FOUND, "nvme connect");
	expect_namespace(root, "nqn.2014-08.com.example:d/1", FARLOG_NOT_FOUND, "-n nqn.2014-08.com.example:d");
	expect_namespace(root, "nqn.2014-8.com.example:d/1", FARLOG_INVALID, "is no NQN");
	expect_namespace(root, "nqn.2014-08.", FARLOG_INVALID, "is no NQN");
	expect_namespace(root, "nqn.2014-08.com.example:a/x", FARLOG_INVALID, "namespace \"x\"");
	expect_namespace(root, "nqn.2014-08.com.example:a/0", FARLOG_INVALID, "namespace \"0\"");
	expect_namespace(root, long_name, FARLOG_INVALID, "at most 223");
	expect_open("nvme:nqn.2014-08.com.example:farlog-is-not-there/1", FARLOG_NOT_FOUND, "nvme connect");
	snprintf(command, sizeof(command), "rm -r '%s'", root);
	assert_int_equal(system(command), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(open__namespace_has_shrunk),
	cmocka_unit_test(open__ring_beyond_memory),
	cmocka_unit_test(open__by_the_other_scheme),
	cmocka_unit_test(superblock__lba_has_changed),
	cmocka_unit_test(format__names_what_is_there),
	cmocka_unit_test(open__refused_by_name),
	cmocka_unit_test(namespace__by_its_subsystems_name),
};
RUN_GROUP(nvme_open, tests)
