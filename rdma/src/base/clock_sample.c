/* base/clock_sample.c -- see base/clock_sample.h. */
#include "base/clock_sample.h"

#include <sys/timex.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "base/phc.h"

#define ERROR_UNKNOWN UINT32_MAX
#define READ_TRIES 5

static uint64_t timespec_ns(const struct timespec *time)
{
	return (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
}

void clock_read_pair(clockid_t id, uint64_t *ticks, uint64_t *time_ns, uint64_t *width_ticks)
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
static uint64_t discipline_error_ns(struct phc_set *phcs)
{
	struct timex state = {.modes = 0};
	int status = adjtimex(&state);
	uint64_t phc_ns = phc_error_ns(phcs, state.tai);

	if (status < 0 || status == TIME_ERROR || (state.status & STA_UNSYNC) || phc_ns == PHC_UNKNOWN)
		return ERROR_UNKNOWN;
	return (uint64_t)state.maxerror * 1000 + phc_ns;
}

void clock_publish(uint64_t ticks, uint64_t utc_ns, uint64_t rate_q32, uint64_t error_ns)
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

void clock_sample(struct phc_set *phcs, uint64_t rate_q32, bool is_first)
{
	struct clock_reading predicted;
	uint64_t ticks;
	uint64_t utc_ns;
	uint64_t width_ticks;
	uint64_t error_ns = discipline_error_ns(phcs);
	uint64_t drift_ns = 0;

	clock_read_pair(CLOCK_REALTIME, &ticks, &utc_ns, &width_ticks);
	if (!is_first) {
		clock_read(ticks, &predicted);
		drift_ns = predicted.utc_ns > utc_ns ? predicted.utc_ns - utc_ns : utc_ns - predicted.utc_ns;
	}
	if (error_ns != ERROR_UNKNOWN)
		error_ns += drift_ns + ((width_ticks * (rate_q32 >> 1)) >> 32);
	clock_publish(ticks, utc_ns, rate_q32, error_ns);
}
