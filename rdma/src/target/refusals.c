/* target/refusals.c -- what a target refused last: who asked, for which ring, and why not. Its daemon writes it
 * down. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/atomics.h"
#include "target/target.h"

static void write_peer(const struct sockaddr *peer, char *text, size_t room)
{
	const struct sockaddr_in *in = (const void *)peer;
	const struct sockaddr_in6 *in6 = (const void *)peer;
	char host[INET6_ADDRSTRLEN] = "";

	if (peer != NULL && peer->sa_family == AF_INET && inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host)) != NULL)
		snprintf(text, room, "%s:%u", host, ntohs(in->sin_port));
	else if (peer != NULL && peer->sa_family == AF_INET6 &&
		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host)) != NULL)
		snprintf(text, room, "[%s]:%u", host, ntohs(in6->sin6_port));
	else
		snprintf(text, room, "unknown");
}

/* write_ring -- a client names a ring by the checksum of its name. */
static void write_ring(const struct farlog_target *target, const struct far_hello *hello, char *text, size_t room)
{
	const struct target_ring *ring = target->rings;

	if (hello == NULL || hello->magic != FAR_HELLO_MAGIC || hello->version != FAR_VERSION)
		return;
	while (ring != NULL && ring->hash != hello->ring_hash)
		ring = ring->next;
	if (ring != NULL)
		snprintf(text, room, "%s", ring->name);
	else
		snprintf(text, room, "not served here (name's CRC32C %08x)", hello->ring_hash);
}

static struct farlog_target_refusal *next_refusal(struct target_refusals *refusals)
{
	struct farlog_target_refusal *next = &refusals->last[refusals->count++ % FARLOG_TARGET_REFUSALS_KEPT];

	*next = (struct farlog_target_refusal){.sequence = refusals->count};
	return next;
}

void target_write_disconnected(
	struct farlog_target *target, const struct target_conn *conn, const char *ring, int result, const char *reason)
{
	struct farlog_target_refusal *last = next_refusal(&target->refusals);

	last->result = result;
	write_peer((const struct sockaddr *)&conn->peer, last->peer, sizeof(last->peer));
	snprintf(last->ring, sizeof(last->ring), "%s", ring);
	snprintf(last->text, sizeof(last->text), "%s", reason);
}

void target_write_refusal(struct farlog_target *target, const struct sockaddr *peer, const struct far_hello *hello,
	const struct far_refusal *refusal)
{
	struct target_refusals *refusals = &target->refusals;
	struct farlog_target_refusal *last;
	struct target_ring *ring;
	bool is_unauthenticated = hello == NULL || hello->magic != FAR_HELLO_MAGIC || hello->version != FAR_VERSION;

	pthread_mutex_lock(&target->mutex);
	is_unauthenticated = is_unauthenticated || target_find_grant(target, hello->token, &ring) == NULL;
	last = next_refusal(refusals);
	refusals->unauthenticated_count += is_unauthenticated;
	last->result = refusal->result;
	last->is_unauthenticated = is_unauthenticated;
	write_peer(peer, last->peer, sizeof(last->peer));
	write_ring(target, hello, last->ring, sizeof(last->ring));
	snprintf(last->text, sizeof(last->text), "%.*s", (int)sizeof(refusal->text), refusal->text);
	pthread_mutex_unlock(&target->mutex);
}

size_t farlog_target_refusals_read(farlog_target *target, uint64_t after, struct farlog_target_refusal *refusals,
	size_t room, uint64_t *unauthenticated_count)
{
	const struct target_refusals *kept = &target->refusals;
	size_t count = 0;

	pthread_mutex_lock(&target->mutex);
	if (after + FARLOG_TARGET_REFUSALS_KEPT < kept->count)
		after = kept->count - FARLOG_TARGET_REFUSALS_KEPT;
	for (; after < kept->count && count < room; after++)
		refusals[count++] = kept->last[after % FARLOG_TARGET_REFUSALS_KEPT];
	*unauthenticated_count = kept->unauthenticated_count;
	pthread_mutex_unlock(&target->mutex);
	return count;
}

void farlog_target_unauthenticated_read(farlog_target *target, struct farlog_target_unauthenticated *counts)
{
	counts->open_count = atomic_load_relaxed(&target->unauthenticated.open_count);
	for (unsigned i = 0; i < FARLOG_UNAUTHENTICATED_REASON_COUNT; i++)
		counts->closed_count[i] = atomic_load_relaxed(&target->unauthenticated.closed_count[i]);
}
