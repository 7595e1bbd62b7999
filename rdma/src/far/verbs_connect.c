/* far/verbs_connect.c -- a client's link over verbs: connecting and going. The data path is in far/verbs.c.
 *
 * Device, protection domain and registrations outlive a connection: pinning a ring's copy takes long. Queue pair and
 * completion queue are new each time, so that nothing of an old connection is mistaken for the new one's. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "far/verbs.h"
#include "wire/verbs_address.h"

#define SEND_LEN 256u
#define RESOLVE_MS 100
#define RESOLVE_STEP "resolve the address to an RDMA device"
#define GOODBYE_NS 500000000u
#define READ_BACK_OFF (FAR_ALIVE_OFF + 8) /* behind the words of the copy that are a target's */
#define AWAIT_STEP_NS 20000000u
#define CARRIER_NS 2000000000u /* then it is said all the same: a link that has been down for long swallows it */
#define CARRIER_STEP_NS 10000000
#define REJECTED_BY_PEER 28 /* "consumer defined": the peer's program said no, and its reason is in the private data */

static int until_ms(uint64_t until_ns)
{
	uint64_t now_ns = clock_monotonic_ns();

	return now_ns >= until_ns ? 1 : (int)((until_ns - now_ns) / 1000000u) + 1;
}

/* check_event -- OK when it is the one that is wanted, else NOT_FOUND with a text. */
static int check_event(struct verbs_link *link, struct rdma_cm_event *event, enum rdma_cm_event_type wanted,
	const char *step, struct farlog_error *error)
{
	enum rdma_cm_event_type type = event->event;
	int status = event->status;

	link->lib->ack_cm_event(event);
	if (type == wanted)
		return FARLOG_OK;
	return error_set(error, FARLOG_NOT_FOUND, status < 0 ? -status : 0, "uri \"%s\": %s: %s", link->text, step,
		link->lib->event_str(type));
}

/* await -- the next event; NULL: none in time, or nobody wants the connection any more. */
static struct rdma_cm_event *await(const struct verbs_link *link, uint64_t until_ns)
{
	for (;;) {
		uint64_t step_until_ns = clock_after_ns(AWAIT_STEP_NS);
		bool is_last = step_until_ns >= until_ns;
		struct rdma_cm_event *event = verbs_await(link->lib, link->channel, is_last ? until_ns : step_until_ns);

		if (event != NULL || is_last || far_is_connect_cancelled(&link->link))
			return event;
	}
}

/* expect_event -- wait for one step of the connection manager. OK, or NOT_FOUND with a text. */
static int expect_event(struct verbs_link *link, enum rdma_cm_event_type wanted, const char *step, uint64_t until_ns,
	struct farlog_error *error)
{
	struct rdma_cm_event *event = await(link, until_ns);

	if (event == NULL)
		return error_set(error, FARLOG_NOT_FOUND, 0, "uri \"%s\": %s: no answer in time", link->text, step);
	return check_event(link, event, wanted, step, error);
}

static int no_device(const struct verbs_link *link, struct farlog_error *error)
{
	return error_set(error, FARLOG_NOT_FOUND, errno,
		"uri \"%s\": no RDMA device here %sreaches this address; expected one in \"rdma link\"", link->text,
		link->has_from ? "with the address of from= " : "");
}

/* resolve_address -- the kernel may look at the answer of a neighbour that it did not know only when the time that it
 * was given is over: it is given little, again and again. With all of it the answer came when there was no time left
 * for the rest. */
static int resolve_address(struct verbs_link *link, uint64_t until_ns, struct farlog_error *error)
{
	for (;;) {
		struct rdma_cm_event *event;
		int left_ms = until_ms(until_ns);
		bool is_late;

		if (link->lib->resolve_addr(link->id, link->has_from ? (struct sockaddr *)&link->from : NULL,
				(struct sockaddr *)&link->address, left_ms < RESOLVE_MS ? left_ms : RESOLVE_MS) != 0)
			return no_device(link, error);
		event = await(link, until_ns);
		if (event == NULL)
			return error_set(error, FARLOG_NOT_FOUND, 0, "uri \"%s\": " RESOLVE_STEP ": no answer in time", link->text);
		is_late = event->event == RDMA_CM_EVENT_ADDR_ERROR && event->status == -ETIMEDOUT;
		if (!is_late || clock_monotonic_ns() >= until_ns)
			return check_event(link, event, RDMA_CM_EVENT_ADDR_RESOLVED, RESOLVE_STEP, error);
		link->lib->ack_cm_event(event);
	}
}

static int resolve(struct verbs_link *link, uint64_t until_ns, struct farlog_error *error)
{
	const struct lib_verbs *lib = link->lib;
	int result = verbs_channel_open(lib, link->text, &link->channel, error);
	int failure;

	if (result != FARLOG_OK)
		return result;
	if (lib->create_id(link->channel, &link->id, NULL, RDMA_PS_TCP) != 0)
		return error_set(error, FARLOG_IO, errno, "uri \"%s\": create an RDMA identifier", link->text);
	failure = verbs_set_tos(lib, link->id, link->tos);
	if (failure != 0)
		return error_set(error, FARLOG_IO, failure, "uri \"%s\": set the traffic class", link->text);
	result = resolve_address(link, until_ns, error);
	if (result != FARLOG_OK)
		return result;
	if (link->id->verbs == NULL || lib->resolve_route(link->id, until_ms(until_ns)) != 0)
		return no_device(link, error);
	return expect_event(link, RDMA_CM_EVENT_ROUTE_RESOLVED, "find a route", until_ns, error);
}

/* acquire_device -- the device of the route; another device than before, or one that died, means to register again. */
static int acquire_device(struct verbs_link *link, struct farlog_error *error)
{
	int result;

	if (!verbs_device_is(&link->device, link->id->verbs->device) || link->device.is_dead)
		verbs_link_release(link);
	if (link->pd != NULL)
		return verbs_device_use_port(&link->device, link->id->port_num, error);
	result = verbs_device_open(link->lib, link->id->verbs->device, &link->device, error);
	if (result == FARLOG_OK)
		result = verbs_device_use_port(&link->device, link->id->port_num, error);
	if (result != FARLOG_OK)
		return result;
	link->pd = link->lib->alloc_pd(link->device.context);
	if (link->pd == NULL)
		return error_set(error, FARLOG_IO, errno, "uri \"%s\": allocate a protection domain on RDMA device %s",
			link->text, link->device.name);
	return FARLOG_OK;
}

static int make_queue(struct verbs_link *link, struct farlog_error *error)
{
	struct verbs_queue_ask ask = {.send_len = SEND_LEN,
		.tos = link->tos,
		.is_flush_wanted = link->device.has_flush_global || link->device.has_flush_persistent};
	int failure;
	int result;

	if (link->is_blocking) {
		link->completions = link->lib->create_comp_channel(link->device.context);
		if (link->completions == NULL || fcntl(link->completions->fd, F_SETFL, O_NONBLOCK) != 0)
			return error_set(error, FARLOG_IO, errno, "uri \"%s\": create a completion channel", link->text);
		ask.channel = link->completions;
		ask.recv_len = VERBS_EVENT_RECV_COUNT;
	}
	result = verbs_queue_open(&link->device, link->pd, &ask, &link->queue, error);
	if (result != FARLOG_OK)
		return result;
	/* the target writes words; it reads nothing */
	failure = verbs_queue_init(&link->queue, link->id, IBV_ACCESS_REMOTE_WRITE);
	for (uint32_t i = 0; i < ask.recv_len && failure == 0; i++)
		failure = verbs_queue_receive(&link->queue, i);
	return failure == 0 ? FARLOG_OK :
						  error_set(error, FARLOG_IO, failure, "uri \"%s\": set up the queue pair", link->text);
}

/* parse_rejection -- the target's own words, or none when nobody listens there. */
static int parse_rejection(
	struct verbs_link *link, const struct rdma_cm_event *event, struct far_refusal *refusal, struct farlog_error *error)
{
	if (event->status == REJECTED_BY_PEER && event->param.conn.private_data_len >= sizeof(*refusal)) {
		memcpy(refusal, event->param.conn.private_data, sizeof(*refusal));
		refusal->text[sizeof(refusal->text) - 1] = '\0';
		if (refusal->magic == FAR_REFUSAL_MAGIC && refusal->result < 0)
			return error_set(
				error, refusal->result, 0, "uri \"%s\": the target refused: %s", link->text, refusal->text);
		refusal->magic = 0;
	}
	return error_set(error, FARLOG_NOT_FOUND, 0,
		"uri \"%s\": rejected with reason %d; expected a farlog target that listens there", link->text, event->status);
}

static int check_welcome(struct verbs_link *link, const struct rdma_cm_event *event, struct farlog_error *error)
{
	int result = far_parse_welcome(&link->link, link->text, event->param.conn.private_data,
		event->param.conn.private_data_len, FARLOG_NOT_FOUND, error);

	if (result == FARLOG_OK && link->queue.flush == NULL)
		link->link.welcome.flush_methods &= ~(1u << FARLOG_FLUSH_RDMA_FLUSH); /* this end cannot send it */
	return result;
}

/* set_read_back -- the credit word goes straight to its place, and a writer has its credit with the flush. What else a
 * target may name is read for the flush alone. */
static void set_read_back(struct verbs_link *link)
{
	const struct far_welcome *welcome = &link->link.welcome;
	bool is_credit = welcome->flush_addr == welcome->data_addr + LAYOUT_CREDIT_OFF && link->is_writer;
	struct region_span span = {welcome->flush_addr - welcome->data_addr, sizeof(uint64_t)};

	link->read_back_key = (uint32_t)far_read_key(&link->link, span);
	link->read_back_to = link->link.copy + (is_credit ? LAYOUT_CREDIT_OFF : READ_BACK_OFF);
}

/* describe_path -- of what is set on the queue pair: a port that was left at a small MTU, or at no priority, shows. */
static void describe_path(struct verbs_link *link)
{
	const struct verbs_queue *queue = &link->queue;
	size_t used = (size_t)snprintf(link->link.path, sizeof(link->link.path), "path MTU %u", queue->path_mtu);

	if (queue->traffic_class != 0 || queue->tos != 0)
		snprintf(link->link.path + used, sizeof(link->link.path) - used, ", traffic class %u", queue->traffic_class);
}

/* make_ready -- the queue pair and the connection, over a GID that is not the worse of two. */
static int make_ready(struct verbs_link *link, struct farlog_error *error)
{
	struct verbs_gid gid = {.root = VERBS_ADDRESS_ROOT, .device = link->device.name};
	int failure = verbs_queue_ready(&link->queue, link->id);
	int result;

	if (failure != 0)
		return error_set(error, FARLOG_IO, failure, "uri \"%s\": make the queue pair ready", link->text);
	describe_path(link);
	gid.port = link->queue.port_num;
	gid.index = link->queue.gid_index;
	result = verbs_gid_check(&gid, link->text, &link->link.caveat, error);
	if (result == FARLOG_OK && link->lib->establish(link->id) != 0)
		return error_set(
			error, FARLOG_IO, errno, "uri \"%s\": tell the target that the queue pair is ready", link->text);
	return result;
}

/* send_hello -- ask to be let in, and take what comes. The queue pair of InfiniBand and RoCE is made ready by us; that
 * of iWARP by the kernel, which then says ESTABLISHED at once. */
static int send_hello(struct verbs_link *link, const struct far_hello *hello, struct far_refusal *refusal,
	uint64_t until_ns, struct farlog_error *error)
{
	struct rdma_conn_param param = {.private_data = hello,
		.private_data_len = sizeof(*hello),
		.responder_resources = 1,
		.initiator_depth = link->device.read_depth_out,
		.retry_count = VERBS_RETRY_COUNT,
		.rnr_retry_count = VERBS_RNR_RETRY_COUNT,
		.qp_num = link->queue.qp->qp_num};
	struct rdma_cm_event *event;
	int result;

	if (link->lib->connect(link->id, &param) != 0)
		return error_set(error, FARLOG_IO, errno, "uri \"%s\": connect", link->text);
	event = await(link, until_ns);
	if (event == NULL)
		return error_set(error, FARLOG_NOT_FOUND, 0, "uri \"%s\": connect: no answer in time", link->text);
	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
	case RDMA_CM_EVENT_ESTABLISHED:
		link->is_connected = true;
		result = check_welcome(link, event, error);
		if (result == FARLOG_OK && event->event == RDMA_CM_EVENT_CONNECT_RESPONSE)
			result = make_ready(link, error);
		break;
	case RDMA_CM_EVENT_REJECTED:
		result = parse_rejection(link, event, refusal, error);
		break;
	default:
		result = error_set(error, FARLOG_NOT_FOUND, event->status < 0 ? -event->status : 0, "uri \"%s\": connect: %s",
			link->text, link->lib->event_str(event->event));
	}
	link->lib->ack_cm_event(event);
	return result;
}

static int register_copy(struct verbs_link *link, struct farlog_error *error)
{
	int result = far_copy(&link->link, link->link.welcome.size_bytes);

	if (result == FARLOG_NOT_A_RING)
		return error_set(error, result, 0, "uri \"%s\": the ring there has %lu bytes now; expected %lu", link->text,
			link->link.welcome.size_bytes, link->link.copy_len);
	if (result != FARLOG_OK)
		return error_set(error, result, 0, "uri \"%s\": no memory for a copy of %lu bytes", link->text,
			link->link.welcome.size_bytes);
	if (link->copy_mr == NULL)
		result = verbs_register(&link->device, link->pd, link->link.copy, link->link.copy_len, IBV_ACCESS_LOCAL_WRITE,
			0, "the ring's copy", &link->copy_mr, error);
	/* Only the words of the header are the target's to write. */
	if (result == FARLOG_OK && link->header_mr == NULL)
		result = verbs_register(&link->device, link->pd, link->link.copy, LAYOUT_DATA_OFF,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0, "the ring's header", &link->header_mr, error);
	set_read_back(link);
	return result;
}

/* send_header -- and wait until the target's end has it. */
static int send_header(struct verbs_link *link, uint64_t until_ns, struct farlog_error *error)
{
	struct far_request request = {.operation = FAR_HEADER,
		.flags = link->is_blocking ? FAR_WANTS_EVENTS : 0,
		.spans = {{(uint64_t)(uintptr_t)link->link.copy, link->header_mr->rkey}}};
	int status;

	/* An answer that the last connection left must not be taken for this one's. */
	atomic_store_relaxed((uint64_t *)(link->link.copy + FAR_ANSWER_OFF), 0);
	atomic_store_relaxed((uint64_t *)(link->link.copy + FAR_FLUSHED_OFF), 0);
	if (link->link.ops->send(&link->link, &request) != FARLOG_OK)
		return error_set(error, FARLOG_IO, 0, "uri \"%s\": %s", link->text, link->link.broken);
	status = verbs_queue_await(&link->queue, link->queue.posted, until_ns, NULL, NULL);
	if (status == IBV_WC_SUCCESS)
		return FARLOG_OK;
	return error_set(error, FARLOG_IO, 0, "uri \"%s\": first request: %s", link->text,
		status < 0 ? "no answer in time" : link->lib->wc_status_str((enum ibv_wc_status)status));
}

static int establish(struct verbs_link *link, const struct far_hello *hello, struct far_refusal *refusal,
	uint64_t until_ns, struct farlog_error *error)
{
	uint64_t began_ns;
	int result = resolve(link, until_ns, error);

	if (result == FARLOG_OK)
		result = acquire_device(link, error);
	if (result == FARLOG_OK)
		result = make_queue(link, error);
	if (result == FARLOG_OK)
		result = send_hello(link, hello, refusal, until_ns, error);
	if (result != FARLOG_OK)
		return result;
	began_ns = clock_monotonic_ns();
	result = register_copy(link, error);
	/* The limit is for the peer. Pinning is our own work, takes as long as the ring is large, and started again would
	 * take it again. */
	until_ns += clock_monotonic_ns() - began_ns;
	return result == FARLOG_OK ? send_header(link, until_ns, error) : result;
}

int verbs_link_connect(struct far_link *far, const struct far_hello *hello, struct far_refusal *refusal,
	uint64_t timeout_ns, struct farlog_error *error)
{
	struct verbs_link *link = verbs_link_of(far);
	int result;

	memset(refusal, 0, sizeof(*refusal));
	verbs_link_disconnect(far);
	link->is_broken = false;
	link->is_writer = hello->role == REGION_ROLE_WRITER;
	link->written = hello->role == REGION_ROLE_DRAIN ? FAR_PIECE_DRAIN : FAR_PIECE_WRITER;
	link->link.broken[0] = '\0';
	link->persist = link->read = (struct verbs_job){0};
	link->word_count = 0;
	link->left = 0;
	link->idle_count = 0;
	link->is_announced = false;
	result = establish(link, hello, refusal, clock_after_ns(timeout_ns), error);
	if (result != FARLOG_OK)
		verbs_link_disconnect(far);
	return result;
}

/* await_carrier -- before anything is said over a link that has gone. SoftRoCE takes its queue pair for the connection
 * manager's messages into error when the network refuses one of them, as it does for a moment when a cable is pulled;
 * it never takes it out again (seen on Linux 6.12: "rdma res show qp", GSI, ERR), and nobody on that host can connect
 * by that device until it has been re-created. */
static void await_carrier(const struct verbs_link *link)
{
	const struct verbs_gid gid = {.root = VERBS_ADDRESS_ROOT,
		.device = link->device.name,
		.port = link->queue.port_num,
		.index = link->queue.gid_index};
	uint64_t until_ns = clock_after_ns(CARRIER_NS);

	while (!verbs_gid_has_carrier(&gid) && !far_is_connect_cancelled(&link->link) && clock_monotonic_ns() < until_ns)
		nanosleep(&(struct timespec){0, CARRIER_STEP_NS}, NULL);
}

/* wait_disconnected -- and wait until the target has let go, so that who comes next finds the role free. Not when it
 * has gone before us. */
static void wait_disconnected(struct verbs_link *link)
{
	uint64_t until_ns = clock_after_ns(GOODBYE_NS);
	bool is_over = link->lib->disconnect(link->id) != 0 || link->is_broken;

	while (!is_over) {
		struct rdma_cm_event *event = verbs_await(link->lib, link->channel, until_ns);

		is_over = event == NULL || event->event == RDMA_CM_EVENT_DISCONNECTED;
		if (event != NULL)
			link->lib->ack_cm_event(event);
	}
}

void verbs_link_disconnect(struct far_link *far)
{
	struct verbs_link *link = verbs_link_of(far);

	if (link->is_connected && link->is_broken)
		await_carrier(link);
	if (link->is_connected)
		wait_disconnected(link);
	link->is_connected = false;
	link->is_broken = true;                   /* until the next connection */
	may_fail(verbs_queue_stop(&link->queue)); /* the next connection has a queue of its own */
	may_fail(verbs_queue_close(&link->queue));
	if (link->completions != NULL)
		link->lib->destroy_comp_channel(link->completions);
	link->completions = NULL;
	if (link->id != NULL)
		link->lib->destroy_id(link->id);
	link->id = NULL;
	if (link->channel != NULL)
		link->lib->destroy_event_channel(link->channel);
	link->channel = NULL;
}

void verbs_link_release(struct verbs_link *link)
{
	if (link->header_mr != NULL)
		link->lib->dereg_mr(link->header_mr);
	if (link->copy_mr != NULL)
		link->lib->dereg_mr(link->copy_mr);
	if (link->pd != NULL)
		link->lib->dealloc_pd(link->pd);
	link->header_mr = NULL;
	link->copy_mr = NULL;
	link->pd = NULL;
	verbs_device_close(&link->device);
}
