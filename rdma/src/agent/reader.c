/* agent/reader.c -- opens a stream for reading by its name, with a reader's grant of the host agent. */
#include "agent/agent.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "agent/grant.h"
#include "agent/renew.h"
#include "base/clock.h"
#include "base/err.h"
#include "log/reader.h"

/* is_transient -- may the opening succeed with another grant? A ring may have been replaced by another one, and a
 * target may not have received the grant yet. */
static bool is_transient(int result, bool is_remote)
{
	return result == FARLOG_NOT_A_RING ||
		(is_remote && (result == FARLOG_IO || result == FARLOG_NOT_FOUND || result == FARLOG_INVALID));
}

/* open_renewing -- a reader of another host's ring, which renews its grant. */
static int open_renewing(const char *uri, const struct stream_uri *place, const struct farlog_reader_config *config,
	const struct agent_rings *rings, farlog_reader **reader, struct farlog_error *error)
{
	struct region_renewal *renewal = agent_renewal_new(place, rings);
	int result;

	if (renewal == NULL)
		return error_set(error, FARLOG_NO_MEMORY, errno, "read \"%s\": out of memory or descriptors", uri);
	result = reader_open(rings->uri, config, renewal, reader, error);
	if (result == FARLOG_OK)
		(*reader)->renewal = renewal;
	else
		renewal->free(renewal);
	return result;
}

static int open_granted(const char *uri, const struct stream_uri *place, const struct farlog_reader_config *asked,
	struct agent_rings *rings, farlog_reader **reader, struct farlog_error *error)
{
	struct farlog_reader_config config = *asked;
	struct agent_reply reply;
	int result = agent_ask(place, "reader", NULL, 0, -1, &reply, error);

	rings->is_remote = false;
	if (result == FARLOG_OK && !agent_parse_rings(&reply, rings))
		result = agent_reject_reply(uri, place, error);
	explicit_bzero(&reply.text, sizeof(reply.text));
	if (result != FARLOG_OK)
		return result;
	config.ring_uuid = rings->uuid;
	config.grant_token = rings->is_remote ? rings->token : NULL;
	if (rings->is_remote)
		return open_renewing(uri, place, &config, rings, reader, error);
	return farlog_reader_open(rings->uri, &config, reader, error);
}

int agent_reader_open(
	const char *uri, const struct farlog_reader_config *asked, farlog_reader **reader, struct farlog_error *error)
{
	const struct timespec pause = {.tv_nsec = AGENT_RETRY_PAUSE_NS};
	uint64_t until_ns = clock_after_ns(AGENT_RETRY_TIMEOUT_NS);
	struct stream_uri place;
	struct agent_rings rings;
	int result = stream_uri_parse(uri, &place, error);

	*reader = NULL;
	if (result == FARLOG_OK && asked->is_drain)
		return stream_uri_set_error(
			uri, "the control plane assigns drains; open it without is_drain, or run farlogd drain", error);
	if (result == FARLOG_OK && asked->grant_token != NULL)
		return stream_uri_set_error(uri, "a token was given; leave it NULL: the host agent gives it", error);
	while (result == FARLOG_OK) {
		result = open_granted(uri, &place, asked, &rings, reader, error);
		if (result == FARLOG_OK || !is_transient(result, rings.is_remote) || clock_monotonic_ns() >= until_ns)
			break;
		nanosleep(&pause, NULL);
		result = FARLOG_OK;
	}
	explicit_bzero(&rings, sizeof(rings));
	return result;
}
