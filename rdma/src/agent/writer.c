/* agent/writer.c -- opening a stream by its name: the host agent says where its ring is, and by which grant. */
#include "agent/agent.h"

#include <string.h>
#include <time.h>

#include "agent/place.h"
#include "base/clock.h"
#include "base/err.h"
#include "log/writer.h"

/* What the agent grants. */
struct grant {
	struct agent_rings rings;
	struct farlog_writer_config config;
};

/* take_grant -- what was asked for goes before what the stream would have. False: this is no grant. */
static bool take_grant(const struct agent_reply *reply, const struct farlog_writer_config *asked, struct grant *grant)
{
	uint64_t epoch, level, policy, deadline_ns;

	grant->config = *asked;
	if (!agent_take_rings(reply, &grant->rings) || !agent_take_number(reply, "epoch", &epoch) ||
		!agent_take_number(reply, "level", &level) || !agent_take_number(reply, "policy", &policy) ||
		!agent_take_number(reply, "deadline-ns", &deadline_ns) || epoch == 0 || epoch > UINT32_MAX)
		return false;
	grant->config.epoch = (uint32_t)epoch;
	grant->config.ring_uuid = grant->rings.uuid;
	grant->config.grant_token = grant->rings.is_far ? grant->rings.token : NULL;
	grant->config.level = asked->level != 0 ? asked->level : (uint32_t)level;
	grant->config.policy = asked->policy != 0 ? asked->policy : (uint32_t)policy;
	grant->config.deadline_ns = asked->deadline_ns != 0 ? asked->deadline_ns : deadline_ns;
	return true;
}

static int ask(const char *uri, const struct stream_uri *place, const struct farlog_writer_config *asked,
	uint32_t epoch_seen, struct grant *grant, struct farlog_error *error)
{
	struct agent_reply reply;
	int result = agent_ask(place, "writer", asked->writer_name, epoch_seen, &reply, error);

	if (result == FARLOG_OK && !take_grant(&reply, asked, grant))
		result = agent_refuse_reply(uri, place, error);
	explicit_bzero(&reply.text, sizeof(reply.text));
	return result;
}

/* is_passing -- whether what went wrong may go right with another grant. A grant of a ring on another host is good for
 * one opening, and its target may not have heard of it yet. */
static bool is_passing(int result, bool is_far)
{
	return result == FARLOG_FENCED ||
		(is_far &&
			(result == FARLOG_IO || result == FARLOG_NOT_FOUND || result == FARLOG_HELD || result == FARLOG_INVALID));
}

int agent_writer_open(const char *uri, const struct farlog_writer_config *asked, const struct writer_watch *watch,
	farlog_writer **writer, struct farlog_error *error)
{
	static const struct farlog_writer_config defaults;
	const struct timespec pause = {.tv_nsec = AGENT_AGAIN_NS};
	uint64_t until_ns = clock_after_ns(AGENT_PATIENCE_NS);
	uint32_t epoch_seen = 0;
	struct stream_uri place;
	struct grant grant;
	int result = stream_uri_parse(uri, &place, error);

	if (asked == NULL)
		asked = &defaults;
	*writer = NULL;
	if (result == FARLOG_OK && (asked->epoch != 0 || asked->grant_token != NULL))
		return stream_uri_refuse(uri, "an epoch or a token was given, which are the agent's to give", error);
	while (result == FARLOG_OK) {
		struct farlog_ring_status seen;
		bool is_far;

		result = ask(uri, &place, asked, epoch_seen, &grant, error);
		if (result != FARLOG_OK)
			break;
		is_far = grant.rings.is_far;
		result = writer_open_ring(grant.rings.uri, &grant.config, watch, writer, error);
		if (result == FARLOG_OK || !is_passing(result, is_far) || clock_monotonic_ns() >= until_ns)
			break;
		if (!is_far && farlog_ring_inspect(grant.rings.uri, &seen, error) == FARLOG_OK)
			epoch_seen = seen.writer_epoch > seen.epoch_min ? seen.writer_epoch : seen.epoch_min;
		nanosleep(&pause, NULL);
		result = FARLOG_OK;
	}
	if (result == FARLOG_OK)
		agent_follow(*writer, asked, &place);
	explicit_bzero(&grant, sizeof(grant));
	return result;
}
