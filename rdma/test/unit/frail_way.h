/* frail_way.h -- a way to a target that breaks its first connection. */
#ifndef FARLOG_TEST_FRAIL_WAY_H
#define FARLOG_TEST_FRAIL_WAY_H

#include <pthread.h>
#include <stdint.h>

struct frail_way {
	int listener;
	uint16_t port;
	uint16_t target_port;
	uint64_t breaks_after;
	unsigned connection_count;
	pthread_t thread;
	uint64_t is_stopping;
};

/* frail_way_start -- to the target at that URI; its first connection breaks when breaks_after bytes have come back. */
void frail_way_start(struct frail_way *way, const char *target_uri, uint64_t breaks_after);
void frail_way_stop(struct frail_way *way);

#endif
