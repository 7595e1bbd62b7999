/* wire/lib_verbs.h -- libibverbs and librdmacm, loaded when the first verbs: URI is opened.
 *
 * Only what the libraries export is here: the data path goes through tables of functions in contexts and queue pairs,
 * for which verbs.h has inline functions. FLUSH came with rdma-core 45: its constants and the place of its function are
 * written down here, so that what was built with older headers uses it where the library at hand has it. */
#ifndef FARLOG_LIB_VERBS_H
#define FARLOG_LIB_VERBS_H

#include <stddef.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "farlog/farlog.h"

/* X(name of ours, symbol). Types are those of the headers. */
#define LIB_VERBS_TABLE(X) \
	X(get_device_list, ibv_get_device_list) \
	X(free_device_list, ibv_free_device_list) \
	X(get_device_name, ibv_get_device_name) \
	X(open_device, ibv_open_device) \
	X(close_device, ibv_close_device) \
	X(query_device, ibv_query_device) \
	X(alloc_pd, ibv_alloc_pd) \
	X(dealloc_pd, ibv_dealloc_pd) \
	X(reg_mr, ibv_reg_mr) \
	X(dereg_mr, ibv_dereg_mr) \
	X(create_comp_channel, ibv_create_comp_channel) \
	X(destroy_comp_channel, ibv_destroy_comp_channel) \
	X(create_cq, ibv_create_cq) \
	X(destroy_cq, ibv_destroy_cq) \
	X(get_cq_event, ibv_get_cq_event) \
	X(ack_cq_events, ibv_ack_cq_events) \
	X(qp_to_qp_ex, ibv_qp_to_qp_ex) \
	X(modify_qp, ibv_modify_qp) \
	X(destroy_qp, ibv_destroy_qp) \
	X(get_async_event, ibv_get_async_event) \
	X(ack_async_event, ibv_ack_async_event) \
	X(event_type_str, ibv_event_type_str) \
	X(wc_status_str, ibv_wc_status_str)

#define LIB_RDMACM_TABLE(X) \
	X(create_event_channel, rdma_create_event_channel) \
	X(destroy_event_channel, rdma_destroy_event_channel) \
	X(create_id, rdma_create_id) \
	X(destroy_id, rdma_destroy_id) \
	X(set_option, rdma_set_option) \
	X(bind_addr, rdma_bind_addr) \
	X(listen, rdma_listen) \
	X(get_src_port, rdma_get_src_port) \
	X(resolve_addr, rdma_resolve_addr) \
	X(resolve_route, rdma_resolve_route) \
	X(connect, rdma_connect) \
	X(establish, rdma_establish) \
	X(accept, rdma_accept) \
	X(reject, rdma_reject) \
	X(disconnect, rdma_disconnect) \
	X(init_qp_attr, rdma_init_qp_attr) \
	X(get_cm_event, rdma_get_cm_event) \
	X(ack_cm_event, rdma_ack_cm_event) \
	X(event_str, rdma_event_str)

/* rdma-core 34 and later; its headers may be older. */
typedef struct ibv_mr *(*verbs_reg_dmabuf_fn)(
	struct ibv_pd *pd, uint64_t off, size_t len, uint64_t iova, int fd, int access);

struct lib_verbs {
	verbs_reg_dmabuf_fn reg_dmabuf_mr; /* NULL: this library has none */
#define LIB_VERBS_FIELD(name, symbol) __typeof__(&symbol) name;
	LIB_VERBS_TABLE(LIB_VERBS_FIELD)
	LIB_RDMACM_TABLE(LIB_VERBS_FIELD)
#undef LIB_VERBS_FIELD
};

/* lib_verbs_load -- once a process, by any thread. OK, or UNSUPPORTED with a text that says what to install. */
int lib_verbs_load(const struct lib_verbs **lib, struct farlog_error *error) FARLOG_MUST_CHECK;

/* ---------------------------------------------------------------- FLUSH, as rdma-core 45 and later have it */

#define VERBS_ACCESS_FLUSH_GLOBAL (1u << 8)
#define VERBS_ACCESS_FLUSH_PERSISTENT (1u << 9)
#define VERBS_QP_EX_WITH_FLUSH (1u << 11)
#define VERBS_DEVICE_FLUSH_GLOBAL (UINT64_C(1) << 38) /* in device_cap_flags_ex */
#define VERBS_DEVICE_FLUSH_PERSISTENT (UINT64_C(1) << 39)
#define VERBS_FLUSH_GLOBAL 1u /* placement: what a processor there sees */
#define VERBS_FLUSH_PERSISTENT 2u
#define VERBS_FLUSH_RANGE 0u /* selectivity: these bytes, not the whole memory region */

typedef void (*verbs_flush_fn)(
	struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, size_t len, uint8_t placement, uint8_t selectivity);

/* The function pointer follows wr_atomic_write, with which older headers end. */
#define VERBS_WR_FLUSH_OFF (offsetof(struct ibv_qp_ex, wr_atomic_write) + sizeof(void *))

/* verbs_flush_of -- only of a queue pair that was created with VERBS_QP_EX_WITH_FLUSH: a library that does not know
 * FLUSH refuses that flag, and its structure ends before the pointer. */
static inline verbs_flush_fn verbs_flush_of(const struct ibv_qp_ex *qp)
{
	return *(const verbs_flush_fn *)(const void *)((const char *)qp + VERBS_WR_FLUSH_OFF);
}

#ifdef FARLOG_HAVE_WR_FLUSH /* the build found it in the headers */
_Static_assert(VERBS_WR_FLUSH_OFF == offsetof(struct ibv_qp_ex, wr_flush), "wr_flush");
_Static_assert(VERBS_ACCESS_FLUSH_GLOBAL == IBV_ACCESS_FLUSH_GLOBAL &&
		VERBS_ACCESS_FLUSH_PERSISTENT == IBV_ACCESS_FLUSH_PERSISTENT,
	"access");
_Static_assert(VERBS_QP_EX_WITH_FLUSH == IBV_QP_EX_WITH_FLUSH, "send_ops_flags");
_Static_assert(VERBS_FLUSH_GLOBAL == IBV_FLUSH_GLOBAL && VERBS_FLUSH_PERSISTENT == IBV_FLUSH_PERSISTENT, "placement");
_Static_assert(VERBS_FLUSH_RANGE == IBV_FLUSH_RANGE, "selectivity");
#endif

#endif
