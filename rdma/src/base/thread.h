/* base/thread.h -- threads of the library and the conditions that they wait for. */
#ifndef FARLOG_THREAD_H
#define FARLOG_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "farlog/farlog.h"

/* thread_start -- run loop(context) in a thread that handles no signals: those are the program's. But for its own
 * faults: the program's handler reports them, and blocked they would end the process without it. 0, or a positive
 * errno. */
int thread_start(pthread_t *thread, void *(*loop)(void *), void *context) FARLOG_MUST_CHECK;

/* condition_init -- a condition for condition_wait_until. */
void condition_init(pthread_cond_t *condition);

/* condition_wait_until -- as pthread_cond_wait, at most until the monotonic time until_ns. False: that has passed. */
bool condition_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t until_ns);

#endif
