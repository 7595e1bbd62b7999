#include "base/crc32c.h"
#include "region/superblock.h"
#include "unit.h"

#define SIZE (LAYOUT_DATA_OFF + 4096u)

/* A region of plain memory: only what superblocks and heads need. */
static uint8_t memory[SIZE] __attribute__((aligned(4096)));

static void write_bytes(struct region *region, uint64_t off, const void *src, size_t len)
{
	(void)region;
	memcpy(memory + off, src, len);
}

static unsigned persist_count;
static struct head_slot at_first_persist; /* slot B as it was then */

static int persist(struct region *region, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	(void)spans;
	(void)span_count;
	region->tag_done = tag;
	if (persist_count++ == 0)
		memcpy(&at_first_persist, memory + LAYOUT_HEAD_B_OFF, sizeof(at_first_persist));
	return FARLOG_OK;
}

static int poll_nothing(struct region *region)
{
	(void)region;
	return FARLOG_OK;
}

static const struct region_ops ops = {
	.data = {.write = write_bytes, .persist = persist, .poll = poll_nothing},
	.fence.store_superblock = region_default_store_superblock,
};
static struct region region = {.ops = &ops, .contract = {.size_bytes = SIZE}, .base = memory};

static struct superblock fresh(void)
{
	struct superblock superblock = {.magic = LAYOUT_SUPERBLOCK_MAGIC,
		.version = LAYOUT_VERSION,
		.superblock_len = sizeof(struct superblock),
		.salt = 0xABCDEF0012345679ull,
		.capacity = 4096,
		.align = 64,
		.record_len_max = 1024};

	memset(memory, 0, sizeof(memory));
	return superblock;
}

static int load(struct superblock *superblock)
{
	struct farlog_error error = {0};
	int result = superblock_load(&region, "mem:/x", superblock, &error);

	assert_true(result == FARLOG_OK || (error.text[0] != '\0' && strchr(error.text, '\n') == NULL));
	return result;
}

static void superblock__written_in_turn(void **state)
{
	struct superblock made = fresh();
	struct superblock seen;

	(void)state;
	for (uint32_t epoch = 1; epoch < 6; epoch++) {
		made.writer_epoch = epoch;
		persist_count = 0;
		assert_int_equal(superblock_store(&region, &made, true), FARLOG_OK);
		assert_int_equal(persist_count, 1);
		assert_int_equal(load(&seen), FARLOG_OK);
		assert_int_equal(seen.writer_epoch, epoch);
		assert_int_equal(seen.generation, epoch);
	}
}

/* Whatever part of the newest one reached the media: it is found only when it is whole, else an older one. (An attempt
 * before it at the same place may become whole again. No writer ever used its epoch, so that does no harm.) */
static void superblock__newest_torn(void **state)
{
	struct superblock made = fresh();
	struct superblock seen;
	uint8_t before[sizeof(memory)];

	(void)state;
	made.writer_epoch = 1;
	assert_int_equal(superblock_store(&region, &made, true), FARLOG_OK);
	for (uint32_t i = 2; i < 3000; i++) {
		struct superblock next = made;
		uint8_t after[sizeof(memory)];
		bool is_whole = true;

		memcpy(before, memory, sizeof(before));
		next.writer_epoch = i;
		next.epoch_start_lsn = unit_random();
		assert_int_equal(superblock_store(&region, &next, true), FARLOG_OK);
		memcpy(after, memory, sizeof(after));
		for (size_t off = 0; off < LAYOUT_HEAD_A_OFF; off += 8) {
			bool is_kept = unit_below(i % 4 == 0 ? 64 : 2) != 0;

			if (!is_kept)
				memcpy(memory + off, before + off, 8);
			is_whole &= memcmp(memory + off, after + off, 8) == 0;
		}
		assert_int_equal(load(&seen), FARLOG_OK);
		if (is_whole)
			assert_int_equal(seen.writer_epoch, i);
		else
			assert_in_range(seen.writer_epoch, made.writer_epoch, i - 1);
		made = seen;
	}
}

static void superblock__both_torn(void **state)
{
	struct superblock made = fresh();
	struct superblock seen;

	(void)state;
	assert_int_equal(superblock_store(&region, &made, true), FARLOG_OK);
	memory[LAYOUT_SUPERBLOCK_A_OFF + 100] ^= 1;
	memory[LAYOUT_SUPERBLOCK_B_OFF + 100] ^= 1;
	assert_int_equal(load(&seen), FARLOG_CORRUPT);
}

static void superblock__blank_foreign_and_other_version(void **state)
{
	struct superblock made = fresh();
	struct superblock seen;
	struct farlog_error error;

	(void)state;
	assert_int_equal(superblock_load(&region, "mem:/x", &seen, &error), FARLOG_NOT_A_RING);
	assert_non_null(strstr(error.text, "all zeros"));
	assert_non_null(strstr(error.text, "farlog ring format 'mem:/x'"));
	memset(memory, 0x41, sizeof(memory));
	assert_int_equal(superblock_load(&region, "mem:/x", &seen, &error), FARLOG_NOT_A_RING);
	assert_non_null(strstr(error.text, "foreign"));
	made = fresh();
	made.version = LAYOUT_VERSION + 1;
	assert_int_equal(superblock_store(&region, &made, true), FARLOG_OK);
	assert_int_equal(superblock_load(&region, "mem:/x", &seen, &error), FARLOG_UNSUPPORTED);
	assert_non_null(strstr(error.text, "version 3; this build reads version 2"));
}

/* superblock__unusable: a checksum says who wrote it, not that its numbers make sense here. */
static void superblock__unusable_numbers(void **state)
{
	struct superblock seen;
	struct superblock made[7];
	struct farlog_error error;

	(void)state;
	for (unsigned i = 0; i < 7; i++)
		made[i] = fresh();
	made[0].capacity = 8192; /* more than the region has */
	made[1].capacity = 0;
	made[2].capacity = 4095;
	made[3].align = 96;
	made[4].align = 32;
	made[5].record_len_max = 2048; /* above a quarter */
	made[6].superblock_len = 256;
	for (unsigned i = 0; i < 7; i++) {
		memset(memory, 0, sizeof(memory));
		assert_int_equal(superblock_store(&region, &made[i], true), FARLOG_OK);
		assert_int_equal(superblock_load(&region, "mem:/x", &seen, &error), FARLOG_CORRUPT);
		assert_true((strstr(error.text, "needs 20480") != NULL) == (i == 0));
	}
}

static void head__slot_torn(void **state)
{
	struct superblock made = fresh();
	struct head_slot slot = {.head_lsn = 0, .head_seq = 0};
	struct head_slot seen;
	uint64_t lsn = 0;

	(void)state;
	assert_false(head_load(&region, &made, &seen));
	assert_int_equal(head_store(&region, &made, &slot), FARLOG_OK);
	for (unsigned i = 1; i < 3000; i++) {
		uint8_t before[sizeof(memory)];
		uint8_t after[sizeof(memory)];
		bool is_whole = true;

		memcpy(before, memory, sizeof(before));
		lsn += 64 * (1 + unit_below(100));
		slot = (struct head_slot){.head_lsn = lsn, .head_seq = slot.head_seq + 1, .last_epoch = i};
		assert_int_equal(head_store(&region, &made, &slot), FARLOG_OK);
		memcpy(after, memory, sizeof(after));
		for (size_t off = LAYOUT_HEAD_A_OFF; off < LAYOUT_CREDIT_OFF; off += 8) {
			if (unit_below(4) == 0)
				memcpy(memory + off, before + off, 8);
			is_whole &= memcmp(memory + off, after + off, 8) == 0;
		}
		assert_true(head_load(&region, &made, &seen));
		if (is_whole)
			assert_memory_equal(&seen.head_lsn, &slot.head_lsn, 20);
		else
			assert_true(seen.head_lsn < slot.head_lsn);
		slot = seen;
	}
}

static void head__blank_other_salt_and_off_the_grid(void **state)
{
	struct superblock made = fresh();
	struct head_slot slot = {.head_lsn = 640, .head_seq = 5, .last_epoch = 1};
	struct head_slot seen;

	(void)state;
	assert_int_equal(head_store(&region, &made, &slot), FARLOG_OK);
	made.salt ^= 1;
	assert_false(head_load(&region, &made, &seen));
	made.salt ^= 1;
	assert_true(head_load(&region, &made, &seen));
	slot.head_lsn = 641; /* no record can begin there */
	memset(memory, 0, sizeof(memory));
	assert_int_equal(head_store(&region, &made, &slot), FARLOG_OK);
	assert_false(head_load(&region, &made, &seen));
}

/* A power cut left all of a slot but the word with its epoch; the next head has the same epoch. Were it stored over
 * that and torn as well, the first one could be whole. */
static void head__torn_slot_is_gone_before_the_next_store(void **state)
{
	struct superblock made = fresh();
	struct head_slot slot = {.head_lsn = 384, .head_seq = 3, .last_epoch = 2};
	struct head_slot nothing = {0};
	struct head_slot torn;

	(void)state;
	memset(memory, 0, sizeof(memory));
	assert_int_equal(head_store(&region, &made, &slot), FARLOG_OK);
	slot.head_lsn = 9920;
	slot.head_seq = 29;
	assert_int_equal(head_store(&region, &made, &slot), FARLOG_OK);
	memcpy(&torn, memory + LAYOUT_HEAD_B_OFF, sizeof(torn));
	assert_int_equal(torn.head_lsn, 9920);
	torn.last_epoch = 0;
	memcpy(memory + LAYOUT_HEAD_B_OFF, &torn, sizeof(torn));
	slot.head_lsn = 10944;
	slot.head_seq = 32;
	persist_count = 0;
	assert_int_equal(head_store(&region, &made, &slot), FARLOG_OK);
	assert_int_equal(persist_count, 2);
	assert_memory_equal(&at_first_persist, &nothing, sizeof(nothing));
	assert_true(head_load(&region, &made, &slot));
	assert_int_equal(slot.head_lsn, 10944);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(superblock__written_in_turn),
	cmocka_unit_test(superblock__newest_torn),
	cmocka_unit_test(superblock__both_torn),
	cmocka_unit_test(superblock__blank_foreign_and_other_version),
	cmocka_unit_test(superblock__unusable_numbers),
	cmocka_unit_test(head__slot_torn),
	cmocka_unit_test(head__blank_other_salt_and_off_the_grid),
	cmocka_unit_test(head__torn_slot_is_gone_before_the_next_store),
};
RUN_GROUP(superblock, tests)
