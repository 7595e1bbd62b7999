/* target/verbs.c -- the target's listener for verbs: one thread that lets clients in, serves their requests and ends
 * their connections. */
#include "target/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"
#include "wire/verbs_address.h"

#define BACKLOG 64
#define TICK_NS 200000u
#define SPIN_NS 50000u                                    /* after something happened: the next request is near */
#define DOZE_NS 1000000u                                  /* credits are due that often while there are connections */
#define SLEEP_NS 999000000u                               /* without connections only events matter */
#define TURNS_OF_ONE_THAT_GOES (VERBS_RECV_COUNT / 8 + 1) /* more than its queue can hold: it may be sending on */
#define LOOK_EVERY 64u /* turns between two looks at events, while there is no sleep between */

/* ---------------------------------------------------------------- events */

static void handle_cm_event(struct verbs_listener *listener, struct rdma_cm_event *event)
{
	struct verbs_conn *conn = event->id->context;
	enum rdma_cm_event_type type = event->event;

	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		verbs_conn_admit(listener, event);
		return;
	}
	listener->lib->ack_cm_event(event);
	if (conn == NULL)
		return;
	switch (type) {
	case RDMA_CM_EVENT_DISCONNECTED:
		/* Why it goes may lie in its queue still: what the device refused is counted, also of a client that is gone at
		 * once. */
		for (unsigned turn = 0; turn < TURNS_OF_ONE_THAT_GOES && !verbs_conn_is_down(conn) && verbs_conn_progress(conn);
			turn++)
			;
		conn->is_goodbye = !verbs_conn_is_down(conn);
		verbs_conn_end(conn, false);
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		verbs_conn_end(conn, true);
		break;
	default:
		break;
	}
}

static bool handle_cm_events(struct verbs_listener *listener)
{
	struct rdma_cm_event *event;
	bool is_busy = false;

	while (listener->lib->get_cm_event(listener->channel, &event) == 0) {
		handle_cm_event(listener, event);
		is_busy = true;
	}
	return is_busy;
}

static void handle_device_event(
	struct verbs_listener *listener, struct verbs_host *host, const struct verbs_device_event *event)
{
	/* a port may come back before the retries end */
	if (!verbs_is_fatal(event->type) || event->type == IBV_EVENT_PORT_ERR)
		return;
	for (struct verbs_conn *conn = listener->conns; conn != NULL; conn = conn->next) {
		if (verbs_conn_is_down(conn) || conn->host != host)
			continue;
		if (!verbs_is_of(event, conn->queue.qp->qp_num, conn->queue.cq, conn->queue.port_num))
			continue;
		if (event->type == IBV_EVENT_QP_ACCESS_ERR || event->type == IBV_EVENT_QP_REQ_ERR)
			verbs_conn_deny(conn);
		verbs_conn_end(conn, true);
	}
}

static void handle_device_events(struct verbs_listener *listener)
{
	struct verbs_device_event event;

	for (unsigned i = 0; i < listener->host_count; i++)
		while (verbs_device_event(&listener->hosts[i].device, &event))
			handle_device_event(listener, &listener->hosts[i], &event);
}

static void read_completion_events(struct verbs_listener *listener)
{
	struct ibv_cq *cq;
	void *context;

	for (unsigned i = 0; i < listener->host_count; i++)
		while (listener->lib->get_cq_event(listener->hosts[i].completions, &cq, &context) == 0) {
			listener->lib->ack_cq_events(cq, 1); /* at once: destroying it waits for this */
			((struct verbs_conn *)context)->is_armed = false;
		}
}

/* ---------------------------------------------------------------- the thread */

static struct verbs_conn *next_ordered(struct verbs_listener *listener)
{
	struct verbs_conn *conn = listener->conns;

	pthread_mutex_lock(&listener->lock);
	while (conn != NULL && !conn->is_ordered)
		conn = conn->next;
	if (conn == NULL)
		atomic_store_relaxed(&listener->has_orders, 0);
	pthread_mutex_unlock(&listener->lock);
	return conn;
}

static void run_orders(struct verbs_listener *listener)
{
	struct verbs_conn *conn;

	if (!atomic_load_acquire(&listener->has_orders))
		return;
	while ((conn = next_ordered(listener)) != NULL)
		verbs_conn_run_order(conn);
}

/* release_ended -- let go of connections that have ended. */
static void release_ended(struct verbs_listener *listener)
{
	struct verbs_conn **link = &listener->conns;

	while (*link != NULL) {
		struct verbs_conn *conn = *link;

		if (!verbs_conn_release(conn)) {
			link = &conn->next;
			continue;
		}
		*link = conn->next;
		if (conn->is_goodbye)
			listener->lib->disconnect(conn->id);
		listener->lib->destroy_id(conn->id);
		if (conn->queue.cq == NULL) /* else events may name it until the device is closed */
			free(conn);
	}
}

static bool read_all(struct verbs_listener *listener)
{
	bool is_busy = false;

	for (struct verbs_conn *conn = listener->conns; conn != NULL; conn = conn->next)
		is_busy |= verbs_conn_progress(conn);
	return is_busy;
}

/* sleep_until_event -- until an event, or until credits are due. Completion events are asked for first, and then looked
 * for once more: what came before the asking makes none. */
static void sleep_until_event(struct verbs_listener *listener)
{
	struct pollfd fds[2 + 2 * VERBS_DEVICE_COUNT_MAX] = {
		{.fd = listener->wakeup_fd, .events = POLLIN}, {.fd = listener->channel->fd, .events = POLLIN}};
	unsigned count = 2;
	eventfd_t rings;

	for (struct verbs_conn *conn = listener->conns; conn != NULL; conn = conn->next)
		verbs_conn_arm(conn);
	if (read_all(listener))
		return;
	for (unsigned i = 0; i < listener->host_count; i++) {
		fds[count++] = (struct pollfd){.fd = listener->hosts[i].completions->fd, .events = POLLIN};
		fds[count++] = (struct pollfd){.fd = listener->hosts[i].device.context->async_fd, .events = POLLIN};
	}
	(void)clock_poll(fds, count, listener->conns != NULL ? DOZE_NS : SLEEP_NS);
	if (fds[0].revents & POLLIN)
		(void)eventfd_read(listener->wakeup_fd, &rings);
	read_completion_events(listener);
}

static void *serve_loop(void *context)
{
	struct verbs_listener *listener = context;
	uint64_t busy_at_ns = 0;
	uint64_t tick_at_ns = 0;
	bool is_look_due = true;

	for (unsigned turns = 0; !atomic_load_acquire(&listener->is_stopping); turns++) {
		bool is_busy = read_all(listener);
		uint64_t now_ns = clock_monotonic_ns();

		run_orders(listener);
		if (is_look_due || turns % LOOK_EVERY == 0) {
			is_busy |= handle_cm_events(listener);
			handle_device_events(listener);
		}
		release_ended(listener);
		if (is_busy)
			busy_at_ns = now_ns;
		if (listener->conns != NULL && (target_has_answers(&listener->has_answers) || now_ns - tick_at_ns >= TICK_NS)) {
			tick_at_ns = now_ns;
			target_tick(listener->target, &listener->has_answers);
			for (struct verbs_conn *conn = listener->conns; conn != NULL; conn = conn->next)
				verbs_conn_ask_alive(conn, now_ns);
		}
		is_look_due = now_ns - busy_at_ns >= SPIN_NS && (!listener->is_spinning || listener->conns == NULL);
		if (is_look_due && !atomic_load_relaxed(&listener->has_answers))
			sleep_until_event(listener);
	}
	return NULL;
}

/* ---------------------------------------------------------------- the listener */

static void verbs_listener_close(void *context)
{
	struct verbs_listener *listener = context;
	const struct lib_verbs *lib = listener->lib;

	if (listener->is_running) {
		atomic_store_release(&listener->is_stopping, 1);
		(void)eventfd_write(listener->wakeup_fd, 1);
		pthread_join(listener->thread, NULL);
	}
	for (struct verbs_conn *conn = listener->conns; conn != NULL; conn = conn->next)
		verbs_conn_end(conn, false);
	release_ended(listener);
	if (listener->id != NULL)
		lib->destroy_id(listener->id);
	if (listener->channel != NULL)
		lib->destroy_event_channel(listener->channel);
	for (unsigned i = 0; i < listener->host_count; i++) {
		if (listener->hosts[i].completions != NULL)
			lib->destroy_comp_channel(listener->hosts[i].completions);
		verbs_device_close(&listener->hosts[i].device);
	}
	if (listener->wakeup_fd >= 0)
		close(listener->wakeup_fd);
	pthread_cond_destroy(&listener->moved);
	pthread_mutex_destroy(&listener->lock);
	free(listener);
}

static int bind_address(
	struct verbs_listener *listener, const char *text, const struct uri *uri, struct farlog_error *error)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
	struct addrinfo *found;
	const struct addrinfo *picked;
	int failure = getaddrinfo(uri->host, uri->port, &hints, &found);

	if (failure != 0)
		return error_set(error, FARLOG_INVALID, 0, "listen at \"%s\": host \"%s\" is not known: %s", text, uri->host,
			gai_strerror(failure));
	picked = verbs_address_pick(found);
	if (listener->lib->create_id(listener->channel, &listener->id, NULL, RDMA_PS_TCP) != 0)
		failure = errno;
	else if ((failure = verbs_set_tos(listener->lib, listener->id, uri->tos)) != 0)
		;
	else if (listener->lib->bind_addr(listener->id, picked->ai_addr) != 0)
		failure = errno;
	freeaddrinfo(found);
	if (failure == ENODEV || failure == EADDRNOTAVAIL)
		return error_set(error, FARLOG_UNSUPPORTED, failure,
			"listen at \"%s\": no RDMA device here has this address; expected one in \"rdma link\"", text);
	if (failure == 0 && listener->lib->listen(listener->id, BACKLOG) != 0)
		failure = errno;
	if (failure != 0)
		return error_set(error, FARLOG_IO, failure, "listen at \"%s\"", text);
	snprintf(listener->target->uri, sizeof(listener->target->uri),
		strchr(uri->host, ':') != NULL ? "verbs://[%s]:%u" : "verbs://%s:%u", uri->host,
		ntohs(listener->lib->get_src_port(listener->id)));
	return FARLOG_OK;
}

static int add_host(struct verbs_listener *listener, struct ibv_device *device, struct farlog_error *error)
{
	struct verbs_host *host = &listener->hosts[listener->host_count];
	int result = verbs_device_open(listener->lib, device, &host->device, error);

	if (result != FARLOG_OK)
		return result;
	listener->host_count++;
	host->completions = listener->lib->create_comp_channel(host->device.context);
	if (host->completions == NULL || fcntl(host->completions->fd, F_SETFL, O_NONBLOCK) != 0)
		return error_set(error, FARLOG_IO, errno, "create a completion channel on RDMA device %s", host->device.name);
	return FARLOG_OK;
}

/* find_hosts -- the device of the address, or all of them when we listen at every address. */
static int find_hosts(struct verbs_listener *listener, const char *text, struct farlog_error *error)
{
	struct ibv_device **devices;
	int result = FARLOG_OK;

	if (listener->id->verbs != NULL)
		return add_host(listener, listener->id->verbs->device, error);
	devices = listener->lib->get_device_list(NULL);
	for (int i = 0;
		devices != NULL && devices[i] != NULL && result == FARLOG_OK && listener->host_count < VERBS_DEVICE_COUNT_MAX;
		i++)
		result = add_host(listener, devices[i], error);
	if (devices != NULL)
		listener->lib->free_device_list(devices);
	if (result == FARLOG_OK && listener->host_count == 0)
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"listen at \"%s\": this machine has no RDMA device; expected one in \"rdma link\"", text);
	return result;
}

static int verbs_listener_open(
	struct farlog_target *target, const char *text, const struct uri *uri, void **context, struct farlog_error *error)
{
	struct verbs_listener *listener = calloc(1, sizeof(*listener));
	int result;
	int failure;

	if (listener == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "listen at \"%s\": out of memory", text);
	listener->target = target;
	listener->is_spinning = strcmp(uri->wait, "spin") == 0;
	listener->tos = uri->tos;
	pthread_mutex_init(&listener->lock, NULL);
	pthread_cond_init(&listener->moved, NULL);
	listener->wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	result = listener->wakeup_fd < 0 ? error_set(error, FARLOG_IO, errno, "listen at \"%s\": eventfd", text) :
									   lib_verbs_load(&listener->lib, error);
	if (result == FARLOG_OK)
		result = verbs_channel_open(listener->lib, text, &listener->channel, error);
	if (result == FARLOG_OK)
		result = bind_address(listener, text, uri, error);
	if (result == FARLOG_OK)
		result = find_hosts(listener, text, error);
	if (result == FARLOG_OK) {
		failure = thread_start(&listener->thread, serve_loop, listener);
		listener->is_running = failure == 0;
		if (failure != 0)
			result = error_set(error, FARLOG_IO, failure, "start the thread that listens at \"%s\"", text);
	}
	if (result == FARLOG_OK)
		*context = listener;
	else
		verbs_listener_close(listener);
	return result;
}

const struct target_transport target_verbs = {
	.scheme = "verbs",
	.open = verbs_listener_open,
	.expose = verbs_expose,
	.withdraw = verbs_withdraw,
	.close = verbs_listener_close,
};
