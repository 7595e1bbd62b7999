/* agent_writer.c -- opening a stream by its name: the host agent says where its ring is, and by which grant. */
#include "agent.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "err.h"
#include "member_uri.h"
#include "writer.h"

#define SCHEME "farlog://"
#define PATIENCE_NS 10000000000u /* as the opening of a far ring */
#define ASK_NS 15000000000u      /* the control plane waits for a ring that is just being made, and for a fence */
#define PAUSE_NS 100000000

/* What a URI asks for. */
struct place {
	char stream[FARLOG_STREAM_NAME_LEN];
	char socket_path[AGENT_SOCKET_LEN_MAX + 1];
	char transport[8];
};

/* What the agent grants. */
struct grant {
	char uri[AGENT_VALUE_LEN_MAX];
	uint8_t uuid[16 * MEMBER_COUNT_MAX]; /* one a ring, in the order of the URI */
	uint8_t token[FARLOG_TOKEN_LEN * MEMBER_COUNT_MAX];
	struct farlog_writer_config config;
};

bool agent_is_stream(const char *uri)
{
	return strncmp(uri, SCHEME, strlen(SCHEME)) == 0;
}

static int refuse_uri(const char *uri, const char *why, struct farlog_error *error)
{
	return error_set(error, FARLOG_INVALID, 0, "uri \"%s\": %s; expected farlog://STREAM[?agent=PATH&transport=mem|verbs|ofi]", uri, why);
}

static bool take(const char *from, size_t len, char *to, size_t room)
{
	if (len == 0 || len >= room)
		return false;
	memcpy(to, from, len);
	to[len] = '\0';
	return true;
}

static int parse_option(const char *uri, const char *option, size_t len, struct place *place, struct farlog_error *error)
{
	static const char agent[] = "agent=", transport[] = "transport=";
	char *to = place->transport;
	size_t room = sizeof(place->transport), name_len = sizeof(transport) - 1;

	if (len >= sizeof(agent) - 1 && memcmp(option, agent, sizeof(agent) - 1) == 0) {
		to = place->socket_path;
		room = sizeof(place->socket_path);
		name_len = sizeof(agent) - 1;
	} else if (len < name_len || memcmp(option, transport, name_len) != 0) {
		return refuse_uri(uri, "an unknown option", error);
	}
	return take(option + name_len, len - name_len, to, room) ? FARLOG_OK : refuse_uri(uri, "an option is empty or too long", error);
}

static int parse_place(const char *uri, struct place *place, struct farlog_error *error)
{
	const char *name = uri + strlen(SCHEME);
	size_t name_len = strcspn(name, "?");
	const char *option = name + name_len;
	int result = FARLOG_OK;

	memset(place, 0, sizeof(*place));
	if (strpbrk(uri, "\n\r") != NULL || !take(name, name_len, place->stream, sizeof(place->stream)))
		return refuse_uri(uri, "the stream's name is missing or too long", error);
	while (result == FARLOG_OK && *option != '\0') {
		size_t len = strcspn(++option, "&");

		result = parse_option(uri, option, len, place, error);
		option += len;
	}
	return result;
}

static bool parse_hex(const char *text, uint8_t *bytes, size_t count)
{
	if (strlen(text) != 2 * count || strspn(text, "0123456789abcdef") != 2 * count)
		return false;
	for (size_t i = 0; i < count; i++) {
		char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};

		bytes[i] = (uint8_t)strtoul(pair, NULL, 16);
	}
	return true;
}

static bool take_number(const struct agent_reply *reply, const char *word, uint64_t *number)
{
	char text[24];
	char *end;

	if (!agent_value(reply, word, text, sizeof(text)) || strspn(text, "0123456789") != strlen(text))
		return false;
	errno = 0;
	*number = strtoull(text, &end, 10);
	return errno == 0 && *end == '\0';
}

/* ring_count -- of a URI; 0: it is none. */
static unsigned ring_count(const char *uri)
{
	struct member_uri *parsed;
	unsigned count = 1;

	if (agent_is_stream(uri))
		return 0;
	if (!member_uri_is(uri))
		return count;
	parsed = malloc(sizeof(*parsed));
	count = parsed != NULL && member_uri_parse(uri, parsed, NULL) == FARLOG_OK ? parsed->count : 0;
	free(parsed);
	return count;
}

/* take_grant -- what was asked for goes before what the stream would have. False: this is no grant. */
static bool take_grant(const struct agent_reply *reply, const struct farlog_writer_config *asked, struct grant *grant)
{
	char text[2 * FARLOG_TOKEN_LEN * MEMBER_COUNT_MAX + 1];
	uint64_t epoch, level, policy, deadline_ns;
	unsigned count;

	memset(grant, 0, sizeof(*grant));
	grant->config = *asked;
	if (!agent_value(reply, "uri", grant->uri, sizeof(grant->uri)) || (count = ring_count(grant->uri)) == 0 || !take_number(reply, "epoch", &epoch) ||
		!take_number(reply, "level", &level) || !take_number(reply, "policy", &policy) || !take_number(reply, "deadline-ns", &deadline_ns) ||
		epoch == 0 || epoch > UINT32_MAX || !agent_value(reply, "uuid", text, sizeof(text)) || !parse_hex(text, grant->uuid, 16 * count))
		return false;
	grant->config.epoch = (uint32_t)epoch;
	grant->config.ring_uuid = grant->uuid;
	grant->config.level = asked->level != 0 ? asked->level : (uint32_t)level;
	grant->config.policy = asked->policy != 0 ? asked->policy : (uint32_t)policy;
	grant->config.deadline_ns = asked->deadline_ns != 0 ? asked->deadline_ns : deadline_ns;
	if (agent_value(reply, "token", text, sizeof(text))) {
		if (!parse_hex(text, grant->token, FARLOG_TOKEN_LEN * count))
			return false;
		grant->config.grant_token = grant->token;
	}
	return true;
}

static int ask(const char *uri, const struct place *place, const struct farlog_writer_config *asked, uint32_t epoch_seen, struct grant *grant,
	struct farlog_error *error)
{
	const char *path = agent_socket(place->socket_path);
	const char *name = asked->writer_name != NULL ? asked->writer_name : program_invocation_short_name;
	char what[FARLOG_STREAM_NAME_LEN + 32];
	char request[512];
	struct agent_reply reply;
	int len, result;

	snprintf(what, sizeof(what), "stream \"%s\"", place->stream);
	len = snprintf(request, sizeof(request), "farlog-agent 1 writer\nstream %s\nname %.*s\n", place->stream, (int)strcspn(name, "\n"), name);
	if (epoch_seen != 0)
		len += snprintf(request + len, sizeof(request) - len, "epoch-seen %u\n", epoch_seen);
	if (place->transport[0] != '\0')
		snprintf(request + len, sizeof(request) - len, "transport %s\n", place->transport);
	result = agent_call(path, what, request, clock_after_ns(ASK_NS), &reply, error);
	if (result == FARLOG_OK && !take_grant(&reply, asked, grant))
		result = error_set(error, FARLOG_IO, 0, "uri \"%s\": the host agent at \"%s\" answers with something that is no grant", uri, path);
	explicit_bzero(&reply.text, sizeof(reply.text));
	return result;
}

/* is_passing -- whether what went wrong may go right with another grant. A grant of a ring on another host is good for one opening, and its
 * target may not have heard of it yet. */
static bool is_passing(int result, bool is_far)
{
	return result == FARLOG_FENCED ||
		(is_far && (result == FARLOG_IO || result == FARLOG_NOT_FOUND || result == FARLOG_HELD || result == FARLOG_INVALID));
}

int agent_writer_open(const char *uri, const struct farlog_writer_config *asked, const struct writer_watch *watch, farlog_writer **writer,
	struct farlog_error *error)
{
	static const struct farlog_writer_config defaults;
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	uint64_t until_ns = clock_after_ns(PATIENCE_NS);
	uint32_t epoch_seen = 0;
	struct place place;
	struct grant grant;
	int result = parse_place(uri, &place, error);

	if (asked == NULL)
		asked = &defaults;
	*writer = NULL;
	if (result == FARLOG_OK && (asked->epoch != 0 || asked->grant_token != NULL))
		return refuse_uri(uri, "an epoch or a token was given, which are the agent's to give", error);
	while (result == FARLOG_OK) {
		struct farlog_ring_status seen;
		bool is_far;

		result = ask(uri, &place, asked, epoch_seen, &grant, error);
		if (result != FARLOG_OK)
			break;
		is_far = grant.config.grant_token != NULL;
		result = writer_open_ring(grant.uri, &grant.config, watch, writer, error);
		if (result == FARLOG_OK || !is_passing(result, is_far) || clock_monotonic_ns() >= until_ns)
			break;
		if (!is_far && farlog_ring_inspect(grant.uri, &seen, error) == FARLOG_OK)
			epoch_seen = seen.writer_epoch > seen.epoch_min ? seen.writer_epoch : seen.epoch_min;
		nanosleep(&pause, NULL);
		result = FARLOG_OK;
	}
	explicit_bzero(&grant, sizeof(grant));
	return result;
}
