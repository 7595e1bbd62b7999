/* test_attest.c -- what an operator's attestation adds to a region's contract, what of it is refused, and what a client
 * is told who asks for a flush that nobody attested. Memory that can be attested is not on this machine: devices are
 * tried in the testbed. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mem/attest.h"
#include "far/far.h"
#include "mem/mem.h"
#include "target/ofi.h"
#include "unit.h"

#define URI "mem:/dev/dax0.0"

struct attest_case {
	const char *what;
	struct attest_found found;
	struct farlog_attestation attestation;
	const char *words[3]; /* of the error; none: it is taken */
};

#define FOUND(which, told) {.kind = FARLOG_REGION_##which, .kind_name = #which, .domain = FARLOG_DOMAIN_##told}
#define COMMITS(which, where) \
	{.commit_provider = which, .domain = FARLOG_DOMAIN_##where, .by = "Ada, storage", .date = "2026-11-21"}
#define SAID(how, where) \
	{.read_flush = FARLOG_READ_FLUSH_##how, .domain = FARLOG_DOMAIN_##where, .by = "Ada, storage", .date = "2026-11-21"}

static const struct attest_case cases[] = {
	{"the kernel has the domain", FOUND(DEVDAX, MEMORY_CONTROLLER), SAID(DDIO_OFF, UNKNOWN), {0}},
	{"both have it", FOUND(DEVDAX, MEMORY_CONTROLLER), SAID(DDIO_OFF, MEMORY_CONTROLLER), {0}},
	{"the kernel is silent", FOUND(DEVDAX, UNKNOWN), SAID(DDIO_OFF, MEMORY_CONTROLLER), {0}},
	{"eADR by the kernel", FOUND(DEVDAX, CPU_CACHE), SAID(EADR, UNKNOWN), {0}},
	{"eADR attested", FOUND(DEVDAX, UNKNOWN), SAID(EADR, CPU_CACHE), {0}},
	{"DDIO off beside eADR", FOUND(FSDAX, CPU_CACHE), SAID(DDIO_OFF, UNKNOWN), {0}},
	{"a domain alone", FOUND(DEVDAX, UNKNOWN), SAID(NONE, MEMORY_CONTROLLER), {0}},
	{"a BAR", FOUND(BAR, UNKNOWN), SAID(BAR, UNKNOWN), {0}},
	{"a commit", FOUND(DEVDAX, MEMORY_CONTROLLER), COMMITS("tcp", UNKNOWN), {0}},
	{"a commit on a DAX file system", FOUND(FSDAX, UNKNOWN), COMMITS("tcp", CPU_CACHE), {0}},
	{"a commit beside a READ", FOUND(DEVDAX, MEMORY_CONTROLLER),
		{.read_flush = FARLOG_READ_FLUSH_DDIO_OFF, .commit_provider = "tcp", .by = "Ada", .date = "2026-11-21"}, {0}},
	{"a commit and no domain", FOUND(DEVDAX, UNKNOWN), COMMITS("tcp", UNKNOWN),
		{"persistence_domain \"\"", "commit_flushes needs one", "expected memory_controller or"}},
	{"a commit of a page cache", FOUND(FILE, UNKNOWN), COMMITS("tcp", UNKNOWN),
		{"commit_flushes \"tcp\"", "found to be FILE", "expected a DAX device or a file on a DAX"}},
	{"a commit of DRAM", FOUND(TMPFS, UNKNOWN), COMMITS("tcp", CPU_CACHE),
		{"commit_flushes \"tcp\"", "found to be TMPFS"}},
	{"a commit of a BAR", FOUND(BAR, UNKNOWN), COMMITS("tcp", UNKNOWN), {"commit_flushes \"tcp\"", "found to be BAR"}},
	{"a commit of nobody's", FOUND(DEVDAX, MEMORY_CONTROLLER), COMMITS("", UNKNOWN),
		{"commit_flushes \"\"", "such as tcp"}},
	{"a commit of a long name", FOUND(DEVDAX, MEMORY_CONTROLLER), COMMITS("sixteen-letters!", UNKNOWN),
		{"commit_flushes \"sixteen-letters!\""}},
	{"no domain at all", FOUND(DEVDAX, UNKNOWN), SAID(DDIO_OFF, UNKNOWN),
		{"persistence_domain \"\"", "the kernel names none", "expected memory_controller or"}},
	{"eADR denied", FOUND(DEVDAX, MEMORY_CONTROLLER), SAID(EADR, UNKNOWN),
		{"how \"eadr\"", "memory_controller, says the kernel", "expected ddio-off"}},
	{"eADR and no caches", FOUND(DEVDAX, UNKNOWN), SAID(EADR, MEMORY_CONTROLLER),
		{"how \"eadr\"", "is memory_controller;"}},
	{"more than the kernel says", FOUND(DEVDAX, MEMORY_CONTROLLER), SAID(EADR, CPU_CACHE),
		{"persistence_domain \"cpu_cache\"", "the kernel says memory_controller", "expected that"}},
	{"less than the kernel says", FOUND(DEVDAX, CPU_CACHE), SAID(DDIO_OFF, MEMORY_CONTROLLER),
		{"\"memory_controller\"", "the kernel says cpu_cache"}},
	{"DAX as a BAR", FOUND(DEVDAX, MEMORY_CONTROLLER), SAID(BAR, UNKNOWN),
		{"how \"bar\"", "found to be DEVDAX", "expected ddio-off or eadr"}},
	{"a BAR as DAX", FOUND(BAR, UNKNOWN), SAID(DDIO_OFF, UNKNOWN), {"how \"ddio-off\"", "expected bar"}},
	{"a BAR in a domain", FOUND(BAR, UNKNOWN), SAID(BAR, CPU_CACHE),
		{"persistence_domain \"cpu_cache\"", "expected no such key"}},
	{"a page cache", FOUND(FILE, MEMORY_CONTROLLER), SAID(DDIO_OFF, UNKNOWN),
		{"found to be FILE", "expected a DAX device"}},
	{"DRAM", FOUND(TMPFS, UNKNOWN), SAID(EADR, CPU_CACHE), {"found to be TMPFS"}},
	{"nothing", FOUND(DEVDAX, MEMORY_CONTROLLER), SAID(NONE, UNKNOWN),
		{"nothing is attested", "expected read_flushes true"}},
	{"nobody", FOUND(DEVDAX, MEMORY_CONTROLLER),
		{.read_flush = FARLOG_READ_FLUSH_DDIO_OFF, .by = "", .date = "2026-11-21"}, {"by \"\"", "1 to 24 bytes"}},
	{"a long name", FOUND(DEVDAX, MEMORY_CONTROLLER),
		{.read_flush = FARLOG_READ_FLUSH_DDIO_OFF, .by = "a name of twenty-five let", .date = "2026-11-21"},
		{"a name of twenty-five let", "24 bytes"}},
	{"two lines", FOUND(DEVDAX, MEMORY_CONTROLLER),
		{.read_flush = FARLOG_READ_FLUSH_DDIO_OFF, .by = "Ada\nBob", .date = "2026-11-21"}, {"one line"}},
	{"no date", FOUND(DEVDAX, MEMORY_CONTROLLER), {.read_flush = FARLOG_READ_FLUSH_DDIO_OFF, .by = "Ada"},
		{"date \"\"", "2026-11-21"}},
	{"another form of date", FOUND(DEVDAX, MEMORY_CONTROLLER),
		{.read_flush = FARLOG_READ_FLUSH_DDIO_OFF, .by = "Ada", .date = "21.11.2026"}, {"date \"21.11.2026\""}},
	{"no such reason", FOUND(DEVDAX, MEMORY_CONTROLLER),
		{.read_flush = FARLOG_READ_FLUSH_BAR + 1, .by = "Ada", .date = "2026-11-21"}, {"read_flush 4"}},
	{"any READ", FOUND(BAR, UNKNOWN),
		{.read_flush = FARLOG_READ_FLUSH_BAR, .is_any_read = 1, .by = "Ada", .date = "2026-11-21"}, {0}},
	{"any READ of none", FOUND(DEVDAX, MEMORY_CONTROLLER),
		{.domain = FARLOG_DOMAIN_MEMORY_CONTROLLER, .is_any_read = 1, .by = "Ada", .date = "2026-11-21"},
		{"any_read_flushes \"true\"", "expected read_flushes true"}},
	{"no such truth", FOUND(BAR, UNKNOWN),
		{.read_flush = FARLOG_READ_FLUSH_BAR, .is_any_read = 2, .by = "Ada", .date = "2026-11-21"},
		{"any_read_flushes"}},
	{"no such domain", FOUND(DEVDAX, MEMORY_CONTROLLER),
		{.domain = FARLOG_DOMAIN_CPU_CACHE + 1, .by = "Ada", .date = "2026-11-21"}, {"domain 3"}},
};

static void attest__against_what_is_found(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct attest_case *one = &cases[i];
		struct farlog_error error = {.text = ""};
		int expected = one->words[0] == NULL ? FARLOG_OK : FARLOG_INVALID;

		if (attest_check(URI, &one->found, &one->attestation, &error) != expected)
			fail_msg("%s: %s", one->what, error.text);
		for (unsigned word = 0; word < 3 && one->words[word] != NULL; word++)
			if (strstr(error.text, one->words[word]) == NULL || strstr(error.text, URI) == NULL)
				fail_msg("%s: \"%s\" has not %s", one->what, error.text, one->words[word]);
	}
}

static void attest__adds_a_read_and_its_name(void **state)
{
	struct farlog_attestation said = SAID(DDIO_OFF, MEMORY_CONTROLLER);
	struct farlog_contract devdax = {.kind = FARLOG_REGION_DEVDAX};
	uint32_t read = 1u << FARLOG_FLUSH_RDMA_READ;
	char text[ATTEST_TEXT_LEN];

	(void)state;
	assert_int_equal(target_methods(&devdax) & read, 0);
	assert_int_equal(attest_flush_methods(&said), read);
	attest_describe(&said, false, text);
	assert_string_equal(text, "ddio-off, memory_controller by attestation of Ada, storage, 2026-11-21");
	said = (struct farlog_attestation)SAID(NONE, CPU_CACHE);
	assert_int_equal(attest_flush_methods(&said), 0);
	attest_describe(&said, false, text);
	assert_string_equal(text, "cpu_cache by attestation of Ada, storage, 2026-11-21");
}

static void attest__commit_is_of_a_provider(void **state)
{
	struct farlog_attestation said = COMMITS("tcp", MEMORY_CONTROLLER);
	char text[ATTEST_TEXT_LEN];

	(void)state;
	assert_int_equal(attest_flush_methods(&said), 0); /* not of whatever a target listens by */
	attest_describe(&said, true, text);
	assert_string_equal(text, "ofi-commit, memory_controller by attestation of Ada, storage, 2026-11-21");
	said.read_flush = FARLOG_READ_FLUSH_DDIO_OFF;
	attest_describe(&said, true, text);
	assert_string_equal(text, "ofi-commit, memory_controller by attestation of Ada, storage, 2026-11-21");
	attest_describe(&said, false, text);
	assert_string_equal(text, "ddio-off, memory_controller by attestation of Ada, storage, 2026-11-21");
}

static void attest__level_of_memory_that_nobody_knows(void **state)
{
	static const struct {
		struct attest_found found;
		struct farlog_attestation said; /* by nobody: none */
		bool is_kept;
	} levels[] = {
		{FOUND(DEVDAX, MEMORY_CONTROLLER), {0}, true},
		{FOUND(FSDAX, CPU_CACHE), {0}, true},
		{FOUND(DEVDAX, UNKNOWN), {0}, false},
		{FOUND(FSDAX, UNKNOWN), {0}, false},
		{FOUND(DEVDAX, UNKNOWN), SAID(NONE, MEMORY_CONTROLLER), true},
		{FOUND(FSDAX, UNKNOWN), SAID(DDIO_OFF, CPU_CACHE), true},
		{FOUND(BAR, UNKNOWN), {0}, false},
		{FOUND(BAR, UNKNOWN), SAID(BAR, UNKNOWN), true},
		{FOUND(FILE, UNKNOWN), {0}, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
		const struct farlog_attestation *said = levels[i].said.by != NULL ? &levels[i].said : NULL;

		assert_int_equal(attest_level(&levels[i].found, said, FARLOG_LEVEL_PERSISTENT),
			levels[i].is_kept ? FARLOG_LEVEL_PERSISTENT : FARLOG_LEVEL_VISIBLE);
		assert_int_equal(attest_level(&levels[i].found, said, FARLOG_LEVEL_VISIBLE), FARLOG_LEVEL_VISIBLE);
	}
}

/* The word of a URI by the same rule: what it answers for, and what denies it. */
static void attest__word_of_a_uri(void **state)
{
	static const struct {
		const char *word;
		struct attest_found found;
		const char *denied; /* NULL: taken */
	} words[] = {
		{"memory_controller", FOUND(DEVDAX, UNKNOWN), NULL},
		{"cpu_cache", FOUND(FSDAX, UNKNOWN), NULL},
		{"cpu_cache", FOUND(DEVDAX, CPU_CACHE), NULL},
		{"bar", FOUND(BAR, UNKNOWN), NULL},
		{"cpu_cache", FOUND(DEVDAX, MEMORY_CONTROLLER), "the kernel says memory_controller"},
		{"memory_controller", FOUND(FSDAX, CPU_CACHE), "the kernel says cpu_cache"},
		{"bar", FOUND(DEVDAX, UNKNOWN), "expected memory_controller or cpu_cache"},
		{"memory_controller", FOUND(BAR, UNKNOWN), "expected bar"},
		{"memory_controller", FOUND(FILE, UNKNOWN), "nothing to attest"},
		{"bar", FOUND(TMPFS, UNKNOWN), "nothing to attest"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		struct farlog_attestation said;
		struct farlog_error error = {0};
		int result = attest_from_uri(URI, words[i].word, &words[i].found, &said, &error);

		if (words[i].denied != NULL) {
			assert_int_equal(result, FARLOG_INVALID);
			assert_non_null(strstr(error.text, words[i].denied));
			assert_non_null(strstr(error.text, words[i].word));
			continue;
		}
		assert_int_equal(result, FARLOG_OK);
		assert_string_equal(attest_uri_value(&said), words[i].word);
		assert_int_equal(attest_level(&words[i].found, &said, FARLOG_LEVEL_PERSISTENT), FARLOG_LEVEL_PERSISTENT);
	}
}

/* A target promises what the same word gives on its host: a region opened without one is raised by its operator's. */
static void attest__target_raises_what_was_probed(void **state)
{
	static const char uri[] = "mem:/sys/resource2"; /* probed as a BAR, and never opened */
	const struct farlog_attestation said = SAID(BAR, UNKNOWN);
	struct region region = {0};
	struct target_ring ring = {.region = &region};
	struct farlog_error error = {0};
	farlog_target *target;

	(void)state;
	if (farlog_target_open("ofi:tcp://127.0.0.1:0", &target, &error) != FARLOG_OK)
		skip();
	assert_int_equal(farlog_region_probe(uri, &region.contract, &error), FARLOG_OK);
	assert_int_equal(target_apply_attestation(target, &ring, uri, &error), FARLOG_OK);
	assert_int_equal(ring.level, FARLOG_LEVEL_VISIBLE);
	assert_string_equal(ring.attested, "nobody attests that it outlives the power");
	assert_int_equal(farlog_target_attest(target, uri, &said, &error), FARLOG_OK);
	assert_int_equal(target_apply_attestation(target, &ring, uri, &error), FARLOG_OK);
	assert_int_equal(ring.level, FARLOG_LEVEL_PERSISTENT);
	assert_string_equal(ring.attested, "bar by attestation of Ada, storage, 2026-11-21");
	farlog_target_close(target);
}

/* The longest of all fits a welcome, with what verbs adds to it. */
static void attest__longest_text_is_not_cut(void **state)
{
	struct farlog_attestation said = SAID(DDIO_OFF, MEMORY_CONTROLLER);
	char text[ATTEST_TEXT_LEN];

	(void)state;
	said.by = "a name of 24 bytes, full";
	assert_int_equal(strlen(said.by), FARLOG_ATTESTED_BY_LEN - 1);
	attest_describe(&said, false, text);
	assert_non_null(strstr(text, "full, 2026-11-21"));
	assert_true(strlen(text) + strlen("; key: memory window") < sizeof(((struct far_welcome *)0)->probe));
	attest_describe(&said, true, text); /* by a transport that adds nothing */
	assert_non_null(strstr(text, "full, 2026-11-21"));
	assert_true(strlen(text) < sizeof(((struct far_welcome *)0)->probe));
}

static void make_dir(const char *path)
{
	assert_int_equal(mkdir(path, 0700), 0);
}

static void write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* domain__of_a_device -- a tree as sysfs has it: the attribute is two directories above the device, which is found by a
 * link. */
static void domain__of_a_device(void **state)
{
	static const struct {
		const char *text;
		enum farlog_persistence_domain domain;
	} files[] = {{"cpu_cache\n", FARLOG_DOMAIN_CPU_CACHE}, {"memory_controller\n", FARLOG_DOMAIN_MEMORY_CONTROLLER},
		{"\n", FARLOG_DOMAIN_UNKNOWN}, {"unknown\n", FARLOG_DOMAIN_UNKNOWN}};
	char root[] = "/tmp/farlog-unit-domain.XXXXXX";
	char region[64], bus[96], device[128], link[64], attribute[96];

	(void)state;
	assert_non_null(mkdtemp(root));
	snprintf(region, sizeof(region), "%s/region0", root);
	snprintf(bus, sizeof(bus), "%s/dax0.1", region);
	snprintf(device, sizeof(device), "%s/dax0.0", bus);
	snprintf(link, sizeof(link), "%s/252:0", root);
	snprintf(attribute, sizeof(attribute), "%s/persistence_domain", region);
	make_dir(region);
	make_dir(bus);
	make_dir(device);
	assert_int_equal(symlink(device, link), 0);
	assert_int_equal(region_find_domain(link), FARLOG_DOMAIN_UNKNOWN); /* there is no attribute at all */
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		write_text(attribute, files[i].text);
		assert_int_equal(region_find_domain(link), files[i].domain);
	}
	unlink(attribute);
	unlink(link);
	assert_int_equal(region_find_domain(link), FARLOG_DOMAIN_UNKNOWN);
	assert_int_equal(rmdir(device) | rmdir(bus) | rmdir(region) | rmdir(root), 0);
	assert_int_equal(region_mem_find_domain("/dev/null"), FARLOG_DOMAIN_UNKNOWN);
	assert_int_equal(region_mem_find_domain("/nowhere/at/all"), FARLOG_DOMAIN_UNKNOWN);
}

/* nvdimm__of_a_device -- only what lies on a bus of the nvdimm driver: not memory that firmware reserved (hmem), nor
 * volatile memory of CXL. */
static void nvdimm__of_a_device(void **state)
{
	static const struct {
		const char *directories[4];
		bool is_nvdimm;
	} devices[] = {{{"ndbus0", "ndbus0/region0", "ndbus0/region0/dax0.1", "ndbus0/region0/dax0.1/dax0.0"}, true},
		{{"platform", "platform/hmem.0", "platform/hmem.0/dax0.1", "platform/hmem.0/dax0.1/dax0.0"}, false},
		{{"root0", "root0/region0", "root0/region0/dax_region0", "root0/region0/dax_region0/dax0.0"}, false}};
	char root[] = "/tmp/farlog-unit-nvdimm.XXXXXX";
	char path[128], link[64];

	(void)state;
	assert_non_null(mkdtemp(root));
	snprintf(link, sizeof(link), "%s/252:0", root);
	assert_false(region_is_nvdimm(link));
	for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
		for (unsigned level = 0; level < 4; level++) {
			snprintf(path, sizeof(path), "%s/%s", root, devices[i].directories[level]);
			make_dir(path);
		}
		assert_int_equal(symlink(path, link), 0);
		assert_int_equal(region_is_nvdimm(link), devices[i].is_nvdimm);
		unlink(link);
		for (unsigned level = 4; level > 0; level--) {
			snprintf(path, sizeof(path), "%s/%s", root, devices[i].directories[level - 1]);
			assert_int_equal(rmdir(path), 0);
		}
	}
	assert_int_equal(rmdir(root), 0);
}

/* A client that asks for rdma-read on devdax: refused with what to do, or taken, by the target's word alone. */
static void attest__read_flush_of_a_client(void **state)
{
	struct far_link link = {
		.welcome = {.kind = FARLOG_REGION_DEVDAX, .level = FARLOG_LEVEL_PERSISTENT, .probe = "DAX device"}};
	uint32_t device = 1u << FARLOG_FLUSH_TARGET_CPU;
	struct farlog_contract contract;
	struct farlog_error error = {0};
	struct uri uri = {.flush = "rdma-read"};

	(void)state;
	link.welcome.flush_methods = device;
	assert_int_equal(far_choose_method(&link, &far_verbs, "verbs://t:1/r", &uri, &error), FARLOG_LEVEL);
	assert_non_null(strstr(error.text, "it offers: target-cpu; "));
	assert_non_null(strstr(error.text, "farlogd target --attestation FILE"));
	link.welcome.kind = FARLOG_REGION_FILE; /* where no attestation would help */
	assert_int_equal(far_choose_method(&link, &far_verbs, "verbs://t:1/r", &uri, &error), FARLOG_LEVEL);
	assert_null(strstr(error.text, "--attestation"));
	link.welcome.kind = FARLOG_REGION_DEVDAX;
	link.welcome.flush_methods = device | 1u << FARLOG_FLUSH_RDMA_READ;
	snprintf(link.welcome.probe, sizeof(link.welcome.probe), "ddio-off by attestation of Ada, 2026-11-21");
	assert_int_equal(far_choose_method(&link, &far_verbs, "verbs://t:1/r", &uri, &error), FARLOG_OK);
	assert_int_equal(link.method, FARLOG_FLUSH_RDMA_READ);
	far_fill_contract(&link, &far_verbs, &contract);
	assert_string_equal(contract.flush_name, "rdma-read");
	assert_int_equal(contract.level, FARLOG_LEVEL_PERSISTENT);
	assert_string_equal(contract.probe, "verbs at its target: ddio-off by attestation of Ada, 2026-11-21");
}

/* So of a commit. */
static void attest__commit_of_a_client(void **state)
{
	struct far_link link = {
		.welcome = {.kind = FARLOG_REGION_DEVDAX, .level = FARLOG_LEVEL_PERSISTENT, .probe = "DAX device"}};
	uint32_t device = 1u << FARLOG_FLUSH_TARGET_CPU | FAR_CARRIES;
	struct farlog_contract contract;
	struct farlog_error error = {0};
	struct uri uri = {.flush = "ofi-commit"};

	(void)state;
	link.welcome.flush_methods = device;
	assert_int_equal(far_choose_method(&link, &far_ofi, "ofi:tcp://t:1/r", &uri, &error), FARLOG_LEVEL);
	assert_non_null(strstr(error.text, "it offers: target-cpu; "));
	assert_non_null(strstr(error.text, "farlogd target --attestation FILE"));
	uri.flush[0] = '\0';
	assert_int_equal(far_choose_method(&link, &far_ofi, "ofi:tcp://t:1/r", &uri, &error), FARLOG_OK);
	assert_int_equal(link.method, FARLOG_FLUSH_TARGET_CPU);
	link.welcome.flush_methods = device | 1u << FARLOG_FLUSH_OFI_COMMIT;
	snprintf(link.welcome.probe, sizeof(link.welcome.probe), "ofi-commit by attestation of Ada, 2026-11-21");
	assert_int_equal(far_choose_method(&link, &far_ofi, "ofi:tcp://t:1/r", &uri, &error), FARLOG_OK);
	assert_int_equal(link.method, FARLOG_FLUSH_OFI_COMMIT);
	far_fill_contract(&link, &far_ofi, &contract);
	assert_string_equal(contract.flush_name, "ofi-commit");
	assert_int_equal(contract.level, FARLOG_LEVEL_PERSISTENT);
	assert_string_equal(contract.probe, "ofi at its target: ofi-commit by attestation of Ada, 2026-11-21");
}

/* What a target refuses of memory that is here. */
static void attest__refused_by_a_target(void **state)
{
	const struct farlog_attestation said = SAID(EADR, CPU_CACHE);
	struct farlog_attestation commits = COMMITS("tcp", CPU_CACHE);
	const char *uri = unit_tmpfs_uri("attest");
	struct farlog_error error = {0};
	farlog_target *target;
	int result = farlog_target_open("ofi:tcp://127.0.0.1:0", &target, &error);

	(void)state;
	if (result == FARLOG_UNSUPPORTED) {
		print_message("skipped: no libfabric on this machine\n");
		skip();
	}
	assert_int_equal(result, FARLOG_OK);
	unit_format(uri, 1 << 20, 0);
	assert_int_equal(farlog_target_attest(target, uri, &said, &error), FARLOG_INVALID);
	assert_non_null(strstr(error.text, "found to be tmpfs"));
	assert_int_equal(farlog_target_attest(target, "mem:/nowhere/dax0.0", &said, &error), FARLOG_NOT_FOUND);
	assert_int_equal(farlog_target_attest(target, "verbs://host:1/ring", &said, &error), FARLOG_INVALID);
	assert_int_equal(farlog_target_attest(target, uri, &commits, &error), FARLOG_INVALID);
	assert_non_null(strstr(error.text, "commit_flushes \"tcp\": it is found to be tmpfs"));
	/* as where libfabric found no flush instructions */
	((struct ofi_listener *)target->listener)->info->caps &= ~FI_RMA_PMEM;
	assert_int_equal(farlog_target_attest(target, uri, &commits, &error), FARLOG_INVALID);
	assert_non_null(strstr(error.text, "commit_flushes \"tcp\": the provider does not say"));
	commits.commit_provider = "efa"; /* another listener's: what the memory is remains to be said */
	assert_int_equal(farlog_target_attest(target, uri, &commits, &error), FARLOG_INVALID);
	assert_non_null(strstr(error.text, "found to be tmpfs"));
	/* as if nothing had been said */
	assert_int_equal(farlog_target_serve(target, "ring", uri, NULL, &error), FARLOG_OK);
	farlog_target_close(target);
	remove(unit_path(uri));
}

static const struct CMUnitTest attest_tests[] = {
	cmocka_unit_test(attest__against_what_is_found),
	cmocka_unit_test(attest__level_of_memory_that_nobody_knows),
	cmocka_unit_test(attest__word_of_a_uri),
	cmocka_unit_test(attest__target_raises_what_was_probed),
	cmocka_unit_test(attest__adds_a_read_and_its_name),
	cmocka_unit_test(attest__commit_is_of_a_provider),
	cmocka_unit_test(attest__longest_text_is_not_cut),
	cmocka_unit_test(domain__of_a_device),
	cmocka_unit_test(nvdimm__of_a_device),
	cmocka_unit_test(attest__read_flush_of_a_client),
	cmocka_unit_test(attest__commit_of_a_client),
	cmocka_unit_test(attest__refused_by_a_target),
};
RUN_GROUP(attest, attest_tests)
