/* target_ofi.h -- what the two halves of the target's end by libfabric share: the thread that makes progress, and its connections. */
#ifndef FARLOG_TARGET_OFI_H
#define FARLOG_TARGET_OFI_H

#include "lib_ofi.h"
#include "target.h"

#define SLOT_COUNT 8u       /* requests that a client may have on its way */
#define WORD_COUNT 8u       /* words for a client that has no room for them yet */
#define CM_DATA_LEN_MAX 256u
#define DOMAIN_COUNT_MAX 64u

struct ofi_listener;

struct ofi_slot {
	struct ofi_conn *owner;
	struct far_request request;
};

struct ofi_conn {
	struct target_conn conn; /* first: target.c's */
	struct ofi_conn *next;
	struct ofi_listener *listener;
	struct ofi_domain *domain;
	struct fid_ep *ep;
	struct fid_mr *data_mr;
	struct fid_mr *slot_mr; /* only where the provider wants local memory registered */
	uint64_t header_addr;
	uint64_t header_key;
	bool has_header;
	bool is_closed; /* nothing is taken from it any more; the thread's */
	bool is_dead;   /* nor does anything of it reach the ring: key and endpoint are closed; the thread's */
	bool is_shut;   /* so, for those that revoke: under the lock */
	bool is_settled; /* closed before the queue was last seen empty: no completion names its slots any more */
	bool is_left;   /* target.c has let go of it, or never had it */
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

struct ofi_listener {
	struct farlog_target *target;
	const struct lib_ofi *lib;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_eq *eq;
	struct fid_pep *pep;
	int eq_fd;
	int bell; /* eventfd that ends a doze */
	bool is_spinning;
	bool is_running;
	pthread_t thread;
	pthread_mutex_t lock; /* of orders, and of who adds a domain; never held across a call to target.c */
	pthread_cond_t done;
	struct order *orders;
	uint64_t order_count; /* looked at without the lock */
	uint64_t is_stopping;
	uint64_t domain_count; /* released after the domain is complete */
	struct ofi_domain domains[DOMAIN_COUNT_MAX];
	struct ofi_conn *conns; /* the thread's */
	unsigned turns;
};

/* ofi_conn_end -- by the thread. OK: the key is invalid, the endpoint gone; target.c hears of it from ofi_conn_leave. Else the provider did not close one of them,
 * which is tried again the next time. */
int ofi_conn_end(struct ofi_conn *conn, bool is_broken, struct farlog_error *error);

/* ofi_conn_leave -- after the end, and when no completion names the connection any more: then it may be freed. */
void ofi_conn_leave(struct ofi_conn *conn);

/* ofi_conn_take_request -- what has come into a slot, which is posted again. */
void ofi_conn_take_request(struct ofi_slot *slot, size_t len);

/* ofi_conn_send_words -- what the client had no room for. */
void ofi_conn_send_words(struct ofi_conn *conn);

#ifdef FARLOG_FAULT
/* 1: keys are not closed, 2: nor are endpoints, as if the provider had refused it. */
extern uint64_t ofi_end_fails;
#endif

/* ofi_look_for_orders -- carry out revocations that other threads wait for. True: there were some. */
bool ofi_look_for_orders(struct ofi_listener *listener);

/* ofi_take_events -- who comes and who has gone. True: something happened. */
bool ofi_take_events(struct ofi_listener *listener);

#endif
