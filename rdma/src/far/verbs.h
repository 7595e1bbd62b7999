/* far/verbs.h -- a client's link over verbs: what its files share. */
#ifndef FARLOG_FAR_VERBS_H
#define FARLOG_FAR_VERBS_H

#include <sys/socket.h>

#include "far/far.h"
#include "wire/verbs_queue.h"

#define VERBS_SPAN_COUNT_MAX 2
#define VERBS_WORD_COUNT_MAX 8
#define VERBS_EVENT_RECV_COUNT 8u /* answers of the target's that a client which sleeps may not have taken yet */

/* What is to be done beside taking completions; almost always nothing. */
enum verbs_left {
	VERBS_LEFT_PERSIST = 1, /* some of the persist is not posted yet */
	VERBS_LEFT_READ = 2,
	VERBS_LEFT_WORDS = 4,
	VERBS_LEFT_ANSWER = 8, /* a flush by the target's processor is waited for */
	VERBS_LEFT_POSTS = VERBS_LEFT_PERSIST | VERBS_LEFT_READ | VERBS_LEFT_WORDS,
};

/* A run over spans, posted as far as the send queue takes it and continued by poll. */
struct verbs_job {
	struct region_span spans[VERBS_SPAN_COUNT_MAX];
	unsigned span_count;
	unsigned span;    /* the next to post */
	uint64_t at;      /* how far into it */
	bool is_flushing; /* the writes are posted: their flushes are next */
	uint64_t tag;
};

struct verbs_link {
	struct far_link link; /* first */
	const struct lib_verbs *lib;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct verbs_device device;
	struct ibv_pd *pd;
	struct ibv_mr *copy_mr;               /* only this host writes it, and what it reads */
	struct ibv_mr *header_mr;             /* the target writes words */
	struct ibv_comp_channel *completions; /* NULL: spin */
	struct verbs_queue queue;
	struct verbs_job persist;
	struct verbs_job read;
	void *read_back_to;                             /* with welcome.flush_addr: where what is read there goes, */
	uint32_t read_back_key;                         /* and by which key */
	struct region_span words[VERBS_WORD_COUNT_MAX]; /* of write, that did not fit into the send queue */
	unsigned word_count;
	unsigned left;       /* enum verbs_left */
	uint32_t answer_tag; /* with VERBS_LEFT_ANSWER: which */
	uint32_t idle_count; /* polls that found nothing */
	uint16_t tos;        /* as struct uri has it */
	bool is_connected;   /* the peer is disconnected when the link is */
	bool is_broken;
	bool is_blocking;
	bool is_announced; /* the target's answers make events: one has come */
	bool is_writer;
	enum far_piece written;
	struct sockaddr_storage address;
	struct sockaddr_storage from; /* of ?from= */
	bool has_from;
	char text[URI_PATH_LEN_MAX];
};

static inline struct verbs_link *verbs_link_of(struct far_link *link)
{
	return (struct verbs_link *)link;
}

/* verbs_link_fail -- the link is broken; the first text stays. Returns IO. */
int verbs_link_fail(struct verbs_link *link, const char *format, ...)
	__attribute__((format(printf, 2, 3))) FARLOG_MUST_CHECK;

/* verbs_link_connect, verbs_link_disconnect -- far_link_ops' connect and disconnect. */
int verbs_link_connect(struct far_link *link, const struct far_hello *hello, struct far_refusal *refusal,
	uint64_t timeout_ns, struct farlog_error *error) FARLOG_MUST_CHECK;
void verbs_link_disconnect(struct far_link *link);

/* verbs_link_persist, verbs_link_read, verbs_link_write, verbs_link_send, verbs_link_poll, verbs_link_wait_fds --
 * far_link_ops' persist, read, write, send, poll and sleepers. */
int verbs_link_persist(
	struct far_link *link, const struct region_span *spans, unsigned span_count, uint64_t tag) FARLOG_MUST_CHECK;
int verbs_link_read(struct far_link *link, struct region_span span, uint64_t tag) FARLOG_MUST_CHECK;
int verbs_link_write(struct far_link *link, uint64_t off, uint32_t len) FARLOG_MUST_CHECK;
int verbs_link_send(struct far_link *link, const struct far_request *request) FARLOG_MUST_CHECK;
int verbs_link_poll(struct far_link *link) FARLOG_MUST_CHECK;
unsigned verbs_link_wait_fds(struct far_link *link, int *fds, unsigned count_max, uint64_t *nap_ns);

/* verbs_link_release -- after disconnect: give back what the device keeps. */
void verbs_link_release(struct verbs_link *link);

#endif
