/* What an opening knows of records that are gone: the durable hint, which follows also while the writer rests;
 * where the newest epoch began; on blocks, later commits. And what an operator says to a ring that was refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adversary/blocks.h"
#include "adversary/file.h"
#include "base/clock.h"
#include "blocks/nvme.h"
#include "region/superblock.h"
#include "unit.h"
#include "log/writer.h"

#define BLOCKS "unit-hint"
#define BLOCKS_URI "block-fault:" BLOCKS
#define SIZE (LAYOUT_DATA_OFF + (64u << 10))
#define RECORD_COUNT 58u
#define TURN_COUNT 200u /* of the clock's thread: many more than two */

static uint64_t hint_at(const char *uri)
{
	struct region *region;
	uint64_t lsn;
	struct region_options options = {.access = REGION_READ, .role = REGION_ROLE_READER};

	assert_int_equal(region_open(uri, &options, &region, NULL), FARLOG_OK);
	assert_int_equal(region_fetch(region, 0, LAYOUT_DATA_OFF), FARLOG_OK);
	lsn = region_load_word(region, LAYOUT_DURABLE_HINT_OFF);
	region->ops->close(region);
	return lsn;
}

/* rest -- the writer does nothing until the hint on the media is that, or the clock's thread has had its turn so
 * often. */
static void rest_until(const char *uri, uint64_t lsn)
{
	uint64_t last_version = atomic_load_acquire(&clock_anchor.version) + 2 * TURN_COUNT;

	while (hint_at(uri) != lsn && atomic_load_acquire(&clock_anchor.version) < last_version)
		usleep(2000);
	assert_int_equal(hint_at(uri), lsn);
}

/* append_unhinted -- records of which no append tells. Where the last of them ends. */
static uint64_t append_unhinted(farlog_writer *writer, unsigned count)
{
	struct farlog_position position;

	writer->hint_interval_ticks = UINT64_MAX / 2;
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(unit_append(writer, 64, (uint8_t)i, &position), FARLOG_OK);
	return writer->durable_lsn;
}

static void check_follows(const char *uri)
{
	farlog_writer *writer;
	uint64_t lsn;

	unit_format(uri, SIZE, 4096);
	writer = unit_open(uri);
	for (unsigned i = 0; i < 3; i++) {
		lsn = append_unhinted(writer, 1 + i * 20);
		rest_until(uri, lsn);
	}
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	assert_int_equal(hint_at(uri), lsn);
}

static void hint__follows_a_writer_that_rests(void **state)
{
	char uri[300];

	(void)state;
	check_follows(unit_tmpfs_uri("hint"));
	check_follows(unit_file_uri("hint"));
	snprintf(uri, sizeof(uri), "nvme:%s", unit_path(unit_file_uri("hint-blocks")));
	check_follows(uri);
}

/* What waits is told of, too, also where no append says it. */
static void hint__follows_a_writer_that_waits_and_rests(void **state)
{
	const char *uri = unit_tmpfs_uri("hint");
	struct farlog_position position;
	farlog_writer *writer;

	(void)state;
	unit_format(uri, SIZE, 4096);
	writer = unit_open(uri);
	assert_int_equal(unit_submit(writer, 64, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_wait(writer, position.end_lsn, 0), FARLOG_OK);
	rest_until(uri, position.end_lsn);
	farlog_writer_close(writer);
}

/* What the clock's thread writes back of a ring's hints, and what they say as it begins to. */
static struct write_back {
	const uint8_t *bytes; /* of the ring; NULL: nobody asks. Stored last */
	uint64_t tail_lsn;
	uint64_t durable_lsn; /* stored with release, behind the other two */
	uint64_t len;         /* of the hints' line, from the tail's on */
	uint64_t msync_count;
} write_back;

void __real_persist_range(const void *start, size_t len);
void __wrap_persist_range(const void *start, size_t len);

void __wrap_persist_range(const void *start, size_t len)
{
	const uint8_t *hints = __atomic_load_n(&write_back.bytes, __ATOMIC_ACQUIRE);

	if (hints != NULL && start == hints + LAYOUT_TAIL_HINT_OFF) {
		atomic_store_relaxed(&write_back.len, len);
		atomic_store_relaxed(&write_back.tail_lsn, atomic_load_relaxed((const uint64_t *)start));
		atomic_store_release(&write_back.durable_lsn, atomic_load_relaxed((const uint64_t *)start + 1));
	}
	__real_persist_range(start, len);
}

static int count_msync(void *start, size_t len, int flags)
{
	const uint8_t *hints = write_back.bytes + LAYOUT_TAIL_HINT_OFF;

	if ((const uint8_t *)start <= hints && hints < (const uint8_t *)start + len)
		atomic_add(&write_back.msync_count, 1);
	return msync(start, len, flags);
}

/* rest_told -- as rest_until, and until the turn in which the clock's thread stored the hint is over. */
static void rest_told(const char *uri, uint64_t lsn)
{
	uint64_t told_version;

	rest_until(uri, lsn);
	told_version = atomic_load_acquire(&clock_anchor.version) + 2 * 2;
	while (atomic_load_acquire(&clock_anchor.version) < told_version)
		usleep(2000);
}

static void watch(const farlog_writer *writer)
{
	write_back = (struct write_back){0};
	__atomic_store_n(&write_back.bytes, writer->region->base, __ATOMIC_RELEASE);
}

/* hint__is_in_memory_when_it_is_told -- where records are written back line by line, the hint is so too, and only when
 * both words have been stored: behind a power cut it says what was acknowledged, and the ring is not refused for it. */
static void hint__is_in_memory_when_it_is_told(void **state)
{
	struct farlog_position position;
	farlog_writer *writer;
	char uri[300];

	(void)state;
	snprintf(uri, sizeof(uri), "%s?flush=nt", unit_tmpfs_uri("hint-line"));
	unit_format(uri, SIZE, 4096);
	writer = unit_open(uri);
	watch(writer);
	for (unsigned i = 1; i <= 3; i++) {
		append_unhinted(writer, i);
		assert_int_equal(unit_append(writer, 64, 1, &position), FARLOG_OK);
		rest_told(uri, position.end_lsn);
		assert_int_equal(atomic_load_acquire(&write_back.durable_lsn), position.end_lsn);
		assert_int_equal(atomic_load_relaxed(&write_back.tail_lsn), position.end_lsn);
		assert_int_equal(atomic_load_relaxed(&write_back.len), 2 * sizeof(uint64_t));
	}
	__atomic_store_n(&write_back.bytes, NULL, __ATOMIC_RELEASE);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

/* hint__of_a_plain_file_is_left_to_the_kernel -- the clock's thread waits for no disk. */
static void hint__of_a_plain_file_is_left_to_the_kernel(void **state)
{
	const char *uri = unit_file_uri("hint-file");
	farlog_writer *writer;
	uint64_t lsn;

	(void)state;
	unit_format(uri, SIZE, 4096);
	writer = unit_open(uri);
	watch(writer);
	farlog_file_set_msync(count_msync);
	lsn = append_unhinted(writer, 3);
	rest_told(uri, lsn);
	assert_int_equal(atomic_load_relaxed(&write_back.msync_count), 0);
	assert_int_equal(atomic_load_acquire(&write_back.durable_lsn), 0);
	farlog_file_set_msync(NULL);
	__atomic_store_n(&write_back.bytes, NULL, __ATOMIC_RELEASE);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

static void hint__follows_members_that_rest(void **state)
{
	char uris[3][300];
	char uri[1000];
	struct farlog_ring_config config = {.size_bytes = SIZE, .record_len_max = 4096, .salt = 77};
	farlog_writer *writer;
	uint64_t lsn;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		char name[20];

		snprintf(name, sizeof(name), "hint-member-%u", i);
		snprintf(uris[i], sizeof(uris[i]), "%s", unit_file_uri(name));
		unlink(unit_path(uris[i]));
		assert_int_equal(farlog_ring_format(uris[i], &config, NULL), FARLOG_OK);
	}
	snprintf(uri, sizeof(uri), "members:2 %s %s %s", uris[0], uris[1], uris[2]);
	assert_int_equal(farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_PERSISTENT), &writer, NULL), FARLOG_OK);
	lsn = append_unhinted(writer, RECORD_COUNT);
	for (unsigned i = 0; i < 3; i++)
		rest_until(uris[i], lsn);
	farlog_writer_close(writer);
}

static void expect_open(const char *uri, int result, const char *text)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	assert_int_equal(farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, &error), result);
	if (strstr(error.text, text) == NULL)
		fail_msg("expected \"%s\" in: %s", text, error.text);
	farlog_writer_close(writer);
}

/* check_cut -- nothing but the word for this very place opens the ring; then it goes on there. */
static void check_cut(const char *uri, uint64_t lsn)
{
	farlog_writer *writer;

	assert_int_equal(farlog_ring_cut(uri, lsn + 64, NULL), FARLOG_INVALID);
	expect_open(uri, FARLOG_CORRUPT, "ring cut");
	assert_int_equal(farlog_ring_cut(uri, lsn, NULL), FARLOG_OK);
	assert_int_equal(farlog_ring_cut(uri, lsn, NULL), FARLOG_INVALID); /* nothing is lost any more */
	writer = unit_open(uri);
	assert_true(farlog_writer_recovery(writer)->tail_lsn > lsn);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

/* A writer that was killed long after its last acknowledgement, and one bit of a record. */
static void recovery__one_bit_of_what_was_acknowledged_last(void **state)
{
	const char *uri = unit_tmpfs_uri("hint");
	farlog_writer *writer;
	struct region *region;
	uint64_t from_lsn, lsn, word;

	(void)state;
	unit_format(uri, SIZE, 4096);
	writer = unit_open(uri);
	from_lsn = writer->durable_lsn;
	lsn = append_unhinted(writer, RECORD_COUNT);
	rest_until(uri, lsn);
	writer->is_failed = true; /* the death of its process */
	farlog_writer_close(writer);

	assert_int_equal(region_open(uri, &(struct region_options){.access = REGION_WRITE}, &region, NULL), FARLOG_OK);
	word = region_load_word(region, LAYOUT_DATA_OFF + from_lsn + 64);
	region->ops->data.store_word(region, LAYOUT_DATA_OFF + from_lsn + 64, word ^ 4);
	region->ops->close(region);
	expect_open(uri, FARLOG_CORRUPT, "everything below");
	check_cut(uri, from_lsn);
}

/* The power took the hint along; but an epoch that began behind the place was begun by who had found all below. */
static void recovery__below_where_the_newest_epoch_began(void **state)
{
	struct farlog_position position;
	farlog_writer *writer;
	struct region *region;

	(void)state;
	unit_fault(SIZE, 4096);
	writer = unit_open(FAULT_URI);
	assert_int_equal(unit_append(writer, 300, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	assert_int_equal(farlog_writer_close(unit_open(FAULT_URI)), FARLOG_OK);
	assert_int_equal(
		region_open(FAULT_URI, &(struct region_options){.access = REGION_WRITE}, &region, NULL), FARLOG_OK);
	region->ops->data.store_word(region, LAYOUT_DURABLE_HINT_OFF, 0);
	region->ops->data.store_word(region, LAYOUT_DATA_OFF + position.lsn + 64, ~0ull);
	assert_int_equal(region->ops->data.flush(region, 0, SIZE), FARLOG_OK);
	region->ops->close(region);
	expect_open(FAULT_URI, FARLOG_CORRUPT, "was begun at");
}

static void make_blocks(struct farlog_position positions[4])
{
	farlog_writer *writer;

	farlog_block_drop(BLOCKS);
	farlog_block_shape(512, 1);
	unit_format(BLOCKS_URI, SIZE, 8192);
	farlog_block_reseed(BLOCKS, 5);
	writer = unit_open(BLOCKS_URI);
	writer->hint_interval_ticks = UINT64_MAX / 2;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(unit_append(writer, 64, (uint8_t)i, &positions[i]), FARLOG_OK);
	farlog_block_kill(BLOCKS);
	writer->is_failed = true;
	farlog_writer_close(writer);
}

/* A commit is sent when the one before is durable: behind one that is missing no later one can be. */
static void recovery__blocks_of_a_later_commit(void **state)
{
	struct farlog_position positions[4];

	(void)state;
	make_blocks(positions);
	farlog_block_wipe(BLOCKS, NVME_DATA_OFF + positions[1].lsn, 512);
	expect_open(BLOCKS_URI, FARLOG_CORRUPT, "was written when that was durable");
	check_cut(BLOCKS_URI, positions[1].lsn);

	make_blocks(positions); /* the last one, with no hint: that cannot be told from one that was under way */
	farlog_block_wipe(BLOCKS, NVME_DATA_OFF + positions[3].lsn, 512);
	expect_open(BLOCKS_URI, FARLOG_OK, "");
	farlog_block_drop(BLOCKS);
}

static const struct CMUnitTest hint_tests[] = {
	cmocka_unit_test(hint__follows_a_writer_that_rests),
	cmocka_unit_test(hint__follows_a_writer_that_waits_and_rests),
	cmocka_unit_test(hint__is_in_memory_when_it_is_told),
	cmocka_unit_test(hint__of_a_plain_file_is_left_to_the_kernel),
	cmocka_unit_test(hint__follows_members_that_rest),
	cmocka_unit_test(recovery__one_bit_of_what_was_acknowledged_last),
	cmocka_unit_test(recovery__below_where_the_newest_epoch_began),
	cmocka_unit_test(recovery__blocks_of_a_later_commit),
};
RUN_GROUP(hint, hint_tests)
