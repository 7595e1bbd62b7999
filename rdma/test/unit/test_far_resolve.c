/* test_far_resolve.c -- a writer of a far ring asks what became of a record of the epoch before, and for that fetches
 * the header of the ring: with a drain that goes on meanwhile, and a READ that never comes back. The target is in this
 * process, over libfabric on the loopback. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "far/region.h"
#include "log/shared.h"
#include "log/writer.h"
#include "ring/layout.h"
#include "unit.h"

#define CAPACITY (64u << 10)
#define THIRD_LEN (CAPACITY / 3)
#define RING_LEN (LAYOUT_DATA_OFF + CAPACITY)
#define PATIENCE_FOR_TEST_NS 20000000000ull
#define SHORT_NS 20000000u

static const uint8_t token[FARLOG_TOKEN_LEN] = "a writer's token";

static struct bed {
	const char *local_uri;
	farlog_target *target;
	farlog_shared *shared;
	struct farlog_writer *writer; /* of `shared` */
	struct region_far *far;
	struct farlog_position early; /* of the epoch before: in the first third of the ring */
	struct farlog_position late;  /* its last one, behind two thirds */
	uint64_t drained_lsn;
} bed;

/* make_bed -- false: there is no libfabric. */
static bool make_bed(void)
{
	struct farlog_grant grant = {.role = FARLOG_GRANT_WRITER, .epoch = 2};
	struct farlog_writer_config config = {
		.level = FARLOG_LEVEL_VISIBLE, .epoch = 2, .grant_token = token, .counters_dir = ""};
	struct farlog_position position = {0};
	struct farlog_error error = {0};
	farlog_writer *former;
	char uri[400];

	bed = (struct bed){.local_uri = unit_tmpfs_uri("far-resolve")};
	if (farlog_target_open("ofi:tcp://127.0.0.1:0", &bed.target, &error) == FARLOG_UNSUPPORTED)
		return false;
	unit_format(bed.local_uri, RING_LEN, 0);
	former = unit_open(bed.local_uri);
	while (position.end_lsn < 2 * THIRD_LEN) {
		assert_int_equal(unit_append(former, 900, 1, &position), FARLOG_OK);
		bed.early = position.end_lsn < THIRD_LEN ? position : bed.early;
	}
	bed.late = position;
	farlog_writer_close(former);
	memcpy(grant.token, token, sizeof(token));
	assert_int_equal(farlog_target_serve(bed.target, "ring", bed.local_uri, NULL, &error), FARLOG_OK);
	assert_int_equal(farlog_target_grant(bed.target, "ring", &grant, &error), FARLOG_OK);
	snprintf(uri, sizeof(uri), "%s/ring", farlog_target_uri(bed.target));
	if (farlog_shared_open(uri, &config, &bed.shared, &error) != FARLOG_OK)
		fail_msg("open: %s", error.text);
	bed.writer = shared_writer(bed.shared);
	bed.far = far_of(bed.writer->region);
	return true;
}

static void free_bed(void)
{
	(void)farlog_shared_close(bed.shared);
	farlog_target_close(bed.target);
	remove(unit_path(bed.local_uri));
}

/* drain_to -- release what ends at or below this place. */
static void drain_to(uint64_t lsn)
{
	static uint8_t buffer[RING_LEN];
	farlog_reader *drain = unit_read(bed.local_uri, FARLOG_START_HEAD, true);
	struct farlog_batch batch;

	assert_int_equal(farlog_reader_read(drain, buffer, lsn - bed.drained_lsn, &batch), FARLOG_OK);
	assert_in_range(batch.next_lsn, lsn - 2048, lsn);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	bed.drained_lsn = batch.next_lsn;
	farlog_reader_close(drain);
}

/* A drain has gone on, and the writer knows that by the credit alone: its copy's head is where it was. */
static void resolve__head_lies_behind_the_credit(void **state)
{
	struct farlog_position position;

	(void)state;
	if (!make_bed())
		skip();
	drain_to(THIRD_LEN);
	while (bed.writer->ring.credit_lsn == 0)
		writer_read_credit(bed.writer, true);
	assert_int_equal(farlog_shared_resolve(bed.shared, bed.late.lsn, PATIENCE_FOR_TEST_NS, &position), FARLOG_OK);
	assert_int_equal(position.epoch, 1);
	assert_int_equal(position.seq, bed.late.seq);
	assert_int_equal(farlog_shared_resolve(bed.shared, bed.early.lsn, PATIENCE_FOR_TEST_NS, &position), FARLOG_UNKNOWN);
	free_bed();
}

/* fill_to -- records that nobody waits for. */
static void fill_to(uint64_t lsn)
{
	static const uint8_t payload[900];
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload)};
	struct farlog_position position = {0};

	while (position.end_lsn < lsn)
		assert_int_equal(shared_submit(bed.shared, &entry, 0, &position), FARLOG_OK);
}

/* go_round -- the ring has been written over up to where a third of it is drained, which the writer's copy of the
 * header does not tell: it has to be fetched. */
static void go_round(void)
{
	drain_to(THIRD_LEN);
	while (bed.writer->ring.credit_lsn == 0)
		writer_read_credit(bed.writer, true);
	fill_to(CAPACITY + THIRD_LEN / 2);
}

/* What stands before the link's READ. */
static struct before {
	struct far_link_ops ops;
	const struct far_link_ops *real;
	uint64_t read_count;
	struct region_span span; /* of the READ that is kept back */
	uint64_t tag;
} before;

static void stand_before(int (*read)(struct far_link *link, struct region_span span, uint64_t tag))
{
	before = (struct before){.ops = *bed.far->link->ops, .real = bed.far->link->ops};
	before.ops.read = read;
	bed.far->link->ops = &before.ops;
}

/* read_and_lap -- the first header that comes is as old as can be: before its reader looks at it, a drain has gone on,
 * and what lay behind that header's head has been written over. */
static int read_and_lap(struct far_link *link, struct region_span span, uint64_t tag)
{
	const uint64_t *credit = (const uint64_t *)(link->copy + LAYOUT_CREDIT_OFF);
	uint64_t credit_lsn;
	int result = before.real->read(link, span, tag);

	if (atomic_add(&before.read_count, 1) > 0 || result != FARLOG_OK)
		return result;
	while (link->done.read_tag != tag)
		assert_int_equal(before.real->poll(link), FARLOG_OK);
	credit_lsn = atomic_load_acquire(credit);
	drain_to(3 * THIRD_LEN / 2);
	while (atomic_load_acquire(credit) == credit_lsn)
		assert_int_equal(before.real->poll(link), FARLOG_OK);
	fill_to(CAPACITY + 5 * THIRD_LEN / 4);
	return FARLOG_OK;
}

/* The records that are walked over are written over meanwhile: that the walk ends says nothing of the record. */
static void resolve__lapped_while_it_looks(void **state)
{
	struct farlog_position position;

	(void)state;
	if (!make_bed())
		skip();
	go_round();
	stand_before(read_and_lap);
	assert_int_equal(farlog_shared_resolve(bed.shared, bed.late.lsn, PATIENCE_FOR_TEST_NS, &position), FARLOG_OK);
	assert_int_equal(position.seq, bed.late.seq);
	assert_int_equal(before.read_count, 2);
	free_bed();
}

/* read_never -- posted, and nothing comes of it until post_read. */
static int read_never(struct far_link *link, struct region_span span, uint64_t tag)
{
	(void)link;
	before.span = span;
	before.tag = tag;
	(void)__atomic_fetch_add(&before.read_count, 1, __ATOMIC_RELEASE);
	return FARLOG_OK;
}

static void post_read(void)
{
	far_lock_link(bed.far);
	assert_int_equal(before.real->read(bed.far->link, before.span, before.tag), FARLOG_OK);
	far_unlock_link(bed.far);
}

/* The target is asked where the log begins, and does not answer: the deadline of who asks counts, not the patience that
 * a call without one has. */
static void resolve__header_does_not_come(void **state)
{
	struct farlog_position position;
	uint64_t start_ns;

	(void)state;
	if (!make_bed())
		skip();
	go_round();
	bed.far->region.persist_timeout_ns = PATIENCE_FOR_TEST_NS;
	stand_before(read_never);
	start_ns = clock_monotonic_ns();
	assert_int_equal(farlog_shared_resolve(bed.shared, bed.late.lsn, SHORT_NS, &position), FARLOG_UNKNOWN);
	assert_true(before.read_count > 0);
	assert_true(clock_monotonic_ns() - start_ns < PATIENCE_FOR_TEST_NS);
	free_bed();
}

/* A fetch of the header, in a thread of its own. */
static struct fetch {
	pthread_t thread;
	int result;
	uint64_t is_over;
} fetch;

static void *fetch_header(void *context)
{
	(void)context;
	fetch.result = region_fetch(bed.writer->region, 0, LAYOUT_DATA_OFF);
	atomic_store_release(&fetch.is_over, 1);
	return NULL;
}

/* The header is on its way for as long as patience lasts, and an append by the same connection goes on: its persist
 * is sent, and comes back, while that is so. */
static void append__while_a_header_is_fetched(void **state)
{
	struct farlog_entry entry = {.data = "x", .len = 1};
	struct farlog_position position;

	(void)state;
	if (!make_bed())
		skip();
	bed.far->region.persist_timeout_ns = PATIENCE_FOR_TEST_NS;
	stand_before(read_never);
	fetch = (struct fetch){0};
	assert_int_equal(pthread_create(&fetch.thread, NULL, fetch_header, NULL), 0);
	while (atomic_load_acquire(&before.read_count) == 0)
		sched_yield();
	assert_int_equal(farlog_shared_append(bed.shared, &entry, PATIENCE_FOR_TEST_NS, &position), FARLOG_OK);
	assert_false(atomic_load_acquire(&fetch.is_over));
	post_read();
	pthread_join(fetch.thread, NULL);
	assert_int_equal(fetch.result, FARLOG_OK);
	free_bed();
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(resolve__header_does_not_come),
	cmocka_unit_test(append__while_a_header_is_fetched),
	cmocka_unit_test(resolve__lapped_while_it_looks),
	cmocka_unit_test(resolve__head_lies_behind_the_credit),
};
RUN_GROUP(far_resolve, tests)
