#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adversary/blocks.h"
#include "fault/tended.h"
#include "members/members.h"
#include "ring/layout.h"
#include "mem/persist.h"
#include "region/region.h"
#include "unit.h"

#define SIZE 65536u

static void probe(const char *uri, struct farlog_contract *contract)
{
	struct farlog_error error = {0};

	if (farlog_region_probe(uri, contract, &error) != FARLOG_OK)
		fail_msg("probe: %s", error.text);
}

static void contract__tmpfs_is_visible_whatever_is_flushed(void **state)
{
	static const char *const options[] = {"", "?flush=nt", "?flush=auto", "?flush=none"};
	struct farlog_contract contract;
	char uri[300];

	(void)state;
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		snprintf(uri, sizeof(uri), "%s%s", unit_tmpfs_uri("contract"), options[i]);
		probe(uri, &contract);
		assert_int_equal(contract.kind, FARLOG_REGION_TMPFS);
		assert_int_equal(contract.level, FARLOG_LEVEL_VISIBLE);
		assert_int_equal(contract.size_bytes, 0);
		assert_int_equal(contract.granularity, 64);
		assert_true(contract.probe[0] != '\0');
	}
}

static void contract__file_is_persistent_by_msync_only(void **state)
{
	struct farlog_contract contract;
	char uri[300];

	(void)state;
	probe(unit_file_uri("contract"), &contract);
	if (contract.kind != FARLOG_REGION_FILE)
		skip(); /* FARLOG_TEST_DIR or /var/tmp is no plain file system here */
	assert_int_equal(contract.level, FARLOG_LEVEL_PERSISTENT);
	assert_int_equal(contract.flush_method, FARLOG_FLUSH_MSYNC);
	assert_string_equal(contract.flush_name, "msync");
	snprintf(uri, sizeof(uri), "%s?flush=nt", unit_file_uri("contract"));
	probe(uri, &contract);
	assert_int_equal(contract.level, FARLOG_LEVEL_VISIBLE);
	snprintf(uri, sizeof(uri), "%s?flush=auto", unit_file_uri("contract"));
	probe(uri, &contract);
	assert_int_equal(contract.flush_method, FARLOG_FLUSH_MSYNC);
}

/* A path in sysfs is enough to be probed as a BAR: nothing is opened. */
static void contract__bar_is_persistent_by_attestation_only(void **state)
{
	static const struct {
		const char *uri;
		uint32_t level;
		const char *told;
	} cases[] = {
		{"mem:/sys/resource2", FARLOG_LEVEL_VISIBLE, "?attest=bar"},
		{"mem:/sys/resource2_wc?flush=nt", FARLOG_LEVEL_VISIBLE, "?attest=bar"},
		{"mem:/sys/resource2?attest=bar", FARLOG_LEVEL_PERSISTENT, "is attested"},
		{"mem:/sys/resource2?attest=bar&flush=none", FARLOG_LEVEL_VISIBLE, "is attested"},
	};
	struct farlog_contract contract;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strstr(cases[i].uri, "flush=nt") != NULL && !persist_is_supported(FARLOG_FLUSH_NT_STORE))
			continue;
		probe(cases[i].uri, &contract);
		assert_int_equal(contract.kind, FARLOG_REGION_BAR);
		assert_int_equal(contract.level, cases[i].level);
		assert_non_null(strstr(contract.probe, cases[i].told));
	}
}

/* What a file gives that is not there yet is known when it is there. */
static void contract__attested_file_that_is_not_there(void **state)
{
	struct farlog_contract contract;
	struct farlog_error error = {0};
	char uri[300];

	(void)state;
	snprintf(uri, sizeof(uri), "%s?attest=cpu_cache", unit_file_uri("attested"));
	probe(uri, &contract);
	if (contract.kind != FARLOG_REGION_FILE)
		skip(); /* FARLOG_TEST_DIR or /var/tmp is no plain file system here */
	assert_int_equal(farlog_ring_format(uri, &(struct farlog_ring_config){.size_bytes = SIZE}, &error), FARLOG_INVALID);
	assert_non_null(strstr(error.text, "found to be file"));
}

/* What is made durable, and hints at it, does not hang on who attests it: only on whether a flush reaches it. */
static void contract__what_is_kept_is_kept_without_attestation(void **state)
{
	static const struct {
		struct farlog_contract contract;
		bool is_kept;
	} cases[] = {
		{{.kind = FARLOG_REGION_DEVDAX, .flush_method = FARLOG_FLUSH_CLWB, .level = FARLOG_LEVEL_VISIBLE}, true},
		{{.kind = FARLOG_REGION_BAR, .flush_method = FARLOG_FLUSH_NT_STORE, .level = FARLOG_LEVEL_VISIBLE}, true},
		{{.kind = FARLOG_REGION_FSDAX, .flush_method = FARLOG_FLUSH_NONE, .level = FARLOG_LEVEL_VISIBLE}, false},
		{{.kind = FARLOG_REGION_DEVDAX, .flush_method = FARLOG_FLUSH_OFI_DELIVERY, .level = FARLOG_LEVEL_VISIBLE},
			false},
		{{.kind = FARLOG_REGION_FILE, .flush_method = FARLOG_FLUSH_CLWB, .level = FARLOG_LEVEL_VISIBLE}, false},
		{{.kind = FARLOG_REGION_FILE, .flush_method = FARLOG_FLUSH_MSYNC, .level = FARLOG_LEVEL_PERSISTENT}, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(region_is_flush_durable(&(struct region){.contract = cases[i].contract}), cases[i].is_kept);
}

static void contract__refused_kinds(void **state)
{
	static const struct {
		const char *uri;
		int result;
		const char *named;
	} cases[] = {
		{"mem:/", FARLOG_INVALID, "directory"},
		{"mem:/dev/null", FARLOG_INVALID, "DAX"},
		{"mem:/nowhere/at/all", FARLOG_NOT_FOUND, "/nowhere/at"},
		{"mem:/dev/shm/x?flush=mfence", FARLOG_INVALID, "mfence"},
		{"mem:/dev/shm/x?flush=fault", FARLOG_INVALID, "fault"},
		{"mem:/dev/shm/x?attest=cpu_cache", FARLOG_INVALID, "nothing to attest"},
		{"mem:/sys/resource2?attest=cpu_cache", FARLOG_INVALID, "expected bar"},
		{"mem:/dev/shm/x?attest=persistent", FARLOG_INVALID, "expected memory_controller, cpu_cache or bar"},
		{"verbs://10.0.0.7:7471/orders?attest=bar", FARLOG_INVALID, "for mem:"},
	};
	struct farlog_contract contract;
	struct farlog_error error;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memset(&error, 0, sizeof(error));
		assert_int_equal(farlog_region_probe(cases[i].uri, &contract, &error), cases[i].result);
		assert_non_null(strstr(error.text, cases[i].named));
		assert_non_null(strstr(error.text, cases[i].uri));
	}
}

static void region__size_that_is_no_multiple(void **state)
{
	const char *uri = unit_tmpfs_uri("odd");
	struct region *region;
	struct farlog_error error;
	int fd = open(unit_path(uri), O_RDWR | O_CREAT, 0600);

	(void)state;
	assert_int_equal(ftruncate(fd, 5000), 0);
	close(fd);
	assert_int_equal(
		region_open(uri, &(struct region_options){.access = REGION_WRITE}, &region, &error), FARLOG_INVALID);
	assert_non_null(strstr(error.text, "5000"));
}

static struct region *open_fresh(const char *uri)
{
	struct region *region;
	struct farlog_error error = {0};

	if (region_open(uri, &(struct region_options){.access = REGION_CREATE, .size_bytes = SIZE}, &region, &error) !=
		FARLOG_OK)
		fail_msg("%s", error.text);
	return region;
}

static void check_writes(const char *uri)
{
	static uint8_t lines[4096] __attribute__((aligned(64)));
	struct region *region = open_fresh(uri);
	struct region *other;
	uint8_t seen[4096];

	assert_int_equal(region_open(uri, &(struct region_options){.access = REGION_READ}, &other, NULL), FARLOG_OK);
	for (unsigned i = 0; i < 50; i++) {
		uint64_t len = 64 * (1 + unit_below(64));
		uint64_t off = 64 * unit_below((SIZE - len) / 64);
		struct region_span span = {off, len};

		for (size_t at = 0; at < len; at++)
			lines[at] = (uint8_t)unit_random();
		region->ops->data.write(region, off, lines, len);
		assert_int_equal(region_persist_wait(region, &span, 1), FARLOG_OK);
		assert_int_equal(other->ops->data.read(other, off, seen, len), FARLOG_OK);
		assert_memory_equal(seen, lines, len);
	}
	region->ops->data.store_word(region, LAYOUT_CREDIT_OFF, 0x1122334455667788ull);
	assert_int_equal(region_load_word(other, LAYOUT_CREDIT_OFF), 0x1122334455667788ull);
	assert_int_equal(region->ops->data.flush(region, 0, SIZE), FARLOG_OK);
	region->ops->data.populate(region);
	region->ops->data.drop_pages(region, 0, SIZE);
	assert_int_equal(region_load_word(region, LAYOUT_CREDIT_OFF), 0x1122334455667788ull);
	other->ops->close(other);
	region->ops->close(region);
}

static void region__tmpfs_writes_by_every_method(void **state)
{
	static const enum farlog_flush_method methods[] = {
		FARLOG_FLUSH_NONE, FARLOG_FLUSH_CLWB, FARLOG_FLUSH_CLFLUSHOPT, FARLOG_FLUSH_NT_STORE};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		char uri[300];

		if (!persist_is_supported(methods[i]))
			continue;
		snprintf(uri, sizeof(uri), "%s?flush=%s", unit_tmpfs_uri("write"), persist_method_name(methods[i]));
		check_writes(uri);
		unlink(strtok(uri + 4, "?"));
	}
}

static void region__file_writes_by_msync(void **state)
{
	(void)state;
	check_writes(unit_file_uri("write"));
}

static void region__locks_by_role_and_handle(void **state)
{
	const char *uri = unit_tmpfs_uri("lock");
	struct region *first = open_fresh(uri);
	struct region *second = open_fresh(uri);

	(void)state;
	assert_int_equal(first->ops->fence.lock(first, REGION_ROLE_WRITER), FARLOG_OK);
	assert_int_equal(second->ops->fence.lock(second, REGION_ROLE_WRITER), FARLOG_HELD);
	assert_int_equal(second->ops->fence.lock(second, REGION_ROLE_DRAIN), FARLOG_OK);
	assert_int_equal(second->ops->fence.is_locked(second, REGION_ROLE_WRITER), 1);
	first->ops->close(first);
	assert_int_equal(second->ops->fence.is_locked(second, REGION_ROLE_WRITER), 0);
	assert_int_equal(second->ops->fence.lock(second, REGION_ROLE_WRITER), FARLOG_OK);
	second->ops->close(second);
}

static void check_ops_of(const char *uri)
{
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_WRITER, .level = FARLOG_LEVEL_VISIBLE};
	struct farlog_error error = {0};
	struct region *region;

	if (region_open(uri, &options, &region, &error) != FARLOG_OK)
		fail_msg("open: %s", error.text);
	unit_check_ops(region);
	region->ops->close(region);
}

/* Nobody asks whether a kind has an operation. Those of far regions: test_far_tails.c. */
static void region__each_kind_has_all_operations(void **state)
{
	const char *file_uri = unit_file_uri("ops");
	const char *tmpfs_uri = unit_tmpfs_uri("ops");
	char members[512];

	(void)state;
	farlog_fault_drop(FAULT_NAME);
	farlog_fault_drop("other");
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(farlog_ring_format(i == 0 ? FAULT_URI : "fault:other",
							 &(struct farlog_ring_config){.size_bytes = SIZE, .salt = 77}, NULL),
			FARLOG_OK);
	unit_format("block-fault:ops", SIZE, 8192);
	unit_format(file_uri, SIZE, 0);
	unit_format(tmpfs_uri, SIZE, 0);
	snprintf(members, sizeof(members), "members:2 %s fault:other", FAULT_URI);
	members_are_tended = true;
	check_ops_of(members);
	members_are_tended = false;
	check_ops_of(FAULT_URI);
	check_ops_of("block-fault:ops");
	check_ops_of(file_uri);
	check_ops_of(tmpfs_uri);
	farlog_block_drop("ops");
	farlog_fault_drop("other");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(contract__tmpfs_is_visible_whatever_is_flushed),
	cmocka_unit_test(contract__file_is_persistent_by_msync_only),
	cmocka_unit_test(contract__bar_is_persistent_by_attestation_only),
	cmocka_unit_test(contract__attested_file_that_is_not_there),
	cmocka_unit_test(contract__what_is_kept_is_kept_without_attestation),
	cmocka_unit_test(contract__refused_kinds),
	cmocka_unit_test(region__size_that_is_no_multiple),
	cmocka_unit_test(region__tmpfs_writes_by_every_method),
	cmocka_unit_test(region__file_writes_by_msync),
	cmocka_unit_test(region__locks_by_role_and_handle),
	cmocka_unit_test(region__each_kind_has_all_operations),
};
RUN_GROUP(region, tests)
