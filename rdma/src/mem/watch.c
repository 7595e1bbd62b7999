/* mem/watch.c -- see mem/watch.h. */
#include "mem/watch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "mem/watch_check.h"

#define CHECK_INTERVAL_NS 100000000

/* The thread that checks the paths on one file system: if that hangs, other file systems are not delayed. */
struct name_checker {
	struct name_checker *next;
	dev_t device;
	pthread_t thread;
	bool is_stopping;
	struct name_watch *watches;
	const struct name_watch *checking; /* checked now, with the mutex released; NULL: none */
	bool is_awaited;                   /* a thread waits for that check to end */
};

static struct {
	/* guards all of this, the checkers and the lists of watches; never held during a stat call */
	pthread_mutex_t mutex;
	pthread_cond_t changed; /* on CLOCK_MONOTONIC: a checker shall stop, or has checked one */
	struct name_checker *checkers;
} registry = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---------------------------------------------------------------- the threads */

/* check_all_names -- check each watch once. Called with the mutex held; releases it for the check, so that watches
 * may be added and removed meanwhile. */
static void check_all_names(struct name_checker *checker)
{
	for (struct name_watch *watch = checker->watches; watch != NULL; watch = watch->next) {
		checker->checking = watch;
		pthread_mutex_unlock(&registry.mutex);
		name_watch_check(watch);
		pthread_mutex_lock(&registry.mutex);
		checker->checking = NULL;
		if (checker->is_awaited)
			pthread_cond_broadcast(&registry.changed);
		checker->is_awaited = false;
	}
}

static void *run_checker(void *of)
{
	struct name_checker *checker = of;

	pthread_mutex_lock(&registry.mutex);
	while (!checker->is_stopping) {
		uint64_t until_ns = clock_after_ns(CHECK_INTERVAL_NS);
		bool is_signalled = true;

		while (!checker->is_stopping && is_signalled)
			is_signalled = condition_wait_until(&registry.changed, &registry.mutex, until_ns);
		check_all_names(checker);
	}
	pthread_mutex_unlock(&registry.mutex);
	return NULL;
}

static void before_fork(void)
{
	pthread_mutex_lock(&registry.mutex);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&registry.mutex);
}

/* reset_in_child -- a forked child has none of the threads, and watches none of its parent's files. */
static void reset_in_child(void)
{
	pthread_mutex_init(&registry.mutex, NULL);
	condition_init(&registry.changed);
	registry.checkers = NULL;
}

static void init_once(void)
{
	condition_init(&registry.changed);
	pthread_atfork(before_fork, after_fork, reset_in_child);
}

static struct name_checker *find_checker(dev_t device)
{
	struct name_checker *checker = registry.checkers;

	while (checker != NULL && checker->device != device)
		checker = checker->next;
	return checker;
}

/* start_checker -- NULL: out of memory or threads. */
static struct name_checker *start_checker(dev_t device)
{
	struct name_checker *checker = calloc(1, sizeof(*checker));

	if (checker == NULL)
		return NULL;
	checker->device = device;
	if (thread_start(&checker->thread, run_checker, checker) != 0) {
		free(checker);
		return NULL;
	}
	checker->next = registry.checkers;
	registry.checkers = checker;
	return checker;
}

/* remove_watch -- remove the watch when its check has ended. Returns its checker if it has no other watch, to be joined
 * and freed; else NULL, also in a forked child. */
static struct name_checker *remove_watch(struct name_watch *watch)
{
	struct name_checker *checker = find_checker(watch->opened.st_dev);
	struct name_watch **at;

	if (checker == NULL)
		return NULL;
	while (checker->checking == watch) {
		checker->is_awaited = true;
		pthread_cond_wait(&registry.changed, &registry.mutex);
	}
	for (at = &checker->watches; *at != NULL && *at != watch; at = &(*at)->next)
		;
	if (*at == NULL)
		return NULL;
	*at = watch->next;
	if (checker->watches != NULL)
		return NULL;
	for (struct name_checker **link = &registry.checkers; *link != NULL; link = &(*link)->next)
		if (*link == checker) {
			*link = checker->next;
			break;
		}
	checker->is_stopping = true;
	pthread_cond_broadcast(&registry.changed);
	return checker;
}

/* ---------------------------------------------------------------- of a region */

void name_watch_prepare(struct name_watch *watch, int fd, const char *path)
{
	struct stat named;

	watch->fd = fd;
	watch->is_prepared = fstat(fd, &watch->opened) == 0 && S_ISREG(watch->opened.st_mode);
	if (watch->is_prepared && stat(path, &named) == 0 && name_watch_is_same_file(&named, &watch->opened))
		watch->path = realpath(path, NULL); /* the process may change its directory */
}

void name_watch_start(struct name_watch *watch, struct region *region)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct name_checker *checker;

	if (!watch->is_prepared || watch->region != NULL)
		return;
	pthread_once(&once, init_once);
	pthread_mutex_lock(&registry.mutex);
	checker = find_checker(watch->opened.st_dev);
	if (checker == NULL)
		checker = start_checker(watch->opened.st_dev);
	if (checker != NULL) {
		watch->region = region;
		watch->next = checker->watches;
		checker->watches = watch;
	}
	pthread_mutex_unlock(&registry.mutex);
}

void name_watch_stop(struct name_watch *watch)
{
	struct name_checker *stopped = NULL;

	if (watch->region != NULL) {
		pthread_mutex_lock(&registry.mutex);
		stopped = remove_watch(watch);
		pthread_mutex_unlock(&registry.mutex);
	}
	if (stopped != NULL) {
		pthread_join(stopped->thread, NULL);
		free(stopped);
	}
	free(watch->path);
}
