/* far_handshake.c -- a client that stops in the middle of libfabric's handshake, before any token, does not slow the
 * connections that are open. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "far_test.h"

#define ROUNDS 3u
#define SAMPLES 600u      /* of either kind in a round */
#define PACE_NS 1000000   /* between two appends */
#define CALL_NS 50000000u /* between two handshakes: 20 a second */
#define CALLS_MAX 600u
#define SHORT 63u          /* a multiple of it makes the shortest payload: nobody drains the ring */
#define NOISE_NS 10000000u /* what a busy machine adds by itself to one append in a hundred */
#define RATIO 3u

struct callers {
	pthread_t thread;
	unsigned port;
	uint64_t is_stopping;
	uint64_t count;
};

/* call -- the head of a request that announces 40 bytes more, and no more. */
static int call(unsigned port)
{
	static const uint8_t head[32] = {3, 0, 0, 40};
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
		write(fd, head, sizeof(head)) != sizeof(head)) {
		close(fd);
		return -1;
	}
	return fd;
}

static void *keep_calling(void *context)
{
	struct callers *callers = context;
	int fds[CALLS_MAX];
	uint64_t count = 0;

	while (!atomic_load_acquire(&callers->is_stopping) && count < CALLS_MAX) {
		fds[count++] = call(callers->port);
		nanosleep(&(struct timespec){0, CALL_NS}, NULL);
	}
	for (uint64_t i = 0; i < count; i++)
		close(fds[i]);
	callers->count = count;
	return NULL;
}

/* append_some -- at an even pace; how long each took. */
static void append_some(farlog_writer *writer, uint64_t first, uint64_t *took_ns)
{
	struct farlog_position position;

	for (uint64_t i = 0; i < SAMPLES; i++) {
		uint64_t start_ns = clock_monotonic_ns();

		CHECK(append_number(writer, (first + i) * SHORT, LONG_NS, &position) == FARLOG_OK);
		took_ns[i] = clock_monotonic_ns() - start_ns;
		nanosleep(&(struct timespec){0, PACE_NS}, NULL);
	}
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t p99(uint64_t *took_ns)
{
	qsort(took_ns, (size_t)ROUNDS * SAMPLES, sizeof(*took_ns), compare);
	return took_ns[ROUNDS * SAMPLES * 99 / 100];
}

/* What both kinds of rounds have in common, the machine's other load, falls out by turns. */
static void measure(struct bed *bed, farlog_writer *writer)
{
	static uint64_t calm_ns[ROUNDS * SAMPLES];
	static uint64_t called_ns[ROUNDS * SAMPLES];
	struct callers callers;
	uint64_t limit_ns;
	uint64_t call_count = 0;

	for (unsigned round = 0; round < ROUNDS; round++) {
		append_some(writer, (uint64_t)(2 * round) * SAMPLES, calm_ns + round * SAMPLES);
		callers = (struct callers){.port = (unsigned)atoi(strrchr(bed->host.uri, ':') + 1)};
		CHECK(pthread_create(&callers.thread, NULL, keep_calling, &callers) == 0);
		append_some(writer, (uint64_t)(2 * round + 1) * SAMPLES, called_ns + round * SAMPLES);
		atomic_store_release(&callers.is_stopping, 1);
		pthread_join(callers.thread, NULL);
		call_count += callers.count;
	}
	limit_ns = p99(calm_ns);
	limit_ns = RATIO * (limit_ns > NOISE_NS ? limit_ns : NOISE_NS);
	printf("far: handshake: p99 of an append %lu us, with 20 half handshakes a second %lu us; %lu of those\n",
		calm_ns[ROUNDS * SAMPLES * 99 / 100] / 1000, p99(called_ns) / 1000, call_count);
	CHECK(p99(called_ns) <= limit_ns);
	CHECK(call_count >= ROUNDS * 10);
}

void test_handshake(void)
{
	struct farlog_error error = {0};
	struct bed bed;
	farlog_writer *writer = NULL;

	if (bed_make(&bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") && CHECK_ASK(&bed.host, "grant ring 0 2 a") &&
		CHECK_ASK(&bed.host, "grant ring 3 0 r"))
		writer = open_far_writer(&bed, "", 2, 'a', &error);
	CHECK_OK(error.result);
	if (writer != NULL) {
		measure(&bed, writer);
		connect_and_read(&bed, 'r'); /* who has a token still gets in */
	}
	farlog_writer_close(writer);
	bed_free(&bed);
}
