/* base/clock.c -- the sampler and its readers. */
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/atomics.h"
#include "base/clock_sample.h"
#include "base/phc.h"
#include "base/thread.h"

#define PAUSE_SPIN_COUNT 500u
#define SAMPLE_INTERVAL_NS 100000000
#define FIRST_INTERVAL_NS 2000000

struct clock_anchor clock_anchor;

/* One run of the sampler thread. A new run may start while the last one is still on its way out. */
struct sampler_run {
	pthread_t thread;
	bool is_stopping; /* guarded by the mutex */
	uint64_t base_ticks;
	uint64_t base_raw_ns;
};

static struct {
	pthread_mutex_t mutex; /* guards all of this and the anchor's stores; never taken on the append path */
	pthread_cond_t stop;   /* on CLOCK_MONOTONIC: a step of UTC must not keep the sampler asleep */
	struct sampler_run *run;
	unsigned user_count;
	struct clock_task *guests;
	struct phc_set phcs;
} sampler = {.mutex = PTHREAD_MUTEX_INITIALIZER};

uint64_t clock_monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void clock_pause(unsigned spins)
{
	if (spins % PAUSE_SPIN_COUNT != 0)
		cpu_relax();
	else
		nanosleep(&(struct timespec){0, CLOCK_NAP_NS}, NULL);
}

bool clock_poll(struct pollfd *fds, unsigned count, uint64_t timeout_ns)
{
	struct timespec timeout = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};

	return ppoll(fds, count, &timeout, NULL) == 0;
}

/* rate_since -- the counter's rate against the undisturbed hardware clock: CLOCK_REALTIME may step between two
 * samples. */
static uint64_t rate_since(struct sampler_run *run)
{
	uint64_t ticks;
	uint64_t raw_ns;
	uint64_t width;
	uint64_t rate_q32;

	clock_read_pair(CLOCK_MONOTONIC, &ticks, &raw_ns, &width);
	rate_q32 = (uint64_t)(((unsigned __int128)(raw_ns - run->base_raw_ns) << 32) / (ticks - run->base_ticks));
	run->base_ticks = ticks;
	run->base_raw_ns = raw_ns;
	return rate_q32;
}

static void *sample_loop(void *context)
{
	struct sampler_run *run = context;

	pthread_mutex_lock(&sampler.mutex);
	while (!run->is_stopping) {
		if (condition_wait_until(&sampler.stop, &sampler.mutex, clock_after_ns(SAMPLE_INTERVAL_NS)))
			continue;
		clock_sample(&sampler.phcs, rate_since(run), false);
		for (struct clock_task *guest = sampler.guests; guest != NULL && !run->is_stopping; guest = guest->next)
			guest->turn(guest->context);
	}
	pthread_mutex_unlock(&sampler.mutex);
	return NULL;
}

/* A fork copies neither the thread nor what it is about to do: the child begins with an anchor that is whole, a free
 * mutex, and no sampler. */
static void before_fork(void)
{
	pthread_mutex_lock(&sampler.mutex);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&sampler.mutex);
}

static void begin_child(void)
{
	pthread_mutex_init(&sampler.mutex, NULL);
	condition_init(&sampler.stop);
	phc_close(&sampler.phcs);
	sampler.run = NULL;
	sampler.user_count = 0;
	sampler.guests = NULL; /* they are the parent's */
}

static void make_once(void)
{
	condition_init(&sampler.stop);
	pthread_atfork(before_fork, after_fork, begin_child);
}

static int start_run(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct timespec first = {0, FIRST_INTERVAL_NS};
	struct sampler_run *run = calloc(1, sizeof(*run));
	uint64_t width;
	int failure = run == NULL ? ENOMEM : phc_open(&sampler.phcs, getenv("FARLOG_CLOCK_PHC"), "/sys/class/ptp", "/dev");

	pthread_once(&once, make_once);
	if (failure == 0) {
		clock_read_pair(CLOCK_MONOTONIC, &run->base_ticks, &run->base_raw_ns, &width);
		nanosleep(&first, NULL);
		clock_sample(&sampler.phcs, rate_since(run), true);
		failure = thread_start(&run->thread, sample_loop, run);
	}
	if (failure != 0) {
		phc_close(&sampler.phcs);
		free(run);
		return failure;
	}
	sampler.run = run;
	return 0;
}

int clock_start(void)
{
	int failure = 0;

	pthread_mutex_lock(&sampler.mutex);
	if (sampler.user_count == 0)
		failure = start_run();
	if (failure == 0)
		sampler.user_count++;
	pthread_mutex_unlock(&sampler.mutex);
	return failure;
}

void clock_stop(void)
{
	struct sampler_run *run = NULL;

	pthread_mutex_lock(&sampler.mutex);
	/* 0: a handle from before a fork is closed by the child */
	if (sampler.user_count > 0 && --sampler.user_count == 0) {
		run = sampler.run;
		run->is_stopping = true;
		phc_close(&sampler.phcs);
		pthread_cond_broadcast(&sampler.stop);
	}
	pthread_mutex_unlock(&sampler.mutex);
	if (run == NULL)
		return;
	pthread_join(run->thread, NULL);
	free(run);
}

void clock_add_task(struct clock_task *guest)
{
	pthread_mutex_lock(&sampler.mutex);
	guest->next = sampler.guests;
	sampler.guests = guest;
	pthread_mutex_unlock(&sampler.mutex);
}

void clock_remove_task(struct clock_task *guest)
{
	pthread_mutex_lock(&sampler.mutex);
	for (struct clock_task **at = &sampler.guests; *at != NULL; at = &(*at)->next)
		if (*at == guest) {
			*at = guest->next;
			break;
		}
	pthread_mutex_unlock(&sampler.mutex);
}
