/* test_settings.c -- level, policy and deadline are changed while a writer runs: from which record on they hold, and
 * what of several members is asked for meanwhile. */
#include "farlog/settings.h"

#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "farlog/host.h"
#include "ring/layout.h"
#include "adversary/memory.h"
#include "fault/tended.h"
#include "members/members.h"
#include "unit.h"
#include "log/writer.h"

#define COUNT 3u
#define WHOLE "members:2 fault:terms-1 fault:terms-2 fault:terms-3"
#define WEAK 0u /* the member that gives less than the others */
#define STEPS_MAX 2000u
#define LONG_NS 600000000000u
#define TERMS(...) (&(struct farlog_writer_settings){__VA_ARGS__})

static const char *const names[COUNT] = {"terms-1", "terms-2", "terms-3"};

static void format_one(const char *uri, uint64_t data_len)
{
	struct farlog_ring_config config = {
		.size_bytes = LAYOUT_DATA_OFF + data_len, .record_len_max = 1024, .is_forced = 1, .salt = 0x81};
	struct farlog_error error = {0};

	if (farlog_ring_format(uri, &config, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
}

static void set(farlog_writer *writer, uint32_t level)
{
	struct farlog_error error = {0};

	if (farlog_writer_settings_set(writer,
			TERMS(.level = level, .policy = FARLOG_POLICY_REJECT, .deadline_ns = 50000000), &error) != FARLOG_OK)
		fail_msg("%s", error.text);
}

static farlog_writer *begin(uint32_t level)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	members_are_tended = true;
	for (unsigned i = 0; i < COUNT; i++) {
		char uri[32];

		snprintf(uri, sizeof(uri), "fault:%s", names[i]);
		farlog_fault_reseed(names[i], i + 1);
		format_one(uri, 16 * LAYOUT_BLOCK_LEN);
		farlog_fault_set_slowness(names[i], 0);
	}
	if (farlog_writer_open(WHOLE, CONFIG(.deadline_ns = 50000000, .policy = FARLOG_POLICY_REJECT, .level = level),
			&writer, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	members_of(writer->region)->members[WEAK].region->contract.level = FARLOG_LEVEL_VISIBLE;
	return writer;
}

static void end(farlog_writer *writer)
{
	(void)farlog_writer_close(writer);
	members_are_tended = false;
	for (unsigned i = 0; i < COUNT; i++)
		farlog_fault_drop(names[i]);
}

static struct farlog_writer_settings terms_of(farlog_writer *writer)
{
	struct farlog_writer_settings terms;

	farlog_writer_settings_read(writer, &terms);
	return terms;
}

/* settings__from_the_next_append -- and not before, whichever way it comes. */
static void settings__from_the_next_append(void **state)
{
	struct farlog_position first, positions[2];
	size_t done, submitted;
	farlog_writer *writer;

	(void)state;
	unit_fault(LAYOUT_DATA_OFF + 4 * LAYOUT_BLOCK_LEN, 1024);
	assert_int_equal(farlog_writer_open(FAULT_URI, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, NULL), FARLOG_OK);
	assert_int_equal(unit_append(writer, 100, 1, &first), FARLOG_OK);
	assert_int_equal(first.level, FARLOG_LEVEL_VISIBLE);
	set(writer, FARLOG_LEVEL_PERSISTENT);
	assert_int_equal(terms_of(writer).level, FARLOG_LEVEL_VISIBLE);
	assert_int_equal(farlog_writer_policy(writer), FARLOG_POLICY_BLOCK);
	assert_int_equal(unit_append(writer, 100, 1, &positions[0]), FARLOG_OK);
	assert_int_equal(positions[0].level, FARLOG_LEVEL_PERSISTENT);
	assert_int_equal(terms_of(writer).level, FARLOG_LEVEL_PERSISTENT);
	assert_true(terms_of(writer).from_lsn == positions[0].lsn);
	assert_true(terms_of(writer).deadline_ns == 50000000);
	assert_int_equal(farlog_writer_policy(writer), FARLOG_POLICY_REJECT);
	assert_int_equal(farlog_resolve(writer, first.lsn, 0, &first), FARLOG_OK);
	assert_int_equal(first.level, FARLOG_LEVEL_VISIBLE);

	set(writer, FARLOG_LEVEL_POSTED);
	assert_int_equal(unit_submit(writer, 100, 1, &positions[0]), FARLOG_OK);
	assert_int_equal(terms_of(writer).level, FARLOG_LEVEL_POSTED);
	assert_int_equal(farlog_wait(writer, positions[0].end_lsn, 0), FARLOG_OK);
	set(writer, FARLOG_LEVEL_PERSISTENT);
	assert_int_equal(
		farlog_append_batch(writer, (struct farlog_entry[]){{.data = "a", .len = 1}, {.data = "b", .len = 1}}, 2, 0,
			positions, &done, &submitted),
		FARLOG_OK);
	assert_int_equal(positions[0].level, FARLOG_LEVEL_PERSISTENT);
	assert_int_equal(positions[1].level, FARLOG_LEVEL_PERSISTENT);
	set(writer, FARLOG_LEVEL_VISIBLE);
	set(writer, FARLOG_LEVEL_PERSISTENT); /* before an append has come by: nothing has changed */
	assert_int_equal(unit_append(writer, 100, 1, &positions[0]), FARLOG_OK);
	assert_true(terms_of(writer).from_lsn < positions[0].lsn);
	(void)farlog_writer_close(writer);
}

/* settings__policy_and_deadline -- of a ring that is full. */
static void settings__policy_and_deadline(void **state)
{
	struct farlog_position position;
	farlog_writer *writer;
	uint64_t start_ns;

	(void)state;
	unit_fault(LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN, 1024);
	assert_int_equal(farlog_writer_open(FAULT_URI, CONFIG(.policy = FARLOG_POLICY_REJECT), &writer, NULL), FARLOG_OK);
	while (unit_append(writer, 900, 1, &position) == FARLOG_OK)
		;
	assert_int_equal(
		farlog_writer_settings_set(writer,
			TERMS(.level = FARLOG_LEVEL_PERSISTENT, .policy = FARLOG_POLICY_BLOCK, .deadline_ns = 20000000), NULL),
		FARLOG_OK);
	assert_int_equal(unit_append(writer, 900, 1, &position), FARLOG_FULL); /* took it in, and was under way already */
	start_ns = clock_monotonic_ns();
	assert_int_equal(unit_append(writer, 900, 1, &position), FARLOG_FULL);
	assert_true(clock_monotonic_ns() - start_ns >= 20000000);
	assert_int_equal(
		farlog_writer_settings_set(writer,
			TERMS(.level = FARLOG_LEVEL_PERSISTENT, .policy = FARLOG_POLICY_REJECT, .deadline_ns = LONG_NS), NULL),
		FARLOG_OK);
	assert_int_equal(unit_append(writer, 900, 1, &position), FARLOG_FULL);
	start_ns = clock_monotonic_ns();
	assert_int_equal(unit_append(writer, 900, 1, &position), FARLOG_FULL);
	assert_true(clock_monotonic_ns() - start_ns < LONG_NS);
	(void)farlog_writer_close(writer);
}

/* append_after_raise -- a stronger level is asked for while one of those that give it is away. */
static int append_after_raise(void)
{
	struct farlog_position position;
	farlog_writer *writer = begin(FARLOG_LEVEL_VISIBLE);
	int result;

	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	set(writer, FARLOG_LEVEL_PERSISTENT);
	farlog_fault_set_away(names[2], 1); /* left are one that gives it, and the weak one */
	result = unit_append(writer, 100, 1, &position);
	end(writer);
	return result;
}

/* settings__stronger_is_asked_of_members -- what is said to be persistent is so on as many as are needed. */
static void settings__stronger_is_asked_of_members(void **state)
{
	(void)state;
	assert_int_equal(append_after_raise(), FARLOG_UNKNOWN);
}

/* level_of_before -- of a record that the weak member counted for. */
static uint32_t level_of_before(void)
{
	farlog_writer *writer = begin(FARLOG_LEVEL_VISIBLE);
	struct farlog_position before, position;

	assert_int_equal(unit_append(writer, 100, 1, &before), FARLOG_OK);
	set(writer, FARLOG_LEVEL_PERSISTENT);
	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	assert_int_equal(position.level, FARLOG_LEVEL_PERSISTENT);
	assert_int_equal(farlog_resolve(writer, before.lsn, 0, &before), FARLOG_OK);
	end(writer);
	return before.level;
}

/* settings__before_stays_as_it_was -- what was acknowledged at the weaker level is never said to have the stronger
 * one. */
static void settings__before_stays_as_it_was(void **state)
{
	(void)state;
	assert_int_equal(level_of_before(), FARLOG_LEVEL_VISIBLE);
}

/* settle_before -- a record was appended at the stronger level, and is not there yet when a weaker one is asked for. */
static int settle_before(void)
{
	farlog_writer *writer = begin(FARLOG_LEVEL_PERSISTENT);
	struct farlog_position before, position;
	int result;

	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	farlog_fault_set_away(names[2], 1);
	assert_int_equal(unit_submit(writer, 100, 1, &before), FARLOG_OK);
	set(writer, FARLOG_LEVEL_VISIBLE);
	assert_int_equal(unit_submit(writer, 100, 1, &position), FARLOG_OK);
	result = farlog_wait(writer, before.end_lsn, 0);
	farlog_fault_set_away(names[2], 0);
	for (unsigned i = 0; i < STEPS_MAX && farlog_wait(writer, position.end_lsn, 1) != FARLOG_OK; i++)
		members_tend(writer->region);
	assert_int_equal(farlog_resolve(writer, before.lsn, 0, &before), FARLOG_OK);
	assert_int_equal(before.level, FARLOG_LEVEL_PERSISTENT);
	farlog_fault_set_away(names[2], 1); /* from now on the weak one is enough */
	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	assert_int_equal(position.level, FARLOG_LEVEL_VISIBLE);
	end(writer);
	return result;
}

static void settings__weaker_waits_for_before(void **state)
{
	(void)state;
	assert_int_equal(settle_before(), FARLOG_UNKNOWN);
}

/* settings__refused -- with the text of an opening, and nothing changed. */
static void settings__refused(void **state)
{
	struct farlog_error error = {0};
	const char *uri = unit_tmpfs_uri("terms");
	farlog_writer *writer = begin(FARLOG_LEVEL_VISIBLE);
	struct farlog_position position;

	(void)state;
	farlog_fault_set_away(names[2], 1);
	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_writer_settings_set(writer, TERMS(.level = FARLOG_LEVEL_PERSISTENT), &error), FARLOG_LEVEL);
	assert_non_null(strstr(error.text, "1 of 3 members give it now, expected 2"));
	assert_int_equal(farlog_writer_settings_set(writer, TERMS(.level = 0), &error), FARLOG_INVALID);
	assert_int_equal(farlog_writer_settings_set(writer, TERMS(.level = FARLOG_LEVEL_STORED), &error), FARLOG_INVALID);
	assert_int_equal(
		farlog_writer_settings_set(writer, TERMS(.level = FARLOG_LEVEL_VISIBLE, .policy = 2), &error), FARLOG_INVALID);
	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	assert_int_equal(position.level, FARLOG_LEVEL_VISIBLE);
	end(writer);
	unit_format(uri, LAYOUT_DATA_OFF + 4 * LAYOUT_BLOCK_LEN, 1024);
	writer = unit_open(uri);
	assert_int_equal(farlog_writer_settings_set(writer, TERMS(.level = FARLOG_LEVEL_PERSISTENT), &error), FARLOG_LEVEL);
	assert_non_null(strstr(error.text, "asked for level persistent, but the ring's region gives visible at most"));
	assert_int_equal(farlog_writer_settings_set(writer, TERMS(.level = FARLOG_LEVEL_POSTED), &error), FARLOG_OK);
	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	assert_true(terms_of(writer).deadline_ns == farlog_writer_contract(writer)->deadline_default_ns);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

struct toggling {
	farlog_shared *shared;
	farlog_writer *writer;
	uint64_t is_over;
};

static void *toggle(void *context)
{
	struct toggling *toggling = context;

	for (uint32_t i = 0; !atomic_load_relaxed(&toggling->is_over); i++) {
		struct farlog_writer_settings terms = {.level = 1 + i % 2, .policy = i / 2 % 2, .deadline_ns = LONG_NS + i};

		if (toggling->shared != NULL ? farlog_shared_settings_set(toggling->shared, &terms, NULL) != FARLOG_OK :
									   farlog_writer_settings_set(toggling->writer, &terms, NULL) != FARLOG_OK)
			return (void *)1;
	}
	return NULL;
}

static void *append_on(void *context)
{
	farlog_shared *shared = context;
	struct farlog_position position;

	for (unsigned i = 0; i < 1500; i++)
		if (farlog_shared_append(shared, &(struct farlog_entry){.data = "x", .len = 1}, 0, &position) != FARLOG_OK ||
			position.level < 1 || position.level > 2)
			return (void *)1;
	return NULL;
}

/* settings__while_appending -- of one thread, by each way of appending, and of several. */
static void settings__while_appending(void **state)
{
	const char *uri = unit_tmpfs_uri("terms");
	struct farlog_position positions[2];
	struct toggling toggling = {0};
	pthread_t toggler, appenders[2];
	size_t done, submitted;
	void *failure;

	(void)state;
	unit_format(uri, LAYOUT_DATA_OFF + (8u << 20), 1024);
	toggling.writer = unit_open(uri);
	assert_int_equal(pthread_create(&toggler, NULL, toggle, &toggling), 0);
	for (unsigned i = 0; i < 1500; i++) {
		assert_int_equal(unit_append(toggling.writer, 20, 1, &positions[0]), FARLOG_OK);
		assert_in_range(positions[0].level, 1, 2);
		assert_int_equal(unit_submit(toggling.writer, 20, 1, &positions[0]), FARLOG_OK);
		assert_int_equal(farlog_append_batch(toggling.writer,
							 (struct farlog_entry[]){{.data = "a", .len = 1}, {.data = "b", .len = 1}}, 2, 0, positions,
							 &done, &submitted),
			FARLOG_OK);
		assert_in_range(positions[0].level, 1, 2);
		assert_in_range(positions[1].level, 1, 2); /* a change may come in between */
	}
	atomic_store_relaxed(&toggling.is_over, 1);
	pthread_join(toggler, &failure);
	assert_null(failure);
	assert_int_equal(farlog_writer_close(toggling.writer), FARLOG_OK);

	unit_format(uri, LAYOUT_DATA_OFF + (8u << 20), 1024);
	toggling.is_over = 0;
	assert_int_equal(farlog_shared_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &toggling.shared, NULL), FARLOG_OK);
	assert_int_equal(pthread_create(&toggler, NULL, toggle, &toggling), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&appenders[i], NULL, append_on, toggling.shared), 0);
	for (unsigned i = 0; i < 2; i++) {
		pthread_join(appenders[i], &failure);
		assert_null(failure);
	}
	atomic_store_relaxed(&toggling.is_over, 1);
	pthread_join(toggler, &failure);
	assert_null(failure);
	assert_int_equal(farlog_shared_close(toggling.shared), FARLOG_OK);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(settings__from_the_next_append),
	cmocka_unit_test(settings__policy_and_deadline),
	cmocka_unit_test(settings__stronger_is_asked_of_members),
	cmocka_unit_test(settings__before_stays_as_it_was),
	cmocka_unit_test(settings__weaker_waits_for_before),
	cmocka_unit_test(settings__refused),
	cmocka_unit_test(settings__while_appending),
};

RUN_GROUP(settings, tests)
