/* floor.c -- see floor.h. By librdmacm and libibverbs alone: nothing of ours is in it. */
#include "floor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TIMEOUT_MS 5000
#define SEND_LEN 256u
#define READ_BACK_LEN 8u
#define READ_BACK_OFF FLOOR_LEN /* where in `bytes` it lands */

struct peer {
	uint64_t addr;
	uint32_t key;
	uint32_t reserved;
};

void floor_fail(const char *what)
{
	fprintf(stderr, "bench_verbs: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct sockaddr_in address_of(const char *text, uint16_t port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};

	if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
		floor_fail("address: expected that of an RDMA device, as 10.7.0.1");
	return address;
}

struct rdma_cm_id *floor_listen(const char *text, uint16_t *port)
{
	struct sockaddr_in address = address_of(text, 0);
	struct rdma_cm_id *id;

	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) != 0 || rdma_bind_addr(id, (struct sockaddr *)&address) != 0 ||
		rdma_listen(id, 1) != 0)
		floor_fail("floor: listen");
	*port = ntohs(rdma_get_src_port(id));
	return id;
}

static struct rdma_conn_param param_of(struct ibv_context *device)
{
	struct ibv_device_attr attr;

	if (ibv_query_device(device, &attr) != 0)
		floor_fail("floor: query the device");
	return (struct rdma_conn_param){
		.initiator_depth = (uint8_t)(attr.max_qp_init_rd_atom < 255 ? attr.max_qp_init_rd_atom : 255),
		.responder_resources = (uint8_t)(attr.max_qp_rd_atom < 255 ? attr.max_qp_rd_atom : 255),
		.retry_count = 6,
		.rnr_retry_count = 6};
}

static void *map_memory(const struct floor_memory *memory)
{
	int fd = open(memory->path, memory->is_device ? O_RDWR : O_RDWR | O_CREAT | O_TRUNC, 0600);
	void *bytes;

	if (fd < 0 || (!memory->is_device && ftruncate(fd, FLOOR_LEN) != 0))
		floor_fail(memory->path);
	bytes = mmap(NULL, FLOOR_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)memory->off);
	if (bytes == MAP_FAILED)
		floor_fail(memory->path);
	close(fd);
	return bytes;
}

static struct ibv_mr *register_memory(struct ibv_pd *pd, void *bytes, bool is_device)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_mr *mr =
		ibv_reg_mr(pd, bytes, FLOOR_LEN, access | (is_device ? IBV_ACCESS_FLUSH_PERSISTENT : IBV_ACCESS_FLUSH_GLOBAL));

	if (mr == NULL && !is_device) /* a device without FLUSH */
		mr = ibv_reg_mr(pd, bytes, FLOOR_LEN, access);
	if (mr == NULL)
		floor_fail("floor: register memory");
	return mr;
}

void floor_serve(struct rdma_cm_id *listener, const struct floor_memory *memory)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct rdma_conn_param param;
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct peer peer;
	void *bytes = map_memory(memory);

	if (rdma_get_request(listener, &id) != 0)
		floor_fail("floor: request");
	id->pd = ibv_alloc_pd(id->verbs);
	mr = register_memory(id->pd, bytes, memory->is_device);
	peer = (struct peer){.addr = (uint64_t)(uintptr_t)bytes, .key = mr->rkey};
	param = param_of(id->verbs);
	param.private_data = &peer;
	param.private_data_len = sizeof(peer);
	if (rdma_create_qp(id, id->pd, &attr) != 0 || rdma_accept(id, &param) != 0)
		floor_fail("floor: accept");
}

static void make_queue(struct floor *floor)
{
	struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = SEND_LEN, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_FLUSH};
	struct rdma_cm_id *id = floor->id;

	id->pd = ibv_alloc_pd(id->verbs);
	floor->cq = ibv_create_cq(id->verbs, SEND_LEN, NULL, NULL, 0);
	floor->mr = ibv_reg_mr(id->pd, floor->bytes, FLOOR_LEN + 4096, IBV_ACCESS_LOCAL_WRITE);
	if (floor->cq == NULL || floor->mr == NULL)
		floor_fail("floor: completion queue and memory");
	attr.pd = id->pd;
	attr.send_cq = attr.recv_cq = floor->cq;
	floor->has_flush = rdma_create_qp_ex(id, &attr) == 0;
	attr.send_ops_flags &= ~(uint64_t)IBV_QP_EX_WITH_FLUSH;
	if (!floor->has_flush && rdma_create_qp_ex(id, &attr) != 0)
		floor_fail("floor: queue pair");
	floor->qp = ibv_qp_to_qp_ex(id->qp);
}

void floor_connect(struct floor *floor, const char *text, uint16_t port)
{
	struct sockaddr_in address = address_of(text, port);
	struct rdma_conn_param param;
	struct peer peer;

	memset(floor, 0, sizeof(*floor));
	floor->bytes = mmap(NULL, FLOOR_LEN + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (floor->bytes == MAP_FAILED || rdma_create_id(NULL, &floor->id, NULL, RDMA_PS_TCP) != 0 ||
		rdma_resolve_addr(floor->id, NULL, (struct sockaddr *)&address, TIMEOUT_MS) != 0 ||
		rdma_resolve_route(floor->id, TIMEOUT_MS) != 0)
		floor_fail("floor: resolve");
	memset(floor->bytes, 0x5A, FLOOR_LEN);
	make_queue(floor);
	param = param_of(floor->id->verbs);
	if (rdma_connect(floor->id, &param) != 0)
		floor_fail("floor: connect");
	memcpy(&peer, floor->id->event->param.conn.private_data, sizeof(peer));
	floor->peer_addr = peer.addr;
	floor->peer_key = peer.key;
}

void floor_close(struct floor *floor)
{
	rdma_disconnect(floor->id);
	rdma_destroy_qp(floor->id);
	ibv_destroy_cq(floor->cq);
	ibv_dereg_mr(floor->mr);
	ibv_dealloc_pd(floor->id->pd);
	rdma_destroy_id(floor->id);
	munmap(floor->bytes, FLOOR_LEN + 4096);
}

static void post_pair(struct floor *floor, uint32_t len, bool is_flush, bool is_last)
{
	struct ibv_qp_ex *qp = floor->qp;
	uint64_t place = floor->peer_addr + floor->off;

	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, floor->peer_key, place);
	ibv_wr_set_sge(qp, floor->mr->lkey, (uint64_t)(uintptr_t)(floor->bytes + floor->off), len);
	qp->wr_flags = is_last ? IBV_SEND_SIGNALED : 0;
	if (is_flush) {
		ibv_wr_flush(qp, floor->peer_key, place, len, floor->is_persistent ? IBV_FLUSH_PERSISTENT : IBV_FLUSH_GLOBAL,
			IBV_FLUSH_RANGE);
	} else {
		ibv_wr_rdma_read(qp, floor->peer_key, place + len - READ_BACK_LEN);
		ibv_wr_set_sge(qp, floor->mr->lkey, (uint64_t)(uintptr_t)(floor->bytes + READ_BACK_OFF), READ_BACK_LEN);
	}
	floor->off += len;
}

/* await -- the one signalled request that is under way. */
static void await(struct floor *floor)
{
	struct ibv_wc wc;
	int got;

	while ((got = ibv_poll_cq(floor->cq, 1, &wc)) == 0)
		__builtin_ia32_pause();
	if (got < 0 || wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "bench_verbs: floor: %s\n", got < 0 ? "cannot be polled" : ibv_wc_status_str(wc.status));
		exit(1);
	}
}

void floor_pairs(struct floor *floor, unsigned count, uint32_t len, bool is_flush)
{
	if (floor->off + (uint64_t)count * len > FLOOR_LEN)
		floor->off = 0;
	ibv_wr_start(floor->qp);
	for (unsigned i = 0; i < count; i++)
		post_pair(floor, len, is_flush, i + 1 == count);
	if (ibv_wr_complete(floor->qp) != 0)
		floor_fail("floor: post");
	await(floor);
}

void floor_read(struct floor *floor, uint32_t len)
{
	ibv_wr_start(floor->qp);
	floor->qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_read(floor->qp, floor->peer_key, floor->peer_addr);
	ibv_wr_set_sge(floor->qp, floor->mr->lkey, (uint64_t)(uintptr_t)floor->bytes, len);
	if (ibv_wr_complete(floor->qp) != 0)
		floor_fail("floor: post");
	await(floor);
}
