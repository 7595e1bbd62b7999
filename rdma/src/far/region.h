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
	bool is_let_in;     /* once: before that there is nothing to leave */
	bool is_connecting; /* the thread runs */
	unsigned span_count;
	struct region_span spans[SPAN_COUNT_MAX];
	pthread_t connector;
	uint32_t wakeup; /* futex word of the connector */
	uint64_t is_closing;
	char text[URI_PATH_LEN_MAX];
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

/* far_try_take_link, far_take_link, far_give_link -- is_busy: nobody holds it longer than for a turn or a wait. */
static inline bool far_try_take_link(struct region_far *far)
{
	return __atomic_exchange_n(&far->is_busy, 1, __ATOMIC_ACQUIRE) == 0;
}

static inline void far_take_link(struct region_far *far)
{
	for (unsigned spins = 1; __builtin_expect(!far_try_take_link(far), 0); spins++)
		clock_pause(spins);
}

static inline void far_give_link(struct region_far *far)
{
	atomic_store_release(&far->is_busy, 0);
}

/* far_wake_connector -- the connector looks at the state again. */
void far_wake_connector(struct region_far *far);

#endif
