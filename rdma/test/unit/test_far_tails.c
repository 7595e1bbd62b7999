/* test_far_tails.c -- the page of tails: one READ tells of all rings of a tenant, of no other's, and a page that is not
 * whole or not kept is not believed. The target is in this process, over libfabric on the loopback; the writers are
 * local. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "farlog/tails.h"
#include "log/reader.h"
#include "target/target.h"
#include "unit.h"

#define RING_LEN (LAYOUT_DATA_OFF + (1u << 20))
#define RING_COUNT 3u /* the last is another tenant's */
#define IN_TIME_NS 20000000000ull
#define STANDSTILL_NS 300000000

struct tails_bed {
	farlog_target *target;
	char names[RING_COUNT][8];
	char local_uris[RING_COUNT][200];
	char uri[400]; /* of the first ring, from afar */
	farlog_tails *tails;
};

static const uint8_t token[FARLOG_TOKEN_LEN] = "a drain's token";

static void serve(struct tails_bed *bed)
{
	struct farlog_error error = {0};

	for (unsigned i = 0; i < RING_COUNT; i++) {
		struct farlog_grant grant = {.role = FARLOG_GRANT_DRAIN};

		memcpy(grant.token, token, sizeof(token));
		grant.token[15] = (uint8_t)i;
		assert_int_equal(
			farlog_target_serve(bed->target, bed->names[i], bed->local_uris[i], i + 1 < RING_COUNT ? "a" : "b", &error),
			FARLOG_OK);
		assert_int_equal(farlog_target_grant(bed->target, bed->names[i], &grant, &error), FARLOG_OK);
	}
}

static int open_tails(const struct tails_bed *bed, unsigned ring, farlog_tails **tails)
{
	uint8_t its[FARLOG_TOKEN_LEN];
	struct farlog_error error = {0};
	char uri[400];
	int result;

	memcpy(its, token, sizeof(its));
	its[15] = (uint8_t)ring;
	snprintf(uri, sizeof(uri), "%s/%s", farlog_target_uri(bed->target), bed->names[ring]);
	result = farlog_tails_open(uri, its, tails, &error);
	if (result != FARLOG_OK)
		printf("tails: %s\n", error.text);
	return result;
}

/* make_bed -- False: there is no libfabric on this machine. */
static bool make_bed(struct tails_bed *bed)
{
	struct farlog_error error = {0};
	int result;

	memset(bed, 0, sizeof(*bed));
	result = farlog_target_open("ofi:tcp://127.0.0.1:0", &bed->target, &error);
	if (result == FARLOG_UNSUPPORTED)
		return false;
	assert_int_equal(result, FARLOG_OK);
	for (unsigned i = 0; i < RING_COUNT; i++) {
		snprintf(bed->names[i], sizeof(bed->names[i]), "tail%u", i);
		snprintf(bed->local_uris[i], sizeof(bed->local_uris[i]), "%s", unit_tmpfs_uri(bed->names[i]));
		unit_format(bed->local_uris[i], RING_LEN, 0);
	}
	serve(bed);
	assert_int_equal(open_tails(bed, 0, &bed->tails), FARLOG_OK);
	return true;
}

static void free_bed(struct tails_bed *bed)
{
	farlog_tails_close(bed->tails);
	farlog_target_close(bed->target);
	for (unsigned i = 0; i < RING_COUNT; i++)
		remove(unit_path(bed->local_uris[i]));
}

static void uuid_of(const struct tails_bed *bed, unsigned ring, uint8_t uuid[16])
{
	farlog_reader *reader = unit_read(bed->local_uris[ring], FARLOG_START_HEAD, false);
	struct farlog_ring_status status;

	assert_int_equal(farlog_reader_status(reader, &status), FARLOG_OK);
	memcpy(uuid, status.ring_uuid, sizeof(status.ring_uuid));
	farlog_reader_close(reader);
}

/* look -- one READ. True: the page has this ring. */
static bool look(struct tails_bed *bed, unsigned ring, struct farlog_tail *tail)
{
	struct farlog_tail tails[FARLOG_TAIL_COUNT_MAX];
	uint64_t reads = farlog_tails_reads(bed->tails);
	uint8_t uuid[16];
	size_t count;
	int result = farlog_tails_read(bed->tails, tails, FARLOG_TAIL_COUNT_MAX, &count);

	assert_true(farlog_tails_reads(bed->tails) <= reads + 1);
	if (result != FARLOG_OK)
		return false;
	uuid_of(bed, ring, uuid);
	for (size_t i = 0; i < count; i++)
		if (memcmp(tails[i].ring_uuid, uuid, sizeof(uuid)) == 0) {
			*tail = tails[i];
			return true;
		}
	return false;
}

/* await_tail -- the page says what the ring's writer has appended. */
static struct farlog_tail await_tail(struct tails_bed *bed, unsigned ring, uint64_t tail_lsn)
{
	uint64_t until_ns = clock_after_ns(IN_TIME_NS);
	struct farlog_tail tail = {0};

	while ((!look(bed, ring, &tail) || tail.tail_lsn != tail_lsn) && clock_monotonic_ns() < until_ns)
		;
	assert_int_equal(tail.tail_lsn, tail_lsn);
	return tail;
}

/* As region__each_kind_has_all_operations: of the page, and of a region on another host. */
static void far_tails__have_all_operations(void **state)
{
	struct farlog_reader_config config = {.is_drain = 1, .grant_token = token};
	struct farlog_error error = {0};
	farlog_reader *drain = NULL;
	struct tails_bed bed;
	char uri[400];

	(void)state;
	if (!make_bed(&bed))
		skip();
	unit_check_ops(bed.target->pages->region);
	snprintf(uri, sizeof(uri), "%s/%s", farlog_target_uri(bed.target), bed.names[0]);
	if (farlog_reader_open(uri, &config, &drain, &error) != FARLOG_OK)
		fail_msg("open: %s", error.text);
	unit_check_ops(drain->region);
	farlog_reader_close(drain);
	free_bed(&bed);
}

static void far_tails__show_what_is_appended(void **state)
{
	struct farlog_position position;
	struct farlog_tail before;
	struct farlog_tail after;
	struct tails_bed bed;
	farlog_writer *writer;

	(void)state;
	if (!make_bed(&bed))
		skip();
	await_tail(&bed, 0, 0);
	writer = unit_open(bed.local_uris[1]);
	for (unsigned i = 0; i < 500; i++) /* the writer's hint is behind what it has appended */
		assert_int_equal(unit_append(writer, 1 + i % 300, (uint8_t)i, &position), FARLOG_OK);
	before = await_tail(&bed, 1, position.end_lsn);
	assert_int_equal(before.writer_epoch, 1);
	assert_int_equal(before.head_lsn, 0);
	assert_int_equal(await_tail(&bed, 0, 0).writer_epoch, 0);
	farlog_writer_close(writer);
	writer = unit_open(bed.local_uris[1]);
	assert_int_equal(unit_append(writer, 10, 0, &position), FARLOG_OK);
	after = await_tail(&bed, 1, position.end_lsn);
	assert_int_equal(after.writer_epoch, 2);
	assert_int_not_equal(after.mark, before.mark);
	assert_true(after.sequence > before.sequence);
	farlog_writer_close(writer);
	free_bed(&bed);
}

/* A ring goes round: PADs, and what is drained and written over. */
static void far_tails__follow_a_ring_round(void **state)
{
	static uint8_t buffer[1u << 20];
	struct farlog_position position;
	struct farlog_batch batch;
	struct tails_bed bed;
	farlog_writer *writer;
	farlog_reader *drain;

	(void)state;
	if (!make_bed(&bed))
		skip();
	writer = unit_open(bed.local_uris[0]);
	drain = unit_read(bed.local_uris[0], FARLOG_START_HEAD, true);
	for (unsigned turn = 0; turn < 10; turn++) {
		for (unsigned i = 0; i < 300; i++)
			assert_int_equal(unit_append(writer, 1000 + i, (uint8_t)i, &position), FARLOG_OK);
		await_tail(&bed, 0, position.end_lsn);
		while (farlog_reader_read(drain, buffer, sizeof(buffer), &batch) == FARLOG_OK)
			assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	}
	assert_true(position.end_lsn > 2 * RING_LEN);
	farlog_reader_close(drain);
	farlog_writer_close(writer);
	free_bed(&bed);
}

static void far_tails__are_a_tenants_own(void **state)
{
	struct farlog_tail tail;
	struct tails_bed bed;
	farlog_tails *theirs;
	farlog_tails *mine;

	(void)state;
	if (!make_bed(&bed))
		skip();
	await_tail(&bed, 0, 0);
	assert_true(look(&bed, 1, &tail));
	assert_false(look(&bed, RING_COUNT - 1, &tail));
	assert_int_equal(open_tails(&bed, RING_COUNT - 1, &theirs), FARLOG_OK);
	mine = bed.tails;
	bed.tails = theirs;
	await_tail(&bed, RING_COUNT - 1, 0);
	assert_false(look(&bed, 0, &tail) || look(&bed, 1, &tail));
	bed.tails = mine;
	farlog_tails_close(theirs);
	free_bed(&bed);
}

/* Who came by a grant that is gone is shown out; another grant of the tenant opens the page without the ring that was
 * forgotten. */
static void far_tails__end_with_their_grant(void **state)
{
	uint64_t until_ns = clock_after_ns(IN_TIME_NS);
	struct farlog_tail tails[4];
	struct farlog_tail tail;
	struct tails_bed bed;
	size_t count;
	int result;

	(void)state;
	if (!make_bed(&bed))
		skip();
	assert_int_equal(farlog_target_forget(bed.target, bed.names[0], NULL), FARLOG_OK);
	do
		result = farlog_tails_read(bed.tails, tails, 4, &count);
	while (result != FARLOG_IO && clock_monotonic_ns() < until_ns);
	assert_int_equal(result, FARLOG_IO);
	farlog_tails_close(bed.tails);
	assert_int_equal(open_tails(&bed, 0, &bed.tails), FARLOG_INVALID);
	assert_int_equal(open_tails(&bed, 1, &bed.tails), FARLOG_OK);
	await_tail(&bed, 1, 0);
	assert_false(look(&bed, 0, &tail));
	free_bed(&bed);
}

/* line_of -- of the first ring, as the target has it. */
static struct tails_line *line_of(const struct tails_bed *bed)
{
	struct target_ring *ring = bed->target->rings;

	while (strcmp(ring->name, bed->names[0]) != 0)
		ring = ring->next;
	return (struct tails_line *)(ring->page->bytes + TAILS_OFF) + ring->line;
}

static void far_tails__torn_or_standing_still(void **state)
{
	struct farlog_tail tail;
	struct tails_bed bed;

	(void)state;
	if (!make_bed(&bed))
		skip();
	await_tail(&bed, 0, 0);
	pthread_mutex_lock(&bed.target->mutex); /* it does not look at its rings now */
	line_of(&bed)->tail_lsn ^= 1;
	assert_false(look(&bed, 0, &tail));
	assert_true(look(&bed, 1, &tail));
	line_of(&bed)->tail_lsn ^= 1;
	assert_true(look(&bed, 0, &tail) && look(&bed, 1, &tail));
	nanosleep(&(struct timespec){0, STANDSTILL_NS}, NULL);
	for (unsigned i = 0; i < 4; i++) /* the first ones are still taken */
		(void)look(&bed, 0, &tail);
	assert_false(look(&bed, 0, &tail) || look(&bed, 1, &tail));
	pthread_mutex_unlock(&bed.target->mutex);
	await_tail(&bed, 0, 0);
	free_bed(&bed);
}

static void far_tails__come_back_with_their_target(void **state)
{
	struct farlog_error error = {0};
	struct tails_bed bed;
	char uri[128];

	(void)state;
	if (!make_bed(&bed))
		skip();
	await_tail(&bed, 0, 0);
	snprintf(uri, sizeof(uri), "%s", farlog_target_uri(bed.target));
	farlog_target_close(bed.target);
	assert_int_equal(farlog_target_open(uri, &bed.target, &error), FARLOG_OK);
	serve(&bed);
	await_tail(&bed, 0, 0);
	free_bed(&bed);
}

/* ring_word -- a word of the ring's header, as whoever has a key to it could store it. */
static uint64_t *ring_word(const struct tails_bed *bed, unsigned ring, uint64_t off)
{
	const struct target_ring *at = bed->target->rings;

	while (strcmp(at->name, bed->names[ring]) != 0)
		at = at->next;
	return (uint64_t *)(at->bytes + off);
}

/* A client may store anything in the words that are its own: what cannot be is not looked at, and not passed on. Where
 * no record can begin there may be less left in the ring than a header has. */
static void far_tails__words_that_cannot_be(void **state)
{
	static const uint64_t offs[] = {LAYOUT_TAIL_HINT_OFF, LAYOUT_CREDIT_OFF};
	struct tails_bed bed;
	struct farlog_position position;
	struct farlog_tail tail;
	farlog_writer *writer;

	(void)state;
	if (!make_bed(&bed))
		skip();
	writer = unit_open(bed.local_uris[0]);
	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	for (unsigned i = 0; i < sizeof(offs) / sizeof(offs[0]); i++) {
		uint64_t *word = ring_word(&bed, 0, offs[i]);
		uint64_t wrong[] = {RING_LEN - LAYOUT_DATA_OFF - 8, position.end_lsn + 8, UINT64_MAX - 7, 1ull << 40};
		uint64_t right = atomic_load_relaxed(word);

		/* a drain's word may be any place where a record can begin */
		for (unsigned j = 0; j < (offs[i] == LAYOUT_CREDIT_OFF ? 3 : 4); j++) {
			atomic_store_relaxed(word, wrong[j]);
			nanosleep(&(struct timespec){0, 20000000}, NULL); /* forty looks of the target's */
			tail = await_tail(&bed, 0, position.end_lsn);
			assert_int_equal(tail.tail_lsn, position.end_lsn);
			assert_int_equal(tail.head_lsn, 0);
		}
		atomic_store_relaxed(word, right);
	}
	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	assert_int_equal(await_tail(&bed, 0, position.end_lsn).tail_lsn, position.end_lsn);
	farlog_writer_close(writer);
	free_bed(&bed);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(far_tails__have_all_operations),
	cmocka_unit_test(far_tails__show_what_is_appended),
	cmocka_unit_test(far_tails__follow_a_ring_round),
	cmocka_unit_test(far_tails__are_a_tenants_own),
	cmocka_unit_test(far_tails__end_with_their_grant),
	cmocka_unit_test(far_tails__torn_or_standing_still),
	cmocka_unit_test(far_tails__come_back_with_their_target),
	cmocka_unit_test(far_tails__words_that_cannot_be),
};
RUN_GROUP(far_tails, tests)
