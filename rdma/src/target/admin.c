/* target/admin.c -- opening a target, the rings that it serves, what they count, and the end of it. */
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
#include "mem/mem.h"
#include "region/superblock.h"
#include "target/attest.h"
#include "target/target.h"

static const struct target_transport *const transports[] = {&target_verbs, &target_ofi};

struct target_ring *target_find_ring(struct farlog_target *target, const char *name)
{
	struct target_ring *ring = target->rings;

	while (ring != NULL && strcmp(ring->name, name) != 0)
		ring = ring->next;
	return ring;
}

int target_set_no_ring(const char *name, struct farlog_error *error)
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

void target_free_ring(struct farlog_target *target, struct target_ring *ring)
{
	target_worker_stop(ring);
	if (ring->key != NULL)
		target->transport->withdraw(target->listener, ring, ring->key);
	if (ring->region != NULL)
		ring->region->ops->close(ring->region);
	while (ring->grants != NULL) {
		struct target_grant *next = ring->grants->next;

		target_free_grant(ring->grants);
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
	return region_mem_serve(ring->region, region_uri, &ring->served_bytes, error);
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
	if (result == FARLOG_OK && target_find_ring(target, name) != NULL)
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

/* disconnect_all -- OK: no connection is left. Else one of them could not be revoked; never while the target closes.
 * The mutex is held. */
static int disconnect_all(struct farlog_target *target, struct target_ring *ring, struct farlog_error *error)
{
	while (ring->conns != NULL || ring->pin_count > 0) {
		struct target_conn *conn = ring->conns;
		int result = FARLOG_OK;

		while (conn != NULL && (conn->is_gone || conn->pin_count > 0))
			conn = conn->next;
		if (conn != NULL)
			result = target_disconnect(target, conn, error);
		else
			pthread_cond_wait(&target->moved, &target->mutex);
		if (result != FARLOG_OK)
			return result;
	}
	return FARLOG_OK;
}

/* unlink_ring -- unlink a ring, so that nobody finds it, and empty it. A ring that somebody may still write to
 * stays. */
static int unlink_ring(struct farlog_target *target, struct target_ring *ring, struct farlog_error *error)
{
	struct target_ring **link = &target->rings;
	int result;

	while (*link != ring)
		link = &(*link)->next;
	*link = ring->next;
	target_tails_part(target, ring);
	result = disconnect_all(target, ring, error);
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
	ring = target_find_ring(target, name);
	if (ring != NULL)
		result = unlink_ring(target, ring, &failure);
	pthread_mutex_unlock(&target->mutex);
	if (ring == NULL)
		return target_set_no_ring(name, error);
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
	ring = target_find_ring(target, name);
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

		may_fail(unlink_ring(target, ring, NULL)); /* while the target closes, target_disconnect says OK */
		pthread_mutex_unlock(&target->mutex);
		target_free_ring(target, ring);
		pthread_mutex_lock(&target->mutex);
	}
	while (target->pages != NULL) {
		struct target_ring *page = target->pages;

		target->pages = page->next;
		may_fail(disconnect_all(target, page, NULL)); /* as above */
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
