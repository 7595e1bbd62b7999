/* adversary/clock.c -- see adversary/clock.h. */
#include "adversary/clock.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/clock_sample.h"
#include "base/phc.h"

static _Thread_local uint64_t played_ns; /* of the thread that plays time; 0: it does not */

uint64_t __real_clock_monotonic_ns(void);
uint64_t __wrap_clock_monotonic_ns(void);
bool __real_clock_poll(struct pollfd *fds, unsigned count, uint64_t timeout_ns);
bool __wrap_clock_poll(struct pollfd *fds, unsigned count, uint64_t timeout_ns);
void __real_clock_sample(struct phc_set *phcs, uint64_t rate_q32, bool is_first);
void __wrap_clock_sample(struct phc_set *phcs, uint64_t rate_q32, bool is_first);

uint64_t __wrap_clock_monotonic_ns(void)
{
	return played_ns != 0 ? played_ns += 1000 : __real_clock_monotonic_ns();
}

void farlog_fault_set_clock(uint64_t now_ns)
{
	played_ns = now_ns;
}

/* A thread that plays time does not sleep: its time would stand still meanwhile. */
bool __wrap_clock_poll(struct pollfd *fds, unsigned count, uint64_t timeout_ns)
{
	return played_ns != 0 || __real_clock_poll(fds, count, timeout_ns);
}

static struct {
	pthread_mutex_t mutex; /* behind the sampler's: guards all of this, and who publishes */
	bool is_played;
	uint64_t rate_q32; /* when it began to stand still */
} utc = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void __wrap_clock_sample(struct phc_set *phcs, uint64_t rate_q32, bool is_first)
{
	pthread_mutex_lock(&utc.mutex);
	if (!utc.is_played)
		__real_clock_sample(phcs, rate_q32, is_first);
	pthread_mutex_unlock(&utc.mutex);
}

void farlog_fault_set_utc(uint64_t utc_ns)
{
	static struct phc_set no_phcs;

	pthread_mutex_lock(&utc.mutex);
	if (utc_ns != 0 && !utc.is_played)
		utc.rate_q32 = clock_anchor.ns_per_tick_q32;
	utc.is_played = utc_ns != 0;
	if (utc.is_played)
		clock_publish(clock_ticks(), utc_ns, 0, 0);
	else
		__real_clock_sample(&no_phcs, utc.rate_q32, true);
	pthread_mutex_unlock(&utc.mutex);
}
