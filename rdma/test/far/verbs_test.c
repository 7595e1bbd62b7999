/* verbs_test.c -- what verbs regions promise beyond what every far region does: how many work requests, doorbells and completions an append costs,
 * that the device itself refuses a writer whose key has ended and a key that is another's, and texts that say what to do.
 *
 * usage: verbs_test ADDRESS     of an RDMA device here (SoftRoCE will do); exit 77 when there is none
 *
 * Client and target are in one process: what is between them is the device. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "crc32c.h"
#include "far_verbs.h"
#include "region.h"
#include "target_verbs.h"

#define SIZE (0x3000u + (2u << 20))
#define WAIT_NS 20000000000u
#define EXIT_SKIP 77
#define LINE LAYOUT_DATA_OFF

static const char *address = "";
static char directory[] = "/dev/shm/farlog-verbs-XXXXXX";
static farlog_target *target;
static unsigned passed;
static unsigned failed;
static const char *condition;
static bool has_flush = true;

#define CHECK(claim)                                                                                  \
	do {                                                                                              \
		if (claim) {                                                                                  \
			passed++;                                                                                 \
		} else {                                                                                      \
			printf("verbs: %s: line %d: %s\n", condition, __LINE__, #claim);                          \
			failed++;                                                                                 \
		}                                                                                             \
	} while (0)

#define CHECK_OK(call)                                                                                \
	do {                                                                                              \
		struct farlog_error error = {0};                                                              \
		int check_result = (call);                                                                    \
		if (check_result != FARLOG_OK)                                                                \
			printf("verbs: %s: %s: %s\n", condition, farlog_result_name(check_result), error.text);   \
		CHECK(check_result == FARLOG_OK);                                                             \
	} while (0)

static void region_uri(const char *name, char *text, size_t room)
{
	snprintf(text, room, "mem:%s/%s.ring", directory, name);
}

static void far_uri(const char *name, const char *options, char *text, size_t room)
{
	snprintf(text, room, "%s/%s%s%s", farlog_target_uri(target), name, options[0] != '\0' ? "?" : "", options);
}

static void serve(const char *name, const char *tenant)
{
	struct farlog_ring_config config = {.size_bytes = SIZE, .record_len_max = 65536, .is_forced = 1, .stream_name = name};
	char uri[256];

	region_uri(name, uri, sizeof(uri));
	CHECK_OK(farlog_ring_format(uri, &config, &error));
	CHECK_OK(farlog_target_serve(target, name, uri, tenant, &error));
}

static struct farlog_grant grant(const char *name, uint32_t role, uint32_t epoch)
{
	struct farlog_grant granted = {.role = role, .epoch = epoch};

	CHECK(getrandom(granted.token, sizeof(granted.token), 0) == sizeof(granted.token));
	CHECK_OK(farlog_target_grant(target, name, &granted, &error));
	return granted;
}

static void token_text(const struct farlog_grant *granted, char *text)
{
	for (unsigned i = 0; i < FARLOG_TOKEN_LEN; i++)
		snprintf(text + 2 * i, 3, "%02x", granted->token[i]);
}

static void parse_token(const char *text, uint8_t *token)
{
	for (unsigned i = 0; i < FARLOG_TOKEN_LEN; i++)
		token[i] = (uint8_t)strtoul((char[]){text[2 * i], text[2 * i + 1], '\0'}, NULL, 16);
}

static struct farlog_target_counters counters(const char *name)
{
	struct farlog_target_counters now = {0};

	CHECK(farlog_target_counters_read(target, name, &now) == FARLOG_OK);
	return now;
}

/* ---------------------------------------------------------------- appends by every method */

static void fill(uint8_t *payload, uint32_t len, uint64_t seq)
{
	for (uint32_t i = 0; i < len; i++)
		payload[i] = (uint8_t)(seq * 31 + i);
}

static uint32_t len_of(uint64_t seq)
{
	return (uint32_t)(seq * 977 % 40000) + 1;
}

/* drain -- whatever is there, on the target's host. Counts records. */
static uint64_t drain(farlog_reader *reader)
{
	static uint8_t buffer[1 << 20];
	struct farlog_batch batch;
	uint64_t count = 0;

	while (farlog_reader_read(reader, buffer, sizeof(buffer), &batch) == FARLOG_OK) {
		count += batch.record_count;
		CHECK(farlog_reader_release(reader, batch.next_lsn, batch.next_seq, batch.last_epoch) == FARLOG_OK);
	}
	return count;
}

static void append_by(const char *options)
{
	static uint8_t payload[65536];
	static uint32_t epoch = 1;
	struct farlog_grant granted = grant("orders", FARLOG_GRANT_WRITER, ++epoch);
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .epoch = granted.epoch, .grant_token = granted.token, .counters_dir = "",
		.deadline_ns = WAIT_NS};
	struct farlog_reader_config drain_config = {.is_drain = 1};
	struct farlog_position position;
	farlog_writer *writer = NULL;
	farlog_reader *reader = NULL;
	uint64_t count = 0;
	char near[256];
	char far[256];

	region_uri("orders", near, sizeof(near));
	far_uri("orders", options, far, sizeof(far));
	condition = far;
	if (strstr(options, "rdma-flush") != NULL && !has_flush) {
		printf("verbs: %s: skipped: no FLUSH here\n", far);
		return;
	}
	CHECK_OK(farlog_writer_open(far, &config, &writer, &error));
	CHECK_OK(farlog_reader_open(near, &drain_config, &reader, &error));
	if (writer == NULL || reader == NULL)
		return;
	printf("verbs: %s: level %s by %s (%s)\n", far, farlog_level_name((int)farlog_writer_contract(writer)->level),
		farlog_writer_contract(writer)->flush_name, farlog_writer_contract(writer)->probe);
	count += drain(reader);
	/* More than the ring holds: it wraps, and the drain's credit comes back by the target. */
	for (uint64_t seq = 0; seq < 300; seq++) {
		struct farlog_entry entry = {.data = payload, .len = len_of(seq)};

		fill(payload, entry.len, seq);
		CHECK(farlog_append(writer, &entry, 0, &position) == FARLOG_OK);
		if (seq % 16 == 15)
			count += drain(reader);
	}
	CHECK(position.level == FARLOG_LEVEL_VISIBLE);
	count += drain(reader);
	CHECK(count == 301); /* with the EPOCH record */
	CHECK(farlog_writer_close(writer) == FARLOG_OK);
	farlog_reader_close(reader);
}

/* ---------------------------------------------------------------- what an append costs */

static struct far_link *open_link(const char *name, const struct farlog_grant *granted, enum farlog_flush_method method)
{
	struct far_hello hello = {.magic = FAR_HELLO_MAGIC, .version = FAR_VERSION, .role = (uint8_t)granted->role, .epoch = granted->epoch,
		.ring_hash = crc32c_update(0, name, strlen(name)), .client_id = 7};
	struct far_refusal refusal;
	struct far_link *link = NULL;
	struct uri uri;
	char text[256];

	memcpy(hello.token, granted->token, sizeof(hello.token));
	far_uri(name, "", text, sizeof(text));
	CHECK_OK(uri_parse(text, &uri, &error));
	CHECK_OK(far_verbs.open(text, &uri, &link, &error));
	CHECK_OK(link->ops->connect(link, &hello, &refusal, 5000000000u, &error));
	link->method = link->welcome.flush_methods & 1u << method ? method : FARLOG_FLUSH_NONE;
	return link;
}

/* open_to_write -- by what the tests of refusals flush with: where the library is older than FLUSH, by a READ. */
static struct far_link *open_to_write(const char *name, const struct farlog_grant *granted)
{
	struct far_link *link = open_link(name, granted, FARLOG_FLUSH_RDMA_FLUSH);

	if (link->method == FARLOG_FLUSH_NONE)
		link->method = FARLOG_FLUSH_RDMA_READ;
	CHECK(link->welcome.flush_methods & 1u << link->method);
	return link;
}

static void close_link(struct far_link *link)
{
	uint8_t *copy = link->copy;

	link->ops->disconnect(link);
	link->ops->close(link);
	munmap(copy, SIZE);
}

/* await -- OK or IO. */
static int await(struct far_link *link, uint64_t tag)
{
	uint64_t until_ns = clock_after_ns(WAIT_NS);
	struct far_done done = {0};

	while (clock_monotonic_ns() < until_ns) {
		if (link->ops->poll(link, &done) != FARLOG_OK)
			return FARLOG_IO;
		if (done.persist_tag == tag || done.read_tag == tag)
			return FARLOG_OK;
	}
	return FARLOG_UNKNOWN;
}

static int persist(struct far_link *link, const struct region_span *spans, unsigned count, uint64_t tag)
{
	return link->ops->persist(link, spans, count, tag) == FARLOG_OK ? await(link, tag) : FARLOG_IO;
}

/* cost -- of one persist. */
static struct verbs_counts cost(struct far_link *link, const struct region_span *spans, unsigned count, uint64_t tag)
{
	struct verbs_counts before = *verbs_link_counts(link);
	struct verbs_counts after;

	CHECK(persist(link, spans, count, tag) == FARLOG_OK);
	after = *verbs_link_counts(link);
	return (struct verbs_counts){after.write_count - before.write_count, after.inline_count - before.inline_count, after.read_count - before.read_count,
		after.flush_count - before.flush_count, after.send_count - before.send_count, after.signalled_count - before.signalled_count,
		after.doorbell_count - before.doorbell_count, after.completion_count - before.completion_count};
}

static const uint8_t *ring_bytes(const char *name)
{
	struct target_ring *ring = target->rings;

	while (strcmp(ring->name, name) != 0)
		ring = ring->next;
	return ring->bytes;
}

static void append_costs_one_doorbell(void)
{
	const struct region_span small = {LINE, 192};
	const struct region_span large = {LINE + 4096, 8192};
	const struct region_span wrapped[] = {{SIZE - 4096, 4096}, {LINE, 4096}};
	static const enum farlog_flush_method methods[] = {FARLOG_FLUSH_RDMA_FLUSH, FARLOG_FLUSH_RDMA_READ, FARLOG_FLUSH_TARGET_CPU};

	for (unsigned i = 0; i < 3; i++) {
		struct farlog_grant granted = grant("costs", FARLOG_GRANT_WRITER, i + 1);
		struct far_link *link;
		struct verbs_counts one;
		bool is_flush = methods[i] == FARLOG_FLUSH_RDMA_FLUSH;
		bool is_read = methods[i] == FARLOG_FLUSH_RDMA_READ;
		bool is_asked = methods[i] == FARLOG_FLUSH_TARGET_CPU;

		condition = "cost of a persist";
		link = open_link("costs", &granted, methods[i]);
		if (link->method == FARLOG_FLUSH_NONE && is_flush) {
			printf("verbs: cost of FLUSH: skipped: libibverbs here is older than 45, or the device has none\n");
			has_flush = false;
			close_link(link);
			continue;
		}
		for (uint64_t j = 0; j < SIZE - LINE; j++)
			link->copy[LINE + j] = (uint8_t)(j * (i + 3) >> 3);
		one = cost(link, &small, 1, 1);
		CHECK(one.write_count == 1 && one.inline_count == 1);
		CHECK(one.flush_count == is_flush && one.read_count == is_read && one.send_count == is_asked);
		CHECK(one.doorbell_count == 1 && one.signalled_count == 1);
		CHECK(one.completion_count == 1 || is_asked); /* an answer may come before the completion of its request */
		one = cost(link, &large, 1, 2);
		CHECK(one.write_count == 1 && one.inline_count == 0 && one.doorbell_count == 1 && one.signalled_count == 1);
		one = cost(link, wrapped, 2, 3);
		CHECK(one.write_count == 2 && one.doorbell_count == 1 && one.signalled_count == 1);
		CHECK(one.flush_count == 2u * is_flush && one.read_count == 2u * is_read && one.send_count == is_asked);
		CHECK(memcmp(ring_bytes("costs") + LINE, link->copy + LINE, 192) == 0);
		CHECK(memcmp(ring_bytes("costs") + large.off, link->copy + large.off, large.len) == 0);
		CHECK(memcmp(ring_bytes("costs") + wrapped[0].off, link->copy + wrapped[0].off, wrapped[0].len) == 0);
		close_link(link);
	}
}

/* A persist of more pieces than the send queue has slots goes on as slots come back, and so do words that nobody waits for. */
static void more_than_the_queue_holds(void)
{
	const struct region_span all = {LINE, SIZE - LINE};
	const struct region_span line = {LINE, 64};
	struct farlog_grant granted;
	struct far_link *link;
	struct verbs_counts before;
	struct far_done done;

	condition = "more than the send queue holds";
	granted = grant("costs", FARLOG_GRANT_WRITER, 10);
	link = open_to_write("costs", &granted);
	((struct verbs_link *)link)->device.message_len_max = 4096; /* 512 pieces; the queue has 256 slots */
	memset(link->copy + LINE, 0x5A, SIZE - LINE);
	CHECK(persist(link, &all, 1, 1) == FARLOG_OK);
	CHECK(memcmp(ring_bytes("costs") + LINE, link->copy + LINE, SIZE - LINE) == 0);
	memset(link->copy + LINE, 0, SIZE - LINE);
	CHECK(link->ops->read(link, all, 2) == FARLOG_OK && await(link, 2) == FARLOG_OK);
	CHECK(link->copy[LINE] == 0x5A && memcmp(link->copy + LINE, link->copy + LINE + 1, SIZE - LINE - 1) == 0);
	before = *verbs_link_counts(link);
	for (uint64_t i = 0; i < 5000; i++) {
		*(uint64_t *)(link->copy + LAYOUT_TAIL_HINT_OFF) = i;
		CHECK(link->ops->write(link, LAYOUT_TAIL_HINT_OFF, 8) == FARLOG_OK);
		if (i % 1000 == 999)
			(void)link->ops->poll(link, &done);
	}
	CHECK(verbs_link_counts(link)->signalled_count - before.signalled_count <= 5000 / 64);
	CHECK(persist(link, &line, 1, 3) == FARLOG_OK);
	CHECK(*(const uint64_t *)(ring_bytes("costs") + LAYOUT_TAIL_HINT_OFF) == 4999);
	close_link(link);
}

/* ---------------------------------------------------------------- what the device refuses */

static void *fence(void *context)
{
	condition = "fence";
	CHECK_OK(farlog_target_fence(target, context, 50, NULL, &error));
	return NULL;
}

/* Between the end of the key and the end of the queue pair nobody but the device can refuse the write. */
static void zombie_is_refused_by_the_device(void)
{
	struct region_span span = {LINE, 4096};
	struct farlog_grant granted = grant("fenced", FARLOG_GRANT_WRITER, 1);
	struct farlog_grant drain_grant = grant("fenced", FARLOG_GRANT_DRAIN, 0);
	struct far_link *link = open_to_write("fenced", &granted);
	struct far_link *other;
	pthread_t fencer;
	uint64_t tag = 1;
	int result;

	memset(link->copy + LINE, 1, 4096);
	CHECK(persist(link, &span, 1, tag) == FARLOG_OK);
	atomic_store_relaxed(&verbs_revocation_pause_ns, 1500000000u);
	pthread_create(&fencer, NULL, fence, (void *)"fenced");
	do {
		memset(link->copy + LINE, 2, 4096);
		result = persist(link, &span, 1, ++tag);
	} while (result == FARLOG_OK);
	condition = "zombie between key and queue pair";
	printf("verbs: %s: after %lu writes: %s\n", condition, tag - 1, link->broken);
	CHECK(result == FARLOG_IO);
	CHECK(strstr(link->broken, "remote access error") != NULL && strstr(link->broken, "(status 10,") != NULL);
	pthread_join(fencer, NULL);
	atomic_store_relaxed(&verbs_revocation_pause_ns, 0);
	/* The old key by a connection that is good: of the same tenant, to the same ring. */
	condition = "old key by another connection";
	other = open_to_write("fenced", &drain_grant);
	memset(other->copy + LINE, 3, 4096);
	*verbs_link_key(other) = *verbs_link_key(link);
	CHECK(persist(other, &span, 1, 1) == FARLOG_IO);
	CHECK(strstr(other->broken, "remote access error") != NULL);
	CHECK(ring_bytes("fenced")[LINE] != 3);
	close_link(other);
	close_link(link);
}

static void key_of_another_is_refused(const char *victim, const char *what)
{
	struct region_span span = {LINE, 64};
	uint64_t denied_before = counters("mine").denied_count;
	struct farlog_grant mine = grant("mine", FARLOG_GRANT_WRITER, (uint32_t)counters("mine").admitted_count + 1);
	struct farlog_grant theirs = grant(victim, FARLOG_GRANT_WRITER, (uint32_t)counters(victim).admitted_count + 1);
	struct far_link *a = open_to_write("mine", &mine);
	struct far_link *b = open_to_write(victim, &theirs);
	uint64_t until_ns;

	condition = what;
	memset(a->copy + LINE, 0xEE, 64);
	a->welcome.data_addr = b->welcome.data_addr;
	*verbs_link_key(a) = *verbs_link_key(b);
	CHECK(persist(a, &span, 1, 1) == FARLOG_IO);
	CHECK(strstr(a->broken, "remote access error") != NULL);
	CHECK(ring_bytes(victim)[LINE] != 0xEE);
	CHECK(persist(b, &span, 1, 1) == FARLOG_OK); /* and the owner goes on */
	until_ns = clock_after_ns(WAIT_NS);
	while (counters("mine").denied_count == denied_before && clock_monotonic_ns() < until_ns)
		usleep(1000);
	CHECK(counters("mine").denied_count == denied_before + 1);
	CHECK(counters(victim).denied_count == 0);
	close_link(a);
	close_link(b);
}

static void reader_cannot_write(void)
{
	struct region_span span = {LINE, 64};
	struct farlog_grant granted = grant("mine", FARLOG_GRANT_READER, 0);
	struct far_link *link = open_link("mine", &granted, FARLOG_FLUSH_RDMA_READ);

	condition = "reader that writes";
	CHECK(link->ops->read(link, span, 1) == FARLOG_OK && await(link, 1) == FARLOG_OK);
	memset(link->copy + LINE, 0xDD, 64);
	CHECK(persist(link, &span, 1, 2) == FARLOG_IO);
	CHECK(strstr(link->broken, "remote") != NULL);
	CHECK(ring_bytes("mine")[LINE] != 0xDD);
	close_link(link);
}

/* Where windows cannot be bound each connection has a registration of its own, which ends with it. */
static void key_is_a_registration_without_windows(void)
{
	struct verbs_listener *listener = target->listener;
	struct region_span span = {LINE, 4096};
	struct farlog_grant granted = grant("plain", FARLOG_GRANT_WRITER, 1);
	struct farlog_grant drain_grant = grant("plain", FARLOG_GRANT_DRAIN, 0);
	struct far_link *link;
	struct far_link *other;

	condition = "without windows";
	listener->hosts[0].is_window_off = true;
	link = open_to_write("plain", &granted);
	CHECK(strstr(link->welcome.probe, "key: registration") != NULL);
	memset(link->copy + LINE, 1, 4096);
	CHECK(persist(link, &span, 1, 1) == FARLOG_OK && ring_bytes("plain")[LINE] == 1);
	fence((void *)"plain");
	condition = "without windows, fenced";
	CHECK(persist(link, &span, 1, 2) == FARLOG_IO);
	other = open_to_write("plain", &drain_grant);
	memset(other->copy + LINE, 3, 4096);
	*verbs_link_key(other) = *verbs_link_key(link);
	CHECK(persist(other, &span, 1, 1) == FARLOG_IO && ring_bytes("plain")[LINE] == 1);
	close_link(other);
	close_link(link);
	key_of_another_is_refused("theirs", "key of another tenant, without windows");
	listener->hosts[0].is_window_off = false;
}

/* A connection that is cut between appends or in the middle of one costs time, not records. */
static void connection_is_cut(const char *options)
{
	static uint32_t epoch = 200;
	static uint8_t payload[4096];
	struct farlog_grant granted = grant("orders", FARLOG_GRANT_WRITER, ++epoch);
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .epoch = granted.epoch, .grant_token = granted.token, .counters_dir = "",
		.deadline_ns = WAIT_NS};
	struct farlog_reader_config drain_config = {.is_drain = 1};
	struct farlog_position position;
	farlog_writer *writer = NULL;
	farlog_reader *reader = NULL;
	uint64_t admitted_before = counters("orders").admitted_count;
	uint64_t count;
	char near[256];
	char far[256];

	if (strstr(options, "rdma-flush") != NULL && !has_flush)
		return;
	condition = "connection that is cut";
	region_uri("orders", near, sizeof(near));
	far_uri("orders", options, far, sizeof(far));
	CHECK_OK(farlog_writer_open(far, &config, &writer, &error));
	CHECK_OK(farlog_reader_open(near, &drain_config, &reader, &error));
	(void)drain(reader);
	for (uint64_t seq = 0; seq < 200; seq++) {
		struct farlog_entry entry = {.data = payload, .len = sizeof(payload)};

		CHECK(farlog_submit(writer, &entry, &position) == FARLOG_OK);
		if (seq % 20 == 10) {
			struct target_ring *ring;

			pthread_mutex_lock(&target->mutex);
			for (ring = target->rings; strcmp(ring->name, "orders") != 0;)
				ring = ring->next;
			if (ring->conns != NULL)
				target_shut_out(target, ring->conns);
			pthread_mutex_unlock(&target->mutex);
		}
		CHECK(farlog_wait(writer, position.end_lsn, WAIT_NS) == FARLOG_OK);
	}
	count = drain(reader);
	CHECK(count == 200);
	CHECK(counters("orders").admitted_count == admitted_before + 11); /* once, and after each cut */
	CHECK(farlog_writer_close(writer) == FARLOG_OK);
	farlog_reader_close(reader);
}

/* A host that is gone says nothing: a queue pair in error is as silent. The target asks, and frees the role. */
static void silent_client_loses_its_role(void)
{
	struct farlog_grant granted = grant("costs", FARLOG_GRANT_DRAIN, 0);
	struct far_link *link = open_link("costs", &granted, FARLOG_FLUSH_RDMA_READ);
	uint64_t lost_before = counters("costs").lost_count;
	uint64_t until_ns = clock_after_ns(WAIT_NS);

	condition = "silent client";
	CHECK(counters("costs").drain_count == 1);
	verbs_queue_stop(&((struct verbs_link *)link)->queue);
	while (counters("costs").drain_count != 0 && clock_monotonic_ns() < until_ns)
		usleep(1000);
	CHECK(counters("costs").drain_count == 0);
	CHECK(counters("costs").lost_count == lost_before + 1);
	CHECK(counters("costs").denied_count == 0);
	close_link(link);
}

/* A client that is killed says no goodbye; its kernel does, and its role is free for the next. */
static void killed_client_leaves(void)
{
	struct farlog_grant granted = grant("orders", FARLOG_GRANT_WRITER, 500);
	uint64_t until_ns = clock_after_ns(WAIT_NS);
	char token[2 * FARLOG_TOKEN_LEN + 1];
	char uri[256];
	pid_t child;

	condition = "killed client";
	token_text(&granted, token);
	far_uri("orders", "", uri, sizeof(uri));
	fflush(stdout);
	child = fork();
	if (child == 0) {
		execl("/proc/self/exe", "verbs_test", "append", uri, token, (char *)NULL);
		_exit(127);
	}
	while (counters("orders").writer_count == 0 && clock_monotonic_ns() < until_ns)
		usleep(1000);
	usleep(50000);
	CHECK(counters("orders").writer_count == 1);
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	while (counters("orders").writer_count != 0 && clock_monotonic_ns() < until_ns)
		usleep(1000);
	CHECK(counters("orders").writer_count == 0);
	granted = grant("orders", FARLOG_GRANT_WRITER, 501);
	close_link(open_to_write("orders", &granted));
}

/* append_until_killed -- the child of killed_client_leaves. */
static int append_until_killed(const char *uri, const char *text)
{
	uint8_t token[FARLOG_TOKEN_LEN];
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .epoch = 500, .grant_token = token, .counters_dir = ""};
	struct farlog_entry entry = {.data = "x", .len = 1};
	struct farlog_position position;
	farlog_writer *writer;

	parse_token(text, token);
	if (farlog_writer_open(uri, &config, &writer, NULL) != FARLOG_OK)
		return 1;
	for (;;)
		(void)farlog_try_append(writer, &entry, &position);
}

/* ---------------------------------------------------------------- texts */

static void expect_text(const char *uri, const uint8_t *token, int result, const char *part)
{
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .epoch = 1000, .grant_token = token, .counters_dir = ""};
	struct farlog_error error = {0};
	farlog_writer *writer = NULL;
	int got = farlog_writer_open(uri, &config, &writer, &error);

	condition = uri;
	printf("verbs: %s: %s\n", farlog_result_name(got), error.text);
	CHECK(got == result);
	CHECK(strstr(error.text, part) != NULL);
}

static void texts_say_what_to_do(void)
{
	static const uint8_t unknown[FARLOG_TOKEN_LEN] = {1};
	char uri[256];

	far_uri("orders", "", uri, sizeof(uri));
	expect_text(uri, unknown, FARLOG_INVALID, "no grant with this token");
	snprintf(uri, sizeof(uri), "verbs://%s:1/orders", address);
	expect_text(uri, unknown, FARLOG_NOT_FOUND, "expected a farlog target that listens there");
	snprintf(uri, sizeof(uri), "verbs://127.0.0.1:1/orders");
	expect_text(uri, unknown, FARLOG_NOT_FOUND, "RDMA device");
}

/* In a process of its own without rights, because root may pin what it likes. */
static int open_without_memlock(const char *uri, const char *text)
{
	struct rlimit limit = {65536, 65536};
	uint8_t token[FARLOG_TOKEN_LEN];

	parse_token(text, token);
	if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setgid(65534) != 0 || setuid(65534) != 0)
		return EXIT_SKIP;
	expect_text(uri, token, FARLOG_NO_MEMORY, "RLIMIT_MEMLOCK is 65536 bytes");
	return failed > 0;
}

static void memlock_is_named(void)
{
	struct farlog_grant granted = grant("orders", FARLOG_GRANT_WRITER, 1000);
	char token[2 * FARLOG_TOKEN_LEN + 1];
	char uri[256];
	int status = -1;
	pid_t child;

	condition = "memlock";
	token_text(&granted, token);
	far_uri("orders", "", uri, sizeof(uri));
	fflush(stdout);
	child = fork();
	if (child == 0) {
		execl("/proc/self/exe", "verbs_test", "memlock", uri, token, (char *)NULL);
		_exit(127);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---------------------------------------------------------------- */

static int start(void)
{
	struct farlog_error error = {0};
	char uri[128];
	int result;

	snprintf(uri, sizeof(uri), "verbs://%s:0", address);
	result = farlog_target_open(uri, &target, &error);
	if (result == FARLOG_UNSUPPORTED) {
		printf("verbs: skipped: %s\n", error.text);
		return EXIT_SKIP;
	}
	if (result != FARLOG_OK)
		printf("verbs: %s\n", error.text);
	return result != FARLOG_OK || mkdtemp(directory) == NULL;
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"flush=rdma-flush", "flush=rdma-read", "flush=target-cpu", "", "flush=rdma-flush&wait=block",
		"flush=target-cpu&wait=block"};
	char command[64];
	int code;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 4 && strcmp(argv[1], "memlock") == 0)
		return open_without_memlock(argv[2], argv[3]);
	if (argc == 4 && strcmp(argv[1], "append") == 0)
		return append_until_killed(argv[2], argv[3]);
	if (argc != 2) {
		fprintf(stderr, "usage: verbs_test ADDRESS\n");
		return 2;
	}
	address = argv[1];
	condition = "start";
	code = start();
	if (code != 0)
		return code;
	serve("orders", NULL);
	serve("costs", NULL);
	serve("fenced", "a");
	serve("mine", "a");
	serve("sister", "a");
	serve("theirs", "b");
	serve("plain", "a");
	append_costs_one_doorbell();
	more_than_the_queue_holds();
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		append_by(options[i]);
	zombie_is_refused_by_the_device();
	key_of_another_is_refused("theirs", "key of another tenant");
	key_of_another_is_refused("sister", "key of the same tenant's other ring");
	reader_cannot_write();
	key_is_a_registration_without_windows();
	connection_is_cut("flush=rdma-flush");
	connection_is_cut("flush=rdma-read&wait=block");
	connection_is_cut("flush=target-cpu");
	silent_client_loses_its_role();
	killed_client_leaves();
	texts_say_what_to_do();
	memlock_is_named();
	farlog_target_close(target);
	snprintf(command, sizeof(command), "rm -r %s", directory);
	if (system(command) != 0)
		failed++;
	printf("verbs: %u passed, %u failed\n", passed, failed);
	return failed > 0;
}
