/* Finding is tested on a real tree of files that looks like sysfs and /dev; what needs a device that answers is the
 * arithmetic on its answers and the judgement on its readings, both without input. */
#include <errno.h>
#include <linux/ptp_clock.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/phc.h"
#include "unit.h"

#define SECOND_NS 1000000000ull
#define TAI_OFFSET_S 37
#define STEERED(offset) {.is_steered = true, .offset_ns = (offset)}
#define FREE_RUNNING(offset) {.offset_ns = (offset)}
#define SILENT(why) {.failure = (why), .is_steered = true}

static char tree[64];
static char sysfs_dir[80];
static char device_dir[80];

static void write_file(const char *path, const char *text, mode_t mode)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, mode), 0);
}

/* add_clock -- its sysfs folder and its device; NULL leaves the file out. */
static void add_clock(const char *name, const char *adjustment_max, const char *device)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", sysfs_dir, name);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/%s/max_adjustment", sysfs_dir, name);
	if (adjustment_max != NULL)
		write_file(path, adjustment_max, 0644);
	snprintf(path, sizeof(path), "%s/%s", device_dir, name);
	if (device != NULL)
		write_file(path, device, 0600);
}

static int make_tree(void **state)
{
	(void)state;
	snprintf(tree, sizeof(tree), "/var/tmp/farlog-phc-XXXXXX");
	assert_non_null(mkdtemp(tree));
	snprintf(sysfs_dir, sizeof(sysfs_dir), "%s/sys", tree);
	snprintf(device_dir, sizeof(device_dir), "%s/dev", tree);
	return chmod(tree, 0755) || mkdir(sysfs_dir, 0755) || mkdir(device_dir, 0755);
}

static int remove_tree(void **state)
{
	char command[96];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", tree);
	return system(command);
}

static void phc__found_where_sysfs_and_device_are(void **state)
{
	struct phc_set set;
	unsigned unsteerable_count = 0;

	(void)state;
	add_clock("ptp0", "62500000\n", "");
	add_clock("ptp1", "0\n", "");
	add_clock("ptp12", NULL, "");
	add_clock("ptp3", "0\n", NULL);
	add_clock("ptpx", "0\n", "");
	add_clock("pps0", "0\n", "");
	assert_int_equal(phc_open(&set, NULL, sysfs_dir, device_dir), 0);
	assert_int_equal(set.count, 3);
	for (unsigned i = 0; i < set.count; i++) {
		assert_false(set.phcs[i].is_named || set.phcs[i].is_witness);
		unsteerable_count += set.phcs[i].is_unsteerable;
	}
	assert_int_equal(unsteerable_count, 1);
	phc_close(&set);
	assert_int_equal(phc_open(&set, "", sysfs_dir, device_dir), 0);
	assert_int_equal(set.count, 3);
	phc_close(&set);
}

static void phc__no_sysfs_is_no_clock(void **state)
{
	struct phc_set set;

	(void)state;
	assert_int_equal(phc_open(&set, NULL, "/nonexistent", device_dir), 0);
	assert_int_equal(set.count, 0);
	assert_int_equal(phc_error_ns(&set, 0), 0);
	phc_close(&set);
}

static void phc__found_but_forbidden_is_left_out(void **state)
{
	struct phc_set set;
	bool is_root = geteuid() == 0;
	char path[160];

	(void)state;
	add_clock("ptp0", "0\n", "");
	snprintf(path, sizeof(path), "%s/ptp0", device_dir);
	assert_int_equal(chmod(path, 0), 0);
	if (is_root && seteuid(65534) != 0)
		skip();
	assert_int_equal(phc_open(&set, NULL, sysfs_dir, device_dir), 0);
	assert_int_equal(set.count, 0);
	assert_int_equal(phc_open(&set, path, sysfs_dir, device_dir), EACCES);
	if (is_root)
		assert_int_equal(seteuid(0), 0);
}

static void phc__more_than_fit(void **state)
{
	struct phc_set set;

	(void)state;
	for (unsigned i = 0; i < PHC_COUNT_MAX + 2; i++) {
		char name[16];

		snprintf(name, sizeof(name), "ptp%u", i);
		add_clock(name, "0\n", "");
	}
	assert_int_equal(phc_open(&set, NULL, sysfs_dir, device_dir), 0);
	assert_int_equal(set.count, PHC_COUNT_MAX);
	phc_close(&set);
}

static void phc__none_looks_at_nothing(void **state)
{
	struct phc_set set;

	(void)state;
	add_clock("ptp0", "0\n", "");
	assert_int_equal(phc_open(&set, "none", sysfs_dir, device_dir), 0);
	assert_int_equal(set.count, 0);
}

static void phc__named_is_opened_or_refused(void **state)
{
	struct phc_set set;
	char path[160];

	(void)state;
	add_clock("ptp0", "0\n", "");
	add_clock("ptp1", "0\n", "");
	snprintf(path, sizeof(path), "%s/ptp1", device_dir);
	assert_int_equal(phc_open(&set, path, sysfs_dir, device_dir), 0);
	assert_int_equal(set.count, 1);
	assert_true(set.phcs[0].is_named && set.phcs[0].is_witness);
	phc_close(&set);
	snprintf(path, sizeof(path), "%s/ptp2", device_dir);
	assert_int_equal(phc_open(&set, path, sysfs_dir, device_dir), ENOENT);
	assert_int_equal(set.count, 0);
}

/* A file is no clock: found, it says nothing; named, nothing can be said. */
static void phc__device_without_an_answer(void **state)
{
	struct phc_set set;
	char path[160];

	(void)state;
	add_clock("ptp0", "0\n", "");
	assert_int_equal(phc_open(&set, NULL, sysfs_dir, device_dir), 0);
	assert_int_equal(set.count, 1);
	assert_int_equal(phc_error_ns(&set, TAI_OFFSET_S), 0);
	phc_close(&set);
	snprintf(path, sizeof(path), "%s/ptp0", device_dir);
	assert_int_equal(phc_open(&set, path, sysfs_dir, device_dir), 0);
	assert_int_equal(phc_error_ns(&set, TAI_OFFSET_S), PHC_UNKNOWN);
	phc_close(&set);
}

/* put -- sample `at`: the system clock before and after, and the device's between them. */
static void put(struct ptp_sys_offset *answer, unsigned at, uint64_t before_ns, uint64_t device_ns, uint64_t after_ns)
{
	const uint64_t times_ns[3] = {before_ns, device_ns, after_ns};

	for (unsigned i = 0; i < 3; i++) {
		answer->ts[2 * at + i].sec = (int64_t)(times_ns[i] / SECOND_NS);
		answer->ts[2 * at + i].nsec = (uint32_t)(times_ns[i] % SECOND_NS);
	}
}

static void expect_offset(uint64_t device_ahead_ns, int tai_offset_s, uint64_t expected_ns)
{
	const uint64_t now_ns = 1763700000 * SECOND_NS;
	struct ptp_sys_offset answer = {.n_samples = 1};
	uint64_t offset_ns;

	put(&answer, 0, now_ns - 100, now_ns + device_ahead_ns, now_ns + 100);
	assert_true(phc_offset(&answer, tai_offset_s, &offset_ns));
	assert_int_equal(offset_ns, expected_ns);
}

static void phc__offset_is_on_the_nearer_scale_and_half_the_reading_wider(void **state)
{
	(void)state;
	expect_offset(0, TAI_OFFSET_S, 100);
	expect_offset(700, TAI_OFFSET_S, 800);
	expect_offset((uint64_t)-700, TAI_OFFSET_S, 800);
	expect_offset(TAI_OFFSET_S * SECOND_NS + 700, TAI_OFFSET_S, 800);
	expect_offset(TAI_OFFSET_S * SECOND_NS - 700, TAI_OFFSET_S, 800);
	expect_offset(TAI_OFFSET_S * SECOND_NS, 0, TAI_OFFSET_S * SECOND_NS + 100);
}

static void phc__offset_is_of_the_tightest_sample(void **state)
{
	struct ptp_sys_offset answer = {.n_samples = 3};
	uint64_t offset_ns;

	(void)state;
	put(&answer, 0, 10000, 12000, 14000);
	put(&answer, 1, 14000, 15000, 15100);
	put(&answer, 2, 15100, 15500, 19000);
	assert_true(phc_offset(&answer, 0, &offset_ns));
	assert_int_equal(offset_ns, 450 + 550);
}

static void phc__offset_of_nothing_usable(void **state)
{
	struct ptp_sys_offset answer = {.n_samples = 1};
	uint64_t offset_ns;

	(void)state;
	put(&answer, 0, 5 * SECOND_NS, 5 * SECOND_NS, 4 * SECOND_NS);
	assert_false(phc_offset(&answer, 0, &offset_ns));
	answer.n_samples = 0;
	assert_false(phc_offset(&answer, 0, &offset_ns));
}

static void phc__offset_of_an_absurd_device(void **state)
{
	struct ptp_sys_offset answer = {.n_samples = 1};
	uint64_t offset_ns;

	(void)state;
	answer.ts[1].sec = INT64_MIN;
	assert_true(phc_offset(&answer, TAI_OFFSET_S, &offset_ns));
	assert_true(offset_ns >= PHC_UNKNOWN);
	answer.ts[1].sec = INT64_MAX;
	assert_true(phc_offset(&answer, -TAI_OFFSET_S, &offset_ns));
	assert_true(offset_ns >= PHC_UNKNOWN);
}

/* judge -- readings one after another; what the last of them adds. */
#define judge(phc, ...) \
	judge_all((phc), (const struct phc_reading[]){__VA_ARGS__}, \
		sizeof((const struct phc_reading[]){__VA_ARGS__}) / sizeof(struct phc_reading))

static uint64_t judge_all(struct phc phc, const struct phc_reading *readings, size_t count)
{
	uint64_t error_ns = 0;

	for (size_t i = 0; i < count; i++)
		error_ns = phc_update(&phc, &readings[i]);
	return error_ns;
}

static void phc__nobody_keeps_it(void **state)
{
	const struct phc found = {0};

	(void)state;
	assert_int_equal(judge(found, FREE_RUNNING(250)), 0);
	assert_int_equal(judge(found, FREE_RUNNING(250), FREE_RUNNING(3 * SECOND_NS)), 0);
}

static void phc__kept_and_agreed_counts_from_then_on(void **state)
{
	const struct phc found = {0};
	const struct phc unsteerable = {.is_unsteerable = true};

	(void)state;
	assert_int_equal(judge(found, STEERED(250)), 250);
	assert_int_equal(judge(unsteerable, FREE_RUNNING(250)), 250);
	assert_int_equal(judge(found, FREE_RUNNING(250), STEERED(300)), 300);
	assert_int_equal(judge(found, STEERED(250), STEERED(2 * SECOND_NS)), 2 * SECOND_NS);
	assert_int_equal(judge(found, STEERED(250), FREE_RUNNING(2 * SECOND_NS)), 2 * SECOND_NS);
	assert_int_equal(judge(found, STEERED(250), STEERED(5 * SECOND_NS)), PHC_UNKNOWN);
}

static void phc__of_another_time_never_agreed(void **state)
{
	const struct phc found = {0};
	const struct phc unsteerable = {.is_unsteerable = true};

	(void)state;
	assert_int_equal(judge(found, STEERED(PHC_AGREES_NS + 1)), 0);
	assert_int_equal(judge(unsteerable, FREE_RUNNING(TAI_OFFSET_S * SECOND_NS)), 0);
}

static void phc__silent_witness_makes_the_error_unknown(void **state)
{
	const struct phc found = {0};
	const struct phc named = {.is_named = true, .is_witness = true};

	(void)state;
	assert_int_equal(judge(found, SILENT(EIO)), 0);
	assert_int_equal(judge(found, STEERED(250), SILENT(EIO)), PHC_UNKNOWN);
	assert_int_equal(judge(found, STEERED(250), SILENT(EIO), STEERED(260)), 260);
	assert_int_equal(judge(named, SILENT(EIO)), PHC_UNKNOWN);
}

static void phc__gone_device_is_no_witness(void **state)
{
	const struct phc found = {0};
	const struct phc named = {.is_named = true, .is_witness = true};

	(void)state;
	assert_int_equal(judge(found, STEERED(250), SILENT(ENODEV)), 0);
	assert_int_equal(judge(found, STEERED(250), SILENT(ENODEV), SILENT(EIO)), 0);
	assert_int_equal(judge(named, FREE_RUNNING(250), SILENT(ENODEV)), PHC_UNKNOWN);
}

static void phc__named_counts_whatever_it_says(void **state)
{
	const struct phc named = {.is_named = true, .is_witness = true};

	(void)state;
	assert_int_equal(judge(named, FREE_RUNNING(2 * SECOND_NS)), 2 * SECOND_NS);
	assert_int_equal(judge(named, FREE_RUNNING(TAI_OFFSET_S * SECOND_NS)), PHC_UNKNOWN);
}

#define WITH_TREE(test) cmocka_unit_test_setup_teardown(test, make_tree, remove_tree)

static const struct CMUnitTest tests[] = {
	WITH_TREE(phc__found_where_sysfs_and_device_are),
	WITH_TREE(phc__no_sysfs_is_no_clock),
	WITH_TREE(phc__found_but_forbidden_is_left_out),
	WITH_TREE(phc__more_than_fit),
	WITH_TREE(phc__none_looks_at_nothing),
	WITH_TREE(phc__named_is_opened_or_refused),
	WITH_TREE(phc__device_without_an_answer),
	cmocka_unit_test(phc__offset_is_on_the_nearer_scale_and_half_the_reading_wider),
	cmocka_unit_test(phc__offset_is_of_the_tightest_sample),
	cmocka_unit_test(phc__offset_of_nothing_usable),
	cmocka_unit_test(phc__offset_of_an_absurd_device),
	cmocka_unit_test(phc__nobody_keeps_it),
	cmocka_unit_test(phc__kept_and_agreed_counts_from_then_on),
	cmocka_unit_test(phc__of_another_time_never_agreed),
	cmocka_unit_test(phc__silent_witness_makes_the_error_unknown),
	cmocka_unit_test(phc__gone_device_is_no_witness),
	cmocka_unit_test(phc__named_counts_whatever_it_says),
};
RUN_GROUP(phc, tests)
