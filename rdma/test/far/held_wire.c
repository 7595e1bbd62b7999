/* held_wire.c -- see held_wire.h: a thread that carries bytes between sockets. */
#include "held_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomics.h"

#define LOOK_MS 2

static struct sockaddr_in at_port(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

static void send_all(int fd, const uint8_t *bytes, size_t len)
{
	while (len > 0) {
		ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL);

		if (sent <= 0)
			return; /* that end is gone; what it was sent is lost, as it is on any wire */
		bytes += sent;
		len -= (size_t)sent;
	}
}

static void take_client(struct wire *wire)
{
	struct wire_pair *pair = &wire->pairs[wire->pair_count];
	struct sockaddr_in to = at_port(wire->to_port);
	int yes = 1;

	if (wire->pair_count == WIRE_PAIR_COUNT)
		return;
	*pair = (struct wire_pair){.client = accept(wire->listener, NULL, NULL),
		.target = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
		.bytes = malloc(WIRE_ROOM)};
	if (pair->client < 0 || pair->bytes == NULL || connect(pair->target, (struct sockaddr *)&to, sizeof(to)) != 0) {
		close(pair->client);
		close(pair->target);
		free(pair->bytes);
		return;
	}
	setsockopt(pair->client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	setsockopt(pair->target, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	atomic_store_release(&wire->pair_count, wire->pair_count + 1);
}

/* carry_there -- what the client has sent, and then that it is gone. */
static void carry_there(struct wire_pair *pair, bool is_readable)
{
	bool was_gone = pair->is_client_gone && pair->len == 0;

	if (is_readable && !pair->is_client_gone && pair->len < WIRE_ROOM) {
		ssize_t len = recv(pair->client, pair->bytes + pair->len, WIRE_ROOM - pair->len, MSG_DONTWAIT);

		pair->is_client_gone = len == 0 || (len < 0 && errno != EAGAIN && errno != EINTR);
		pair->len += len > 0 ? (size_t)len : 0;
	}
	if (atomic_load_acquire(&pair->is_held) || was_gone)
		return;
	send_all(pair->target, pair->bytes, pair->len);
	pair->len = 0;
	if (pair->is_client_gone)
		shutdown(pair->target, SHUT_WR);
}

static void carry_back(struct wire_pair *pair, bool is_readable)
{
	uint8_t bytes[16384];
	ssize_t len;

	if (!is_readable || pair->is_target_gone)
		return;
	len = recv(pair->target, bytes, sizeof(bytes), MSG_DONTWAIT);
	if (len > 0) {
		send_all(pair->client, bytes, (size_t)len);
	} else if (len == 0 || (errno != EAGAIN && errno != EINTR)) {
		atomic_store_release(&pair->is_target_gone, 1);
		shutdown(pair->client, SHUT_RDWR);
	}
}

static void *carry(void *context)
{
	struct wire *wire = context;

	while (!atomic_load_acquire(&wire->is_stopping)) {
		struct pollfd fds[1 + 2 * WIRE_PAIR_COUNT] = {{.fd = wire->listener, .events = POLLIN}};
		uint64_t count = wire->pair_count;

		for (uint64_t i = 0; i < count; i++) {
			const struct wire_pair *pair = &wire->pairs[i];

			fds[1 + 2 * i] = (struct pollfd){.fd = pair->is_client_gone ? -1 : pair->client, .events = POLLIN};
			fds[2 + 2 * i] = (struct pollfd){.fd = pair->is_target_gone ? -1 : pair->target, .events = POLLIN};
		}
		(void)poll(fds, 1 + 2 * (nfds_t)count, LOOK_MS);
		for (uint64_t i = 0; i < count; i++) {
			carry_there(&wire->pairs[i], fds[1 + 2 * i].revents != 0);
			carry_back(&wire->pairs[i], fds[2 + 2 * i].revents != 0);
		}
		if (fds[0].revents != 0)
			take_client(wire);
	}
	return NULL;
}

bool wire_open(struct wire *wire, uint16_t to_port)
{
	struct sockaddr_in own = at_port(0);
	socklen_t len = sizeof(own);

	memset(wire, 0, sizeof(*wire));
	wire->to_port = to_port;
	wire->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (wire->listener < 0 || bind(wire->listener, (struct sockaddr *)&own, sizeof(own)) != 0 ||
		listen(wire->listener, 16) != 0 || getsockname(wire->listener, (struct sockaddr *)&own, &len) != 0)
		return false;
	wire->port = ntohs(own.sin_port);
	wire->is_running = pthread_create(&wire->thread, NULL, carry, wire) == 0;
	return wire->is_running;
}

void wire_close(struct wire *wire)
{
	if (!wire->is_running)
		return;
	atomic_store_release(&wire->is_stopping, 1);
	pthread_join(wire->thread, NULL);
	wire->is_running = false;
	for (uint64_t i = 0; i < wire->pair_count; i++) {
		close(wire->pairs[i].client);
		close(wire->pairs[i].target);
		free(wire->pairs[i].bytes);
	}
	close(wire->listener);
}

static void set_held(struct wire *wire, uint64_t is_held)
{
	for (uint64_t i = 0; i < atomic_load_acquire(&wire->pair_count); i++)
		atomic_store_release(&wire->pairs[i].is_held, is_held);
}

void wire_hold(struct wire *wire)
{
	set_held(wire, 1);
}

void wire_let_go(struct wire *wire)
{
	set_held(wire, 0);
}

bool wire_is_shut(const struct wire *wire)
{
	return atomic_load_acquire(&wire->pairs[0].is_target_gone) != 0;
}
