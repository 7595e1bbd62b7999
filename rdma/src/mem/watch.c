/* mem/watch.c -- see mem/watch.h. */
#include "mem/watch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "mem/watch_look.h"

#define LOOK_INTERVAL_NS 100000000

/* The thread that looks at the names on one file system: one that hangs there holds up nobody who is elsewhere, nor the
 * clock. */
struct name_looker {
	struct name_looker *next;
	dev_t device;
	pthread_t thread;
	bool is_stopping;
	struct name_watch *watches;
	const struct name_watch *looking; /* without the mutex; NULL: at none. It stays in the list for as long */
	bool is_awaited;                  /* somebody waits for that look to end */
};

static struct {
	/* guards all of this, the lookers and the lists of watches; never held while a file system is asked */
	pthread_mutex_t mutex;
	pthread_cond_t changed; /* on CLOCK_MONOTONIC: a looker is to end, or has looked at one */
	struct name_looker *lookers;
} room = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---------------------------------------------------------------- the threads */

/* look_around -- at each watch once, under the mutex but for the look itself: others come and go meanwhile. */
static void look_around(struct name_looker *looker)
{
	for (struct name_watch *watch = looker->watches; watch != NULL; watch = watch->next) {
		looker->looking = watch;
		pthread_mutex_unlock(&room.mutex);
		name_watch_look(watch);
		pthread_mutex_lock(&room.mutex);
		looker->looking = NULL;
		if (looker->is_awaited)
			pthread_cond_broadcast(&room.changed);
		looker->is_awaited = false;
	}
}

static void *look_again_and_again(void *of)
{
	struct name_looker *looker = of;

	pthread_mutex_lock(&room.mutex);
	while (!looker->is_stopping) {
		uint64_t until_ns = clock_after_ns(LOOK_INTERVAL_NS);
		bool is_signalled = true;

		while (!looker->is_stopping && is_signalled)
			is_signalled = condition_wait_until(&room.changed, &room.mutex, until_ns);
		look_around(looker);
	}
	pthread_mutex_unlock(&room.mutex);
	return NULL;
}

static void before_fork(void)
{
	pthread_mutex_lock(&room.mutex);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&room.mutex);
}

/* begin_child -- it has none of the threads, and watches nothing that its parent had open. */
static void begin_child(void)
{
	pthread_mutex_init(&room.mutex, NULL);
	condition_init(&room.changed);
	room.lookers = NULL;
}

static void make_once(void)
{
	condition_init(&room.changed);
	pthread_atfork(before_fork, after_fork, begin_child);
}

static struct name_looker *find_looker(dev_t device)
{
	struct name_looker *looker = room.lookers;

	while (looker != NULL && looker->device != device)
		looker = looker->next;
	return looker;
}

/* start_looker -- NULL: out of memory or threads. */
static struct name_looker *start_looker(dev_t device)
{
	struct name_looker *looker = calloc(1, sizeof(*looker));

	if (looker == NULL)
		return NULL;
	looker->device = device;
	if (thread_start(&looker->thread, look_again_and_again, looker) != 0) {
		free(looker);
		return NULL;
	}
	looker->next = room.lookers;
	room.lookers = looker;
	return looker;
}

/* take_out -- the watch, once nobody looks at it, and the looker that has no other one. NULL: that goes on, or the
 * watch is its parent's. */
static struct name_looker *take_out(struct name_watch *watch)
{
	struct name_looker *looker = find_looker(watch->opened.st_dev);
	struct name_watch **at;

	if (looker == NULL)
		return NULL;
	while (looker->looking == watch) {
		looker->is_awaited = true;
		pthread_cond_wait(&room.changed, &room.mutex);
	}
	for (at = &looker->watches; *at != NULL && *at != watch; at = &(*at)->next)
		;
	if (*at == NULL)
		return NULL;
	*at = watch->next;
	if (looker->watches != NULL)
		return NULL;
	for (struct name_looker **link = &room.lookers; *link != NULL; link = &(*link)->next)
		if (*link == looker) {
			*link = looker->next;
			break;
		}
	looker->is_stopping = true;
	pthread_cond_broadcast(&room.changed);
	return looker;
}

/* ---------------------------------------------------------------- of a region */

void name_watch_prepare(struct name_watch *watch, int fd, const char *path)
{
	struct stat named;

	watch->fd = fd;
	watch->is_prepared = fstat(fd, &watch->opened) == 0 && S_ISREG(watch->opened.st_mode);
	if (watch->is_prepared && stat(path, &named) == 0 && name_watch_is_same(&named, &watch->opened))
		watch->path = realpath(path, NULL); /* the process may go to another directory */
}

void name_watch_start(struct name_watch *watch, struct region *region)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct name_looker *looker;

	if (!watch->is_prepared || watch->region != NULL)
		return;
	pthread_once(&once, make_once);
	pthread_mutex_lock(&room.mutex);
	looker = find_looker(watch->opened.st_dev);
	if (looker == NULL)
		looker = start_looker(watch->opened.st_dev);
	if (looker != NULL) {
		watch->region = region;
		watch->next = looker->watches;
		looker->watches = watch;
	}
	pthread_mutex_unlock(&room.mutex);
}

void name_watch_stop(struct name_watch *watch)
{
	struct name_looker *ending = NULL;

	if (watch->region != NULL) {
		pthread_mutex_lock(&room.mutex);
		ending = take_out(watch);
		pthread_mutex_unlock(&room.mutex);
	}
	if (ending != NULL) {
		pthread_join(ending->thread, NULL);
		free(ending);
	}
	free(watch->path);
}
