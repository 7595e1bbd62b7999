/* test_stores.c -- what the processor is told to do, followed instruction by instruction: when an append says OK, has
 * every line that it changed left the caches, and has a fence stood behind it?
 *
 * Adversarial memory sees what the code asks of a region; it cannot see what a compiler made of it. So a child process
 * appends to a ring on tmpfs under a forced flush method, and is single-stepped. After each instruction the ring is
 * compared with its state before: a line that an ordinary store changed is dirty until clwb or clflush* names it; that,
 * or a non-temporal store, leaves it on its way until a fence. When the child has been told of a record, no line may be
 * dirty or on its way. A store of the bytes that were there is not seen, so the ring is filled with noise
 * beforehand. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ring/layout.h"
#include "mem/mem.h"
#include "mem/persist.h"
#include "unit.h"

#if defined(__x86_64__)

#define CAPACITY (32u << 10)
#define RING_LEN (LAYOUT_DATA_OFF + CAPACITY)
#define LINE_COUNT (RING_LEN / LAYOUT_LINE_LEN)
#define STEP_COUNT_MAX 10000000u /* far more than the script takes */

enum line_state { LINE_DURABLE, LINE_LEAVING, LINE_DIRTY };
enum effect { EFFECT_NONE, EFFECT_STREAM, EFFECT_FLUSH, EFFECT_FENCE };

#define MAP_COUNT_MAX 8u

/* What the child says of itself. */
struct told {
	volatile uint64_t count; /* acknowledgements */
	struct {
		uint64_t start, end, off;
	} maps[MAP_COUNT_MAX]; /* where it has the ring */
	unsigned map_count;
};

struct trace {
	const uint8_t *ring; /* as the child changes it */
	uint8_t shadow[RING_LEN];
	uint8_t lines[LINE_COUNT];
	struct told *told;
	const char *method;
	unsigned stream_count;
	unsigned flush_count;
	unsigned fence_count;
	unsigned step_count;
};

static struct trace trace;

/* address_of -- what an instruction's ModR/M names (Intel SDM vol. 2, 2.1.5). `code` points at it, `next_rip` behind
 * the instruction, which has no immediate. */
static uint64_t address_of(const uint8_t *code, unsigned rex, const struct user_regs_struct *regs)
{
	const unsigned long long values[16] = {regs->rax, regs->rcx, regs->rdx, regs->rbx, regs->rsp, regs->rbp, regs->rsi,
		regs->rdi, regs->r8, regs->r9, regs->r10, regs->r11, regs->r12, regs->r13, regs->r14, regs->r15};
	unsigned mod = *code >> 6;
	unsigned rm = *code & 7;
	uint64_t address = 0;
	int32_t wide = 0;

	code++;
	if (rm == 4) {
		unsigned index = ((*code >> 3) & 7) | (rex & 2) << 2;
		unsigned base = *code & 7;

		if (index != 4)
			address += values[index] << (*code >> 6);
		if (base == 5 && mod == 0)
			mod = 4; /* no base, four bytes */
		else
			address += values[base | (rex & 1) << 3];
		code++;
	} else if (rm == 5 && mod == 0) {
		memcpy(&wide, code, sizeof(wide));
		return (uint64_t)(uintptr_t)(code + 4) + (uint64_t)(int64_t)wide;
	} else {
		address += values[rm | (rex & 1) << 3];
	}
	if (mod == 1)
		return address + (uint64_t)(int64_t)(int8_t)*code;
	if (mod != 0)
		memcpy(&wide, code, sizeof(wide));
	return address + (uint64_t)(int64_t)wide;
}

/* effect_of -- what the instruction at rip does for durability; *address is the line that a flush names. The child is a
 * fork: its code lies here too, at the same place. */
static enum effect effect_of(const struct user_regs_struct *regs, uint64_t *address)
{
	const uint8_t *code = (const uint8_t *)(uintptr_t)regs->rip;
	bool has_66 = false;
	unsigned rex = 0;

	if (code[0] == 0x62) /* EVEX */
		return (code[1] & 7) == 1 && (code[2] & 3) == 1 && code[4] == 0xE7 ? EFFECT_STREAM : EFFECT_NONE;
	if (code[0] == 0xC5) /* VEX */
		return (code[1] & 3) == 1 && code[2] == 0xE7 ? EFFECT_STREAM : EFFECT_NONE;
	if (code[0] == 0xC4)
		return (code[1] & 31) == 1 && (code[2] & 3) == 1 && code[3] == 0xE7 ? EFFECT_STREAM : EFFECT_NONE;
	for (; *code == 0x66 || *code == 0x2E || *code == 0x3E; code++)
		has_66 |= *code == 0x66;
	if ((*code & 0xF0) == 0x40)
		rex = *code++;
	if (code[0] != 0x0F)
		return EFFECT_NONE;
	if ((code[1] == 0xE7 && has_66) || code[1] == 0xC3)
		return EFFECT_STREAM; /* movntdq, movnti */
	if (code[1] != 0xAE)
		return EFFECT_NONE;
	if (code[2] == 0xF8 || code[2] == 0xF0)
		return EFFECT_FENCE; /* sfence, mfence */
	if (code[2] >= 0xC0 || !((code[2] & 0x38) == 0x38 || ((code[2] & 0x38) == 0x30 && has_66)))
		return EFFECT_NONE;
	*address = address_of(code + 2, rex, regs); /* clflush, clflushopt, clwb */
	return EFFECT_FLUSH;
}

/* flush_line -- the line of the ring that is at this address in the child. */
static void flush_line(uint64_t address)
{
	for (unsigned i = 0; i < trace.told->map_count; i++) {
		uint64_t off = address - trace.told->maps[i].start + trace.told->maps[i].off;

		if (address >= trace.told->maps[i].start && address < trace.told->maps[i].end && off < RING_LEN) {
			trace.flush_count++;
			trace.lines[off / LAYOUT_LINE_LEN] = LINE_LEAVING;
		}
	}
}

/* follow -- one instruction was done: what has it changed? */
static void follow(enum effect effect, uint64_t address)
{
	if (effect == EFFECT_FENCE) {
		trace.fence_count++;
		for (unsigned i = 0; i < LINE_COUNT; i++)
			trace.lines[i] = trace.lines[i] == LINE_LEAVING ? LINE_DURABLE : trace.lines[i];
	} else if (effect == EFFECT_FLUSH) {
		flush_line(address);
	}
	if (memcmp(trace.ring, trace.shadow, RING_LEN) == 0)
		return;
	trace.stream_count += effect == EFFECT_STREAM;
	for (unsigned i = 0; i < LINE_COUNT; i++) {
		const uint8_t *line = trace.ring + i * LAYOUT_LINE_LEN;
		uint8_t *before = trace.shadow + i * LAYOUT_LINE_LEN;

		if (memcmp(line, before, LAYOUT_LINE_LEN) == 0)
			continue;
		memcpy(before, line, LAYOUT_LINE_LEN);
		if (effect != EFFECT_STREAM)
			trace.lines[i] = LINE_DIRTY;
		else if (trace.lines[i] == LINE_DURABLE)
			trace.lines[i] = LINE_LEAVING;
	}
}

/* check_durable -- hints and the credit are words that nobody counts on after a power cut. */
static void check_durable(void)
{
	static const char *const names[] = {"durable", "flushed, but with no fence behind it", "in the cache"};

	for (unsigned i = 0; i < LINE_COUNT; i++) {
		unsigned off = i * LAYOUT_LINE_LEN;

		if (trace.lines[i] != LINE_DURABLE && off != LAYOUT_CREDIT_OFF && off != LAYOUT_TAIL_HINT_OFF)
			fail_msg("flush=%s: after acknowledgement %lu the line at %#x is %s", trace.method, trace.told->count, off,
				names[trace.lines[i]]);
	}
}

/* Every way to append, of records by every way into the ring; around its end; and the release of what was drained. */
static void script(farlog_writer *writer, farlog_reader *drain)
{
	static const uint8_t payload[8192] = {0x5A, 0xA5};
	static const uint32_t lens[] = {0, 1, 40, 192, 200, 700, 3900, 5000};
	static uint8_t drained[8192];
	struct farlog_position positions[8];
	struct farlog_entry entries[8];
	struct farlog_batch batch;
	size_t done;
	size_t submitted;
	void *claimed;

	for (unsigned i = 0; i < 8; i++)
		entries[i] = (struct farlog_entry){
			.data = payload + i, .len = lens[i], .key = "KEY", .key_len = i % 2 ? 3 : 0, .class_id = 1};
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 8; i++) {
			int result = i % 2 ? farlog_append(writer, &entries[i], 0, positions) :
								 farlog_try_append(writer, &entries[i], positions);

			trace.told->count += result == FARLOG_OK;
		}
		for (unsigned i = 0; i < 6; i++)
			assert_int_equal(farlog_submit(writer, &entries[i], &positions[i]), FARLOG_OK);
		trace.told->count += farlog_wait(writer, positions[5].end_lsn, 0) == FARLOG_OK;
		trace.told->count += farlog_append_batch(writer, entries, 6, 0, positions, &done, &submitted) == FARLOG_OK;
		if (farlog_claim(writer, 100, 1, "K", 1, &claimed) == FARLOG_OK)
			memset(claimed, (int)round, 100);
		trace.told->count += farlog_commit(writer, 0, positions) == FARLOG_OK;
		while (farlog_reader_read(drain, drained, sizeof(drained), &batch) == FARLOG_OK)
			trace.told->count +=
				farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch) == FARLOG_OK;
	}
}

/* tell_maps -- the child's mappings of the ring, its writer's and its drain's. */
static void tell_maps(const char *path)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];

	while (maps != NULL && fgets(line, sizeof(line), maps) != NULL && trace.told->map_count < MAP_COUNT_MAX) {
		unsigned long start, end, off;

		if (strstr(line, path) != NULL && sscanf(line, "%lx-%lx %*s %lx", &start, &end, &off) == 3) {
			trace.told->maps[trace.told->map_count].start = start;
			trace.told->maps[trace.told->map_count].end = end;
			trace.told->maps[trace.told->map_count++].off = off;
		}
	}
	if (maps != NULL)
		fclose(maps);
}

static int child(const char *uri, const char *path)
{
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .counters_dir = ""};
	farlog_writer *writer;
	farlog_reader *drain;

	if (farlog_writer_open(uri, &config, &writer, NULL) != FARLOG_OK ||
		farlog_reader_open(uri, &(struct farlog_reader_config){.is_drain = 1}, &drain, NULL) != FARLOG_OK)
		return 1;
	tell_maps(path);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
		return 77;
	raise(SIGSTOP);
	script(writer, drain);
	raise(SIGSTOP);
	return 0;
}

/* step_through -- until the child stops by itself. False: it may not be traced here. */
static bool step_through(pid_t pid)
{
	struct user_regs_struct regs;
	uint64_t told = 0;
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		return false;
	assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	memcpy(trace.shadow, trace.ring, RING_LEN);
	for (; trace.step_count < STEP_COUNT_MAX; trace.step_count++) {
		enum effect effect;
		uint64_t address = 0;

		assert_int_equal(ptrace(PTRACE_GETREGS, pid, NULL, &regs), 0);
		effect = effect_of(&regs, &address);
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (!WIFSTOPPED(status) || WSTOPSIG(status) == SIGSTOP)
			break;
		assert_int_equal(WSTOPSIG(status), SIGTRAP);
		follow(effect, address);
		if (trace.told->count != told)
			check_durable();
		told = trace.told->count;
	}
	assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	return true;
}

/* fill_with_noise -- where no record has been. */
static void fill_with_noise(uint8_t *ring)
{
	for (size_t at = LAYOUT_DATA_OFF; at < RING_LEN; at++)
		ring[at] = (uint8_t)unit_random();
}

static void check_method(enum farlog_flush_method method)
{
	const char *plain = unit_tmpfs_uri("stores");
	char uri[400];
	uint8_t *ring;
	bool is_traced;
	pid_t pid;
	int fd;

	memset(&trace, 0, sizeof(trace));
	trace.method = persist_method_name(method);
	trace.told = mmap(NULL, sizeof(*trace.told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(trace.told != MAP_FAILED);
	snprintf(uri, sizeof(uri), "%s?flush=%s", plain, trace.method);
	unit_format(plain, RING_LEN, 8192);
	fd = open(unit_path(plain), O_RDWR);
	ring = mmap(NULL, RING_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(fd >= 0 && ring != MAP_FAILED);
	close(fd);
	fill_with_noise(ring);
	trace.ring = ring;
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		_exit(child(uri, unit_path(plain)));
	is_traced = step_through(pid);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	if (is_traced) {
		print_message(
			"flush=%s: %u instructions, %lu acknowledgements, %u streaming stores, %u lines flushed, %u fences\n",
			trace.method, trace.step_count, trace.told->count, trace.stream_count, trace.flush_count,
			trace.fence_count);
		assert_true(trace.told->count >= 40);
		assert_true(trace.fence_count >= 40);
		assert_true((method == FARLOG_FLUSH_NT_STORE ? trace.stream_count : trace.flush_count) >= 500);
	}
	munmap(ring, RING_LEN);
	munmap(trace.told, sizeof(*trace.told));
	if (!is_traced) {
		print_message("stores: skipped: this kernel or container permits no ptrace(2)\n");
		skip();
	}
}

static void acknowledged_lines__have_left_the_caches(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	(void)state;
	print_message("stores: skipped: this build has a sanitizer, whose own instructions would be followed; the builds "
				  "of gcc and clang without one run it\n");
	skip();
#else
	static const enum farlog_flush_method methods[] = {
		FARLOG_FLUSH_NT_STORE, FARLOG_FLUSH_CLWB, FARLOG_FLUSH_CLFLUSHOPT};
	cpu_set_t before;
	cpu_set_t one;

	(void)state;
	CPU_ZERO(&one);
	/* a step is two changes of process: three times as long from core to core */
	CPU_SET((unsigned)sched_getcpu(), &one);
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	sched_setaffinity(0, sizeof(one), &one);
	for (unsigned i = 0; i < 3; i++)
		if (persist_is_supported(methods[i]))
			check_method(methods[i]);
	sched_setaffinity(0, sizeof(before), &before);
#endif
}

#define BAR_CALL_COUNT 3u

/* push_calls -- a BAR's ways to make stores durable, each a load behind a fence. A file stands for the device: the
 * instructions are the same. What each call loaded is told. */
static int push_calls(int fd, volatile uint64_t *seen)
{
	struct farlog_contract contract = {.kind = FARLOG_REGION_BAR,
		.is_read_back = 1,
		.size_bytes = RING_LEN,
		.granularity = 64,
		.flush_method = FARLOG_FLUSH_NONE};
	struct region_span span = {LAYOUT_DATA_OFF, LAYOUT_LINE_LEN};
	struct region *region;
	int results[BAR_CALL_COUNT] = {0};

	if (region_mem_from_fd(
			"bar", fd, NULL, &contract, &(struct region_options){.access = REGION_WRITE}, &region, NULL) != FARLOG_OK)
		return 1;
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
		return 77;
	raise(SIGSTOP);
	results[0] = region->ops->data.persist(region, &span, 1, 1);
	seen[0] = region->fence_copy;
	region->ops->data.seal(region);
	seen[1] = region->fence_copy;
	results[2] = region->ops->data.flush(region, span.off, span.len);
	seen[2] = region->fence_copy;
	raise(SIGSTOP);
	return results[0] != FARLOG_OK || results[2] != FARLOG_OK;
}

/* raise_at_full_fences -- the fence word is raised whenever the child is about to execute mfence: a load that is made
 * before it does not see that. False: it may not be traced here. */
static bool raise_at_full_fences(pid_t pid, volatile uint64_t *word)
{
	static const uint8_t mfence[] = {0x0F, 0xAE, 0xF0};
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		return false;
	for (unsigned i = 0; WIFSTOPPED(status) && i < STEP_COUNT_MAX; i++) {
		struct user_regs_struct regs;
		long code;

		assert_int_equal(ptrace(PTRACE_GETREGS, pid, NULL, &regs), 0);
		code = ptrace(PTRACE_PEEKTEXT, pid, (void *)regs.rip, NULL);
		if (memcmp(&code, mfence, sizeof(mfence)) == 0)
			(*word)++;
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP)
			return true;
		assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
	}
	fail_msg("the child did not come to its end");
	return false;
}

/* sfence would not do: it holds back no load, and of a BAR that is mapped write-combining the stores would follow the
 * load that is to push them. */
static void bar_load__stands_behind_a_full_fence(void **state)
{
	static const char *const calls[BAR_CALL_COUNT] = {"persist", "seal", "flush"};
	const char *uri = unit_tmpfs_uri("bar");
	uint64_t *seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int fd = open(unit_path(uri), O_RDWR | O_CREAT, 0600);
	uint8_t *bar;
	bool is_traced;
	pid_t pid;

	(void)state;
	assert_true(fd >= 0 && ftruncate(fd, RING_LEN) == 0 && seen != MAP_FAILED);
	bar = mmap(NULL, RING_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(bar != MAP_FAILED);
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		_exit(push_calls(fd, seen));
	is_traced = raise_at_full_fences(pid, (uint64_t *)(bar + LAYOUT_FENCE_OFF));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	for (unsigned i = 0; is_traced && i < BAR_CALL_COUNT; i++)
		if (seen[i] != i + 1)
			fail_msg("%s of a BAR: its load saw %lu; expected %u, as stored before the mfence of this call", calls[i],
				seen[i], i + 1);
	munmap(bar, RING_LEN);
	munmap(seen, 4096);
	close(fd);
	if (!is_traced) {
		print_message("stores: skipped: this kernel or container permits no ptrace(2)\n");
		skip();
	}
}
#else
static void acknowledged_lines__have_left_the_caches(void **state)
{
	(void)state;
	print_message("stores: skipped: this processor is no x86-64, whose instructions alone are known here\n");
	skip();
}

static void bar_load__stands_behind_a_full_fence(void **state)
{
	acknowledged_lines__have_left_the_caches(state);
}
#endif

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(acknowledged_lines__have_left_the_caches),
	cmocka_unit_test(bar_load__stands_behind_a_full_fence),
};

RUN_GROUP(stores, tests)
