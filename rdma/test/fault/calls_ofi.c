/* calls_ofi.c -- the calls into libfabric that a sweep makes fail. Two are exported; all others go through tables of
 * functions that its objects bring along: an object gets a copy of its table in which those of ours stand. What is
 * polled (completions, events) is not counted: how often differs from run to run. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "wire/lib_ofi.h"

#define TABLE_COUNT_MAX 32u
#define FAILS(name) calls_fail(name, (const int[CALLS_KIND_COUNT]){FI_EIO})

/* A provider's table and ours, for all its objects. */
static struct table {
	const void *real;
	void *ours;
} tables[TABLE_COUNT_MAX];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* copy_of -- the table to change; one that is ours already stays. */
static void *copy_of(const void *table, size_t len)
{
	void *ours = NULL;

	pthread_mutex_lock(&mutex);
	for (unsigned i = 0; i < TABLE_COUNT_MAX && ours == NULL; i++) {
		if (tables[i].real == NULL) {
			tables[i] = (struct table){table, malloc(len)};
			memcpy(tables[i].ours, table, len);
		}
		if (tables[i].real == table || tables[i].ours == table)
			ours = tables[i].ours;
	}
	pthread_mutex_unlock(&mutex);
	if (ours == NULL)
		abort(); /* more providers than this is for */
	return ours;
}

/* real_of -- the provider's table. */
static const void *real_of(const void *ours)
{
	const void *real = NULL;

	pthread_mutex_lock(&mutex);
	for (unsigned i = 0; i < TABLE_COUNT_MAX && real == NULL; i++)
		if (tables[i].ours == ours)
			real = tables[i].real;
	pthread_mutex_unlock(&mutex);
	return real;
}

/* FUNCTION -- that fails when it is its turn, and else is the provider's. table: an expression of the object's. */
#define FUNCTION(result_type, name, type, table, parameters, arguments) \
	static result_type call_##name parameters \
	{ \
		int error = FAILS("fi_" #name); \
\
		return error != 0 ? -error : ((const struct type *)real_of(table))->name arguments; \
	}

FUNCTION(int, bind, fi_ops, fid->ops, (struct fid * fid, struct fid *other, uint64_t flags), (fid, other, flags))
FUNCTION(int, listen, fi_ops_cm, pep->cm, (struct fid_pep * pep), (pep))
FUNCTION(int, connect, fi_ops_cm, ep->cm, (struct fid_ep * ep, const void *to, const void *bytes, size_t len),
	(ep, to, bytes, len))
FUNCTION(int, accept, fi_ops_cm, ep->cm, (struct fid_ep * ep, const void *bytes, size_t len), (ep, bytes, len))
FUNCTION(ssize_t, sendmsg, fi_ops_msg, ep->msg, (struct fid_ep * ep, const struct fi_msg *msg, uint64_t flags),
	(ep, msg, flags))
FUNCTION(ssize_t, inject, fi_ops_msg, ep->msg, (struct fid_ep * ep, const void *bytes, size_t len, fi_addr_t to),
	(ep, bytes, len, to))
FUNCTION(ssize_t, recv, fi_ops_msg, ep->msg,
	(struct fid_ep * ep, void *to, size_t len, void *desc, fi_addr_t from, void *context),
	(ep, to, len, desc, from, context))
FUNCTION(ssize_t, readmsg, fi_ops_rma, ep->rma, (struct fid_ep * ep, const struct fi_msg_rma *msg, uint64_t flags),
	(ep, msg, flags))
FUNCTION(ssize_t, writemsg, fi_ops_rma, ep->rma, (struct fid_ep * ep, const struct fi_msg_rma *msg, uint64_t flags),
	(ep, msg, flags))

static int call_control(struct fid *fid, int command, void *argument)
{
	int error = command == FI_ENABLE ? FAILS("fi_enable") : 0;

	return error != 0 ? -error : ((const struct fi_ops *)real_of(fid->ops))->control(fid, command, argument);
}

static ssize_t call_inject_write(
	struct fid_ep *ep, const void *bytes, size_t len, fi_addr_t to, uint64_t address, uint64_t key)
{
	int error = FAILS("fi_inject_write");

	return error != 0 ? -error :
						((const struct fi_ops_rma *)real_of(ep->rma))->inject(ep, bytes, len, to, address, key);
}

static int call_mr_reg(struct fid *fid, const void *start, size_t len, uint64_t access, uint64_t offset, uint64_t key,
	uint64_t flags, struct fid_mr **mr, void *context)
{
	const struct fid_domain *domain = (const struct fid_domain *)fid;
	int error = FAILS("fi_mr_reg");

	return error != 0 ?
		-error :
		((const struct fi_ops_mr *)real_of(domain->mr))->reg(fid, start, len, access, offset, key, flags, mr, context);
}

static void change_fid(struct fid *fid)
{
	struct fi_ops *ops = fid->ops = copy_of(fid->ops, sizeof(*ops));

	ops->bind = call_bind;
	ops->control = call_control;
}

static void change_ep(struct fid_ep *ep)
{
	struct fi_ops_cm *cm = ep->cm = copy_of(ep->cm, sizeof(*cm));
	struct fi_ops_msg *msg = ep->msg = copy_of(ep->msg, sizeof(*msg));
	struct fi_ops_rma *rma = ep->rma = copy_of(ep->rma, sizeof(*rma));

	change_fid(&ep->fid);
	cm->connect = call_connect;
	cm->accept = call_accept;
	msg->sendmsg = call_sendmsg;
	msg->inject = call_inject;
	msg->recv = call_recv;
	rma->readmsg = call_readmsg;
	rma->writemsg = call_writemsg;
	rma->inject = call_inject_write;
}

static int call_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context)
{
	int result = -FAILS("fi_endpoint");

	if (result == 0)
		result = ((const struct fi_ops_domain *)real_of(domain->ops))->endpoint(domain, info, ep, context);
	if (result == 0)
		change_ep(*ep);
	return result;
}

static int call_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context)
{
	int error = FAILS("fi_cq_open");

	return error != 0 ? -error :
						((const struct fi_ops_domain *)real_of(domain->ops))->cq_open(domain, attr, cq, context);
}

static int call_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context)
{
	int result = -FAILS("fi_domain");

	if (result == 0)
		result = ((const struct fi_ops_fabric *)real_of(fabric->ops))->domain(fabric, info, domain, context);
	if (result == 0) {
		struct fi_ops_domain *ops = (*domain)->ops = copy_of((*domain)->ops, sizeof(*ops));
		struct fi_ops_mr *mr = (*domain)->mr = copy_of((*domain)->mr, sizeof(*mr));

		ops->endpoint = call_endpoint;
		ops->cq_open = call_cq_open;
		mr->reg = call_mr_reg;
	}
	return result;
}

static int call_passive_ep(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep, void *context)
{
	int result = -FAILS("fi_passive_ep");

	if (result == 0)
		result = ((const struct fi_ops_fabric *)real_of(fabric->ops))->passive_ep(fabric, info, pep, context);
	if (result == 0) {
		struct fi_ops_cm *cm = (*pep)->cm = copy_of((*pep)->cm, sizeof(*cm));

		change_fid(&(*pep)->fid);
		cm->listen = call_listen;
	}
	return result;
}

static int call_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq, void *context)
{
	int error = FAILS("fi_eq_open");

	return error != 0 ? -error :
						((const struct fi_ops_fabric *)real_of(fabric->ops))->eq_open(fabric, attr, eq, context);
}

static int (*real_fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
static int (*real_getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
	const struct fi_info *hints, struct fi_info **info);

static int call_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
	int result = -FAILS("fi_fabric");

	if (result == 0)
		result = real_fabric(attr, fabric, context);
	if (result == 0) {
		struct fi_ops_fabric *ops = (*fabric)->ops = copy_of((*fabric)->ops, sizeof(*ops));

		ops->domain = call_domain;
		ops->passive_ep = call_passive_ep;
		ops->eq_open = call_eq_open;
	}
	return result;
}

static int call_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
	const struct fi_info *hints, struct fi_info **info)
{
	int error = FAILS("fi_getinfo");

	return error != 0 ? -error : real_getinfo(version, node, service, flags, hints, info);
}

void *calls_of_ofi(const char *name, void *found)
{
	if (strcmp(name, "fi_fabric") == 0) {
		*(void **)&real_fabric = found;
		return (void *)call_fabric;
	}
	if (strcmp(name, "fi_getinfo") == 0) {
		*(void **)&real_getinfo = found;
		return (void *)call_getinfo;
	}
	return found;
}
