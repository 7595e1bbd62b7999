/* verbs_counts.c -- see verbs_counts.h. */
#include "far/verbs_counts.h"

#include <pthread.h>
#include <stdlib.h>

int __real_verbs_queue_open(const struct verbs_device *device, struct ibv_pd *pd, const struct verbs_queue_ask *ask,
	struct verbs_queue *queue, struct farlog_error *error) FARLOG_MUST_CHECK;
int __wrap_verbs_queue_open(const struct verbs_device *device, struct ibv_pd *pd, const struct verbs_queue_ask *ask,
	struct verbs_queue *queue, struct farlog_error *error) FARLOG_MUST_CHECK;

/* A queue pair, and the provider's functions for it. Lives until another queue pair has its address. */
struct counted {
	struct counted *next;
	const struct ibv_qp_ex *qpx;
	const struct ibv_cq *cq;
	struct verbs_counts counts;
	bool is_write; /* the request that was begun last */
	void (*wr_rdma_write)(struct ibv_qp_ex *qpx, uint32_t key, uint64_t address);
	void (*wr_rdma_write_imm)(struct ibv_qp_ex *qpx, uint32_t key, uint64_t address, __be32 value);
	void (*wr_rdma_read)(struct ibv_qp_ex *qpx, uint32_t key, uint64_t address);
	void (*wr_send)(struct ibv_qp_ex *qpx);
	void (*wr_set_inline_data)(struct ibv_qp_ex *qpx, void *bytes, size_t len);
	int (*wr_complete)(struct ibv_qp_ex *qpx);
	verbs_flush_fn flush;
};

static struct counted *first;
static int (*real_poll_cq)(struct ibv_cq *cq, int room, struct ibv_wc *wc); /* all devices are of one provider */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;                   /* of the list */

/* find -- by one of both; the other is NULL. */
static struct counted *find(const struct ibv_qp_ex *qpx, const struct ibv_cq *cq)
{
	struct counted *found;

	pthread_mutex_lock(&mutex);
	found = first;
	while (found != NULL && found->qpx != qpx && found->cq != cq)
		found = found->next;
	pthread_mutex_unlock(&mutex);
	return found;
}

/* begin_request -- of any kind but those that are not counted: binds and invalidations. */
static struct counted *begin_request(const struct ibv_qp_ex *qpx)
{
	struct counted *counted = find(qpx, NULL);

	counted->counts.signalled_count += (qpx->wr_flags & IBV_SEND_SIGNALED) != 0;
	counted->is_write = false;
	return counted;
}

static void count_write(struct ibv_qp_ex *qpx, uint32_t key, uint64_t address)
{
	struct counted *counted = begin_request(qpx);

	counted->counts.write_count++;
	counted->is_write = true;
	counted->wr_rdma_write(qpx, key, address);
}

static void count_write_imm(struct ibv_qp_ex *qpx, uint32_t key, uint64_t address, __be32 value)
{
	struct counted *counted = begin_request(qpx);

	counted->counts.write_count++;
	counted->wr_rdma_write_imm(qpx, key, address, value);
}

static void count_read(struct ibv_qp_ex *qpx, uint32_t key, uint64_t address)
{
	struct counted *counted = begin_request(qpx);

	counted->counts.read_count++;
	counted->wr_rdma_read(qpx, key, address);
}

static void count_flush(
	struct ibv_qp_ex *qpx, uint32_t key, uint64_t address, size_t len, uint8_t placement, uint8_t selectivity)
{
	struct counted *counted = begin_request(qpx);

	counted->counts.flush_count++;
	counted->flush(qpx, key, address, len, placement, selectivity);
}

static void count_send(struct ibv_qp_ex *qpx)
{
	struct counted *counted = begin_request(qpx);

	counted->counts.send_count++;
	counted->wr_send(qpx);
}

static void count_inline(struct ibv_qp_ex *qpx, void *bytes, size_t len)
{
	struct counted *counted = find(qpx, NULL);

	counted->counts.inline_count += counted->is_write;
	counted->wr_set_inline_data(qpx, bytes, len);
}

static int count_doorbell(struct ibv_qp_ex *qpx)
{
	struct counted *counted = find(qpx, NULL);

	counted->counts.doorbell_count++;
	return counted->wr_complete(qpx);
}

static int count_completions(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	int count = real_poll_cq(cq, room, wc);
	struct counted *counted = count > 0 ? find(NULL, cq) : NULL;

	for (int i = 0; i < count && counted != NULL; i++) {
		bool is_receive = (wc[i].wr_id & VERBS_KIND_MASK) == VERBS_RECV;

		counted->counts.event_count += is_receive && wc[i].status == IBV_WC_SUCCESS;
		counted->counts.completion_count += !is_receive && wc[i].status == IBV_WC_SUCCESS;
	}
	return count;
}

/* forget -- the queue pair that had these addresses before. The caller holds the mutex. */
static void forget(const struct verbs_queue *queue)
{
	struct counted **link = &first;

	while (*link != NULL) {
		struct counted *counted = *link;

		if (counted->qpx != queue->qpx && counted->cq != queue->cq) {
			link = &counted->next;
			continue;
		}
		*link = counted->next;
		free(counted);
	}
}

/* REPLACE -- a function of the queue pair's own table. */
#define REPLACE(function, replacement) \
	do { \
		counted->function = qpx->function; \
		qpx->function = replacement; \
	} while (0)

static void change(struct verbs_queue *queue)
{
	struct counted *counted = calloc(1, sizeof(*counted));
	struct ibv_qp_ex *qpx = queue->qpx;
	struct ibv_context_ops *ops = &queue->cq->context->ops;

	if (counted == NULL)
		abort();
	counted->qpx = qpx;
	counted->cq = queue->cq;
	REPLACE(wr_rdma_write, count_write);
	REPLACE(wr_rdma_write_imm, count_write_imm);
	REPLACE(wr_rdma_read, count_read);
	REPLACE(wr_send, count_send);
	REPLACE(wr_set_inline_data, count_inline);
	REPLACE(wr_complete, count_doorbell);
	counted->flush = queue->flush;
	queue->flush = queue->flush != NULL ? count_flush : NULL;
	pthread_mutex_lock(&mutex);
	forget(queue);
	counted->next = first;
	first = counted;
	if (ops->poll_cq != count_completions && real_poll_cq == NULL)
		real_poll_cq = ops->poll_cq;
	if (ops->poll_cq != count_completions && ops->poll_cq != real_poll_cq)
		abort();
	ops->poll_cq = count_completions;
	pthread_mutex_unlock(&mutex);
}

int __wrap_verbs_queue_open(const struct verbs_device *device, struct ibv_pd *pd, const struct verbs_queue_ask *ask,
	struct verbs_queue *queue, struct farlog_error *error)
{
	int result = __real_verbs_queue_open(device, pd, ask, queue, error);

	if (result == FARLOG_OK)
		change(queue);
	return result;
}

const struct verbs_counts *verbs_counts_of(const struct verbs_queue *queue)
{
	return &find(queue->qpx, NULL)->counts;
}
