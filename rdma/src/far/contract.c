/* far/contract.c -- what a far region gives: the target's word for it, and the flush method that this client takes. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "far/far.h"

#define DEADLINE_VERBS_NS 1000000u
#define DEADLINE_OFI_NS 20000000u
#define DEADLINE_MSYNC_NS 1000000000u

static const char *method_name(enum farlog_flush_method method)
{
	switch (method) {
	case FARLOG_FLUSH_RDMA_FLUSH:
		return "rdma-flush";
	case FARLOG_FLUSH_RDMA_READ:
		return "rdma-read";
	case FARLOG_FLUSH_TARGET_CPU:
		return "target-cpu";
	case FARLOG_FLUSH_OFI_COMMIT:
		return "ofi-commit";
	case FARLOG_FLUSH_OFI_DELIVERY:
		return "ofi-delivery";
	default:
		return "?";
	}
}

int far_parse_welcome(
	struct far_link *link, const char *text, const void *data, size_t len, int foreign, struct farlog_error *error)
{
	struct far_welcome *welcome = &link->welcome;

	if (len < sizeof(*welcome))
		return error_set(error, foreign, 0,
			"connect to \"%s\": what answers is no farlog target: %zu bytes of welcome; expected %zu", text, len,
			sizeof(*welcome));
	memcpy(welcome, data, sizeof(*welcome));
	welcome->probe[sizeof(welcome->probe) - 1] = '\0';
	if (welcome->magic != FAR_WELCOME_MAGIC)
		return error_set(
			error, foreign, 0, "connect to \"%s\": what answers is no farlog target: magic %08x", text, welcome->magic);
	if (welcome->version != FAR_VERSION)
		return error_set(error, FARLOG_UNSUPPORTED, 0, "connect to \"%s\": the target speaks version %u; expected %u",
			text, welcome->version, FAR_VERSION);
	if (welcome->size_bytes <= LAYOUT_DATA_OFF || welcome->size_bytes % LAYOUT_BLOCK_LEN != 0)
		return error_set(error, FARLOG_CORRUPT, 0, "connect to \"%s\": the target names a region of %lu bytes", text,
			welcome->size_bytes);
	if (welcome->level > FARLOG_LEVEL_PERSISTENT)
		return error_set(error, FARLOG_CORRUPT, 0,
			"connect to \"%s\": the target names level %u; expected at most %u, which is persistent", text,
			welcome->level, FARLOG_LEVEL_PERSISTENT);
	return FARLOG_OK;
}

/* remedy -- of a READ or a commit that nobody has said is a flush there. On other memory it is one without a word, or
 * cannot be one. */
static const char *remedy(const struct far_link *link, const struct uri *uri)
{
	bool is_dax = link->welcome.kind == FARLOG_REGION_DEVDAX || link->welcome.kind == FARLOG_REGION_FSDAX;

	if (is_dax && strcmp(uri->flush, method_name(FARLOG_FLUSH_OFI_COMMIT)) == 0)
		return "; the provider does not report whether its commit flushes: its operator can attest that "
			   "(farlogd target --attestation FILE, "
			   "docs/how-to/attest-media.md)";
	if (!is_dax || strcmp(uri->flush, method_name(FARLOG_FLUSH_RDMA_READ)) != 0)
		return "";
	return "; a READ flushes only where writes pass the caches by or the caches survive: its operator can attest that "
		   "(farlogd target "
		   "--attestation FILE, docs/how-to/attest-media.md)";
}

int far_choose_method(struct far_link *link, const struct far_transport *transport, const char *text,
	const struct uri *uri, struct farlog_error *error)
{
	uint32_t allowed = link->welcome.flush_methods;
	bool is_named = uri->flush[0] != '\0' && strcmp(uri->flush, "auto") != 0;
	char names[80] = "";

	for (unsigned i = 0; i < 4 && transport->methods[i] != FARLOG_FLUSH_NONE; i++) {
		enum farlog_flush_method method = transport->methods[i];

		if (!(allowed & 1u << method))
			continue;
		if (!is_named || strcmp(uri->flush, method_name(method)) == 0) {
			link->method = method;
			return FARLOG_OK;
		}
		snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", names[0] != '\0' ? ", " : "",
			method_name(method));
	}
	return error_set(error, FARLOG_LEVEL, 0,
		"uri \"%s\": flush \"%s\" does not give level %s on this target (%s); it offers: %s%s", text,
		is_named ? uri->flush : "auto", farlog_level_name(link->welcome.level), link->welcome.probe,
		names[0] != '\0' ? names : "none that this client can do", remedy(link, uri));
}

static uint64_t default_deadline_ns(const struct far_link *link, const struct far_transport *transport)
{
	if (link->welcome.kind == FARLOG_REGION_FILE)
		return DEADLINE_MSYNC_NS;
	return transport == &far_verbs ? DEADLINE_VERBS_NS : DEADLINE_OFI_NS;
}

void far_fill_contract(
	const struct far_link *link, const struct far_transport *transport, struct farlog_contract *contract)
{
	const struct far_welcome *welcome = &link->welcome;
	char before[80];
	char behind[40];
	int probe_len;

	*contract = (struct farlog_contract){.kind = welcome->kind,
		.flush_method = link->method,
		.level = welcome->level,
		.granularity = welcome->granularity,
		.atomic_unit = welcome->atomic_unit,
		.size_bytes = welcome->size_bytes,
		.deadline_default_ns = default_deadline_ns(link, transport)};
	snprintf(contract->kind_name, sizeof(contract->kind_name), "%s", region_kind_name(welcome->kind));
	snprintf(contract->flush_name, sizeof(contract->flush_name), "%s", method_name(link->method));
	snprintf(before, sizeof(before),
		link->path[0] != '\0' ? "%s (%s) at its target: " : "%s%s at its target: ", transport->scheme, link->path);
	snprintf(behind, sizeof(behind), "%s%s%.15s",
		link->method == FARLOG_FLUSH_RDMA_READ && welcome->flush_addr != 0 ? "; any READ flushes" : "",
		link->caveat != NULL ? "; " : "", link->caveat != NULL ? link->caveat : "");
	/* the target's own words are what may be cut */
	probe_len = (int)(sizeof(contract->probe) - 1 - strlen(before) - strlen(behind));
	snprintf(contract->probe, sizeof(contract->probe), "%s%.*s%s", before, probe_len, welcome->probe, behind);
}
