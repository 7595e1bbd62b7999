/* uri.h -- taking "scheme:path?name=value&..." apart. */
#ifndef FARLOG_URI_H
#define FARLOG_URI_H

#include "farlog/farlog.h"

#define URI_PATH_LEN_MAX 1024

struct uri {
	char scheme[16];
	char path[URI_PATH_LEN_MAX];
	char flush[16];        /* of ?flush=, "" = not given */
	uint64_t seed;         /* of ?seed=, for fault: */
	uint64_t size_bytes;   /* of ?size=, for fault: */
};

/* uri_parse -- 0 or FARLOG_INVALID with a text that names the URI and what was expected. */
int uri_parse(const char *text, struct uri *uri, struct farlog_error *error);

#endif
