/* far_unauthenticated.c -- connections that say nothing are bounded by address, in all, by what descriptors are left,
 * and in time. Each limit is reached alone; whoever has a grant gets in meanwhile and stays in. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "far_test.h"
#include "log/writer.h"
#include "target/conn_limiter.h"

#define SILENT_MAX 450u
#define APPEND_COUNT 50u
#define NETWORK 0x7F000000u /* any address of 127.0.0.0/8 is this host's */

struct silent {
	int fds[SILENT_MAX];
	unsigned count;
};

struct counts {
	unsigned open;
	unsigned of_address;
	unsigned in_all;
	unsigned descriptors;
	unsigned late;
};

static int connect_from(unsigned last_byte, uint16_t port)
{
	struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(NETWORK + last_byte)};
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(bind(fd, (struct sockaddr *)&from, sizeof(from)) == 0);
	CHECK(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	return fd;
}

/* connect_silent -- `count` connections, from so many addresses by turns. */
static void connect_silent(struct silent *silent, const struct bed *bed, unsigned count, unsigned address_count)
{
	uint16_t port = (uint16_t)atoi(strrchr(bed->host.uri, ':') + 1);

	for (unsigned i = 0; i < count; i++)
		silent->fds[silent->count++] = connect_from(1 + i % address_count, port);
}

static void close_silent(struct silent *silent)
{
	while (silent->count > 0)
		close(silent->fds[--silent->count]);
}

static struct counts count(struct bed *bed)
{
	struct counts counts = {0};

	CHECK(host_ask(&bed->host, "unauthenticated") &&
		sscanf(bed->host.reply, "OK %u %u %u %u %u", &counts.open, &counts.of_address, &counts.in_all,
			&counts.descriptors, &counts.late) == 5);
	return counts;
}

static unsigned closed(const struct counts *counts)
{
	return counts->of_address + counts->in_all + counts->descriptors + counts->late;
}

/* await_all_seen -- the target has seen this many, and has closed some of them or not. */
static struct counts await_all_seen(struct bed *bed, unsigned seen)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);
	struct counts counts = count(bed);

	while (counts.open + closed(&counts) < seen && clock_monotonic_ns() < until_ns) {
		usleep(10000);
		counts = count(bed);
	}
	CHECK(counts.open + closed(&counts) >= seen);
	return counts;
}

static void append_some(farlog_writer *writer)
{
	struct farlog_position position;

	for (uint64_t i = 0; i < APPEND_COUNT; i++)
		CHECK(append_number(writer, i, LONG_NS, &position) == FARLOG_OK);
}

static void reach(const char *what, unsigned file_count, unsigned silent_count, unsigned address_count,
	void (*check)(const struct counts *counts))
{
	struct silent silent = {.count = 0};
	struct farlog_error error = {0};
	farlog_writer *writer;
	struct counts counts;
	struct bed bed;

	snprintf(now_testing, sizeof(now_testing), "unauthenticated: %s", what);
	if (bed_make(&bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") && CHECK_ASK(&bed.host, "files %u", file_count) &&
		CHECK_ASK(&bed.host, "grant ring 0 2 a") && CHECK_ASK(&bed.host, "grant ring 3 0 r")) {
		connect_and_read(&bed, 'r');
		connect_silent(&silent, &bed, silent_count, address_count);
		writer = open_far_writer(&bed, "", 2, 'a', &error);
		if (CHECK_OK(error.result)) {
			append_some(writer);
			counts = await_all_seen(&bed, silent_count);
			check(&counts);
			append_some(writer);
			CHECK(writer->region->reconnect_count == 0);
		}
		connect_and_read(&bed, 'r');
		CHECK(host_ask(&bed.host, "refusals") && strstr(bed.host.reply, "peer=127.0.0.") != NULL &&
			strstr(bed.host.reply, "no connection request") != NULL);
		farlog_writer_close(writer);
	}
	close_silent(&silent);
	bed_free(&bed);
}

static void check_address(const struct counts *counts)
{
	CHECK(counts->of_address > 0 && counts->open <= CONN_OF_ADDRESS_MAX);
}

static void check_all(const struct counts *counts)
{
	CHECK(counts->in_all > 0 && counts->of_address == 0 && counts->open <= CONN_IN_ALL_MAX);
}

static void check_descriptors(const struct counts *counts)
{
	CHECK(counts->descriptors > 0 && counts->of_address == 0 && counts->open >= CONN_MIN);
}

/* A connection that says nothing is closed after a while; one that has been let in and says nothing is not. */
static void late(void)
{
	struct silent silent = {.count = 0};
	struct farlog_error error = {0};
	farlog_writer *writer;
	struct bed bed;
	uint64_t began_ns;
	char byte;

	snprintf(now_testing, sizeof(now_testing), "unauthenticated: late");
	if (bed_make(&bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") && CHECK_ASK(&bed.host, "grant ring 0 2 a")) {
		struct pollfd end = {.events = POLLIN};
		struct counts counts;

		writer = open_far_writer(&bed, "", 2, 'a', &error);
		began_ns = clock_monotonic_ns();
		connect_silent(&silent, &bed, 1, 1);
		end.fd = silent.fds[0];
		CHECK(poll(&end, 1, (int)(LONG_NS / 1000000u)) == 1 && read(end.fd, &byte, 1) <= 0);
		CHECK(clock_monotonic_ns() - began_ns >= CONN_HANDSHAKE_NS);
		counts = count(&bed);
		CHECK(counts.late == 1 && closed(&counts) == 1);
		if (CHECK_OK(error.result)) {
			append_some(writer);
			CHECK(writer->region->reconnect_count == 0);
		}
		farlog_writer_close(writer);
	}
	close_silent(&silent);
	bed_free(&bed);
}

void test_unauthenticated(void)
{
	reach("of one address", 300, SILENT_MAX, 1, check_address);
	reach("in all", 4096, SILENT_MAX, 10, check_all);
	reach("descriptors", 100, CONN_OF_ADDRESS_MAX - 4, 1, check_descriptors);
	late();
}
