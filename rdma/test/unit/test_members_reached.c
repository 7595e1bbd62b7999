/* test_members_reached.c -- a drain counts a member by its epoch: only one that a power cut leaves it. On adversarial
 * memories. */
#include <unistd.h>

#include "adversary/memory.h"
#include "region/superblock.h"
#include "ring/layout.h"
#include "unit.h"

#define COUNT 3u
#define WHOLE "members:2 fault:reached-1 fault:reached-2 fault:reached-3"
#define RECORD_COUNT 5u
#define TRIES 10000u
#define ROUNDS 8u /* seeds: of each what a power cut leaves */

static const char *const names[COUNT] = {"reached-1", "reached-2", "reached-3"};
static const char *const uris[COUNT] = {"fault:reached-1", "fault:reached-2", "fault:reached-3"};

static void make(uint64_t seed)
{
	struct farlog_ring_config config = {
		.size_bytes = LAYOUT_DATA_OFF + 8 * LAYOUT_BLOCK_LEN, .record_len_max = 1024, .is_forced = 1, .salt = 0x7e};
	struct farlog_error error = {0};

	for (unsigned i = 0; i < COUNT; i++) {
		farlog_fault_drop(names[i]);
		if (farlog_ring_format(uris[i], &config, &error) != FARLOG_OK)
			fail_msg("%s", error.text);
		farlog_fault_reseed(names[i], seed * COUNT + i);
		farlog_fault_set_slowness(names[i], 0);
	}
}

/* append_some -- where the log ends then. */
static uint64_t append_some(void)
{
	farlog_writer *writer;
	struct farlog_position position = {0};
	struct farlog_error error = {0};

	if (farlog_writer_open(WHOLE, CONFIG(.deadline_ns = 50000000, .policy = FARLOG_POLICY_REJECT), &writer, &error) !=
		FARLOG_OK)
		fail_msg("%s", error.text);
	for (unsigned i = 0; i < RECORD_COUNT; i++)
		assert_int_equal(unit_append(writer, 200, 1, &position), FARLOG_OK);
	(void)farlog_writer_close(writer);
	return position.end_lsn;
}

static struct region *open_bytes(unsigned i)
{
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_WRITER};
	struct region *region;

	assert_int_equal(region_open(uris[i], &options, &region, NULL), FARLOG_OK);
	return region;
}

/* take_epoch -- the next writer's opening gets as far as this member's superblock. Without is_flushed it is seen there,
 * and a power cut may take it. */
static void take_epoch(unsigned i, uint64_t end_lsn, bool is_flushed)
{
	static const uint8_t zeros[16];
	struct region_span hints = {LAYOUT_TAIL_HINT_OFF, sizeof(zeros)};
	struct region *region = open_bytes(i);
	struct superblock superblock;

	region->ops->data.write(region, hints.off, zeros, hints.len);
	assert_int_equal(region_persist_wait(region, &hints, 1), FARLOG_OK);
	assert_int_equal(superblock_load(region, uris[i], &superblock, NULL), FARLOG_OK);
	superblock.writer_epoch++;
	superblock.epoch_start_lsn = end_lsn;
	assert_int_equal(superblock_store(region, &superblock, is_flushed), FARLOG_OK);
	region->ops->close(region);
}

static uint32_t epoch_of(unsigned i)
{
	struct region *region = open_bytes(i);
	struct superblock superblock;

	assert_int_equal(superblock_load(region, uris[i], &superblock, NULL), FARLOG_OK);
	region->ops->close(region);
	return superblock.writer_epoch;
}

static farlog_reader *open_drain(void)
{
	struct farlog_reader_config config = {.is_drain = 1};
	struct farlog_error error = {0};
	farlog_reader *reader;

	if (farlog_reader_open(WHOLE, &config, &reader, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	return reader;
}

/* read_some -- how many records the drain gives out. */
static uint64_t read_some(farlog_reader *reader)
{
	static uint8_t bytes[LAYOUT_BLOCK_LEN];
	struct farlog_batch batch;
	uint64_t count = 0;

	for (unsigned n = 0; n < TRIES && count == 0; n++) {
		if (farlog_reader_read(reader, bytes, sizeof(bytes), &batch) == FARLOG_OK)
			count = batch.record_count;
		else
			usleep(1000);
	}
	return count;
}

/* drain__epoch_that_a_power_cut_takes -- while a drain runs, an opening is cut off before it flushes the superblock of
 * a member. A drain that counts the member, and gives records out, has flushed it: without it a later writer could go
 * by the log of the member that is away, in which other records may lie there. */
static void drain__epoch_that_a_power_cut_takes(void **state)
{
	unsigned given_count = 0;

	(void)state;
	for (unsigned round = 0; round < ROUNDS; round++) {
		farlog_reader *drain;
		uint64_t end_lsn;

		make(round);
		end_lsn = append_some();
		drain = open_drain();
		take_epoch(0, end_lsn, true);
		take_epoch(1, end_lsn, false);
		if (read_some(drain) > 0) {
			given_count++;
			farlog_fault_crash(names[1]);
			assert_int_equal(epoch_of(1), 2);
		}
		farlog_reader_close(drain);
	}
	assert_int_equal(given_count, ROUNDS);
	for (unsigned i = 0; i < COUNT; i++)
		farlog_fault_drop(names[i]);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(drain__epoch_that_a_power_cut_takes)};
RUN_GROUP(members_reached, tests)
