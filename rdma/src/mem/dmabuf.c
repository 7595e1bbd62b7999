/* mem/dmabuf.c -- see mem/dmabuf.h. By vfio's container and group, which every kernel with vfio has. */
#include "mem/dmabuf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/vfio.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mem/mem.h"

/* As linux/vfio.h has it since 6.19; older headers do not. */
#define FEATURE_DMA_BUF 11u

struct feature_dma_buf {
	uint32_t argsz; /* struct vfio_device_feature */
	uint32_t flags;
	uint32_t region_index;
	uint32_t open_flags;
	uint32_t dma_buf_flags; /* 0 */
	uint32_t range_count;
	struct {
		uint64_t offset;
		uint64_t length;
	} range;
};

_Static_assert(offsetof(struct feature_dma_buf, region_index) == sizeof(struct vfio_device_feature),
	"the feature's own data follow");
_Static_assert(
	sizeof(struct feature_dma_buf) == 40, "struct vfio_device_feature_dma_buf with one range, behind its header");

static const struct dmabuf_roots roots_here = {"/sys", "/dev"};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region_dmabuf *opened; /* under the lock */

/* add_missing -- add a missing requirement to the text. Returns false. */
__attribute__((format(printf, 2, 3))) static bool add_missing(char why[DMABUF_WHY_LEN], const char *format, ...)
{
	size_t used = strlen(why);
	va_list args;

	if (used > 0 && used + 2 < DMABUF_WHY_LEN)
		used += (size_t)snprintf(why + used, DMABUF_WHY_LEN - used, ", ");
	va_start(args, format);
	vsnprintf(why + used, DMABUF_WHY_LEN - used, format, args);
	va_end(args);
	return false;
}

/* ---------------------------------------------------------------- looking */

/* parse_bar_path -- device and BAR of a path such as /sys/bus/pci/devices/0000:01:00.0/resource2; resource2_wc is
 * the same BAR. */
static bool parse_bar_path(const char *path, struct dmabuf_bar *bar)
{
	char real[PATH_MAX];
	unsigned numbers[4];
	const char *slash;
	char *before;
	int end = 0;

	if (realpath(path, real) == NULL || (slash = strrchr(real, '/')) == NULL ||
		sscanf(slash, "/resource%1u", &bar->index) != 1 || bar->index > 5)
		return false;
	real[slash - real] = '\0';
	before = strrchr(real, '/');
	if (before == NULL ||
		sscanf(before, "/%4x:%2x:%2x.%1x%n", &numbers[0], &numbers[1], &numbers[2], &numbers[3], &end) != 4 ||
		before[end] != '\0')
		return false;
	snprintf(bar->device, sizeof(bar->device), "%04x:%02x:%02x.%x", numbers[0] & 0xFFFF, numbers[1] & 0xFF,
		numbers[2] & 0xFF, numbers[3] & 0xF);
	return true;
}

/* link_name -- the last part of where a link of the device leads. False: it is not there. */
static bool link_name(const struct dmabuf_roots *roots, const struct dmabuf_bar *bar, const char *link, char name[64])
{
	char path[PATH_MAX];
	char target[PATH_MAX];
	ssize_t len;

	snprintf(path, sizeof(path), "%.256s/bus/pci/devices/%s/%s", roots->sys, bar->device, link);
	len = readlink(path, target, sizeof(target) - 1);
	if (len <= 0)
		return false;
	target[len] = '\0';
	snprintf(name, 64, "%.63s", strrchr(target, '/') != NULL ? strrchr(target, '/') + 1 : target);
	return true;
}

bool dmabuf_check(const struct dmabuf_roots *roots, const char *path, struct dmabuf_bar *bar, char why[DMABUF_WHY_LEN])
{
	char container[PATH_MAX];
	char name[64];

	why[0] = '\0';
	if (!parse_bar_path(path, bar))
		return add_missing(why, "%.80s is no resource file of a PCI device", path);
	if (!link_name(roots, bar, "driver", name))
		add_missing(why, "%s has no driver (expected vfio-pci)", bar->device);
	else if (strcmp(name, "vfio-pci") != 0)
		add_missing(why, "%s has driver %.20s (expected vfio-pci)", bar->device, name);
	if (!link_name(roots, bar, "iommu_group", name) || sscanf(name, "%u", &bar->group) != 1)
		add_missing(why, "%s is in no IOMMU group (expected the IOMMU on)", bar->device);
	snprintf(container, sizeof(container), "%.256s/vfio/vfio", roots->dev);
	if (access(container, R_OK | W_OK) != 0)
		add_missing(why, "%.80s: %s (expected vfio's container)", container, strerror(errno));
	return why[0] == '\0';
}

/* ---------------------------------------------------------------- opening */

static void close_descriptors(struct region_dmabuf *dmabuf)
{
	int *const fds[] = {&dmabuf->fd, &dmabuf->device, &dmabuf->group, &dmabuf->container};

	for (unsigned i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

static bool open_group(struct region_dmabuf *dmabuf, char why[DMABUF_WHY_LEN])
{
	struct vfio_group_status status = {.argsz = sizeof(status)};
	char path[64];

	snprintf(path, sizeof(path), "%s/vfio/vfio", roots_here.dev);
	dmabuf->container = open(path, O_RDWR | O_CLOEXEC);
	if (dmabuf->container < 0)
		return add_missing(why, "%s: %s", path, strerror(errno));
	if (ioctl(dmabuf->container, VFIO_GET_API_VERSION) != VFIO_API_VERSION ||
		ioctl(dmabuf->container, VFIO_CHECK_EXTENSION, VFIO_TYPE1v2_IOMMU) != 1)
		return add_missing(why, "vfio here has no IOMMU of type 1 (expected vfio_iommu_type1)");
	snprintf(path, sizeof(path), "%s/vfio/%u", roots_here.dev, dmabuf->bar.group);
	dmabuf->group = open(path, O_RDWR | O_CLOEXEC);
	if (dmabuf->group < 0)
		return add_missing(why, "%s: %s", path, strerror(errno));
	if (ioctl(dmabuf->group, VFIO_GROUP_GET_STATUS, &status) != 0 || !(status.flags & VFIO_GROUP_FLAGS_VIABLE))
		return add_missing(why,
			"IOMMU group %u is not vfio's alone (expected vfio-pci, or no driver, for all devices in it)",
			dmabuf->bar.group);
	return true;
}

static bool open_device(struct region_dmabuf *dmabuf, char why[DMABUF_WHY_LEN])
{
	struct vfio_device_feature probe = {
		.argsz = sizeof(probe), .flags = VFIO_DEVICE_FEATURE_PROBE | VFIO_DEVICE_FEATURE_GET | FEATURE_DMA_BUF};

	if (ioctl(dmabuf->group, VFIO_GROUP_SET_CONTAINER, &dmabuf->container) != 0 ||
		ioctl(dmabuf->container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) != 0)
		return add_missing(why, "IOMMU group %u does not go into a container: %s", dmabuf->bar.group, strerror(errno));
	dmabuf->device = ioctl(dmabuf->group, VFIO_GROUP_GET_DEVICE_FD, dmabuf->bar.device);
	if (dmabuf->device < 0)
		return add_missing(why, "vfio does not open %s: %s", dmabuf->bar.device, strerror(errno));
	if (ioctl(dmabuf->device, VFIO_DEVICE_FEATURE, &probe) != 0)
		return add_missing(
			why, "vfio-pci here exports no dma-buf: %s (expected Linux 6.19, CONFIG_VFIO_PCI_DMABUF)", strerror(errno));
	return true;
}

static bool export_bar(struct region_dmabuf *dmabuf, char why[DMABUF_WHY_LEN])
{
	struct vfio_region_info info = {.argsz = sizeof(info), .index = VFIO_PCI_BAR0_REGION_INDEX + dmabuf->bar.index};
	struct feature_dma_buf feature = {.argsz = sizeof(feature),
		.flags = VFIO_DEVICE_FEATURE_GET | FEATURE_DMA_BUF,
		.region_index = info.index,
		.open_flags = O_RDWR | O_CLOEXEC,
		.range_count = 1};

	if (ioctl(dmabuf->device, VFIO_DEVICE_GET_REGION_INFO, &info) != 0)
		return add_missing(
			why, "vfio does not know BAR %u of %s: %s", dmabuf->bar.index, dmabuf->bar.device, strerror(errno));
	feature.range.length = info.size;
	dmabuf->fd = ioctl(dmabuf->device, VFIO_DEVICE_FEATURE, &feature);
	if (dmabuf->fd < 0)
		return add_missing(
			why, "vfio-pci does not export BAR %u of %s: %s", dmabuf->bar.index, dmabuf->bar.device, strerror(errno));
	return true;
}

/* find_opened -- called with the lock held. */
static struct region_dmabuf *find_opened(const struct dmabuf_bar *bar)
{
	struct region_dmabuf *one = opened;

	while (one != NULL && (one->bar.index != bar->index || strcmp(one->bar.device, bar->device) != 0))
		one = one->next;
	return one;
}

/* open_new -- called with the lock held. */
static struct region_dmabuf *open_new(const struct dmabuf_bar *bar, char why[DMABUF_WHY_LEN])
{
	struct region_dmabuf *dmabuf = calloc(1, sizeof(*dmabuf));

	if (dmabuf == NULL) {
		add_missing(why, "out of memory");
		return NULL;
	}
	*dmabuf = (struct region_dmabuf){.bar = *bar, .container = -1, .group = -1, .device = -1, .fd = -1};
	if (!open_group(dmabuf, why) || !open_device(dmabuf, why) || !export_bar(dmabuf, why)) {
		close_descriptors(dmabuf);
		free(dmabuf);
		return NULL;
	}
	dmabuf->next = opened;
	opened = dmabuf;
	return dmabuf;
}

struct region_dmabuf *region_dmabuf_acquire(struct region *region, uint64_t *off, char why[DMABUF_WHY_LEN])
{
	struct region_dmabuf *dmabuf;
	struct dmabuf_bar bar;
	char path[PATH_MAX];

	region_mem_locate(region, path, off);
	if (!dmabuf_check(&roots_here, path, &bar, why))
		return NULL;
	pthread_mutex_lock(&lock);
	dmabuf = find_opened(&bar);
	if (dmabuf == NULL)
		dmabuf = open_new(&bar, why);
	if (dmabuf != NULL)
		dmabuf->use_count++;
	pthread_mutex_unlock(&lock);
	return dmabuf;
}

void region_dmabuf_release(struct region_dmabuf *dmabuf)
{
	struct region_dmabuf **link = &opened;

	pthread_mutex_lock(&lock);
	if (--dmabuf->use_count == 0) {
		while (*link != dmabuf)
			link = &(*link)->next;
		*link = dmabuf->next;
		close_descriptors(dmabuf);
		free(dmabuf);
	}
	pthread_mutex_unlock(&lock);
}
