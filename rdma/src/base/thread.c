/* base/thread.c -- see base/thread.h. */
#include "base/thread.h"

#include <signal.h>
#include <time.h>

#define NS_PER_S 1000000000u

int thread_start(pthread_t *thread, void *(*loop)(void *), void *context)
{
	static const int faults[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};
	sigset_t sent, before;
	int failure;

	sigfillset(&sent);
	for (unsigned i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(&sent, faults[i]);
	pthread_sigmask(SIG_BLOCK, &sent, &before);
	failure = pthread_create(thread, NULL, loop, context);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return failure;
}

void condition_init(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
}

bool condition_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t until_ns)
{
	struct timespec until = {(time_t)(until_ns / NS_PER_S), (long)(until_ns % NS_PER_S)};

	return pthread_cond_timedwait(condition, mutex, &until) == 0;
}
