/* target/admin.c -- the public side of a target: serving rings, granting, fencing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/err.h"
#include "base/thread.h"
#include "farlog/takeover.h"
#include "region/superblock.h"
#include "scan/recover.h"
#include "target/attest.h"
#include "target/target.h"

#define GRANTS_KEPT 64u

static const struct target_transport *const transports[] = {&target_verbs, &target_ofi};

static struct target_ring *find_ring(struct farlog_target *target, const char *name)
{
	struct target_ring *ring = target->rings;

	while (ring != NULL && strcmp(ring->name, name) != 0)
		ring = ring->next;
	return ring;
}

static int no_ring(const char *name, struct farlog_error *error)
{
	return error_set(error, FARLOG_NOT_FOUND, 0, "target serves no ring \"%s\"", name);
}

int farlog_target_open(const char *text, farlog_target **opened, struct farlog_error *error)
{
	struct farlog_target *target;
	struct uri uri;
	int result = uri_parse(text, &uri, error);

	*opened = NULL;
	if (result != FARLOG_OK)
		return result;
	if (!uri_is_remote(&uri) || uri.ring[0] != '\0')
		return error_set(error, FARLOG_INVALID, 0,
			"target \"%s\": expected verbs://host:port or ofi:provider://host:port, without a ring", text);
	target = calloc(1, sizeof(*target));
	if (target == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "open target \"%s\": out of memory", text);
	pthread_mutex_init(&target->mutex, NULL);
	condition_init(&target->moved);
	target->test_delay_ns = uri.test_flush_delay_ns;
	memcpy(target->test_ring, uri.test_ring, sizeof(target->test_ring));
	snprintf(target->uri, sizeof(target->uri), "%.*s", (int)strcspn(text, "?"), text);
	for (size_t i = 0; i < sizeof(transports) / sizeof(transports[0]); i++)
		if (strcmp(uri.scheme, transports[i]->scheme) == 0)
			target->transport = transports[i];
	result = target->transport->open(target, text, &uri, &target->listener, error);
	if (result != FARLOG_OK) {
		farlog_target_close(target);
		return result;
	}
	*opened = target;
	return FARLOG_OK;
}

const char *farlog_target_uri(const farlog_target *target)
{
	return target->uri;
}

uint64_t farlog_target_await_writers(farlog_target *target, uint64_t seen, uint64_t timeout_ns)
{
	uint64_t until_ns = clock_after_ns(timeout_ns);
	uint64_t count;
	bool is_signalled = true;

	pthread_mutex_lock(&target->mutex);
	while (target->writer_count == seen && is_signalled)
		is_signalled = condition_wait_until(&target->moved, &target->mutex, until_ns);
	count = target->writer_count;
	pthread_mutex_unlock(&target->mutex);
	return count;
}

static void free_grant(struct target_grant *grant)
{
	if (grant == NULL)
		return;
	free(grant->superseded);
	free(grant->networks);
	free(grant);
}

void target_free_ring(struct farlog_target *target, struct target_ring *ring)
{
	target_worker_stop(ring);
	if (ring->key != NULL)
		target->transport->withdraw(target->listener, ring, ring->key);
	if (ring->region != NULL)
		ring->region->ops->close(ring->region);
	while (ring->grants != NULL) {
		struct target_grant *next = ring->grants->next;

		free_grant(ring->grants);
		ring->grants = next;
	}
	free(ring);
}

/* open_ring -- its region, and that a ring is in it. What a dead writer left in caches is made durable before anybody
 * may build on it. */
static int open_ring(struct target_ring *ring, const char *region_uri, struct farlog_error *error)
{
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_READER};
	struct superblock superblock;
	int result = region_open(region_uri, &options, &ring->region, error);

	if (result != FARLOG_OK)
		return result;
	if (ring->region->caps.is_remote)
		return error_set(error, FARLOG_INVALID, 0,
			"ring \"%s\": region \"%s\" is on another host; a target serves its own", ring->name, region_uri);
	if (ring->region->caps.has_copy)
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"ring \"%s\": region \"%s\" is a block device, whose bytes no network card can reach; a target serves mem: "
			"regions, and a block device by NVMe over Fabrics",
			ring->name, region_uri);
	result = superblock_load(ring->region, region_uri, &superblock, error);
	if (result != FARLOG_OK)
		return result;
	memcpy(ring->ring_uuid, superblock.ring_uuid, sizeof(ring->ring_uuid));
	ring->bytes = (uint8_t *)(uintptr_t)ring->region->base; /* mapped for writing: the region was asked for so */
	ring->region->ops->data.populate(ring->region);
	return FARLOG_OK;
}

int farlog_target_serve(
	farlog_target *target, const char *name, const char *region_uri, const char *tenant, struct farlog_error *error)
{
	struct target_ring *ring = calloc(1, sizeof(*ring));
	int result = FARLOG_OK;

	if (ring == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "serve ring \"%s\": out of memory", name);
	if (name[0] == '\0' || strlen(name) >= sizeof(ring->name) ||
		(tenant != NULL && strlen(tenant) >= sizeof(ring->tenant)))
		result = error_set(error, FARLOG_INVALID, 0,
			"serve ring \"%s\" of tenant \"%s\": expected a name of 1 to %zu characters", name,
			tenant != NULL ? tenant : "", sizeof(ring->name) - 1);
	if (result == FARLOG_OK) {
		strcpy(ring->name, name);
		strcpy(ring->tenant, tenant != NULL ? tenant : "");
		ring->hash = crc32c_update(0, name, strlen(name));
		if (target->test_ring[0] == '\0' || strcmp(target->test_ring, name) == 0)
			ring->test_delay_ns = target->test_delay_ns;
		result = open_ring(ring, region_uri, error);
	}
	if (result == FARLOG_OK)
		result = target_apply_attestation(target, ring, region_uri, error);
	if (result == FARLOG_OK && target_is_disk(ring))
		result = target_worker_start(ring, error);
	if (result == FARLOG_OK)
		result = target->transport->expose(target->listener, ring, &ring->key, error);
	if (result == FARLOG_OK)
		result = target_tails_open(target, ring->tenant, error);
	pthread_mutex_lock(&target->mutex);
	if (result == FARLOG_OK && find_ring(target, name) != NULL)
		result = error_set(error, FARLOG_EXISTS, 0, "target serves a ring \"%s\" already", name);
	if (result == FARLOG_OK) {
		ring->next = target->rings;
		target->rings = ring;
		target_tails_join(target, ring);
	}
	pthread_mutex_unlock(&target->mutex);
	if (result != FARLOG_OK)
		target_free_ring(target, ring);
	return result;
}

static int check_grant(const struct target_ring *ring, const struct farlog_grant *grant, struct farlog_error *error)
{
	static const uint8_t zeros[FARLOG_TOKEN_LEN];
	uint64_t epoch_min = region_load_word(ring->region, LAYOUT_FENCE_OFF);

	if (grant->role != FARLOG_GRANT_WRITER && grant->role != FARLOG_GRANT_DRAIN && grant->role != FARLOG_GRANT_READER)
		return error_set(error, FARLOG_INVALID, 0, "grant on ring \"%s\": role %u is not one of those in farlog.h",
			ring->name, grant->role);
	if (memcmp(grant->token, zeros, sizeof(zeros)) == 0)
		return error_set(
			error, FARLOG_INVALID, 0, "grant on ring \"%s\": its token is all zero; expected a random one", ring->name);
	if (grant->role == FARLOG_GRANT_WRITER && (grant->epoch == 0 || grant->epoch < epoch_min))
		return error_set(error, FARLOG_FENCED, 0, "grant on ring \"%s\": epoch %u is below the ring's floor %lu",
			ring->name, grant->epoch, epoch_min > 0 ? epoch_min : 1);
	return FARLOG_OK;
}

/* is_remembered -- a grant below the floor opens nothing, but it is kept as drop_grants keeps those that were fenced
 * here: after a restart this is how the target learns whom it fenced before. */
static bool is_remembered(const struct target_ring *ring, uint32_t epoch)
{
	return epoch != 0 && epoch + (uint64_t)GRANTS_KEPT >= region_load_word(ring->region, LAYOUT_FENCE_OFF);
}

/* drop_grants -- of writers far below an epoch. The others stay, so that a writer which comes back from a long sleep is
 * told that it has been fenced, and by which epoch. */
static void drop_grants(struct target_ring *ring, uint32_t epoch_min)
{
	struct target_grant **link = &ring->grants;

	while (*link != NULL) {
		struct target_grant *grant = *link;
		bool is_used = false;

		for (const struct target_conn *conn = ring->conns; conn != NULL; conn = conn->next)
			is_used |= conn->grant == grant;
		if (is_used || grant->grant.role != FARLOG_GRANT_WRITER ||
			grant->grant.epoch + (uint64_t)GRANTS_KEPT >= epoch_min) {
			link = &grant->next;
			continue;
		}
		*link = grant->next;
		free_grant(grant);
	}
}

static int check_networks(
	const char *name, const struct farlog_network *networks, size_t count, struct farlog_error *error)
{
	if (count > FARLOG_NETWORKS_MAX)
		return error_set(error, FARLOG_INVALID, 0, "grant on ring \"%s\": %zu networks; expected at most %u", name,
			count, FARLOG_NETWORKS_MAX);
	for (size_t i = 0; i < count; i++)
		if (networks[i].bit_count > 128)
			return error_set(error, FARLOG_INVALID, 0,
				"grant on ring \"%s\": a network of %u bits; expected at most 128", name, networks[i].bit_count);
	return FARLOG_OK;
}

static struct target_grant *make_grant(
	const struct farlog_grant *asked, const struct farlog_network *networks, size_t count)
{
	struct target_grant *grant = calloc(1, sizeof(*grant));

	if (grant == NULL)
		return NULL;
	grant->grant = *asked;
	if (count == 0)
		return grant;
	grant->network_count = count;
	grant->networks = calloc(count, sizeof(*networks));
	if (grant->networks == NULL) {
		free(grant);
		return NULL;
	}
	memcpy(grant->networks, networks, count * sizeof(*networks));
	return grant;
}

/* find_grant -- the same one, told before. */
static struct target_grant *find_grant(struct target_ring *ring, const struct farlog_grant *asked)
{
	struct target_grant *grant = ring->grants;

	while (grant != NULL &&
		(memcmp(grant->grant.token, asked->token, sizeof(asked->token)) != 0 || grant->grant.role != asked->role ||
			grant->grant.epoch != asked->epoch))
		grant = grant->next;
	return grant;
}

static void swap_networks(struct target_grant *a, struct target_grant *b)
{
	struct farlog_network *networks = a->networks;
	size_t count = a->network_count;

	a->networks = b->networks;
	a->network_count = b->network_count;
	b->networks = networks;
	b->network_count = count;
}

int farlog_target_grant(
	farlog_target *target, const char *name, const struct farlog_grant *asked, struct farlog_error *error)
{
	return farlog_target_grant_from(target, name, asked, NULL, 0, error);
}

int farlog_target_grant_from(farlog_target *target, const char *name, const struct farlog_grant *asked,
	const struct farlog_network *networks, size_t count, struct farlog_error *error)
{
	struct target_grant *grant;
	struct target_grant *known;
	struct target_ring *ring;
	int result = check_networks(name, networks, count, error);

	if (result != FARLOG_OK)
		return result;
	grant = make_grant(asked, networks, count);
	if (grant == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "grant on ring \"%s\": out of memory", name);
	pthread_mutex_lock(&target->mutex);
	ring = find_ring(target, name);
	result = ring == NULL ? no_ring(name, error) : check_grant(ring, asked, error);
	if (ring != NULL && (known = find_grant(ring, asked)) != NULL) {
		known->grant.expires_ns = asked->expires_ns;
		swap_networks(known, grant); /* whoever is in by it stays */
	} else if (result == FARLOG_OK || (result == FARLOG_FENCED && is_remembered(ring, asked->epoch))) {
		if (asked->role == FARLOG_GRANT_WRITER)
			drop_grants(ring, asked->epoch);
		grant->next = ring->grants;
		ring->grants = grant;
		grant = NULL;
	}
	pthread_mutex_unlock(&target->mutex);
	free_grant(grant);
	return result;
}

/* next_writer -- a writer below the epoch that is not torn down yet. */
static struct target_conn *next_writer(struct target_ring *ring, uint32_t epoch_min)
{
	struct target_conn *conn = ring->conns;

	while (conn != NULL && (conn->is_gone || conn->role != REGION_ROLE_WRITER || conn->grant->grant.epoch >= epoch_min))
		conn = conn->next;
	return conn;
}

/* hold_ring -- a ring of a directory must not be removed, and its space become another's, while its fence word is being
 * stored. */
static int hold_ring(struct target_ring *ring, struct farlog_error *error)
{
	int result = ring->region->directory != NULL ? region_lock(ring->region, REGION_ROLE_FORMAT) : FARLOG_OK;

	if (result == FARLOG_OK)
		return FARLOG_OK;
	if (result != FARLOG_HELD && result != FARLOG_NOT_FOUND)
		return region_set_lock_error(ring->region, result, ring->name, error);
	return error_set(error, result, 0, "fence ring \"%s\": %s", ring->name,
		result == FARLOG_NOT_FOUND ? "it has been removed from its region" :
									 "another process is fencing or formatting it; try again");
}

/* persist_floor -- after the last write of the old epoch: what it stored is made durable and counted as the log's end,
 * then the floor. */
static int persist_floor(
	struct target_ring *ring, uint32_t epoch_min, uint64_t *tail_lsn, uint32_t *tail_epoch, struct farlog_error *error)
{
	struct region *region = ring->region;
	struct superblock superblock;
	struct head_slot head;
	struct recover_scan scan;
	int result = region->ops->data.flush(region, 0, region->contract.size_bytes);

	if (result != FARLOG_OK)
		return region_set_error(region, result, "fence: make durable what was written to ring", ring->name, error);
	result = superblock_load(region, ring->name, &superblock, error);
	if (result != FARLOG_OK)
		return result;
	if (memcmp(superblock.ring_uuid, ring->ring_uuid, sizeof(ring->ring_uuid)) != 0)
		return error_set(error, FARLOG_NOT_A_RING, 0,
			"fence ring \"%s\": it has been formatted anew since it was served; serve it again", ring->name);
	if (!head_load(region, &superblock, &head))
		return error_set(error, FARLOG_CORRUPT, 0, "fence ring \"%s\": both head slots fail their check", ring->name);
	head_raise_to_floor(&superblock, &head);
	if (recover_scan(region, &superblock, &head, &scan) != FARLOG_OK)
		return region_set_error(region, FARLOG_IO, "fence: read undrained records of ring", ring->name, error);
	*tail_lsn = scan.tail.lsn;
	*tail_epoch = superblock.writer_epoch;
	if (epoch_min > region_load_word(region, LAYOUT_FENCE_OFF))
		region->ops->data.store_word(region, LAYOUT_FENCE_OFF, epoch_min);
	if (region->ops->data.flush(region, LAYOUT_FENCE_OFF, LAYOUT_LINE_LEN) != FARLOG_OK)
		return region_set_error(region, FARLOG_IO, "fence: persist the epoch floor of ring", ring->name, error);
	return FARLOG_OK;
}

/* end_writers -- none of them is let in again, and those that are in are torn down. The mutex is held. */
static int end_writers(struct farlog_target *target, const char *name, uint32_t epoch_min, struct target_ring **ring,
	struct farlog_error *error)
{
	struct farlog_error failure = {0};
	struct target_conn *conn;
	int result;

	for (;;) {
		*ring = find_ring(target, name);
		if (*ring == NULL)
			return no_ring(name, error);
		if ((*ring)->epoch_admitted_min < epoch_min)
			(*ring)->epoch_admitted_min = epoch_min;
		conn = next_writer(*ring, epoch_min);
		if (conn == NULL)
			return FARLOG_OK;
		if (conn->pin_count > 0) {
			pthread_cond_wait(&target->moved, &target->mutex);
			continue;
		}
		(*ring)->counters.fenced_count += !conn->is_revoked;
		result = target_shut_out(target, conn, &failure);
		if (result != FARLOG_OK)
			return error_set(error, result, 0,
				"fence ring \"%s\": not confirmed, a writer below epoch %u may still write: %s", name, epoch_min,
				failure.text);
	}
}

int farlog_target_fence(
	farlog_target *target, const char *name, uint32_t epoch_min, uint64_t *tail_lsn, struct farlog_error *error)
{
	struct target_ring *ring;
	uint64_t tail = UINT64_MAX;
	uint32_t tail_epoch = 0;
	int result;

	pthread_mutex_lock(&target->mutex);
	result = end_writers(target, name, epoch_min, &ring, error);
	if (result == FARLOG_OK) {
		ring->pin_count++; /* farlog_target_forget waits */
		pthread_mutex_unlock(&target->mutex);
		/* nothing that was asked for by those who are out goes on behind the confirmation */
		target_worker_settle(ring);
		result = hold_ring(ring, error);
		if (result == FARLOG_OK) {
			result = persist_floor(ring, epoch_min, &tail, &tail_epoch, error);
			if (ring->region->directory != NULL)
				ring->region->ops->fence.unlock(ring->region, REGION_ROLE_FORMAT);
		}
		pthread_mutex_lock(&target->mutex);
		ring->pin_count--;
		pthread_cond_broadcast(&target->moved);
		if (result == FARLOG_OK) {
			ring->tail_lsn = tail;
			ring->tail_epoch_min = epoch_min;
			ring->tail_epoch = tail_epoch;
		}
	}
	pthread_mutex_unlock(&target->mutex);
	if (result == FARLOG_OK && tail_lsn != NULL)
		*tail_lsn = tail;
	return result;
}

/* empty_ring -- OK: no connection is left. Else one of them could not be revoked; never while the target closes. The
 * mutex is held. */
static int empty_ring(struct farlog_target *target, struct target_ring *ring, struct farlog_error *error)
{
	while (ring->conns != NULL || ring->pin_count > 0) {
		struct target_conn *conn = ring->conns;
		int result = FARLOG_OK;

		while (conn != NULL && (conn->is_gone || conn->pin_count > 0))
			conn = conn->next;
		if (conn != NULL)
			result = target_shut_out(target, conn, error);
		else
			pthread_cond_wait(&target->moved, &target->mutex);
		if (result != FARLOG_OK)
			return result;
	}
	return FARLOG_OK;
}

/* take_off -- unlink a ring, so that nobody finds it, and empty it. A ring that somebody may still write to stays. */
static int take_off(struct farlog_target *target, struct target_ring *ring, struct farlog_error *error)
{
	struct target_ring **link = &target->rings;
	int result;

	while (*link != ring)
		link = &(*link)->next;
	*link = ring->next;
	target_tails_part(target, ring);
	result = empty_ring(target, ring, error);
	if (result != FARLOG_OK) {
		ring->next = target->rings;
		target->rings = ring;
		target_tails_join(target, ring);
	}
	return result;
}

int farlog_target_forget(farlog_target *target, const char *name, struct farlog_error *error)
{
	struct farlog_error failure = {0};
	struct target_ring *ring;
	int result = FARLOG_OK;

	pthread_mutex_lock(&target->mutex);
	ring = find_ring(target, name);
	if (ring != NULL)
		result = take_off(target, ring, &failure);
	pthread_mutex_unlock(&target->mutex);
	if (ring == NULL)
		return no_ring(name, error);
	if (result != FARLOG_OK)
		return error_set(
			error, result, 0, "forget ring \"%s\": a client may still write to it: %s", name, failure.text);
	target_free_ring(target, ring);
	return FARLOG_OK;
}

/* copy_counters -- some of them are the transport's thread's, or a worker's, which do not hold the mutex. */
static void copy_counters(const struct target_ring *ring, struct farlog_target_counters *counters)
{
	const uint64_t *from = (const uint64_t *)&ring->counters;

	for (size_t i = 0; i < sizeof(*counters) / sizeof(*from); i++)
		((uint64_t *)counters)[i] = atomic_load_relaxed(&from[i]);
}

int farlog_target_counters_read(farlog_target *target, const char *name, struct farlog_target_counters *counters)
{
	struct target_ring *ring;

	pthread_mutex_lock(&target->mutex);
	ring = find_ring(target, name);
	if (ring != NULL) {
		copy_counters(ring, counters);
		for (const struct target_conn *conn = ring->conns; conn != NULL; conn = conn->next) {
			counters->writer_count += conn->role == REGION_ROLE_WRITER && !conn->is_revoked;
			counters->drain_count += conn->role == REGION_ROLE_DRAIN && !conn->is_revoked;
		}
	}
	pthread_mutex_unlock(&target->mutex);
	return ring != NULL ? FARLOG_OK : FARLOG_NOT_FOUND;
}

void farlog_target_close(farlog_target *target)
{
	if (target == NULL)
		return;
	pthread_mutex_lock(&target->mutex);
	atomic_store_release(&target->is_closing, 1);
	while (target->rings != NULL) {
		struct target_ring *ring = target->rings;

		may_fail(take_off(target, ring, NULL)); /* while the target closes, target_shut_out says OK */
		pthread_mutex_unlock(&target->mutex);
		target_free_ring(target, ring);
		pthread_mutex_lock(&target->mutex);
	}
	while (target->pages != NULL) {
		struct target_ring *page = target->pages;

		target->pages = page->next;
		may_fail(empty_ring(target, page, NULL)); /* as above */
		pthread_mutex_unlock(&target->mutex);
		target_free_ring(target, page);
		pthread_mutex_lock(&target->mutex);
	}
	pthread_mutex_unlock(&target->mutex);
	if (target->listener != NULL)
		target->transport->close(target->listener);
	attest_free(target->attested);
	pthread_cond_destroy(&target->moved);
	pthread_mutex_destroy(&target->mutex);
	free(target);
}
