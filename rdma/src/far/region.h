/* far/region.h -- a region on another host, for the two files that make one: far/region.c, what it does while it is
 * open, and far/open.c, how it is opened and how its connection comes back. */
#ifndef FARLOG_FAR_REGION_H
#define FARLOG_FAR_REGION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "far/open.h"

#define SPAN_COUNT_MAX 2
#define FETCH_LEN_MAX (1u << 20)
/* with a target that answers nothing: of cold calls, and of a persist before the link counts as broken */
#define PATIENCE_NS 5000000000u
#define RETRY_FIRST_NS 1000000u

/* Who may use the link: the caller in UP, the connector in BROKEN. */
enum far_state {
	FAR_UP = 0,
	FAR_BROKEN = 1,  /* the caller saw it break; the connector is at work */
	FAR_BACK = 2,    /* connected again; the caller sends what is outstanding and goes on */
	FAR_REFUSED = 3, /* fenced: the fence word of the copy says so */
	FAR_FAILED = 4,  /* it will never be that ring again, or not this client's */
};

struct region_far {
	struct region region;
	struct far_link *link;
	const struct far_transport *transport;
	struct region_renewal *renewal; /* NULL: nobody has another token */
	struct far_hello hello;
	uint64_t state;   /* enum far_state */
	int verdict;      /* with FAR_FAILED: what every call says from now on. Stored before the state */
	uint64_t is_torn; /* with FAR_BROKEN: its connection is down */
	uint64_t is_busy; /* the link is in use: in a shared writer one thread may flush while another looks for credit */
	uint64_t tag_asked;
	uint64_t tag_watched; /* on its way since watched_ns, or a little longer */
	uint64_t watched_ns;
	uint64_t miss_count;
	uint64_t read_tag;
	uint64_t fence_until_ns;   /* until then a target that has fenced us is asked where our log ended; 0: it has not */
	uint64_t opening_until_ns; /* until then a writer's cold calls are tried again */
	uint32_t request_tag;
	uint8_t role;
	bool was_admitted;  /* once: before that there is nothing to leave */
	bool is_connecting; /* the thread runs */
	unsigned span_count;
	struct region_span spans[SPAN_COUNT_MAX];
	pthread_t connector;
	uint32_t wakeup; /* futex word of the connector */
	uint64_t is_closing;
	char text[URI_PATH_LEN_MAX];
	/* Of the thread that sleeps in `wait`, of which there is one at a time. It has not taken the link; who has, and
	 * finds what it sleeps for, wakes it. Stored by who has the link, but for the zero behind a sleep. */
	uint64_t is_asleep;
	struct far_snapshot asleep_snapshot; /* what it had seen */
	int wakeup_fd;                       /* eventfd(2); -1: a link that spins */
};

/* With link operations that wait for events, and with those that spin. */
extern const struct region_ops far_waiting_ops;
extern const struct region_ops far_spinning_ops;

static inline struct region_far *far_of(struct region *region)
{
	return (struct region_far *)region;
}

/* far_close -- at any step of opening, too. */
void far_close(struct region *region);

/* far_wake_sleeper -- the link is taken: wake the thread that sleeps in `wait`, if what it sleeps for has come, or the
 * link has broken. */
void far_wake_sleeper(struct region_far *far);
void far_close_wakeup(struct region_far *far);

/* far_try_lock_link, far_lock_link, far_unlock_link -- is_busy. Nobody sleeps with it: it is held for a turn, for
 * posting a persist, a READ, a request or a few words, and to get ready for a sleep. Each of these is a bounded number
 * of calls into the provider, none of which waits for the target or the network. So taking it needs no deadline. */
static inline bool far_try_lock_link(struct region_far *far)
{
	return __atomic_exchange_n(&far->is_busy, 1, __ATOMIC_ACQUIRE) == 0;
}

static inline void far_lock_link(struct region_far *far)
{
	for (unsigned spins = 1; __builtin_expect(!far_try_lock_link(far), 0); spins++)
		clock_pause(spins);
}

static inline void far_unlock_link(struct region_far *far)
{
	if (__builtin_expect(atomic_load_relaxed(&far->is_asleep), 0))
		far_wake_sleeper(far);
	atomic_store_release(&far->is_busy, 0);
}

/* far_break_link -- the caller's last act on a broken link. far_advance -- progress of whatever state the link is in.
 * far_break_link_if_silent -- a target whose host died without a word acknowledged our bytes to the last and sends none
 * itself: no transport ever finds that out. A persist is on its way. The caller of these has taken the link. */
void far_break_link(struct region_far *far);
void far_advance(struct region_far *far);
void far_break_link_if_silent(struct region_far *far);

/* far_wait -- for the persist under way. Without one there is nothing to wait for: poll says so. */
void far_wait(struct region *region, uint64_t timeout_ns);

/* What a cold call waits for. */
struct far_await {
	bool (*is_done)(const struct region_far *far, uint64_t tag);
	uint64_t tag;
	uint64_t until_ns; /* far_await fills in the rest */
	uint64_t spin_until_ns;
};

/* far_await -- for cold calls: turn until `is_done` says so. OK, or IO when the link broke, or patience ran out, or
 * limit_ns came (0: none). Another thread may take what it sleeps for, so a nap is short. */
int far_await(struct region_far *far, struct far_await wait, uint64_t limit_ns) FARLOG_MUST_CHECK;

/* far_wake_connector -- the connector looks at the state again. */
void far_wake_connector(struct region_far *far);

#endif
