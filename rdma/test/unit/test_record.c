#include "ring/record.h"
#include "unit.h"

#define CAPACITY 8192u

static const struct record_identity identity = {.salt = 0x0123456789ABCDEFull,
	.capacity = CAPACITY,
	.align = 64,
	.record_len_max = 1024,
	.stream_id = 7};

static const struct record_header header = {.flags = 0,
	.lsn = 4 * CAPACITY + 128,
	.epoch = 5,
	.payload_len = 100,
	.seq = 33,
	.ts_ns = 1763700000000000000ull,
	.clock_err_ns = 250,
	.class_id = 3,
	.key_len = 9,
	.stream_id = 7};

static const struct record_cursor cursor = {.lsn = 4 * CAPACITY + 128, .seq = 33, .epoch = 5, .epoch_max = 6};

static uint8_t place[2048] __attribute__((aligned(64)));

static void build(const struct record_header *made)
{
	uint8_t payload[1024];

	memset(payload, 0x5A, sizeof(payload));
	memset(place, 0xEE, sizeof(place));
	record_build(&identity, made, "ORD-00042", payload, place);
}

static enum record_verdict check(const struct record_cursor *at)
{
	struct record_found found;

	return record_check(&identity, at, place, sizeof(place), &found);
}

static void record__built_is_valid(void **state)
{
	struct record_found found;
	struct record_cursor after = cursor;

	(void)state;
	build(&header);
	assert_int_equal(record_check(&identity, &cursor, place, sizeof(place), &found), RECORD_VALID);
	assert_int_equal(found.extent, 192);
	assert_int_equal(found.stored_len, 192);
	assert_int_equal(found.epoch, 5);
	record_advance(&after, &found);
	assert_int_equal(after.lsn, cursor.lsn + 192);
	assert_int_equal(after.seq, 34);
	assert_int_equal(place[192], 0xEE); /* not a byte beyond the extent */
	for (unsigned off = 56 + 9 + 100; off < 192 - 8; off++)
		assert_int_equal(place[off], 0);
}

/* Fields that another check than the CRC covers are covered twice; the zero fill is covered by none and proves
 * nothing. */
static void record__every_bit_flipped(void **state)
{
	(void)state;
	build(&header);
	for (unsigned bit = 0; bit < 192 * 8; bit++) {
		unsigned off = bit / 8;
		bool is_fill = off >= 56 + 9 + 100 && off < 192 - 8;

		place[off] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(check(&cursor),
			is_fill                          ? RECORD_VALID :
				check(&cursor) == RECORD_CUT ? RECORD_CUT :
											   RECORD_NOT_HERE);
		place[off] ^= (uint8_t)(1u << bit % 8);
	}
	assert_int_equal(check(&cursor), RECORD_VALID);
}

static void record__zeroes_and_ones(void **state)
{
	(void)state;
	memset(place, 0, sizeof(place));
	assert_int_equal(check(&cursor), RECORD_NOT_HERE);
	memset(place, 0xFF, sizeof(place));
	assert_int_equal(check(&cursor), RECORD_NOT_HERE);
}

static void record__other_position_seq_or_salt(void **state)
{
	struct record_cursor other = cursor;
	struct record_identity salted = identity;
	struct record_found found;

	(void)state;
	build(&header);
	other.lsn += CAPACITY;
	assert_int_equal(check(&other), RECORD_NOT_HERE);
	other = cursor;
	other.seq++;
	assert_int_equal(check(&other), RECORD_NOT_HERE);
	salted.salt ^= 1;
	assert_int_equal(record_check(&salted, &cursor, place, sizeof(place), &found), RECORD_NOT_HERE);
	salted.salt = identity.salt ^ (1ull << 40); /* the half that only the trailer knows */
	assert_int_equal(record_check(&salted, &cursor, place, sizeof(place), &found), RECORD_NOT_HERE);
}

static void record__epoch_rules(void **state)
{
	static const struct {
		uint32_t before, of_record, max;
		uint16_t flags;
		enum record_verdict verdict;
	} cases[] = {
		{5, 5, 9, 0, RECORD_VALID},
		{5, 4, 9, 0, RECORD_NOT_HERE},
		{5, 4, 9, RECORD_FLAG_EPOCH, RECORD_NOT_HERE},
		{5, 6, 9, 0, RECORD_NOT_HERE},
		{5, 6, 9, RECORD_FLAG_HEARTBEAT, RECORD_NOT_HERE},
		{5, 6, 9, RECORD_FLAG_EPOCH, RECORD_VALID},
		{5, 9, 9, RECORD_FLAG_EPOCH, RECORD_VALID},
		{5, 10, 9, RECORD_FLAG_EPOCH, RECORD_NOT_HERE},
		{0, 1, 1, RECORD_FLAG_EPOCH, RECORD_VALID},
		{0, 0, 1, 0, RECORD_NOT_HERE},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct record_header made = header;
		struct record_cursor at = cursor;

		made.epoch = cases[i].of_record;
		made.flags = cases[i].flags;
		at.epoch = cases[i].before;
		at.epoch_max = cases[i].max;
		build(&made);
		assert_int_equal(check(&at), cases[i].verdict);
	}
}

static void record__too_long_for_ring_or_maximum(void **state)
{
	struct record_header made = header;
	struct record_cursor at = cursor;
	struct record_found found;

	(void)state;
	made.payload_len = 1024; /* extent 1152 > record_len_max */
	build(&made);
	assert_int_equal(check(&at), RECORD_NOT_HERE);
	made = header;
	made.lsn = at.lsn = 5 * CAPACITY - 128; /* 192 bytes do not fit before the end */
	build(&made);
	assert_int_equal(check(&at), RECORD_NOT_HERE);
	build(&header);
	assert_int_equal(record_check(&identity, &cursor, place, 191, &found), RECORD_CUT);
	assert_int_equal(found.stored_len, 192);
	assert_int_equal(record_check(&identity, &cursor, place, 63, &found), RECORD_CUT);
}

static void record__pad(void **state)
{
	struct record_header made = header;
	struct record_cursor at = cursor;
	struct record_found found;

	(void)state;
	made.lsn = at.lsn = 5 * CAPACITY - 448;
	memset(place, 0xEE, sizeof(place));
	record_build_pad(&identity, &made, 448, place);
	assert_int_equal(record_check(&identity, &at, place, 448, &found), RECORD_VALID);
	assert_int_equal(found.extent, 448);
	assert_int_equal(found.stored_len, 64);
	assert_int_equal(place[64], 0xEE);
	record_advance(&at, &found);
	assert_int_equal(at.seq, header.seq);
	assert_int_equal(at.lsn, 5 * CAPACITY);
	record_build_pad(&identity, &made, 384, place); /* one that does not reach the end is none */
	at = cursor;
	at.lsn = made.lsn;
	assert_int_equal(record_check(&identity, &at, place, 448, &found), RECORD_NOT_HERE);
	record_build_pad(&identity, &made, 448, place);
	for (unsigned bit = 0; bit < 64 * 8; bit++) {
		place[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_not_equal(record_check(&identity, &at, place, 448, &found), RECORD_VALID);
		place[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static void record__key_and_payload_in_place(void **state)
{
	uint8_t copy[192];

	(void)state;
	build(&header);
	memcpy(copy, place, sizeof(copy));
	record_build(&identity, &header, place + 56, place + 56 + 9, place);
	assert_memory_equal(copy, place, sizeof(copy));
}

static void record__random_bytes_and_torn_words(void **state)
{
	uint8_t whole[192];

	(void)state;
	build(&header);
	memcpy(whole, place, sizeof(whole));
	for (unsigned i = 0; i < 20000; i++) {
		bool is_whole = true;

		for (unsigned word = 0; word < 192 / 8; word++) {
			uint64_t value = unit_random();

			if (unit_below(8) != 0)
				memcpy(place + 8 * word, whole + 8 * word, 8);
			else
				memcpy(place + 8 * word, &value, 8);
			is_whole &= memcmp(place + 8 * word, whole + 8 * word, 8) == 0 || word * 8 >= 168;
		}
		if (memcmp(place + 184, whole + 184, 8) != 0)
			is_whole = false;
		if (check(&cursor) == RECORD_VALID)
			assert_true(is_whole);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(record__built_is_valid),
	cmocka_unit_test(record__every_bit_flipped),
	cmocka_unit_test(record__zeroes_and_ones),
	cmocka_unit_test(record__other_position_seq_or_salt),
	cmocka_unit_test(record__epoch_rules),
	cmocka_unit_test(record__too_long_for_ring_or_maximum),
	cmocka_unit_test(record__pad),
	cmocka_unit_test(record__key_and_payload_in_place),
	cmocka_unit_test(record__random_bytes_and_torn_words),
};
RUN_GROUP(record, tests)
