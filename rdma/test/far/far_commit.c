/* far_commit.c -- what FI_COMMIT_COMPLETE does at the target: proved by the processor, not read in a source.
 *
 * libfabric's code is searched for the instruction that writes a cache line back on this processor (clwb, else
 * clflushopt, else clflush). A hardware breakpoint on each counts its executions by the target's threads, and notes the
 * address that the instruction is about to write back. A write that asks for FI_COMMIT_COMPLETE must have every line of
 * it, and nothing else of the ring, written back before it completes; one that asks for FI_DELIVERY_COMPLETE none.
 * Without libfabric's flush, or with one that comes to other lines, this fails.
 *
 * Whether the method is offered for more than the level visible is the operator's word: there the ring is told to be
 * persistent memory, which it is not. */
#include "far_test.h"

#if defined(__x86_64__)
#include <asm/perf_regs.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "far/far.h"
#include "mem/persist.h"
#include "target/ofi.h"

#define PLACE_COUNT_MAX 4u /* the processor has four breakpoints */
#define EVENT_COUNT_MAX 64u
#define LINE_COUNT_MAX 512u
#define BUFFER_PAGES 8u
#define PAGE 4096u

struct place {
	uintptr_t at;
	uint64_t reg;         /* enum perf_event_x86_regs: what the address is taken from */
	int64_t displacement; /* and this added to it */
};

struct event {
	const struct place *place;
	int fd;
	struct perf_event_mmap_page *page;
};

static struct place places[PLACE_COUNT_MAX];
static unsigned place_count;
static struct event events[EVENT_COUNT_MAX];
static unsigned event_count;

static const uint64_t regs[8] = {PERF_REG_X86_AX, PERF_REG_X86_CX, PERF_REG_X86_DX, PERF_REG_X86_BX, PERF_REG_X86_SP,
	PERF_REG_X86_BP, PERF_REG_X86_SI, PERF_REG_X86_DI};

/* How the instruction is encoded: an optional prefix 66, then 0F AE and this in the middle three bits of the third
 * byte. */
static bool has_prefix;
static unsigned operation;
static const char *name;

/* choose_instruction -- as libfabric does when it is loaded. */
static void choose_instruction(void)
{
	bool has_clwb = persist_is_supported(FARLOG_FLUSH_CLWB);

	has_prefix = has_clwb || persist_is_supported(FARLOG_FLUSH_CLFLUSHOPT);
	operation = has_clwb ? 6 : 7;
	name = has_clwb ? "clwb" : has_prefix ? "clflushopt" : "clflush";
}

/* take_place -- where it has a plain register, or one and a byte, as its address. */
static void take_place(const uint8_t *code, bool is_prefixed)
{
	unsigned mode = code[2] >> 6;
	unsigned base = code[2] & 7;

	if (is_prefixed != has_prefix || (code[2] >> 3 & 7) != operation || mode > 1 || base == 4 ||
		(mode == 0 && base == 5))
		return;
	if (place_count < PLACE_COUNT_MAX)
		places[place_count] = (struct place){(uintptr_t)code - has_prefix, regs[base], mode == 1 ? (int8_t)code[3] : 0};
	place_count++;
}

static int search(struct dl_phdr_info *info, size_t size, void *context)
{
	(void)size;
	(void)context;
	if (strstr(info->dlpi_name, "libfabric.so") == NULL)
		return 0;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const uint8_t *start = (const uint8_t *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);

		if (info->dlpi_phdr[i].p_type != PT_LOAD || !(info->dlpi_phdr[i].p_flags & PF_X))
			continue;
		for (const uint8_t *code = start + 1; code + 4 < start + info->dlpi_phdr[i].p_memsz; code++)
			if (code[0] == 0x0F && code[1] == 0xAE)
				take_place(code, code[-1] == 0x66);
	}
	return 1;
}

/* watch -- one place in one thread. 0 or errno. */
static int watch(pid_t thread, const struct place *place)
{
	struct perf_event_attr attr = {.type = PERF_TYPE_BREAKPOINT,
		.size = sizeof(attr),
		.bp_type = HW_BREAKPOINT_X,
		.bp_addr = place->at,
		.bp_len = sizeof(long),
		.sample_period = 1,
		.sample_type = PERF_SAMPLE_REGS_USER,
		.sample_regs_user = 1ull << place->reg,
		.exclude_kernel = 1,
		.exclude_hv = 1,
		.wakeup_events = 1};
	struct event *event = &events[event_count];

	if (event_count == EVENT_COUNT_MAX)
		return ENOSPC;
	event->place = place;
	event->fd = (int)syscall(SYS_perf_event_open, &attr, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (event->fd < 0)
		return errno;
	event->page = mmap(NULL, (1 + BUFFER_PAGES) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, event->fd, 0);
	if (event->page == MAP_FAILED) {
		close(event->fd);
		return ENOMEM;
	}
	event_count++;
	return 0;
}

/* watch_threads -- all of this process. 0 or errno. */
static int watch_threads(void)
{
	DIR *threads = opendir("/proc/self/task");
	const struct dirent *entry;
	int failure = threads == NULL ? errno : 0;

	while (failure == 0 && (entry = readdir(threads)) != NULL)
		for (unsigned i = 0; i < place_count && failure == 0 && entry->d_name[0] != '.'; i++)
			failure = watch((pid_t)atoi(entry->d_name), &places[i]);
	if (threads != NULL)
		closedir(threads);
	return failure;
}

/* take_samples -- the addresses that were to be written back since the last time. How many; those beyond the array are
 * counted only. */
static unsigned take_samples(uint64_t *addresses)
{
	unsigned count = 0;

	for (unsigned i = 0; i < event_count; i++) {
		struct perf_event_mmap_page *page = events[i].page;
		const uint8_t *data = (const uint8_t *)page + PAGE;
		uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);

		while (page->data_tail < head) {
			uint64_t words[3]; /* header, abi, the register; records are of whole words, and so is the buffer */
			struct perf_event_header header;

			for (unsigned j = 0; j < 3; j++)
				memcpy(&words[j], data + (page->data_tail + j * 8) % (BUFFER_PAGES * PAGE), 8);
			memcpy(&header, &words[0], sizeof(header));
			CHECK(header.type != PERF_RECORD_LOST);
			if (header.type == PERF_RECORD_SAMPLE && count < LINE_COUNT_MAX)
				addresses[count] = words[2] + (uint64_t)events[i].place->displacement;
			count += header.type == PERF_RECORD_SAMPLE;
			page->data_tail += header.size;
		}
	}
	return count;
}

static void unwatch(void)
{
	for (unsigned i = 0; i < event_count; i++) {
		munmap(events[i].page, (1 + BUFFER_PAGES) * PAGE);
		close(events[i].fd);
	}
	event_count = 0;
}

/* ---------------------------------------------------------------- a write, and what it does */

static int write_span(struct far_link *link, enum farlog_flush_method method, struct region_span span)
{
	static uint64_t tag;
	uint64_t until_ns = clock_after_ns(LONG_NS);
	int result;

	link->method = method;
	memset(link->copy + span.off, (int)(tag + 1), span.len);
	result = link->ops->persist(link, &span, 1, ++tag);
	while (result == FARLOG_OK && link->done.persist_tag != tag && clock_monotonic_ns() < until_ns)
		result = link->ops->poll(link);
	return result == FARLOG_OK && link->done.persist_tag != tag ? FARLOG_NOT_YET : result;
}

/* mapped_at -- where the target maps the ring: the only shared, writable mapping of its file in this process. */
static uint64_t mapped_at(const char *path)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	uint64_t start = 0;

	while (maps != NULL && start == 0 && fgets(line, sizeof(line), maps) != NULL)
		if (strstr(line, path) != NULL && strstr(line, "rw-s") != NULL)
			start = strtoull(line, NULL, 16);
	if (maps != NULL)
		fclose(maps);
	return start;
}

static void expect_lines(struct far_link *link, uint64_t base, struct region_span span)
{
	uint64_t addresses[LINE_COUNT_MAX];
	uint8_t seen[LINE_COUNT_MAX] = {0};
	uint64_t first = span.off / 64;
	uint64_t line_count = (span.off + span.len + 63) / 64 - first;
	unsigned count;

	CHECK(write_span(link, FARLOG_FLUSH_OFI_COMMIT, span) == FARLOG_OK);
	count = take_samples(addresses);
	CHECK(count == line_count);
	for (unsigned i = 0; i < count && i < LINE_COUNT_MAX; i++) {
		uint64_t line = (addresses[i] - base) / 64 - first;

		CHECK(addresses[i] >= base && line < line_count);
		if (line < line_count)
			seen[line]++;
	}
	for (uint64_t line = 0; line < line_count; line++)
		CHECK(seen[line] == 1);
	CHECK(write_span(link, FARLOG_FLUSH_OFI_DELIVERY, span) == FARLOG_OK);
	CHECK(take_samples(addresses) == 0);
}

static void watch_writes(const char *path, struct far_link *link)
{
	static const struct region_span spans[] = {{LAYOUT_DATA_OFF, 64}, {LAYOUT_DATA_OFF + 4096, 256},
		{LAYOUT_DATA_OFF + 8192 + 24, 200}, {LAYOUT_DATA_OFF + 16384, 16384}};
	uint64_t base = mapped_at(path);
	int failure;

	CHECK(base != 0);
	choose_instruction();
	dl_iterate_phdr(search, NULL);
	printf("far: commit: libfabric has %u places with %s\n", place_count, name);
	CHECK(place_count > 0 && place_count <= PLACE_COUNT_MAX);
	if (place_count > PLACE_COUNT_MAX)
		return;
	failure = watch_threads();
	if (failure != 0) {
		printf("far: commit: skipped: no hardware breakpoints (perf_event_open: %s)\n", strerror(failure));
		is_skipped = true;
		return;
	}
	for (size_t i = 0; i < sizeof(spans) / sizeof(spans[0]); i++)
		expect_lines(link, base, spans[i]);
}

/* open_persistent -- a writer of epoch 2 that wants more than visible. NULL, and why. */
static farlog_writer *open_persistent(
	const char *ring_uri, const uint8_t *token, const char *flush, struct farlog_error *error)
{
	struct farlog_writer_config config = {
		.level = FARLOG_LEVEL_PERSISTENT, .epoch = 2, .counters_dir = "", .grant_token = token, .deadline_ns = LONG_NS};
	farlog_writer *writer = NULL;
	char uri[192];

	snprintf(uri, sizeof(uri), "%s%s", ring_uri, flush);
	error->result = farlog_writer_open(uri, &config, &writer, error);
	return writer;
}

/* await_no_writer_here -- the end of a connection without a goodbye is found out in a moment. */
static void await_no_writer_here(farlog_target *target)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);
	struct farlog_target_counters counters = {.writer_count = 1};

	while (counters.writer_count > 0 && clock_monotonic_ns() < until_ns)
		CHECK(farlog_target_counters_read(target, "ring", &counters) == FARLOG_OK);
	CHECK(counters.writer_count == 0);
}

static bool refused_level(
	farlog_target *target, const char *ring_uri, const uint8_t *token, const char *flush, struct farlog_error *error)
{
	await_no_writer_here(target);
	return open_persistent(ring_uri, token, flush, error) == NULL && error->result == FARLOG_LEVEL;
}

/* by_attestation -- of memory that is persistent as its flush reaches it: never without the operator's word, nor
 * against the provider's. */
static void by_attestation(farlog_target *target, const char *ring_uri, const uint8_t *token)
{
	struct target_ring *ring = target->rings;
	struct fi_info *info = ((struct ofi_listener *)target->listener)->info;
	struct farlog_position position = {0};
	struct farlog_error error = {0};
	farlog_writer *writer;

	ring->region->contract.kind = FARLOG_REGION_DEVDAX;
	ring->region->contract.level = ring->level = FARLOG_LEVEL_PERSISTENT;
	CHECK(refused_level(target, ring_uri, token, "?flush=ofi-commit", &error));
	CHECK(strstr(error.text, "it offers: target-cpu; ") != NULL && strstr(error.text, "--attestation FILE") != NULL);
	ring->is_commit_flush = true;
	info->caps &= ~FI_RMA_PMEM;
	CHECK(refused_level(target, ring_uri, token, "?flush=ofi-commit", &error));
	info->caps |= FI_RMA_PMEM;
	CHECK(refused_level(target, ring_uri, token, "?flush=ofi-delivery", &error));
	await_no_writer_here(target);
	writer = open_persistent(ring_uri, token, "", &error);
	if (CHECK_OK(error.result)) {
		CHECK(strcmp(farlog_writer_contract(writer)->flush_name, "ofi-commit") == 0);
		CHECK(append_number(writer, 1, LONG_NS, &position) == FARLOG_OK && position.level == FARLOG_LEVEL_PERSISTENT);
	}
	farlog_writer_close(writer);
}

void test_commit(void)
{
	struct farlog_ring_config config = {.size_bytes = RING_BYTES, .is_forced = 1};
	struct far_hello hello = {.magic = FAR_HELLO_MAGIC,
		.version = FAR_VERSION,
		.role = REGION_ROLE_WRITER,
		.epoch = 2,
		.ring_hash = crc32c_update(0, "ring", 4),
		.client_id = 1};
	struct farlog_grant grant = {.role = FARLOG_GRANT_WRITER, .epoch = 2};
	struct far_refusal refusal;
	struct farlog_error error = {0};
	farlog_target *target = NULL;
	struct far_link *link = NULL;
	struct uri uri;
	char path[64];
	char region_uri[80];
	char ring_uri[160];

	snprintf(path, sizeof(path), "/dev/shm/farlog-commit-%ld.ring", (long)getpid());
	snprintf(region_uri, sizeof(region_uri), "mem:%s", path);
	host_token('c', grant.token);
	host_token('c', hello.token);
	if (!CHECK_OK(farlog_ring_format(region_uri, &config, &error)) ||
		!CHECK_OK(farlog_target_open("ofi:tcp://127.0.0.1:0", &target, &error)) ||
		!CHECK_OK(farlog_target_serve(target, "ring", region_uri, NULL, &error)) ||
		!CHECK_OK(farlog_target_grant(target, "ring", &grant, &error)))
		goto done;
	snprintf(ring_uri, sizeof(ring_uri), "%s/ring", farlog_target_uri(target));
	if (!CHECK_OK(uri_parse(ring_uri, &uri, &error)) || !CHECK_OK(far_ofi.open(ring_uri, &uri, &link, &error)) ||
		!CHECK_OK(link->ops->connect(link, &hello, &refusal, LONG_NS, &error)))
		goto done;
	CHECK(link->welcome.flush_methods & 1u << FARLOG_FLUSH_OFI_COMMIT && link->welcome.level == FARLOG_LEVEL_VISIBLE);
	watch_writes(path, link);
	link->ops->disconnect(link);
	by_attestation(target, ring_uri, grant.token);
done:
	unwatch();
	if (link != NULL) {
		uint8_t *copy = link->copy;

		link->ops->disconnect(link);
		link->ops->close(link);
		if (copy != NULL)
			munmap(copy, RING_BYTES);
	}
	farlog_target_close(target);
	unlink(path);
}
#else
void test_commit(void)
{
	printf("far: commit: skipped: the instructions are looked for on x86-64 only\n");
}
#endif
