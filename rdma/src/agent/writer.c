/* agent/writer.c -- opens a stream for appending by its name, with a grant of the host agent. */
#include "agent/agent.h"

#include <string.h>
#include <time.h>

#include "agent/grant.h"
#include "base/clock.h"
#include "base/err.h"
#include "log/writer.h"

struct grant {
	struct agent_rings rings;
	struct farlog_writer_config config;
};

/* parse_grant -- settings that the program gave take precedence over the stream's. False: the reply is not a grant. */
static bool parse_grant(const struct agent_reply *reply, const struct farlog_writer_config *asked, struct grant *grant)
{
	uint64_t epoch, level, policy, deadline_ns;

	grant->config = *asked;
	if (!agent_parse_rings(reply, &grant->rings) || !agent_number(reply, "epoch", &epoch) ||
		!agent_number(reply, "level", &level) || !agent_number(reply, "policy", &policy) ||
		!agent_number(reply, "deadline-ns", &deadline_ns) || epoch == 0 || epoch > UINT32_MAX)
		return false;
	grant->config.epoch = (uint32_t)epoch;
	grant->config.ring_uuid = grant->rings.uuid;
	grant->config.grant_token = grant->rings.is_remote ? grant->rings.token : NULL;
	grant->config.level = asked->level != 0 ? asked->level : (uint32_t)level;
	grant->config.policy = asked->policy != 0 ? asked->policy : (uint32_t)policy;
	grant->config.deadline_ns = asked->deadline_ns != 0 ? asked->deadline_ns : deadline_ns;
	return true;
}

static int ask_grant(const char *uri, const struct stream_uri *place, const struct farlog_writer_config *asked,
	uint32_t epoch_seen, struct grant *grant, struct farlog_error *error)
{
	struct agent_reply reply;
	int result = agent_ask(place, "writer", asked->writer_name, epoch_seen, -1, &reply, error);

	if (result == FARLOG_OK && !parse_grant(&reply, asked, grant))
		result = agent_reject_reply(uri, place, error);
	explicit_bzero(&reply.text, sizeof(reply.text));
	return result;
}

/* is_transient -- may the opening succeed with another grant? A grant of a ring on another host admits one opening, and
 * its target may not have received it yet. */
static bool is_transient(int result, bool is_remote)
{
	return result == FARLOG_FENCED ||
		(is_remote &&
			(result == FARLOG_IO || result == FARLOG_NOT_FOUND || result == FARLOG_HELD || result == FARLOG_INVALID));
}

int agent_writer_open(const char *uri, const struct farlog_writer_config *asked, const struct writer_watch *watch,
	farlog_writer **writer, struct farlog_error *error)
{
	static const struct farlog_writer_config defaults;
	const struct timespec pause = {.tv_nsec = AGENT_RETRY_PAUSE_NS};
	uint64_t until_ns = clock_after_ns(AGENT_RETRY_TIMEOUT_NS);
	uint32_t epoch_seen = 0;
	struct stream_uri place;
	struct grant grant;
	int result = stream_uri_parse(uri, &place, error);

	if (asked == NULL)
		asked = &defaults;
	*writer = NULL;
	if (result == FARLOG_OK && (asked->epoch != 0 || asked->grant_token != NULL))
		return stream_uri_set_error(
			uri, "an epoch or a token was given; leave them 0 and NULL: the host agent gives them", error);
	while (result == FARLOG_OK) {
		struct farlog_ring_status seen;
		bool is_remote;

		result = ask_grant(uri, &place, asked, epoch_seen, &grant, error);
		if (result != FARLOG_OK)
			break;
		is_remote = grant.rings.is_remote;
		result = writer_open_ring(grant.rings.uri, &grant.config, watch, writer, error);
		if (result == FARLOG_OK || !is_transient(result, is_remote) || clock_monotonic_ns() >= until_ns)
			break;
		if (!is_remote && farlog_ring_inspect(grant.rings.uri, &seen, error) == FARLOG_OK)
			epoch_seen = seen.writer_epoch > seen.epoch_min ? seen.writer_epoch : seen.epoch_min;
		nanosleep(&pause, NULL);
		result = FARLOG_OK;
	}
	if (result == FARLOG_OK)
		agent_follow_settings(*writer, asked, &place);
	explicit_bzero(&grant, sizeof(grant));
	return result;
}
