/* mem/attest.c -- what the operator of a target says of a region, and what of it can be believed. See mem/attest.h.
 *
 * Whether a READ flushes is decided by the platform's settings of data direct I/O, which a process cannot see; whether memory outlives the power
 * is said by the kernel, or by nobody but its owner; whether a libfabric provider flushes before it says so, only by who has watched it. What the kernel or the kind of memory denies is refused, at the daemon's start and again when a ring is served. */
#include "mem/attest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "mem/mem.h"
#include "target/target.h"

#define COMMIT_PROVIDER_LEN sizeof(((struct uri *)0)->provider)

struct target_attested {
	struct target_attested *next;
	struct farlog_attestation attestation; /* its texts are those below */
	char by[FARLOG_ATTESTED_BY_LEN];
	char date[ATTEST_DATE_LEN];
	char commit_provider[COMMIT_PROVIDER_LEN];
	char path[URI_PATH_LEN_MAX];
};

static const char *const reasons[] = {[FARLOG_READ_FLUSH_NONE] = "", [FARLOG_READ_FLUSH_DDIO_OFF] = "ddio-off",
	[FARLOG_READ_FLUSH_EADR] = "eadr", [FARLOG_READ_FLUSH_BAR] = "bar"};

/* ---------------------------------------------------------------- what can be believed */

static bool is_date(const char *text)
{
	static const char form[] = "dddd-dd-dd";

	if (strlen(text) != strlen(form))
		return false;
	for (size_t i = 0; form[i] != '\0'; i++)
		if (form[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != form[i])
			return false;
	return true;
}

static bool is_name(const char *text, size_t size)
{
	size_t len = strlen(text);

	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7F)
			return false;
	return len > 0 && len < size;
}

static int check_signature(const char *region_uri, const struct farlog_attestation *attestation, struct farlog_error *error)
{
	if (attestation->by == NULL || !is_name(attestation->by, FARLOG_ATTESTED_BY_LEN))
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": by \"%s\": expected a name of 1 to %d bytes on one line", region_uri,
			attestation->by != NULL ? attestation->by : "", FARLOG_ATTESTED_BY_LEN - 1);
	if (attestation->date == NULL || !is_date(attestation->date))
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": date \"%s\": expected one like 2026-11-21", region_uri,
			attestation->date != NULL ? attestation->date : "");
	return FARLOG_OK;
}

static bool is_dax(const struct attest_found *found)
{
	return found->kind == FARLOG_REGION_DEVDAX || found->kind == FARLOG_REGION_FSDAX;
}

/* check_commit -- flush instructions are what a provider has: a page cache wants an msync, and a BAR a read. */
static int check_commit(const char *region_uri, const struct attest_found *found, const struct farlog_attestation *attestation,
	struct farlog_error *error)
{
	const char *provider = attestation->commit_provider;

	if (provider == NULL)
		return FARLOG_OK;
	if (!is_name(provider, COMMIT_PROVIDER_LEN))
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": commit_flushes \"%s\": expected a provider of libfabric, such as tcp", region_uri, provider);
	if (!is_dax(found))
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": commit_flushes \"%s\": it is found to be %s, and a provider has flush instructions only; "
			"expected a DAX device or a file on a DAX file system", region_uri, provider, found->kind_name);
	return FARLOG_OK;
}

static int check_kind(const char *region_uri, const struct attest_found *found, const struct farlog_attestation *attestation,
	struct farlog_error *error)
{
	bool is_bar = found->kind == FARLOG_REGION_BAR;

	if (!is_bar && !is_dax(found))
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": it is found to be %s, of which there is nothing to attest; expected a DAX device, "
			"a file on a DAX file system, or a PCI resource file", region_uri, found->kind_name);
	if (attestation->read_flush != FARLOG_READ_FLUSH_NONE && is_bar != (attestation->read_flush == FARLOG_READ_FLUSH_BAR))
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": how \"%s\": it is found to be %s; expected %s", region_uri,
			reasons[attestation->read_flush], found->kind_name, is_bar ? "bar" : "ddio-off or eadr");
	if (is_bar && attestation->domain != FARLOG_DOMAIN_UNKNOWN)
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": persistence_domain \"%s\": a BAR is in none of the host's; expected no such key",
			region_uri, region_domain_name((enum farlog_persistence_domain)attestation->domain));
	return FARLOG_OK;
}

static int check_domain(const char *region_uri, const struct attest_found *found, const struct farlog_attestation *attestation,
	struct farlog_error *error)
{
	enum farlog_persistence_domain attested = (enum farlog_persistence_domain)attestation->domain;
	enum farlog_persistence_domain domain = found->domain != FARLOG_DOMAIN_UNKNOWN ? found->domain : attested;

	if (attested != FARLOG_DOMAIN_UNKNOWN && attested != domain)
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": persistence_domain \"%s\": the kernel says %s; expected that, or no such key",
			region_uri, region_domain_name(attested), region_domain_name(domain));
	if ((attestation->read_flush == FARLOG_READ_FLUSH_NONE && attestation->commit_provider == NULL) || found->kind == FARLOG_REGION_BAR)
		return FARLOG_OK;
	if (domain == FARLOG_DOMAIN_UNKNOWN)
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": persistence_domain \"\": the kernel names none for this region, and %s needs "
			"one; expected memory_controller or cpu_cache", region_uri,
			attestation->read_flush != FARLOG_READ_FLUSH_NONE ? "read_flushes" : "commit_flushes");
	if (attestation->read_flush == FARLOG_READ_FLUSH_EADR && domain != FARLOG_DOMAIN_CPU_CACHE)
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": how \"eadr\": the persistence domain is %s%s; expected ddio-off, or memory in "
			"cpu_cache", region_uri, region_domain_name(domain), found->domain != FARLOG_DOMAIN_UNKNOWN ? ", says the kernel" : "");
	return FARLOG_OK;
}

int attest_check(const char *region_uri, const struct attest_found *found, const struct farlog_attestation *attestation, struct farlog_error *error)
{
	int result;

	if (attestation->read_flush > FARLOG_READ_FLUSH_BAR || attestation->domain > FARLOG_DOMAIN_CPU_CACHE)
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": read_flush %u and domain %u are not both among those in farlog.h", region_uri,
			attestation->read_flush, attestation->domain);
	if (attestation->read_flush == FARLOG_READ_FLUSH_NONE && attestation->domain == FARLOG_DOMAIN_UNKNOWN && attestation->commit_provider == NULL)
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": nothing is attested; expected read_flushes true, commit_flushes, or persistence_domain",
			region_uri);
	if (attestation->is_any_read > 1 || (attestation->is_any_read && attestation->read_flush == FARLOG_READ_FLUSH_NONE))
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": any_read_flushes \"%s\": expected read_flushes true beside it", region_uri,
			attestation->is_any_read == 1 ? "true" : "?");
	result = check_signature(region_uri, attestation, error);
	if (result == FARLOG_OK)
		result = check_commit(region_uri, found, attestation, error);
	if (result == FARLOG_OK)
		result = check_kind(region_uri, found, attestation, error);
	return result == FARLOG_OK ? check_domain(region_uri, found, attestation, error) : result;
}

int attest_by_uri(const char *region_uri, const char *word, const struct attest_found *found,
	struct farlog_attestation *said, struct farlog_error *error)
{
	bool is_bar = found->kind == FARLOG_REGION_BAR;

	*said = (struct farlog_attestation){0};
	if (strcmp(word, "bar") == 0)
		said->read_flush = FARLOG_READ_FLUSH_BAR;
	else
		said->domain = strcmp(word, "cpu_cache") == 0 ? FARLOG_DOMAIN_CPU_CACHE : FARLOG_DOMAIN_MEMORY_CONTROLLER;
	if (!is_bar && !is_dax(found))
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": attest=\"%s\": it is found to be %s, of which there is "
			"nothing to attest; expected no such option", region_uri, word, found->kind_name);
	if (is_bar != (said->read_flush == FARLOG_READ_FLUSH_BAR))
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": attest=\"%s\": it is found to be %s; expected %s",
			region_uri, word, found->kind_name, is_bar ? "bar" : "memory_controller or cpu_cache");
	if (is_dax(found) && found->domain != FARLOG_DOMAIN_UNKNOWN && found->domain != said->domain)
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": attest=\"%s\": the kernel says %s; expected that, "
			"or no such option", region_uri, word, region_domain_name(found->domain));
	return FARLOG_OK;
}

const char *attest_word(const struct farlog_attestation *attestation)
{
	if (attestation->read_flush == FARLOG_READ_FLUSH_BAR)
		return reasons[FARLOG_READ_FLUSH_BAR];
	return region_domain_name((enum farlog_persistence_domain)attestation->domain);
}

uint32_t attest_methods(const struct farlog_attestation *attestation)
{
	return attestation->read_flush != FARLOG_READ_FLUSH_NONE ? 1u << FARLOG_FLUSH_RDMA_READ : 0;
}

void attest_text(const struct farlog_attestation *attestation, bool is_commit, char text[ATTEST_TEXT_LEN])
{
	const char *reason = is_commit ? "ofi-commit" : reasons[attestation->read_flush];
	const char *domain = region_domain_name((enum farlog_persistence_domain)attestation->domain);

	snprintf(text, ATTEST_TEXT_LEN, "%s%s%s by attestation of %s, %s", reason, reason[0] != '\0' && domain[0] != '\0' ? ", " : "", domain,
		attestation->by, attestation->date);
}

uint8_t attest_level(const struct attest_found *found, const struct farlog_attestation *attestation, uint8_t level)
{
	bool is_known = true;

	if (is_dax(found))
		is_known = found->domain != FARLOG_DOMAIN_UNKNOWN || (attestation != NULL && attestation->domain != FARLOG_DOMAIN_UNKNOWN);
	else if (found->kind == FARLOG_REGION_BAR)
		is_known = attestation != NULL && attestation->read_flush == FARLOG_READ_FLUSH_BAR;
	return is_known || level < FARLOG_LEVEL_PERSISTENT ? level : FARLOG_LEVEL_VISIBLE;
}

/* ---------------------------------------------------------------- what a target keeps */

static struct attest_found look_at(const struct farlog_contract *contract, const char *path)
{
	return (struct attest_found){.kind = contract->kind, .kind_name = contract->kind_name, .domain = region_mem_domain(path)};
}

static const struct target_attested *find_attested(const struct farlog_target *target, const char *path)
{
	const struct target_attested *one = target->attested;

	while (one != NULL && strcmp(one->path, path) != 0)
		one = one->next;
	return one;
}

static int keep(struct farlog_target *target, const struct uri *uri, const struct farlog_attestation *attestation, struct farlog_error *error)
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

/* look_at_provider -- *is_ours: the attestation is of the provider by which this target listens. OK; INVALID: that one itself denies it. */
static int look_at_provider(const struct farlog_target *target, const char *region_uri, const struct farlog_attestation *attestation, bool *is_ours,
	struct farlog_error *error)
{
	bool is_committing = false;
	const char *provider = target->transport->provider == NULL ? "" : target->transport->provider(target->listener, &is_committing);

	*is_ours = attestation->commit_provider != NULL && strcmp(attestation->commit_provider, provider) == 0;
	if (!*is_ours || is_committing)
		return FARLOG_OK;
	return error_set(error, FARLOG_INVALID, 0, "region \"%s\": commit_flushes \"%s\": the provider does not say that it can (no FI_RMA_PMEM: libfabric found no flush "
		"instructions), and answers without a flush; expected no such key", region_uri, provider);
}

int farlog_target_attest(farlog_target *target, const char *region_uri, const struct farlog_attestation *attestation, struct farlog_error *error)
{
	struct farlog_contract contract;
	struct attest_found found;
	struct uri uri;
	bool is_ours;
	int result = uri_parse(region_uri, &uri, error);

	if (result != FARLOG_OK)
		return result;
	if (strcmp(uri.scheme, "mem") != 0)
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": expected mem:/path: a host attests its own memory", region_uri);
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
	ring->attested_methods = attest_methods(attestation);
	ring->is_any_read_flush = attestation->is_any_read;
	attest_text(attestation, ring->is_commit_flush, ring->attested);
	snprintf(uri->attest, sizeof(uri->attest), "%s", attest_word(attestation));
	return FARLOG_OK;
}

/* set_level -- other hosts are promised what a writer on this one would be by the same word: one probe for both. */
static int set_level(struct target_ring *ring, const char *region_uri, const struct uri *uri,
	struct farlog_error *error)
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

int target_apply_attestation(struct farlog_target *target, struct target_ring *ring, const char *region_uri, struct farlog_error *error)
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
