/* bench_members_sockets.c -- what bare sockets cost of several members: 320 bytes to each of three connections, until
 * two have answered with 48, against one connection. These are the bytes of a record of 256 and of its answer as
 * libfabric's tcp provider sends them. And to two of them, until both have answered: an acknowledgement of two takes no
 * fewer messages. The other end serves all of them by one thread that spins on the other core, as the members' target
 * does. Nothing is logged, flushed or checked: no stream with members does with less on these two cores. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_members.h"
#include "base/clock.h"

#define SOCKET_COUNT (1u + MEMBER_COUNT) /* one alone, and three */
#define REQUEST_LEN 320u
#define ANSWER_LEN 48u
#define BLOCK_COUNT 1000u
#define SAMPLE_COUNT_MAX (4u << 20)

/* One connection: what was asked for, sent and answered, in numbers of records. */
struct peer {
	int fd;
	unsigned going;
	unsigned done;
	size_t got;
};

static int new_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		bench_fail("members", "no socket on the loopback");
	return fd;
}

static void no_delay(int fd)
{
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

/* answer_all -- by epoll, as libfabric's provider looks for events. Ends with the first connection that ends. */
static void answer_all(int listener)
{
	struct peer peers[SOCKET_COUNT] = {0};
	struct epoll_event events[SOCKET_COUNT];
	uint8_t buf[REQUEST_LEN];
	int queue = epoll_create1(EPOLL_CLOEXEC);

	for (unsigned i = 0; i < SOCKET_COUNT; i++) {
		struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};

		peers[i].fd = accept(listener, NULL, NULL);
		no_delay(peers[i].fd);
		epoll_ctl(queue, EPOLL_CTL_ADD, peers[i].fd, &event);
	}
	for (;;) {
		int count = epoll_wait(queue, events, SOCKET_COUNT, 0);

		for (int i = 0; i < count; i++) {
			struct peer *peer = &peers[events[i].data.u32];
			ssize_t len = recv(peer->fd, buf, REQUEST_LEN - peer->got, MSG_DONTWAIT);

			if (len == 0)
				return;
			peer->got += len > 0 ? (size_t)len : 0;
			if (peer->got < REQUEST_LEN)
				continue;
			peer->got = 0;
			if (send(peer->fd, buf, ANSWER_LEN, MSG_NOSIGNAL) != ANSWER_LEN)
				return;
		}
	}
}

static void take_answer(struct peer *peer)
{
	uint8_t buf[ANSWER_LEN];
	ssize_t len = recv(peer->fd, buf, ANSWER_LEN - peer->got, MSG_DONTWAIT);

	peer->got += len > 0 ? (size_t)len : 0;
	if (peer->got < ANSWER_LEN)
		return;
	peer->got = 0;
	peer->done = peer->going;
}

/* turn -- as members_advance: to all that wait for something, then looks for answers. How many have all that was asked
 * for. */
static unsigned turn(struct peer *peers, unsigned count, unsigned asked)
{
	static const uint8_t request[REQUEST_LEN];
	unsigned have = 0;

	for (unsigned i = 0; i < count; i++) {
		if (peers[i].going != peers[i].done || peers[i].done == asked)
			continue;
		if (send(peers[i].fd, request, REQUEST_LEN, MSG_NOSIGNAL) != REQUEST_LEN)
			bench_fail("members", "the other end of the sockets has gone");
		peers[i].going = asked;
	}
	for (unsigned i = 0; i < count; i++) {
		if (peers[i].going != peers[i].done)
			take_answer(&peers[i]);
		have += peers[i].done == asked;
	}
	return have;
}

static void exchange_block(struct peer *peers, unsigned count, unsigned needed, struct bench_samples *samples)
{
	unsigned asked = peers[0].done;
	uint64_t before = clock_ticks();

	for (unsigned i = 0; i < BLOCK_COUNT; i++) {
		uint64_t after;

		asked++;
		while (turn(peers, count, asked) < needed)
			;
		after = clock_ticks();
		if (i >= BLOCK_COUNT / 20)
			bench_sample(samples, after - before);
		before = after;
	}
	while (turn(peers, count, asked) < count)
		;
}

static void report(const char *name, struct bench_samples *ours, struct bench_samples *floor, const char *note)
{
	bench_report(&(struct bench_case){.name = name,
		.ours = bench_quantile_ns(ours, 0.5),
		.floor = bench_quantile_ns(floor, 0.5),
		.unit = "ns",
		.flush = "none",
		.level = "none",
		.note = note});
}

void bench_members_sockets(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t address_len = sizeof(address);
	struct peer peers[SOCKET_COUNT] = {0};
	struct bench_samples one, two, three;
	int listener = new_socket();
	uint64_t start_ns;
	pid_t other;

	if (bind(listener, (struct sockaddr *)&address, address_len) != 0 || listen(listener, SOCKET_COUNT) != 0 ||
		getsockname(listener, (struct sockaddr *)&address, &address_len) != 0)
		bench_fail("members", "no socket on the loopback");
	other = fork();
	if (other == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		bench_pin(1);
		answer_all(listener);
		_exit(0);
	}
	for (unsigned i = 0; i < SOCKET_COUNT; i++) {
		peers[i].fd = new_socket();
		if (connect(peers[i].fd, (struct sockaddr *)&address, address_len) != 0)
			bench_fail("members", "no connection on the loopback");
		no_delay(peers[i].fd);
	}
	bench_samples_make(&one, SAMPLE_COUNT_MAX);
	bench_samples_make(&two, SAMPLE_COUNT_MAX);
	bench_samples_make(&three, SAMPLE_COUNT_MAX);
	start_ns = clock_monotonic_ns();
	while ((double)(clock_monotonic_ns() - start_ns) < bench_seconds * 1e9) {
		exchange_block(peers, 1, 1, &one);
		exchange_block(peers + 1, 2, 2, &two);
		exchange_block(peers + 1, MEMBER_COUNT, 2, &three);
	}
	report("members.sockets.256", &three, &one, "p50, bare sockets, 2 of 3; floor: one of them");
	report("members.sockets.two.256", &two, &one, "p50, bare sockets, 2 of 2; floor: one of them");
	bench_samples_free(&one);
	bench_samples_free(&two);
	bench_samples_free(&three);
	for (unsigned i = 0; i < SOCKET_COUNT; i++)
		close(peers[i].fd);
	close(listener);
	waitpid(other, NULL, 0);
}
