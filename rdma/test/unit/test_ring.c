#include "ring/ring.h"
#include "unit.h"

static struct ring ring_of(uint64_t capacity)
{
	return (struct ring){.capacity = capacity, .warn_bytes = capacity / 100 * 70, .alarm_bytes = capacity / 100 * 85};
}

/* The inequalities of the design hold after every step, whatever the sizes. */
static void ring__inequalities_hold(void **state)
{
	(void)state;
	for (unsigned life = 0; life < 200; life++) {
		struct ring ring = ring_of(4096 * (1 + unit_below(8)));

		ring.appended_lsn = ring.credit_lsn = ring.capacity * unit_below(1u << 20);
		for (unsigned i = 0; i < 500; i++) {
			struct ring_place place;
			uint64_t before = ring.appended_lsn;
			uint64_t extent = 64 * (1 + unit_below(16));

			ring_place(&ring, extent, &place);
			assert_int_equal(place.record_off, place.record_lsn % ring.capacity);
			assert_true(place.record_off + extent <= ring.capacity);
			assert_int_equal(place.end_lsn, place.record_lsn + extent);
			assert_true(place.pad_len == 0 || (before + place.pad_len) % ring.capacity == 0);
			assert_true(place.pad_len < extent);
			if (ring_has_room(&ring, &place)) {
				ring_advance(&ring, &place);
				assert_int_equal(ring.appended_off, ring.appended_lsn % ring.capacity);
			} else {
				assert_int_equal(ring.appended_lsn, before);
				ring.credit_lsn += 64 * (1 + unit_below((ring.appended_lsn - ring.credit_lsn) / 64));
			}
			assert_true(ring.credit_lsn <= ring.appended_lsn);
			assert_true(ring_used(&ring) <= ring.capacity);
		}
	}
}

static void ring__exactly_full(void **state)
{
	struct ring ring = ring_of(4096);
	struct ring_place place;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		ring_place(&ring, 1024, &place);
		assert_true(ring_has_room(&ring, &place));
		ring_advance(&ring, &place);
	}
	ring_place(&ring, 64, &place);
	assert_int_equal(place.pad_len, 0);
	assert_false(ring_has_room(&ring, &place));
	ring.credit_lsn = 64;
	assert_true(ring_has_room(&ring, &place));
	assert_int_equal(ring.next_seq, 4);
}

static void ring__pad_counts_as_used(void **state)
{
	struct ring ring = ring_of(4096);
	struct ring_place place;

	(void)state;
	ring.appended_lsn = ring.credit_lsn = 4032;
	ring.appended_off = 4032;
	ring_place(&ring, 128, &place);
	assert_int_equal(place.pad_len, 64);
	assert_int_equal(place.record_lsn, 4096);
	ring_advance(&ring, &place);
	assert_int_equal(ring_used(&ring), 192);
	assert_int_equal(ring.next_seq, 1);
}

static void ring__pressure_marks(void **state)
{
	struct ring ring = ring_of(10000);

	(void)state;
	ring.appended_lsn = 6999;
	assert_int_equal(ring_pressure(&ring), 0);
	ring.appended_lsn = 7000;
	assert_int_equal(ring_pressure(&ring), 1);
	ring.appended_lsn = 8500;
	assert_int_equal(ring_pressure(&ring), 2);
	ring.credit_lsn = 8000;
	assert_int_equal(ring_pressure(&ring), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(ring__inequalities_hold),
	cmocka_unit_test(ring__exactly_full),
	cmocka_unit_test(ring__pad_counts_as_used),
	cmocka_unit_test(ring__pressure_marks),
};
RUN_GROUP(ring, tests)
