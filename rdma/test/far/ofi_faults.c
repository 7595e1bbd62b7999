/* ofi_faults.c -- see ofi_faults.h. */
#include "far/ofi_faults.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/atomics.h"
#include "far/ofi.h"

#define LATE_MS 10000

int __real_ofi_link_connect(struct far_link *link, const struct far_hello *hello, struct far_refusal *refusal,
	uint64_t timeout_ns, struct farlog_error *error) FARLOG_MUST_CHECK;
int __wrap_ofi_link_connect(struct far_link *link, const struct far_hello *hello, struct far_refusal *refusal,
	uint64_t timeout_ns, struct farlog_error *error) FARLOG_MUST_CHECK;
int __real_ofi_register(struct fid_domain *domain, const struct fi_info *info, void *start, uint64_t len,
	uint64_t access, struct fid_mr **mr) FARLOG_MUST_CHECK;
int __wrap_ofi_register(struct fid_domain *domain, const struct fi_info *info, void *start, uint64_t len,
	uint64_t access, struct fid_mr **mr) FARLOG_MUST_CHECK;

uint64_t ofi_carries_nothing;
uint64_t ofi_wait_is_late;
uint64_t ofi_end_fails;

/* For each kind of object: the provider's table, and a copy of it with a function of ours. */
static struct {
	const struct fi_ops_fabric *real;
	struct fi_ops_fabric ours;
} fabrics;
static struct {
	const struct fi_ops_domain *real;
	struct fi_ops_domain ours;
} domains;
static struct {
	const struct fi_ops *real;
	struct fi_ops ours;
} keys, endpoints;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* CHANGE -- give an object the copy of its table. All objects of a kind must be of one provider. */
#define CHANGE(table, ops, function, replacement) \
	do { \
		pthread_mutex_lock(&mutex); \
		if (table.real == NULL) { \
			table.real = ops; \
			table.ours = *ops; \
			table.ours.function = replacement; \
		} \
		if (ops != table.real && ops != &table.ours) \
			abort(); \
		ops = &table.ours; \
		pthread_mutex_unlock(&mutex); \
	} while (0)

static int trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
	struct pollfd arrival = {.events = POLLIN};

	if (atomic_load_relaxed(&ofi_wait_is_late) != 0 && fi_control(fids[0], FI_GETWAIT, &arrival.fd) == 0)
		(void)poll(&arrival, 1, LATE_MS);
	return fabrics.real->trywait(fabric, fids, count);
}

int __wrap_ofi_link_connect(struct far_link *link, const struct far_hello *hello, struct far_refusal *refusal,
	uint64_t timeout_ns, struct farlog_error *error)
{
	int result = __real_ofi_link_connect(link, hello, refusal, timeout_ns, error);
	struct ofi_link *ofi = ofi_of(link);

	if (result != FARLOG_OK)
		return result;
	CHANGE(fabrics, ofi->fabric->ops, trywait, trywait);
	if (atomic_load_relaxed(&ofi_carries_nothing) != 0)
		link->welcome.flush_methods &= ~FAR_CARRIES;
	return result;
}

static int close_key(struct fid *fid)
{
	return atomic_load_relaxed(&ofi_end_fails) & 1 ? -FI_EBUSY : keys.real->close(fid);
}

static int close_endpoint(struct fid *fid)
{
	return atomic_load_relaxed(&ofi_end_fails) & 2 ? -FI_EBUSY : endpoints.real->close(fid);
}

static int open_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context)
{
	int failure = domains.real->endpoint(domain, info, ep, context);

	if (failure == 0)
		CHANGE(endpoints, (*ep)->fid.ops, close, close_endpoint);
	return failure;
}

/* A connection at a target gets its keys first, and then its endpoint. */
int __wrap_ofi_register(struct fid_domain *domain, const struct fi_info *info, void *start, uint64_t len,
	uint64_t access, struct fid_mr **mr)
{
	int failure = __real_ofi_register(domain, info, start, len, access, mr);

	if (failure == 0) {
		CHANGE(keys, (*mr)->fid.ops, close, close_key);
		CHANGE(domains, domain->ops, endpoint, open_endpoint);
	}
	return failure;
}
