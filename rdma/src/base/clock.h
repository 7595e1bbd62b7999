/* base/clock.h -- time without a system call: the processor's counter, anchored to UTC by a background thread.
 *
 * Every 100 ms the thread reads counter and CLOCK_REALTIME together, asks the kernel's clock discipline for its error
 * bound (adjtimex(2) maxerror), adds what hardware clocks disagree (base/phc.h; FARLOG_CLOCK_PHC) and publishes.
 * Between two anchors time is the anchor plus the counter's progress at the measured rate; how far that was off at the
 * last anchor is added to the bound. A step of the clock is seen at the next anchor. */
#ifndef FARLOG_CLOCK_H
#define FARLOG_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomics.h"
#include "farlog/farlog.h"

/* One set of anchor values; a reader takes it whole by the sequence counter around it. */
struct clock_anchor {
	uint64_t version; /* odd while the sampler writes */
	uint64_t ticks;
	uint64_t utc_ns;
	uint64_t ns_per_tick_q32; /* 32.32 fixed point */
	uint64_t error_ns;        /* UINT32_MAX = unknown */
};

extern struct clock_anchor clock_anchor;

static inline uint64_t clock_ticks(void)
{
#if defined(__x86_64__)
	/* without <x86intrin.h>, whose 60,000 lines were the better half of the work of compiling most files */
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
#error "no processor counter known for this architecture"
#endif
}

/* clock_start, clock_stop -- one sampler a process, counted. clock_start returns after the first anchor; 0 or errno. */
int clock_start(void) FARLOG_MUST_CHECK;
void clock_stop(void);

/* Who has something to do at each sample: by the sampler's thread, so that it waits for nothing. The caller of
 * clock_add_task has called clock_start and not yet clock_stop. */
struct clock_task {
	void (*turn)(void *context);
	void *context;
	struct clock_task *next; /* the clock's */
};

/* clock_add_task, clock_remove_task -- a turn every 100 ms; when clock_remove_task returns none is under way, and none
 * comes any more. */
void clock_add_task(struct clock_task *guest);
void clock_remove_task(struct clock_task *guest);

struct clock_reading {
	uint64_t utc_ns;
	uint32_t error_ns; /* bound on |utc_ns - UTC|; UINT32_MAX = unknown */
};

/* clock_read -- UTC at `ticks`. Wait-free in practice: retries only while the sampler is in the middle of its five
 * stores. */
static inline void clock_read(uint64_t ticks, struct clock_reading *reading)
{
	uint64_t version;
	uint64_t anchor_ticks;
	uint64_t utc_ns;
	uint64_t rate_q32;
	uint64_t error_ns;
	int64_t elapsed;

	do {
		version = atomic_load_acquire(&clock_anchor.version);
		anchor_ticks = atomic_load_relaxed(&clock_anchor.ticks);
		utc_ns = atomic_load_relaxed(&clock_anchor.utc_ns);
		rate_q32 = atomic_load_relaxed(&clock_anchor.ns_per_tick_q32);
		error_ns = atomic_load_relaxed(&clock_anchor.error_ns);
		__atomic_thread_fence(__ATOMIC_ACQUIRE); /* the loads above are done before the version is looked at again */
	} while ((version & 1) || version != atomic_load_relaxed(&clock_anchor.version));
	elapsed = (int64_t)(ticks - anchor_ticks);
	reading->utc_ns = utc_ns + (uint64_t)(((__int128)elapsed * (int64_t)rate_q32) >> 32);
	reading->error_ns = (uint32_t)error_ns;
}

/* clock_elapsed_ns -- ticks to nanoseconds by the present rate. */
static inline uint64_t clock_elapsed_ns(uint64_t ticks)
{
	return (uint64_t)(((unsigned __int128)ticks * atomic_load_relaxed(&clock_anchor.ns_per_tick_q32)) >> 32);
}

/* clock_ticks_of -- nanoseconds to ticks by the present rate; UINT64_MAX, never, while time stands still. */
static inline uint64_t clock_ticks_of(uint64_t duration_ns)
{
	uint64_t rate_q32 = atomic_load_relaxed(&clock_anchor.ns_per_tick_q32);

	return rate_q32 == 0 ? UINT64_MAX : (uint64_t)(((unsigned __int128)duration_ns << 32) / rate_q32);
}

/* clock_monotonic_ns -- for deadlines, off the fast path (vDSO). */
uint64_t clock_monotonic_ns(void);

/* How long a thread sleeps that gives its core away. At a real-time priority nothing is added to it, and 1 ns is over
 * before the core has been given away. */
#define CLOCK_NAP_NS 10000

/* clock_pause -- the spins-th fruitless look at a lock word that is held for a few dozen instructions. Its holder
 * may have lost its core to us, and at a real-time priority gets it back only when we sleep. No priority-inheriting
 * futex: its word is the holder's thread id, to be kept right over fork and in each language's threads, and it takes a
 * second locked instruction, to give the lock back, on each append; without it a thread of a priority between the two
 * can keep the holder from its core. */
void clock_pause(unsigned spins);

/* clock_poll -- sleep until poll(2) has something for one of the descriptors, for timeout_ns at most. True: the time is
 * over. */
struct pollfd;
bool clock_poll(struct pollfd *fds, unsigned count, uint64_t timeout_ns);

/* clock_after_ns -- the monotonic time that is duration_ns from now; UINT64_MAX, never, where the sum does not fit. */
static inline uint64_t clock_after_ns(uint64_t duration_ns)
{
	uint64_t now_ns = clock_monotonic_ns();

	return duration_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + duration_ns;
}

#endif
