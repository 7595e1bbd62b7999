/* open/prepare.c -- what of an opening can be done before there is a grant for it. See farlog/takeover.h. */
#include "farlog/takeover.h"

#include <string.h>

#include "base/member_uri.h"
#include "wire/lib_ofi.h"
#include "wire/lib_verbs.h"

static int prepare_one(const char *text, struct farlog_error *error)
{
	const struct lib_ofi *ofi;
	const struct lib_verbs *verbs;
	struct uri uri;
	int result = uri_parse(text, &uri, error);

	if (result == FARLOG_OK && strcmp(uri.scheme, "ofi") == 0)
		result = lib_ofi_load(&ofi, error);
	else if (result == FARLOG_OK && strcmp(uri.scheme, "verbs") == 0)
		result = lib_verbs_load(&verbs, error);
	return result;
}

int farlog_prepare(const char *text, struct farlog_error *error)
{
	struct member_uri members;
	int result;

	if (!member_uri_is(text))
		return prepare_one(text, error);
	result = member_uri_parse(text, &members, error);
	for (unsigned i = 0; result == FARLOG_OK && i < members.count; i++)
		result = prepare_one(members.uris[i], error);
	return result;
}
