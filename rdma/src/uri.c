/* uri.c -- taking URIs apart. */
#include "uri.h"

#include <stdlib.h>
#include <string.h>

#include "err.h"

static int parse_number(const char *text, const char *name, const char *value, uint64_t *number,
	struct farlog_error *error)
{
	char *end;

	*number = strtoull(value, &end, 10);
	if (*value < '0' || *value > '9' || *end != '\0')
		return error_set(error, FARLOG_INVALID, 0, "uri \"%s\": %s=\"%s\" is not a whole number", text, name, value);
	return FARLOG_OK;
}

static int parse_option(const char *text, char *option, struct uri *uri, struct farlog_error *error)
{
	char *value = strchr(option, '=');

	if (value == NULL)
		return error_set(error, FARLOG_INVALID, 0, "uri \"%s\": option \"%s\" has no value; expected name=value",
			text, option);
	*value++ = '\0';
	if (strcmp(option, "flush") == 0) {
		if (strlen(value) >= sizeof(uri->flush))
			return error_set(error, FARLOG_INVALID, 0, "uri \"%s\": unknown flush method \"%s\"", text, value);
		strcpy(uri->flush, value);
		return FARLOG_OK;
	}
	if (strcmp(option, "seed") == 0)
		return parse_number(text, option, value, &uri->seed, error);
	if (strcmp(option, "size") == 0)
		return parse_number(text, option, value, &uri->size_bytes, error);
	return error_set(error, FARLOG_INVALID, 0, "uri \"%s\": unknown option \"%s\"; expected flush", text, option);
}

int uri_parse(const char *text, struct uri *uri, struct farlog_error *error)
{
	const char *colon = strchr(text, ':');
	char rest[URI_PATH_LEN_MAX];
	char *option;
	char *state;

	memset(uri, 0, sizeof(*uri));
	if (colon == NULL || colon == text || (size_t)(colon - text) >= sizeof(uri->scheme))
		return error_set(error, FARLOG_INVALID, 0,
			"uri \"%s\" has no scheme; expected mem:/path, for example mem:/var/lib/farlog/orders.ring", text);
	if (strlen(colon + 1) >= sizeof(rest))
		return error_set(error, FARLOG_INVALID, 0, "uri is longer than %d bytes", URI_PATH_LEN_MAX);
	memcpy(uri->scheme, text, (size_t)(colon - text));
	strcpy(rest, colon + 1);
	option = strchr(rest, '?');
	if (option != NULL)
		*option++ = '\0';
	strcpy(uri->path, rest);
	if (uri->path[0] == '\0')
		return error_set(error, FARLOG_INVALID, 0, "uri \"%s\" has no path after \"%s:\"", text, uri->scheme);
	if (option == NULL)
		return FARLOG_OK;
	for (option = strtok_r(option, "&", &state); option != NULL; option = strtok_r(NULL, "&", &state)) {
		int result = parse_option(text, option, uri, error);

		if (result != FARLOG_OK)
			return result;
	}
	return FARLOG_OK;
}
