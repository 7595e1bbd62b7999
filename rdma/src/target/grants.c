/* target/grants.c -- the grants by which clients are let into a ring. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "target/target.h"

#define GRANTS_KEPT 64u

void target_free_grant(struct target_grant *grant)
{
	if (grant == NULL)
		return;
	free(grant->superseded);
	free(grant->networks);
	free(grant);
}

static int check_grant(const struct target_ring *ring, const struct farlog_grant *grant, struct farlog_error *error)
{
	static const uint8_t zeros[FARLOG_TOKEN_LEN];
	uint64_t epoch_min = region_load_word(ring->region, LAYOUT_FENCE_OFF);

	if (region_has_lost_page(ring->region))
		return region_set_error(
			ring->region, FARLOG_IO, "grant: read the epoch that is required by ring", ring->name, error);
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
		target_free_grant(grant);
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
	ring = target_find_ring(target, name);
	result = ring == NULL ? target_set_no_ring(name, error) : check_grant(ring, asked, error);
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
	target_free_grant(grant);
	return result;
}
