/* verbs_test.c -- what verbs regions promise beyond what every far region does: how many work requests, doorbells and
 * completions an append costs, that the device itself refuses a writer whose key has ended and a key that is another's,
 * and texts that say what to do.
 *
 * usage: verbs_test ADDRESS     of an RDMA device here (SoftRoCE will do); exit 77 when there is none
 *
 * Rings are on tmpfs, or on the DAX device of FARLOG_TEST_DEVDAX, where appends must reach the level persistent. What
 * lies there is destroyed.
 *
 * Client and target are in one process: what is between them is the device. */
#include <errno.h>
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "wire/verbs_address.h"
#include "verbs_counts.h"
#include "verbs_faults.h"
#include "verbs_pair.h"

static const char *address = "";

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

static void append_by(const char *options)
{
	static uint8_t payload[65536];
	static uint32_t epoch = 1;
	struct farlog_grant granted = pair_grant("orders", FARLOG_GRANT_WRITER, ++epoch);
	struct farlog_writer_config config = {.level = pair_level,
		.epoch = granted.epoch,
		.grant_token = granted.token,
		.counters_dir = "",
		.deadline_ns = WAIT_NS};
	struct farlog_reader_config drain_config = {.is_drain = 1};
	struct farlog_position position;
	farlog_writer *writer = NULL;
	farlog_reader *reader = NULL;
	uint64_t count = 0;
	char near[256];
	char far[256];

	pair_region_uri("orders", near, sizeof(near));
	pair_far_uri("orders", options, far, sizeof(far));
	pair_condition = far;
	if (strstr(options, "rdma-flush") != NULL && !pair_has_flush) {
		printf("verbs: %s: skipped: no FLUSH here\n", far);
		return;
	}
	CHECK_OK(farlog_writer_open(far, &config, &writer, &error));
	CHECK_OK(farlog_reader_open(near, &drain_config, &reader, &error));
	if (writer == NULL || reader == NULL)
		return;
	printf("verbs: %s: level %s by %s (%s)\n", far, farlog_level_name((int)farlog_writer_contract(writer)->level),
		farlog_writer_contract(writer)->flush_name, farlog_writer_contract(writer)->probe);
	count += pair_drain(reader);
	/* More than the ring holds: it wraps, and the drain's credit comes back by the target. */
	for (uint64_t seq = 0; seq < 300; seq++) {
		struct farlog_entry entry = {.data = payload, .len = len_of(seq)};

		fill(payload, entry.len, seq);
		CHECK(farlog_append(writer, &entry, 0, &position) == FARLOG_OK);
		if (seq % 16 == 15)
			count += pair_drain(reader);
	}
	CHECK(position.level == pair_level);
	count += pair_drain(reader);
	CHECK(count == 301); /* with the EPOCH record */
	CHECK(farlog_writer_close(writer) == FARLOG_OK);
	farlog_reader_close(reader);
}

/* ---------------------------------------------------------------- credit by the flush */

static struct target_ring *ring_of(const char *name)
{
	struct target_ring *ring = pair_target->rings;

	while (strcmp(ring->name, name) != 0)
		ring = ring->next;
	return ring;
}

/* append_while_held -- three times what the ring holds, drained after each append, by a target that writes no credit.
 * How many records came in before the writer found the ring full; all: *is_credited tells whether its head was the
 * drain's after each. */
static unsigned append_while_held(const char *options, unsigned count, bool *is_credited)
{
	static uint32_t epoch = 0;
	static const uint8_t payload[32768];
	struct farlog_grant granted = pair_grant("credits", FARLOG_GRANT_WRITER, ++epoch);
	struct farlog_writer_config config = {
		.level = pair_level, .epoch = epoch, .grant_token = granted.token, .counters_dir = "", .deadline_ns = WAIT_NS};
	struct farlog_reader_config drain_config = {.is_drain = 1};
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload)};
	struct farlog_position position;
	struct farlog_cursors cursors;
	farlog_writer *writer = NULL;
	farlog_reader *reader = NULL;
	unsigned done = 0;
	char near[256];
	char far[256];

	pair_region_uri("credits", near, sizeof(near));
	pair_far_uri("credits", options, far, sizeof(far));
	CHECK_OK(farlog_writer_open(far, &config, &writer, &error));
	CHECK_OK(farlog_reader_open(near, &drain_config, &reader, &error));
	if (writer == NULL || reader == NULL)
		return 0;
	printf("verbs: %s: %s\n", pair_condition, farlog_writer_contract(writer)->probe);
	CHECK((strstr(farlog_writer_contract(writer)->probe, "any READ flushes") != NULL) == *is_credited);
	for (; done < count; done++) {
		uint64_t credit_lsn;

		(void)pair_drain(reader);
		memcpy(&credit_lsn, pair_ring_bytes("credits") + LAYOUT_CREDIT_OFF, sizeof(credit_lsn));
		if (farlog_try_append(writer, &entry, &position) != FARLOG_OK)
			break;
		CHECK(farlog_wait(writer, position.end_lsn, WAIT_NS) == FARLOG_OK);
		farlog_writer_cursors(writer, &cursors);
		*is_credited &= cursors.head_lsn == credit_lsn;
	}
	CHECK(farlog_writer_close(writer) == FARLOG_OK);
	farlog_reader_close(reader);
	return done;
}

/* Where any READ flushes, the READ is of the credit: with the target's own WRITEs of it held back the writer goes round
 * the ring all the same, and without the attestation it finds it full. */
static void credit_comes_with_the_flush(void)
{
	const unsigned laps = 3 * SIZE / 32768;
	bool is_credited = true;

	atomic_store_relaxed(&verbs_credits_held, 1);
	pair_condition = "credit held, any READ flushes";
	ring_of("credits")->is_any_read_flush = true;
	CHECK(append_while_held("flush=rdma-read", laps, &is_credited) == laps && is_credited);
	CHECK(append_while_held("flush=rdma-read&wait=block", laps, &is_credited) == laps && is_credited);
	pair_condition = "credit held, the bytes written last are read";
	ring_of("credits")->is_any_read_flush = is_credited = false;
	CHECK(append_while_held("flush=rdma-read", laps, &is_credited) < laps / 2);
	atomic_store_relaxed(&verbs_credits_held, 0);
}

/* ---------------------------------------------------------------- what an append costs */

/* cost -- of one persist. */
static struct verbs_counts cost(struct far_link *link, const struct region_span *spans, unsigned count, uint64_t tag)
{
	struct verbs_counts before = *verbs_counts_of(&verbs_link_of(link)->queue);
	struct verbs_counts after;

	CHECK(pair_persist(link, spans, count, tag) == FARLOG_OK);
	after = *verbs_counts_of(&verbs_link_of(link)->queue);
	return (struct verbs_counts){after.write_count - before.write_count, after.inline_count - before.inline_count,
		after.read_count - before.read_count, after.flush_count - before.flush_count,
		after.send_count - before.send_count, after.signalled_count - before.signalled_count,
		after.doorbell_count - before.doorbell_count, after.completion_count - before.completion_count,
		after.event_count - before.event_count};
}

static void append_costs_one_doorbell(void)
{
	const struct region_span small = {LINE, 192};
	const struct region_span large = {LINE + 4096, 8192};
	const struct region_span wrapped[] = {{SIZE - 4096, 4096}, {LINE, 4096}};
	static const enum farlog_flush_method methods[] = {
		FARLOG_FLUSH_RDMA_FLUSH, FARLOG_FLUSH_RDMA_READ, FARLOG_FLUSH_TARGET_CPU};

	for (unsigned i = 0; i < 3; i++) {
		struct farlog_grant granted = pair_grant("costs", FARLOG_GRANT_WRITER, i + 1);
		struct far_link *link;
		struct verbs_counts one;
		bool is_flush = methods[i] == FARLOG_FLUSH_RDMA_FLUSH;
		bool is_read = methods[i] == FARLOG_FLUSH_RDMA_READ;
		bool is_asked = methods[i] == FARLOG_FLUSH_TARGET_CPU;

		pair_condition = "cost of a persist";
		link = pair_open_link("costs", &granted, methods[i]);
		if (link->method == FARLOG_FLUSH_NONE && is_flush) {
			printf("verbs: cost of FLUSH: skipped: libibverbs here is older than 45, or the device has none\n");
			pair_has_flush = false;
			pair_close_link(link);
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
		CHECK(memcmp(pair_ring_bytes("costs") + LINE, link->copy + LINE, 192) == 0);
		CHECK(memcmp(pair_ring_bytes("costs") + large.off, link->copy + large.off, large.len) == 0);
		CHECK(memcmp(pair_ring_bytes("costs") + wrapped[0].off, link->copy + wrapped[0].off, wrapped[0].len) == 0);
		pair_close_link(link);
	}
}

/* A persist of more pieces than the send queue has slots goes on as slots come back, and so do words that nobody waits
 * for. */
static void more_than_the_queue_holds(void)
{
	const struct region_span all = {LINE, SIZE - LINE};
	const struct region_span line = {LINE, 64};
	struct farlog_grant granted;
	struct far_link *link;
	struct verbs_counts before;

	pair_condition = "more than the send queue holds";
	granted = pair_grant("costs", FARLOG_GRANT_WRITER, 10);
	link = pair_open_to_write("costs", &granted);
	((struct verbs_link *)link)->device.message_len_max = 4096; /* 512 pieces; the queue has 256 slots */
	memset(link->copy + LINE, 0x5A, SIZE - LINE);
	CHECK(pair_persist(link, &all, 1, 1) == FARLOG_OK);
	CHECK(memcmp(pair_ring_bytes("costs") + LINE, link->copy + LINE, SIZE - LINE) == 0);
	memset(link->copy + LINE, 0, SIZE - LINE);
	CHECK(link->ops->read(link, all, 2) == FARLOG_OK && pair_await(link, 2) == FARLOG_OK);
	CHECK(link->copy[LINE] == 0x5A && memcmp(link->copy + LINE, link->copy + LINE + 1, SIZE - LINE - 1) == 0);
	before = *verbs_counts_of(&verbs_link_of(link)->queue);
	for (uint64_t i = 0; i < 5000; i++) {
		*(uint64_t *)(link->copy + LAYOUT_TAIL_HINT_OFF) = i;
		CHECK(link->ops->write(link, LAYOUT_TAIL_HINT_OFF, 8) == FARLOG_OK);
		if (i % 1000 == 999)
			may_fail(link->ops->poll(link));
	}
	CHECK(verbs_counts_of(&verbs_link_of(link)->queue)->signalled_count - before.signalled_count <= 5000 / 64);
	CHECK(pair_persist(link, &line, 1, 3) == FARLOG_OK);
	CHECK(*(const uint64_t *)(pair_ring_bytes("costs") + LAYOUT_TAIL_HINT_OFF) == 4999);
	pair_close_link(link);
}

/* ---------------------------------------------------------------- texts */

static void expect_text(const char *uri, const uint8_t *token, int result, const char *part)
{
	struct farlog_writer_config config = {
		.level = FARLOG_LEVEL_VISIBLE, .epoch = 1000, .grant_token = token, .counters_dir = ""};
	struct farlog_error error = {0};
	farlog_writer *writer = NULL;
	int got = farlog_writer_open(uri, &config, &writer, &error);

	pair_condition = uri;
	printf("verbs: %s: %s\n", farlog_result_name(got), error.text);
	CHECK(got == result);
	CHECK(strstr(error.text, part) != NULL);
}

static void texts_say_what_to_do(void)
{
	static const uint8_t unknown[FARLOG_TOKEN_LEN] = {1};
	char uri[256];

	pair_far_uri("orders", "", uri, sizeof(uri));
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

	pair_parse_token(text, token);
	if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setgid(65534) != 0 || setuid(65534) != 0)
		return EXIT_SKIP;
	expect_text(uri, token, FARLOG_NO_MEMORY, "RLIMIT_MEMLOCK is 65536 bytes");
	return pair_failed > 0;
}

static void memlock_is_named(void)
{
	struct farlog_grant granted = pair_grant("orders", FARLOG_GRANT_WRITER, 1000);
	char token[2 * FARLOG_TOKEN_LEN + 1];
	char uri[256];
	int status = -1;
	pid_t child;

	pair_condition = "memlock";
	pair_token_text(&granted, token);
	pair_far_uri("orders", "", uri, sizeof(uri));
	fflush(stdout);
	child = fork();
	if (child == 0) {
		execl("/proc/self/exe", "verbs_test", "memlock", uri, token, (char *)NULL);
		_exit(127);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---------------------------------------------------------------- */

/* The connection manager takes port and GID by the address that was dialled, which is IPv4 here; SoftRoCE has version 2
 * alone. */
static void way_is_that_of_the_address(void)
{
	static const uint8_t mapped[12] = {[10] = 0xFF, [11] = 0xFF};
	struct farlog_grant granted =
		pair_grant("mine", FARLOG_GRANT_WRITER, (uint32_t)pair_counters("mine").admitted_count + 1);
	struct verbs_link *link = (struct verbs_link *)pair_open_to_write("mine", &granted);
	const struct verbs_conn *conn = ((struct verbs_listener *)pair_target->listener)->conns;
	struct verbs_gid gid = {.root = VERBS_ADDRESS_ROOT,
		.device = link->device.name,
		.port = link->queue.port_num,
		.index = link->queue.gid_index};
	const union ibv_gid *source = &link->id->route.addr.addr.ibaddr.sgid;

	pair_condition = "port and GID";
	CHECK(link->queue.port_num == link->id->port_num && link->device.port_num == link->id->port_num);
	CHECK(conn->queue.port_num == conn->id->port_num && conn->queue.port_num > 0);
	CHECK(memcmp(source->raw, mapped, sizeof(mapped)) == 0);
	CHECK(verbs_gid_kind(&gid) == VERBS_GID_ROCE_V2 && link->link.caveat == NULL);
	pair_close_link(&link->link);
}

/* ---------------------------------------------------------------- memory by a dma-buf */

/* make_dmabuf -- of plain memory: -1, and why. */
static int make_dmabuf(uint64_t len, const char **why)
{
	struct udmabuf_create ask = {.flags = UDMABUF_FLAGS_CLOEXEC, .size = len};
	int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	int fd = -1;

	*why = "no /dev/udmabuf here";
	if (device < 0)
		return -1;
	ask.memfd = (uint32_t)memfd_create("verbs_test", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	if (ftruncate((int)ask.memfd, (off_t)len) == 0 && fcntl((int)ask.memfd, F_ADD_SEALS, F_SEAL_SHRINK) == 0)
		fd = ioctl(device, UDMABUF_CREATE, &ask);
	*why = strerror(errno);
	close((int)ask.memfd);
	close(device);
	return fd;
}

/* A device takes a dma-buf as it takes a mapping, or says that it does not: SoftRoCE does not, up to Linux 7.2. */
static void dmabuf_is_registered_or_refused(void)
{
	const struct verbs_device *host = &((struct verbs_listener *)pair_target->listener)->hosts[0].device;
	const uint64_t len = 1 << 16;
	struct ibv_pd *pd = host->lib->alloc_pd(host->context);
	char why[DMABUF_WHY_LEN] = "";
	struct ibv_mr *mr = NULL;
	const char *missing;
	int fd = make_dmabuf(len, &missing);
	int result;

	pair_condition = "dma-buf";
	CHECK(pd != NULL);
	if (fd < 0)
		printf("verbs: dma-buf: a real one: skipped: %s\n", missing);
	result = verbs_register_dmabuf(host, pd, fd, 0, len, 1 << 30, IBV_ACCESS_LOCAL_WRITE, &mr, why, sizeof(why));
	printf("verbs: dma-buf: %s\n", result == FARLOG_OK ? "registered" : why);
	CHECK(result == FARLOG_OK ? fd >= 0 && mr != NULL && why[0] == '\0' :
								mr == NULL && strstr(why, "takes no such dma-buf: ") != NULL);
	CHECK(fd < 0 || result == FARLOG_OK || strstr(why, strerror(EOPNOTSUPP)) != NULL);
	if (mr != NULL)
		host->lib->dereg_mr(mr);
	host->lib->dealloc_pd(pd);
	if (fd >= 0)
		close(fd);
}

/* The BAR of FARLOG_TEST_BAR, whose contents may go: its device has no vfio-pci. */
static void bar_is_refused_with_what_is_missing(void)
{
	struct farlog_ring_config config = {.record_len_max = 65536, .is_forced = 1, .stream_name = "bar"};
	const char *path = getenv("FARLOG_TEST_BAR");
	struct farlog_error refusal = {0};
	char uri[256];

	pair_condition = "BAR";
	if (path == NULL) {
		printf("verbs: BAR: skipped: FARLOG_TEST_BAR names none\n");
		return;
	}
	snprintf(uri, sizeof(uri), "mem:%s", path);
	CHECK_OK(farlog_ring_format(uri, &config, &error));
	CHECK(farlog_target_serve(pair_target, "bar", uri, NULL, &refusal) == FARLOG_UNSUPPORTED);
	printf("verbs: BAR: %s\n", refusal.text);
	CHECK(strstr(refusal.text, "has no pages that a device could write to, and as a dma-buf: ") != NULL);
	CHECK(
		strstr(refusal.text, "(expected vfio-pci)") != NULL && strstr(refusal.text, "(expected the IOMMU on)") != NULL);
}

static int start(void)
{
	struct farlog_error error = {0};
	char uri[128];
	int result;

	snprintf(uri, sizeof(uri), "verbs://%s:0", address);
	result = farlog_target_open(uri, &pair_target, &error);
	if (result == FARLOG_UNSUPPORTED) {
		printf("verbs: skipped: %s\n", error.text);
		return EXIT_SKIP;
	}
	if (result != FARLOG_OK)
		printf("verbs: %s\n", error.text);
	return result != FARLOG_OK || !pair_use_device() || mkdtemp(pair_directory) == NULL;
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"flush=rdma-flush", "flush=rdma-read", "flush=target-cpu", "",
		"flush=rdma-flush&wait=block", "flush=target-cpu&wait=block"};
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
	pair_condition = "start";
	code = start();
	if (code != 0)
		return code;
	verbs_faults_install();
	pair_serve("orders", NULL);
	pair_serve("costs", NULL);
	pair_serve("fenced", "a");
	pair_serve("mine", "a");
	pair_serve("sister", "a");
	pair_serve("theirs", "b");
	pair_serve("plain", "a");
	pair_serve("credits", "a");
	append_costs_one_doorbell();
	more_than_the_queue_holds();
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		append_by(options[i]);
	credit_comes_with_the_flush();
	way_is_that_of_the_address();
	test_way(address);
	test_refusals();
	test_unconfirmed();
	texts_say_what_to_do();
	memlock_is_named();
	dmabuf_is_registered_or_refused();
	bar_is_refused_with_what_is_missing();
	farlog_target_close(pair_target);
	snprintf(command, sizeof(command), "rm -r %s", pair_directory);
	if (system(command) != 0)
		pair_failed++;
	printf("verbs: %u passed, %u failed\n", pair_passed, pair_failed);
	return pair_failed > 0;
}
