/* mem/dmabuf.h -- a PCI BAR as a dma-buf: what an RDMA device can write to where it cannot be given the BAR's mapping,
 * which has no pages.
 *
 * vfio-pci exports one (Linux 6.19 and later). NOT YET RUN ON HARDWARE: no machine here has an IOMMU, such a kernel,
 * and an RDMA device that takes dma-bufs. What each step asks for is tried one by one, and the text names all that were
 * missing. */
#ifndef FARLOG_REGION_DMABUF_H
#define FARLOG_REGION_DMABUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "region/region.h"

#define DMABUF_WHY_LEN 256

/* Where the kernel's files are: "/sys" and "/dev", or a test's. */
struct dmabuf_roots {
	const char *sys;
	const char *dev;
};

/* A BAR, and what the kernel says of it without a device being opened. */
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

/* dmabuf_look -- is `path` (…/0000:01:00.0/resource2) a BAR that vfio-pci could export? False: `why` has each thing
 * that is missing. */
bool dmabuf_look(const struct dmabuf_roots *roots, const char *path, struct dmabuf_bar *bar, char why[DMABUF_WHY_LEN]);

/* region_dmabuf_take -- that of the BAR which this region lies in, and *off: where in it. One for all its rings: vfio
 * opens a device once. It stays until as many have given it. NULL: `why` says what was missing. Opening the device for
 * the first time resets it. */
struct region_dmabuf *region_dmabuf_take(
	struct region *region, uint64_t *off, char why[DMABUF_WHY_LEN]) FARLOG_MUST_CHECK;
void region_dmabuf_give(struct region_dmabuf *dmabuf);

#endif
