/* agent/renew.c -- a reader's grant is good for a client that comes within ten minutes, and for the same one again
 * while the same target runs. When a connection breaks later and the target has been started anew, the host agent is
 * asked for another grant. Whoever connects again asks here and waits for nothing: a thread of its own asks the
 * agent. */
#include "agent/renew.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"

/* from the first refusal on: a target that was just started hears of grants within that */
#define PAUSE_FIRST_NS 1000000000u
/* a ring's target is told of 256 readers' grants within ten minutes, and of no more */
#define PAUSE_LAST_NS 30000000000u
#define CALM_NS 300000000000u /* without a refusal: the next one is a first one */

struct agent_renewer {
	struct region_renewal renewal;
	struct stream_uri place;
	int stop_fd; /* eventfd: written when the thread is to end */

	pthread_mutex_t mutex;
	struct agent_rings rings; /* as granted last */
	uint64_t refused_ns;      /* when a target last refused one; 0: none has */
	uint64_t ask_ns;          /* not before */
	uint64_t pause_ns;
	bool is_asking;
	bool has_asker;
	pthread_t asker;
};

static struct agent_renewer *renewer_of(struct region_renewal *renewal)
{
	return (struct agent_renewer *)renewal;
}

/* find -- the place of a ring among those granted; MEMBER_COUNT_MAX: it is none of them any more. */
static unsigned find(const struct agent_renewer *renewer, const uint8_t *ring_uuid)
{
	unsigned i = 0;

	while (i < MEMBER_COUNT_MAX && memcmp(&renewer->rings.uuid[16 * i], ring_uuid, 16) != 0)
		i++;
	return i;
}

/* is_due -- at a refusal, whether the agent is to be asked now. Each time later than the last. */
static bool is_due(struct agent_renewer *renewer)
{
	uint64_t now_ns = clock_monotonic_ns();

	if (renewer->refused_ns == 0 || now_ns - renewer->refused_ns > CALM_NS) {
		renewer->pause_ns = PAUSE_FIRST_NS;
		renewer->ask_ns = now_ns + PAUSE_FIRST_NS;
	}
	renewer->refused_ns = now_ns;
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
	bool is_granted =
		agent_ask_until(&renewer->place, "reader", NULL, 0, renewer->stop_fd, &reply, NULL) == FARLOG_OK &&
		agent_take_rings(&reply, &rings);

	pthread_mutex_lock(&renewer->mutex);
	if (is_granted)
		renewer->rings = rings;
	renewer->is_asking = false;
	pthread_mutex_unlock(&renewer->mutex);
	explicit_bzero(&reply.text, sizeof(reply.text));
	explicit_bzero(&rings, sizeof(rings));
	return NULL;
}

/* start_asking -- by a thread that takes no signal: those are the program's. Where there is none to be had, the next
 * refusal comes soon. */
static void start_asking(struct agent_renewer *renewer)
{
	sigset_t all, before;

	if (renewer->has_asker)
		pthread_join(renewer->asker, NULL); /* it has ended, or is about to */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	renewer->has_asker = pthread_create(&renewer->asker, NULL, ask_once, renewer) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	renewer->is_asking = renewer->has_asker;
}

static bool renew(struct region_renewal *renewal, const uint8_t *ring_uuid, uint8_t *token)
{
	static const uint8_t none[FARLOG_TOKEN_LEN];
	struct agent_renewer *renewer = renewer_of(renewal);
	bool is_other = false;
	unsigned i;

	pthread_mutex_lock(&renewer->mutex);
	i = find(renewer, ring_uuid);
	if (i < MEMBER_COUNT_MAX) {
		const uint8_t *granted = &renewer->rings.token[FARLOG_TOKEN_LEN * i];

		is_other = memcmp(granted, none, sizeof(none)) != 0 && memcmp(granted, token, FARLOG_TOKEN_LEN) != 0;
		if (is_other)
			memcpy(token, granted, FARLOG_TOKEN_LEN);
	}
	if (!is_other && is_due(renewer))
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

struct agent_renewer *agent_renewer_new(const struct stream_uri *place)
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
	pthread_mutex_init(&renewer->mutex, NULL);
	return renewer;
}

void agent_renewer_take(struct agent_renewer *renewer, const struct agent_rings *rings)
{
	pthread_mutex_lock(&renewer->mutex);
	renewer->rings = *rings;
	pthread_mutex_unlock(&renewer->mutex);
}

struct region_renewal *agent_renewal(struct agent_renewer *renewer)
{
	return &renewer->renewal;
}
