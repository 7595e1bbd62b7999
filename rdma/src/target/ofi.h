/* target/ofi.h -- what the parts of the target's end by libfabric share: the thread that makes progress, its
 * connections, and the acceptor. */
#ifndef FARLOG_TARGET_OFI_H
#define FARLOG_TARGET_OFI_H

#include "target/conn_limiter.h"
#include "target/target.h"
#include "wire/lib_ofi.h"
#include "wire/piece.h"

#define SLOT_COUNT 8u /* requests that a client may have on its way */
#define WORD_COUNT 8u /* words for a client that has no room for them yet */
#define CM_DATA_LEN_MAX 256u
#define DOMAIN_COUNT_MAX 64u

struct ofi_listener;

struct ofi_slot {
	struct ofi_conn *owner;
	struct far_message message;
};

struct ofi_conn {
	struct target_conn conn; /* first: the part that all transports have */
	struct ofi_conn *next;
	struct ofi_listener *listener;
	struct ofi_domain *domain;
	struct fid_ep *ep;
	struct fid_mr *keys[FAR_PIECE_COUNT]; /* of its pieces of the ring; NULL: it has none */
	struct fid_mr *slot_mr;               /* only where the provider wants local memory registered */
	uint64_t header_addr;
	uint64_t header_key;
	bool has_header;
	bool is_closed;       /* nothing is taken from it any more; the thread's */
	bool is_dead;         /* nor does anything of it reach the ring: key and endpoint are closed; the thread's */
	bool is_write_fenced; /* so, for those that revoke: under the lock */
	bool is_settled;      /* closed before the queue was last seen empty: no completion names its slots any more */
	bool is_left;         /* it is in no list of its ring's, or never was */
	unsigned word_count;
	struct {
		uint64_t off;
		uint64_t value;
	} words[WORD_COUNT];
	struct ofi_slot slots[SLOT_COUNT];
};

/* One tenant's. Lives until the listener is closed. */
struct ofi_domain {
	char tenant[FARLOG_STREAM_NAME_LEN];
	struct fid_domain *domain;
	struct fid_cq *cq;
	int fd;
};

struct order {
	struct order *next;
	struct ofi_conn *conn;
	bool is_done;
	int result;
	struct farlog_error *error;
};

/* A connection request, as the provider reported it. */
struct ofi_conn_request {
	struct ofi_conn_request *next;
	struct fi_info *info;
	size_t len;
	uint8_t data[CM_DATA_LEN_MAX];
};

/* The passive endpoint, with an event queue and a thread of its own: while the handshake of an unauthenticated
 * connection blocks that thread, data go on. */
struct ofi_acceptor {
	struct ofi_listener *listener;
	struct fid_pep *pep;
	struct fid_eq *eq;
	int eq_fd;
	int wakeup_fd; /* eventfd that ends its wait */
	bool is_running;
	pthread_t thread;
	struct conn_limiter limiter;
	struct ofi_conn_request *first; /* under the listener's lock, as is the count */
	struct ofi_conn_request **last;
	uint64_t request_count; /* looked at without the lock */
};

struct ofi_listener {
	struct farlog_target *target;
	const struct lib_ofi *lib;
	char provider[sizeof(((struct uri *)0)->provider)];
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_eq *eq;
	struct ofi_acceptor acceptor;
	int eq_fd;
	int wakeup_fd; /* eventfd that ends a doze */
	bool is_spinning;
	bool is_running;
	uint64_t has_answers; /* a ring's worker has made one */
	pthread_t thread;
	/* of orders, of connection requests, and of who adds a domain; never held across a call that takes the target's
	 * mutex */
	pthread_mutex_t lock;
	pthread_cond_t done;
	struct order *orders;
	uint64_t order_count; /* looked at without the lock */
	uint64_t is_stopping;
	uint64_t domain_count; /* released after the domain is complete */
	struct ofi_domain domains[DOMAIN_COUNT_MAX];
	struct ofi_conn *conns; /* the thread's */
	unsigned turns;
	uint64_t looks; /* at completions, the thread's */
	/* What the thread does when nothing wakes it: so long it sleeps, and lets pass between two ticks. */
	uint64_t doze_ns;
	uint64_t tick_ns;
};

/* ofi_conn_end -- by the thread. OK: the key is invalid, the endpoint gone; its ring hears of it from
 * ofi_conn_leave. Else the provider did not close one of them, which is tried again the next time. */
int ofi_conn_end(struct ofi_conn *conn, bool is_broken, struct farlog_error *error) FARLOG_MUST_CHECK;

/* ofi_conn_leave -- after the end, and when no completion names the connection any more: then it may be freed. */
void ofi_conn_leave(struct ofi_conn *conn);

/* ofi_conn_read_request -- what has come into a slot, which is posted again. */
void ofi_conn_read_request(struct ofi_slot *slot, size_t len);

/* ofi_conn_send_words -- what the client had no room for. */
void ofi_conn_send_words(struct ofi_conn *conn);

/* ofi_run_orders -- carry out revocations that other threads wait for. True: there were some. */
bool ofi_run_orders(struct ofi_listener *listener);

/* ofi_read_events -- who has gone. True: something happened. */
bool ofi_read_events(struct ofi_listener *listener);

/* ofi_accept_request -- accept or reject the oldest connection request, by the progress thread. True: there was one. */
bool ofi_accept_request(struct ofi_listener *listener);

/* ofi_acceptor_open -- listen at the listener's address, *port is the one that it got; 0 or -FI_E... ofi_acceptor_start
 * -- its thread; 0 or errno. ofi_acceptor_stop -- end that, where it runs. is_stopping is set already. */
int ofi_acceptor_open(struct ofi_acceptor *acceptor, uint16_t *port) FARLOG_MUST_CHECK;
int ofi_acceptor_start(struct ofi_acceptor *acceptor) FARLOG_MUST_CHECK;
void ofi_acceptor_stop(struct ofi_acceptor *acceptor);

/* ofi_acceptor_poll -- by the acceptor's thread, or when that has ended. True: something happened. */
bool ofi_acceptor_poll(struct ofi_acceptor *acceptor);

/* ofi_acceptor_reject -- a connection request, whose info is freed; of the refusal so many bytes. By any thread. */
void ofi_acceptor_reject(struct ofi_acceptor *acceptor, struct fi_info *info, const void *refusal, size_t len);

/* ofi_acceptor_pop_request -- the oldest connection request, to be freed; its info is the caller's. NULL: there is
 * none. */
struct ofi_conn_request *ofi_acceptor_pop_request(struct ofi_acceptor *acceptor) FARLOG_MUST_CHECK;

#endif
