/* verbs_refusal.c -- what the device itself refuses a client, and how connections end. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "farlog/tails.h"
#include "verbs_faults.h"
#include "verbs_pair.h"

/* fence -- in a thread of its own, which does not count: NULL when it went well. */
static void *fence(void *name)
{
	return farlog_target_fence(pair_target, name, 50, NULL, NULL) == FARLOG_OK ? NULL : name;
}

/* await_nobody -- a link that broke does not wait for its target. */
static void await_nobody(const char *name)
{
	uint64_t until_ns = clock_after_ns(WAIT_NS);

	while (pair_counters(name).writer_count + pair_counters(name).drain_count != 0 && clock_monotonic_ns() < until_ns)
		usleep(1000);
	CHECK(pair_counters(name).writer_count + pair_counters(name).drain_count == 0);
}

/* await_denied -- one more than before: the target hears of a refusal after who was refused. */
static void await_denied(const char *name, uint64_t before)
{
	uint64_t until_ns = clock_after_ns(WAIT_NS);

	while (pair_counters(name).denied_count == before && clock_monotonic_ns() < until_ns)
		usleep(1000);
	CHECK(pair_counters(name).denied_count == before + 1);
}

/* is_refusal -- told by the device, or by the target's goodbye: it hears of the refusal too, and that may be read
 * before the completion. That the device refused is counted there: await_denied. */
static bool is_refusal(const struct far_link *link)
{
	bool is = strstr(link->broken, "remote access error") != NULL ||
		strstr(link->broken, "remote invalid request") != NULL ||
		strstr(link->broken, "the target closed the connection") != NULL;

	if (!is)
		printf("verbs: %s: %s\n", pair_condition, link->broken);
	return is;
}

/* Between the end of the key and the end of the queue pair nobody but the device can refuse the write. */
static void zombie_is_refused_by_the_device(void)
{
	struct region_span span = {LINE, 4096};
	struct farlog_grant granted = pair_grant("fenced", FARLOG_GRANT_WRITER, 1);
	struct farlog_grant drain_grant = pair_grant("fenced", FARLOG_GRANT_DRAIN, 0);
	struct far_link *link = pair_open_to_write("fenced", &granted);
	struct far_link *other;
	pthread_t fencer;
	void *failure;
	uint64_t tag = 1;
	int result;

	memset(link->copy + LINE, 1, 4096);
	CHECK(pair_persist(link, &span, 1, tag) == FARLOG_OK);
	farlog_fault_pause_revocations(1500000000u);
	pthread_create(&fencer, NULL, fence, (void *)"fenced");
	do {
		memset(link->copy + LINE, 2, 4096);
		result = pair_persist(link, &span, 1, ++tag);
	} while (result == FARLOG_OK);
	pair_condition = "zombie between key and queue pair";
	printf("verbs: %s: after %lu writes: %s\n", pair_condition, tag - 1, link->broken);
	CHECK(result == FARLOG_IO);
	CHECK(strstr(link->broken, "remote access error") != NULL && strstr(link->broken, "(status 10,") != NULL);
	CHECK(pthread_join(fencer, &failure) == 0 && failure == NULL);
	CHECK(pair_counters("fenced").denied_count == 1); /* and it is counted */
	farlog_fault_pause_revocations(0);
	/* The old key by a connection that is good: of the same tenant, to the same ring. */
	pair_condition = "old key by another connection";
	other = pair_open_to_write("fenced", &drain_grant);
	memset(other->copy + LINE, 3, 4096);
	*pair_key(other) = *pair_key(link);
	CHECK(pair_persist(other, &span, 1, 1) == FARLOG_IO);
	CHECK(is_refusal(other));
	await_denied("fenced", 1);
	CHECK(pair_ring_bytes("fenced")[LINE] != 3);
	pair_close_link(other);
	pair_close_link(link);
}

static void key_of_another_is_refused(const char *victim, const char *what)
{
	struct region_span span = {LINE, 64};
	uint64_t denied_before = pair_counters("mine").denied_count;
	struct farlog_grant mine =
		pair_grant("mine", FARLOG_GRANT_WRITER, (uint32_t)pair_counters("mine").admitted_count + 1);
	struct farlog_grant theirs =
		pair_grant(victim, FARLOG_GRANT_WRITER, (uint32_t)pair_counters(victim).admitted_count + 1);
	struct far_link *a = pair_open_to_write("mine", &mine);
	struct far_link *b = pair_open_to_write(victim, &theirs);

	pair_condition = what;
	memset(a->copy + LINE, 0xEE, 64);
	a->welcome.data_addr = b->welcome.data_addr;
	*pair_key(a) = *pair_key(b);
	CHECK(pair_persist(a, &span, 1, 1) == FARLOG_IO);
	CHECK(is_refusal(a));
	CHECK(pair_ring_bytes(victim)[LINE] != 0xEE);
	CHECK(pair_persist(b, &span, 1, 1) == FARLOG_OK); /* and the owner goes on */
	await_denied("mine", denied_before);
	CHECK(pair_counters(victim).denied_count == 0);
	pair_close_link(a);
	pair_close_link(b);
}

/* What is not a role's to write it has no key to: neither the one it has for its own piece nor the one to read the
 * header by opens it. */
static void header_is_refused(uint32_t role, const uint64_t *offs, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		for (enum far_piece piece = FAR_PIECE_HEADER; piece <= FAR_PIECE_WRITER; piece++) {
			struct farlog_grant granted = pair_grant("mine", role, (uint32_t)pair_counters("mine").admitted_count + 1);
			uint64_t denied_before = pair_counters("mine").denied_count;
			struct far_link *link = pair_open_to_write("mine", &granted);
			struct region_span span = {offs[i], 64};
			uint64_t key = link->welcome.keys[piece];
			uint8_t before[64];

			memcpy(before, pair_ring_bytes("mine") + span.off, sizeof(before));
			memset(link->copy + span.off, 0x5A, sizeof(before));
			link->welcome.keys[FAR_PIECE_DRAIN] = link->welcome.keys[FAR_PIECE_WRITER] = key;
			CHECK(pair_persist(link, &span, 1, 1) == FARLOG_IO);
			if (memcmp(before, pair_ring_bytes("mine") + span.off, sizeof(before)) != 0)
				printf("verbs: %s: role %u wrote to %#lx by the key of piece %d\n", pair_condition, role, span.off,
					(int)piece);
			CHECK(memcmp(before, pair_ring_bytes("mine") + span.off, sizeof(before)) == 0);
			await_denied("mine", denied_before);
			pair_close_link(link);
			await_nobody("mine");
		}
	}
}

static void header_is_out_of_reach(void)
{
	static const uint64_t not_writers[] = {
		LAYOUT_SUPERBLOCK_A_OFF, LAYOUT_SUPERBLOCK_B_OFF, LAYOUT_FENCE_OFF, LAYOUT_HEAD_A_OFF, LAYOUT_CREDIT_OFF};
	static const uint64_t not_drains[] = {LAYOUT_SUPERBLOCK_A_OFF, LAYOUT_FENCE_OFF, LAYOUT_TAIL_HINT_OFF, LINE};

	pair_condition = "header, by a writer";
	header_is_refused(FARLOG_GRANT_WRITER, not_writers, sizeof(not_writers) / sizeof(not_writers[0]));
	pair_condition = "header, by a drain";
	header_is_refused(FARLOG_GRANT_DRAIN, not_drains, sizeof(not_drains) / sizeof(not_drains[0]));
}

/* Who asked to leave has no key and no role any more when it sees the end of its connection. */
static void left_is_refused(void)
{
	struct region_span span = {LINE, 64};
	uint32_t epoch = (uint32_t)pair_counters("mine").admitted_count + 1;
	struct farlog_grant granted = pair_grant("mine", FARLOG_GRANT_WRITER, epoch);
	struct farlog_grant drain_grant = pair_grant("mine", FARLOG_GRANT_DRAIN, 0);
	struct far_link *link = pair_open_to_write("mine", &granted);
	uint64_t denied_before = pair_counters("mine").denied_count;
	struct far_link *other;

	pair_condition = "left";
	memset(link->copy + LINE, 0xCC, 64);
	CHECK(pair_persist(link, &span, 1, 1) == FARLOG_OK);
	far_leave(link);
	CHECK(strstr(link->broken, "the target closed the connection") != NULL);
	CHECK(pair_counters("mine").writer_count == 0);
	other = pair_open_to_write("mine", &drain_grant);
	memset(other->copy + LINE, 0xAB, 64);
	*pair_key(other) = *pair_key(link);
	CHECK(pair_persist(other, &span, 1, 1) == FARLOG_IO && is_refusal(other));
	await_denied("mine", denied_before);
	CHECK(pair_ring_bytes("mine")[LINE] == 0xCC);
	pair_close_link(other);
	pair_close_link(link);
}

/* writers_in_turn -- none finds the ring held by the one before. */
static void writers_in_turn(const char *options)
{
	uint32_t epoch = (uint32_t)pair_counters("mine").admitted_count + 1;
	char uri[256];

	pair_far_uri("mine", options, uri, sizeof(uri));
	pair_condition = "writers in turn";
	if (pair_ring_bytes("mine")[LINE] == 0xCC) /* of the cases above, where records begin; later there is one */
		memset((uint8_t *)(uintptr_t)pair_ring_bytes("mine") + LINE, 0, 64);
	for (unsigned i = 0; i < 10; i++) { /* each registers a ring: slow in a guest that is emulated */
		struct farlog_grant granted = pair_grant("mine", FARLOG_GRANT_WRITER, epoch + i);
		struct farlog_writer_config config = {
			.level = FARLOG_LEVEL_VISIBLE, .epoch = epoch + i, .grant_token = granted.token, .counters_dir = ""};
		farlog_writer *writer = NULL;

		CHECK_OK(farlog_writer_open(uri, &config, &writer, &error));
		farlog_writer_close(writer);
	}
}

static bool has_ring(const char *name, const struct farlog_tail *tails, size_t count)
{
	struct farlog_ring_status status = {0};
	farlog_reader *reader = NULL;
	bool has = false;
	char uri[256];

	pair_region_uri(name, uri, sizeof(uri));
	CHECK_OK(farlog_reader_open(uri, NULL, &reader, &error));
	CHECK(reader != NULL && farlog_reader_status(reader, &status) == FARLOG_OK);
	farlog_reader_close(reader);

	for (size_t i = 0; i < count; i++)
		has |= memcmp(tails[i].ring_uuid, status.ring_uuid, sizeof(status.ring_uuid)) == 0;
	return has;
}

/* By one READ, of the rings of a tenant and no other's. */
static void page_tells_of_a_tenants_rings(void)
{
	struct farlog_grant granted = pair_grant("mine", FARLOG_GRANT_DRAIN, 0);
	struct farlog_tail tails[FARLOG_TAIL_COUNT_MAX];
	farlog_tails *page = NULL;
	size_t count = 0;
	char uri[256];

	pair_far_uri("mine", "", uri, sizeof(uri));
	pair_condition = "page of tails";
	CHECK_OK(farlog_tails_open(uri, granted.token, &page, &error));
	if (page == NULL)
		return;
	for (unsigned i = 0; i < 10; i++) {
		uint64_t reads = farlog_tails_reads(page);

		CHECK(farlog_tails_read(page, tails, FARLOG_TAIL_COUNT_MAX, &count) == FARLOG_OK);
		CHECK(farlog_tails_reads(page) == reads + 1);
	}
	CHECK(has_ring("mine", tails, count) && has_ring("sister", tails, count) && !has_ring("theirs", tails, count));
	farlog_tails_close(page);
}

static void reader_cannot_write(void)
{
	struct region_span span = {LINE, 64};
	struct farlog_grant granted = pair_grant("mine", FARLOG_GRANT_READER, 0);
	struct far_link *link = pair_open_link("mine", &granted, FARLOG_FLUSH_RDMA_READ);
	uint64_t denied_before = pair_counters("mine").denied_count;

	pair_condition = "reader that writes";
	CHECK(link->ops->read(link, span, 1) == FARLOG_OK && pair_await(link, 1) == FARLOG_OK);
	memset(link->copy + LINE, 0xDD, 64);
	CHECK(pair_persist(link, &span, 1, 2) == FARLOG_IO);
	CHECK(is_refusal(link));
	await_denied("mine", denied_before);
	CHECK(pair_ring_bytes("mine")[LINE] != 0xDD);
	pair_close_link(link);
}

/* The ring's own registration, by whose key windows are bound, is good for nothing from afar. */
static void key_of_the_ring_opens_nothing(const char *what)
{
	struct verbs_exposure *exposure = NULL;
	struct region_span span = {LINE, 64};

	pair_condition = what;
	for (struct target_ring *ring = pair_target->rings; ring != NULL; ring = ring->next)
		if (strcmp(ring->name, "sister") == 0)
			exposure = ring->key;
	CHECK(exposure != NULL);
	for (unsigned i = 0; i < 2; i++) {
		struct farlog_grant granted =
			pair_grant("sister", FARLOG_GRANT_WRITER, (uint32_t)pair_counters("sister").admitted_count + 1);
		uint64_t denied_before = pair_counters("sister").denied_count;
		struct far_link *link = pair_open_to_write("sister", &granted);
		bool is_read = i == 1;

		memset(link->copy + LINE, 0xBA, 64);
		*pair_key(link) = exposure->on[0].pieces[FAR_PIECE_WRITER].mr->rkey;
		CHECK((is_read ? link->ops->read(link, span, 1) : link->ops->persist(link, &span, 1, 1)) == FARLOG_OK);
		CHECK(pair_await(link, 1) == FARLOG_IO && is_refusal(link));
		await_denied("sister", denied_before);
		CHECK(is_read ? link->copy[LINE] == 0xBA : pair_ring_bytes("sister")[LINE] != 0xBA);
		pair_close_link(link);
		await_nobody("sister");
	}
}

/* A bind that comes too late costs that connection its window, and no other. */
static void late_bind_costs_one_window(void)
{
	struct region_span span = {LINE, 64};
	uint64_t before = pair_counters("mine").registration_count;

	pair_condition = "late bind";
	atomic_store_relaxed(&verbs_binds_late, 1);
	for (unsigned i = 0; i < 3; i++) {
		struct farlog_grant granted =
			pair_grant("mine", FARLOG_GRANT_WRITER, (uint32_t)pair_counters("mine").admitted_count + 1);
		struct far_link *link = pair_open_to_write("mine", &granted);

		CHECK(strstr(link->welcome.probe, i == 0 ? "key: registration" : "key: memory window") != NULL);
		memset(link->copy + LINE, (int)i + 1, 64);
		CHECK(pair_persist(link, &span, 1, 1) == FARLOG_OK && pair_ring_bytes("mine")[LINE] == i + 1);
		CHECK(pair_counters("mine").registration_count == before + 1);
		pair_close_link(link);
	}
}

/* Where windows cannot be bound each connection has a registration of its own, which ends with it. */
static void key_is_a_registration_without_windows(void)
{
	struct verbs_listener *listener = pair_target->listener;
	struct region_span span = {LINE, 4096};
	struct farlog_grant granted = pair_grant("plain", FARLOG_GRANT_WRITER, 1);
	struct farlog_grant drain_grant = pair_grant("plain", FARLOG_GRANT_DRAIN, 0);
	struct far_link *link;
	struct far_link *other;

	pair_condition = "without windows";
	listener->hosts[0].device.has_window = false;
	link = pair_open_to_write("plain", &granted);
	CHECK(strstr(link->welcome.probe, "key: registration") != NULL);
	memset(link->copy + LINE, 1, 4096);
	CHECK(pair_persist(link, &span, 1, 1) == FARLOG_OK && pair_ring_bytes("plain")[LINE] == 1);
	CHECK(fence((void *)"plain") == NULL);
	pair_condition = "without windows, fenced";
	CHECK(pair_persist(link, &span, 1, 2) == FARLOG_IO);
	other = pair_open_to_write("plain", &drain_grant);
	memset(other->copy + LINE, 3, 4096);
	*pair_key(other) = *pair_key(link);
	CHECK(pair_persist(other, &span, 1, 1) == FARLOG_IO && pair_ring_bytes("plain")[LINE] == 1);
	pair_close_link(other);
	pair_close_link(link);
	key_of_another_is_refused("theirs", "key of another tenant, without windows");
	key_of_the_ring_opens_nothing("key of the ring, without windows");
	listener->hosts[0].device.has_window = true;
}

/* A connection that is cut between appends or in the middle of one costs time, not records. */
static void connection_is_cut(const char *options)
{
	static uint32_t epoch = 200;
	static uint8_t payload[4096];
	struct farlog_grant granted = pair_grant("orders", FARLOG_GRANT_WRITER, ++epoch);
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE,
		.epoch = granted.epoch,
		.grant_token = granted.token,
		.counters_dir = "",
		.deadline_ns = WAIT_NS};
	struct farlog_reader_config drain_config = {.is_drain = 1};
	struct farlog_position position;
	farlog_writer *writer = NULL;
	farlog_reader *reader = NULL;
	uint64_t admitted_before = pair_counters("orders").admitted_count;
	uint64_t count;
	char near[256];
	char far[256];

	if (strstr(options, "rdma-flush") != NULL && !pair_has_flush)
		return;
	pair_condition = "connection that is cut";
	pair_region_uri("orders", near, sizeof(near));
	pair_far_uri("orders", options, far, sizeof(far));
	CHECK_OK(farlog_writer_open(far, &config, &writer, &error));
	CHECK_OK(farlog_reader_open(near, &drain_config, &reader, &error));
	(void)pair_drain(reader);
	for (uint64_t seq = 0; seq < 200; seq++) {
		struct farlog_entry entry = {.data = payload, .len = sizeof(payload)};

		CHECK(farlog_submit(writer, &entry, &position) == FARLOG_OK);
		if (seq % 20 == 10) {
			struct target_ring *ring;

			pthread_mutex_lock(&pair_target->mutex);
			for (ring = pair_target->rings; strcmp(ring->name, "orders") != 0;)
				ring = ring->next;
			if (ring->conns != NULL && ring->conns->pin_count == 0)
				CHECK(target_disconnect(pair_target, ring->conns, NULL) == FARLOG_OK);
			pthread_mutex_unlock(&pair_target->mutex);
		}
		CHECK(farlog_wait(writer, position.end_lsn, WAIT_NS) == FARLOG_OK);
	}
	count = pair_drain(reader);
	CHECK(count == 200);
	CHECK(pair_counters("orders").admitted_count == admitted_before + 11); /* once, and after each cut */
	CHECK(farlog_writer_close(writer) == FARLOG_OK);
	farlog_reader_close(reader);
}

/* A host that is gone says nothing: a queue pair in error is as silent. The target asks, and frees the role. */
static void silent_client_loses_its_role(void)
{
	struct farlog_grant granted = pair_grant("costs", FARLOG_GRANT_DRAIN, 0);
	struct far_link *link = pair_open_link("costs", &granted, FARLOG_FLUSH_RDMA_READ);
	uint64_t lost_before = pair_counters("costs").lost_count;
	uint64_t until_ns = clock_after_ns(WAIT_NS);

	pair_condition = "silent client";
	CHECK(pair_counters("costs").drain_count == 1);
	may_fail(verbs_queue_stop(&((struct verbs_link *)link)->queue));
	while (pair_counters("costs").drain_count != 0 && clock_monotonic_ns() < until_ns)
		usleep(1000);
	CHECK(pair_counters("costs").drain_count == 0);
	CHECK(pair_counters("costs").lost_count == lost_before + 1);
	CHECK(pair_counters("costs").denied_count == 0);
	pair_close_link(link);
}

/* A client that is killed says no goodbye; its kernel does, and its role is free for the next. */
static void killed_client_leaves(void)
{
	struct farlog_grant granted = pair_grant("orders", FARLOG_GRANT_WRITER, 500);
	uint64_t until_ns = clock_after_ns(WAIT_NS);
	char token[2 * FARLOG_TOKEN_LEN + 1];
	char uri[256];
	pid_t child;

	pair_condition = "killed client";
	pair_token_text(&granted, token);
	pair_far_uri("orders", "", uri, sizeof(uri));
	fflush(stdout);
	child = fork();
	if (child == 0) {
		execl("/proc/self/exe", "verbs_test", "append", uri, token, (char *)NULL);
		_exit(127);
	}
	while (pair_counters("orders").writer_count == 0 && clock_monotonic_ns() < until_ns)
		usleep(1000);
	usleep(50000);
	CHECK(pair_counters("orders").writer_count == 1);
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	while (pair_counters("orders").writer_count != 0 && clock_monotonic_ns() < until_ns)
		usleep(1000);
	CHECK(pair_counters("orders").writer_count == 0);
	granted = pair_grant("orders", FARLOG_GRANT_WRITER, 501);
	pair_close_link(pair_open_to_write("orders", &granted));
}

/* append_until_killed -- the child of killed_client_leaves. */
int append_until_killed(const char *uri, const char *text)
{
	uint8_t token[FARLOG_TOKEN_LEN];
	struct farlog_writer_config config = {
		.level = FARLOG_LEVEL_VISIBLE, .epoch = 500, .grant_token = token, .counters_dir = ""};
	struct farlog_entry entry = {.data = "x", .len = 1};
	struct farlog_position position;
	farlog_writer *writer;

	pair_parse_token(text, token);
	if (farlog_writer_open(uri, &config, &writer, NULL) != FARLOG_OK)
		return 1;
	for (;;)
		may_fail(farlog_try_append(writer, &entry, &position));
}

void test_refusals(void)
{
	hellos_are_refused();
	zombie_is_refused_by_the_device();
	key_of_another_is_refused("theirs", "key of another tenant");
	key_of_another_is_refused("sister", "key of the same tenant's other ring");
	header_is_out_of_reach();
	left_is_refused();
	writers_in_turn("");
	writers_in_turn("wait=block");
	page_tells_of_a_tenants_rings();
	reader_cannot_write();
	key_of_the_ring_opens_nothing("key of the ring");
	late_bind_costs_one_window();
	key_is_a_registration_without_windows();
	connection_is_cut("flush=rdma-flush");
	connection_is_cut("flush=rdma-read&wait=block");
	connection_is_cut("flush=target-cpu");
	silent_client_loses_its_role();
	killed_client_leaves();
}
