/* agent/reader.c -- opening a stream for reading by its name: the host agent says where its rings are, and by which
 * reader's grant. */
#include "agent/agent.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "agent/place.h"
#include "agent/renew.h"
#include "base/clock.h"
#include "base/err.h"
#include "log/reader.h"

/* is_passing -- whether what went wrong may go right with another grant: a ring may have been put in the place of
 * another one, a target on another host may not have heard of the grant yet. */
static bool is_passing(int result, bool is_far)
{
	return result == FARLOG_NOT_A_RING ||
		(is_far && (result == FARLOG_IO || result == FARLOG_NOT_FOUND || result == FARLOG_INVALID));
}

/* open_renewing -- a reader on another host is given another grant when that is needed. */
static int open_renewing(const char *uri, const struct stream_uri *place, const struct farlog_reader_config *config,
	const struct agent_rings *rings, farlog_reader **reader, struct farlog_error *error)
{
	struct agent_renewer *renewer = agent_renewer_new(place);
	int result;

	if (renewer == NULL)
		return error_set(error, FARLOG_NO_MEMORY, errno, "read \"%s\": out of memory or descriptors", uri);
	agent_renewer_take(renewer, rings);
	result = reader_open(rings->uri, config, agent_renewal(renewer), reader, error);
	if (result == FARLOG_OK)
		(*reader)->renewal = agent_renewal(renewer);
	else
		agent_renewal(renewer)->free(agent_renewal(renewer));
	return result;
}

static int open_granted(const char *uri, const struct stream_uri *place, const struct farlog_reader_config *asked,
	struct agent_rings *rings, farlog_reader **reader, struct farlog_error *error)
{
	struct farlog_reader_config config = *asked;
	struct agent_reply reply;
	int result = agent_ask(place, "reader", NULL, 0, &reply, error);

	rings->is_far = false;
	if (result == FARLOG_OK && !agent_take_rings(&reply, rings))
		result = agent_refuse_reply(uri, place, error);
	explicit_bzero(&reply.text, sizeof(reply.text));
	if (result != FARLOG_OK)
		return result;
	config.ring_uuid = rings->uuid;
	config.grant_token = rings->is_far ? rings->token : NULL;
	if (rings->is_far)
		return open_renewing(uri, place, &config, rings, reader, error);
	return farlog_reader_open(rings->uri, &config, reader, error);
}

int agent_reader_open(
	const char *uri, const struct farlog_reader_config *asked, farlog_reader **reader, struct farlog_error *error)
{
	const struct timespec pause = {.tv_nsec = AGENT_AGAIN_NS};
	uint64_t until_ns = clock_after_ns(AGENT_PATIENCE_NS);
	struct stream_uri place;
	struct agent_rings rings;
	int result = stream_uri_parse(uri, &place, error);

	*reader = NULL;
	if (result == FARLOG_OK && asked->is_drain)
		return stream_uri_refuse(
			uri, "a drain is the control plane's to assign (farlogd drain); by its name a stream is only read", error);
	if (result == FARLOG_OK && asked->grant_token != NULL)
		return stream_uri_refuse(uri, "a token was given, which is the agent's to give", error);
	while (result == FARLOG_OK) {
		result = open_granted(uri, &place, asked, &rings, reader, error);
		if (result == FARLOG_OK || !is_passing(result, rings.is_far) || clock_monotonic_ns() >= until_ns)
			break;
		nanosleep(&pause, NULL);
		result = FARLOG_OK;
	}
	explicit_bzero(&rings, sizeof(rings));
	return result;
}
