/* wire/lib_ofi.h -- libfabric, loaded when the first ofi: URI is opened, and what both ends of a connection ask of it.
 *
 * Only what the library exports is here: the data path goes through tables of functions that its objects bring along,
 * and fi_*.h have inline functions for those. */
#ifndef FARLOG_LIB_OFI_H
#define FARLOG_LIB_OFI_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "base/uri.h"
#include "farlog/farlog.h"

/* name, type of what it returns, parameters */
#define LIB_OFI_TABLE(X) \
	X(getinfo, int, \
		(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints, \
			struct fi_info **info)) \
	X(dupinfo, struct fi_info *, (const struct fi_info *info)) \
	X(freeinfo, void, (struct fi_info * info)) \
	X(fabric, int, (struct fi_fabric_attr * attr, struct fid_fabric * *fabric, void *context)) \
	X(strerror, const char *, (int failure)) \
	X(version, uint32_t, (void))

struct lib_ofi {
#define LIB_OFI_FIELD(name, type, parameters) type(*name) parameters;
	LIB_OFI_TABLE(LIB_OFI_FIELD)
#undef LIB_OFI_FIELD
};

/* lib_ofi_load -- once a process, by any thread. OK, or UNSUPPORTED with a text that says what to install. */
int lib_ofi_load(const struct lib_ofi **lib, struct farlog_error *error) FARLOG_MUST_CHECK;

/* ofi_info -- how to reach uri->host:port by uri->provider, or with FI_SOURCE in flags how to listen there. To be
 * freed. OK; UNSUPPORTED: no such provider here, or not one with what we need; NOT_FOUND: the host has no address; IO.
 * Blocks for name resolution. */
int ofi_info(const struct lib_ofi *lib, const char *text, const struct uri *uri, uint64_t flags, struct fi_info **info,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* ofi_register -- a memory region that the peer reaches by a random key, or by the provider's where it insists. 0 or
 * -FI_E... */
int ofi_register(struct fid_domain *domain, const struct fi_info *info, void *start, uint64_t len, uint64_t access,
	struct fid_mr **mr) FARLOG_MUST_CHECK;

/* ofi_address -- what the peer calls the first byte of a region that ofi_register made. */
static inline uint64_t ofi_address(const struct fi_info *info, const void *start)
{
	return info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)start : 0;
}

/* OFI_CLOSE -- an object of libfabric, or NULL. */
#define OFI_CLOSE(object) \
	do { \
		if (object != NULL) \
			(void)fi_close(&object->fid); \
		object = NULL; \
	} while (0)

#endif
