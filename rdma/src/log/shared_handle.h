/* log/shared_handle.h -- the inside of a shared writer for its own files: the append path, and the cold calls. */
#ifndef FARLOG_SHARED_HANDLE_H
#define FARLOG_SHARED_HANDLE_H

#include "log/shared.h"
#include "log/writer.h"

#define PENDING_COUNT_MAX 128u /* twice the threads that a shared writer is for */
#define PENDING_CLAIMED 2u     /* in `mark`: being filled or emptied; other marks are odd */

/* A turn that a thread has left. */
struct pending_publish {
	uint64_t mark; /* 0 free, PENDING_CLAIMED, or the LSN at which its turn comes, and 1 */
	uint64_t end_lsn;
	uint64_t start_ticks;
};

struct farlog_shared {
	struct farlog_writer *writer;
	uint64_t reserve __attribute__((aligned(64))); /* lock word: 0 free */
	uint64_t published_lsn __attribute__((aligned(64)));
	uint64_t durable_lsn __attribute__((aligned(64)));
	uint64_t flush __attribute__((aligned(64)));   /* lock word of the leader */
	uint64_t staging __attribute__((aligned(64))); /* lock word of the one buffer for large records */
	uint64_t user_count __attribute__((aligned(64)));
	uint64_t is_closing;
	uint64_t is_failed;
	uint64_t pending_count;
	struct pending_publish pending[PENDING_COUNT_MAX];
	struct shared_beat *beat; /* NULL = no heartbeats by themselves */
	uint32_t wakeup;          /* futex word: raised when durable_lsn moves or the region fails */
};

/* shared_sleep -- for the shortest time that gives the core away. */
void shared_sleep(void);

/* deadline_has_passed -- of a deadline that begins when it is first asked for, unless it has begun. */
bool deadline_has_passed(struct deadline *deadline);

/* shared_pause -- between two looks at a word that another thread will change, this one the spins-th: spin, then yield,
 * then sleep. False: the deadline has passed, and what is added to it for other threads. */
bool shared_pause(unsigned spins, struct deadline *deadline);

/* shared_lock -- false: the deadline has passed. */
bool shared_lock(uint64_t *word, struct deadline *deadline) FARLOG_MUST_CHECK;

static inline void shared_unlock(uint64_t *word)
{
	atomic_store_release(word, 0);
}

/* shared_wake_waiters -- wake who waits for durable_lsn or for `flush`. */
void shared_wake_waiters(struct farlog_shared *shared);

/* shared_publish_pending -- the turns that were left and have come. */
void shared_publish_pending(struct farlog_shared *shared);

static inline bool shared_enter(struct farlog_shared *shared)
{
	atomic_add(&shared->user_count, 1);
	/* close stores is_closing, then looks at user_count: one of us sees the other */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!atomic_load_acquire(&shared->is_closing))
		return true;
	atomic_add(&shared->user_count, (uint64_t)-1);
	return false;
}

static inline void shared_leave(struct farlog_shared *shared)
{
	__atomic_fetch_sub(&shared->user_count, 1, __ATOMIC_RELEASE); /* all we did is done before close may free it */
}

#endif
