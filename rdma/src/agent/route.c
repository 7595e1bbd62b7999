/* agent/route.c -- opens a route by its name: the host agent names its legs, and each is opened by its stream's
 * name. */
#include "farlog/route_name.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/grant.h"
#include "base/clock.h"
#include "base/err.h"

#define ASK_TIMEOUT_NS 15000000000u
#define SPILL_VARIABLE "FARLOG_SPILL_DIR"
#define PATH_LEN_MAX 1024u
#define RANGE_COUNT_MAX (AGENT_VALUE_LEN_MAX / 2)

/* What a leg's configuration points to. */
struct named_leg {
	char stream[FARLOG_STREAM_NAME_LEN]; /* also the leg's name in the route */
	char uri[FARLOG_STREAM_NAME_LEN + AGENT_SOCKET_LEN_MAX + 64];
	char spill_uri[PATH_LEN_MAX + 8];
	struct farlog_class_range ranges[RANGE_COUNT_MAX];
};

struct named_route {
	struct stream_uri place;
	struct farlog_route_leg legs[FARLOG_ROUTE_LEG_COUNT_MAX];
	struct named_leg names[FARLOG_ROUTE_LEG_COUNT_MAX];
};

/* parse_ranges -- "all", or "1-3,9-9". */
static bool parse_ranges(const char *text, struct named_leg *name, struct farlog_route_leg *leg)
{
	unsigned first, last;
	int used;

	if (strcmp(text, "all") == 0)
		return true;
	leg->classes = name->ranges;
	for (; sscanf(text, "%5u-%5u%n", &first, &last, &used) == 2 && first <= last && last <= UINT16_MAX &&
		leg->class_count < RANGE_COUNT_MAX;
		text += used + 1) {
		name->ranges[leg->class_count++] = (struct farlog_class_range){(uint16_t)first, (uint16_t)last};
		if (text[used] != ',')
			return text[used] == '\0';
	}
	return false;
}

static bool parse_policy(const char *policy_name, uint32_t *policy)
{
	static const char *const names[] = {"fail", "spill", "drop"};

	for (*policy = 0; *policy < 3; ++*policy)
		if (strcmp(policy_name, names[*policy]) == 0)
			return true;
	return false;
}

/* parse_leg -- "desk7/orders required spill 3 1000000 67108864 0 all": level, deadline, buffer, lowest criticality,
 * classes. */
static bool parse_leg(const char *line, struct named_leg *name, struct farlog_route_leg *leg)
{
	char requirement[12], policy[8];
	uint64_t deadline_ns, buffer_bytes;
	int at = 0;

	if (sscanf(line, "%63s %11s %7s %u %lu %lu %u %n", name->stream, requirement, policy, &leg->config.level,
			&deadline_ns, &buffer_bytes, &leg->criticality_min, &at) != 7 ||
		at == 0)
		return false;
	leg->config.deadline_ns = deadline_ns;
	leg->buffer_bytes = buffer_bytes;
	leg->name = name->stream;
	leg->is_required = strcmp(requirement, "required") == 0;
	return (leg->is_required || strcmp(requirement, "optional") == 0) && parse_policy(policy, &leg->policy) &&
		parse_ranges(line + at, name, leg);
}

/* escape -- percent-encode for the name of a file. False: it is longer than `size`. */
static bool escape(const char *text, char *to, size_t size)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~$&+=:@";
	size_t len = 0;

	for (; *text != '\0' && len + 4 <= size; text++)
		len += (size_t)snprintf(
			to + len, size - len, strchr(plain, *text) != NULL ? "%c" : "%%%02X", (unsigned char)*text);
	return *text == '\0';
}

static int name_spill(
	const struct named_route *named, struct named_leg *name, const char *dir, struct farlog_error *error)
{
	char route[3 * FARLOG_STREAM_NAME_LEN + 4], stream[3 * FARLOG_STREAM_NAME_LEN + 4];

	if (dir == NULL || dir[0] == '\0')
		return error_set(error, FARLOG_INVALID, 0,
			"route \"%s\": leg \"%s\" spills: expected spill_dir, or " SPILL_VARIABLE
			", a directory on persistent media",
			named->place.stream, name->stream);
	if (mkdir(dir, 0700) != 0 && errno != EEXIST)
		return error_set(error, FARLOG_INVALID, errno, "route \"%s\": spill_dir \"%.200s\" cannot be made: %s",
			named->place.stream, dir, strerror(errno));
	if (!escape(named->place.stream, route, sizeof(route)) || !escape(name->stream, stream, sizeof(stream)) ||
		(size_t)snprintf(name->spill_uri, sizeof(name->spill_uri), "mem:%s/%s+%s.spill", dir, route, stream) >=
			sizeof(name->spill_uri))
		return error_set(error, FARLOG_INVALID, 0,
			"route \"%s\": spill_dir \"%.200s\" is too long: expected less than %u bytes", named->place.stream, dir,
			PATH_LEN_MAX / 2);
	return FARLOG_OK;
}

static void add_option(char *uri, size_t size, const char *name, const char *value)
{
	size_t len = strlen(uri);

	if (value[0] != '\0')
		snprintf(uri + len, size - len, "%c%s=%s", strchr(uri, '?') == NULL ? '?' : '&', name, value);
}

static void name_uri(const struct stream_uri *place, const char *stream, char *uri, size_t size)
{
	snprintf(uri, size, "farlog://%s", stream);
	add_option(uri, size, "agent", place->socket_path);
	add_option(uri, size, "transport", place->transport);
	add_option(uri, size, "takeover", place->is_takeover ? "yes" : "");
}

/* fill_legs -- by the agent's reply and the program's options. */
static int fill_legs(const char *uri, struct named_route *named, const struct agent_reply *reply,
	const struct farlog_route_options *options, uint32_t *count, struct farlog_error *error)
{
	const char *dir = options->spill_dir != NULL ? options->spill_dir : getenv(SPILL_VARIABLE);
	char line[AGENT_VALUE_LEN_MAX], field[16];
	int result = FARLOG_OK;

	for (*count = 0; *count < FARLOG_ROUTE_LEG_COUNT_MAX && result == FARLOG_OK; ++*count) {
		struct farlog_route_leg *leg = &named->legs[*count];
		struct named_leg *name = &named->names[*count];

		snprintf(field, sizeof(field), "leg-%u", *count);
		if (!agent_value(reply, field, line, sizeof(line)))
			break;
		if (!parse_leg(line, name, leg))
			return agent_reject_reply(uri, &named->place, error);
		name_uri(&named->place, leg->name, name->uri, sizeof(name->uri));
		leg->uri = name->uri;
		leg->config.writer_name = options->writer_name;
		leg->config.counters_dir = options->counters_dir;
		leg->config.wait = options->wait;
		if (leg->policy != FARLOG_ROUTE_SPILL)
			continue;
		result = name_spill(named, name, dir, error);
		leg->spill_uri = name->spill_uri;
	}
	return result == FARLOG_OK && *count == 0 ? agent_reject_reply(uri, &named->place, error) : result;
}

static int ask_legs(
	const char *uri, const struct stream_uri *place, struct agent_reply *reply, struct farlog_error *error)
{
	char what[256], request[FARLOG_STREAM_NAME_LEN + 64];

	snprintf(what, sizeof(what), "uri \"%.200s\"", uri);
	snprintf(request, sizeof(request), "farlog-agent 1 route\nroute %s\n", place->stream);
	return agent_call_until(
		agent_socket(place->socket_path), what, request, clock_after_ns(ASK_TIMEOUT_NS), -1, reply, error);
}

static int reject_uri(const char *uri, struct farlog_error *error)
{
	return error_set(error, FARLOG_INVALID, 0,
		"uri \"%s\" of a route: expected farlog://ROUTE[?agent=PATH&transport=mem|verbs|ofi]", uri);
}

int farlog_route_open_name(
	const char *uri, const struct farlog_route_options *options, farlog_route **route, struct farlog_error *error)
{
	static const struct farlog_route_options none;
	struct named_route *named;
	struct agent_reply reply;
	struct farlog_route_config config;
	int result;

	*route = NULL;
	if (!stream_uri_is(uri))
		return reject_uri(uri, error);
	named = calloc(1, sizeof(*named));
	if (named == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "uri \"%s\": out of memory", uri);
	result = stream_uri_parse(uri, &named->place, error);
	config = (struct farlog_route_config){.name = named->place.stream, .legs = named->legs};
	if (result == FARLOG_OK)
		result = ask_legs(uri, &named->place, &reply, error);
	if (result == FARLOG_OK)
		result = fill_legs(uri, named, &reply, options != NULL ? options : &none, &config.leg_count, error);
	if (result == FARLOG_OK)
		result = farlog_route_open(&config, route, error);
	free(named);
	return result;
}

int farlog_route_look_name(const char *uri, struct farlog_error *error)
{
	struct stream_uri place;
	struct agent_reply reply;
	char line[AGENT_VALUE_LEN_MAX];
	int result;

	if (!stream_uri_is(uri))
		return reject_uri(uri, error);
	result = stream_uri_parse(uri, &place, error);
	if (result == FARLOG_OK)
		result = ask_legs(uri, &place, &reply, error);
	if (result == FARLOG_OK && !agent_value(&reply, "leg-0", line, sizeof(line)))
		result = agent_reject_reply(uri, &place, error);
	return result;
}
