/* count.c -- see count.h. By ptrace(2), x86-64 only. */
#include "count.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "floor.h"

#define RANGE_COUNT_MAX 128u

struct range {
	uint64_t start;
	uint64_t end;
	enum count_owner owner;
};

/* What the child can execute. */
struct code {
	struct range ranges[RANGE_COUNT_MAX];
	unsigned range_count;
};

static enum count_owner owner_of_file(const char *path, const char *program)
{
	if (strcmp(path, program) == 0)
		return COUNT_OURS;
	return strstr(path, "/libc.so") != NULL || strstr(path, "/ld-linux") != NULL || path[0] == '[' ? COUNT_LIBC :
																									 COUNT_VERBS;
}

static void read_code(pid_t pid, struct code *code)
{
	char program[256] = "";
	char line[512];
	FILE *maps;

	snprintf(line, sizeof(line), "/proc/%d/maps", (int)pid);
	maps = fopen(line, "r");
	if (maps == NULL || readlink("/proc/self/exe", program, sizeof(program) - 1) < 0)
		floor_fail("count: /proc");
	for (code->range_count = 0; fgets(line, sizeof(line), maps) != NULL && code->range_count < RANGE_COUNT_MAX;) {
		struct range *range = &code->ranges[code->range_count];
		char path[256] = "";
		char access[5];

		if (sscanf(line, "%lx-%lx %4s %*s %*s %*s %255s", &range->start, &range->end, access, path) < 3 ||
			access[2] != 'x')
			continue;
		range->owner = owner_of_file(path, program);
		code->range_count++;
	}
	fclose(maps);
}

static enum count_owner owner_of(const struct code *code, uint64_t address)
{
	for (unsigned i = 0; i < code->range_count; i++)
		if (address >= code->ranges[i].start && address < code->ranges[i].end)
			return code->ranges[i].owner;
	return COUNT_VERBS;
}

/* go -- on to the next trap, of count_next or of one step. */
static void go(pid_t pid, enum __ptrace_request request)
{
	int status;

	if (ptrace(request, pid, NULL, NULL) != 0 || waitpid(pid, &status, 0) != pid)
		floor_fail("count: ptrace");
	if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) {
		fprintf(
			stderr, "bench_verbs: count: what is counted ended, or got a signal: wait status %#x\n", (unsigned)status);
		exit(1);
	}
}

static uint64_t register_of(pid_t pid, size_t off)
{
	return (uint64_t)ptrace(PTRACE_PEEKUSER, pid, off, NULL);
}

static uint64_t step(pid_t pid)
{
	go(pid, PTRACE_SINGLESTEP);
	return register_of(pid, offsetof(struct user, regs.rip));
}

static void count_call(pid_t pid, const struct code *code, const void *function, struct count *count)
{
	enum count_owner before = COUNT_OURS;
	uint64_t counted = 0;
	uint64_t return_to;
	uint64_t at;

	while (step(pid) != (uint64_t)(uintptr_t)function)
		;
	at = (uint64_t)(uintptr_t)function;
	return_to = (uint64_t)ptrace(PTRACE_PEEKDATA, pid, register_of(pid, offsetof(struct user, regs.rsp)), NULL);
	*count = (struct count){0};
	for (; at != return_to; at = step(pid)) {
		enum count_owner owner = owner_of(code, at);

		if (at == counted) /* a repeated string instruction stops each time */
			continue;
		counted = at;
		count->instructions[owner]++;
		count->call_count += owner == COUNT_VERBS && before == COUNT_OURS;
		before = owner;
	}
}

void count_calls(void (*run)(void *context), void *context, const void *function, struct count *counts, unsigned count)
{
	struct code code;
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGTRAP);
		run(context);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, NULL, 0) != pid)
		floor_fail("count: fork");
	for (unsigned i = 0; i < count; i++) {
		go(pid, PTRACE_CONT);
		if (i == 0)
			read_code(pid, &code); /* what is loaded when needed has been */
		count_call(pid, &code, function, &counts[i]);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

void count_next(void)
{
	__asm__ volatile("int3");
}
