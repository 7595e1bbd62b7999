/* Records of one commit lie behind one another on blocks, and a PAD takes the commit to the end of its last LBA. */
#include <pthread.h>
#include <stdlib.h>

#include "adversary/blocks.h"
#include "blocks/nvme.h"
#include "region/superblock.h"
#include "unit.h"
#include "log/writer.h"

#define NAME "unit-pack"
#define URI "block-fault:" NAME
#define RING_LEN (64u << 10)
#define SIZE (LAYOUT_DATA_OFF + RING_LEN)
#define RECORD_LEN 256u

static const uint8_t payload[RECORD_LEN - 64];
static const struct farlog_entry entry = {.data = payload, .len = sizeof(payload)};

static void make(uint32_t lba_len, uint32_t align)
{
	farlog_block_drop(NAME);
	farlog_block_shape(lba_len, 1);
	assert_int_equal(
		farlog_ring_format(URI,
			&(struct farlog_ring_config){.size_bytes = SIZE, .record_len_max = 4096, .align = align, .is_forced = 1},
			NULL),
		FARLOG_OK);
	farlog_block_reseed(NAME, unit_random() | 1);
}

static farlog_writer *open_quietly(void)
{
	farlog_writer *writer = unit_open(URI);

	writer->hint_interval_ticks = UINT64_MAX / 2;
	return writer;
}

static uint64_t round_up(uint64_t lsn, uint64_t lba_len)
{
	return (lsn + lba_len - 1) / lba_len * lba_len;
}

/* expect_log -- what a drain reads from the head on: so many records, the sequence without a hole, and each PAD up to
 * an LBA. */
static void expect_log(uint64_t record_count, uint32_t lba_len, size_t buffer_len)
{
	static uint8_t buffer[RING_LEN];
	farlog_reader *drain = unit_read(URI, FARLOG_START_HEAD, true);
	struct record_header header = {0};
	struct farlog_batch batch;
	uint64_t count = 0;
	uint64_t seq = 0;

	while (farlog_reader_read(drain, buffer, buffer_len, &batch) == FARLOG_OK) {
		for (uint64_t at = 0; at < batch.len;) {
			bool is_pad;

			memcpy(&header, buffer + at, sizeof(header));
			is_pad = header.flags & RECORD_FLAG_PAD;
			assert_int_equal(header.seq, seq);
			if (is_pad)
				assert_int_equal((header.lsn + header.payload_len + RECORD_PAD_STORED_LEN) % lba_len, 0);
			at += is_pad ? RECORD_PAD_STORED_LEN : record_extent(64, header.key_len, header.payload_len);
			seq += !is_pad;
		}
		count += batch.record_count;
		assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	}
	assert_int_equal(count, record_count);
	farlog_reader_close(drain);
}

/* 32 records of a group take the LBAs of their bytes, not 32 of them; every following commit begins where an LBA
 * does. */
static void commit__packs_what_is_staged(void **state)
{
	static const uint32_t lbas[] = {512, 4096};
	struct farlog_position first;
	struct farlog_position position;
	farlog_writer *writer;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		make(lbas[i], 0);
		writer = open_quietly();
		assert_int_equal(farlog_submit(writer, &entry, &first), FARLOG_OK);
		assert_int_equal(first.lsn % lbas[i], 0); /* behind the EPOCH record's commit */
		for (unsigned n = 1; n < 32; n++) {
			assert_int_equal(farlog_submit(writer, &entry, &position), FARLOG_OK);
			assert_int_equal(position.lsn, first.lsn + n * RECORD_LEN);
		}
		assert_int_equal(farlog_wait(writer, position.end_lsn, 0), FARLOG_OK);
		assert_int_equal(writer->durable_lsn, round_up(position.end_lsn, lbas[i]));
		assert_int_equal(farlog_append(writer, &entry, 0, &position), FARLOG_OK);
		assert_int_equal(position.lsn, round_up(first.lsn + 32 * RECORD_LEN, lbas[i]));
		assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
		expect_log(34, lbas[i], i == 0 ? RING_LEN : 4096);
	}
}

/* A batch is one commit, too. */
static void batch__is_one_commit(void **state)
{
	struct farlog_position positions[16];
	struct farlog_entry entries[16];
	farlog_writer *writer;
	uint64_t before_lsn;
	size_t done;
	size_t submitted;

	(void)state;
	for (unsigned i = 0; i < 16; i++)
		entries[i] = entry;
	make(4096, 0);
	writer = open_quietly();
	before_lsn = writer->ring.appended_lsn;
	assert_int_equal(farlog_append_batch(writer, entries, 15, 0, positions, &done, &submitted), FARLOG_OK);
	assert_int_equal(done, 15);
	assert_int_equal(writer->ring.appended_lsn, before_lsn + 4096);
	assert_int_equal(farlog_append_batch(writer, entries, 16, 0, positions, &done, &submitted), FARLOG_OK);
	assert_int_equal(writer->ring.appended_lsn, before_lsn + 2 * 4096); /* to the byte: no PAD */
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	expect_log(32, 4096, RING_LEN);
}

static void *append_some(void *context)
{
	struct farlog_position position;

	for (unsigned i = 0; i < 40; i++)
		if (farlog_shared_append(context, &entry, 30000000000u, &position) != FARLOG_OK)
			return context;
	return NULL;
}

/* Threads that wait for one commit share the next one's LBAs: fewer than one a record. */
static void shared__packs_who_waits(void **state)
{
	pthread_t threads[6];
	struct farlog_cursors cursors;
	farlog_shared *shared;
	uint64_t before_lsn;
	void *wrong;

	(void)state;
	farlog_block_drop(NAME);
	farlog_block_shape(512, 1);
	unit_format(URI, LAYOUT_DATA_OFF + (1u << 20), 4096);
	assert_int_equal(farlog_shared_open(URI, CONFIG(.level = FARLOG_LEVEL_PERSISTENT), &shared, NULL), FARLOG_OK);
	farlog_shared_cursors(shared, &cursors);
	before_lsn = cursors.appended_lsn;
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, append_some, shared), 0);
	for (unsigned i = 0; i < 6; i++) {
		assert_int_equal(pthread_join(threads[i], &wrong), 0);
		assert_null(wrong);
	}
	farlog_shared_cursors(shared, &cursors);
	assert_int_equal(cursors.appended_lsn % 512, 0);
	assert_int_equal(cursors.durable_lsn, cursors.appended_lsn);
	print_message(
		"pack: 240 records of 256 bytes by 6 threads in %lu LBAs of 512\n", (cursors.appended_lsn - before_lsn) / 512);
	assert_int_equal(farlog_shared_close(shared), FARLOG_OK);
	expect_log(241, 512, RING_LEN);
}

/* cut_in_a_commit -- three records in two LBAs, the middle one in both, and a power cut while they are under way. */
static void cut_in_a_commit(struct farlog_position *first, struct farlog_position *middle)
{
	struct farlog_position last;
	farlog_writer *writer;
	uint64_t durable_lsn;

	make(512, 0);
	writer = open_quietly();
	assert_int_equal(farlog_submit(writer, &(struct farlog_entry){.data = payload, .len = 64}, first), FARLOG_OK);
	assert_int_equal(
		farlog_submit(writer,
			&(struct farlog_entry){.data = payload, .len = sizeof(payload), .key = payload, .key_len = 192}, middle),
		FARLOG_OK);
	assert_int_equal(farlog_submit(writer, &entry, &last), FARLOG_OK);
	assert_int_equal(farlog_poll(writer, &durable_lsn), FARLOG_OK);
	farlog_block_crash(NAME);
	writer->is_failed = true;
	farlog_writer_close(writer);
}

/* A power cut leaves the first LBA of a commit and not the second: the next writer goes on in a fresh one, and what was
 * found stays. */
static void recovery__tail_inside_an_lba(void **state)
{
	struct farlog_position first;
	struct farlog_position middle;
	struct farlog_position position;
	farlog_writer *writer = NULL;

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		cut_in_a_commit(&first, &middle);
		writer = open_quietly();
		if (farlog_writer_recovery(writer)->tail_lsn == middle.lsn) /* and not where a PAD was torn off */
			break;
		farlog_writer_close(writer);
	}
	assert_int_equal(farlog_writer_recovery(writer)->tail_lsn, middle.lsn);
	assert_int_equal(writer->superblock.epoch_start_lsn, middle.lsn); /* the PAD's */
	assert_int_equal(writer->ring.appended_lsn, round_up(middle.lsn, 512) + 512);
	assert_int_equal(farlog_resolve(writer, first.lsn, 0, &position), FARLOG_OK);
	assert_int_equal(farlog_resolve(writer, middle.lsn, 0, &position), FARLOG_NOT_FOUND);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	expect_log(3, 512, RING_LEN);
}

/* The drain's head lies inside an LBA: the writer does not take that LBA before all of it is drained. */
static void credit__inside_an_lba(void **state)
{
	static uint8_t buffer[RING_LEN];
	struct farlog_position position;
	struct farlog_cursors cursors;
	struct farlog_batch batch;
	farlog_reader *drain;
	farlog_writer *writer;

	(void)state;
	make(4096, 0);
	writer = open_quietly();
	while (farlog_submit(writer, &entry, &position) == FARLOG_OK)
		;
	assert_int_equal(farlog_wait(writer, writer->ring.appended_lsn, 0), FARLOG_OK);
	drain = unit_read(URI, FARLOG_START_HEAD, true);
	assert_int_equal(farlog_reader_read(drain, buffer, 4096 + 1024, &batch), FARLOG_OK);
	assert_int_equal(batch.next_lsn % 4096 != 0 && batch.next_lsn > 4096, 1);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	farlog_reader_close(drain);
	writer->policy = FARLOG_POLICY_REJECT;
	while (farlog_append(writer, &entry, 0, &position) == FARLOG_OK)
		;
	farlog_writer_cursors(writer, &cursors);
	assert_int_equal(cursors.head_lsn, batch.next_lsn / 4096 * 4096);
	assert_true(cursors.appended_lsn <= cursors.head_lsn + RING_LEN);
	writer->is_failed = true;
	farlog_writer_close(writer);
	drain = unit_read(URI, FARLOG_START_HEAD, true);
	assert_int_equal(farlog_reader_read(drain, buffer, sizeof(buffer), &batch), FARLOG_OK); /* all of it still there */
	farlog_reader_close(drain);
}

static void set_version(uint32_t version)
{
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_FORMAT};
	struct superblock superblock;
	struct region *region;

	assert_int_equal(region_open(URI, &options, &region, NULL), FARLOG_OK);
	assert_int_equal(superblock_load(region, URI, &superblock, NULL), FARLOG_OK);
	superblock.version = version;
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(superblock_store(region, &superblock, true), FARLOG_OK);
	region->ops->close(region);
}

/* A ring of the format before, whose records begin on LBAs, goes on as it was; one whose records could be packed, or of
 * a later format, does not. */
static void open__other_formats(void **state)
{
	struct farlog_position position;
	struct farlog_error error;
	farlog_writer *writer;

	(void)state;
	make(512, 512);
	set_version(LAYOUT_VERSION);
	writer = open_quietly();
	assert_int_equal(farlog_append(writer, &entry, 0, &position), FARLOG_OK);
	assert_int_equal(position.end_lsn - position.lsn, 512);
	assert_int_equal(writer->ring.appended_lsn, position.end_lsn);
	assert_int_equal(writer->superblock.version, LAYOUT_VERSION);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	make(512, 64);
	set_version(LAYOUT_VERSION);
	assert_int_equal(farlog_writer_open(URI, NULL, &writer, &error), FARLOG_CORRUPT);
	make(512, 64);
	set_version(LAYOUT_VERSION_PACKED + 1);
	assert_int_equal(farlog_writer_open(URI, NULL, &writer, &error), FARLOG_UNSUPPORTED);
	assert_non_null(strstr(error.text, "version 4; this build reads version 3 and the one before"));
}

/* The second look at the tip costs READs by its bytes, and not one for each commit: what follows a PAD is read
 * along. */
static void read__many_commits_beyond_the_hint(void **state)
{
	static uint8_t buffer[RING_LEN];
	struct farlog_position position;
	struct farlog_batch batch;
	farlog_reader *reader;
	farlog_writer *writer;
	uint64_t count = 0;

	(void)state;
	make(512, 0);
	writer = open_quietly();
	writer->hint_interval_ticks = UINT64_MAX; /* it gives none */
	reader = unit_read(URI, FARLOG_START_HEAD, false);
	for (unsigned i = 0; i < 60; i++)
		assert_int_equal(farlog_append(writer, &entry, 0, &position), FARLOG_OK);
	while (farlog_reader_read(reader, buffer, sizeof(buffer), &batch) == FARLOG_OK)
		count += batch.record_count;
	assert_int_equal(count, 61); /* and the EPOCH record */
	assert_in_range(farlog_reader_reads(reader), 1, 25);
	farlog_reader_close(reader);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(read__many_commits_beyond_the_hint),
	cmocka_unit_test(commit__packs_what_is_staged),
	cmocka_unit_test(batch__is_one_commit),
	cmocka_unit_test(shared__packs_who_waits),
	cmocka_unit_test(recovery__tail_inside_an_lba),
	cmocka_unit_test(credit__inside_an_lba),
	cmocka_unit_test(open__other_formats),
};
RUN_GROUP(pack, tests)
