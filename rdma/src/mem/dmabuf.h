/* mem/dmabuf.h -- export a PCI BAR as a dma-buf, for RDMA devices that cannot register the BAR's mapping, which has no
 * struct pages.
 *
 * vfio-pci exports one (Linux 6.19 and later). NOT YET RUN ON HARDWARE: no machine here has an IOMMU, such a kernel,
 * and an RDMA device that takes dma-bufs. Each requirement is checked, and the text names all that are missing. */
#ifndef FARLOG_REGION_DMABUF_H
#define FARLOG_REGION_DMABUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "region/region.h"

#define DMABUF_WHY_LEN 256

/* Where the kernel's files are: "/sys" and "/dev", or directories of a test. */
struct dmabuf_roots {
	const char *sys;
	const char *dev;
};

/* A BAR, by what sysfs says. */
struct dmabuf_bar {
	char device[16]; /* 0000:01:00.0 */
	unsigned index;  /* of the BAR */
	unsigned group;  /* of its IOMMU */
};

struct region_dmabuf {
	struct region_dmabuf *next;
	struct dmabuf_bar bar;
	unsigned use_count;
	int container;
	int group;
	int device; /* the dma-buf is revoked when this is closed */
	int fd;     /* the dma-buf, of all the BAR */
};

/* dmabuf_check -- is `path` (…/0000:01:00.0/resource2) a BAR that vfio-pci can export? Opens no device. False: `why`
 * names everything that is missing. */
bool dmabuf_check(const struct dmabuf_roots *roots, const char *path, struct dmabuf_bar *bar, char why[DMABUF_WHY_LEN]);

/* region_dmabuf_acquire -- the dma-buf of the BAR that this region is in, and *off: the region's offset in it. All
 * rings of a BAR share one, by reference count: vfio opens a device once. Each acquire needs a release. NULL: `why`
 * names what is missing. The first acquire resets the device. Any thread; blocks. */
struct region_dmabuf *region_dmabuf_acquire(
	struct region *region, uint64_t *off, char why[DMABUF_WHY_LEN]) FARLOG_MUST_CHECK;
void region_dmabuf_release(struct region_dmabuf *dmabuf);

#endif
