/* far_slow.c -- a ring on a slow disk beside another one, at one target: its flushes hold up nobody else, are answered
 * when they have returned and not before, and a fence or the ring's end waits for them.
 *
 * The disk is real; what makes it slow is a gate before the flush of records, which the test opens. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "far_links.h"
#include "ofi_faults.h"
#include "far/region.h"
#include "target/target.h"
#include "log/writer.h"

#define SOON_NS 5000000000ull /* for what is not to wait for the gate, on a busy machine */
#define SMALL_BYTES (256u << 10)

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t moved;
	bool is_write_fenced;
	bool is_passed; /* while it was shut: something of the header was flushed beside what waits */
	unsigned waiting;
	const struct region_ops *real;
	struct region_ops ops;
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

static int flush_behind_gate(struct region *region, uint64_t off, uint64_t len)
{
	pthread_mutex_lock(&gate.mutex);
	gate.waiting += off >= LAYOUT_DATA_OFF;
	gate.is_passed |= gate.is_write_fenced && off < LAYOUT_DATA_OFF;
	pthread_cond_broadcast(&gate.moved);
	while (gate.is_write_fenced && off >= LAYOUT_DATA_OFF)
		pthread_cond_wait(&gate.moved, &gate.mutex);
	gate.waiting -= off >= LAYOUT_DATA_OFF;
	pthread_mutex_unlock(&gate.mutex);
	return gate.real->data.flush(region, off, len);
}

static void shut_gate(bool is_write_fenced)
{
	pthread_mutex_lock(&gate.mutex);
	gate.is_write_fenced = is_write_fenced;
	gate.is_passed &= is_write_fenced;
	pthread_cond_broadcast(&gate.moved);
	pthread_mutex_unlock(&gate.mutex);
}

/* await_flush -- that one of records has begun. A target that answers without one would have us wait for ever. */
static void await_flush(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += (time_t)(LONG_NS / 1000000000u);
	pthread_mutex_lock(&gate.mutex);
	while (gate.waiting == 0 && pthread_cond_timedwait(&gate.moved, &gate.mutex, &until) == 0)
		;
	CHECK(gate.waiting > 0);
	pthread_mutex_unlock(&gate.mutex);
}

/* ---------------------------------------------------------------- two rings of a target in this process */

struct pair {
	farlog_target *target;
	char paths[3][96];
	farlog_writer *fast;
	farlog_writer *slow;
};

static farlog_writer *let_in(struct pair *pair, const char *name, uint32_t level, uint32_t epoch)
{
	struct farlog_grant grant = {
		.role = FARLOG_GRANT_WRITER, .epoch = epoch, .token = {(uint8_t)name[0], (uint8_t)epoch}};
	struct farlog_writer_config config = {
		.level = level, .epoch = epoch, .counters_dir = "", .grant_token = grant.token, .deadline_ns = LONG_NS};
	struct farlog_error error = {0};
	farlog_writer *writer = NULL;
	char uri[128];

	snprintf(uri, sizeof(uri), "%s/%s", farlog_target_uri(pair->target), name);
	CHECK_OK(farlog_target_grant(pair->target, name, &grant, &error));
	CHECK_OK(farlog_writer_open(uri, &config, &writer, &error));
	return writer;
}

static void serve(struct pair *pair, unsigned i, const char *name, const char *directory, uint64_t size)
{
	struct farlog_ring_config config = {
		.size_bytes = size, .record_len_max = 8192, .is_forced = 1, .stream_name = name};
	struct farlog_error error = {0};
	char uri[128];

	snprintf(pair->paths[i], sizeof(pair->paths[i]), "%s/farlog-%s-%ld.ring", directory, name, (long)getpid());
	snprintf(uri, sizeof(uri), "mem:%s", pair->paths[i]);
	CHECK_OK(farlog_ring_format(uri, &config, &error));
	CHECK_OK(farlog_target_serve(pair->target, name, uri, name, &error));
}

/* stand_before -- the gate stands before the flushes of this ring. */
static bool stand_before(struct pair *pair, const char *name)
{
	struct target_ring *ring = pair->target->rings;

	while (ring != NULL && strcmp(ring->name, name) != 0)
		ring = ring->next;
	if (ring == NULL)
		return false;
	gate.real = ring->region->ops;
	gate.ops = *gate.real;
	gate.ops.data.flush = flush_behind_gate;
	ring->region->ops = &gate.ops;
	return true;
}

static bool pair_open(struct pair *pair)
{
	struct farlog_error error = {0};
	unsigned before = failed;

	memset(pair, 0, sizeof(*pair));
	if (!CHECK_OK(farlog_target_open("ofi:tcp://127.0.0.1:0", &pair->target, &error)))
		return false;
	serve(pair, 0, "fast", "/dev/shm", SMALL_BYTES);
	serve(pair, 1, "slow", "/var/tmp", SMALL_BYTES);
	if (!stand_before(pair, "slow"))
		return false;
	pair->fast = let_in(pair, "fast", FARLOG_LEVEL_VISIBLE, 2);
	pair->slow = let_in(pair, "slow", FARLOG_LEVEL_PERSISTENT, 2);
	return failed == before;
}

static void pair_close(struct pair *pair)
{
	shut_gate(false);
	farlog_writer_close(pair->fast);
	farlog_writer_close(pair->slow);
	farlog_target_close(pair->target);
	unlink(pair->paths[0]);
	unlink(pair->paths[1]);
	unlink(pair->paths[2]);
}

/* A call in a thread of its own. */
struct call {
	struct pair *pair;
	pthread_t thread;
	uint64_t deadline_ns;
	struct farlog_position position;
	uint64_t tail_lsn;
	int result;
	uint64_t is_over;
};

static void *append_slow(void *context)
{
	struct call *call = context;

	call->result = append_number(call->pair->slow, 7, call->deadline_ns, &call->position);
	atomic_store_release(&call->is_over, 1);
	return NULL;
}

static void *fence_slow(void *context)
{
	struct call *call = context;
	struct farlog_error error = {0};

	call->result = farlog_target_fence(call->pair->target, "slow", 5, &call->tail_lsn, &error);
	atomic_store_release(&call->is_over, 1);
	return NULL;
}

static void *forget_slow(void *context)
{
	struct call *call = context;
	struct farlog_error error = {0};

	call->result = farlog_target_forget(call->pair->target, "slow", &error);
	atomic_store_release(&call->is_over, 1);
	return NULL;
}

static void begin(struct call *call, struct pair *pair, void *(*run)(void *), uint64_t deadline_ns)
{
	*call = (struct call){.pair = pair, .deadline_ns = deadline_ns};
	CHECK(pthread_create(&call->thread, NULL, run, call) == 0);
}

static bool is_over(const struct call *call)
{
	return atomic_load_acquire(&call->is_over) != 0;
}

/* use_neighbour -- the other ring's writer appends, and a client comes to it and goes. */
static void use_neighbour(struct pair *pair)
{
	struct farlog_grant grant = {.role = FARLOG_GRANT_READER, .token = {'r'}};
	struct farlog_reader_config config = {.grant_token = grant.token};
	struct farlog_position position;
	struct farlog_error error = {0};
	farlog_reader *reader = NULL;
	char uri[128];

	for (uint64_t i = 0; i < 20; i++)
		CHECK(append_number(pair->fast, i, SOON_NS, &position) == FARLOG_OK);
	CHECK_OK(farlog_target_grant(pair->target, "fast", &grant, &error));
	snprintf(uri, sizeof(uri), "%s/fast", farlog_target_uri(pair->target));
	CHECK_OK(farlog_reader_open(uri, &config, &reader, &error));
	farlog_reader_close(reader);
}

static void neighbour_goes_on(void)
{
	struct call append;
	struct pair pair;

	snprintf(now_testing, sizeof(now_testing), "slow: neighbour");
	if (pair_open(&pair)) {
		shut_gate(true);
		begin(&append, &pair, append_slow, LONG_NS);
		await_flush();
		use_neighbour(&pair);
		CHECK(!is_over(&append)); /* nothing is acknowledged before its flush has returned */
		shut_gate(false);
		pthread_join(append.thread, NULL);
		CHECK(append.result == FARLOG_OK && append.position.level == FARLOG_LEVEL_PERSISTENT);
	}
	pair_close(&pair);
}

static void await_no_slow_writer(struct pair *pair)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);
	struct farlog_target_counters counters = {.writer_count = 1};

	while (counters.writer_count > 0 && clock_monotonic_ns() < until_ns)
		CHECK(farlog_target_counters_read(pair->target, "slow", &counters) == FARLOG_OK);
	CHECK(counters.writer_count == 0);
}

/* The fence takes the writer out at once, and is confirmed when the flush that was under way is over. What the writer
 * then hears is not OK. */
static void fenced_while_it_flushes(void)
{
	struct farlog_position position;
	struct call append;
	struct call fence;
	struct pair pair;
	farlog_writer *next;

	snprintf(now_testing, sizeof(now_testing), "slow: fenced while it flushes");
	if (!pair_open(&pair))
		goto done;
	CHECK(append_number(pair.slow, 0, LONG_NS, &position) == FARLOG_OK);
	shut_gate(true);
	begin(&append, &pair, append_slow, LONG_NS);
	await_flush();
	begin(&fence, &pair, fence_slow, 0);
	await_no_slow_writer(&pair);
	use_neighbour(&pair);
	CHECK(!is_over(&fence) && !gate.is_passed);
	shut_gate(false);
	pthread_join(fence.thread, NULL);
	pthread_join(append.thread, NULL);
	CHECK(fence.result == FARLOG_OK && fence.tail_lsn >= position.end_lsn);
	CHECK(append.result == FARLOG_FENCED || append.result == FARLOG_UNKNOWN);
	next = let_in(&pair, "slow", FARLOG_LEVEL_PERSISTENT, 5);
	CHECK(next != NULL && farlog_writer_recovery(next)->tail_lsn == fence.tail_lsn);
	CHECK(next == NULL || append_number(next, 1, LONG_NS, &position) == FARLOG_OK);
	CHECK(farlog_writer_close(next) == FARLOG_OK);
done:
	pair_close(&pair);
}

/* The ring is forgotten, and its client gone, while the flush is under way. */
static void forgotten_while_it_flushes(void)
{
	struct call append;
	struct call forget;
	struct pair pair;

	snprintf(now_testing, sizeof(now_testing), "slow: forgotten while it flushes");
	if (pair_open(&pair)) {
		shut_gate(true);
		begin(&append, &pair, append_slow, 1000000000u);
		await_flush();
		begin(&forget, &pair, forget_slow, 0);
		pthread_join(append.thread, NULL);
		CHECK(append.result == FARLOG_UNKNOWN);
		use_neighbour(&pair);
		CHECK(!is_over(&forget));
		shut_gate(false);
		pthread_join(forget.thread, NULL);
		CHECK(forget.result == FARLOG_OK);
		pair.slow->deadline_ns = 100000000u; /* nobody answers its close */
	}
	pair_close(&pair);
}

/* cut_connections -- as a cable that is pulled does it, of all clients in this process. */
static void cut_connections(const struct pair *pair)
{
	uint16_t port = (uint16_t)atoi(strrchr(farlog_target_uri(pair->target), ':') + 1);
	unsigned count = 0;

	for (int fd = 0; fd < 1024; fd++) {
		struct sockaddr_in peer;
		socklen_t len = sizeof(peer);

		if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 && peer.sin_family == AF_INET &&
			ntohs(peer.sin_port) == port)
			count += shutdown(fd, SHUT_RDWR) == 0;
	}
	CHECK(count >= 2); /* both writers' */
}

static void await_admitted(struct pair *pair, uint64_t count)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);
	struct farlog_target_counters counters = {0};

	while (counters.admitted_count < count && clock_monotonic_ns() < until_ns)
		CHECK(farlog_target_counters_read(pair->target, "slow", &counters) == FARLOG_OK);
	CHECK(counters.admitted_count >= count);
}

/* The connection goes between a request and its answer: the writer comes back and sends the same again, is answered
 * once that has been flushed, and its record is there once. So with its bytes in the request, and with a write before
 * it. */
static void cut_while_it_flushes(bool carries)
{
	struct farlog_reader_config config = {0};
	struct farlog_position position;
	struct farlog_error error = {0};
	farlog_reader *reader = NULL;
	struct call append;
	struct pair pair;
	char uri[128];

	snprintf(now_testing, sizeof(now_testing), "slow: cut while it flushes, %s", carries ? "carried" : "written");
	atomic_store_relaxed(&ofi_carries_nothing, !carries);
	if (pair_open(&pair)) {
		CHECK(!carries == !(far_of(pair.slow->region)->link->welcome.flush_methods & FAR_CARRIES));
		CHECK(append_number(pair.slow, 6, LONG_NS, &position) == FARLOG_OK);
		shut_gate(true);
		begin(&append, &pair, append_slow, LONG_NS);
		await_flush();
		cut_connections(&pair);
		await_admitted(&pair, 2);
		CHECK(!is_over(&append));
		shut_gate(false);
		pthread_join(append.thread, NULL);
		CHECK(append.result == FARLOG_OK && append.position.level == FARLOG_LEVEL_PERSISTENT);
		snprintf(uri, sizeof(uri), "mem:%s", pair.paths[1]);
		if (CHECK_OK(farlog_reader_open(uri, &config, &reader, &error)))
			expect_numbers(reader, 6, 2);
		farlog_reader_close(reader);
	}
	pair_close(&pair);
	atomic_store_relaxed(&ofi_carries_nothing, 0);
}

static void ask_for_flush(struct far_link *link, uint32_t tag, uint64_t len)
{
	struct far_request request = {
		.operation = FAR_FLUSH, .tag = tag, .span_count = 1, .spans = {{LAYOUT_DATA_OFF, len}}};

	CHECK(link->ops->send(link, &request) == FARLOG_OK);
}

/* As many flushes as a client may have unanswered wait for a ring's thread, are done in their order, and there is room
 * again; with one more the client is disconnected. The neighbour goes on. */
static void as_many_as_may_wait(void)
{
	struct farlog_grant grant = {.role = FARLOG_GRANT_WRITER, .epoch = 5};
	struct far_link_bed writer;
	struct farlog_error error = {0};
	struct pair pair;
	char uri[128];

	snprintf(now_testing, sizeof(now_testing), "slow: as many as may wait");
	if (pair_open(&pair)) {
		host_token('f', grant.token);
		CHECK_OK(farlog_target_grant(pair.target, "slow", &grant, &error));
		snprintf(uri, sizeof(uri), "%s/slow", farlog_target_uri(pair.target));
		CHECK(farlog_writer_close(pair.slow) == FARLOG_OK);
		pair.slow = NULL;
		link_connect(&writer, uri, "slow", 'f', REGION_ROLE_WRITER, 5);
		shut_gate(true);
		CHECK(try_read(writer.link) == FARLOG_OK); /* the target has looked at the first request, which has no answer */
		for (uint32_t tag = 1; tag <= FAR_UNANSWERED_MAX; tag++)
			ask_for_flush(writer.link, tag, 64);
		use_neighbour(&pair);
		shut_gate(false);
		CHECK(link_answer(writer.link, FAR_UNANSWERED_MAX) == 0); /* answers come in order: it is the last */
		ask_for_flush(writer.link, FAR_UNANSWERED_MAX + 1, 64);
		CHECK(link_answer(writer.link, FAR_UNANSWERED_MAX + 1) == 0);
		shut_gate(true);
		for (uint32_t tag = 1; tag <= FAR_UNANSWERED_MAX + 1; tag++)
			ask_for_flush(writer.link, tag, 64);
		CHECK(link_settle(writer.link, UINT64_MAX, 0) == FARLOG_IO);
		use_neighbour(&pair);
		shut_gate(false);
		link_free(&writer);
	}
	pair_close(&pair);
}

/* Much memory takes long, too: it is flushed by a thread that is made for it, and the neighbour goes on. */
static void much_memory(void)
{
	struct farlog_grant grant = {.role = FARLOG_GRANT_WRITER, .epoch = 5};
	struct far_link_bed writer;
	struct farlog_error error = {0};
	struct pair pair;
	char uri[128];

	snprintf(now_testing, sizeof(now_testing), "slow: much memory");
	if (pair_open(&pair)) {
		serve(&pair, 2, "much", "/dev/shm", 4u << 20);
		CHECK(stand_before(&pair, "much"));
		host_token('m', grant.token);
		CHECK_OK(farlog_target_grant(pair.target, "much", &grant, &error));
		snprintf(uri, sizeof(uri), "%s/much", farlog_target_uri(pair.target));
		link_connect(&writer, uri, "much", 'm', REGION_ROLE_WRITER, 5);
		shut_gate(true);
		ask_for_flush(writer.link, 1, 2u << 20);
		await_flush();
		use_neighbour(&pair);
		shut_gate(false);
		CHECK(link_answer(writer.link, 1) == 0);
		link_free(&writer);
	}
	pair_close(&pair);
}

void test_slow(void)
{
	much_memory();
	as_many_as_may_wait();
	cut_while_it_flushes(true);
	cut_while_it_flushes(false);
	neighbour_goes_on();
	fenced_while_it_flushes();
	forgotten_while_it_flushes();
}
