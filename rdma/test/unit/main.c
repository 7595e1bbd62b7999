/* main.c -- runs all unit tests; a name as argument runs the group of that name only, a second one that test of
 * it. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "members/reader.h"
#include "region/region.h"
#include "unit.h"

#define PATH_COUNT_MAX 512
#define LONG_NS 20000000000ull /* so that a hang shows */

static uint64_t random_state;
static char paths[PATH_COUNT_MAX][256];
static unsigned path_count;
static const char *only_test; /* NULL: all */

uint64_t unit_random(void)
{
	uint64_t value = random_state += 0x9E3779B97F4A7C15ull;

	value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
	value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
	return value ^ (value >> 31);
}

uint64_t unit_below(uint64_t bound)
{
	return unit_random() % bound;
}

const char *unit_path(const char *uri)
{
	return uri + strlen("mem:");
}

static const char *make_uri(const char *directory, const char *name)
{
	char *uri = paths[path_count++];

	assert_true(path_count <= PATH_COUNT_MAX);
	snprintf(uri, sizeof(paths[0]), "mem:%s/farlog-unit-%ld-%u-%s", directory, (long)getpid(), path_count, name);
	return uri;
}

const char *unit_tmpfs_uri(const char *name)
{
	return make_uri("/dev/shm", name);
}

const char *unit_file_uri(const char *name)
{
	const char *directory = getenv("FARLOG_TEST_DIR");

	return make_uri(directory != NULL ? directory : "/var/tmp", name);
}

void unit_format(const char *uri, uint64_t size_bytes, uint32_t record_len_max)
{
	struct farlog_ring_config config = {.size_bytes = size_bytes, .record_len_max = record_len_max, .is_forced = 1};
	struct farlog_error error = {0};

	if (farlog_ring_format(uri, &config, &error) != FARLOG_OK)
		fail_msg("format: %s", error.text);
}

void unit_check_ops(const struct region *region)
{
	void (*operations[sizeof(struct region_ops) / sizeof(void (*)(void))])(void);

	_Static_assert(
		sizeof(struct region_ops) % sizeof(operations[0]) == 0, "the tables hold pointers to functions alone");
	memcpy(operations, region->ops, sizeof(operations));
	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
		if (operations[i] == NULL)
			fail_msg("operation %zu of a region of kind %s is missing: each kind has all (region/ops.h)", i,
				region->contract.kind_name);
}

farlog_writer *unit_open(const char *uri)
{
	struct farlog_contract contract = {.level = FARLOG_LEVEL_PERSISTENT};
	struct farlog_error error = {0};
	farlog_writer *writer;

	if (strncmp(uri, "mem:", 4) == 0)
		assert_int_equal(farlog_region_probe(uri, &contract, &error), FARLOG_OK);
	if (farlog_writer_open(uri, CONFIG(.level = contract.level, .policy = FARLOG_POLICY_REJECT), &writer, &error) !=
		FARLOG_OK)
		fail_msg("open: %s", error.text);
	return writer;
}

void unit_fault(uint64_t size_bytes, uint32_t record_len_max)
{
	farlog_fault_drop(FAULT_NAME);
	unit_format(FAULT_URI, size_bytes, record_len_max);
	farlog_fault_reseed(FAULT_NAME, unit_random() | 1);
}

/* await_members -- an opening waits for as many as it needs, and for the rest a moment, which is over soon where much
 * else runs: until each of them has been tried once. */
static void await_members(struct reader_members *members)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);

	for (unsigned i = 0; i < members->count && clock_monotonic_ns() < until_ns;) {
		const struct reader_member *member = &members->member[i];

		reader_members_adopt(members);
		if (member->reader != NULL || member->trouble.result != FARLOG_OK)
			i++;
		else
			usleep(1000);
	}
}

farlog_reader *unit_read(const char *uri, uint32_t start, bool is_drain)
{
	struct farlog_reader_config config = {.start = start, .is_drain = is_drain};
	struct farlog_error error = {0};
	farlog_reader *reader;

	if (farlog_reader_open(uri, &config, &reader, &error) != FARLOG_OK)
		fail_msg("open reader: %s", error.text);
	if (reader->members != NULL)
		await_members(reader->members);
	return reader;
}

static struct farlog_entry entry_of(uint32_t len, uint8_t fill)
{
	static uint8_t payload[1 << 20];

	assert_true(len <= sizeof(payload));
	memset(payload, fill, len);
	return (struct farlog_entry){.data = payload, .len = len, .class_id = fill};
}

int unit_append(farlog_writer *writer, uint32_t len, uint8_t fill, struct farlog_position *position)
{
	struct farlog_entry entry = entry_of(len, fill);

	return farlog_append(writer, &entry, 0, position);
}

int unit_submit(farlog_writer *writer, uint32_t len, uint8_t fill, struct farlog_position *position)
{
	struct farlog_entry entry = entry_of(len, fill);

	return farlog_submit(writer, &entry, position);
}

int unit_count(const struct CMUnitTest *tests, size_t count)
{
	int found = 0;

	for (size_t i = 0; i < count; i++)
		found += only_test == NULL || strcmp(only_test, tests[i].name) == 0;
	return found;
}

static void remove_paths(void)
{
	for (unsigned i = 0; i < path_count; i++)
		unlink(unit_path(paths[i]));
}

int main(int argc, char **argv)
{
	const char *seed = getenv("SEED");
	struct group_result total = {0, 0};

	only_test = argc > 2 ? argv[2] : NULL;
	cmocka_set_test_filter(only_test);
	random_state = seed != NULL ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
	setvbuf(stdout, NULL, _IOLBF, 0); /* what a sanitizer ends has told which test it was in */
	printf("unit: SEED=%lu\n", random_state);
	atexit(remove_paths);
	may_fail(clock_start()); /* one sampler for all, so that an opening does not wait for its first sample */
#define RUN(name) \
	if (argc < 2 || strcmp(argv[1], #name) == 0) { \
		struct group_result result = group_##name(); \
		total.run += result.run; \
		total.failed += result.failed; \
	}
	GROUP_TABLE(RUN)
#undef RUN
	clock_stop();
	printf("unit: %d passed, %d failed\n", total.run - total.failed, total.failed);
	return total.failed != 0;
}
