/* agent/place.h -- a grant of a stream: asking for it, and the rings that the agent answers with: what openings of
 * writers and readers share. */
#ifndef FARLOG_AGENT_PLACE_H
#define FARLOG_AGENT_PLACE_H

#include "agent/agent.h"
#include "base/member_uri.h"
#include "base/stream_uri.h"

#define AGENT_PATIENCE_NS 10000000000u /* for what passes, as the opening of a far ring */
#define AGENT_AGAIN_NS 100000000       /* between two of its attempts */

/* What is granted: one ring or several. Tokens are in it: explicit_bzero when it is done with. */
struct agent_rings {
	char uri[AGENT_VALUE_LEN_MAX];
	uint8_t uuid[16 * MEMBER_COUNT_MAX]; /* one a ring, in the order of the URI */
	uint8_t token[FARLOG_TOKEN_LEN * MEMBER_COUNT_MAX];
	bool is_far; /* there are tokens: one of the rings at least is on another host */
};

/* agent_ask -- for a grant of the stream, by the verb `writer` or `reader`. The reply is the caller's to wipe. Errors
 * as agent_call. */
int agent_ask(const struct stream_uri *place, const char *verb, const char *name, uint32_t epoch_seen,
	struct agent_reply *reply, struct farlog_error *error) FARLOG_MUST_CHECK;

/* agent_ask_until -- the same, and give up (IO) as soon as `stop_fd` can be read. */
int agent_ask_until(const struct stream_uri *place, const char *verb, const char *name, uint32_t epoch_seen,
	int stop_fd, struct agent_reply *reply, struct farlog_error *error) FARLOG_MUST_CHECK;

/* agent_take_rings -- false: this is no grant. */
bool agent_take_rings(const struct agent_reply *reply, struct agent_rings *rings);

/* agent_take_hex -- so many bytes, in small digits. */
bool agent_take_hex(const char *text, uint8_t *bytes, size_t count);

/* agent_follow -- from now on ask how the stream is declared, of what `asked` left open, and of a stream with several
 * rings which they are, until writer_unfollow. Where nobody can ask, the writer goes on as it was granted. */
void agent_follow(farlog_writer *writer, const struct farlog_writer_config *asked, const struct stream_uri *place);

/* agent_refuse_reply -- IO: the answer is no grant. */
int agent_refuse_reply(const char *uri, const struct stream_uri *place, struct farlog_error *error) FARLOG_MUST_CHECK;

#endif
