/* agent/place.c -- asking for a grant of a stream, and the rings that the agent answers with. */
#include "agent/place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

#define ASK_NS 15000000000u /* the control plane waits for a ring that is just being made, and for a fence */

bool agent_take_hex(const char *text, uint8_t *bytes, size_t count)
{
	if (strlen(text) != 2 * count || strspn(text, "0123456789abcdef") != 2 * count)
		return false;
	for (size_t i = 0; i < count; i++) {
		char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};

		bytes[i] = (uint8_t)strtoul(pair, NULL, 16);
	}
	return true;
}

/* ring_count -- of a URI; 0: it is none. */
static unsigned ring_count(const char *uri)
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

bool agent_take_rings(const struct agent_reply *reply, struct agent_rings *rings)
{
	char text[2 * FARLOG_TOKEN_LEN * MEMBER_COUNT_MAX + 1];
	unsigned count;
	bool is_taken;

	memset(rings, 0, sizeof(*rings));
	if (!agent_value(reply, "uri", rings->uri, sizeof(rings->uri)) || (count = ring_count(rings->uri)) == 0 ||
		!agent_value(reply, "uuid", text, sizeof(text)) || !agent_take_hex(text, rings->uuid, 16 * count))
		return false;
	rings->is_far = agent_value(reply, "token", text, sizeof(text));
	is_taken = !rings->is_far || agent_take_hex(text, rings->token, FARLOG_TOKEN_LEN * count);
	explicit_bzero(text, sizeof(text));
	return is_taken;
}

int agent_ask(const struct stream_uri *place, const char *verb, const char *name, uint32_t epoch_seen,
	struct agent_reply *reply, struct farlog_error *error)
{
	return agent_ask_until(place, verb, name, epoch_seen, -1, reply, error);
}

int agent_ask_until(const struct stream_uri *place, const char *verb, const char *name, uint32_t epoch_seen,
	int stop_fd, struct agent_reply *reply, struct farlog_error *error)
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

int agent_refuse_reply(const char *uri, const struct stream_uri *place, struct farlog_error *error)
{
	return error_set(error, FARLOG_IO, 0,
		"uri \"%s\": the host agent at \"%s\" answers with something that is no grant", uri,
		agent_socket(place->socket_path));
}
