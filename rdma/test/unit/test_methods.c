/* test_methods.c -- what a writer puts into a ring is the same, whichever way its bytes take there.
 *
 * Each test plays one script over every flush method of this processor: the default method of tmpfs takes a plain copy,
 * and would leave the ways of persistent memory untried. Beside the ring stands an image of it that is built here,
 * field by field as docs/reference/format.md has it. Every record must equal its image in the ring, and so must the
 * lines behind it, which no method may touch; after each drain the whole ring must, and what the reader gave. The image
 * takes over from the ring only what is not known before: EPOCH record, timestamp, clock error, and the CRC, which must
 * be that of the table. So the rings of two methods cannot differ in anything else either. */
#include "play.h"

static void script_every_length(void)
{
	for (uint16_t key_len = 0; key_len <= 70; key_len++)
		for (uint32_t len = 0; len <= 300; len++)
			play_append((enum way)((key_len + len) % WAY_COUNT), key_len, len);
}

/* The longest record that is streamed through registers has 4096 bytes in the ring. */
static void script_lengths_about_a_page(void)
{
	static const uint16_t key_lens[] = {0, 1, 7, 8, 56, 64, 70, 1000};
	static const uint32_t longer[] = {5000, 8191, 8192, 8193, 12345, 20000, RECORD_LEN_MAX - 64 - 1000};

	for (size_t i = 0; i < sizeof(key_lens) / sizeof(key_lens[0]); i++) {
		for (uint32_t len = 4096 - 64 - 64 - key_lens[i]; len <= 4096 + 64; len++)
			play_append((enum way)((i + len) % WAY_COUNT), key_lens[i], len);
		for (size_t j = 0; j < sizeof(longer) / sizeof(longer[0]); j++)
			play_append((enum way)((i + j) % WAY_COUNT), key_lens[i], longer[j]);
	}
}

static void fill_up_to(uint64_t off)
{
	while (play.lsn % CAPACITY != off) {
		uint64_t left = (off + CAPACITY - play.lsn % CAPACITY) % CAPACITY;

		play_append(WAY_SUBMIT, 0, (uint32_t)(left < 16384 ? left : 16384) - 64);
	}
}

/* A record that does not fit before the end: one line too long, any longer; and one that just fits. */
static void script_every_end(void)
{
	for (uint32_t left = 64; left <= 5120; left += 64) {
		enum way way = (enum way)(left / 64 % WAY_COUNT);

		fill_up_to(CAPACITY - left);
		play_append(way, (uint16_t)unit_below(left < 64 ? left : 64), left);
		fill_up_to(CAPACITY - left);
		play_append(way, 0, left + (uint32_t)unit_below(6000));
		fill_up_to(CAPACITY - left);
		play_append(way, 0, left - 64);
		assert_int_equal(play.lsn % CAPACITY, 0);
	}
}

static void script_any(void)
{
	for (unsigned i = 0; i < 1200; i++) {
		switch (unit_below(8)) {
		case 0:
			play_append_heartbeat();
			break;
		case 1:
			play_append_any_batch();
			break;
		case 2:
			play_append((enum way)unit_below(WAY_COUNT), (uint16_t)unit_below(1000), (uint32_t)unit_below(30000));
			break;
		default:
			play_append((enum way)unit_below(WAY_COUNT), (uint16_t)unit_below(80), (uint32_t)unit_below(600));
			break;
		}
	}
}

static bool has_room(uint64_t extent)
{
	uint64_t left = CAPACITY - play.lsn % CAPACITY;

	return play.lsn + (extent > left ? left : 0) + extent <= play.drained_lsn + CAPACITY;
}

/* append_if_room -- true: it was taken, and there was room for it; else neither. */
static bool append_if_room(enum way way, const struct farlog_entry *entry)
{
	struct farlog_position position;
	bool is_expected = has_room(play_extent_of(entry));

	assert_int_equal(play_append_by(way, entry, &position), is_expected ? FARLOG_OK : FARLOG_FULL);
	if (is_expected) {
		play_expect(entry, 0, &position);
		play.pending_count += way == WAY_SUBMIT;
	}
	return is_expected;
}

/* batch_until_full -- what fits of a batch is taken, and nothing behind the first that does not. */
static void batch_until_full(void)
{
	static uint8_t bytes[700];
	struct farlog_entry entries[300];
	struct farlog_position positions[300];
	size_t done, submitted, count = 0;
	int result;

	play_fill(bytes, sizeof(bytes));
	for (unsigned i = 0; i < 300; i++)
		entries[i] =
			(struct farlog_entry){.data = bytes, .len = (uint32_t)unit_below(sizeof(bytes)), .class_id = (uint16_t)i};
	result = farlog_append_batch(play.writer, entries, 300, 0, positions, &done, &submitted);
	while (count < 300 && has_room(play_extent_of(&entries[count])) && count < done) {
		play_expect(&entries[count], 0, &positions[count]);
		count++;
	}
	assert_int_equal(done, count);
	assert_int_equal(submitted, count);
	assert_true(count == 300 || !has_room(play_extent_of(&entries[count])));
	assert_int_equal(result, count == 300 ? FARLOG_OK : FARLOG_FULL);
	play.pending_count = 0;
	play_check();
}

/* A ring that nobody drains takes records up to its last line and not one more: those in it stay as they are. */
static void script_full(void)
{
	for (unsigned round = 0; round < 40; round++) {
		unsigned refused_count = 0;

		while (refused_count < 8) {
			struct farlog_entry entry =
				play_make_entry((uint16_t)unit_below(80), (uint32_t)unit_below(unit_below(8) == 0 ? 6000 : 600));

			refused_count += !append_if_room((enum way)unit_below(WAY_COUNT), &entry);
			if (play.pending_count == PENDING_MAX || refused_count > 0)
				play_wait_all();
			if (unit_below(100) == 0)
				batch_until_full();
		}
		batch_until_full();
		play_drain();
	}
}

static void script_too_large(void)
{
	for (uint32_t len = play.record_len_max - 64 - 20; len < play.record_len_max + 20; len++)
		for (unsigned way = 0; way < WAY_COUNT; way++) {
			struct farlog_entry entry = play_make_entry(3, len);
			struct farlog_position position;

			play_make_room(play_extent_of(&entry));
			if (play_extent_of(&entry) <= play.record_len_max)
				play_append((enum way)way, 3, len);
			else
				assert_int_equal(play_append_by((enum way)way, &entry, &position), FARLOG_TOO_LARGE);
			play_check();
		}
}

static void script_fenced(void)
{
	struct farlog_entry entry = play_make_entry(3, 100);
	struct farlog_position positions[2];
	struct farlog_error error;
	size_t done, submitted;

	play_append(WAY_APPEND, 3, 100);
	assert_int_equal(farlog_ring_fence(play.uri, 7, &error), FARLOG_OK);
	for (unsigned way = 0; way < WAY_COUNT; way++) {
		assert_int_equal(play_append_by((enum way)way, &entry, positions), FARLOG_FENCED);
		assert_int_equal(
			farlog_append_batch(play.writer, (struct farlog_entry[]){entry, entry}, 2, 0, positions, &done, &submitted),
			FARLOG_FENCED);
		assert_int_equal(submitted, 0);
		play_check();
	}
}

static void script_shared(void)
{
	for (unsigned i = 0; i < 3000; i++)
		play_append(WAY_APPEND, (uint16_t)unit_below(i % 7 ? 80 : 1000), (uint32_t)unit_below(i % 11 ? 500 : 9000));
}

static void methods__every_key_and_payload_length(void **state)
{
	(void)state;
	play_over_methods(script_every_length, 64, RECORD_LEN_MAX, false);
}

static void methods__lengths_about_a_page(void **state)
{
	(void)state;
	play_over_methods(script_lengths_about_a_page, 64, RECORD_LEN_MAX, false);
}

static void methods__every_end_of_the_ring(void **state)
{
	(void)state;
	play_over_methods(script_every_end, 64, RECORD_LEN_MAX, false);
}

static void methods__every_way_to_append(void **state)
{
	(void)state;
	play_over_methods(script_any, 64, RECORD_LEN_MAX, false);
	play_over_methods(script_any, 256, RECORD_LEN_MAX, false);
	play_over_methods(script_any, 4096, RECORD_LEN_MAX, false);
}

static void methods__shared_writer(void **state)
{
	(void)state;
	play_over_methods(script_shared, 64, RECORD_LEN_MAX, true);
	play_over_methods(script_shared, 1024, RECORD_LEN_MAX, true);
}

static void methods__full(void **state)
{
	(void)state;
	play_over_methods(script_full, 64, RECORD_LEN_MAX, false);
}

static void methods__too_large(void **state)
{
	(void)state;
	play_over_methods(script_too_large, 64, 1024, false);
	play_over_methods(script_too_large, 64, 4096, false);
	play_over_methods(script_too_large, 64, RECORD_LEN_MAX, false);
}

static void methods__fenced(void **state)
{
	(void)state;
	play_over_methods(script_fenced, 64, RECORD_LEN_MAX, false);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(methods__full),
	cmocka_unit_test(methods__too_large),
	cmocka_unit_test(methods__fenced),
	cmocka_unit_test(methods__every_key_and_payload_length),
	cmocka_unit_test(methods__lengths_about_a_page),
	cmocka_unit_test(methods__every_end_of_the_ring),
	cmocka_unit_test(methods__every_way_to_append),
	cmocka_unit_test(methods__shared_writer),
};
RUN_GROUP(methods, tests)
