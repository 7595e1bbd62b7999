/* base/member_uri.h -- "members:K URI URI ...": the rings of one stream with several members, K of which an
 * acknowledgement needs. */
#ifndef FARLOG_MEMBER_URI_H
#define FARLOG_MEMBER_URI_H

#include "base/uri.h"

#define MEMBER_COUNT_MAX 9
#define MEMBER_SCHEME "members:"

/* MEMBER_TWINS -- what is said of two members, each by its number and its URI, that are one ring. */
#define MEMBER_TWINS \
	"members %u, \"%s\", and %u, \"%s\", have one uuid: the one is the other, or a copy of it; expected a ring of " \
	"its own for each, formatted with the same salt (farlog ring format --salt)"

struct member_uri {
	unsigned count;  /* n */
	unsigned needed; /* k */
	char uris[MEMBER_COUNT_MAX][URI_PATH_LEN_MAX];
};

/* member_uri_is -- whether the URI names several rings of a stream. */
bool member_uri_is(const char *text);

/* member_uri_parse -- OK or INVALID with a text that names what is wrong and what was expected. The members' URIs are
 * looked at when they are opened. */
int member_uri_parse(const char *text, struct member_uri *parsed, struct farlog_error *error) FARLOG_MUST_CHECK;

/* member_quorum -- so many members have to be reached to know the log: any set of them has one of every set that
 * acknowledged something, of every set that was fenced, and of every set on which an epoch was persisted. */
static inline unsigned member_quorum(unsigned count, unsigned needed)
{
	return needed > count - needed + 1 ? needed : count - needed + 1;
}

#endif
