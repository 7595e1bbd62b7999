#include <stdlib.h>

#include "base/crc32c.h"
#include "mem/persist.h"
#include "ring/record.h"
#include "unit.h"

static const enum farlog_flush_method methods[] = {FARLOG_FLUSH_NONE, FARLOG_FLUSH_CLWB, FARLOG_FLUSH_CLFLUSHOPT,
	FARLOG_FLUSH_NT_STORE, FARLOG_FLUSH_CVAP, FARLOG_FLUSH_MSYNC};

static void persist__every_method_copies_exactly(void **state)
{
	static uint8_t src[4096] __attribute__((aligned(64)));
	static uint8_t dst[4096 + 128] __attribute__((aligned(64)));

	(void)state;
	for (size_t i = 0; i < sizeof(src); i++)
		src[i] = (uint8_t)unit_random();
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		persist_copy_fn copy = persist_find_copy(methods[i]);

		assert_int_equal(copy != NULL, persist_is_supported(methods[i]));
		for (size_t len = 64; copy != NULL && len <= sizeof(src); len += 64) {
			memset(dst, 0xEE, sizeof(dst));
			copy(dst + 64, src, len);
			persist_fence();
			assert_memory_equal(dst + 64, src, len);
			assert_int_equal(dst[63], 0xEE);
			assert_int_equal(dst[64 + len], 0xEE);
		}
	}
}

#define GATHER_LEN_MAX (16u << 10)

static uint8_t *random_block(size_t len)
{
	uint8_t *block = len > 0 ? malloc(len) : NULL;

	for (size_t at = 0; at < len; at++)
		block[at] = (uint8_t)unit_random();
	return block;
}

/* check_gather -- against the record put together plainly and its CRC by the table. */
static void check_gather(enum farlog_flush_method method, const struct record_identity *identity,
	const struct record_header *header, const uint8_t *key, const uint8_t *payload)
{
	static uint8_t expected[GATHER_LEN_MAX] __attribute__((aligned(64)));
	static uint8_t scratch[GATHER_LEN_MAX] __attribute__((aligned(64)));
	static uint8_t dst[GATHER_LEN_MAX + 128] __attribute__((aligned(64)));
	uint64_t extent = record_extent(identity->align, header->key_len, header->payload_len);
	struct gather gather;
	uint32_t crc;

	record_build(identity, header, key, payload, expected);
	crc = crc32c_update_table((uint32_t)identity->salt, expected, RECORD_CRC_OFF);
	crc = crc32c_update_table(crc, expected + RECORD_HEADER_LEN, header->key_len + header->payload_len);
	assert_memory_equal(expected + RECORD_CRC_OFF, &crc, sizeof(crc));
	record_gather(identity, header, key, payload, extent, &gather);
	gather.scratch = scratch;
	memset(dst, 0xEE, sizeof(dst));
	persist_find_gather(method)(dst + 64, &gather);
	persist_fence();
	assert_memory_equal(dst + 64, expected, extent);
	assert_int_equal(dst[63], 0xEE);
	assert_int_equal(dst[64 + extent], 0xEE);
}

/* Pieces of every length and alignment, in blocks of exactly their size, so that a byte read beyond them is seen. */
static void persist__every_method_gathers_exactly(void **state)
{
	static const uint32_t aligns[] = {64, 64, 256, 4096};

	(void)state;
	for (unsigned i = 0; i < 6000; i++) {
		enum farlog_flush_method method = methods[i % (sizeof(methods) / sizeof(methods[0]))];
		struct record_identity identity = {.salt = unit_random(),
			.capacity = 1 << 20,
			.align = aligns[unit_below(4)],
			.record_len_max = GATHER_LEN_MAX};
		struct record_header header = {.lsn = unit_random(),
			.seq = unit_random(),
			.epoch = 3,
			.ts_ns = unit_random(),
			.clock_err_ns = (uint32_t)unit_random(),
			.class_id = (uint16_t)unit_random(),
			.stream_id = (uint32_t)unit_random(),
			.key_len = (uint16_t)unit_below(i % 3 ? 40 : 300),
			.payload_len = (uint32_t)unit_below(i % 5 ? 200 : 6000)};
		unsigned shift = (unsigned)unit_below(64);
		uint8_t *key = random_block(header.key_len);
		uint8_t *block = header.payload_len > 0 ? random_block(header.payload_len + shift) : NULL;

		if (persist_is_supported(method))
			check_gather(method, &identity, &header, key, block != NULL ? block + shift : NULL);
		free(key);
		free(block);
	}
}

static void persist__fastest_is_a_supported_flush(void **state)
{
	enum farlog_flush_method fastest = persist_find_fastest();

	(void)state;
	assert_true(persist_is_supported(fastest));
	assert_true(fastest != FARLOG_FLUSH_NONE && fastest != FARLOG_FLUSH_MSYNC);
	assert_int_equal(persist_find_fastest(), fastest);
}

static void persist__names_both_ways(void **state)
{
	enum farlog_flush_method method;

	(void)state;
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		assert_true(persist_find_method(persist_method_name(methods[i]), &method));
		assert_int_equal(method, methods[i]);
	}
	assert_true(persist_find_method("auto", &method));
	assert_false(persist_find_method("", &method));
	assert_false(persist_find_method("CLWB", &method));
}

static void persist__range_of_any_length(void **state)
{
	static uint8_t bytes[1000];

	(void)state;
	for (size_t len = 0; len < sizeof(bytes); len += 37)
		persist_range(bytes, len);
}

/* A range that begins within a line has one line more than its length says. The lines are those that lie less than a
 * line behind the first one, and so on. */
static void persist__range_takes_every_line(void **state)
{
	static uint8_t bytes[512] __attribute__((aligned(64)));

	(void)state;
	for (size_t from = 0; from < 128; from++)
		for (size_t len = 1; len < 200; len++) {
			uintptr_t last = (uintptr_t)(bytes + from + len - 1) / 64 * 64;

			const char *end;
			uintptr_t line = (uintptr_t)persist_lines(bytes + from, len, &end);

			persist_range(bytes + from, len);
			assert_int_equal(line, (uintptr_t)(bytes + from) / 64 * 64);
			assert_int_equal(line + ((uintptr_t)end - line - 1) / 64 * 64, last);
		}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(persist__range_takes_every_line),
	cmocka_unit_test(persist__every_method_copies_exactly),
	cmocka_unit_test(persist__every_method_gathers_exactly),
	cmocka_unit_test(persist__fastest_is_a_supported_flush),
	cmocka_unit_test(persist__names_both_ways),
	cmocka_unit_test(persist__range_of_any_length),
};
RUN_GROUP(persist, tests)
