/* target/verbs_ring.c -- registering rings: a protection domain for each tenant, and in it a memory region for each
 * piece of the ring. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "target/verbs.h"

#define ACCESS_REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* acquire_domain -- the lock is held. */
static struct verbs_domain *acquire_domain(struct verbs_listener *listener, unsigned device, const char *tenant)
{
	struct verbs_domain *domain = listener->domains;

	while (domain != NULL && (domain->device != device || strcmp(domain->tenant, tenant) != 0))
		domain = domain->next;
	if (domain == NULL) {
		domain = calloc(1, sizeof(*domain));
		if (domain == NULL)
			return NULL;
		domain->pd = listener->lib->alloc_pd(listener->hosts[device].device.context);
		if (domain->pd == NULL) {
			free(domain);
			return NULL;
		}
		domain->device = device;
		memcpy(domain->tenant, tenant, sizeof(domain->tenant)); /* both are arrays of that length */
		domain->next = listener->domains;
		listener->domains = domain;
	}
	domain->use_count++;
	return domain;
}

/* release_domain -- the lock is held. */
static void release_domain(struct verbs_listener *listener, struct verbs_domain *domain)
{
	struct verbs_domain **link = &listener->domains;

	if (--domain->use_count > 0)
		return;
	while (*link != domain)
		link = &(*link)->next;
	*link = domain->next;
	listener->lib->dealloc_pd(domain->pd);
	free(domain);
}

/* register_best -- with the strongest flush that device and memory allow, and no right to WRITE or READ from afar: keys
 * of registrations can be guessed, and this one lives as long as the ring is served. A client's own key, window or
 * registration, has those. The kernel refuses FLUSH_PERSISTENT for what is not persistent memory: that refusal is the
 * proof that the flag is worth something where it is granted. */
static int register_best(const struct verbs_host *host, struct ibv_pd *pd, const struct target_ring *ring,
	struct region_span span, struct verbs_registration *made, struct farlog_error *error)
{
	const struct verbs_device *device = &host->device;
	unsigned plain = IBV_ACCESS_LOCAL_WRITE | (device->has_window ? IBV_ACCESS_MW_BIND : 0);
	unsigned global = device->has_flush_global ? VERBS_ACCESS_FLUSH_GLOBAL : 0;
	unsigned persistent = device->has_flush_persistent ? VERBS_ACCESS_FLUSH_PERSISTENT : 0;
	const unsigned tries[] = {plain | global | persistent, plain | global, plain};
	int failure = 0;

	for (unsigned i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
		if (i > 0 && tries[i] == tries[i - 1])
			continue;
		made->access = tries[i] | ACCESS_REMOTE;
		made->mr = device->lib->reg_mr(pd, ring->served_bytes + span.off, span.len, (int)tries[i]);
		if (made->mr != NULL)
			return FARLOG_OK;
		failure = errno;
		if (failure != EINVAL && failure != EOPNOTSUPP)
			break;
	}
	return verbs_refuse_registration(
		device, failure, ring->region->contract.size_bytes, (int)ring->region->contract.kind, ring->name, error);
}

/* register_dmabuf -- of a BAR. Such a registration takes neither FLUSH nor windows (ibv_reg_dmabuf_mr(3)): a READ
 * flushes a BAR, and each connection has one of its own. */
static int register_dmabuf(const struct verbs_host *host, struct ibv_pd *pd, const struct target_ring *ring,
	struct verbs_exposure *exposure, unsigned index, enum far_piece piece, char why[DMABUF_WHY_LEN])
{
	struct region_span span = far_piece_span(piece, ring->region->contract.size_bytes);
	struct verbs_registration *made = &exposure->on[index].pieces[piece];

	why[0] = '\0';
	if (exposure->dmabuf == NULL)
		exposure->dmabuf = region_dmabuf_acquire(ring->region, &exposure->dmabuf_off, why);
	if (exposure->dmabuf == NULL)
		return FARLOG_UNSUPPORTED;
	made->access = IBV_ACCESS_LOCAL_WRITE | ACCESS_REMOTE;
	exposure->on[index].is_dmabuf = true;
	return verbs_register_dmabuf(&host->device, pd, exposure->dmabuf->fd, exposure->dmabuf_off + span.off, span.len,
		(uint64_t)(uintptr_t)ring->served_bytes + span.off, IBV_ACCESS_LOCAL_WRITE, &made->mr, why, DMABUF_WHY_LEN);
}

/* register_piece -- of its mapping, or where that cannot be and it is a BAR, of its dma-buf. */
static int register_piece(const struct verbs_listener *listener, const struct target_ring *ring,
	struct verbs_exposure *exposure, unsigned index, enum far_piece piece, struct farlog_error *error)
{
	const struct verbs_host *host = &listener->hosts[index];
	struct ibv_pd *pd = exposure->on[index].domain->pd;
	struct region_span span = far_piece_span(piece, ring->region->contract.size_bytes);
	int result = register_best(host, pd, ring, span, &exposure->on[index].pieces[piece], error);
	char why[DMABUF_WHY_LEN];

	if (result != FARLOG_UNSUPPORTED || ring->region->contract.kind != FARLOG_REGION_BAR)
		return result;
	if (register_dmabuf(host, pd, ring, exposure, index, piece, why) == FARLOG_OK)
		return FARLOG_OK;
	return error_set(error, FARLOG_UNSUPPORTED, 0,
		"serve ring \"%.40s\" by RDMA device %.20s: a PCI BAR mapped through sysfs has no pages that a device could "
		"write to, and as a dma-buf: %s",
		ring->name, host->device.name, why);
}

struct ibv_mr *verbs_expose_mr(const struct verbs_listener *listener, const struct target_ring *ring, unsigned device,
	enum far_piece piece, unsigned access)
{
	const struct verbs_exposure *exposure = ring->key;
	struct ibv_pd *pd = exposure->on[device].domain->pd;
	struct region_span span = far_piece_span(piece, ring->region->contract.size_bytes);
	uint8_t *start = ring->served_bytes + span.off;

	if (!exposure->on[device].is_dmabuf)
		return listener->lib->reg_mr(pd, start, span.len, (int)access);
	return listener->lib->reg_dmabuf_mr(
		pd, exposure->dmabuf_off + span.off, span.len, (uint64_t)(uintptr_t)start, exposure->dmabuf->fd, (int)access);
}

static int register_ring(const struct verbs_listener *listener, const struct target_ring *ring,
	struct verbs_exposure *exposure, unsigned index, struct farlog_error *error)
{
	int result = FARLOG_OK;

	for (unsigned piece = 0; piece < FAR_PIECE_COUNT && result == FARLOG_OK; piece++)
		result = register_piece(listener, ring, exposure, index, (enum far_piece)piece, error);
	return result;
}

int verbs_expose(void *context, struct target_ring *ring, void **key, struct farlog_error *error)
{
	struct verbs_listener *listener = context;
	struct verbs_exposure *exposure = calloc(1, sizeof(*exposure));
	int result = FARLOG_OK;

	if (exposure == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "serve ring \"%s\": out of memory", ring->name);
	for (unsigned i = 0; i < listener->host_count && result == FARLOG_OK; i++) {
		struct verbs_domain *domain;

		pthread_mutex_lock(&listener->lock);
		domain = acquire_domain(listener, i, ring->tenant);
		pthread_mutex_unlock(&listener->lock);
		exposure->on[i].domain = domain;
		if (domain == NULL)
			result = error_set(error, FARLOG_IO, errno,
				"serve ring \"%s\": a protection domain for tenant \"%s\" on RDMA device %s", ring->name, ring->tenant,
				listener->hosts[i].device.name);
		else
			result = register_ring(listener, ring, exposure, i, error);
	}
	if (result != FARLOG_OK) {
		verbs_withdraw(listener, ring, exposure);
		return result;
	}
	*key = exposure;
	return FARLOG_OK;
}

void verbs_withdraw(void *context, struct target_ring *ring, void *key)
{
	struct verbs_listener *listener = context;
	struct verbs_exposure *exposure = key;

	(void)ring;
	for (unsigned i = 0; i < listener->host_count; i++) {
		for (unsigned piece = 0; piece < FAR_PIECE_COUNT; piece++)
			if (exposure->on[i].pieces[piece].mr != NULL)
				listener->lib->dereg_mr(exposure->on[i].pieces[piece].mr);
		pthread_mutex_lock(&listener->lock);
		if (exposure->on[i].domain != NULL)
			release_domain(listener, exposure->on[i].domain);
		pthread_mutex_unlock(&listener->lock);
	}
	if (exposure->dmabuf != NULL)
		region_dmabuf_release(exposure->dmabuf);
	free(exposure);
}
