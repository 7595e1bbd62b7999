/* log/shared_lock.c -- how the threads of a shared writer wait for one another. */
#include <sched.h>
#include <time.h>

#include "log/shared_handle.h"

#define SPIN_COUNT 500u
#define YIELD_COUNT 50u

void shared_sleep(void)
{
	nanosleep(&(struct timespec){0, CLOCK_NAP_NS}, NULL);
}

/* spin_or_sleep -- the spins-th look at a word that another thread will change soon. Naps come late, because two
 * threads that take turns and sleep would find each other asleep at every record for as long as they run
 * (measured: 62 us a record). */
static void spin_or_sleep(unsigned spins)
{
	if (spins % SPIN_COUNT != 0)
		cpu_relax();
	else if (spins / SPIN_COUNT <= YIELD_COUNT)
		sched_yield(); /* the thread that is waited for may want this core */
	else
		shared_sleep();
}

bool deadline_has_passed(struct deadline *deadline)
{
	if (deadline->at_ns == 0)
		deadline->at_ns = clock_after_ns(deadline->duration_ns);
	return clock_monotonic_ns() >= deadline->at_ns;
}

bool shared_pause(unsigned spins, struct deadline *deadline)
{
	if (spins % SPIN_COUNT == 0 && deadline_has_passed(deadline) &&
		clock_monotonic_ns() - deadline->at_ns >= deadline->turn_ns)
		return false;
	spin_or_sleep(spins);
	return true;
}

/* shared_lock -- what is guarded is a few dozen instructions; a holder that lost its core is waited for politely.
 * False: the deadline has passed. */
bool shared_lock(uint64_t *word, struct deadline *deadline)
{
	for (unsigned spins = 1;; spins++) {
		if (atomic_load_relaxed(word) == 0 && atomic_swap_if(word, 0, 1))
			return true;
		if (!shared_pause(spins, deadline))
			return false;
	}
}
