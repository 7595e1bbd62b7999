/* far_flood.c -- a client with a good grant that sends more or other requests than a client of ours: it is
 * disconnected, told why, counted and written down, and a neighbour of it is not slowed. Who is at the limits, and not
 * beyond, is served. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "far_links.h"
#include "target/target.h"

#define BAD_COUNT 65u
#define CONTROL_COUNT 20001u
#define NEIGHBOUR_TRIES 5u
#define SAMPLES 400u
#define PACE_NS 200000
#define SHORT 63u /* a multiple of it makes the shortest payload: nobody drains the ring */

static void stop(const struct bed *bed)
{
	int status = 0;

	kill(bed->host.pid, SIGSTOP);
	CHECK(waitpid(bed->host.pid, &status, WUNTRACED) == bed->host.pid && WIFSTOPPED(status));
}

static unsigned disconnected_count(struct bed *bed)
{
	unsigned count = 0;

	CHECK(host_ask(&bed->host, "counters ring") &&
		sscanf(bed->host.reply, "OK %*u %*u %*u %*u %*u %*u %*u %*u %u", &count) == 1);
	return count;
}

/* send_many -- while the target does not look: it finds all of them in one look. */
static void send_many(const struct bed *bed, struct far_link *link, unsigned count)
{
	stop(bed);
	for (uint32_t tag = 1; tag <= count; tag++)
		CHECK(link->ops->send(link, &(struct far_request){.operation = FAR_LOCKED, .tag = tag}) == FARLOG_OK);
	CHECK(link->ops->poll(link) == FARLOG_OK); /* it sends what had to wait */
	kill(bed->host.pid, SIGCONT);
}

static void await_end(struct far_link *link)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);

	while (link->ops->poll(link) == FARLOG_OK && clock_monotonic_ns() < until_ns)
		usleep(1000);
	CHECK(link->broken[0] != '\0');
}

/* expect_bar -- a client that was disconnected hears why when it connects again, and is let in again in the end. */
static void expect_bar(struct bed *bed, char letter, const char *reason)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);
	struct far_link_bed made;
	int result;

	CHECK(host_ask(&bed->host, "refusals") && strstr(bed->host.reply, "peer=127.0.0.1:") != NULL &&
		strstr(bed->host.reply, "ring=ring") != NULL && strstr(bed->host.reply, reason) != NULL);
	CHECK(link_try(&made, bed->uri, "ring", letter, REGION_ROLE_READER, 0, FAR_VERSION, LONG_NS) == FARLOG_IO);
	CHECK(made.refusal.magic == FAR_REFUSAL_MAGIC && strstr(made.refusal.text, reason) != NULL &&
		strstr(made.refusal.text, "let in again in") != NULL);
	do {
		link_free(&made);
		usleep(50000);
		result = link_try(&made, bed->uri, "ring", letter, REGION_ROLE_READER, 0, FAR_VERSION, LONG_NS);
	} while (result != FARLOG_OK && clock_monotonic_ns() < until_ns);
	CHECK(result == FARLOG_OK && try_read(made.link) == FARLOG_OK);
	link_free(&made);
}

static void unanswered(struct bed *bed)
{
	struct far_link_bed reader;

	snprintf(now_testing, sizeof(now_testing), "flood: unanswered requests");
	link_connect(&reader, bed->uri, "ring", 'r', REGION_ROLE_READER, 0);
	CHECK(try_read(reader.link) == FARLOG_OK); /* the target has looked at the first request, which has no answer */
	send_many(bed, reader.link, FAR_UNANSWERED_MAX);
	CHECK(link_answer(reader.link, FAR_UNANSWERED_MAX) == 0);
	CHECK(disconnected_count(bed) == 0);
	send_many(bed, reader.link, FAR_UNANSWERED_MAX + 1);
	await_end(reader.link);
	CHECK(disconnected_count(bed) == 1);
	link_free(&reader);
	expect_bar(bed, 'r', "more than 4 requests before their answers");
}

static void bad(struct bed *bed)
{
	struct far_link_bed reader;
	struct far_request request = {.operation = 77};

	snprintf(now_testing, sizeof(now_testing), "flood: requests that make no sense");
	link_connect(&reader, bed->uri, "ring", 's', REGION_ROLE_READER, 0);
	while (++request.tag < BAD_COUNT)
		CHECK(link_ask(reader.link, request) == (uint32_t)-FARLOG_INVALID);
	CHECK(disconnected_count(bed) == 1);
	CHECK(reader.link->ops->send(reader.link, &request) == FARLOG_OK);
	await_end(reader.link);
	CHECK(disconnected_count(bed) == 2);
	link_free(&reader);
	expect_bar(bed, 's', "more than 64 requests that make no sense");
}

/* By the function alone: how fast this machine carries requests is not its limit. Flushes have none. */
static void too_fast(void)
{
	struct farlog_target target = {.mutex = PTHREAD_MUTEX_INITIALIZER};
	struct target_grant grant = {.grant = {.role = FARLOG_GRANT_WRITER, .token = {7}}};
	struct target_ring ring = {.name = "ring", .grants = &grant};
	struct target_conn conn = {.ring = &ring, .grant = &grant};
	struct far_request request = {.operation = FAR_FLUSH, .tag = 1};
	uint64_t look = 0;
	bool is_kept = true;

	snprintf(now_testing, sizeof(now_testing), "flood: requests that are no flushes");
	target.rings = &ring;
	for (unsigned i = 0; i < 4 * CONTROL_COUNT; i++)
		CHECK(target_check_request(&target, &conn, &request, ++look));
	request.operation = FAR_LOCKED;
	for (unsigned i = 0; i < 4 * CONTROL_COUNT && is_kept; i++)
		is_kept = target_check_request(&target, &conn, &request, ++look);
	CHECK(!is_kept && look > 5 * CONTROL_COUNT - 2 && ring.counters.disconnected_count == 1);
	CHECK(target_barred_ns(&grant) > 0 && strstr(grant.barred_reason, "20000 requests a second") != NULL);
	CHECK(strstr(target.refusals.last[0].text, "20000 requests a second") != NULL);
}

/* ---------------------------------------------------------------- the neighbour */

struct flooder {
	pthread_t thread;
	const char *uri;
	uint64_t is_stopping;
	uint64_t sent_count;
	uint64_t connection_count;
};

/* send_on -- requests without end, until the connection is over. */
static void send_on(struct flooder *flooder, struct far_link *link)
{
	const struct far_request request = {.operation = FAR_LOCKED, .tag = 1};

	while (!atomic_load_acquire(&flooder->is_stopping) && link->ops->send(link, &request) == FARLOG_OK &&
		link->ops->poll(link) == FARLOG_OK)
		flooder->sent_count++;
}

static void *keep_flooding(void *context)
{
	struct flooder *flooder = context;

	while (!atomic_load_acquire(&flooder->is_stopping)) {
		struct far_link_bed made;

		if (link_try(&made, flooder->uri, "other", 'o', REGION_ROLE_READER, 0, FAR_VERSION, LONG_NS) == FARLOG_OK)
			send_on(flooder, made.link);
		flooder->connection_count++;
		link_free(&made);
	}
	return NULL;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* measure -- appends at an even pace: the time that the 99th of 100 takes. */
static uint64_t measure(farlog_writer *writer, uint64_t *number)
{
	static uint64_t took_ns[SAMPLES];
	struct farlog_position position;

	for (unsigned i = 0; i < SAMPLES; i++) {
		uint64_t start_ns = clock_monotonic_ns();

		CHECK(append_number(writer, (*number)++ * SHORT, LONG_NS, &position) == FARLOG_OK);
		took_ns[i] = clock_monotonic_ns() - start_ns;
		nanosleep(&(struct timespec){0, PACE_NS}, NULL);
	}
	qsort(took_ns, SAMPLES, sizeof(*took_ns), compare);
	return took_ns[SAMPLES * 99 / 100];
}

static uint64_t measure_beside(farlog_writer *writer, uint64_t *number, struct flooder *flooder)
{
	uint64_t took_ns;

	CHECK(pthread_create(&flooder->thread, NULL, keep_flooding, flooder) == 0);
	took_ns = measure(writer, number);
	atomic_store_release(&flooder->is_stopping, 1);
	pthread_join(flooder->thread, NULL);
	return took_ns;
}

/* The flood takes a processor, whomever it is for: so the neighbour's appends beside a flood of its own target are
 * compared with those beside the same flood of another target. The machine has load of its own, which comes and goes:
 * one try of several shows that the flood need not cost the neighbour anything. A flood that does costs it in all. */
static void neighbour(struct bed *bed, const char *other_uri, const char *elsewhere_uri)
{
	struct farlog_error error = {0};
	farlog_writer *writer = open_far_writer(bed, "", 2, 'a', &error);
	uint64_t number = 0;
	double least = 0;

	snprintf(now_testing, sizeof(now_testing), "flood: neighbour");
	if (!CHECK_OK(error.result))
		return;
	for (unsigned i = 0; i < NEIGHBOUR_TRIES && (i == 0 || least > 1.5); i++) {
		struct flooder elsewhere = {.uri = elsewhere_uri};
		struct flooder here = {.uri = other_uri};
		uint64_t calm_ns = measure(writer, &number);
		uint64_t elsewhere_ns = measure_beside(writer, &number, &elsewhere);
		uint64_t here_ns = measure_beside(writer, &number, &here);
		double ratio = (double)here_ns / (double)elsewhere_ns;

		least = i == 0 || ratio < least ? ratio : least;
		printf(
			"far: flood: p99 of a neighbour's append %lu us, beside a flood of another target %lu us, of its own %lu "
			"us: %lu requests, %lu connections\n",
			calm_ns / 1000, elsewhere_ns / 1000, here_ns / 1000, here.sent_count, here.connection_count);
	}
	CHECK(least <= 1.5);
	CHECK(farlog_writer_close(writer) == FARLOG_OK);
}

/* make_other -- a ring beside the bed's, of another tenant. */
static bool make_other(struct bed *bed, char *path, size_t path_len, char *uri, size_t uri_len)
{
	struct farlog_ring_config config = {.size_bytes = RING_BYTES, .is_forced = 1};

	snprintf(path, path_len, "%s.other", bed->path);
	snprintf(uri, uri_len, "mem:%s", path);
	if (farlog_ring_format(uri, &config, NULL) != FARLOG_OK ||
		!CHECK_ASK(&bed->host, "serve other %s other-tenant", uri) || !CHECK_ASK(&bed->host, "grant other 3 0 o"))
		return false;
	snprintf(uri, uri_len, "%s/other", bed->host.uri);
	return true;
}

void test_flood(void)
{
	struct bed beds[2];
	char paths[2][160] = {"", ""};
	char uris[2][192];

	too_fast();
	if (bed_make(&beds[0], "/dev/shm", "ofi:tcp://127.0.0.1:0") && CHECK_ASK(&beds[0].host, "grant ring 0 2 a") &&
		CHECK_ASK(&beds[0].host, "grant ring 3 0 r") && CHECK_ASK(&beds[0].host, "grant ring 3 0 s")) {
		unanswered(&beds[0]);
		bad(&beds[0]);
	}
	if (bed_make(&beds[1], "/dev/shm", "ofi:tcp://127.0.0.1:0") &&
		make_other(&beds[0], paths[0], sizeof(paths[0]), uris[0], sizeof(uris[0])) &&
		make_other(&beds[1], paths[1], sizeof(paths[1]), uris[1], sizeof(uris[1])))
		neighbour(&beds[0], uris[0], uris[1]);
	for (unsigned i = 0; i < 2; i++) {
		unlink(paths[i]);
		bed_free(&beds[i]);
	}
}
