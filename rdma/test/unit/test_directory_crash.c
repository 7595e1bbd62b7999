/* A directory of rings whose region loses its power while a ring is made or removed. */
#include "region/region.h"
#include "carved.h"

/* What is being cut short, and what was there before. */
struct attempt {
	const char *ring;
	bool is_removal;
	int count_before;
};

static int make_attempt(const struct attempt *attempt)
{
	struct farlog_error error;

	return attempt->is_removal ? farlog_ring_remove(carved_at(FAULT_URI, attempt->ring), 1, &error) :
								 carved_format_sized(FAULT_URI, attempt->ring, RING_LEN, false, &error);
}

/* check_either -- the directory is old or new, and a new ring is empty whatever lay there before. */
static bool check_either(const struct attempt *attempt)
{
	struct farlog_region_ring rings[LIST_MAX];
	struct farlog_region_status status;
	int count = carved_list(FAULT_URI, rings, &status);
	int before = attempt->count_before;
	int after = before < 0 ? 1 : attempt->is_removal ? before - 1 : before + 1;

	assert_true(count == before || count == after);
	for (int i = 0; i < count; i++) {
		assert_int_equal(rings[i].state, FARLOG_RING_READY);
		if (strcmp(rings[i].name, "left") == 0 || strcmp(rings[i].name, "right") == 0)
			assert_int_equal(carved_count_records(FAULT_URI, rings[i].name, rings[i].name[0]), 25);
		else if (!attempt->is_removal)
			assert_int_equal(carved_count_records(FAULT_URI, rings[i].name, 0), 0);
	}
	return count == after;
}

/* prepare -- a region in which `neighbours` live and an old ring with records, of the same salt, has left its bytes in
 * the gap. */
static void prepare(bool has_neighbours, const char *old)
{
	farlog_fault_drop(FAULT_NAME);
	if (!has_neighbours) { /* bytes of an old single ring, whose header alone was wiped */
		struct region_options options = {.access = REGION_CREATE, .size_bytes = REGION_LEN};
		struct region *region;
		static uint8_t lines[4096] __attribute__((aligned(64)));

		assert_int_equal(region_open(FAULT_URI, &options, &region, NULL), FARLOG_OK);
		memset(lines, 0xA5, sizeof(lines));
		for (uint64_t off = LAYOUT_DATA_OFF; off < REGION_LEN; off += sizeof(lines))
			region->ops->data.write(region, off, lines, sizeof(lines));
		assert_int_equal(region->ops->data.flush(region, 0, REGION_LEN), FARLOG_OK);
		region->ops->close(region);
		return;
	}
	carved_make(FAULT_URI, "left");
	carved_make(FAULT_URI, old);
	carved_make(FAULT_URI, "right");
	carved_append(FAULT_URI, "left", 25, 'l');
	carved_append(FAULT_URI, old, 25, 'o');
	carved_append(FAULT_URI, "right", 25, 'r');
}

/* cut_everywhere -- crash the attempt in its n-th operation, for every n, until it gets through; look; try again. */
static void cut_everywhere(struct attempt attempt)
{
	bool is_through = false;
	unsigned n;

	for (n = 1; !is_through; n++) {
		bool is_new;

		prepare(attempt.count_before > 0, attempt.is_removal ? attempt.ring : "old");
		if (!attempt.is_removal && attempt.count_before > 0)
			assert_int_equal(farlog_ring_remove(carved_at(FAULT_URI, "old"), 1, NULL), FARLOG_OK);
		farlog_fault_reseed(FAULT_NAME, unit_random() | 1);
		farlog_fault_arm(FAULT_NAME, n);
		is_through = make_attempt(&attempt) == FARLOG_OK;
		farlog_fault_crash(FAULT_NAME);
		is_new = check_either(&attempt);
		assert_true(is_new || !is_through);
		if (!is_new)
			assert_int_equal(make_attempt(&attempt), FARLOG_OK);
		assert_true(check_either(&attempt));
		farlog_fault_crash(FAULT_NAME);
		assert_true(check_either(&attempt));
	}
	assert_true(n > 8); /* it has had that many operations */
}

static void crash__while_a_ring_is_carved(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++)
		cut_everywhere((struct attempt){.ring = "new", .count_before = 2});
}

static void crash__while_a_directory_is_made(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++)
		cut_everywhere((struct attempt){.ring = "new", .count_before = -1});
}

static void crash__while_a_ring_is_removed(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++)
		cut_everywhere((struct attempt){.ring = "old", .is_removal = true, .count_before = 3});
}

/* A directory that a dead process left in a cache is durable before anything is acknowledged in a ring of it. */
static void crash__of_a_ring_that_was_only_visible(void **state)
{
	(void)state;
	for (unsigned n = 1; n < 60; n++) {
		struct farlog_region_ring rings[LIST_MAX];
		struct farlog_region_status status;
		int count;

		prepare(true, "old");
		farlog_fault_reseed(FAULT_NAME, unit_random() | 1);
		farlog_fault_arm(FAULT_NAME, n);
		make_attempt(&(struct attempt){.ring = "new"});
		farlog_fault_kill(FAULT_NAME); /* its process alone: what it stored is visible and pending */
		count = carved_list(FAULT_URI, rings, &status);
		if (count == 4)
			carved_append(FAULT_URI, "new", 10, 'n');
		farlog_fault_crash(FAULT_NAME);
		if (count == 4)
			assert_int_equal(carved_count_records(FAULT_URI, "new", 'n'), 10);
		assert_int_equal(carved_count_records(FAULT_URI, "right", 'r'), 25);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(crash__while_a_ring_is_carved),
	cmocka_unit_test(crash__while_a_directory_is_made),
	cmocka_unit_test(crash__while_a_ring_is_removed),
	cmocka_unit_test(crash__of_a_ring_that_was_only_visible),
};
RUN_GROUP(directory_crash, tests)
