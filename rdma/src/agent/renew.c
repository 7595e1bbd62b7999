/* agent/renew.c -- a reader's grant admits a client that connects within ten minutes, and the same client again while
 * the same target process runs. When the target has been restarted since, the host agent is asked for another grant.
 * A reader that reconnects asks here and does not wait: a thread of its own asks the agent. */
#include "agent/renew.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

/* after the first rejection: a target that was just started receives its grants within that time */
#define PAUSE_FIRST_NS 1000000000u
/* a target accepts at most 256 readers' grants of a ring within ten minutes */
#define PAUSE_LAST_NS 30000000000u
#define PAUSE_RESET_NS 300000000000u /* after that long without a rejection the pauses begin again */

struct agent_renewer {
	struct region_renewal renewal;
	struct stream_uri place;
	int stop_fd; /* eventfd: written when the thread is to end */

	pthread_mutex_t mutex;
	struct agent_rings rings; /* the last grant */
	uint64_t rejected_ns;     /* when a target last rejected a grant; 0: never */
	uint64_t ask_ns;          /* the agent is not asked earlier */
	uint64_t pause_ns;
	bool is_asking;
	bool has_asker;
	pthread_t asker;
};

static struct agent_renewer *renewer_of(struct region_renewal *renewal)
{
	return (struct agent_renewer *)renewal;
}

/* find_ring -- the index of a ring among those granted; MEMBER_COUNT_MAX: it is no longer one of them. */
static unsigned find_ring(const struct agent_renewer *renewer, const uint8_t *ring_uuid)
{
	unsigned i = 0;

	while (i < MEMBER_COUNT_MAX && memcmp(&renewer->rings.uuid[16 * i], ring_uuid, 16) != 0)
		i++;
	return i;
}

/* is_ask_due -- after a rejection: is the agent to be asked now? The pauses between two questions grow. */
static bool is_ask_due(struct agent_renewer *renewer)
{
	uint64_t now_ns = clock_monotonic_ns();

	if (renewer->rejected_ns == 0 || now_ns - renewer->rejected_ns > PAUSE_RESET_NS) {
		renewer->pause_ns = PAUSE_FIRST_NS;
		renewer->ask_ns = now_ns + PAUSE_FIRST_NS;
	}
	renewer->rejected_ns = now_ns;
	if (renewer->is_asking || now_ns < renewer->ask_ns)
		return false;
	renewer->pause_ns = 2 * renewer->pause_ns < PAUSE_LAST_NS ? 2 * renewer->pause_ns : PAUSE_LAST_NS;
	renewer->ask_ns = now_ns + renewer->pause_ns;
	return true;
}

static void *ask_once(void *of)
{
	struct agent_renewer *renewer = of;
	struct agent_rings rings = {0};
	struct agent_reply reply;
	bool is_granted = agent_ask(&renewer->place, "reader", NULL, 0, renewer->stop_fd, &reply, NULL) == FARLOG_OK &&
		agent_parse_rings(&reply, &rings);

	pthread_mutex_lock(&renewer->mutex);
	if (is_granted)
		renewer->rings = rings;
	renewer->is_asking = false;
	pthread_mutex_unlock(&renewer->mutex);
	explicit_bzero(&reply.text, sizeof(reply.text));
	explicit_bzero(&rings, sizeof(rings));
	return NULL;
}

/* start_asking -- without a thread the next rejection starts one. */
static void start_asking(struct agent_renewer *renewer)
{
	if (renewer->has_asker)
		pthread_join(renewer->asker, NULL); /* it has ended, or is about to */
	renewer->has_asker = thread_start(&renewer->asker, ask_once, renewer) == 0;
	renewer->is_asking = renewer->has_asker;
}

static bool renew(struct region_renewal *renewal, const uint8_t *ring_uuid, uint8_t *token)
{
	static const uint8_t none[FARLOG_TOKEN_LEN];
	struct agent_renewer *renewer = renewer_of(renewal);
	bool is_other = false;
	unsigned i;

	pthread_mutex_lock(&renewer->mutex);
	i = find_ring(renewer, ring_uuid);
	if (i < MEMBER_COUNT_MAX) {
		const uint8_t *granted = &renewer->rings.token[FARLOG_TOKEN_LEN * i];

		is_other = memcmp(granted, none, sizeof(none)) != 0 && memcmp(granted, token, FARLOG_TOKEN_LEN) != 0;
		if (is_other)
			memcpy(token, granted, FARLOG_TOKEN_LEN);
	}
	if (!is_other && is_ask_due(renewer))
		start_asking(renewer);
	pthread_mutex_unlock(&renewer->mutex);
	return is_other;
}

static void free_renewer(struct region_renewal *renewal)
{
	struct agent_renewer *renewer = renewer_of(renewal);

	(void)eventfd_write(renewer->stop_fd, 1);
	if (renewer->has_asker)
		pthread_join(renewer->asker, NULL);
	pthread_mutex_destroy(&renewer->mutex);
	close(renewer->stop_fd);
	explicit_bzero(&renewer->rings, sizeof(renewer->rings));
	free(renewer);
}

struct region_renewal *agent_renewal_new(const struct stream_uri *place, const struct agent_rings *rings)
{
	struct agent_renewer *renewer = calloc(1, sizeof(*renewer));

	if (renewer == NULL)
		return NULL;
	renewer->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (renewer->stop_fd < 0) {
		free(renewer);
		return NULL;
	}
	renewer->renewal = (struct region_renewal){.renew = renew, .free = free_renewer};
	renewer->place = *place;
	renewer->rings = *rings;
	pthread_mutex_init(&renewer->mutex, NULL);
	return &renewer->renewal;
}
