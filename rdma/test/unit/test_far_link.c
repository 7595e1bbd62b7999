/* test_far_link.c -- drains and readers whose connection breaks, or whose ring goes on, just between two of their
 * operations. The target is in this process, over libfabric on the loopback; a link of ours stands before the real one
 * and lets the test act where it wants. */
#include <arpa/inet.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "far/region.h"
#include "ring/layout.h"
#include "ring/record.h"
#include "region/superblock.h"
#include "unit.h"

#define RING_LEN (LAYOUT_DATA_OFF + (64u << 10))
#define REQUEST_COUNT 200u
#define IN_TIME_NS 20000000000ull

static const uint8_t token[FARLOG_TOKEN_LEN] = "a reader's token";

/* What stands before the link, one at a time. */
static struct before {
	const struct far_link_ops *real;
	struct far_link_ops ops;
	struct bed *bed;
	unsigned reads_left; /* until the one before which `act` is called; 0: it has been */
	void (*act)(struct bed *bed, struct far_link *link);
	uint64_t read_len;   /* of all reads */
	unsigned lost_count; /* head slots that do not arrive whole */
	unsigned lost_len;   /* what arrives of each */
	bool is_unsafe;      /* a slot was stored to the place of the only whole head */
} before;

struct bed {
	const char *local_uri;
	farlog_target *target;
	farlog_writer *writer;
	farlog_reader *far;
	struct region *bytes; /* of the ring, as the target has them */
	bool is_drain;
	char uri[400];
};

static struct region *region_of(farlog_reader *reader)
{
	return *(struct region **)reader; /* its first member */
}

static void break_link(struct bed *bed, struct far_link *link)
{
	(void)bed;
	before.real->disconnect(link);
}

static int read_before(struct far_link *link, struct region_span span, uint64_t tag)
{
	bool is_broken = before.act == break_link && before.reads_left == 1;

	before.read_len += span.len;
	if (before.reads_left > 0 && --before.reads_left == 0)
		before.act(before.bed, link);
	return is_broken ? FARLOG_OK : before.real->read(link, span, tag); /* posted, and nothing comes of it */
}

/* is_whole -- of a head slot as the target has it. */
static bool is_whole(struct bed *bed, uint64_t off)
{
	struct superblock superblock;
	struct head_slot slot;

	assert_int_equal(superblock_load(bed->bytes, "", &superblock, NULL), FARLOG_OK);
	memcpy(&slot, bed->bytes->base + off, sizeof(slot));
	return slot.crc32c != 0 &&
		crc32c_update((uint32_t)superblock.salt, &slot, offsetof(struct head_slot, crc32c)) == slot.crc32c;
}

/* persist_before -- a connection that breaks while a head slot is on its way; and whatever is stored, another whole
 * head must lie beside it. */
static int persist_before(struct far_link *link, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	uint64_t off = spans[0].off;

	if (off == LAYOUT_HEAD_A_OFF || off == LAYOUT_HEAD_B_OFF)
		before.is_unsafe |= !is_whole(before.bed, LAYOUT_HEAD_A_OFF + LAYOUT_HEAD_B_OFF - off);
	if (before.lost_count == 0)
		return before.real->persist(link, spans, span_count, tag);
	before.lost_count--;
	memcpy((uint8_t *)(uintptr_t)before.bed->bytes->base + off, link->copy + off, before.lost_len);
	return FARLOG_IO;
}

static void stand_before(struct bed *bed)
{
	struct far_link *link = far_of(region_of(bed->far))->link;

	before = (struct before){.real = link->ops, .ops = *link->ops, .bed = bed};
	before.ops.read = read_before;
	before.ops.persist = persist_before;
	link->ops = &before.ops;
}

static int open_far(struct bed *bed, farlog_reader **reader)
{
	struct farlog_reader_config config = {.is_drain = bed->is_drain, .grant_token = token};
	struct farlog_error error = {0};
	int result = farlog_reader_open(bed->uri, &config, reader, &error);

	if (result != FARLOG_OK)
		printf("far link: %s\n", error.text);
	return result;
}

/* make_bed -- a ring with a few records, its local writer, and a far drain or reader of it. False: there is no
 * libfabric on this machine. */
static bool make_bed(struct bed *bed, bool is_drain)
{
	struct farlog_grant grant = {.role = is_drain ? FARLOG_GRANT_DRAIN : FARLOG_GRANT_READER};
	struct farlog_error error = {0};
	struct farlog_position position;
	int result;

	*bed = (struct bed){.is_drain = is_drain};
	result = farlog_target_open("ofi:tcp://127.0.0.1:0", &bed->target, &error);
	if (result == FARLOG_UNSUPPORTED)
		return false;
	assert_int_equal(result, FARLOG_OK);
	bed->local_uri = unit_tmpfs_uri("link");
	unit_format(bed->local_uri, RING_LEN, 0);
	memcpy(grant.token, token, sizeof(token));
	assert_int_equal(farlog_target_serve(bed->target, "ring", bed->local_uri, NULL, &error), FARLOG_OK);
	assert_int_equal(farlog_target_grant(bed->target, "ring", &grant, &error), FARLOG_OK);
	snprintf(bed->uri, sizeof(bed->uri), "%s/ring", farlog_target_uri(bed->target));
	bed->writer = unit_open(bed->local_uri);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(unit_append(bed->writer, 1000, (uint8_t)i, &position), FARLOG_OK);
	assert_int_equal(
		region_open(bed->local_uri, &(struct region_options){.access = REGION_WRITE}, &bed->bytes, NULL), FARLOG_OK);
	assert_int_equal(open_far(bed, &bed->far), FARLOG_OK);
	stand_before(bed);
	return true;
}

static void free_bed(struct bed *bed)
{
	farlog_reader_close(bed->far);
	farlog_writer_close(bed->writer);
	farlog_target_close(bed->target);
	bed->bytes->ops->close(bed->bytes);
	remove(unit_path(bed->local_uri));
}

/* hint -- what a ring whose records survive a power cut says of itself; memory's writer does not say it. */
static void hint(struct bed *bed, uint64_t tail_lsn, uint64_t durable_lsn)
{
	bed->bytes->ops->data.store_word(bed->bytes, LAYOUT_TAIL_HINT_OFF, tail_lsn);
	bed->bytes->ops->data.store_word(bed->bytes, LAYOUT_DURABLE_HINT_OFF, durable_lsn);
}

static uint8_t buffer[RING_LEN];

/* read_when_back -- IO passes; what came in the end. */
static int read_when_back(farlog_reader *reader, struct farlog_batch *batch)
{
	uint64_t until_ns = clock_after_ns(IN_TIME_NS);
	int result;

	do
		result = farlog_reader_read(reader, buffer, sizeof(buffer), batch);
	while (result == FARLOG_IO && clock_monotonic_ns() < until_ns);
	return result;
}

/* A connection that breaks at any of the reads of a pass is no damage, and afterwards all is there. Also where the
 * header was fetched between the writer's stores to its two hints: what is durable is above what is the tail. */
static void far_link__broken_between_reads(void **state)
{
	(void)state;
	for (unsigned is_torn = 0; is_torn < 2; is_torn++) {
		for (unsigned nth = 1; nth < 50; nth++) {
			struct farlog_cursors cursors;
			struct farlog_batch batch;
			struct bed bed;
			bool was_broken;
			int result;

			if (!make_bed(&bed, true))
				skip();
			farlog_writer_cursors(bed.writer, &cursors);
			hint(&bed, is_torn ? 0 : cursors.appended_lsn, cursors.durable_lsn);
			before.act = break_link;
			before.reads_left = nth;
			result = farlog_reader_read(bed.far, buffer, sizeof(buffer), &batch);
			was_broken = before.reads_left == 0;
			if (was_broken && result != FARLOG_IO && result != FARLOG_OK)
				fail_msg(
					"read %u of a pass, hints %s: %s", nth, is_torn ? "torn" : "whole", farlog_result_name(result));
			if (result == FARLOG_IO)
				result = read_when_back(bed.far, &batch);
			assert_int_equal(result, FARLOG_OK);
			free_bed(&bed);
			if (!was_broken) {
				assert_true(nth > 1);
				break;
			}
		}
	}
}

/* lap -- a local drain takes all, and the writer writes over it. */
static void lap(struct bed *bed, struct far_link *link)
{
	farlog_reader *drain = unit_read(bed->local_uri, FARLOG_START_HEAD, true);
	struct farlog_position position;
	struct farlog_batch batch;
	struct farlog_cursors cursors;

	(void)link;
	for (unsigned turn = 0; turn < 5; turn++) {
		assert_int_equal(farlog_reader_read(drain, buffer + RING_LEN / 2, RING_LEN / 2, &batch), FARLOG_OK);
		assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
		for (unsigned i = 0; i < 20; i++)
			assert_int_equal(unit_append(bed->writer, 1000, 7, &position), FARLOG_OK);
	}
	farlog_reader_close(drain);
	farlog_writer_cursors(bed->writer, &cursors);
	hint(bed, cursors.appended_lsn, cursors.durable_lsn);
}

/* A reader that was overtaken between header and records is told so. */
static void far_link__overtaken_between_reads(void **state)
{
	struct farlog_cursors cursors;
	struct farlog_batch batch;
	struct bed bed;

	(void)state;
	if (!make_bed(&bed, false))
		skip();
	farlog_writer_cursors(bed.writer, &cursors);
	hint(&bed, cursors.appended_lsn, cursors.durable_lsn);
	before.act = lap;
	before.reads_left = 2;
	assert_int_equal(farlog_reader_read(bed.far, buffer, RING_LEN / 2, &batch), FARLOG_OVERRUN);
	free_bed(&bed);
}

/* A byte that is really wrong still is, however far away. */
static void far_link__damage_is_told(void **state)
{
	struct farlog_cursors cursors;
	struct farlog_batch batch;
	struct bed bed;

	(void)state;
	if (!make_bed(&bed, true))
		skip();
	farlog_writer_cursors(bed.writer, &cursors);
	hint(&bed, cursors.appended_lsn, cursors.durable_lsn);
	bed.bytes->ops->data.store_word(bed.bytes, LAYOUT_DATA_OFF + 80, 77); /* in the EPOCH record */
	assert_int_equal(farlog_reader_read(bed.far, buffer, sizeof(buffer), &batch), FARLOG_CORRUPT);
	assert_int_equal(batch.first_lsn, 0);
	free_bed(&bed);
}

/* release_in_pieces -- a release that does not arrive whole, some times, and then one of what was read since. */
static void release_in_pieces(unsigned lost_len, unsigned lost_count)
{
	static uint8_t small[4096];
	struct farlog_batch first;
	struct farlog_batch next;
	struct head_slot head;
	struct superblock superblock;
	struct bed bed;
	uint64_t until_ns;
	int result;

	if (!make_bed(&bed, true))
		skip();
	assert_int_equal(farlog_reader_read(bed.far, small, sizeof(small), &first), FARLOG_OK);
	assert_int_equal(farlog_reader_release(bed.far, first.next_lsn, first.next_seq, first.last_epoch), FARLOG_OK);
	assert_int_equal(farlog_reader_read(bed.far, small, sizeof(small), &first), FARLOG_OK);
	assert_int_equal(farlog_reader_read(bed.far, small, sizeof(small), &next), FARLOG_OK);
	region_of(bed.far)->persist_timeout_ns = 1; /* less than a connection takes to come back */
	before.lost_len = lost_len;
	before.lost_count = lost_count;
	assert_int_equal(farlog_reader_release(bed.far, first.next_lsn, first.next_seq, first.last_epoch), FARLOG_IO);
	assert_true(region_load_word(bed.bytes, LAYOUT_CREDIT_OFF) < first.next_lsn);
	region_of(bed.far)->persist_timeout_ns = 50000000;
	until_ns = clock_after_ns(IN_TIME_NS);
	do
		result = farlog_reader_release(bed.far, next.next_lsn, next.next_seq, next.last_epoch);
	while (result == FARLOG_IO && clock_monotonic_ns() < until_ns);
	assert_int_equal(result, FARLOG_OK);
	/* A slot that landed whole is flushed where it lies, and not sent again. */
	assert_true(before.lost_count == 0 || lost_len >= offsetof(struct head_slot, crc32c) + sizeof(head.crc32c));
	assert_false(before.is_unsafe);
	assert_int_equal(superblock_load(bed.bytes, "", &superblock, NULL), FARLOG_OK);
	assert_true(head_load(bed.bytes, &superblock, &head));
	assert_int_equal(head.head_lsn, next.next_lsn);
	/* Going back is still refused. */
	assert_int_equal(farlog_reader_release(bed.far, first.next_lsn, first.next_seq, first.last_epoch), FARLOG_INVALID);
	free_bed(&bed);
}

/* A release that failed has left its slot torn, or whole, or not at all: the next one does not touch the other slot
 * before that is mended. */
static void far_link__release_that_failed(void **state)
{
	(void)state;
	for (unsigned lost_count = 1; lost_count < 4; lost_count++)
		for (unsigned lost_len = 0; lost_len <= sizeof(struct head_slot); lost_len += sizeof(struct head_slot) / 4)
			release_in_pieces(lost_len, lost_count);
}

/* A connection that comes as its target is closed, at whatever step of it, leaves nothing behind: the leak checker
 * looks. */
static void far_link__connect_while_listener_closes(void **state)
{
	(void)state;
	for (unsigned i = 0; i < REQUEST_COUNT; i++) {
		struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		struct farlog_error error = {0};
		farlog_target *target;
		int result = farlog_target_open("ofi:tcp://127.0.0.1:0", &target, &error);
		int socket_fd;

		if (result == FARLOG_UNSUPPORTED)
			skip();
		assert_int_equal(result, FARLOG_OK);
		address.sin_port = htons((uint16_t)atoi(strrchr(farlog_target_uri(target), ':') + 1));
		socket_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_true(socket_fd >= 0);
		assert_int_equal(connect(socket_fd, (struct sockaddr *)&address, sizeof(address)), 0);
		nanosleep(&(struct timespec){0, (long)unit_below(2000000)}, NULL);
		close(socket_fd);
		farlog_target_close(target);
	}
}

/* A hint that covers what nobody wrote costs one long READ, and not one at each look. */
static void far_link__forged_hint_is_doubted(void **state)
{
	struct farlog_batch batch;
	struct bed bed;

	(void)state;
	if (!make_bed(&bed, true))
		skip();
	assert_int_equal(farlog_reader_read(bed.far, buffer, sizeof(buffer), &batch), FARLOG_OK);
	hint(&bed, batch.next_lsn + (40u << 10), 0);
	before.read_len = 0;
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(farlog_reader_read(bed.far, buffer, sizeof(buffer), &batch), FARLOG_NOT_YET);
	assert_in_range(before.read_len, 1, (40u << 10) + 20 * (4096 + LAYOUT_DATA_OFF));
	free_bed(&bed);
}

/* drain_to -- release what ends at or below this place. */
static void drain_to(const char *uri, uint64_t lsn)
{
	farlog_reader *drain = unit_read(uri, FARLOG_START_HEAD, true);
	struct farlog_batch batch;

	assert_int_equal(farlog_reader_read(drain, buffer, lsn, &batch), FARLOG_OK);
	assert_in_range(batch.next_lsn, lsn - 2048, lsn);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	farlog_reader_close(drain);
}

/* A far writer tells what became of a record of the epoch before, also when it has written over the place where the log
 * began when it opened. */
static void far_link__resolves_what_it_inherited(void **state)
{
	const uint64_t third_len = (RING_LEN - LAYOUT_DATA_OFF) / 3;
	struct farlog_grant grant = {.role = FARLOG_GRANT_WRITER, .epoch = 2};
	struct farlog_writer_config config = {
		.level = FARLOG_LEVEL_VISIBLE, .epoch = 2, .grant_token = token, .counters_dir = ""};
	struct farlog_position positions[3] = {{0}}; /* early, in the middle, the last of the epoch before */
	struct farlog_position position = {0};
	struct farlog_error error = {0};
	farlog_writer *writer;
	struct bed bed = {0};

	(void)state;
	if (farlog_target_open("ofi:tcp://127.0.0.1:0", &bed.target, &error) == FARLOG_UNSUPPORTED)
		skip();
	bed.local_uri = unit_tmpfs_uri("inherited");
	unit_format(bed.local_uri, RING_LEN, 0);
	writer = unit_open(bed.local_uri);
	while (position.end_lsn < 2 * third_len) {
		assert_int_equal(unit_append(writer, 900, 1, &position), FARLOG_OK);
		positions[2] = position;
		positions[position.end_lsn < third_len ? 0 : 1] = position;
	}
	farlog_writer_close(writer);
	memcpy(grant.token, token, sizeof(token));
	assert_int_equal(farlog_target_serve(bed.target, "ring", bed.local_uri, NULL, &error), FARLOG_OK);
	assert_int_equal(farlog_target_grant(bed.target, "ring", &grant, &error), FARLOG_OK);
	snprintf(bed.uri, sizeof(bed.uri), "%s/ring", farlog_target_uri(bed.target));
	assert_int_equal(farlog_writer_open(bed.uri, &config, &writer, &error), FARLOG_OK);
	assert_int_equal(farlog_resolve(writer, positions[0].lsn, IN_TIME_NS, &position), FARLOG_OK);
	drain_to(bed.local_uri, third_len);
	do
		assert_int_equal(unit_append(writer, 900, 2, &position), FARLOG_OK);
	while (position.end_lsn < RING_LEN - LAYOUT_DATA_OFF + third_len / 2);
	assert_int_equal(farlog_resolve(writer, positions[2].lsn, IN_TIME_NS, &position), FARLOG_OK);
	assert_int_equal(position.epoch, 1);
	/* drained: the ring no longer knows */
	assert_int_equal(farlog_resolve(writer, positions[0].lsn, IN_TIME_NS, &position), FARLOG_UNKNOWN);
	farlog_writer_close(writer);
	farlog_target_close(bed.target);
	remove(unit_path(bed.local_uri));
}

#define DOZE_NS 20000000

static void *close_reader(void *reader)
{
	farlog_reader_close(reader);
	return NULL;
}

static uint64_t doze_ns; /* that a thread with nothing to do lets pass between its look at the state and its sleep */

long __real_syscall(long number, ...);
long __wrap_syscall(
	long number, uint32_t *word, long operation, long value, const struct timespec *timeout, void *other, long last);

/* system calls without a function of their own: futex(2) alone is played with */
long __wrap_syscall(
	long number, uint32_t *word, long operation, long value, const struct timespec *timeout, void *other, long last)
{
	uint64_t own_ns = atomic_load_relaxed(&doze_ns);

	if (own_ns != 0 && number == SYS_futex && operation == FUTEX_WAIT_PRIVATE && timeout == NULL)
		nanosleep(&(struct timespec){0, (long)own_ns}, NULL);
	return __real_syscall(number, word, operation, value, timeout, other, last);
}

/* The thread that connects again has just found that there is nothing to do when the region is closed: it must not
 * sleep over that. */
static void far_link__closed_before_the_connector_sleeps(void **state)
{
	struct bed bed;

	(void)state;
	if (!make_bed(&bed, false))
		skip();
	for (unsigned i = 0; i < 3; i++) {
		farlog_reader *reader;
		struct timespec until;
		pthread_t closer;

		atomic_store_relaxed(&doze_ns, DOZE_NS);
		assert_int_equal(open_far(&bed, &reader), FARLOG_OK);
		far_wake_connector(far_of(region_of(reader)));
		nanosleep(&(struct timespec){0, DOZE_NS / 2 + (long)i * DOZE_NS / 4}, NULL);
		assert_int_equal(pthread_create(&closer, NULL, close_reader, reader), 0);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += 20;
		if (pthread_timedjoin_np(closer, NULL, &until) != 0)
			fail_msg("the region does not close");
	}
	atomic_store_relaxed(&doze_ns, 0);
	free_bed(&bed);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(far_link__broken_between_reads),
	cmocka_unit_test(far_link__overtaken_between_reads),
	cmocka_unit_test(far_link__damage_is_told),
	cmocka_unit_test(far_link__release_that_failed),
	cmocka_unit_test(far_link__connect_while_listener_closes),
	cmocka_unit_test(far_link__forged_hint_is_doubted),
	cmocka_unit_test(far_link__resolves_what_it_inherited),
	cmocka_unit_test(far_link__closed_before_the_connector_sleeps),
};
RUN_GROUP(far_link, tests)
