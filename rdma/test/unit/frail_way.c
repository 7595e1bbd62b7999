/* frail_way.c -- see frail_way.h. */
#include "frail_way.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomics.h"
#include "unit.h"

static int connect_local(uint16_t port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 ? fd : -1;
}

/* pass_on -- true: bytes went from one to the other, *count more. */
static bool pass_on(int from, int to, uint64_t *count)
{
	static uint8_t buffer[64u << 10];
	ssize_t len = read(from, buffer, sizeof(buffer));

	for (ssize_t done = 0; len > 0 && done < len;) {
		ssize_t part = write(to, buffer + done, (size_t)(len - done));

		if (part <= 0)
			return false;
		done += part;
	}
	*count += len > 0 ? (uint64_t)len : 0;
	return len > 0;
}

static void serve(struct frail_way *way, int client)
{
	int target = connect_local(way->target_port);
	struct pollfd fds[2] = {{.fd = client, .events = POLLIN}, {.fd = target, .events = POLLIN}};
	uint64_t there = 0;
	uint64_t back = 0;
	bool is_whole = target >= 0;

	way->connection_count++;
	while (is_whole && !atomic_load_acquire(&way->is_stopping) &&
		(way->connection_count > 1 || back < way->breaks_after)) {
		if (poll(fds, 2, 10) <= 0)
			continue;
		if (fds[0].revents != 0)
			is_whole = pass_on(client, target, &there);
		if (is_whole && fds[1].revents != 0)
			is_whole = pass_on(target, client, &back);
	}
	close(client);
	close(target);
}

static void *run(void *context)
{
	struct frail_way *way = context;
	struct pollfd fd = {.fd = way->listener, .events = POLLIN};

	while (!atomic_load_acquire(&way->is_stopping))
		if (poll(&fd, 1, 10) == 1)
			serve(way, accept(way->listener, NULL, NULL));
	return NULL;
}

void frail_way_start(struct frail_way *way, const char *target_uri, uint64_t breaks_after)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t address_len = sizeof(address);

	*way = (struct frail_way){.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
		.breaks_after = breaks_after,
		.target_port = (uint16_t)atoi(strrchr(target_uri, ':') + 1)};
	assert_int_equal(bind(way->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(way->listener, 4), 0);
	assert_int_equal(getsockname(way->listener, (struct sockaddr *)&address, &address_len), 0);
	way->port = ntohs(address.sin_port);
	assert_int_equal(pthread_create(&way->thread, NULL, run, way), 0);
}

void frail_way_stop(struct frail_way *way)
{
	atomic_store_release(&way->is_stopping, 1);
	pthread_join(way->thread, NULL);
	close(way->listener);
}
