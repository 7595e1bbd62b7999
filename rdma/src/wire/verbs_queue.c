/* wire/verbs_queue.c -- see wire/verbs_queue.h. */
#include "wire/verbs_queue.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "base/err.h"

#define INLINE_WANTED 220u /* with a WRITE's header one burst of four 64-byte blocks on mlx5 */
#define INLINE_MODEST 64u  /* words and requests */
/* 4.096 us * 2^13 = 34 ms before a try is repeated; the region's own deadline comes first */
#define ACK_TIMEOUT 13
#define RNR_TIMER 8 /* 160 us before a peer without a receive is tried again */
#define PAGE_LEN 4096u
#define AWAIT_SPIN_NS 100000u
#define AWAIT_NAP_NS 50000

const char *verbs_kind_name(unsigned kind)
{
	static const char *const names[] = {"WRITE", "READ", "FLUSH", "SEND", "RECV", "BIND_MW", "LOCAL_INV"};

	kind &= VERBS_KIND_MASK;
	return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "?";
}

static int make_scratch(struct verbs_queue *queue, struct ibv_pd *pd, uint32_t slot_count, struct farlog_error *error)
{
	uint64_t len = (slot_count * VERBS_SLOT_LEN + PAGE_LEN - 1) & ~(uint64_t)(PAGE_LEN - 1);
	void *scratch = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (scratch == MAP_FAILED)
		return error_set(error, FARLOG_NO_MEMORY, errno, "allocate %lu bytes for a queue pair", len);
	madvise(scratch, len, MADV_DONTFORK); /* a child's copy-on-write would move registered pages */
	queue->scratch = scratch;
	queue->scratch_len = len;
	return verbs_register(
		queue->device, pd, scratch, len, IBV_ACCESS_LOCAL_WRITE, 0, "a queue pair's buffer", &queue->scratch_mr, error);
}

/* create -- with these operations. False: library, provider or device do not have one of them, or not so many inline
 * bytes. */
static bool create(struct verbs_queue *queue, struct ibv_pd *pd, const struct verbs_queue_ask *ask, uint64_t operations,
	uint32_t inline_wanted)
{
	struct verbs_context *extended = verbs_get_ctx_op(queue->device->context, create_qp_ex);
	struct ibv_qp_init_attr_ex attr = {.qp_context = ask->context,
		.send_cq = queue->cq,
		.recv_cq = queue->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = queue->send_len,
			.max_recv_wr = ask->recv_len > 0 ? ask->recv_len : 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = inline_wanted},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = operations};

	if (extended == NULL) {
		errno = EOPNOTSUPP;
		return false;
	}
	queue->qp = extended->create_qp_ex(queue->device->context, &attr);
	if (queue->qp == NULL)
		return false;
	queue->qpx = queue->lib->qp_to_qp_ex(queue->qp);
	queue->inline_max = attr.cap.max_inline_data;
	queue->flush = operations & VERBS_QP_EX_WITH_FLUSH ? verbs_flush_of(queue->qpx) : NULL;
	queue->has_window = operations & IBV_QP_EX_WITH_BIND_MW;
	queue->has_immediate = operations & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	return true;
}

static bool create_best(struct verbs_queue *queue, struct ibv_pd *pd, const struct verbs_queue_ask *ask)
{
	const uint32_t inlines[] = {INLINE_WANTED, INLINE_MODEST, 0};
	uint64_t plain = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND;
	uint64_t window = ask->is_window_wanted ? IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV : 0;
	uint64_t flush = ask->is_flush_wanted ? VERBS_QP_EX_WITH_FLUSH : 0;
	uint64_t immediate = ask->is_immediate_wanted ? IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM : 0;
	/* iWARP has no immediate data */
	const uint64_t extras[] = {window | flush | immediate, window | flush, immediate, 0};

	for (unsigned i = 0; i < sizeof(inlines) / sizeof(inlines[0]); i++)
		for (unsigned j = 0; j < sizeof(extras) / sizeof(extras[0]); j++)
			if ((j == 0 || extras[j] != extras[j - 1]) && create(queue, pd, ask, plain | extras[j], inlines[i]))
				return true;
	return false;
}

int verbs_queue_open(const struct verbs_device *device, struct ibv_pd *pd, const struct verbs_queue_ask *ask,
	struct verbs_queue *queue, struct farlog_error *error)
{
	int result;

	*queue = (struct verbs_queue){
		.lib = device->lib, .device = device, .send_len = ask->send_len, .read_depth = 1, .tos = ask->tos};
	if (queue->send_len > device->queue_len_max)
		queue->send_len = device->queue_len_max;
	/* When it fails, every request on it completes, signalled or not. */
	queue->cq = device->lib->create_cq(
		device->context, (int)(queue->send_len + ask->recv_len + 16), ask->context, ask->channel, 0);
	if (queue->cq == NULL)
		return error_set(error, FARLOG_IO, errno, "create a completion queue on RDMA device %s", device->name);
	if (!create_best(queue, pd, ask)) {
		result = error_set(error, errno == ENOMEM ? FARLOG_NO_MEMORY : FARLOG_IO, errno,
			"create a queue pair on RDMA device %s", device->name);
		may_fail(verbs_queue_close(queue)); /* the cause is said already */
		return result;
	}
	result = make_scratch(queue, pd, queue->send_len + ask->recv_len, error);
	if (result != FARLOG_OK)
		may_fail(verbs_queue_close(queue)); /* the cause is said already */
	return result;
}

int verbs_queue_init(struct verbs_queue *queue, struct rdma_cm_id *id, unsigned access)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	int mask = 0;

	if (queue->lib->init_qp_attr(id, &attr, &mask) != 0)
		return errno;
	if (mask & IBV_QP_ACCESS_FLAGS)
		attr.qp_access_flags = access;
	return queue->lib->modify_qp(queue->qp, &attr, mask);
}

static uint8_t at_most(uint8_t value, uint8_t bound)
{
	return value < bound ? value : bound;
}

int verbs_queue_ready(struct verbs_queue *queue, struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int mask = 0;
	int failure;

	if (queue->lib->init_qp_attr(id, &attr, &mask) != 0)
		return errno;
	attr.max_dest_rd_atomic = at_most(attr.max_dest_rd_atomic, queue->device->read_depth_in);
	attr.min_rnr_timer = RNR_TIMER;
	queue->port_num = attr.ah_attr.port_num;
	queue->gid_index = attr.ah_attr.grh.sgid_index;
	if (queue->tos != 0 && attr.ah_attr.is_global)
		attr.ah_attr.grh.traffic_class = (uint8_t)(queue->tos - 1); /* the other end may have asked for another one */
	queue->traffic_class = attr.ah_attr.is_global ? attr.ah_attr.grh.traffic_class : 0;
	queue->path_mtu = mask & IBV_QP_PATH_MTU ? (uint16_t)(128u << attr.path_mtu) : 0;
	failure = queue->lib->modify_qp(queue->qp, &attr, mask);
	if (failure != 0)
		return failure;
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS};
	if (queue->lib->init_qp_attr(id, &attr, &mask) != 0)
		return errno;
	attr.max_rd_atomic = at_most(attr.max_rd_atomic, queue->device->read_depth_out);
	attr.timeout = ACK_TIMEOUT;
	attr.retry_cnt = VERBS_RETRY_COUNT;
	attr.rnr_retry = VERBS_RNR_RETRY_COUNT;
	queue->read_depth = mask & IBV_QP_MAX_QP_RD_ATOMIC ? attr.max_rd_atomic : 1;
	return queue->lib->modify_qp(queue->qp, &attr, mask);
}

int verbs_set_tos(const struct lib_verbs *lib, struct rdma_cm_id *id, uint16_t tos)
{
	uint8_t value = (uint8_t)(tos - 1);

	if (tos == 0)
		return 0;
	return lib->set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &value, sizeof(value)) == 0 ? 0 : errno;
}

int verbs_queue_stop(struct verbs_queue *queue)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	return queue->qp != NULL ? queue->lib->modify_qp(queue->qp, &attr, IBV_QP_STATE) : 0;
}

int verbs_queue_close(struct verbs_queue *queue)
{
	int failure = queue->qp != NULL ? queue->lib->destroy_qp(queue->qp) : 0;

	if (failure != 0)
		return failure;
	queue->qp = NULL;
	queue->qpx = NULL;
	failure = queue->cq != NULL ? queue->lib->destroy_cq(queue->cq) : 0;
	if (failure != 0)
		return failure;
	queue->cq = NULL;
	if (queue->scratch_mr != NULL)
		queue->lib->dereg_mr(queue->scratch_mr);
	if (queue->scratch != NULL)
		munmap(queue->scratch, queue->scratch_len);
	queue->scratch_mr = NULL;
	queue->scratch = NULL;
	return 0;
}

int verbs_queue_receive(struct verbs_queue *queue, uint32_t index)
{
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)verbs_receive_slot(queue, index),
		.length = VERBS_SLOT_LEN,
		.lkey = queue->scratch_mr->lkey};
	struct ibv_recv_wr receive = {.wr_id = (uint64_t)index << 8 | VERBS_RECV, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	return ibv_post_recv(queue->qp, &receive, &bad);
}

int verbs_queue_await(struct verbs_queue *queue, uint64_t number, uint64_t until_ns,
	void (*received)(void *context, uint32_t index, uint32_t len), void *context)
{
	uint64_t spin_until_ns = clock_after_ns(AWAIT_SPIN_NS);

	while (queue->retired < number) {
		struct ibv_wc wc;

		if (ibv_poll_cq(queue->cq, 1, &wc) <= 0) {
			uint64_t now_ns = clock_monotonic_ns();

			if (now_ns >= until_ns)
				return -1;
			if (now_ns >= spin_until_ns)
				/* a device in software needs the processor that we are on */
				nanosleep(&(struct timespec){0, AWAIT_NAP_NS}, NULL);
			else
				cpu_relax();
			continue;
		}
		if (wc.status != IBV_WC_SUCCESS)
			return (int)wc.status;
		if ((wc.wr_id & VERBS_KIND_MASK) != VERBS_RECV)
			verbs_retire(queue, &wc);
		else if (received != NULL)
			received(context, (uint32_t)(wc.wr_id >> 8), wc.byte_len);
	}
	return IBV_WC_SUCCESS;
}
