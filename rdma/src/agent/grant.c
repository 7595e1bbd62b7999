/* agent/grant.c -- see agent/grant.h. */
#include "agent/grant.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

#define ASK_NS 15000000000u /* the control plane may wait for a new ring, or for a fence */

bool agent_parse_hex(const char *text, uint8_t *bytes, size_t count)
{
	if (strlen(text) != 2 * count || strspn(text, "0123456789abcdef") != 2 * count)
		return false;
	for (size_t i = 0; i < count; i++) {
		char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};

		bytes[i] = (uint8_t)strtoul(pair, NULL, 16);
	}
	return true;
}

/* count_rings -- of a URI; 0: it is not a URI of rings. */
static unsigned count_rings(const char *uri)
{
	struct member_uri *parsed;
	unsigned count = 1;

	if (stream_uri_is(uri))
		return 0;
	if (!member_uri_is(uri))
		return count;
	parsed = malloc(sizeof(*parsed));
	count = parsed != NULL && member_uri_parse(uri, parsed, NULL) == FARLOG_OK ? parsed->count : 0;
	free(parsed);
	return count;
}

bool agent_parse_rings(const struct agent_reply *reply, struct agent_rings *rings)
{
	char text[2 * FARLOG_TOKEN_LEN * MEMBER_COUNT_MAX + 1];
	unsigned count;
	bool is_parsed;

	memset(rings, 0, sizeof(*rings));
	if (!agent_value(reply, "uri", rings->uri, sizeof(rings->uri)) || (count = count_rings(rings->uri)) == 0 ||
		!agent_value(reply, "uuid", text, sizeof(text)) || !agent_parse_hex(text, rings->uuid, 16 * count))
		return false;
	rings->is_remote = agent_value(reply, "token", text, sizeof(text));
	is_parsed = !rings->is_remote || agent_parse_hex(text, rings->token, FARLOG_TOKEN_LEN * count);
	explicit_bzero(text, sizeof(text));
	return is_parsed;
}

int agent_ask(const struct stream_uri *place, const char *verb, const char *name, uint32_t epoch_seen, int stop_fd,
	struct agent_reply *reply, struct farlog_error *error)
{
	char what[FARLOG_STREAM_NAME_LEN + 32];
	char request[512];
	int len;

	if (name == NULL)
		name = program_invocation_short_name;
	snprintf(what, sizeof(what), "stream \"%s\"", place->stream);
	len = snprintf(request, sizeof(request), "farlog-agent 1 %s\nstream %s\nname %.*s\n", verb, place->stream,
		(int)strcspn(name, "\n"), name);
	if (epoch_seen != 0)
		len += snprintf(request + len, sizeof(request) - len, "epoch-seen %u\n", epoch_seen);
	if (place->transport[0] != '\0')
		len += snprintf(request + len, sizeof(request) - len, "transport %s\n", place->transport);
	if (place->is_takeover && strcmp(verb, "writer") == 0)
		snprintf(request + len, sizeof(request) - len, "takeover yes\n");
	return agent_call_until(
		agent_socket(place->socket_path), what, request, clock_after_ns(ASK_NS), stop_fd, reply, error);
}

int agent_reject_reply(const char *uri, const struct stream_uri *place, struct farlog_error *error)
{
	return error_set(error, FARLOG_IO, 0,
		"uri \"%s\": the host agent at \"%s\" sent a reply that is not a grant; check that it is a farlogd host of "
		"this version",
		uri, agent_socket(place->socket_path));
}
