/* mem/attest.c -- see mem/attest.h.
 *
 * Three facts need an attestation. Whether a READ flushes depends on the platform's settings of data direct I/O,
 * which a process cannot read. Whether memory outlives the power: the kernel often does not state it. Whether a
 * libfabric provider flushes before it completes: only a measurement shows it. An attestation that contradicts the
 * kernel or the kind of memory is rejected, at the daemon's start and again when a ring is served. */
#include "mem/attest.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "mem/mem.h"

static const char *const reasons[] = {[FARLOG_READ_FLUSH_NONE] = "",
	[FARLOG_READ_FLUSH_DDIO_OFF] = "ddio-off",
	[FARLOG_READ_FLUSH_EADR] = "eadr",
	[FARLOG_READ_FLUSH_BAR] = "bar"};

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

static int check_signature(
	const char *region_uri, const struct farlog_attestation *attestation, struct farlog_error *error)
{
	if (attestation->by == NULL || !is_name(attestation->by, FARLOG_ATTESTED_BY_LEN))
		return error_set(error, FARLOG_INVALID, 0,
			"region \"%s\": by \"%s\": expected a name of 1 to %d bytes on one line", region_uri,
			attestation->by != NULL ? attestation->by : "", FARLOG_ATTESTED_BY_LEN - 1);
	if (attestation->date == NULL || !is_date(attestation->date))
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": date \"%s\": expected one like 2026-11-21",
			region_uri, attestation->date != NULL ? attestation->date : "");
	return FARLOG_OK;
}

static bool is_dax(const struct attest_found *found)
{
	return found->kind == FARLOG_REGION_DEVDAX || found->kind == FARLOG_REGION_FSDAX;
}

/* check_commit -- a provider has only flush instructions; a page cache needs msync, and a BAR a read. */
static int check_commit(const char *region_uri, const struct attest_found *found,
	const struct farlog_attestation *attestation, struct farlog_error *error)
{
	const char *provider = attestation->commit_provider;

	if (provider == NULL)
		return FARLOG_OK;
	if (!is_name(provider, ATTEST_PROVIDER_LEN))
		return error_set(error, FARLOG_INVALID, 0,
			"region \"%s\": commit_flushes \"%s\": expected a provider of libfabric, such as tcp", region_uri,
			provider);
	if (!is_dax(found))
		return error_set(error, FARLOG_INVALID, 0,
			"region \"%s\": commit_flushes \"%s\": it is found to be %s, and a provider has flush instructions only; "
			"expected a DAX device or a file on a DAX file system",
			region_uri, provider, found->kind_name);
	return FARLOG_OK;
}

static int check_kind(const char *region_uri, const struct attest_found *found,
	const struct farlog_attestation *attestation, struct farlog_error *error)
{
	bool is_bar = found->kind == FARLOG_REGION_BAR;

	if (!is_bar && !is_dax(found))
		return error_set(error, FARLOG_INVALID, 0,
			"region \"%s\": it is found to be %s, of which there is nothing to attest; expected a DAX device, "
			"a file on a DAX file system, or a PCI resource file",
			region_uri, found->kind_name);
	if (attestation->read_flush != FARLOG_READ_FLUSH_NONE &&
		is_bar != (attestation->read_flush == FARLOG_READ_FLUSH_BAR))
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": how \"%s\": it is found to be %s; expected %s",
			region_uri, reasons[attestation->read_flush], found->kind_name, is_bar ? "bar" : "ddio-off or eadr");
	if (is_bar && attestation->domain != FARLOG_DOMAIN_UNKNOWN)
		return error_set(error, FARLOG_INVALID, 0,
			"region \"%s\": persistence_domain \"%s\": a BAR is in none of the host's; expected no such key",
			region_uri, region_domain_name((enum farlog_persistence_domain)attestation->domain));
	return FARLOG_OK;
}

static int check_domain(const char *region_uri, const struct attest_found *found,
	const struct farlog_attestation *attestation, struct farlog_error *error)
{
	enum farlog_persistence_domain attested = (enum farlog_persistence_domain)attestation->domain;
	enum farlog_persistence_domain domain = found->domain != FARLOG_DOMAIN_UNKNOWN ? found->domain : attested;

	if (attested != FARLOG_DOMAIN_UNKNOWN && attested != domain)
		return error_set(error, FARLOG_INVALID, 0,
			"region \"%s\": persistence_domain \"%s\": the kernel says %s; expected that, or no such key", region_uri,
			region_domain_name(attested), region_domain_name(domain));
	if ((attestation->read_flush == FARLOG_READ_FLUSH_NONE && attestation->commit_provider == NULL) ||
		found->kind == FARLOG_REGION_BAR)
		return FARLOG_OK;
	if (domain == FARLOG_DOMAIN_UNKNOWN)
		return error_set(error, FARLOG_INVALID, 0,
			"region \"%s\": persistence_domain \"\": the kernel names none for this region, and %s needs "
			"one; expected memory_controller or cpu_cache",
			region_uri, attestation->read_flush != FARLOG_READ_FLUSH_NONE ? "read_flushes" : "commit_flushes");
	if (attestation->read_flush == FARLOG_READ_FLUSH_EADR && domain != FARLOG_DOMAIN_CPU_CACHE)
		return error_set(error, FARLOG_INVALID, 0,
			"region \"%s\": how \"eadr\": the persistence domain is %s%s; expected ddio-off, or memory in "
			"cpu_cache",
			region_uri, region_domain_name(domain), found->domain != FARLOG_DOMAIN_UNKNOWN ? ", says the kernel" : "");
	return FARLOG_OK;
}

int attest_check(const char *region_uri, const struct attest_found *found, const struct farlog_attestation *attestation,
	struct farlog_error *error)
{
	int result;

	if (attestation->read_flush > FARLOG_READ_FLUSH_BAR || attestation->domain > FARLOG_DOMAIN_CPU_CACHE)
		return error_set(error, FARLOG_INVALID, 0,
			"region \"%s\": read_flush %u and domain %u are not both among those in farlog.h", region_uri,
			attestation->read_flush, attestation->domain);
	if (attestation->read_flush == FARLOG_READ_FLUSH_NONE && attestation->domain == FARLOG_DOMAIN_UNKNOWN &&
		attestation->commit_provider == NULL)
		return error_set(error, FARLOG_INVALID, 0,
			"region \"%s\": nothing is attested; expected read_flushes true, commit_flushes, or persistence_domain",
			region_uri);
	if (attestation->is_any_read > 1 || (attestation->is_any_read && attestation->read_flush == FARLOG_READ_FLUSH_NONE))
		return error_set(error, FARLOG_INVALID, 0,
			"region \"%s\": any_read_flushes \"%s\": expected read_flushes true beside it", region_uri,
			attestation->is_any_read == 1 ? "true" : "?");
	result = check_signature(region_uri, attestation, error);
	if (result == FARLOG_OK)
		result = check_commit(region_uri, found, attestation, error);
	if (result == FARLOG_OK)
		result = check_kind(region_uri, found, attestation, error);
	return result == FARLOG_OK ? check_domain(region_uri, found, attestation, error) : result;
}

int attest_from_uri(const char *region_uri, const char *word, const struct attest_found *found,
	struct farlog_attestation *attestation, struct farlog_error *error)
{
	bool is_bar = found->kind == FARLOG_REGION_BAR;

	*attestation = (struct farlog_attestation){0};
	if (strcmp(word, "bar") == 0)
		attestation->read_flush = FARLOG_READ_FLUSH_BAR;
	else
		attestation->domain =
			strcmp(word, "cpu_cache") == 0 ? FARLOG_DOMAIN_CPU_CACHE : FARLOG_DOMAIN_MEMORY_CONTROLLER;
	if (!is_bar && !is_dax(found))
		return error_set(error, FARLOG_INVALID, 0,
			"region \"%s\": attest=\"%s\": it is found to be %s, of which there is "
			"nothing to attest; expected no such option",
			region_uri, word, found->kind_name);
	if (is_bar != (attestation->read_flush == FARLOG_READ_FLUSH_BAR))
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": attest=\"%s\": it is found to be %s; expected %s",
			region_uri, word, found->kind_name, is_bar ? "bar" : "memory_controller or cpu_cache");
	if (is_dax(found) && found->domain != FARLOG_DOMAIN_UNKNOWN && found->domain != attestation->domain)
		return error_set(error, FARLOG_INVALID, 0,
			"region \"%s\": attest=\"%s\": the kernel says %s; expected that, "
			"or no such option",
			region_uri, word, region_domain_name(found->domain));
	return FARLOG_OK;
}

const char *attest_uri_value(const struct farlog_attestation *attestation)
{
	if (attestation->read_flush == FARLOG_READ_FLUSH_BAR)
		return reasons[FARLOG_READ_FLUSH_BAR];
	return region_domain_name((enum farlog_persistence_domain)attestation->domain);
}

uint32_t attest_flush_methods(const struct farlog_attestation *attestation)
{
	return attestation->read_flush != FARLOG_READ_FLUSH_NONE ? 1u << FARLOG_FLUSH_RDMA_READ : 0;
}

void attest_describe(const struct farlog_attestation *attestation, bool is_commit, char text[ATTEST_TEXT_LEN])
{
	const char *reason = is_commit ? "ofi-commit" : reasons[attestation->read_flush];
	const char *domain = region_domain_name((enum farlog_persistence_domain)attestation->domain);

	snprintf(text, ATTEST_TEXT_LEN, "%s%s%s by attestation of %s, %s", reason,
		reason[0] != '\0' && domain[0] != '\0' ? ", " : "", domain, attestation->by, attestation->date);
}

uint8_t attest_level(const struct attest_found *found, const struct farlog_attestation *attestation, uint8_t level)
{
	bool is_known = true;

	if (is_dax(found))
		is_known = found->domain != FARLOG_DOMAIN_UNKNOWN ||
			(attestation != NULL && attestation->domain != FARLOG_DOMAIN_UNKNOWN);
	else if (found->kind == FARLOG_REGION_BAR)
		is_known = attestation != NULL && attestation->read_flush == FARLOG_READ_FLUSH_BAR;
	return is_known || level < FARLOG_LEVEL_PERSISTENT ? level : FARLOG_LEVEL_VISIBLE;
}
