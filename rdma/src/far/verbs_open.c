/* far/verbs_open.c -- opening a client's link over verbs, before it is connected (far/verbs_connect.c), and closing
 * it. */
#include "far/verbs.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "wire/verbs_address.h"

static void verbs_close(struct far_link *far)
{
	struct verbs_link *link = verbs_link_of(far);

	verbs_link_disconnect(far);
	verbs_link_release(link);
	free(link);
}

#define LINK_OPS(wait_fds_op) \
	{.connect = verbs_link_connect, \
		.persist = verbs_link_persist, \
		.read = verbs_link_read, \
		.write = verbs_link_write, \
		.send = verbs_link_send, \
		.poll = verbs_link_poll, \
		.sleepers = wait_fds_op, \
		.disconnect = verbs_link_disconnect, \
		.close = verbs_close}

static const struct far_link_ops spinning_ops = LINK_OPS(NULL);
static const struct far_link_ops blocking_ops = LINK_OPS(verbs_link_wait_fds);

/* find_address -- once: what comes later has a deadline, and names are looked up without one. */
static int find_address(
	const char *text, const struct uri *uri, struct sockaddr_storage *address, struct farlog_error *error)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found;
	const struct addrinfo *picked;
	struct sockaddr_storage from;
	int failure;

	if (uri_from(uri, &from) != 0)
		hints.ai_family = from.ss_family;
	failure = getaddrinfo(uri->host, uri->port, &hints, &found);

	if (failure != 0)
		return error_set(error, FARLOG_NOT_FOUND, 0, "uri \"%s\": host \"%s\" is not known: %s", text, uri->host,
			gai_strerror(failure));
	picked = verbs_address_pick(found);
	memcpy(address, picked->ai_addr, picked->ai_addrlen);
	freeaddrinfo(found);
	return FARLOG_OK;
}

static int open_link(const char *text, const struct uri *uri, struct far_link **far, struct farlog_error *error)
{
	struct verbs_link *link = calloc(1, sizeof(*link));
	int result;

	if (link == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "open \"%s\": out of memory", text);
	snprintf(link->text, sizeof(link->text), "%s", text);
	link->is_blocking = strcmp(uri->wait, "block") == 0;
	link->tos = uri->tos;
	link->has_from = uri_from(uri, &link->from) != 0;
	link->link.ops = link->is_blocking ? &blocking_ops : &spinning_ops;
	result = lib_verbs_load(&link->lib, error);
	if (result == FARLOG_OK)
		result = find_address(text, uri, &link->address, error);
	if (result != FARLOG_OK) {
		free(link);
		return result;
	}
	*far = &link->link;
	return FARLOG_OK;
}

const struct far_transport far_verbs = {
	.scheme = "verbs",
	.methods = {FARLOG_FLUSH_RDMA_FLUSH, FARLOG_FLUSH_RDMA_READ, FARLOG_FLUSH_TARGET_CPU, FARLOG_FLUSH_NONE},
	.open = open_link,
};
