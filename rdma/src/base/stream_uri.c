/* base/stream_uri.c -- taking "farlog://desk7/orders?agent=PATH" apart. */
#include "base/stream_uri.h"

#include <string.h>

#include "base/err.h"

#define SCHEME "farlog://"

bool stream_uri_is(const char *uri)
{
	return strncmp(uri, SCHEME, strlen(SCHEME)) == 0;
}

int stream_uri_set_error(const char *uri, const char *why, struct farlog_error *error)
{
	return error_set(error, FARLOG_INVALID, 0,
		"uri \"%s\": %s; expected farlog://STREAM[?agent=PATH&transport=mem|verbs|ofi&takeover=yes]", uri, why);
}

static bool copy_text(const char *from, size_t len, char *to, size_t size)
{
	if (len == 0 || len >= size)
		return false;
	memcpy(to, from, len);
	to[len] = '\0';
	return true;
}

static int parse_option(
	const char *uri, const char *option, size_t len, struct stream_uri *place, struct farlog_error *error)
{
	static const char agent[] = "agent=", transport[] = "transport=", takeover[] = "takeover=yes";
	char *to = place->transport;
	size_t size = sizeof(place->transport), name_len = sizeof(transport) - 1;

	if (len == sizeof(takeover) - 1 && memcmp(option, takeover, len) == 0) {
		place->is_takeover = true;
		return FARLOG_OK;
	}
	if (len >= sizeof(agent) - 1 && memcmp(option, agent, sizeof(agent) - 1) == 0) {
		to = place->socket_path;
		size = sizeof(place->socket_path);
		name_len = sizeof(agent) - 1;
	} else if (len < name_len || memcmp(option, transport, name_len) != 0) {
		return stream_uri_set_error(uri, "an unknown option", error);
	}
	return copy_text(option + name_len, len - name_len, to, size) ?
		FARLOG_OK :
		stream_uri_set_error(uri, "an option is empty or too long", error);
}

int stream_uri_parse(const char *uri, struct stream_uri *place, struct farlog_error *error)
{
	const char *name = uri + strlen(SCHEME);
	size_t name_len = strcspn(name, "?");
	const char *option = name + name_len;
	int result = FARLOG_OK;

	memset(place, 0, sizeof(*place));
	if (strpbrk(uri, "\n\r") != NULL || !copy_text(name, name_len, place->stream, sizeof(place->stream)))
		return stream_uri_set_error(uri, "the stream's name is missing or too long", error);
	while (result == FARLOG_OK && *option != '\0') {
		size_t len = strcspn(++option, "&");

		result = parse_option(uri, option, len, place, error);
		option += len;
	}
	return result;
}
