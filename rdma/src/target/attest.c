/* target/attest.c -- the attestations that a target keeps, and what they add to the rings that it serves. See
 * target/attest.h. */
#include "target/attest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "mem/attest.h"
#include "mem/mem.h"
#include "target/target.h"

struct target_attested {
	struct target_attested *next;
	struct farlog_attestation attestation; /* its texts are those below */
	char by[FARLOG_ATTESTED_BY_LEN];
	char date[ATTEST_DATE_LEN];
	char commit_provider[ATTEST_PROVIDER_LEN];
	char path[URI_PATH_LEN_MAX];
};

static struct attest_found look_at(const struct farlog_contract *contract, const char *path)
{
	return (struct attest_found){
		.kind = contract->kind, .kind_name = contract->kind_name, .domain = region_mem_find_domain(path)};
}

static const struct target_attested *find_attested(const struct farlog_target *target, const char *path)
{
	const struct target_attested *one = target->attested;

	while (one != NULL && strcmp(one->path, path) != 0)
		one = one->next;
	return one;
}

static int keep(struct farlog_target *target, const struct uri *uri, const struct farlog_attestation *attestation,
	struct farlog_error *error)
{
	struct target_attested *one = calloc(1, sizeof(*one));

	if (one == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "attest region \"%s\": out of memory", uri->path);
	snprintf(one->by, sizeof(one->by), "%s", attestation->by);
	snprintf(one->date, sizeof(one->date), "%s", attestation->date);
	snprintf(one->path, sizeof(one->path), "%s", uri->path);
	one->attestation = *attestation;
	one->attestation.by = one->by;
	one->attestation.date = one->date;
	if (attestation->commit_provider != NULL) {
		snprintf(one->commit_provider, sizeof(one->commit_provider), "%s", attestation->commit_provider);
		one->attestation.commit_provider = one->commit_provider;
	}
	pthread_mutex_lock(&target->mutex);
	if (find_attested(target, uri->path) != NULL) {
		pthread_mutex_unlock(&target->mutex);
		free(one);
		return error_set(error, FARLOG_EXISTS, 0, "region \"%s\" is attested already", uri->path);
	}
	one->next = target->attested;
	target->attested = one;
	pthread_mutex_unlock(&target->mutex);
	return FARLOG_OK;
}

/* look_at_provider -- *is_ours: the attestation is of the provider by which this target listens. OK; INVALID: that one
 * itself denies it. */
static int look_at_provider(const struct farlog_target *target, const char *region_uri,
	const struct farlog_attestation *attestation, bool *is_ours, struct farlog_error *error)
{
	bool is_committing = false;
	const char *provider =
		target->transport->provider == NULL ? "" : target->transport->provider(target->listener, &is_committing);

	*is_ours = attestation->commit_provider != NULL && strcmp(attestation->commit_provider, provider) == 0;
	if (!*is_ours || is_committing)
		return FARLOG_OK;
	return error_set(error, FARLOG_INVALID, 0,
		"region \"%s\": commit_flushes \"%s\": the provider does not say that it can (no FI_RMA_PMEM: libfabric found "
		"no flush "
		"instructions), and answers without a flush; expected no such key",
		region_uri, provider);
}

int farlog_target_attest(farlog_target *target, const char *region_uri, const struct farlog_attestation *attestation,
	struct farlog_error *error)
{
	struct farlog_contract contract;
	struct attest_found found;
	struct uri uri;
	bool is_ours;
	int result = uri_parse(region_uri, &uri, error);

	if (result != FARLOG_OK)
		return result;
	if (strcmp(uri.scheme, "mem") != 0)
		return error_set(
			error, FARLOG_INVALID, 0, "region \"%s\": expected mem:/path: a host attests its own memory", region_uri);
	result = look_at_provider(target, region_uri, attestation, &is_ours, error);
	if (result == FARLOG_OK)
		result = region_mem_probe(region_uri, &uri, &contract, error);
	if (result != FARLOG_OK)
		return result;
	found = look_at(&contract, uri.path);
	result = attest_check(region_uri, &found, attestation, error);
	return result == FARLOG_OK ? keep(target, &uri, attestation, error) : result;
}

/* apply -- what one attestation adds to a ring, and to its region's URI. */
static int apply(struct farlog_target *target, struct target_ring *ring, const char *region_uri,
	const struct farlog_attestation *attestation, struct uri *uri, struct farlog_error *error)
{
	struct attest_found found = look_at(&ring->region->contract, uri->path);
	int result = attest_check(region_uri, &found, attestation, error);

	if (result == FARLOG_OK)
		result = look_at_provider(target, region_uri, attestation, &ring->is_commit_flush, error);
	if (result != FARLOG_OK)
		return result;
	ring->attested_methods = attest_flush_methods(attestation);
	ring->is_any_read_flush = attestation->is_any_read;
	attest_describe(attestation, ring->is_commit_flush, ring->attested);
	snprintf(uri->attest, sizeof(uri->attest), "%s", attest_uri_value(attestation));
	return FARLOG_OK;
}

/* set_level -- other hosts are promised what a writer on this one would be by the same word: one probe for both. */
static int set_level(
	struct target_ring *ring, const char *region_uri, const struct uri *uri, struct farlog_error *error)
{
	struct farlog_contract contract = ring->region->contract;
	struct attest_found found = look_at(&contract, uri->path);
	int result = FARLOG_OK;

	if (strcmp(uri->scheme, "mem") == 0)
		result = region_mem_probe(region_uri, uri, &contract, error);
	if (result != FARLOG_OK)
		return result;
	ring->level = (uint8_t)contract.level;
	if (uri->attest[0] == '\0' && attest_level(&found, NULL, FARLOG_LEVEL_PERSISTENT) < FARLOG_LEVEL_PERSISTENT)
		snprintf(ring->attested, sizeof(ring->attested), "nobody attests that it outlives the power");
	return FARLOG_OK;
}

int target_apply_attestation(
	struct farlog_target *target, struct target_ring *ring, const char *region_uri, struct farlog_error *error)
{
	const struct target_attested *one;
	struct uri uri;
	int result = uri_parse(region_uri, &uri, error);

	if (result != FARLOG_OK)
		return result;
	pthread_mutex_lock(&target->mutex);
	one = find_attested(target, uri.path); /* it stays until the target is closed */
	pthread_mutex_unlock(&target->mutex);
	if (one != NULL)
		result = apply(target, ring, region_uri, &one->attestation, &uri, error);
	return result == FARLOG_OK ? set_level(ring, region_uri, &uri, error) : result;
}

void attest_free(struct target_attested *list)
{
	while (list != NULL) {
		struct target_attested *next = list->next;

		free(list);
		list = next;
	}
}
