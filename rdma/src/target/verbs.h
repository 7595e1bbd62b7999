/* target/verbs.h -- the target's end of connections by verbs: what its files share.
 *
 * target/verbs.c listens and has the thread; target/verbs_conn.c is a connection and its end, target/verbs_key.c its
 * keys; target/verbs_ring.c registers rings. All that is not said to be under the lock is the thread's. */
#ifndef FARLOG_TARGET_VERBS_H
#define FARLOG_TARGET_VERBS_H

#include <pthread.h>

#include "mem/dmabuf.h"
#include "target/target.h"
#include "wire/piece.h"
#include "wire/verbs_queue.h"

#define VERBS_DEVICE_COUNT_MAX 8
#define VERBS_RECV_COUNT 16u /* requests that a client may have on its way */
#define VERBS_WORDS_MAX 8    /* words for a client that has no room for them yet */

/* A tenant's protection domain on one device: a key of one tenant opens nothing of another's. Under the lock. */
struct verbs_domain {
	struct verbs_domain *next;
	unsigned device; /* index */
	unsigned use_count;
	struct ibv_pd *pd;
	char tenant[FARLOG_STREAM_NAME_LEN];
};

/* target_ring's key: its registration on each device. */
struct verbs_exposure {
	struct region_dmabuf *dmabuf; /* of a BAR, which can be registered in no other way; NULL: not one */
	uint64_t dmabuf_off;          /* of the ring in it */
	struct verbs_on_device {
		struct verbs_domain *domain; /* NULL: not on this device */
		bool is_dmabuf;              /* it is of the dma-buf, not of the mapping */
		struct verbs_registration {
			struct ibv_mr *mr;
			/* what a client's key may have: the flushes with which it could be registered, WRITE, READ */
			unsigned access;
		} pieces[FAR_PIECE_COUNT];
	} on[VERBS_DEVICE_COUNT_MAX];
};

/* A client's, to a piece of its ring. */
struct verbs_key {
	struct ibv_mw *window; /* what the client has a key to */
	struct ibv_mr *own_mr; /* or this, where there are no windows */
	bool is_bound;
	bool is_invalidated; /* the window, by a request that was carried out */
};

struct verbs_host {
	struct verbs_device device;
	struct ibv_comp_channel *completions;
};

struct verbs_listener {
	struct farlog_target *target;
	const struct lib_verbs *lib;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct verbs_host hosts[VERBS_DEVICE_COUNT_MAX];
	unsigned host_count;
	struct verbs_conn *conns;
	pthread_t thread;
	pthread_mutex_t lock; /* never held across a call that takes the target's mutex or a wait for the device */
	pthread_cond_t moved; /* a connection is dead, or an order has been tried */
	struct verbs_domain *domains;
	uint16_t tos;  /* as struct uri has it */
	int wakeup_fd; /* eventfd: there are orders, or it is time to stop */
	uint64_t has_orders;
	uint64_t has_answers; /* a ring's worker has made one */
	uint64_t is_stopping;
	bool is_running;
	bool is_spinning;
};

struct verbs_conn {
	struct target_conn conn; /* first: the part that all transports have */
	struct verbs_conn *next;
	struct verbs_listener *listener;
	struct verbs_host *host;
	struct rdma_cm_id *id;
	struct verbs_queue queue;
	struct verbs_key keys[FAR_PIECE_COUNT];
	bool is_armed;    /* the next completion makes an event */
	bool is_admitted; /* it is its ring's */
	bool is_denied;   /* counted */
	bool is_goodbye;  /* the client went, or asked to; that it is disconnected tells it that its role is free */
	bool has_header;
	bool wants_events;
	uint64_t looks;       /* at its completions */
	uint64_t posted_seen; /* by verbs_conn_ask_alive */
	uint64_t asked_at_ns;
	uint64_t header_addr;
	uint32_t header_key;
	unsigned word_count;
	struct {
		uint64_t off;
		uint64_t value;
	} words[VERBS_WORDS_MAX];
	bool is_ordered;               /* under the lock: another thread revokes it */
	bool is_down;                  /* it has been ended: nothing more is taken from it */
	bool is_dead;                  /* under the lock: nothing of it reaches the ring any more */
	struct farlog_error end_error; /* under the lock: or else what the device did not do */
};

/* verbs_expose, verbs_withdraw -- of target_transport. */
int verbs_expose(void *listener, struct target_ring *ring, void **key, struct farlog_error *error) FARLOG_MUST_CHECK;
void verbs_withdraw(void *listener, struct target_ring *ring, void *key);

/* verbs_expose_mr -- register a piece of a ring that is exposed, once more, for these rights. NULL: errno. */
struct ibv_mr *verbs_expose_mr(const struct verbs_listener *listener, const struct target_ring *ring, unsigned device,
	enum far_piece piece, unsigned access) FARLOG_MUST_CHECK;

/* verbs_keys_make -- by windows where the queue pair has them, else by registrations. 0; else the queue pair is
 * useless, and what was made is to be freed. */
int verbs_keys_make(struct verbs_conn *conn) FARLOG_MUST_CHECK;

/* verbs_keys_get -- for the client; 0 = it has none to this piece. verbs_keys_access -- what that key allows,
 * IBV_ACCESS_...; 0 = it gets none. */
uint32_t verbs_keys_get(const struct verbs_conn *conn, enum far_piece piece);
unsigned verbs_keys_access(const struct verbs_conn *conn, enum far_piece piece);

/* verbs_keys_invalidate -- nothing that comes by these keys begins any more. A queue pair that is in error already
 * cannot do it; there the device refuses all that comes for it, and the keys are good for no other.
 * verbs_keys_are_invalid -- it has done it, for all of them. */
void verbs_keys_invalidate(struct verbs_conn *conn);
bool verbs_keys_are_invalid(const struct verbs_conn *conn);

/* verbs_keys_free -- what of them can be freed. 0; or an errno and *what the device did not do: then one may still open
 * its piece. A window that is left opens to whoever is given its queue pair's number next; a registration is good for
 * every queue pair of the tenant. */
int verbs_keys_free(struct verbs_conn *conn, const char **what) FARLOG_MUST_CHECK;

/* verbs_conn_admit -- a request to connect: admit and accept it, or refuse. The connection is in the listener's list
 * either way. */
void verbs_conn_admit(struct verbs_listener *listener, struct rdma_cm_event *event);

/* verbs_conn_progress -- take what has come. True: something had. */
bool verbs_conn_progress(struct verbs_conn *conn);

/* verbs_conn_ask_alive -- write a word to a client to whom nothing was written for a second: when its host is gone, the
 * retries of that write run out and the connection ends, which frees its role. */
void verbs_conn_ask_alive(struct verbs_conn *conn, uint64_t now_ns);

/* verbs_conn_arm -- have the next completion make an event; look once more after this. */
void verbs_conn_arm(struct verbs_conn *conn);

/* verbs_conn_end -- for good. is_broken: by an error, not by a goodbye. Of one that is down it tries again what the
 * device did not do, and is harmless when it is dead. */
void verbs_conn_end(struct verbs_conn *conn, bool is_broken);

/* verbs_conn_run_order -- verbs_conn_end for those who wait in revoke. */
void verbs_conn_run_order(struct verbs_conn *conn);

/* verbs_conn_release -- true: it is down and unlinked from its ring, and may be forgotten. While its key may live
 * it is kept, but not by a target that closes. */
bool verbs_conn_release(struct verbs_conn *conn);

/* verbs_conn_deny -- count, once, that the device refused what the peer did. */
void verbs_conn_deny(struct verbs_conn *conn);

/* verbs_conn_is_down -- by the thread. */
static inline bool verbs_conn_is_down(const struct verbs_conn *conn)
{
	return conn->is_down;
}

#endif
