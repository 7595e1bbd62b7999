/* log/shared_beat.c -- the thread that appends heartbeats to a shared writer while nobody appends anything else. */
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "farlog/heartbeat.h"
#include "log/shared.h"

#define IDLE_NS_MIN 1000000u

struct shared_beat {
	struct farlog_shared *shared;
	uint64_t idle_ns;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool is_ending;
	pthread_t thread;
};

/* pause_beat -- half of the time that may be idle: what nobody has moved since the last look has been idle for so long
 * at least. False: it is over. */
static bool pause_beat(struct shared_beat *beat)
{
	uint64_t until_ns = clock_after_ns(beat->idle_ns / 2);
	bool is_on;

	pthread_mutex_lock(&beat->lock);
	while (!beat->is_ending && condition_wait_until(&beat->wake, &beat->lock, until_ns))
		;
	is_on = !beat->is_ending;
	pthread_mutex_unlock(&beat->lock);
	return is_on;
}

static void *beat_loop(void *context)
{
	struct shared_beat *beat = context;
	uint64_t seen_lsn = shared_published_lsn(beat->shared);
	struct farlog_position position;
	int result = FARLOG_OK;

	while (result != FARLOG_FENCED && result != FARLOG_CLOSED && pause_beat(beat)) {
		if (shared_published_lsn(beat->shared) == seen_lsn)
			result = farlog_shared_heartbeat(beat->shared, 0, &position);
		seen_lsn = shared_published_lsn(beat->shared);
	}
	return NULL;
}

void shared_end_beat(struct farlog_shared *shared)
{
	struct shared_beat *beat = *shared_beat(shared);

	if (beat == NULL)
		return;
	pthread_mutex_lock(&beat->lock);
	beat->is_ending = true;
	pthread_cond_signal(&beat->wake);
	pthread_mutex_unlock(&beat->lock);
	pthread_join(beat->thread, NULL);
	pthread_cond_destroy(&beat->wake);
	pthread_mutex_destroy(&beat->lock);
	free(beat);
	*shared_beat(shared) = NULL;
}

int farlog_shared_heartbeats(farlog_shared *shared, uint64_t idle_ns)
{
	struct shared_beat *beat;

	if (idle_ns != 0 && idle_ns < IDLE_NS_MIN)
		return FARLOG_INVALID;
	shared_end_beat(shared);
	if (idle_ns == 0)
		return FARLOG_OK;
	beat = calloc(1, sizeof(*beat));
	if (beat == NULL)
		return FARLOG_NO_MEMORY;
	beat->shared = shared;
	beat->idle_ns = idle_ns;
	pthread_mutex_init(&beat->lock, NULL);
	condition_init(&beat->wake);
	if (thread_start(&beat->thread, beat_loop, beat) != 0) {
		free(beat);
		return FARLOG_NO_MEMORY;
	}
	*shared_beat(shared) = beat;
	return FARLOG_OK;
}
