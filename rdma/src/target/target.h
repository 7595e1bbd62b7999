/* target/target.h -- who may write into which ring of this host, and the seam to what carries the connections.
 *
 * target/admission.c, grants.c, fence.c and request.c decide; target/verbs.c and target/ofi.c listen, move bytes and
 * revoke. A ring is a region_mem region of this process; remote clients reach its bytes without our help, so that
 * all control lies in who has a key to it.
 *
 * Order of a fence: revoke (nothing of the old writer can land any more), read back, persist the epoch floor, scan the
 * tail, confirm. */
#ifndef FARLOG_TARGET_H
#define FARLOG_TARGET_H

#include <pthread.h>
#include <sys/socket.h>

#include "base/uri.h"
#include "farlog/network.h"
#include "farlog/refusals.h"
#include "mem/attest.h"
#include "region/region.h"
#include "ring/record.h"
#include "ring/tails_page.h"
#include "wire/wire.h"

struct target_conn;
struct target_ring;
struct target_worker;
struct farlog_target;

/* The transport's side of a connection. */
struct target_conn_ops {
	/* OK: nothing that the peer has posted or will post reaches the ring: the key it has is invalid and its queue pair
	 * or endpoint is gone. The transport calls target_leave afterwards, as at every end of a connection. Else what the
	 * device or provider did not do is in the text; the peer may still write, the connection stays, and revoke may be
	 * called again. With the target's mutex not held: by the transport's own thread (from target_admit), which does
	 * it there and then, or by any other, which waits until the transport's thread has tried. */
	int (*revoke)(struct target_conn *conn, struct farlog_error *error) FARLOG_MUST_CHECK;
	/* Write 8 bytes into the client's copy of the header; dropped when FAR_HEADER has not come yet. By the transport's
	 * thread. */
	void (*write_word)(struct target_conn *conn, uint64_t off, uint64_t value);
	/* There is an answer to be sent: the transport's thread calls target_tick soon. By any thread, which may hold the
	 * target's mutex; never blocks. */
	void (*wake)(struct target_conn *conn);
};

/* What a connection asks for, by the transport's thread: target/request_limits.c. */
struct target_requests {
	uint64_t look;           /* of the transport's thread at what has come */
	unsigned look_count;     /* requests that it found there, and those that were unanswered then */
	unsigned deferred_count; /* requests that the ring's worker has not answered */
	unsigned bad_count;
	uint64_t control_due_ns; /* when requests other than flushes would be back within their rate */
};

/* The first member of a transport's own structure. The room's fields but for ops. */
struct target_conn {
	const struct target_conn_ops *ops;
	struct target_conn *next; /* of this ring */
	struct target_ring *ring;
	struct target_grant *grant;
	uint64_t relayed_credit;
	uint64_t relayed_at_ns;
	struct sockaddr_storage peer; /* zero: not known */
	struct target_requests requests;
	unsigned pin_count; /* threads that are in revoke: target_leave waits for them */
	uint8_t role;
	bool is_revoked; /* asked to go */
	bool is_gone;    /* and nothing of it reaches the ring any more: until then it has its role */
	bool is_broken;  /* set by the transport: it ended by an error, not by a goodbye */
};

struct target_grant {
	struct target_grant *next;
	struct farlog_grant grant;
	uint64_t client_id; /* who came with it last; 0 = nobody yet */
	/* its client was disconnected for what it sent: until then it is not let in, and is told why; 0 = it was not */
	uint64_t barred_until_ns;
	unsigned barred_count;
	const char *barred_reason;
	/* drains and readers whose place another took by the same token: SUPERSEDED_KEPT places; NULL = nobody yet */
	uint64_t *superseded;
	uint64_t superseded_count;       /* that there ever were */
	struct farlog_network *networks; /* from where its client may come; NULL = from anywhere */
	size_t network_count;
};

/* One listening transport of a target; each has a thread. */
struct target_transport {
	const char *scheme;
	/* Listen at uri->host:port, write the port that it got into target->uri, and start the thread. OK, UNSUPPORTED, IO
	 * (port in use ...). */
	int (*open)(struct farlog_target *target, const char *text, const struct uri *uri, void **listener,
		struct farlog_error *error) FARLOG_MUST_CHECK;
	/* Register served_bytes of a ring for this transport, in the domain of its tenant; *key is the transport's own.
	 * Before any admission. */
	int (*expose)(void *listener, struct target_ring *ring, void **key, struct farlog_error *error) FARLOG_MUST_CHECK;
	void (*withdraw)(void *listener, struct target_ring *ring, void *key);
	/* Of libfabric: by which provider it listens, and whether that says that its commit flushes. NULL: it is not
	 * libfabric's. */
	const char *(*provider)(const void *listener, bool *is_committing);
	/* Stop the thread; all connections are revoked already. */
	void (*close)(void *listener);
};

extern const struct target_transport target_verbs;
extern const struct target_transport target_ofi;

struct target_ring {
	struct target_ring *next;
	struct region *region;
	uint8_t *bytes;        /* of the region, writable, for this processor */
	uint8_t *served_bytes; /* the same, for the transport alone: zeros never take the place of a lost page there */
	void *key;             /* of the transport, from expose */
	struct target_conn *conns;
	struct target_grant *grants;
	uint32_t hash; /* CRC32C of the name */
	/* of a fence under way, or of the newest writer: what is in the region follows when it is persistent */
	uint32_t epoch_admitted_min;
	unsigned pin_count; /* fences under way */
	bool is_locked[2];  /* by us for a far client, by role: writer, drain */
	uint8_t ring_uuid[16];
	/* Of the last fence, where there was one: it shut out the epochs below tail_epoch_min, and the log, whose newest
	 * epoch was tail_epoch, ended at tail_lsn. */
	uint64_t tail_lsn;
	uint32_t tail_epoch_min;
	uint32_t tail_epoch;
	char name[FARLOG_STREAM_NAME_LEN];
	char tenant[FARLOG_STREAM_NAME_LEN];
	uint32_t attested_methods;      /* offered beyond those of the contract */
	bool is_commit_flush;           /* attested: of the provider by which this target listens, FI_COMMIT_COMPLETE */
	bool is_any_read_flush;         /* attested: a READ of any of its bytes, and so of the credit word */
	uint8_t level;                  /* that is promised: the contract's, or less */
	char attested[ATTEST_TEXT_LEN]; /* why, where the contract's own words are not enough */
	struct farlog_target_counters counters;
	uint64_t test_delay_ns;       /* its worker sleeps so long before each flush: for tests. 0 = it does not */
	struct target_worker *worker; /* that flushes what takes long; NULL: nothing has yet */
	struct target_ring *page;     /* of tails, of its tenant; NULL = it has no line there */
	uint32_t line;                /* its own; of a page: the last that was ever taken */
	struct {
		struct record_identity identity;
		struct tails_line line; /* as it was stored last */
	} seen;
};

#define TARGET_URI_LEN_MAX 320

struct target_refusals {
	uint64_t count;
	uint64_t unauthenticated_count;
	struct farlog_target_refusal last[FARLOG_TARGET_REFUSALS_KEPT]; /* the one of sequence n at (n - 1) % KEPT */
};

struct farlog_target {
	pthread_mutex_t mutex; /* of all below; never held while a connection is revoked or a region flushed */
	pthread_cond_t moved;  /* a connection has left, or a pin; or a writer has come */
	uint64_t writer_count; /* that have come, and that have left: of all there ever were */
	const struct target_transport *transport;
	void *listener;
	struct target_ring *rings;
	struct target_ring *pages; /* of tails, one a tenant */
	uint64_t turn;             /* looks at all rings */
	uint64_t looked_at_ns;
	struct target_attested *attested;
	struct target_refusals refusals;
	struct farlog_target_unauthenticated unauthenticated; /* atomically, by the listener's threads */
	uint64_t test_delay_ns; /* of rings that are served from now on: those of this name, "" = all. 0 = of none */
	char test_ring[FARLOG_STREAM_NAME_LEN];
	/* what could not be revoked is let go: it ends with the transport's hold on the device */
	uint64_t is_closing;
	char uri[TARGET_URI_LEN_MAX]; /* the transport fills in the port it got */
};

/* target_methods -- bit n: enum farlog_flush_method n gives the contract's level to a far writer. */
uint32_t target_methods(const struct farlog_contract *contract);

/* target_apply_attestation -- what is attested of this region's path, to a ring in it that is about to be served. OK;
 * INVALID: it contradicts what the region is now. */
int target_apply_attestation(struct farlog_target *target, struct target_ring *ring, const char *region_uri,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* target_disconnect -- revoke a connection in which nobody else's revoke is under way (pin_count is 0). OK: nothing of
 * it reaches the ring any more. The mutex is held, and let go meanwhile: what was looked up before may have gone. */
int target_disconnect(
	struct farlog_target *target, struct target_conn *conn, struct farlog_error *error) FARLOG_MUST_CHECK;

/* target_admit -- may this hello, from this address (NULL: not known), in? On OK the connection belongs to its ring
 * (older connections of the same client are revoked first, so it may block) and *welcome is filled but for data_addr
 * and keys, which are the transport's, as is clearing those of flush_methods that it cannot do. Otherwise *refusal is
 * filled. By the transport's thread. */
int target_admit(struct farlog_target *target, const struct far_hello *hello, const struct sockaddr *peer,
	struct target_conn *conn, struct far_welcome *welcome, struct far_refusal *refusal) FARLOG_MUST_CHECK;

/* target_may_come_from -- this grant's client may have this address. */
bool target_may_come_from(const struct target_grant *grant, const struct sockaddr *peer);

/* target_copy_peer -- all zero where peer is NULL, or an address of another kind. */
void target_copy_peer(const struct sockaddr *peer, struct sockaddr_storage *copy);

/* target_read_ip -- 16 bytes, as IPv6 has it. False: an address of another kind. */
bool target_read_ip(const struct sockaddr *peer, uint8_t *ip);

/* target_find_grant -- by token alone: a wrong one must not learn which rings there are. NULL; or the grant, and its
 * ring. The mutex is held. */
struct target_grant *target_find_grant(
	struct farlog_target *target, const uint8_t *token, struct target_ring **ring) FARLOG_MUST_CHECK;

/* target_write_refusal -- write down that this refusal was sent. peer and hello: NULL or incomplete where nothing is
 * known. By any thread of the transport. */
void target_write_refusal(struct farlog_target *target, const struct sockaddr *peer, const struct far_hello *hello,
	const struct far_refusal *refusal);

/* target_write_disconnected -- write down, as a refusal, that a client that was let in has been disconnected. With the
 * mutex held. */
void target_write_disconnected(
	struct farlog_target *target, const struct target_conn *conn, const char *ring, int result, const char *reason);

/* target_check_request -- of each request, before it is served. look: a number that the transport's thread raises
 * whenever it looks at what has come, before it answers any of that. False: the client has sent what no client of ours
 * does; it is written down, and told when it connects again; the transport ends the connection. */
bool target_check_request(struct farlog_target *target, struct target_conn *conn, const struct far_request *request,
	uint64_t look) FARLOG_MUST_CHECK;

/* target_note_bad_request -- count one that makes no sense. False: as above. */
bool target_note_bad_request(struct farlog_target *target, struct target_conn *conn) FARLOG_MUST_CHECK;

/* target_barred_ns -- for so long this grant's client is not let in again. 0: it is. With the mutex held. */
uint64_t target_barred_ns(const struct target_grant *grant);

/* target_serve -- carry out a request; the answer goes back by write_word at far_answer_off of its tag. What the role
 * may not ask for is refused. False: as target_check_request has it. */
bool target_serve(
	struct farlog_target *target, struct target_conn *conn, const struct far_request *request) FARLOG_MUST_CHECK;

/* target_store_epoch -- store the superblock that a writer proposes, where it is what may follow the one that is there.
 * OK: *flush makes it durable, and its result is the answer; else that is it: FENCED, INVALID, NOT_A_RING. By the
 * transport's thread. */
int target_store_epoch(struct farlog_target *target, struct target_conn *conn, const struct far_request *request,
	struct far_request *flush) FARLOG_MUST_CHECK;

/* target_store_carried -- store what a FAR_PERSIST carries; it is to be served as FAR_FLUSH then. False: it is not a
 * writer's, or not of whole words of the ring's data, and nothing is stored. By the transport's thread, and only while
 * nobody has been told that the connection is over: what is stored here passes no key. */
bool target_store_carried(const struct target_conn *conn, const struct far_message *message, size_t carried_len);

/* target_flush_spans -- by this processor. The answer to the request. By the transport's thread, or by the ring's
 * worker where it has one. */
uint32_t target_flush_spans(struct target_ring *ring, const struct far_request *request);

/* target_is_disk -- every flush of this ring waits for one. */
bool target_is_disk(const struct target_ring *ring);

/* target_worker_start, target_worker_stop -- of a ring that is served: a thread for flushes that take long, where there
 * is none yet. OK, NO_MEMORY, IO. stop waits for what it was given, and does not hold the target's mutex. */
int target_worker_start(struct target_ring *ring, struct farlog_error *error) FARLOG_MUST_CHECK;
void target_worker_stop(struct target_ring *ring);

#define WORKER_JOB_COUNT \
	64u /* that it can remember, of all its ring's connections together, also of those that ended */

/* target_worker_add -- a flush to be done behind those before it; target_tick sends the answer. False: it has more than
 * it can remember. target_worker_send_answers -- send what is done. target_worker_cancel -- the connection ends: nobody
 * is told of its jobs, and those that have not begun are left out. By the transport's thread. */
bool target_worker_add(struct target_conn *conn, const struct far_request *request);
void target_worker_send_answers(struct target_ring *ring);
void target_worker_cancel(struct target_conn *conn);

/* target_worker_wait_idle -- wait until all is done that it has been given. By another thread than the transport's. */
void target_worker_wait_idle(struct target_ring *ring);

/* target_leave -- the connection is gone, whoever ended it, and nothing of it can land any more; gives its role's lock
 * back. Waits for threads that are in its revoke, which must be able to return. After it conn may be freed. */
void target_leave(struct farlog_target *target, struct target_conn *conn);

/* target_find_ring -- by its name; NULL. The mutex is held. target_set_no_ring -- the error where there is none. */
struct target_ring *target_find_ring(struct farlog_target *target, const char *name) FARLOG_MUST_CHECK;
int target_set_no_ring(const char *name, struct farlog_error *error) FARLOG_MUST_CHECK;

/* target_free_grant -- one that is in no list, or NULL. */
void target_free_grant(struct target_grant *grant);

/* target_free_ring -- one that is in no list and has no connections. */
void target_free_ring(struct farlog_target *target, struct target_ring *ring);

/* target_tails_open -- make the page of a tenant, where there is none. OK, NO_MEMORY, or as expose. The mutex is not
 * held. */
int target_tails_open(struct farlog_target *target, const char *tenant, struct farlog_error *error) FARLOG_MUST_CHECK;

/* target_tails_join, target_tails_part -- give a ring a line in its tenant's page, and take it back, and the page from
 * those who came to it by the ring's grants. The mutex is held; part lets it go meanwhile. */
void target_tails_join(struct farlog_target *target, struct target_ring *ring);
void target_tails_part(struct farlog_target *target, struct target_ring *ring);

/* target_tails_update -- bring this page up to date; NULL: all that somebody is connected to. target_tails_tick -- so,
 * when it is due. The mutex is held. */
void target_tails_update(struct farlog_target *target, struct target_ring *only);
void target_tails_tick(struct farlog_target *target, uint64_t now_ns);

/* target_tick -- what is due: answers of workers, credits to writers, pages of tails. By the transport's thread, at
 * least every millisecond while it has connections, and as soon as target_has_answers says so: a thread that spins or
 * naps would else keep an acknowledgement waiting. *has_answers is set again where another thread has the mutex. */
void target_tick(struct farlog_target *target, uint64_t *has_answers);

/* target_has_answers -- true: a worker has set *has_answers since; it is reset. */
static inline bool target_has_answers(uint64_t *has_answers)
{
	return atomic_load_relaxed(has_answers) != 0 && __atomic_exchange_n(has_answers, 0, __ATOMIC_ACQUIRE) != 0;
}

#endif
