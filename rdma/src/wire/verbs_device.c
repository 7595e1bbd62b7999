/* wire/verbs_device.c -- see wire/verbs_device.h. */
#include "wire/verbs_device.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/err.h"

#define READ_DEPTH_MAX 16u         /* what the present NICs give; more would be memory for nothing */
#define MESSAGE_LEN_MAX (8u << 20) /* longer ones delay what is behind them */
#define MESSAGE_LEN_MIN (64u << 10)

static bool set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

/* The extended answers have the flush bits; the functions of verbs.h that ask for them would be linked against. */
static bool query(struct verbs_device *device, struct ibv_device_attr_ex *attr)
{
	struct verbs_context *extended = verbs_get_ctx_op(device->context, query_device_ex);

	memset(attr, 0, sizeof(*attr));
	if (extended == NULL || extended->query_device_ex(device->context, NULL, attr, sizeof(*attr)) != 0) {
		memset(attr, 0, sizeof(*attr));
		if (device->lib->query_device(device->context, &attr->orig_attr) != 0)
			return false;
		attr->device_cap_flags_ex = attr->orig_attr.device_cap_flags;
	}
	return true;
}

int verbs_device_use_port(struct verbs_device *device, uint8_t port_num, struct farlog_error *error)
{
	struct verbs_context *extended = verbs_get_ctx_op(device->context, query_port);
	struct ibv_port_attr port = {0};
	int failure = extended == NULL ? 0 : extended->query_port(device->context, port_num, &port, sizeof(port));

	if (failure != 0)
		return error_set(error, FARLOG_IO, failure, "query port %u of RDMA device %s", port_num, device->name);
	device->port_num = port_num;
	device->message_len_max =
		port.max_msg_sz == 0 || port.max_msg_sz > MESSAGE_LEN_MAX ? MESSAGE_LEN_MAX : port.max_msg_sz;
	if (device->message_len_max < MESSAGE_LEN_MIN)
		device->message_len_max = MESSAGE_LEN_MIN;
	return FARLOG_OK;
}

static uint8_t read_depth(int of_device)
{
	return (uint8_t)(of_device < 1 ? 1 : (unsigned)of_device > READ_DEPTH_MAX ? READ_DEPTH_MAX : (unsigned)of_device);
}

int verbs_device_open(
	const struct lib_verbs *lib, struct ibv_device *like, struct verbs_device *device, struct farlog_error *error)
{
	struct ibv_device_attr_ex attr;

	*device = (struct verbs_device){.lib = lib};
	snprintf(device->name, sizeof(device->name), "%s", lib->get_device_name(like));
	device->context = lib->open_device(like);
	if (device->context == NULL)
		return error_set(error, FARLOG_IO, errno, "open RDMA device %s", device->name);
	if (!set_nonblocking(device->context->async_fd) || !query(device, &attr)) {
		int failure = errno;

		verbs_device_close(device);
		return error_set(error, FARLOG_IO, failure, "query RDMA device %s", device->name);
	}
	device->queue_len_max = (uint32_t)attr.orig_attr.max_qp_wr;
	device->read_depth_in = read_depth(attr.orig_attr.max_qp_rd_atom);
	device->read_depth_out = read_depth(attr.orig_attr.max_qp_init_rd_atom);
	device->has_flush_global = attr.device_cap_flags_ex & VERBS_DEVICE_FLUSH_GLOBAL;
	device->has_flush_persistent = attr.device_cap_flags_ex & VERBS_DEVICE_FLUSH_PERSISTENT;
	device->has_window =
		attr.orig_attr.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B) &&
		attr.orig_attr.max_mw > 0;
	return FARLOG_OK;
}

void verbs_device_close(struct verbs_device *device)
{
	if (device->context != NULL)
		device->lib->close_device(device->context);
	device->context = NULL;
}

bool verbs_device_is(const struct verbs_device *device, const struct ibv_device *other)
{
	return device->context != NULL &&
		strcmp(device->name, device->lib->get_device_name((struct ibv_device *)other)) == 0;
}

static bool is_of_queue_pair(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return true;
	default:
		return false;
	}
}

bool verbs_is_fatal(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_DEVICE_FATAL:
		return true;
	default:
		return false;
	}
}

bool verbs_is_of(const struct verbs_device_event *event, uint32_t qp_num, const struct ibv_cq *cq, uint8_t port_num)
{
	if (event->qp_num != 0)
		return event->qp_num == qp_num;
	if (event->cq != NULL)
		return event->cq == cq;
	return event->port_num == 0 || event->port_num == port_num;
}

bool verbs_device_event(struct verbs_device *device, struct verbs_device_event *event)
{
	struct ibv_async_event seen;

	if (device->context == NULL || device->lib->get_async_event(device->context, &seen) != 0)
		return false;
	event->type = seen.event_type;
	event->qp_num = is_of_queue_pair(seen.event_type) ? seen.element.qp->qp_num : 0;
	event->cq = seen.event_type == IBV_EVENT_CQ_ERR ? seen.element.cq : NULL;
	event->port_num = seen.event_type == IBV_EVENT_PORT_ERR ? (uint8_t)seen.element.port_num : 0;
	device->lib->ack_async_event(&seen); /* at once: destroying what it is about waits for it */
	if (event->type == IBV_EVENT_DEVICE_FATAL)
		device->is_dead = true;
	return true;
}

static const char *advice(int failure, int kind)
{
	if (kind == FARLOG_REGION_BAR)
		return "a PCI BAR mapped through sysfs has no pages that a device could write to: use a device DAX or tmpfs "
			   "region here, or what it takes for a "
			   "dma-buf (docs/how-to/use-a-pci-bar.md)";
	if (kind == FARLOG_REGION_FSDAX || failure == EOPNOTSUPP)
		return "a file on a DAX file system cannot be pinned for a device: make the namespace device DAX (ndctl "
			   "create-namespace --mode=devdax) and name "
			   "/dev/daxX.Y";
	if (kind == FARLOG_REGION_FILE)
		return "a file on a disk cannot be pinned for a device's writes: use device DAX (persistent) or tmpfs "
			   "(visible), or reach it by ofi:tcp";
	return "expected memory that a device may write to: device DAX or tmpfs";
}

int verbs_refuse_registration(const struct verbs_device *device, int failure, uint64_t len, int kind, const char *what,
	struct farlog_error *error)
{
	struct rlimit limit;
	char bound[40] = "unlimited";

	if (failure != ENOMEM)
		return error_set(error, FARLOG_UNSUPPORTED, failure, "register %lu bytes of %s with RDMA device %s (%s)", len,
			what, device->name, advice(failure, kind));
	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		snprintf(bound, sizeof(bound), "%lu bytes", (unsigned long)limit.rlim_cur);
	return error_set(error, FARLOG_NO_MEMORY, failure,
		"register %lu bytes of %s with RDMA device %s: RLIMIT_MEMLOCK is %s; expected at least that much (ulimit -l "
		"unlimited, systemd: "
		"LimitMEMLOCK=infinity, containers: --ulimit memlock=-1)",
		len, what, device->name, bound);
}

int verbs_register_dmabuf(const struct verbs_device *device, struct ibv_pd *pd, int fd, uint64_t off, uint64_t len,
	uint64_t iova, unsigned access, struct ibv_mr **mr, char *why, size_t room)
{
	size_t used = strlen(why);

	*mr = NULL;
	if (device->lib->reg_dmabuf_mr == NULL)
		snprintf(why + used, room - used, "libibverbs has no ibv_reg_dmabuf_mr (expected 34 or later)");
	else if ((*mr = device->lib->reg_dmabuf_mr(pd, off, len, iova, fd, (int)access)) == NULL)
		snprintf(why + used, room - used, "RDMA device %s takes no such dma-buf: %s", device->name, strerror(errno));
	return *mr != NULL ? FARLOG_OK : FARLOG_UNSUPPORTED;
}

int verbs_register(const struct verbs_device *device, struct ibv_pd *pd, void *start, uint64_t len, unsigned access,
	int kind, const char *what, struct ibv_mr **mr, struct farlog_error *error)
{
	*mr = device->lib->reg_mr(pd, start, len, (int)access);
	if (*mr != NULL)
		return FARLOG_OK;
	return verbs_refuse_registration(device, errno, len, kind, what, error);
}

int verbs_channel_open(
	const struct lib_verbs *lib, const char *text, struct rdma_event_channel **channel, struct farlog_error *error)
{
	int failure;

	*channel = lib->create_event_channel();
	if (*channel == NULL)
		return error_set(error, FARLOG_UNSUPPORTED, errno,
			"uri \"%s\": this machine has no RDMA connection manager; expected /dev/infiniband/rdma_cm (modprobe "
			"rdma_ucm) and an RDMA device",
			text);
	if (set_nonblocking((*channel)->fd))
		return FARLOG_OK;
	failure = errno;
	lib->destroy_event_channel(*channel);
	*channel = NULL;
	return error_set(error, FARLOG_IO, failure, "uri \"%s\": set up the RDMA event channel", text);
}

struct rdma_cm_event *verbs_await(const struct lib_verbs *lib, struct rdma_event_channel *channel, uint64_t until_ns)
{
	for (;;) {
		struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
		struct rdma_cm_event *event;
		uint64_t now_ns;

		if (lib->get_cm_event(channel, &event) == 0)
			return event;
		now_ns = clock_monotonic_ns();
		if (now_ns >= until_ns || (errno != EAGAIN && errno != EINTR))
			return NULL;
		poll(&ready, 1, (int)((until_ns - now_ns) / 1000000u) + 1);
	}
}
