/* mem/mem.h -- mem: regions: find out the contract of a path, open it, and ask the kernel about its memory. */
#ifndef FARLOG_REGION_MEM_H
#define FARLOG_REGION_MEM_H

#include "base/uri.h"
#include "region/region.h"

/* region_mem_probe -- fill in the contract of a path. OK; NOT_FOUND: neither it nor its directory exists; INVALID,
 * UNSUPPORTED, IO. */
int region_mem_probe(const char *text, const struct uri *uri, struct farlog_contract *contract,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* region_mem_find_domain -- the persistence domain that the kernel states for the memory behind a path: a DAX
 * device, or a file on a DAX file system. UNKNOWN where it states none. */
enum farlog_persistence_domain region_mem_find_domain(const char *path);

/* region_find_domain -- the same for a device's directory in sysfs: the attribute is in it or in one above it. */
enum farlog_persistence_domain region_find_domain(const char *directory);

/* region_is_nvdimm -- is the device with this directory in sysfs, or one above it, on a bus of the kernel's nvdimm
 * driver? False of DAX devices of other memory: reserved by firmware (hmem), or volatile CXL memory. False also where
 * the directory cannot be read. */
bool region_is_nvdimm(const char *directory);

/* region_domain_name -- "memory_controller", "cpu_cache", or "" for UNKNOWN. */
const char *region_domain_name(enum farlog_persistence_domain domain);

/* region_mem_locate -- the path of the file behind an open region (PATH_MAX bytes; "" = not known), and the region's
 * offset in it. */
void region_mem_locate(const struct region *region, char *path, uint64_t *off);

/* region_mem_from_fd -- open a region on an open file. Takes over fd: the region's close closes it, or this call
 * when it fails. name: the path of the file, watched for a writer (mem/watch.h); NULL = not known. */
int region_mem_from_fd(const char *text, int fd, const char *name, const struct farlog_contract *contract,
	const struct region_options *options, struct region **region, struct farlog_error *error) FARLOG_MUST_CHECK;

int region_mem_open(const char *text, const struct uri *uri, const struct region_options *options,
	struct region **region, struct farlog_error *error) FARLOG_MUST_CHECK;

/* region_mem_serve -- map the region once more, for a network library alone: *bytes is its first byte there, writable,
 * until the region is closed. Zeros take the place of a lost page (mem/map_guard.h) only in the region's own mapping:
 * clients of the library never read them, and never store to them. A page that the media does not give fails the
 * library's system calls there; an access by the library itself ends the process. Of a region of another kind: its own
 * bytes. OK or IO. */
int region_mem_serve(
	struct region *region, const char *text, uint8_t **bytes, struct farlog_error *error) FARLOG_MUST_CHECK;

#endif
