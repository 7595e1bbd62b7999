/* bench_clean.c -- system calls and allocations of an append, counted and not assumed.
 *
 * A child forbids itself every system call (seccomp, on the appending thread alone: the clock's sampler is another) and
 * counts the traps; allocations are counted by the allocator's own names. Each counter is shown to work by one
 * deliberate call after the appends. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define APPEND_COUNT 100000u

struct tally {
	uint64_t syscall_count;
	uint64_t alloc_count;
	uint64_t is_syscall_counter_proved;
	uint64_t is_alloc_counter_proved;
	uint64_t append_count;
};

static struct tally *tally; /* shared with the child */
static __thread uint64_t alloc_count;
static void *volatile kept; /* so that the compiler cannot drop the deliberate allocation */

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern void *__libc_malloc(size_t len);
extern void *__libc_calloc(size_t count, size_t len);
extern void *__libc_realloc(void *old, size_t len);
extern void *__libc_memalign(size_t align, size_t len);

void *malloc(size_t len)
{
	alloc_count++;
	return __libc_malloc(len);
}

void *calloc(size_t count, size_t len)
{
	alloc_count++;
	return __libc_calloc(count, len);
}

void *realloc(void *old, size_t len)
{
	alloc_count++;
	return __libc_realloc(old, len);
}

void *aligned_alloc(size_t align, size_t len)
{
	alloc_count++;
	return __libc_memalign(align, len);
}
#endif

static void count_trap(int signal_number)
{
	(void)signal_number;
	tally->syscall_count++;
}

/* forbid_syscalls -- all but leaving a signal handler and the process. */
static int forbid_syscalls(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(rules) / sizeof(rules[0]), .filter = rules};
	struct sigaction action = {.sa_handler = count_trap};

	if (sigaction(SIGSYS, &action, NULL) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static _Noreturn void count_in_child(struct bench_ring *ring)
{
	uint8_t payload[BENCH_PAYLOAD_LEN] = {1};
	struct farlog_entry entry = {.data = payload, .len = sizeof(payload), .class_id = 1};
	struct farlog_position position;
	uint64_t before;

	if (forbid_syscalls() != 0)
		_exit(1);
	before = alloc_count;
	for (unsigned i = 0; i < APPEND_COUNT; i++)
		tally->append_count += farlog_append(ring->writer, &entry, 0, &position) == FARLOG_OK;
	tally->alloc_count = alloc_count - before;
	before = tally->syscall_count;
	(void)syscall(SYS_getppid);
	tally->is_syscall_counter_proved = tally->syscall_count == before + 1;
	tally->syscall_count = before;
	before = alloc_count;
	kept = malloc(16);
	tally->is_alloc_counter_proved = alloc_count == before + 1;
	_exit(0);
}

/* run_child -- the ring is opened in the child: a mapping would survive a fork, the clock's sampler thread does not. */
static bool run_child(struct bench_ring *ring)
{
	pid_t child = fork();
	int status;

	if (child < 0)
		return false;
	if (child == 0) {
		bench_ring_open(ring);
		count_in_child(ring);
	}
	return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void bench_clean(void)
{
	struct bench_ring ring;

	tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (tally == MAP_FAILED)
		bench_fail("tally", "cannot be mapped");
	bench_ring_make(&ring, "clean", BENCH_RING_LEN);
	if (!run_child(&ring) || tally->append_count != APPEND_COUNT) {
		fprintf(
			stderr, "mem.append.syscalls: not measured: this kernel refused a seccomp filter, or an append failed\n");
	} else if (!tally->is_syscall_counter_proved || !tally->is_alloc_counter_proved) {
		fprintf(stderr, "mem.append.syscalls: not measured: a counter missed a deliberate call\n");
	} else {
		bench_report(&(struct bench_case){.name = "mem.append.syscalls",
			.ours = (double)tally->syscall_count,
			.unit = "count",
			.flush = "auto",
			.level = "visible",
			.note = "in 100,000 appends, by seccomp"});
		bench_report(&(struct bench_case){.name = "mem.append.allocs",
			.ours = (double)tally->alloc_count,
			.unit = "count",
			.flush = "auto",
			.level = "visible",
			.note = "in 100,000 appends, by the allocator's names"});
	}
	munmap(tally, sizeof(*tally));
	unlink(ring.path);
}
