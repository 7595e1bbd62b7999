/* region.c -- opening regions by scheme. */
#include "region.h"

#include <string.h>

#include "err.h"
#include "region_fault.h"
#include "region_mem.h"
#include "uri.h"

static int unknown_scheme(const char *text, const struct uri *uri, struct farlog_error *error)
{
	return error_set(error, FARLOG_INVALID, 0, "uri \"%s\": unknown scheme \"%s\"; expected mem:/path", text, uri->scheme);
}

int region_open(const char *text, const struct region_ask *ask, struct region **region, struct farlog_error *error)
{
	struct uri uri;
	int result = uri_parse(text, &uri, error);

	if (result != FARLOG_OK)
		return result;
	if (strcmp(uri.scheme, "mem") == 0)
		return region_mem_open(text, &uri, ask, region, error);
#ifdef FARLOG_FAULT
	if (strcmp(uri.scheme, "fault") == 0)
		return region_fault_open(text, &uri, ask, region, error);
#endif
	return unknown_scheme(text, &uri, error);
}

int farlog_region_probe(const char *text, struct farlog_contract *contract, struct farlog_error *error)
{
	struct uri uri;
	int result = uri_parse(text, &uri, error);

	if (result != FARLOG_OK)
		return result;
	if (strcmp(uri.scheme, "mem") == 0)
		return region_mem_probe(text, &uri, contract, error);
	return unknown_scheme(text, &uri, error);
}

int region_persist_wait(struct region *region, const struct region_span *spans, unsigned span_count)
{
	uint64_t done;
	int result = region->ops->persist(region, spans, span_count, ++region->tag);

	while (result == FARLOG_OK) {
		result = region->ops->poll(region, &done);
		if (result != FARLOG_OK || done == region->tag)
			break;
		if (region->ops->wait != NULL)
			region->ops->wait(region, UINT64_MAX);
		else
			cpu_relax();
	}
	return result;
}
