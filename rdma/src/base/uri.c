/* base/uri.c -- taking URIs apart. */
#include "base/uri.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static const char *const poll_names[] = {"none", "io", "sq", NULL};
static const char *const command_names[] = {"kernel", "nvme", NULL};
static const char *const attest_names[] = {"memory_controller", "cpu_cache", "bar", NULL};

static int parse_number(
	const char *text, const char *name, const char *value, uint64_t *number, struct farlog_error *error)
{
	char *end;

	*number = strtoull(value, &end, 10);
	if (*value < '0' || *value > '9' || *end != '\0')
		return error_set(error, FARLOG_INVALID, 0, "uri \"%s\": %s=\"%s\" is not a whole number", text, name, value);
	return FARLOG_OK;
}

static int copy_text(const char *text, const char *name, const char *start, size_t len, char *dst, size_t size,
	struct farlog_error *error)
{
	if (len >= size)
		return error_set(error, FARLOG_INVALID, 0, "uri \"%s\": %s of %zu characters; expected at most %zu", text, name,
			len, size - 1);
	memcpy(dst, start, len);
	dst[len] = '\0';
	return FARLOG_OK;
}

static int no_address(const char *text, const struct uri *uri, struct farlog_error *error)
{
	bool is_ofi = strcmp(uri->scheme, "ofi") == 0;

	return error_set(error, FARLOG_INVALID, 0,
		"uri \"%s\": expected %s://host:port/ring, for example %s://10.0.0.7:7471/desk7.orders", text,
		is_ofi ? "ofi:provider" : uri->scheme, is_ofi ? "ofi:tcp" : uri->scheme);
}

static int parse_port(const char *text, struct uri *uri, const char *start, size_t len, struct farlog_error *error)
{
	int result = copy_text(text, "port", start, len, uri->port, sizeof(uri->port), error);
	char *end;

	if (result != FARLOG_OK)
		return result;
	if (strtoul(uri->port, &end, 10) > 65535 || *uri->port < '0' || *uri->port > '9' || *end != '\0')
		return error_set(
			error, FARLOG_INVALID, 0, "uri \"%s\": port \"%s\" is not a number from 0 to 65535", text, uri->port);
	return FARLOG_OK;
}

/* parse_address -- "[provider]://host:port[/ring]". */
static int parse_address(const char *text, struct uri *uri, struct farlog_error *error)
{
	const char *slashes = strstr(uri->path, "//");
	bool is_ofi = strcmp(uri->scheme, "ofi") == 0;
	size_t prefix_len = slashes != NULL ? (size_t)(slashes - uri->path) : 0;
	const char *host = slashes != NULL ? slashes + 2 : "";
	const char *host_end = *host == '[' ? strchr(host, ']') : host + strcspn(host, ":/");
	const char *port = host_end == NULL ? "" : *host == '[' ? host_end + 1 : host_end;
	size_t port_len = *port == ':' ? strcspn(port + 1, "/") : 0;
	const char *ring = port + 1 + port_len;
	int result = FARLOG_OK;

	if (slashes == NULL || host_end == NULL || host_end == host || port_len == 0)
		return no_address(text, uri, error);
	if (is_ofi ? prefix_len < 2 || uri->path[prefix_len - 1] != ':' : prefix_len != 0)
		return no_address(text, uri, error);
	if (is_ofi)
		result = copy_text(text, "provider", uri->path, prefix_len - 1, uri->provider, sizeof(uri->provider), error);
	host += *host == '[';
	if (result == FARLOG_OK)
		result = copy_text(text, "host", host, (size_t)(host_end - host), uri->host, sizeof(uri->host), error);
	if (result == FARLOG_OK)
		result = parse_port(text, uri, port + 1, port_len, error);
	if (result == FARLOG_OK && *ring == '/')
		result = copy_text(text, "ring name", ring + 1, strlen(ring + 1), uri->ring, sizeof(uri->ring), error);
	return result;
}

size_t uri_from(const struct uri *uri, struct sockaddr_storage *address)
{
	struct sockaddr_in *four = (struct sockaddr_in *)address;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;

	memset(address, 0, sizeof(*address));
	if (inet_pton(AF_INET, uri->from, &four->sin_addr) == 1) {
		four->sin_family = AF_INET;
		return sizeof(*four);
	}
	if (inet_pton(AF_INET6, uri->from, &six->sin6_addr) == 1) {
		six->sin6_family = AF_INET6;
		return sizeof(*six);
	}
	return 0;
}

/* parse_from -- of a ring, not of what a target listens at. */
static int parse_from(const char *text, const char *value, struct uri *uri, struct farlog_error *error)
{
	struct sockaddr_storage address;

	if (uri_is_remote(uri) && uri->ring[0] != '\0' && strlen(value) < sizeof(uri->from))
		strcpy(uri->from, value);
	if (uri_from(uri, &address) == 0)
		return error_set(error, FARLOG_INVALID, 0,
			"uri \"%s\": from=\"%s\"; expected an address of this host such as 10.0.1.7 or fd00::7, of a far ring",
			text, value);
	return FARLOG_OK;
}

/* parse_tos -- 0 to 255, decimal or 0x.., as an IP header has it: the DSCP is its upper six bits. */
static int parse_tos(const char *text, const char *value, struct uri *uri, struct farlog_error *error)
{
	bool is_hex = value[0] == '0' && (value[1] == 'x' || value[1] == 'X');
	const char *digits = is_hex ? value + 2 : value;
	unsigned long number;
	char *end;

	if (strcmp(uri->scheme, "verbs") != 0)
		return error_set(
			error, FARLOG_INVALID, 0, "uri \"%s\": tos=\"%s\": a traffic class is for verbs:", text, value);
	number = strtoul(digits, &end, is_hex ? 16 : 10);
	if (strspn(digits, is_hex ? "0123456789abcdefABCDEF" : "0123456789") == 0 || *end != '\0' || number > 255)
		return error_set(
			error, FARLOG_INVALID, 0, "uri \"%s\": tos=\"%s\"; expected 0 to 255, or 0x00 to 0xff", text, value);
	uri->tos = (uint16_t)(number + 1);
	return FARLOG_OK;
}

/* parse_flush -- of a far ring the name is checked here, before anybody is asked; of a local one where the processor is
 * known. */
static int parse_flush(const char *text, const char *value, struct uri *uri, struct farlog_error *error)
{
	static const char *const far_names[] = {
		"auto", "rdma-flush", "rdma-read", "target-cpu", "ofi-commit", "ofi-delivery"};
	bool is_known = !uri_is_remote(uri) && strlen(value) < sizeof(uri->flush);

	for (size_t i = 0; i < sizeof(far_names) / sizeof(far_names[0]) && uri_is_remote(uri); i++)
		is_known |= strcmp(value, far_names[i]) == 0;
	if (!is_known)
		return error_set(error, FARLOG_INVALID, 0, "uri \"%s\": unknown flush method \"%s\"%s", text, value,
			uri_is_remote(uri) ? "; expected auto, rdma-flush, rdma-read, target-cpu, ofi-commit or ofi-delivery" : "");
	strcpy(uri->flush, value);
	return FARLOG_OK;
}

/* parse_test_delay -- "10ms", or "10ms:RING". For tests and benchmarks: a member that is slow on purpose. */
static int parse_test_delay(const char *text, const char *value, struct uri *uri, struct farlog_error *error)
{
	char *end;
	unsigned long number = strtoul(value, &end, 10);
	bool is_number = end != value && *value != '-' && *value != '+';
	uint64_t unit_ns = strncmp(end, "us", 2) == 0 ? 1000 : strncmp(end, "ms", 2) == 0 ? 1000000 : 0;

	if (!uri_is_remote(uri) || uri->ring[0] != '\0' || !is_number || number == 0 || number > 10000000 || unit_ns == 0 ||
		(end[2] != '\0' && end[2] != ':'))
		return error_set(error, FARLOG_INVALID, 0,
			"uri \"%s\": test-flush-delay=\"%s\"; expected such as 10ms or 500us, of a target's own address, and :RING "
			"behind it for one ring",
			text, value);
	uri->test_flush_delay_ns = number * unit_ns;
	return end[2] == ':' ?
		copy_text(text, "ring name", end + 3, strlen(end + 3), uri->test_ring, sizeof(uri->test_ring), error) :
		FARLOG_OK;
}

/* parse_choice -- one of a few names, for this scheme alone. */
static int parse_choice(const char *text, const char *scheme, const char *option, const char *value,
	const struct uri *uri, const char *const names[], char *chosen, struct farlog_error *error)
{
	if (strcmp(uri->scheme, scheme) != 0)
		return error_set(error, FARLOG_INVALID, 0, "uri \"%s\": %s=\"%s\" is for %s:", text, option, value, scheme);
	for (size_t i = 0; names[i] != NULL; i++)
		if (strcmp(value, names[i]) == 0) {
			strcpy(chosen, value);
			return FARLOG_OK;
		}
	return error_set(error, FARLOG_INVALID, 0, "uri \"%s\": %s=\"%s\"; expected %s%s%s%s%s", text, option, value,
		names[0], names[2] != NULL ? ", " : " or ", names[1], names[2] != NULL ? " or " : "",
		names[2] != NULL ? names[2] : "");
}

static int parse_option(const char *text, char *option, struct uri *uri, struct farlog_error *error)
{
	char *value = strchr(option, '=');

	if (value == NULL)
		return error_set(
			error, FARLOG_INVALID, 0, "uri \"%s\": option \"%s\" has no value; expected name=value", text, option);
	*value++ = '\0';
	if (strcmp(option, "flush") == 0)
		return parse_flush(text, value, uri, error);
	if (strcmp(option, "ring") == 0) {
		if (uri_is_remote(uri) || *value == '\0')
			return error_set(error, FARLOG_INVALID, 0, "uri \"%s\": %s", text,
				uri_is_remote(uri) ? "ring= is for mem:; a far ring is named behind the port" : "ring= names no ring");
		return copy_text(text, "ring name", value, strlen(value), uri->ring, sizeof(uri->ring), error);
	}
	if (strcmp(option, "wait") == 0) {
		if (strcmp(value, "spin") != 0 && strcmp(value, "block") != 0)
			return error_set(error, FARLOG_INVALID, 0, "uri \"%s\": wait=\"%s\"; expected spin or block", text, value);
		strcpy(uri->wait, value);
		return FARLOG_OK;
	}
	if (strcmp(option, "test-flush-delay") == 0)
		return parse_test_delay(text, value, uri, error);
	if (strcmp(option, "poll") == 0)
		return parse_choice(text, "nvme", option, value, uri, poll_names, uri->poll, error);
	if (strcmp(option, "commands") == 0)
		return parse_choice(text, "nvme", option, value, uri, command_names, uri->commands, error);
	if (strcmp(option, "attest") == 0)
		return parse_choice(text, "mem", option, value, uri, attest_names, uri->attest, error);
	if (strcmp(option, "former") == 0) {
		if (strcmp(value, "gone") != 0 || (strcmp(uri->scheme, "nvme") != 0 && strcmp(uri->scheme, "block-fault") != 0))
			return error_set(error, FARLOG_INVALID, 0,
				"uri \"%s\": former=\"%s\"; expected former=gone, of a ring on nvme: whose last writer is out for sure",
				text, value);
		strcpy(uri->former, value);
		return FARLOG_OK;
	}
	if (strcmp(option, "from") == 0)
		return parse_from(text, value, uri, error);
	if (strcmp(option, "tos") == 0)
		return parse_tos(text, value, uri, error);
	if (strcmp(option, "seed") == 0)
		return parse_number(text, option, value, &uri->seed, error);
	if (strcmp(option, "size") == 0)
		return parse_number(text, option, value, &uri->size_bytes, error);
	return error_set(error, FARLOG_INVALID, 0,
		"uri \"%s\": unknown option \"%s\"; expected attest, commands, flush, former, from, poll, ring, size, tos or "
		"wait",
		text, option);
}

bool uri_is_remote(const struct uri *uri)
{
	return strcmp(uri->scheme, "verbs") == 0 || strcmp(uri->scheme, "ofi") == 0;
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
	if (uri_is_remote(uri)) {
		int result = parse_address(text, uri, error);

		if (result != FARLOG_OK)
			return result;
	}
	if (option == NULL)
		return FARLOG_OK;
	for (option = strtok_r(option, "&", &state); option != NULL; option = strtok_r(NULL, "&", &state)) {
		int result = parse_option(text, option, uri, error);

		if (result != FARLOG_OK)
			return result;
	}
	return FARLOG_OK;
}
