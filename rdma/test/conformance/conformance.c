/* conformance.c -- one program, every kind of region: what a ring promises is the same, whatever lies below it, and
 * however far away.
 *
 * usage: conformance            every kind that can exist on this machine
 *        conformance KIND       tmpfs, packed, file, fault, nvme, devdax, fsdax or bar; exit 77 and what is missing
 *                               when there is none
 *        conformance ofi        a target's rings, over libfabric's tcp provider: tmpfs (also without records in
 *                               requests), packed and file
 *        conformance verbs      over an RDMA device: tmpfs, packed, and devdax where there is one
 *
 * Kinds that need hardware take a path from FARLOG_TEST_BLOCK, FARLOG_TEST_DEVDAX, FARLOG_TEST_FSDAX (a directory) and
 * FARLOG_TEST_BAR, and the device's address from FARLOG_TEST_VERBS. What lies at a path is destroyed. Each kind is run
 * with every flush method that this processor has, or that the target gives. SEED=n repeats after how many records
 * writers are killed. */
#include "conformance.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "far/ofi_faults.h"
#include "adversary/memory.h"
#include "mem/persist.h"

/* run_methods -- at each flush method that fits. Returns how many. */
static unsigned run_methods(const char *path, const char *const *methods)
{
	unsigned count = 0;

	for (; *methods != NULL; methods++) {
		enum farlog_flush_method method;

		if (!persist_find_method(*methods, &method) || !persist_is_supported(method))
			continue;
		here = (struct place){0};
		snprintf(here.uri, sizeof(here.uri), "mem:%s%cflush=%s", path, strchr(path, '?') != NULL ? '&' : '?', *methods);
		strcpy(here.region_uri, here.uri);
		run_cases("");
		count++;
	}
	return count;
}

static int missing(const char *kind, const char *variable, const char *what)
{
	printf("conformance: %s: skipped: set %s to %s\n", kind, variable, what);
	return EXIT_SKIP;
}

static const char *const memory_methods[] = {"clwb", "clflushopt", "nt", "cvap", NULL};
static const char *const memory_methods_and_none[] = {"none", "clwb", "clflushopt", "nt", "cvap", NULL};

static int run_tmpfs(void)
{
	char path[100];

	snprintf(path, sizeof(path), "/dev/shm/farlog-conformance-%ld", (long)getpid());
	run_methods(path, memory_methods_and_none);
	unlink(path);
	return 0;
}

static void run_packed_methods(const char *path)
{
	run_methods(path, memory_methods_and_none);
}

static int run_near_packed(void)
{
	run_packed("packed", false, run_packed_methods);
	return 0;
}

static int run_file(void)
{
	static const char *const methods[] = {"msync", "none", NULL};
	const char *directory = getenv("FARLOG_TEST_DIR");
	char path[300];

	snprintf(
		path, sizeof(path), "%s/farlog-conformance-%ld", directory != NULL ? directory : "/var/tmp", (long)getpid());
	run_methods(path, methods);
	unlink(path);
	return 0;
}

static int run_fault(void)
{
	here = (struct place){.uri = "fault:conformance", .region_uri = "fault:conformance"};
	run_cases("");
	farlog_fault_drop("conformance");
	return 0;
}

/* run_blocks -- by each way of making a write durable that is to be had there; FARLOG_TEST_FLUSH: by that one, where a
 * command takes long. */
static void run_blocks(const char *path)
{
	static const char *const methods[] = {"auto", "dsync", "write", NULL};

	for (unsigned i = 0; methods[i] != NULL; i++) {
		if (getenv("FARLOG_TEST_FLUSH") != NULL && strcmp(getenv("FARLOG_TEST_FLUSH"), methods[i]) != 0)
			continue;
		here = (struct place){0};
		snprintf(here.uri, sizeof(here.uri), "nvme:%s?flush=%s", path, methods[i]);
		strcpy(here.region_uri, here.uri);
		run_cases("");
	}
}

static void block_file(char path[300])
{
	const char *directory = getenv("FARLOG_TEST_DIR");

	snprintf(path, 300, "%s/farlog-conformance-%ld.blocks", directory != NULL ? directory : "/var/tmp", (long)getpid());
}

/* run_nvme_loop -- a loop device over a file: a block device as any other, with a cache that is flushed. */
static int run_nvme_loop(void)
{
	char path[300], device[64] = "", command[700];
	FILE *losetup;

	block_file(path);
	snprintf(command, sizeof(command), "truncate -s %u '%s' && losetup --find --show '%s' 2>&1", SIZE + (20u << 10),
		path, path);
	losetup = popen(command, "r");
	if (losetup == NULL || fgets(device, sizeof(device), losetup) == NULL || strncmp(device, "/dev/", 5) != 0) {
		printf("conformance: nvme-loop: skipped: losetup cannot make a device here: %s\n", device);
		pclose(losetup);
		unlink(path);
		return EXIT_SKIP;
	}
	pclose(losetup);
	device[strcspn(device, "\n")] = '\0';
	run_blocks(device);
	snprintf(command, sizeof(command), "losetup --detach %s", device);
	CHECK(system(command) == 0);
	unlink(path);
	return 0;
}

static int run_nvme_device(void)
{
	const char *path = getenv("FARLOG_TEST_BLOCK");

	if (path == NULL)
		return missing(
			"nvme-device", "FARLOG_TEST_BLOCK", "a block device such as /dev/nvme2n1, whose contents may go");
	run_blocks(path);
	return 0;
}

static int run_nvme_file(void)
{
	char path[300];

	block_file(path);
	run_blocks(path);
	unlink(path);
	return 0;
}

static int run_fsdax(void)
{
	const char *directory = getenv("FARLOG_TEST_FSDAX");
	char path[300];

	if (directory == NULL)
		return missing("fsdax", "FARLOG_TEST_FSDAX", "a directory on a file system that is mounted with -o dax");
	snprintf(path, sizeof(path), "%s/farlog-conformance-%ld", directory, (long)getpid());
	run_methods(path, memory_methods);
	unlink(path);
	return 0;
}

/* run_device -- options: of its URI, "" or "?attest=bar": no power is cut here. */
static int run_device(const char *kind, const char *variable, const char *options, const char *what)
{
	const char *device = getenv(variable);
	char path[300];

	if (device == NULL)
		return missing(kind, variable, what);
	snprintf(path, sizeof(path), "%s%s", device, options);
	run_methods(path, memory_methods);
	return 0;
}

static int run_devdax(void)
{
	return run_device("devdax", "FARLOG_TEST_DEVDAX", "", "a device such as /dev/dax0.0, whose contents may go");
}

static int run_bar(void)
{
	return run_device(
		"bar", "FARLOG_TEST_BAR", "?attest=bar", "a PCI resource file of a memory device, whose contents may go");
}

/* ---------------------------------------------------------------- rings of a target */

/* How its clients come to a far ring: by each of these options, of which the first few must be there, and the others
 * depend on library and device. */
struct transport {
	char listen_uri[128];
	const char *const *options;
	unsigned sure_count;
};

static struct transport transport;

/* is_offered -- by this target on this ring. */
static bool is_offered(const char *options)
{
	struct farlog_grant grant;
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .counters_dir = ""};
	struct farlog_error error = {0};
	farlog_writer *writer = NULL;
	int result;

	if (!entry_serve(&here, options))
		return true;
	grant = entry_take_over(&here);
	config.epoch = grant.epoch;
	config.grant_token = grant.token;
	result = farlog_writer_open(here.uri, &config, &writer, &error);
	farlog_writer_close(writer);
	if (result == FARLOG_LEVEL)
		printf("conformance: %s: not offered here: %s\n", here.uri, error.text);
	return result != FARLOG_LEVEL;
}

static void run_far_options(const char *path)
{
	struct farlog_ring_config config = {
		.size_bytes = SIZE, .record_len_max = RECORD_LEN_MAX, .is_forced = 1, .stream_name = "conformance"};
	struct farlog_error error = {0};

	here = (struct place){.name = "ring"};
	snprintf(here.region_uri, sizeof(here.region_uri), "mem:%s", path);
	snprintf(here.uri, sizeof(here.uri), "%s", here.region_uri);
	CHECK(farlog_ring_format(here.region_uri, &config, &error) == FARLOG_OK);
	for (unsigned i = 0; transport.options[i] != NULL; i++)
		if (i < transport.sure_count || is_offered(transport.options[i]))
			run_cases(transport.options[i]);
}

/* run_far -- a file of its own; directory NULL: packed. */
static int run_far(const char *kind, const char *directory)
{
	struct farlog_error error = {0};
	char path[300];
	int result = entry_open(transport.listen_uri, &error);

	if (result != FARLOG_OK) {
		printf("conformance: %s: %s%s\n", kind, result == FARLOG_UNSUPPORTED ? "skipped: " : "", error.text);
		failed += result != FARLOG_UNSUPPORTED;
		return result == FARLOG_UNSUPPORTED ? EXIT_SKIP : 0;
	}
	if (directory == NULL) {
		run_packed(kind, true, run_far_options);
	} else {
		snprintf(path, sizeof(path), "%s/farlog-%s-%ld", directory, kind, (long)getpid());
		run_far_options(path);
		unlink(path);
	}
	entry_close();
	return 0;
}

static int run_ofi(const char *kind, const char *directory, const char *const *options, unsigned sure_count)
{
	transport = (struct transport){.listen_uri = "ofi:tcp://127.0.0.1:0", .options = options, .sure_count = sure_count};
	return run_far(kind, directory);
}

static int run_ofi_tmpfs(void)
{
	static const char *const options[] = {
		"flush=target-cpu", "flush=ofi-delivery", "flush=target-cpu&wait=spin", "flush=ofi-commit", NULL};

	return run_ofi("ofi-tmpfs", "/dev/shm", options, 3);
}

/* The same where every record goes by a write, as to a target that takes none with a request. */
static int run_ofi_writes(void)
{
	static const char *const options[] = {"flush=target-cpu", NULL};
	int result;

	ofi_carries_nothing = 1;
	result = run_ofi("ofi-writes", "/dev/shm", options, 1);
	ofi_carries_nothing = 0;
	return result;
}

static int run_ofi_packed(void)
{
	static const char *const options[] = {"flush=target-cpu", "flush=ofi-delivery", NULL};

	return run_ofi("ofi-packed", NULL, options, 2);
}

/* A file is flushed by the target's processor alone. */
static int run_ofi_file(void)
{
	static const char *const options[] = {"flush=target-cpu", NULL};
	const char *directory = getenv("FARLOG_TEST_DIR");

	return run_ofi("ofi-file", directory != NULL ? directory : "/var/tmp", options, 1);
}

static bool find_device(void)
{
	static const char *const options[] = {
		"flush=rdma-read", "flush=target-cpu", "flush=target-cpu&wait=block", "flush=rdma-flush", NULL};
	const char *address = getenv("FARLOG_TEST_VERBS");

	transport = (struct transport){.options = options, .sure_count = 3};
	if (address != NULL)
		snprintf(transport.listen_uri, sizeof(transport.listen_uri), "verbs://%s:0", address);
	return address != NULL;
}

static int run_verbs(const char *kind, const char *directory)
{
	return find_device() ? run_far(kind, directory) :
						   missing(kind, "FARLOG_TEST_VERBS", "the address of an RDMA device here (SoftRoCE will do)");
}

static int run_verbs_tmpfs(void)
{
	return run_verbs("verbs-tmpfs", "/dev/shm");
}

/* run_attested -- a DAX device whose operator has spoken. */
static int run_attested(const char *device, bool (*attest)(const char *region_uri))
{
	struct farlog_error error = {0};
	char path[300];

	snprintf(path, sizeof(path), "mem:%s", device);
	CHECK(entry_open(transport.listen_uri, &error) == FARLOG_OK);
	if (error.result != FARLOG_OK || !attest(path))
		return 0;
	snprintf(path, sizeof(path), "%s?ring=conformance", device);
	run_far_options(path);
	entry_close();
	return 0;
}

static int run_ofi_devdax(void)
{
	static const char *const options[] = {"flush=ofi-commit", "flush=target-cpu", NULL};
	const char *device = getenv("FARLOG_TEST_DEVDAX");

	if (device == NULL)
		return missing("ofi-devdax", "FARLOG_TEST_DEVDAX", "a DAX device whose contents may go");
	transport = (struct transport){.listen_uri = "ofi:tcp://127.0.0.1:0", .options = options, .sure_count = 2};
	return run_attested(device, entry_attest_commit);
}

static int run_verbs_packed(void)
{
	return run_verbs("verbs-packed", NULL);
}

static int run_verbs_devdax(void)
{
	const char *device = getenv("FARLOG_TEST_DEVDAX");

	if (!find_device() || device == NULL)
		return missing("verbs-devdax", "FARLOG_TEST_VERBS and FARLOG_TEST_DEVDAX",
			"an RDMA device's address and a DAX device whose contents may go");
	return run_attested(device, entry_attest);
}

static const struct {
	const char *kind;
	int (*run)(void);
} kinds[] = {{"tmpfs", run_tmpfs}, {"packed", run_near_packed}, {"file", run_file}, {"fault", run_fault},
	{"nvme-loop", run_nvme_loop}, {"nvme-file", run_nvme_file}, {"nvme-device", run_nvme_device}, {"fsdax", run_fsdax},
	{"devdax", run_devdax}, {"bar", run_bar}, {"ofi-tmpfs", run_ofi_tmpfs}, {"ofi-writes", run_ofi_writes},
	{"ofi-packed", run_ofi_packed}, {"ofi-file", run_ofi_file}, {"ofi-devdax", run_ofi_devdax},
	{"verbs-tmpfs", run_verbs_tmpfs}, {"verbs-packed", run_verbs_packed}, {"verbs-devdax", run_verbs_devdax}};

/* is_asked -- "ofi" asks for all of that transport. */
static bool is_asked(const char *kind, const char *asked)
{
	size_t len = asked != NULL ? strlen(asked) : 0;

	return asked == NULL || (strncmp(kind, asked, len) == 0 && (kind[len] == '\0' || kind[len] == '-'));
}

int main(int argc, char **argv)
{
	const char *seed_text = getenv("SEED");
	unsigned seed = seed_text != NULL ? (unsigned)strtoul(seed_text, NULL, 0) : (unsigned)clock_monotonic_ns();
	unsigned passed_count = 0;
	unsigned failed_count = 0;
	unsigned skipped_count = 0;

	if (argc == PART_ARGC)
		return entry_part(argv + 1);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("conformance: SEED=%u\n", seed);
	srand(seed);
	may_fail(clock_start()); /* one sampler for all, so that an opening does not wait for its first sample */
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		unsigned before = failed;
		int result;

		if (!is_asked(kinds[i].kind, argv[1]))
			continue;
		printf("[ RUN      ] %s\n", kinds[i].kind);
		result = kinds[i].run();
		skipped_count += result == EXIT_SKIP;
		failed_count += failed != before;
		passed_count += result != EXIT_SKIP && failed == before;
	}
	clock_stop();
	printf("conformance: %u passed, %u failed, %u skipped\n", passed_count, failed_count, skipped_count);
	if (failed_count > 0 || passed_count + skipped_count == 0)
		return 1;
	return argc > 1 && passed_count == 0 ? EXIT_SKIP : 0;
}
