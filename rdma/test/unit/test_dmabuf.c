/* test_dmabuf.c -- what is missing for a BAR to be exported as a dma-buf, over trees as sysfs and /dev have them: each
 * missing thing is named, not the first alone. That one is exported needs an IOMMU and a kernel that are not on these
 * machines. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mem/dmabuf.h"
#include "unit.h"

#define DEVICE "0000:01:00.0"
#define REAL "/devices/pci0000:00/0000:00:01.0/" DEVICE

static char root[32];

static void make(const char *part, bool is_file)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s%s", root, part);
	if (!is_file) {
		assert_int_equal(mkdir(path, 0700), 0);
		return;
	}
	file = fopen(path, "w");
	assert_non_null(file);
	fclose(file);
}

static void make_link(const char *name, const char *target)
{
	char path[256];

	snprintf(path, sizeof(path), "%s%s/%s", root, REAL, name);
	unlink(path);
	assert_int_equal(symlink(target, path), 0);
}

static int make_tree(void **state)
{
	static const char *const parts[] = {"/devices", "/devices/pci0000:00", "/devices/pci0000:00/0000:00:01.0", REAL,
		"/bus", "/bus/pci", "/bus/pci/devices", "/vfio"};
	char path[256];

	(void)state;
	snprintf(root, sizeof(root), "/tmp/farlog-unit-bar.XXXXXX");
	if (mkdtemp(root) == NULL)
		return -1;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		make(parts[i], false);
	make(REAL "/resource2", true);
	make(REAL "/resource2_wc", true);
	make(REAL "/config", true);
	snprintf(path, sizeof(path), "%s/bus/pci/devices/" DEVICE, root);
	return symlink("../../.." REAL, path);
}

static int remove_tree(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", root);
	return system(command);
}

static bool look(const char *name, struct dmabuf_bar *bar, char *why)
{
	struct dmabuf_roots roots = {root, root};
	char path[256];

	snprintf(path, sizeof(path), "%s/bus/pci/devices/" DEVICE "/%s", root, name);
	return dmabuf_check(&roots, path, bar, why);
}

static void dmabuf__names_each_thing_that_is_missing(void **state)
{
	struct dmabuf_bar bar;
	char why[DMABUF_WHY_LEN];

	(void)state;
	assert_false(look("resource2", &bar, why));
	assert_non_null(strstr(why, DEVICE " has no driver (expected vfio-pci), "));
	assert_non_null(strstr(why, DEVICE " is in no IOMMU group (expected the IOMMU on), "));
	assert_non_null(strstr(why, "/vfio/vfio: No such file or directory (expected vfio's container)"));
	make_link("driver", "../../../../bus/pci/drivers/ivshmem");
	make_link("iommu_group", "../../../../kernel/iommu_groups/17");
	assert_false(look("resource2", &bar, why));
	assert_non_null(strstr(why, DEVICE " has driver ivshmem (expected vfio-pci), "));
	assert_null(strstr(why, "IOMMU"));
	make("/vfio/vfio", true);
	assert_false(look("resource2", &bar, why));
	assert_string_equal(why, DEVICE " has driver ivshmem (expected vfio-pci)");
}

static void dmabuf__of_what_could_be_exported(void **state)
{
	static const char *const names[] = {"resource2", "resource2_wc"};
	struct dmabuf_bar bar;
	char why[DMABUF_WHY_LEN];

	(void)state;
	make_link("driver", "../../../../bus/pci/drivers/vfio-pci");
	make_link("iommu_group", "../../../../kernel/iommu_groups/17");
	make("/vfio/vfio", true);
	for (unsigned i = 0; i < 2; i++) {
		memset(&bar, 0, sizeof(bar));
		if (!look(names[i], &bar, why))
			fail_msg("%s: %s", names[i], why);
		assert_string_equal(bar.device, DEVICE);
		assert_int_equal(bar.index, 2);
		assert_int_equal(bar.group, 17);
	}
}

static void dmabuf__of_what_is_no_bar(void **state)
{
	static const char *const names[] = {"config", "resource3"};
	struct dmabuf_roots roots = {root, root};
	struct dmabuf_bar bar;
	char why[DMABUF_WHY_LEN];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		assert_false(look(names[i], &bar, why));
		assert_non_null(strstr(why, "is no resource file of a PCI device"));
	}
	make("/bus/resource2", true); /* below what is no device */
	snprintf(why, sizeof(why), "%s/bus/resource2", root);
	assert_false(dmabuf_check(&roots, strdupa(why), &bar, why));
	assert_non_null(strstr(why, "is no resource file of a PCI device"));
}

static const struct CMUnitTest dmabuf_tests[] = {
	cmocka_unit_test_setup_teardown(dmabuf__names_each_thing_that_is_missing, make_tree, remove_tree),
	cmocka_unit_test_setup_teardown(dmabuf__of_what_could_be_exported, make_tree, remove_tree),
	cmocka_unit_test_setup_teardown(dmabuf__of_what_is_no_bar, make_tree, remove_tree),
};
RUN_GROUP(dmabuf, dmabuf_tests)
