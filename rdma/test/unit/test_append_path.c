/* No system call and no allocation on the append path after open, counted; on blocks one system call a commit, which
 * sends and waits.
 *
 * A child process opens a ring on tmpfs, then gives its thread a seccomp filter that turns every system call into a
 * signal, which is counted. Allocation is counted by the linker's --wrap around the core's and this file's calls. */
#include <dlfcn.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ring/layout.h"
#include "blocks/nvme.h"
#include "encrypted.h"
#include "log/writer.h"

struct counts {
	volatile uint64_t syscalls;
	volatile uint64_t last_syscall;
	volatile uint64_t allocations;
	volatile uint64_t is_counting;
	volatile uint64_t appended;
	volatile uint64_t canary; /* system calls seen when one was made on purpose */
	volatile uint64_t enters; /* of io_uring */
};

static struct counts *counts;

void *__real_malloc(size_t len);
void *__real_calloc(size_t count, size_t len);
void *__real_realloc(void *old, size_t len);
void *__real_aligned_alloc(size_t align, size_t len);
void *__wrap_malloc(size_t len);
void *__wrap_calloc(size_t count, size_t len);
void *__wrap_realloc(void *old, size_t len);
void *__wrap_aligned_alloc(size_t align, size_t len);

static void count_allocation(void)
{
	if (counts != NULL && counts->is_counting)
		counts->allocations++;
}

void *__wrap_malloc(size_t len)
{
	count_allocation();
	return __real_malloc(len);
}

void *__wrap_calloc(size_t count, size_t len)
{
	count_allocation();
	return __real_calloc(count, len);
}

void *__wrap_realloc(void *old, size_t len)
{
	count_allocation();
	return __real_realloc(old, len);
}

void *__wrap_aligned_alloc(size_t align, size_t len)
{
	count_allocation();
	return __real_aligned_alloc(align, len);
}

static void on_syscall(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	counts->last_syscall = (uint64_t)info->si_syscall;
	if (counts->is_counting)
		counts->syscalls++;
	else
		counts->canary++;
}

/* What the test itself needs to end is let through; everything else raises SIGSYS. */
static bool forbid_syscalls(bool is_enter_allowed)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 2, 0),
		/* its calls are counted by who makes them */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, is_enter_allowed ? SYS_io_uring_enter : SYS_rt_sigreturn, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
	struct sigaction action = {.sa_sigaction = on_syscall, .sa_flags = SA_SIGINFO};

	return sigaction(SIGSYS, &action, NULL) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void append_all_ways(farlog_writer *writer)
{
	struct farlog_entry entry = {
		.data = "0123456789012345678901234567890123456789", .len = 40, .key = "K", .key_len = 1};
	struct farlog_entry entries[4] = {entry, entry, entry, entry};
	struct farlog_position positions[4];
	uint64_t durable_lsn;
	size_t done;
	size_t submitted;
	void *payload;

	for (unsigned i = 0; i < 2000; i++) {
		counts->appended += farlog_append(writer, &entry, 0, positions) == FARLOG_OK;
		counts->appended += farlog_try_append(writer, &entry, positions) == FARLOG_OK;
		counts->appended += farlog_submit(writer, &entry, positions) == FARLOG_OK;
		may_fail(farlog_poll(writer, &durable_lsn));
		assert_int_equal(farlog_wait(writer, positions[0].end_lsn, 0), FARLOG_OK);
		assert_int_equal(farlog_append_batch(writer, entries, 4, 0, positions, &done, &submitted), FARLOG_OK);
		counts->appended += done;
		if (farlog_claim(writer, 20, 1, "K", 1, &payload) == FARLOG_OK)
			memset(payload, 'x', 20);
		counts->appended += farlog_commit(writer, 0, positions) == FARLOG_OK;
		counts->appended += farlog_heartbeat(writer, 0, positions) == FARLOG_OK;
	}
}

#define BLOCK_COMMIT_COUNT 300u
#define SQ_COMMIT_COUNT 100u
#define SQ_TURN_COUNT 200u

/* append_to_blocks -- one commit at a time; hints and looks, which now and then come back alone, are left out. */
static void append_to_blocks(farlog_writer *writer, unsigned commit_count)
{
	struct region_nvme *nvme = nvme_of(writer->region);
	struct farlog_entry entry = {
		.data = "0123456789012345678901234567890123456789", .len = 40, .key = "K", .key_len = 1};
	struct farlog_position position;
	uint64_t before = nvme->device->enter_count;

	for (unsigned i = 0; i < commit_count; i++)
		counts->appended += farlog_append(writer, &entry, 0, &position) == FARLOG_OK;
	counts->enters = nvme->device->enter_count - before;
}

static void quiet(farlog_writer *writer)
{
	struct region_nvme *nvme = nvme_of(writer->region);
	uint64_t durable_lsn;

	writer->hint_interval_ticks = UINT64_MAX / 2;
	while (nvme->is_words_read_flying || nvme->is_hints_flying)
		may_fail(farlog_poll(writer, &durable_lsn));
	nvme->are_hints_due = false;
	nvme->is_words_read_flying = true;
}

static void *count_crypto_malloc(size_t len, const char *file, int line)
{
	(void)file, (void)line;
	count_allocation();
	return __real_malloc(len);
}

static void *count_crypto_realloc(void *old, size_t len, const char *file, int line)
{
	(void)file, (void)line;
	count_allocation();
	return __real_realloc(old, len);
}

static void crypto_free(void *old, const char *file, int line)
{
	(void)file, (void)line;
	free(old);
}

/* watch_crypto -- count what libcrypto allocates: before it has allocated anything. */
static bool watch_crypto(void)
{
	void *handle = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
	int (*set)(void *(*)(size_t, const char *, int), void *(*)(void *, size_t, const char *, int),
		void (*)(void *, const char *, int));

	*(void **)&set = handle != NULL ? dlsym(handle, "CRYPTO_set_mem_functions") : NULL;
	return set != NULL && set(count_crypto_malloc, count_crypto_realloc, crypto_free) == 1;
}

static int child(const char *uri)
{
	bool is_nvme = strncmp(uri, "nvme:", 5) == 0;
	farlog_writer *writer;
	farlog_shared *shared;
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .counters_dir = ""};
	struct farlog_entry entry = {.data = "0123", .len = 4};
	struct farlog_position position;
	bool is_shared = strstr(uri, "shared") != NULL;

	if (strstr(uri, "encrypted") != NULL && !watch_crypto())
		return 2;
	if (is_shared ? farlog_shared_open(uri, &config, &shared, NULL) != FARLOG_OK :
					farlog_writer_open(uri, &config, &writer, NULL) != FARLOG_OK)
		return 1;
	if (is_nvme)
		quiet(writer);
	if (!forbid_syscalls(strstr(uri, "poll=sq") == NULL))
		return 77;
	syscall(SYS_getppid); /* proves that a system call would be seen */
	counts->is_counting = 1;
	if (is_shared)
		for (unsigned i = 0; i < 9000; i++)
			counts->appended += farlog_shared_append(shared, &entry, 0, &position) == FARLOG_OK;
	else if (is_nvme)
		append_to_blocks(writer, strstr(uri, "poll=sq") == NULL ? BLOCK_COMMIT_COUNT : SQ_COMMIT_COUNT);
	else
		append_all_ways(writer);
	counts->is_counting = 0;
	return 0;
}

static uint64_t enter_count; /* of the last run */

static void format(const char *uri)
{
	struct farlog_ring_config config = {
		.size_bytes = LAYOUT_DATA_OFF + (8u << 20), .record_len_max = 1024, .is_forced = 1};

	if (strstr(uri, "encrypted") != NULL)
		config.encryption = FARLOG_ENCRYPTION_AES_256_GCM;
	assert_int_equal(farlog_ring_format(uri, &config, NULL), FARLOG_OK);
}

static void count_path(const char *uri, uint64_t appended)
{
	int status;
	pid_t pid;

	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(counts != MAP_FAILED);
	format(uri);
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		syscall(SYS_exit_group, child(uri));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77) {
		munmap((void *)counts, sizeof(*counts));
		counts = NULL;
		print_message("append path: this kernel or container permits no seccomp filter\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
	print_message("append path: %lu appends, %lu system calls (last %lu), %lu allocations\n", counts->appended,
		counts->syscalls, counts->last_syscall, counts->allocations);
	assert_int_equal(counts->canary, 1);
	enter_count = counts->enters + counts->syscalls;
	/* a call that would have waited was refused, and its append with it */
	if (strstr(uri, "poll=sq") == NULL || enter_count == 0)
		assert_int_equal(counts->appended, appended);
	assert_int_equal(counts->allocations, 0);
	if (strstr(uri, "poll=sq") == NULL) {
		assert_int_equal(counts->syscalls, 0);
		assert_int_equal(counts->enters, strncmp(uri, "nvme:", 5) == 0 ? appended : 0);
	}
	munmap((void *)counts, sizeof(*counts));
	counts = NULL;
}

static void append__no_syscall_no_allocation(void **state)
{
	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip(); /* a sanitizer makes system calls of its own */
#endif
	count_path(unit_tmpfs_uri("path"), 2000 * 9);
}

/* In libcrypto neither. */
static void encrypted_append__no_syscall_no_allocation(void **state)
{
	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip();
#endif
	setenv("FARLOG_KEY_FILE", encrypted_keys(KEY_A, 0600), 1);
	count_path(unit_tmpfs_uri("path-encrypted"), 2000 * 9);
	count_path(unit_tmpfs_uri("path-encrypted-shared"), 9000);
	unsetenv("FARLOG_KEY_FILE");
}

static void shared_append__no_syscall_no_allocation(void **state)
{
	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip();
#endif
	count_path(unit_tmpfs_uri("path-shared"), 9000);
}

static void block_append__one_syscall_a_commit(void **state)
{
	char uri[300];

	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip();
#endif
	snprintf(uri, sizeof(uri), "nvme:%s", unit_path(unit_file_uri("path")));
	count_path(uri, BLOCK_COMMIT_COUNT);
}

/* A thread of the kernel takes the commits and brings the answers. Without syncing: a disk that stands still for long
 * is waited for by a call, as is a thread of the kernel that gets no processor; so one short run of many has to do
 * without. */
static void block_append__no_syscall_with_a_polled_queue(void **state)
{
	char uri[300];

	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip();
#endif
	for (unsigned turn = 0; turn < SQ_TURN_COUNT && (turn == 0 || enter_count > 0); turn++) {
		/* A file each: the kernel's thread of the turn before may still hold its lock. */
		const char *path = unit_path(unit_file_uri("path-sq"));

		snprintf(uri, sizeof(uri), "nvme:%s?poll=sq&flush=write", path);
		count_path(uri, SQ_COMMIT_COUNT);
		unlink(path);
	}
	assert_int_equal(enter_count, 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(block_append__no_syscall_with_a_polled_queue),
	cmocka_unit_test(block_append__one_syscall_a_commit),
	cmocka_unit_test(append__no_syscall_no_allocation),
	cmocka_unit_test(shared_append__no_syscall_no_allocation),
	cmocka_unit_test(encrypted_append__no_syscall_no_allocation),
};
RUN_GROUP(append_path, tests)
