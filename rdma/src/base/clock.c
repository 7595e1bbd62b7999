/* base/clock.c -- the sampler and its readers. */
#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/timex.h>
#include <time.h>

#include "base/atomics.h"
#include "base/phc.h"

#define PAUSE_SPIN_COUNT 500u
#define SAMPLE_INTERVAL_NS 100000000
#define FIRST_INTERVAL_NS 2000000
#define ERROR_UNKNOWN UINT32_MAX
#define READ_TRIES 5

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
	struct clock_guest *guests;
	struct phc_set phcs;
} sampler = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static uint64_t timespec_ns(const struct timespec *time)
{
	return (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
}

#ifdef FARLOG_FAULT
static _Thread_local uint64_t played_ns; /* of the thread that plays time; 0: it does not */

void farlog_fault_set_clock(uint64_t now_ns)
{
	played_ns = now_ns;
}
#endif

uint64_t clock_monotonic_ns(void)
{
	struct timespec now;

#ifdef FARLOG_FAULT
	if (played_ns != 0)
		return played_ns += 1000;
#endif
	clock_gettime(CLOCK_MONOTONIC, &now);
	return timespec_ns(&now);
}

void clock_pause(unsigned spins)
{
	if (spins % PAUSE_SPIN_COUNT != 0)
		cpu_relax();
	else
		nanosleep(&(struct timespec){0, CLOCK_NAP_NS}, NULL);
}

/* read_pair -- counter and UTC at one moment: the tightest of a few tries, with half its width as the error. The first
 * is taken whatever its width, which is anything when the thread moves to a processor whose counter is behind. */
static void read_pair(clockid_t id, uint64_t *ticks, uint64_t *time_ns, uint64_t *width_ticks)
{
	for (int i = 0; i < READ_TRIES; i++) {
		struct timespec now;
		uint64_t before = clock_ticks();
		uint64_t after;

		clock_gettime(id, &now);
		after = clock_ticks();
		if (i == 0 || after - before < *width_ticks) {
			*width_ticks = after - before;
			*ticks = before + (after - before) / 2;
			*time_ns = timespec_ns(&now);
		}
	}
}

/* discipline_error_ns -- what the kernel's clock discipline admits to, and what hardware clocks that disagree add to
 * it. Unknown when nothing disciplines the system clock, whatever a hardware clock says: how far that is from UTC the
 * kernel does not know. */
static uint64_t discipline_error_ns(void)
{
	struct timex state = {.modes = 0};
	int status = adjtimex(&state);
	uint64_t phc_ns = phc_error_ns(&sampler.phcs, state.tai);

	if (status < 0 || status == TIME_ERROR || (state.status & STA_UNSYNC) || phc_ns == PHC_UNKNOWN)
		return ERROR_UNKNOWN;
	return (uint64_t)state.maxerror * 1000 + phc_ns;
}

static void publish(uint64_t ticks, uint64_t utc_ns, uint64_t rate_q32, uint64_t error_ns)
{
	uint64_t version = atomic_load_relaxed(&clock_anchor.version);

	/* Readers that see an odd or changed version read again: acquire and release keep the five words together. */
	atomic_store_relaxed(&clock_anchor.version, version + 1);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	atomic_store_relaxed(&clock_anchor.ticks, ticks);
	atomic_store_relaxed(&clock_anchor.utc_ns, utc_ns);
	atomic_store_relaxed(&clock_anchor.ns_per_tick_q32, rate_q32);
	atomic_store_relaxed(&clock_anchor.error_ns, error_ns < ERROR_UNKNOWN ? error_ns : ERROR_UNKNOWN);
	atomic_store_release(&clock_anchor.version, version + 2);
}

/* rate_since -- the counter's rate against the undisturbed hardware clock: CLOCK_REALTIME may step between two
 * samples. */
static uint64_t rate_since(struct sampler_run *run)
{
	uint64_t ticks;
	uint64_t raw_ns;
	uint64_t width;
	uint64_t rate_q32;

	read_pair(CLOCK_MONOTONIC, &ticks, &raw_ns, &width);
	rate_q32 = (uint64_t)(((unsigned __int128)(raw_ns - run->base_raw_ns) << 32) / (ticks - run->base_ticks));
	run->base_ticks = ticks;
	run->base_raw_ns = raw_ns;
	return rate_q32;
}

#ifdef FARLOG_FAULT
static bool is_utc_played; /* guarded by the mutex */
#endif

static void sample(uint64_t rate_q32, bool is_first)
{
	struct clock_reading predicted;
	uint64_t ticks;
	uint64_t utc_ns;
	uint64_t width_ticks;
	uint64_t error_ns = discipline_error_ns();
	uint64_t drift_ns = 0;

#ifdef FARLOG_FAULT
	if (is_utc_played)
		return;
#endif
	read_pair(CLOCK_REALTIME, &ticks, &utc_ns, &width_ticks);
	if (!is_first) {
		clock_read(ticks, &predicted);
		drift_ns = predicted.utc_ns > utc_ns ? predicted.utc_ns - utc_ns : utc_ns - predicted.utc_ns;
	}
	if (error_ns != ERROR_UNKNOWN)
		error_ns += drift_ns + ((width_ticks * (rate_q32 >> 1)) >> 32);
	publish(ticks, utc_ns, rate_q32, error_ns);
}

static void *sample_loop(void *context)
{
	struct sampler_run *run = context;

	pthread_mutex_lock(&sampler.mutex);
	while (!run->is_stopping) {
		struct timespec until;

		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += SAMPLE_INTERVAL_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		if (pthread_cond_timedwait(&sampler.stop, &sampler.mutex, &until) != ETIMEDOUT)
			continue;
		sample(rate_since(run), false);
		for (struct clock_guest *guest = sampler.guests; guest != NULL && !run->is_stopping; guest = guest->next)
			guest->turn(guest->context);
	}
	pthread_mutex_unlock(&sampler.mutex);
	return NULL;
}

static void make_condition(void)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&sampler.stop, &attributes);
	pthread_condattr_destroy(&attributes);
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
	make_condition();
	phc_close(&sampler.phcs);
	sampler.run = NULL;
	sampler.user_count = 0;
	sampler.guests = NULL; /* they are the parent's */
}

static void make_once(void)
{
	make_condition();
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
		read_pair(CLOCK_MONOTONIC, &run->base_ticks, &run->base_raw_ns, &width);
		nanosleep(&first, NULL);
		sample(rate_since(run), true);
		failure = pthread_create(&run->thread, NULL, sample_loop, run);
	}
	if (failure != 0) {
		phc_close(&sampler.phcs);
		free(run);
		return failure;
	}
	sampler.run = run;
	return 0;
}

#ifdef FARLOG_FAULT
void farlog_fault_set_utc(uint64_t utc_ns)
{
	pthread_mutex_lock(&sampler.mutex);
	is_utc_played = utc_ns != 0;
	if (is_utc_played)
		publish(clock_ticks(), utc_ns, 0, 0);
	else if (sampler.run != NULL)
		sample(rate_since(sampler.run), true);
	pthread_mutex_unlock(&sampler.mutex);
}
#endif

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

void clock_attend(struct clock_guest *guest)
{
	pthread_mutex_lock(&sampler.mutex);
	guest->next = sampler.guests;
	sampler.guests = guest;
	pthread_mutex_unlock(&sampler.mutex);
}

void clock_leave(struct clock_guest *guest)
{
	pthread_mutex_lock(&sampler.mutex);
	for (struct clock_guest **at = &sampler.guests; *at != NULL; at = &(*at)->next)
		if (*at == guest) {
			*at = guest->next;
			break;
		}
	pthread_mutex_unlock(&sampler.mutex);
}
