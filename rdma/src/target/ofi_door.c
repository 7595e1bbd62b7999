/* target/ofi_door.c -- who comes to a target by libfabric, heard by a thread of its own.
 *
 * libfabric 1.17's tcp provider reads a connection request by blocking calls, inside the call that looks for events, and anybody who reaches the
 * port can stop in the middle of one, long before a token is asked for. So that look is taken here, where nobody's data wait; what has come whole
 * goes to the thread that makes progress (ofi_take_visitor), and all that touches a connection stays in that one. The provider closes what does not come
 * whole and tells nobody: such strangers are not counted. */
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
#include "target/ofi.h"

#define HANDSHAKE_US 10000 /* the request is one segment: where its beginning is, the rest is too */
#define VISITORS_MAX 64u /* more than that wait in the socket */
#define REST_MS 1       /* while so many wait */
#define WAIT_MS 100

/* limit_handshakes -- what the listening socket is told, those that it accepts inherit; once connected they do not block, and the limit means
 * nothing any more. */
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

int ofi_door_open(struct ofi_door *door, uint16_t *port)
{
	struct ofi_listener *listener = door->listener;
	struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_FD};
	struct sockaddr_storage address = {0};
	size_t address_len = sizeof(address);
	int failure = fi_eq_open(listener->fabric, &eq_attr, &door->eq, NULL);

	door->last = &door->first;
	if (failure == 0)
		failure = fi_control(&door->eq->fid, FI_GETWAIT, &door->eq_fd);
	if (failure == 0)
		failure = fi_passive_ep(listener->fabric, listener->info, &door->pep, NULL);
	if (failure == 0)
		failure = fi_pep_bind(door->pep, &door->eq->fid, 0);
	if (failure == 0)
		failure = fi_listen(door->pep);
	if (failure == 0)
		failure = fi_getname(&door->pep->fid, &address, &address_len);
	if (failure != 0)
		return failure;
	*port = ntohs(((struct sockaddr_in *)&address)->sin_port); /* at the same place in both families */
	limit_handshakes(*port);
	return 0;
}

/* ---------------------------------------------------------------- visitors */

static void announce(struct ofi_door *door, struct fi_info *info, const uint8_t *data, size_t len)
{
	struct ofi_listener *listener = door->listener;
	struct ofi_visitor *visitor = calloc(1, sizeof(*visitor));

	if (visitor == NULL) {
		(void)fi_reject(door->pep, info->handle, NULL, 0);
		listener->lib->freeinfo(info);
		return;
	}
	visitor->info = info;
	visitor->len = len < sizeof(visitor->data) ? len : sizeof(visitor->data);
	memcpy(visitor->data, data, visitor->len);
	pthread_mutex_lock(&listener->lock);
	*door->last = visitor;
	door->last = &visitor->next;
	atomic_store_release(&door->visitor_count, door->visitor_count + 1);
	pthread_mutex_unlock(&listener->lock);
	(void)eventfd_write(listener->bell, 1);
}

struct ofi_visitor *ofi_door_visitor(struct ofi_door *door)
{
	struct ofi_listener *listener = door->listener;
	struct ofi_visitor *visitor;

	if (atomic_load_acquire(&door->visitor_count) == 0)
		return NULL;
	pthread_mutex_lock(&listener->lock);
	visitor = door->first;
	door->first = visitor->next;
	if (door->first == NULL)
		door->last = &door->first;
	atomic_store_release(&door->visitor_count, door->visitor_count - 1);
	pthread_mutex_unlock(&listener->lock);
	return visitor;
}

/* ---------------------------------------------------------------- the thread */

bool ofi_door_look(struct ofi_door *door)
{
	union {
		struct fi_eq_cm_entry entry;
		uint8_t room[sizeof(struct fi_eq_cm_entry) + CM_DATA_LEN_MAX];
	} event;
	struct fi_eq_err_entry failure = {0};
	uint32_t kind = 0;
	ssize_t len = fi_eq_read(door->eq, &kind, &event, sizeof(event), 0);

	if (len == -FI_EAVAIL)
		return fi_eq_readerr(door->eq, &failure, 0) > 0;
	if (len < (ssize_t)sizeof(event.entry))
		return false;
	if (kind == FI_CONNREQ)
		announce(door, event.entry.info, event.room + sizeof(event.entry), (size_t)len - sizeof(event.entry));
	return true;
}

static void await(struct ofi_door *door)
{
	bool is_full = atomic_load_acquire(&door->visitor_count) >= VISITORS_MAX;
	struct pollfd fds[] = {{.fd = door->bell, .events = POLLIN}, {.fd = door->eq_fd, .events = POLLIN}};
	struct fid *fids[] = {&door->eq->fid};

	if (is_full)
		(void)poll(fds, 1, REST_MS);
	else if (fi_trywait(door->listener->fabric, fids, 1) == 0)
		(void)poll(fds, 2, WAIT_MS);
}

static void *keep_door(void *context)
{
	struct ofi_door *door = context;

	while (!atomic_load_acquire(&door->listener->is_stopping))
		if (atomic_load_acquire(&door->visitor_count) >= VISITORS_MAX || !ofi_door_look(door))
			await(door);
	return NULL;
}

int ofi_door_start(struct ofi_door *door)
{
	int failure = pthread_create(&door->thread, NULL, keep_door, door);

	door->is_running = failure == 0;
	return failure;
}

void ofi_door_stop(struct ofi_door *door)
{
	if (!door->is_running)
		return;
	(void)eventfd_write(door->bell, 1);
	pthread_join(door->thread, NULL);
	door->is_running = false;
}
