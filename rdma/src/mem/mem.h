/* mem/mem.h -- what the two halves of the mem: region share: finding out the contract, and using it. */
#ifndef FARLOG_REGION_MEM_H
#define FARLOG_REGION_MEM_H

#include "base/uri.h"
#include "region/region.h"

/* region_mem_probe -- fill the contract of a path. 0; NOT_FOUND when neither it nor its directory exists; INVALID,
 * UNSUPPORTED or IO. */
int region_mem_probe(const char *text, const struct uri *uri, struct farlog_contract *contract,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* region_mem_domain -- the kernel's word on the memory behind a path: a DAX device, or a file on a DAX file system.
 * UNKNOWN where it has none. */
enum farlog_persistence_domain region_mem_domain(const char *path);

/* region_domain_above -- the same for a device's directory in sysfs: it, or one above it, may be a region that says
 * it. */
enum farlog_persistence_domain region_domain_above(const char *directory);

/* region_is_nvdimm -- does the device with this directory in sysfs, or one above it, lie on a bus of the kernel's
 * nvdimm driver? A DAX device of other memory, which firmware reserved for a purpose (hmem) or CXL has as volatile
 * memory, does not. False also where that cannot be said. */
bool region_is_nvdimm(const char *directory);

/* region_domain_name -- "memory_controller", "cpu_cache", or "" for UNKNOWN. */
const char *region_domain_name(enum farlog_persistence_domain domain);

/* region_mem_place -- the path of the file behind an open region ("" = not known), PATH_MAX bytes, and where in it the
 * region begins. */
void region_mem_place(const struct region *region, char *path, uint64_t *off);

/* region_mem_make -- a region of an open file, which is closed with it or here when that fails. name: where it lies,
 * whose loss ends a writer; NULL = not told. */
int region_mem_make(const char *text, int fd, const char *name, const struct farlog_contract *contract,
	const struct region_ask *ask, struct region **region, struct farlog_error *error) FARLOG_MUST_CHECK;

int region_mem_open(const char *text, const struct uri *uri, const struct region_ask *ask, struct region **region,
	struct farlog_error *error) FARLOG_MUST_CHECK;

#endif
