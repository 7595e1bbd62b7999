/* target/ofi_acceptor.c -- reads connection requests to a target by libfabric, in a thread of its own.
 *
 * libfabric 1.17's tcp provider reads a connection request by blocking calls, inside the call that polls for events.
 * Anybody who reaches the port can stop in the middle of a request, long before a token is asked for. So the acceptor's
 * thread polls, which no connection's data wait for. It hands complete requests to the progress thread
 * (ofi_accept_request); only the progress thread touches a connection. The provider closes an incomplete request and
 * reports nothing: such connections are not counted. It also keeps one that sends nothing at all for ever, of which
 * target/conn_limiter.c bounds the number and the time. */
#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "base/thread.h"
#include "target/ofi.h"

#define HANDSHAKE_US 10000 /* the request is one segment: where its beginning is, the rest is too */
#define REQUESTS_MAX 64u   /* more than that wait in the socket */
#define REST_MS 1          /* while so many wait */
#define WAIT_MS 100

/* limit_handshakes -- what the listening socket is told, those that it accepts inherit; once connected they do not
 * block, and the limit means nothing any more. */
static void limit_handshakes(uint16_t port)
{
	struct timeval limit = {0, HANDSHAKE_US};
	DIR *fds = opendir("/proc/self/fd");
	const struct dirent *entry;

	while (fds != NULL && (entry = readdir(fds)) != NULL) {
		int fd = atoi(entry->d_name);
		struct sockaddr_in address; /* the port lies at the same place in both families */
		socklen_t address_len = sizeof(address);
		socklen_t len = sizeof(int);
		int is_listening = 0;

		if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &len) == 0 && is_listening &&
			getsockname(fd, (struct sockaddr *)&address, &address_len) == 0 && ntohs(address.sin_port) == port)
			(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	}
	if (fds != NULL)
		closedir(fds);
}

int ofi_acceptor_open(struct ofi_acceptor *acceptor, uint16_t *port)
{
	struct ofi_listener *listener = acceptor->listener;
	struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_FD};
	struct sockaddr_storage address = {0};
	size_t address_len = sizeof(address);
	int failure = fi_eq_open(listener->fabric, &eq_attr, &acceptor->eq, NULL);

	acceptor->last = &acceptor->first;
	if (failure == 0)
		failure = fi_control(&acceptor->eq->fid, FI_GETWAIT, &acceptor->eq_fd);
	if (failure == 0)
		failure = fi_passive_ep(listener->fabric, listener->info, &acceptor->pep, NULL);
	if (failure == 0)
		failure = fi_pep_bind(acceptor->pep, &acceptor->eq->fid, 0);
	if (failure == 0)
		failure = fi_listen(acceptor->pep);
	if (failure == 0)
		failure = fi_getname(&acceptor->pep->fid, &address, &address_len);
	if (failure != 0)
		return failure;
	*port = ntohs(((struct sockaddr_in *)&address)->sin_port); /* at the same place in both families */
	limit_handshakes(*port);
	return -conn_limiter_open(&acceptor->limiter, listener->target, (const struct sockaddr *)&address);
}

/* ---------------------------------------------------------------- connection requests */

void ofi_acceptor_reject(struct ofi_acceptor *acceptor, struct fi_info *info, const void *refusal, size_t len)
{
	(void)fi_reject(acceptor->pep, info->handle, refusal, len);
	conn_limiter_remove(&acceptor->limiter, info->dest_addr);
	acceptor->listener->lib->freeinfo(info);
}

static void announce(struct ofi_acceptor *acceptor, struct fi_info *info, const uint8_t *data, size_t len)
{
	struct ofi_listener *listener = acceptor->listener;
	struct ofi_conn_request *request = calloc(1, sizeof(*request));

	if (request == NULL || !conn_limiter_add(&acceptor->limiter, info->dest_addr)) {
		free(request);
		ofi_acceptor_reject(acceptor, info, NULL, 0);
		return;
	}
	request->info = info;
	request->len = len < sizeof(request->data) ? len : sizeof(request->data);
	memcpy(request->data, data, request->len);
	pthread_mutex_lock(&listener->lock);
	*acceptor->last = request;
	acceptor->last = &request->next;
	atomic_store_release(&acceptor->request_count, acceptor->request_count + 1);
	pthread_mutex_unlock(&listener->lock);
	(void)eventfd_write(listener->wakeup_fd, 1);
}

struct ofi_conn_request *ofi_acceptor_pop_request(struct ofi_acceptor *acceptor)
{
	struct ofi_listener *listener = acceptor->listener;
	struct ofi_conn_request *request;

	if (atomic_load_acquire(&acceptor->request_count) == 0)
		return NULL;
	pthread_mutex_lock(&listener->lock);
	request = acceptor->first;
	acceptor->first = request->next;
	if (acceptor->first == NULL)
		acceptor->last = &acceptor->first;
	atomic_store_release(&acceptor->request_count, acceptor->request_count - 1);
	pthread_mutex_unlock(&listener->lock);
	return request;
}

/* ---------------------------------------------------------------- the thread */

bool ofi_acceptor_poll(struct ofi_acceptor *acceptor)
{
	union {
		struct fi_eq_cm_entry entry;
		uint8_t room[sizeof(struct fi_eq_cm_entry) + CM_DATA_LEN_MAX];
	} event;
	struct fi_eq_err_entry failure = {0};
	uint32_t kind = 0;
	ssize_t len = fi_eq_read(acceptor->eq, &kind, &event, sizeof(event), 0);

	if (len == -FI_EAVAIL)
		return fi_eq_readerr(acceptor->eq, &failure, 0) > 0;
	if (len < (ssize_t)sizeof(event.entry))
		return false;
	if (kind == FI_CONNREQ)
		announce(acceptor, event.entry.info, event.room + sizeof(event.entry), (size_t)len - sizeof(event.entry));
	return true;
}

/* await -- until the provider has an event, or may have. True: it has. */
static bool await(struct ofi_acceptor *acceptor)
{
	bool is_full = atomic_load_acquire(&acceptor->request_count) >= REQUESTS_MAX;
	struct pollfd fds[] = {{.fd = acceptor->wakeup_fd, .events = POLLIN}, {.fd = acceptor->eq_fd, .events = POLLIN}};
	struct fid *fids[] = {&acceptor->eq->fid};

	if (is_full)
		return poll(fds, 1, REST_MS) > 0;
	return fi_trywait(acceptor->listener->fabric, fids, 1) != 0 || poll(fds, 2, WAIT_MS) > 0;
}

static void *run_acceptor(void *context)
{
	struct ofi_acceptor *acceptor = context;

	while (!atomic_load_acquire(&acceptor->listener->is_stopping)) {
		bool is_full = atomic_load_acquire(&acceptor->request_count) >= REQUESTS_MAX;
		bool is_woken = (!is_full && ofi_acceptor_poll(acceptor)) || await(acceptor);

		(void)conn_limiter_enforce(&acceptor->limiter, clock_monotonic_ns(), is_woken);
	}
	return NULL;
}

int ofi_acceptor_start(struct ofi_acceptor *acceptor)
{
	int failure = thread_start(&acceptor->thread, run_acceptor, acceptor);

	acceptor->is_running = failure == 0;
	return failure;
}

void ofi_acceptor_stop(struct ofi_acceptor *acceptor)
{
	if (!acceptor->is_running)
		return;
	(void)eventfd_write(acceptor->wakeup_fd, 1);
	pthread_join(acceptor->thread, NULL);
	acceptor->is_running = false;
}
