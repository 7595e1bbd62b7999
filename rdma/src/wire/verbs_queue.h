/* wire/verbs_queue.h -- a reliable queue pair with its own completion queue, and the account of its slots.
 *
 * Work requests are posted between verbs_begin and verbs_ring, under one doorbell. Most are not signalled: a completion
 * tells that all before it are done too, and gives their slots back. Each carries its number, how many READs and
 * FLUSHes came before, and its kind in wr_id, because the opcode of a failed completion is not defined. A queue pair
 * that has failed fails all that is on it: only the first failure tells the cause. */
#ifndef FARLOG_VERBS_QUEUE_H
#define FARLOG_VERBS_QUEUE_H

#include "wire/verbs_device.h"

#define VERBS_SLOT_LEN 64u
#define VERBS_RETRY_COUNT 6     /* not 7: SoftRoCE takes that for ever, and a target that died would never be noticed */
#define VERBS_RNR_RETRY_COUNT 6 /* here 7 would be for ever */

enum verbs_kind {
	VERBS_WRITE = 0,
	VERBS_READ = 1,
	VERBS_FLUSH = 2,
	VERBS_SEND = 3,
	VERBS_RECV = 4,
	VERBS_BIND = 5,
	VERBS_INVALIDATE = 6,
};

/* Beside the kind in wr_id's lowest byte. */
#define VERBS_KIND_MASK 0x0Fu
#define VERBS_PERSIST_ENDS 0x10u
#define VERBS_READ_ENDS 0x20u
#define VERBS_SIGNALLED 0x40u
#define VERBS_FOLLOWED 0x80u /* a signalled one comes behind it under the same doorbell */

struct verbs_queue_ask {
	uint32_t send_len;
	uint32_t recv_len;
	bool is_flush_wanted;
	bool is_window_wanted;
	bool is_immediate_wanted; /* WRITEs that make a completion at the peer */
	uint16_t tos; /* 1 + the traffic class of its packets; 0 = what the host gives, or the other end asked for */
	struct ibv_comp_channel *channel; /* NULL: completions are polled */
	void *context;                    /* of the completion queue */
};

struct verbs_queue {
	const struct lib_verbs *lib;
	const struct verbs_device *device;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *qpx;
	verbs_flush_fn flush; /* NULL: this queue pair has none */
	bool has_window;
	bool has_immediate;
	uint32_t send_len;
	uint32_t inline_max;
	uint32_t read_depth;   /* READs and FLUSHes that may be under way */
	uint8_t port_num;      /* once it is ready: by which port, */
	uint8_t gid_index;     /* and by which of its GIDs, */
	uint8_t traffic_class; /* of RoCE packets: the DSCP is its upper six bits */
	uint16_t tos;          /* that was asked for */
	uint16_t path_mtu;     /* bytes of a packet's payload; 0 = not known */
	uint64_t posted;
	uint64_t retired;
	uint64_t signalled; /* number of the last that was */
	uint16_t reads_posted;
	uint16_t reads_retired;
	uint8_t *scratch; /* a slot for each send and each receive, registered */
	uint64_t scratch_len;
	struct ibv_mr *scratch_mr;
};

/* verbs_queue_open -- create it. FLUSH and windows are left away where library, provider or device refuse them. OK or
 * IO, NO_MEMORY. */
int verbs_queue_open(const struct verbs_device *device, struct ibv_pd *pd, const struct verbs_queue_ask *ask,
	struct verbs_queue *queue, struct farlog_error *error) FARLOG_MUST_CHECK;

/* verbs_queue_init, verbs_queue_ready -- take it up by what the connection manager found out: addresses, path MTU.
 * `access` is what the peer may do. 0 or errno. */
int verbs_queue_init(struct verbs_queue *queue, struct rdma_cm_id *id, unsigned access) FARLOG_MUST_CHECK;
int verbs_queue_ready(struct verbs_queue *queue, struct rdma_cm_id *id) FARLOG_MUST_CHECK;

/* verbs_set_tos -- of an identifier, before it resolves or listens: the connection manager's own packets have it, too.
 * 0 or errno. */
int verbs_set_tos(const struct lib_verbs *lib, struct rdma_cm_id *id, uint16_t tos) FARLOG_MUST_CHECK;

/* verbs_queue_stop -- 0: from here on the device drops what comes in for it, and sends nothing of it. Else errno. */
int verbs_queue_stop(struct verbs_queue *queue) FARLOG_MUST_CHECK;

/* verbs_queue_close -- 0: nothing of it touches memory any more. Else errno: what is left of it can be closed again.
 * Harmless when it is not open. */
int verbs_queue_close(struct verbs_queue *queue) FARLOG_MUST_CHECK;

/* verbs_queue_receive -- post the receive slot `index`. 0 or errno. */
int verbs_queue_receive(struct verbs_queue *queue, uint32_t index) FARLOG_MUST_CHECK;

/* verbs_queue_await -- poll until the request with this number is done, for cold calls. IBV_WC_SUCCESS, or what it or
 * one before it failed with; -1 at until_ns. Receives that complete meanwhile go to `received`, if given, by index. */
int verbs_queue_await(struct verbs_queue *queue, uint64_t number, uint64_t until_ns,
	void (*received)(void *context, uint32_t index, uint32_t len), void *context) FARLOG_MUST_CHECK;

/* verbs_kind_name -- "WRITE" and so on, for texts. */
const char *verbs_kind_name(unsigned kind);

static inline uint32_t verbs_room(const struct verbs_queue *queue)
{
	return queue->send_len - (uint32_t)(queue->posted - queue->retired);
}

/* verbs_has_read_room -- may another READ or FLUSH be posted? One more than that would stall all behind it,
 * silently. */
static inline bool verbs_has_read_room(const struct verbs_queue *queue)
{
	return (uint16_t)(queue->reads_posted - queue->reads_retired) < queue->read_depth;
}

/* verbs_slot -- memory for the next request's own bytes, until its number is retired. */
static inline uint8_t *verbs_slot(const struct verbs_queue *queue)
{
	return queue->scratch + (queue->posted + 1) % queue->send_len * VERBS_SLOT_LEN;
}

static inline uint8_t *verbs_receive_slot(const struct verbs_queue *queue, uint32_t index)
{
	return queue->scratch + (queue->send_len + index) * VERBS_SLOT_LEN;
}

static inline void verbs_begin(struct verbs_queue *queue)
{
	ibv_wr_start(queue->qpx);
}

/* verbs_ring -- 0 or errno: then nothing of it was posted, and the connection is to be ended. */
FARLOG_MUST_CHECK static inline int verbs_ring(struct verbs_queue *queue)
{
	return ibv_wr_complete(queue->qpx);
}

/* verbs_next -- number the next request. It is signalled when asked to, and now and then, so that slots come back. */
static inline void verbs_next(struct verbs_queue *queue, unsigned kind_and_marks)
{
	unsigned kind = kind_and_marks & VERBS_KIND_MASK;
	bool is_signalled = kind_and_marks & VERBS_SIGNALLED;

	queue->posted++;
	if (kind == VERBS_READ || kind == VERBS_FLUSH) {
		queue->reads_posted++;
		is_signalled |= !verbs_has_read_room(queue);
	}
	if (!(kind_and_marks & VERBS_FOLLOWED))
		is_signalled |= queue->posted - queue->signalled >= queue->send_len / 4;
	if (is_signalled)
		queue->signalled = queue->posted;
	queue->qpx->wr_id = queue->posted << 24 | (uint64_t)queue->reads_posted << 8 | kind_and_marks;
	queue->qpx->wr_flags = is_signalled ? IBV_SEND_SIGNALED : 0;
}

static inline void verbs_set_bytes(struct verbs_queue *queue, void *bytes, uint32_t lkey, uint32_t len)
{
	if (len <= queue->inline_max)
		ibv_wr_set_inline_data(queue->qpx, bytes, len);
	else
		ibv_wr_set_sge(queue->qpx, lkey, (uint64_t)(uintptr_t)bytes, len);
}

static inline void verbs_post_write(
	struct verbs_queue *queue, unsigned marks, void *bytes, uint32_t lkey, uint32_t len, uint32_t rkey, uint64_t addr)
{
	verbs_next(queue, VERBS_WRITE | marks);
	if (len <= queue->inline_max) {
		queue->qpx->wr_flags |= IBV_SEND_INLINE; /* the rxe provider does not set this itself */
		ibv_wr_rdma_write(queue->qpx, rkey, addr);
		ibv_wr_set_inline_data(queue->qpx, bytes, len);
	} else {
		ibv_wr_rdma_write(queue->qpx, rkey, addr);
		ibv_wr_set_sge(queue->qpx, lkey, (uint64_t)(uintptr_t)bytes, len);
	}
}

/* verbs_post_announced -- a WRITE of a word, which takes a receive of the peer's and makes a completion there. */
static inline void verbs_post_announced(struct verbs_queue *queue, void *word, uint32_t rkey, uint64_t addr)
{
	verbs_next(queue, VERBS_WRITE);
	if (sizeof(uint64_t) <= queue->inline_max)
		queue->qpx->wr_flags |= IBV_SEND_INLINE;
	ibv_wr_rdma_write_imm(queue->qpx, rkey, addr, 0);
	verbs_set_bytes(queue, word, queue->scratch_mr->lkey, sizeof(uint64_t));
}

static inline void verbs_post_read(
	struct verbs_queue *queue, unsigned marks, void *bytes, uint32_t lkey, uint32_t len, uint32_t rkey, uint64_t addr)
{
	verbs_next(queue, VERBS_READ | marks);
	ibv_wr_rdma_read(queue->qpx, rkey, addr);
	ibv_wr_set_sge(queue->qpx, lkey, (uint64_t)(uintptr_t)bytes, len);
}

static inline void verbs_post_flush(
	struct verbs_queue *queue, unsigned marks, uint8_t placement, uint64_t len, uint32_t rkey, uint64_t addr)
{
	verbs_next(queue, VERBS_FLUSH | marks);
	queue->flush(queue->qpx, rkey, addr, len, placement, VERBS_FLUSH_RANGE);
}

/* verbs_post_send -- `bytes` lie in verbs_slot. */
static inline void verbs_post_send(struct verbs_queue *queue, unsigned marks, void *bytes, uint32_t len)
{
	verbs_next(queue, VERBS_SEND | marks);
	if (len <= queue->inline_max)
		queue->qpx->wr_flags |= IBV_SEND_INLINE;
	ibv_wr_send(queue->qpx);
	verbs_set_bytes(queue, bytes, queue->scratch_mr->lkey, len);
}

/* verbs_retire -- take a good completion into the account. */
static inline void verbs_retire(struct verbs_queue *queue, const struct ibv_wc *wc)
{
	queue->retired += ((wc->wr_id >> 24) - queue->retired) & 0xFFFFFFFFFFu; /* 40 bits of the number are in it */
	queue->reads_retired = (uint16_t)(wc->wr_id >> 8);
}

#endif
