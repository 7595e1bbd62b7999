/* wire/verbs_device.h -- what both ends of a verbs: connection need of a device: its own context and events,
 * registrations, the connection manager's answers within a deadline. */
#ifndef FARLOG_VERBS_DEVICE_H
#define FARLOG_VERBS_DEVICE_H

#include "wire/lib_verbs.h"

/* One opened device. librdmacm has a context of its own for it, which all users of librdmacm in the process share; ours
 * is opened beside it, so that its asynchronous events are ours alone. */
struct verbs_device {
	const struct lib_verbs *lib;
	struct ibv_context *context;
	uint32_t queue_len_max;
	uint32_t message_len_max; /* of one work request, by port_num */
	uint8_t port_num;         /* the last that was taken up; 0 = none yet */
	uint8_t read_depth_in;    /* READs and FLUSHes that it serves at a time for one queue pair */
	uint8_t read_depth_out;   /* and that it keeps under way */
	bool has_flush_global;
	bool has_flush_persistent;
	bool has_window; /* memory windows that are bound and invalidated by work requests */
	bool is_dead;    /* it said DEVICE_FATAL, or was taken out */
	char name[64];
};

/* verbs_device_open -- a context of our own on the device that `like` is of. OK or IO. */
int verbs_device_open(const struct lib_verbs *lib, struct ibv_device *like, struct verbs_device *device,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* verbs_device_use_port -- what a connection by this port may do: the connection manager chose it. OK or IO. */
int verbs_device_use_port(struct verbs_device *device, uint8_t port_num, struct farlog_error *error) FARLOG_MUST_CHECK;

void verbs_device_close(struct verbs_device *device);

/* verbs_device_is -- is it this one? */
bool verbs_device_is(const struct verbs_device *device, const struct ibv_device *other);

struct verbs_device_event {
	enum ibv_event_type type;
	uint32_t qp_num;         /* 0 = of no queue pair */
	const struct ibv_cq *cq; /* NULL = of no completion queue */
	uint8_t port_num;        /* 0 = not of a port */
};

/* verbs_device_event -- the next asynchronous event. False: there is none. Never blocks. */
bool verbs_device_event(struct verbs_device *device, struct verbs_device_event *event);

/* verbs_is_fatal -- does this event end connections? */
bool verbs_is_fatal(enum ibv_event_type type);

/* verbs_is_of -- is it of this queue pair, or of what it needs: its completion queue, its port, the device? */
bool verbs_is_of(const struct verbs_device_event *event, uint32_t qp_num, const struct ibv_cq *cq, uint8_t port_num);

/* verbs_register -- a registration without relaxed ordering: inbound writes keep their order. `what` and `kind` (enum
 * farlog_region_kind, 0 = plain memory) are for the text, which says what to do. OK, NO_MEMORY, UNSUPPORTED. */
int verbs_register(const struct verbs_device *device, struct ibv_pd *pd, void *start, uint64_t len, unsigned access,
	int kind, const char *what, struct ibv_mr **mr, struct farlog_error *error) FARLOG_MUST_CHECK;

/* verbs_refuse_registration -- the text for what a registration failed with. */
int verbs_refuse_registration(const struct verbs_device *device, int failure, uint64_t len, int kind, const char *what,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* verbs_register_dmabuf -- len bytes of a dma-buf, which peers are to address as if they began at iova. OK;
 * UNSUPPORTED: `why`, of this room, has what library or device do not do, behind what it had. */
int verbs_register_dmabuf(const struct verbs_device *device, struct ibv_pd *pd, int fd, uint64_t off, uint64_t len,
	uint64_t iova, unsigned access, struct ibv_mr **mr, char *why, size_t room) FARLOG_MUST_CHECK;

/* verbs_channel_open -- an event channel that never blocks. OK; UNSUPPORTED: this machine has no RDMA. */
int verbs_channel_open(const struct lib_verbs *lib, const char *text, struct rdma_event_channel **channel,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* verbs_await -- the next event of a channel, which the caller acknowledges; NULL at until_ns. */
struct rdma_cm_event *verbs_await(
	const struct lib_verbs *lib, struct rdma_event_channel *channel, uint64_t until_ns) FARLOG_MUST_CHECK;

#endif
