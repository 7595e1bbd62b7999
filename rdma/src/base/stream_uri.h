/* base/stream_uri.h -- "farlog://desk7/orders?agent=PATH": a URI that names a stream, and leaves it to the host agent
 * where its ring is. */
#ifndef FARLOG_STREAM_URI_H
#define FARLOG_STREAM_URI_H

#include "farlog/farlog.h"

#define AGENT_SOCKET_LEN_MAX 107 /* sun_path less its end */

/* What a URI asks for. */
struct stream_uri {
	char stream[FARLOG_STREAM_NAME_LEN];
	char socket_path[AGENT_SOCKET_LEN_MAX + 1];
	char transport[8];
	bool is_takeover; /* a writer on another host that lives is fenced; else the opening is refused */
};

/* stream_uri_is -- whether the URI names a stream. */
bool stream_uri_is(const char *uri);

/* stream_uri_parse -- OK or INVALID, with a text that names what is wrong. */
int stream_uri_parse(const char *uri, struct stream_uri *place, struct farlog_error *error) FARLOG_MUST_CHECK;

/* stream_uri_set_error -- INVALID: why, and what was expected. */
int stream_uri_set_error(const char *uri, const char *why, struct farlog_error *error) FARLOG_MUST_CHECK;

#endif
