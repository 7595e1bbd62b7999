/* agent/grant.h -- a grant of a stream: the request for it, and the rings that the agent's reply names. For openings of
 * writers and readers. */
#ifndef FARLOG_AGENT_GRANT_H
#define FARLOG_AGENT_GRANT_H

#include "agent/agent.h"
#include "base/member_uri.h"
#include "base/stream_uri.h"

#define AGENT_RETRY_TIMEOUT_NS 10000000000u /* of an opening that may succeed with another grant */
#define AGENT_RETRY_PAUSE_NS 100000000      /* between two attempts */

/* What is granted: one ring or several. It holds tokens: wipe it with explicit_bzero after use. */
struct agent_rings {
	char uri[AGENT_VALUE_LEN_MAX];
	uint8_t uuid[16 * MEMBER_COUNT_MAX]; /* one a ring, in the order of the URI */
	uint8_t token[FARLOG_TOKEN_LEN * MEMBER_COUNT_MAX];
	bool is_remote; /* one ring at least is on another host: there are tokens */
};

/* agent_ask -- for a grant of the stream, by the verb `writer` or `reader`, and give up (IO) as soon as `stop_fd` can
 * be read; -1 = none. epoch_seen: an epoch of the ring that was too high for the last grant; 0 = none. The caller wipes
 * the reply. Errors as agent_call. Blocks up to 15 s. */
int agent_ask(const struct stream_uri *place, const char *verb, const char *name, uint32_t epoch_seen, int stop_fd,
	struct agent_reply *reply, struct farlog_error *error) FARLOG_MUST_CHECK;

/* agent_parse_rings -- false: the reply is not a grant. */
bool agent_parse_rings(const struct agent_reply *reply, struct agent_rings *rings);

/* agent_parse_hex -- `count` bytes in lower-case hexadecimal digits. */
bool agent_parse_hex(const char *text, uint8_t *bytes, size_t count);

/* agent_follow_settings -- start a thread that keeps the writer's settings, where `asked` left them open, and its
 * member rings as the control plane declares them, until writer_stop_follower. Without a thread the writer keeps what
 * it was granted. */
void agent_follow_settings(
	farlog_writer *writer, const struct farlog_writer_config *asked, const struct stream_uri *place);

/* agent_reject_reply -- IO: the reply is not a grant. */
int agent_reject_reply(const char *uri, const struct stream_uri *place, struct farlog_error *error) FARLOG_MUST_CHECK;

#endif
