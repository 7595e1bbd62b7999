/* region/region.c -- open regions by scheme; functions common to all kinds. */
#include "region/region.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/member_uri.h"
#include "base/uri.h"
#include "region/directory.h"
#include "region/kinds.h"

static int unknown_scheme(const char *text, const struct uri *uri, struct farlog_error *error)
{
	return error_set(error, FARLOG_INVALID, 0,
		"uri \"%s\": unknown scheme \"%s\"; expected mem:/path, nvme:/dev/..., members:K URI URI..., "
		"verbs://host:port/ring or ofi:provider://host:port/ring",
		text, uri->scheme);
}

const struct region_kind *region_extra_kinds;

/* find_in_kinds -- NULL: there is none. */
static const struct region_kind *find_in_kinds(const struct region_kind *kind, const char *scheme)
{
	while (kind != NULL && kind->scheme != NULL && strcmp(kind->scheme, scheme) != 0)
		kind++;
	return kind != NULL && kind->scheme != NULL ? kind : NULL;
}

static const struct region_kind *find_kind(const char *scheme)
{
	const struct region_kind *kind = find_in_kinds(region_kinds, scheme);

	return kind != NULL ? kind : find_in_kinds(region_extra_kinds, scheme);
}

static int open_by_scheme(const char *text, const struct uri *uri, const struct region_options *options,
	struct region **region, struct farlog_error *error)
{
	const struct region_kind *kind = find_kind(uri->scheme);

	return kind != NULL ? kind->open(text, uri, options, region, error) : unknown_scheme(text, uri, error);
}

int region_open(
	const char *text, const struct region_options *asked, struct region **region, struct farlog_error *error)
{
	const struct region_options *options = asked;
	struct region_options with_directory = *asked;
	struct uri uri;
	int result;

	if (member_uri_is(text)) /* analyzer: the table has them in every program */
		return find_kind("members")->open(text, NULL, options, region, error);
	result = uri_parse(text, &uri, error);
	if (result == FARLOG_OK && !uri_is_remote(&uri) && (uri.ring[0] != '\0' || options->is_whole)) {
		with_directory.has_directory = true;
		options = &with_directory;
	}
	if (result == FARLOG_OK)
		result = open_by_scheme(text, &uri, options, region, error);
	if (result != FARLOG_OK || uri.ring[0] == '\0' || uri_is_remote(&uri) || options->is_whole)
		return result;
	result = directory_open(*region, text, uri.ring, options->access != REGION_READ, error);
	if (result != FARLOG_OK) {
		(*region)->ops->close(*region);
		*region = NULL;
	}
	return result;
}

const char *region_kind_name(uint32_t kind)
{
	switch (kind) {
	case FARLOG_REGION_FILE:
		return "file";
	case FARLOG_REGION_TMPFS:
		return "tmpfs";
	case FARLOG_REGION_FSDAX:
		return "fsdax";
	case FARLOG_REGION_DEVDAX:
		return "devdax";
	case FARLOG_REGION_BAR:
		return "bar";
	case FARLOG_REGION_FAULT:
		return "fault";
	case FARLOG_REGION_MEMBERS:
		return "members";
	default:
		return "?";
	}
}

int region_lock(struct region *region, enum region_role role)
{
	int result = region->ops->fence.lock(region, role);
	int has;

	if (result != FARLOG_OK || region->directory == NULL)
		return result;
	/* Removing a ring needs its locks: while we hold one, its entry stays. */
	has = directory_contains_ring(region);
	if (has > 0)
		return FARLOG_OK;
	region->ops->fence.unlock(region, role);
	return has == 0 ? FARLOG_NOT_FOUND : has;
}

int region_set_error(
	const struct region *region, int result, const char *what, const char *uri, struct farlog_error *error)
{
	if (result == FARLOG_NO_MEMORY)
		return error_set(error, result, ENOMEM, "%s \"%s\"", what, uri);
	if (region_has_lost_page(region))
		return error_set(error, result, EIO,
			"%s \"%s\": a page of it cannot be read; check its disk or memory, and the kernel's log (dmesg)", what,
			uri);
	if (region->last_error == NULL)
		return error_set(error, result, errno, "%s \"%s\"", what, uri);
	return error_set(error, result, 0, "%s \"%s\": %s", what, uri,
		region->last_error[0] != '\0' ? region->last_error : "its target did not answer in time");
}

int region_set_lock_error(const struct region *region, int result, const char *uri, struct farlog_error *error)
{
	if (result == FARLOG_NOT_FOUND)
		return error_set(error, result, 0, "ring \"%s\" has just been removed from its region", uri);
	return region_set_error(region, result, "lock ring", uri, error);
}

int farlog_region_probe(const char *text, struct farlog_contract *contract, struct farlog_error *error)
{
	const struct region_kind *kind;
	struct uri uri;
	int result = uri_parse(text, &uri, error);

	if (result != FARLOG_OK)
		return result;
	kind = find_kind(uri.scheme);
	if (kind != NULL && kind->probe != NULL)
		return kind->probe(text, &uri, contract, error);
	if (uri_is_remote(&uri))
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"uri \"%s\": the contract of a far region comes with its grant; open the ring, or probe the region at its "
			"target",
			text);
	return unknown_scheme(text, &uri, error);
}

int region_persist_wait(struct region *region, const struct region_span *spans, unsigned span_count)
{
	int result = region->ops->data.persist(region, spans, span_count, ++region->tag);

	return result == FARLOG_OK ? region_wait_inflight(region) : result;
}

int region_wait_inflight(struct region *region)
{
	uint64_t now_ns;
	uint64_t until_ns = region->persist_timeout_ns != 0 ? clock_after_ns(region->persist_timeout_ns) : UINT64_MAX;
	int result = FARLOG_OK;

	while (result == FARLOG_OK) {
		result = region->ops->data.poll(region);
		if (result != FARLOG_OK || region_is_done(region, region->tag))
			break;
		if (region->is_write_fenced)
			return FARLOG_FENCED;
		now_ns = until_ns != UINT64_MAX ? clock_monotonic_ns() : 0;
		if (now_ns >= until_ns)
			return FARLOG_IO;
		region->ops->data.wait(region, until_ns != UINT64_MAX ? until_ns - now_ns : UINT64_MAX);
	}
	return result;
}
