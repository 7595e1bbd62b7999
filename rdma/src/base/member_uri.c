/* base/member_uri.c -- taking the URI of a stream with several members apart. */
#include "base/member_uri.h"

#include <string.h>

#include "base/err.h"

static int set_uri_error(const char *text, const char *why, struct farlog_error *error)
{
	return error_set(error, FARLOG_INVALID, 0,
		"uri \"%.300s\": %s; expected members:K and 2 to %d URIs, separated by one space each, K of which an "
		"acknowledgement needs",
		text, why, MEMBER_COUNT_MAX);
}

bool member_uri_is(const char *text)
{
	return strncmp(text, MEMBER_SCHEME, strlen(MEMBER_SCHEME)) == 0;
}

static bool is_named_before(const struct member_uri *parsed, const char *uri)
{
	for (unsigned i = 0; i < parsed->count; i++)
		if (strcmp(parsed->uris[i], uri) == 0)
			return true;
	return false;
}

/* add_uri -- the next one, of len bytes. */
static int add_uri(const char *text, const char *uri, size_t len, struct member_uri *parsed, struct farlog_error *error)
{
	char *place = parsed->uris[parsed->count];

	if (parsed->count == MEMBER_COUNT_MAX)
		return set_uri_error(text, "too many members", error);
	if (len == 0 || len >= sizeof(parsed->uris[0]))
		return set_uri_error(text, len == 0 ? "two spaces, or one at the end" : "a member's URI is too long", error);
	memcpy(place, uri, len);
	place[len] = '\0';
	if (member_uri_is(place))
		return set_uri_error(text, "a member has members itself", error);
	if (is_named_before(parsed, place))
		return set_uri_error(text, "a member is named twice", error);
	parsed->count++;
	return FARLOG_OK;
}

int member_uri_parse(const char *text, struct member_uri *parsed, struct farlog_error *error)
{
	const char *rest = text + strlen(MEMBER_SCHEME);
	int result = FARLOG_OK;

	memset(parsed, 0, sizeof(*parsed));
	if (!member_uri_is(text) || rest[0] < '1' || rest[0] > '9' || rest[1] != ' ')
		return set_uri_error(text, "no number of members that are needed", error);
	parsed->needed = (unsigned)(rest[0] - '0');
	rest++;
	while (*rest == ' ' && result == FARLOG_OK) {
		size_t len = strcspn(++rest, " ");

		result = add_uri(text, rest, len, parsed, error);
		rest += len;
	}
	if (result != FARLOG_OK)
		return result;
	if (parsed->count < 2)
		return set_uri_error(text, "fewer than two members", error);
	return parsed->needed <= parsed->count ? FARLOG_OK :
											 set_uri_error(text, "more members are needed than there are", error);
}
