#include "base/crc32c.h"
#include "unit.h"

#define LEN_MAX 2048u

static void crc32c__known_vectors(void **state)
{
	/* RFC 3720, appendix B.4: 32 bytes of zeros, of ones, ascending, descending. */
	uint8_t bytes[32];

	(void)state;
	assert_int_equal(crc32c_update(0, "123456789", 9), 0xE3069283u);
	assert_int_equal(crc32c_update(0, "", 0), 0);
	memset(bytes, 0, sizeof(bytes));
	assert_int_equal(crc32c_update(0, bytes, sizeof(bytes)), 0x8A9136AAu);
	memset(bytes, 0xFF, sizeof(bytes));
	assert_int_equal(crc32c_update(0, bytes, sizeof(bytes)), 0x62A8AB43u);
	for (unsigned i = 0; i < 32; i++)
		bytes[i] = (uint8_t)i;
	assert_int_equal(crc32c_update(0, bytes, sizeof(bytes)), 0x46DD794Eu);
	for (unsigned i = 0; i < 32; i++)
		bytes[i] = (uint8_t)(31 - i);
	assert_int_equal(crc32c_update(0, bytes, sizeof(bytes)), 0x113FDB5Cu);
}

static void crc32c__every_length_and_alignment_equals_table(void **state)
{
	static uint8_t bytes[LEN_MAX + 64];

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)unit_random();
	for (size_t len = 0; len <= LEN_MAX; len += len < 700 ? 1 : 37) {
		size_t off = unit_below(64);
		uint32_t seed = (uint32_t)unit_random();

		assert_int_equal(crc32c_update(seed, bytes + off, len), crc32c_update_table(seed, bytes + off, len));
	}
}

static void crc32c__continued_equals_whole(void **state)
{
	static uint8_t bytes[LEN_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)unit_random();
	for (unsigned i = 0; i < 2000; i++) {
		size_t len = unit_below(LEN_MAX);
		size_t cut = unit_below(len + 1);
		uint32_t seed = (uint32_t)unit_random();

		assert_int_equal(
			crc32c_update(crc32c_update(seed, bytes, cut), bytes + cut, len - cut), crc32c_update(seed, bytes, len));
	}
}

static void crc32c__of_a_record_equals_table(void **state)
{
	static uint8_t bytes[LEN_MAX + 128];

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)unit_random();
	for (size_t len = 0; len <= LEN_MAX; len += len < 700 ? 1 : 37) {
		const uint8_t *head = bytes + unit_below(64);
		const uint8_t *body = bytes + 64 + unit_below(64);
		uint32_t seed = (uint32_t)unit_random();

		assert_int_equal(crc32c_record(seed, head, body, len),
			crc32c_update_table(crc32c_update_table(seed, head, CRC32C_HEAD_LEN), body, len));
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(crc32c__known_vectors),
	cmocka_unit_test(crc32c__every_length_and_alignment_equals_table),
	cmocka_unit_test(crc32c__of_a_record_equals_table),
	cmocka_unit_test(crc32c__continued_equals_whole),
};
RUN_GROUP(crc32c, tests)
