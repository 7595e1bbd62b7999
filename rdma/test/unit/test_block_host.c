/* By which id the target behind a block device knows this host, over trees as sysfs has them: a device is of this host
 * alone only where the kernel says so, and what cannot be read is an error. And which answers to a report of
 * reservations mean that the device has none. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blocks/host.h"
#include "blocks/reserve.h"
#include "unit.h"

#define ID "2cd8c1c5-0d8e-4d4a-9c0a-5a3d8e5b7f10"
#define NQN "nqn.2014-08.org.nvmexpress:uuid:" ID

static char root[100];

static void path_of(char path[300], const char *name)
{
	snprintf(path, 300, "%s/%s", root, name);
}

static void make_directories(const char *name)
{
	char path[300];

	path_of(path, name);
	for (char *slash = strchr(path + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
		*slash = '/';
	}
}

static void add_file(const char *name, const char *text)
{
	char path[300];
	FILE *file;

	make_directories(name);
	path_of(path, name);
	file = fopen(path, "w");
	assert_non_null(file);
	fprintf(file, "%s", text);
	fclose(file);
}

static void add_link(const char *name, const char *target)
{
	char path[300];
	char to[300];

	make_directories(name);
	path_of(path, name);
	path_of(to, target);
	assert_int_equal(symlink(to, path), 0);
}

static void drop_file(const char *name)
{
	char path[300];

	path_of(path, name);
	assert_int_equal(unlink(path), 0);
}

/* add_unreadable -- what fails when it is read, also for root: a directory where a file is expected. */
static void add_unreadable(const char *name)
{
	char path[300];

	make_directories(name);
	path_of(path, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

/* Devices: 259:0 a controller's namespace, 259:1 a partition of it, 259:2 a subsystem's with one controller, 8:0 a
 * disk, 253:0 made of that disk and the partition. */
static void make_tree(const char *transport)
{
	snprintf(root, sizeof(root), "/tmp/farlog-sysfs-XXXXXX");
	assert_non_null(mkdtemp(root));
	add_file("devices/nvme0/subsysnqn", "nqn.2014-08.com.example:a\n");
	add_file("devices/nvme0/transport", transport);
	add_file("devices/nvme0/nvme0n1/size", "8\n");
	add_link("devices/nvme0/nvme0n1/device", "devices/nvme0");
	add_file("devices/nvme0/nvme0n1/nvme0n1p1/partition", "1\n");
	add_file("devices/subsys1/subsysnqn", "nqn.2014-08.com.example:b\n");
	add_link("devices/subsys1/nvme0", "devices/nvme0");
	add_link("devices/subsys1/nvme1n1/device", "devices/subsys1");
	add_file("devices/sda/size", "8\n");
	add_file("devices/scsi0/vendor", "x\n");
	add_link("devices/sda/device", "devices/scsi0");
	add_link("devices/dm-0/slaves/sda", "devices/sda");
	add_link("devices/dm-0/slaves/nvme0n1p1", "devices/nvme0/nvme0n1/nvme0n1p1");
	add_link("dev/block/259:0", "devices/nvme0/nvme0n1");
	add_link("dev/block/259:1", "devices/nvme0/nvme0n1/nvme0n1p1");
	add_link("dev/block/259:2", "devices/subsys1/nvme1n1");
	add_link("dev/block/8:0", "devices/sda");
	add_link("dev/block/253:0", "devices/dm-0");
}

static void make_fabrics(void)
{
	make_tree("tcp\n");
	add_file("devices/nvme0/hostid", ID "\n");
	add_file("devices/nvme0/hostnqn", NQN "\n");
	add_file("devices/nvme0/ctrl_loss_tmo", "0\n");
}

static void drop_tree(void)
{
	char command[120];

	snprintf(command, sizeof(command), "rm -r '%s'", root);
	assert_int_equal(system(command), 0);
}

static void expect_failure(unsigned device_major, unsigned device_minor, int failure)
{
	struct block_host host;

	errno = 0;
	assert_int_equal(block_host_find(root, device_major, device_minor, &host), FARLOG_IO);
	assert_int_equal(errno, failure);
}

static void expect_host(unsigned device_major, unsigned device_minor, const char *id, bool is_part)
{
	struct block_host host;

	assert_int_equal(block_host_find(root, device_major, device_minor, &host), FARLOG_OK);
	assert_string_equal(host.id, id);
	assert_int_equal(host.is_part, is_part);
	assert_string_equal(host.name, id[0] != '\0' ? NQN : "");
	assert_int_equal(host.is_gone_when_lost, id[0] != '\0');
}

static void host__of_fabrics(void **state)
{
	(void)state;
	make_fabrics();
	expect_host(259, 0, ID, false);
	expect_host(259, 1, ID, true);
	expect_host(259, 2, ID, false);
	expect_host(253, 0, ID, true);
	expect_host(8, 0, "", false);
	drop_tree();
}

static void host__of_a_local_device(void **state)
{
	(void)state;
	make_tree("pcie\n");
	expect_host(259, 0, "", false);
	expect_host(259, 1, "", true);
	expect_host(259, 2, "", false);
	expect_host(253, 0, "", true);
	drop_tree();
}

static void host__cannot_be_read(void **state)
{
	static const char *const attributes[] = {"hostid", "hostnqn", "ctrl_loss_tmo", "transport", "subsysnqn"};

	(void)state;
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
		char name[60];

		make_fabrics();
		snprintf(name, sizeof(name), "devices/nvme0/%s", attributes[i]);
		drop_file(name);
		add_unreadable(name);
		if (strcmp(attributes[i], "transport") != 0) {
			expect_failure(259, 0, EISDIR);
			expect_failure(259, 1, EISDIR);
			expect_failure(253, 0, EISDIR);
		}
		if (strcmp(attributes[i], "subsysnqn") != 0)
			expect_failure(259, 2, EISDIR);
		drop_tree();
	}
}

/* A controller of fabrics has a host's id: that the attribute is not there does not make it a local one. Nor does a
 * controller that is gone, or an empty line. */
static void host__is_not_said(void **state)
{
	(void)state;
	make_tree("rdma\n");
	expect_failure(259, 0, ENODATA);
	expect_failure(259, 2, ENODATA);
	add_file("devices/nvme0/hostid", "");
	expect_failure(259, 0, ENODATA);
	drop_file("devices/subsys1/nvme0");
	expect_failure(259, 2, ENODEV);
	expect_failure(9, 9, ENOENT);
	drop_tree();
}

static void report__status(void **state)
{
	(void)state;
	assert_int_equal(reserve_read_result(0), FARLOG_OK);
	assert_int_equal(reserve_read_result(0x4001), FARLOG_UNSUPPORTED);
	assert_int_equal(reserve_read_result(0x0001), FARLOG_UNSUPPORTED);
	for (int status = 2; status < 0x800; status++) {
		errno = 0;
		assert_int_equal(reserve_read_result(status), FARLOG_IO);
		assert_int_equal(errno, EIO);
	}
	for (int failure = 1; failure < 134; failure++) {
		errno = failure;
		assert_int_equal(reserve_read_result(-1), FARLOG_IO);
		assert_int_equal(errno, failure);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(host__of_fabrics),
	cmocka_unit_test(host__of_a_local_device),
	cmocka_unit_test(host__cannot_be_read),
	cmocka_unit_test(host__is_not_said),
	cmocka_unit_test(report__status),
};

RUN_GROUP(block_host, tests)
