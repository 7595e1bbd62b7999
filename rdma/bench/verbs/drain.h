/* drain.h -- a drain on another host, against READs of as many bytes. */
#ifndef FARLOG_BENCH_VERBS_DRAIN_H
#define FARLOG_BENCH_VERBS_DRAIN_H

#include "farlog/farlog.h"
#include "floor.h"

struct drain_ends {
	const char *near_uri; /* of the ring, for a writer beside it */
	const char *far_uri;  /* for the drain */
	uint8_t token[FARLOG_TOKEN_LEN];
	uint32_t payload_len;
};

/* drain_measure -- two result lines: time a megabyte, and READs a megabyte. Exits with a text when something fails. */
void drain_measure(const struct drain_ends *ends, struct floor *floor, void (*end_line)(void));

#endif
