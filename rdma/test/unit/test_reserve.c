/* Reservations of a namespace that several hosts reach: who is let in, who is not, and what the texts say. What the
 * fence itself is worth: fault/takeover.c. */
#include <errno.h>
#include <stdio.h>

#include "adversary/blocks.h"
#include "blocks/reserve.h"
#include "base/clock.h"
#include "blocks/nvme.h"
#include "unit.h"
#include "log/writer.h"

#define NAME "reserve-blocks"
#define URI "block-fault:" NAME
#define SIZE (0x3000u + (64u << 10))

static void make(void)
{
	farlog_block_drop(NAME);
	farlog_block_hosts(1);
	farlog_block_host(0);
	farlog_block_shape(512, 1);
	unit_format(URI, SIZE, 8192);
	farlog_block_hosts(0);
	farlog_block_reseed(NAME, unit_random() | 1);
}

static farlog_writer *open_on(int host)
{
	farlog_writer *writer;

	farlog_block_host(host);
	writer = unit_open(URI);
	farlog_block_host(0);
	return writer;
}

static void expect_drain(int host, int result, const char *text)
{
	struct farlog_reader_config config = {.is_drain = 1};
	struct farlog_error error = {0};
	farlog_reader *reader;

	farlog_block_host(host);
	assert_int_equal(farlog_reader_open(URI, &config, &reader, &error), result);
	farlog_block_host(0);
	if (text != NULL && strstr(error.text, text) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", error.text, text);
	farlog_reader_close(reader);
}

static void expect_format(int host, bool is_forced, int result, const char *text)
{
	struct farlog_ring_config config = {.size_bytes = SIZE, .record_len_max = 8192, .is_forced = is_forced};
	struct farlog_error error = {0};

	farlog_block_host(host);
	assert_int_equal(farlog_ring_format(URI, &config, &error), result);
	farlog_block_host(0);
	if (text != NULL && strstr(error.text, text) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", error.text, text);
}

/* The formula is in docs/reference/format.md; no key is 0, and one that differs in any part is another. */
static void key__by_its_formula(void **state)
{
	static const uint8_t uuid[16] = {1, 2, 3};
	static const uint8_t other[16] = {1, 2, 4};
	uint64_t key = reserve_key(RESERVE_TAG_WRITER, uuid, 7, "aaaaaaaa-1111-4111-8111-111111111111");

	(void)state;
	assert_int_equal(key, 0xFA10C9553DC40813ULL);
	assert_int_not_equal(key, reserve_key(RESERVE_TAG_WRITER, uuid, 8, "aaaaaaaa-1111-4111-8111-111111111111"));
	assert_int_not_equal(key, reserve_key(RESERVE_TAG_WRITER, other, 7, "aaaaaaaa-1111-4111-8111-111111111111"));
	assert_int_not_equal(key, reserve_key(RESERVE_TAG_WRITER, uuid, 7, "aaaaaaaa-1111-4111-8111-111111111112"));
	assert_int_equal(reserve_key(RESERVE_TAG_OTHER, NULL, 0, "") >> 48, 0xFA11);
}

/* The writer that was stopped finds out by its next append, and within its deadline. */
static void append__fenced_by_the_device(void **state)
{
	struct farlog_position position;
	farlog_writer *former;
	farlog_writer *writer;
	uint64_t start_ns;

	(void)state;
	make();
	former = open_on(1);
	assert_int_equal(unit_append(former, 100, 1, &position), FARLOG_OK);
	writer = open_on(2);
	start_ns = clock_monotonic_ns();
	assert_int_equal(unit_append(former, 100, 2, &position), FARLOG_FENCED);
	assert_true(clock_monotonic_ns() - start_ns < 5000000000u);
	assert_int_equal(position.epoch, farlog_writer_recovery(writer)->epoch);
	assert_int_equal(unit_append(former, 100, 3, &position), FARLOG_FENCED);
	assert_int_equal(unit_append(writer, 100, 4, &position), FARLOG_OK);
	farlog_writer_close(former);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

/* Of a batch that was refused nothing counts as acknowledged, whatever its positions say. */
static void append_batch__fenced_by_the_device(void **state)
{
	struct farlog_entry entries[3] = {{.data = "a", .len = 1}, {.data = "b", .len = 1}, {.data = "c", .len = 1}};

	(void)state;
	for (size_t count = 1; count <= 3; count++) {
		struct farlog_position positions[3];
		farlog_writer *former;
		farlog_writer *writer;
		size_t submitted;
		size_t done;

		make();
		former = open_on(1);
		assert_int_equal(farlog_append_batch(former, entries, count, 0, positions, &done, &submitted), FARLOG_OK);
		assert_int_equal(done, count);
		writer = open_on(2);
		assert_int_equal(farlog_append_batch(former, entries, count, 0, positions, &done, &submitted), FARLOG_FENCED);
		assert_int_equal(done, 0);
		farlog_writer_close(former);
		farlog_writer_close(writer);
	}
}

/* A drain on the former writer's host would open that host's way to the ring again: not while that writer lives. */
static void drain__waits_for_the_zombie_of_its_host(void **state)
{
	farlog_writer *former;
	farlog_writer *writer;

	(void)state;
	make();
	former = open_on(1);
	expect_drain(1, FARLOG_OK, NULL); /* beside a writer whose host is registered */
	writer = open_on(2);
	expect_drain(1, FARLOG_HELD, "still lives on this host");
	expect_drain(2, FARLOG_OK, NULL);
	expect_drain(3, FARLOG_OK, NULL);
	farlog_writer_close(former);
	expect_drain(1, FARLOG_OK, NULL);
	farlog_writer_close(writer);
}

/* A takeover takes the former writer's right away, and nobody else's. */
static void drain__goes_on_over_a_takeover(void **state)
{
	static uint8_t buffer[64 << 10];
	struct farlog_reader_config config = {.is_drain = 1};
	struct farlog_position position;
	struct farlog_batch batch;
	farlog_reader *drain;
	farlog_writer *former;
	farlog_writer *writer;

	(void)state;
	make();
	farlog_block_host(3);
	assert_int_equal(farlog_reader_open(URI, &config, &drain, NULL), FARLOG_OK);
	former = open_on(1);
	assert_int_equal(unit_append(former, 100, 1, &position), FARLOG_OK);
	writer = open_on(2);
	assert_int_equal(unit_append(writer, 100, 2, &position), FARLOG_OK);
	while (farlog_reader_read(drain, buffer, sizeof(buffer), &batch) == FARLOG_OK)
		assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	farlog_reader_close(drain);
	farlog_writer_close(former);
	farlog_writer_close(writer);
}

/* A ring in whose namespace a writer of another host may live is not formatted by mistake. */
static void format__reserved_by_another_host(void **state)
{
	struct farlog_position position;
	farlog_writer *writer;

	(void)state;
	make();
	farlog_block_host(1);
	/* so long its closing waits for what is on its way */
	assert_int_equal(farlog_writer_open(URI, CONFIG(.deadline_ns = 100000000), &writer, NULL), FARLOG_OK);
	farlog_block_host(0);
	expect_format(2, false, FARLOG_HELD, "reserved by another host");
	expect_format(2, true, FARLOG_OK, NULL);
	assert_int_not_equal(
		farlog_append(writer, &(struct farlog_entry){.data = "x", .len = 1}, 100000000, &position), FARLOG_OK);
	farlog_writer_close(writer);
	writer = open_on(1);
	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	farlog_writer_close(writer);
}

/* A call of reservations that fails, each in turn: a writer elsewhere is safe from a format, and a takeover that
 * succeeds has shut it out. */
static void open__reservations_cannot_be_looked_at(void **state)
{
	struct farlog_ring_config config = {.size_bytes = SIZE, .record_len_max = 8192};
	struct farlog_position position;
	unsigned failed_count = 0;
	bool is_over = false;

	(void)state;
	for (unsigned call = 1; !is_over; call++) {
		farlog_writer *former;
		farlog_writer *next = NULL;
		int result;

		make();
		assert_int_equal(farlog_writer_open(URI, CONFIG(.deadline_ns = 100000000), &former, NULL), FARLOG_OK);
		farlog_block_host(1);
		farlog_block_fail_reservation(call);
		assert_int_equal(farlog_ring_format(URI, &config, NULL), call == 1 ? FARLOG_IO : FARLOG_HELD);
		farlog_block_fail_reservation(call);
		result = farlog_writer_open(URI, CONFIG(.deadline_ns = 100000000), &next, NULL);
		is_over = !farlog_block_has_failed_reservation();
		farlog_block_fail_reservation(0);
		farlog_block_host(0);
		failed_count += result != FARLOG_OK;
		if (result == FARLOG_OK) {
			assert_int_not_equal(
				farlog_append(former, &(struct farlog_entry){.data = "x", .len = 1}, 100000000, &position), FARLOG_OK);
			assert_int_equal(unit_append(next, 100, 1, &position), FARLOG_OK);
		}
		farlog_writer_close(former);
		farlog_writer_close(next);
	}
	assert_true(failed_count >= 2);
}

/* A fence from any host, beside a writer of another. */
static void fence__from_another_host(void **state)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	(void)state;
	make();
	writer = open_on(1);
	farlog_block_host(2);
	if (farlog_ring_fence(URI, 5, &error) != FARLOG_OK)
		fail_msg("fence: %s", error.text);
	farlog_block_host(0);
	farlog_writer_close(writer);
}

/* The restart of a target that keeps no reservations: the one who rested looks first, and the drain need do nothing. */
static void append__fenced_although_the_target_forgot(void **state)
{
	struct farlog_position position;
	farlog_writer *former;
	farlog_writer *writer;

	(void)state;
	make();
	former = open_on(1);
	writer = open_on(2);
	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	for (uint64_t i = 0, durable_lsn; i < 200; i++) {
		may_fail(farlog_poll(writer, &durable_lsn)); /* what goes beside a commit comes back */
		may_fail(farlog_poll(former, &durable_lsn));
	}
	farlog_block_restart(NAME);
	assert_int_equal(unit_append(former, 100, 2, &position), FARLOG_FENCED);
	expect_drain(3, FARLOG_OK, NULL);
	farlog_writer_close(former);
	farlog_writer_close(writer);
	writer = open_on(1);
	assert_int_equal(unit_append(writer, 100, 3, &position), FARLOG_OK);
	farlog_writer_close(writer);
}

static int append_within(farlog_writer *writer, uint64_t deadline_ns, struct farlog_position *position)
{
	struct farlog_entry entry = {.data = "x", .len = 1};

	return farlog_append(writer, &entry, deadline_ns, position);
}

/* A writer that has rested looks at the fence before it commits. A device that does not answer costs it that append's
 * outcome, and no more. */
static void append__look_that_hangs(void **state)
{
	struct farlog_position position;
	struct farlog_position resolved;
	farlog_writer *writer;

	(void)state;
	make();
	writer = open_on(1);
	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	farlog_block_trouble(NAME, 2, 0);
	for (unsigned i = 0; i < 3; i++) {
		uint64_t start_ns = clock_monotonic_ns();

		assert_int_equal(append_within(writer, 3000000, &position), FARLOG_UNKNOWN);
		assert_true(clock_monotonic_ns() - start_ns < 1000000000u);
	}
	farlog_block_trouble(NAME, 0, 0);
	assert_int_equal(unit_append(writer, 100, 2, &resolved), FARLOG_OK);
	assert_int_equal(farlog_resolve(writer, position.lsn, 0, &resolved), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

/* The same, and by the time that the device answers another host has the ring. */
static void append__look_that_hangs_and_says_fenced(void **state)
{
	struct farlog_position position;
	farlog_writer *former;
	farlog_writer *writer;

	(void)state;
	make();
	former = open_on(1);
	assert_int_equal(unit_append(former, 100, 1, &position), FARLOG_OK);
	farlog_block_trouble(NAME, 2, 0);
	assert_int_equal(append_within(former, 3000000, &position), FARLOG_UNKNOWN);
	farlog_block_trouble(NAME, 0, 0);
	writer = open_on(2);
	assert_int_equal(unit_append(writer, 100, 2, &position), FARLOG_OK);
	assert_int_equal(unit_append(former, 100, 3, &position), FARLOG_FENCED);
	farlog_writer_close(former);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

/* fall_behind -- a look was answered, its writer did not come by to take the answer; meanwhile another host has taken
 * the ring over, and the target has forgotten that. Returns what its record comes to. */
static int fall_behind(void)
{
	struct farlog_position position;
	struct region_nvme *nvme;
	farlog_writer *former;
	farlog_writer *writer;
	int result;

	make();
	former = open_on(1);
	assert_int_equal(unit_append(former, 100, 1, &position), FARLOG_OK);
	nvme = nvme_of(former->region);
	for (uint64_t i = 0, durable_lsn; i < 200; i++)
		may_fail(farlog_poll(former, &durable_lsn)); /* what goes beside a commit comes back */
	nvme->device->is_clockless = false;
	nvme->words_read_ns = 0;
	farlog_block_trouble(NAME, 3, 0);
	assert_int_equal(append_within(former, 3000000, &position), FARLOG_UNKNOWN);
	farlog_block_trouble(NAME, 0, 0);
	writer = open_on(2);
	assert_int_equal(unit_append(writer, 100, 2, &position), FARLOG_OK);
	for (uint64_t i = 0, durable_lsn; i < 200; i++)
		may_fail(farlog_poll(writer, &durable_lsn));
	farlog_block_restart(NAME);
	nvme->held_ns -= 2000000000u;
	result = farlog_wait(former, former->ring.appended_lsn, 10000000000u);
	farlog_writer_close(former);
	farlog_writer_close(writer);
	return result;
}

static void append__look_that_is_old(void **state)
{
	(void)state;
	assert_int_equal(fall_behind(), FARLOG_FENCED);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(key__by_its_formula),
	cmocka_unit_test(append__fenced_by_the_device),
	cmocka_unit_test(append_batch__fenced_by_the_device),
	cmocka_unit_test(drain__waits_for_the_zombie_of_its_host),
	cmocka_unit_test(drain__goes_on_over_a_takeover),
	cmocka_unit_test(format__reserved_by_another_host),
	cmocka_unit_test(open__reservations_cannot_be_looked_at),
	cmocka_unit_test(fence__from_another_host),
	cmocka_unit_test(append__fenced_although_the_target_forgot),
	cmocka_unit_test(append__look_that_hangs),
	cmocka_unit_test(append__look_that_hangs_and_says_fenced),
	cmocka_unit_test(append__look_that_is_old),
};
RUN_GROUP(reserve, tests)
