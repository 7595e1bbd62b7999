/* count.h -- how many instructions a call takes, and whose they are.
 *
 * The calls run in a child, on the processor as it is; we step through each, one instruction at a time, and look where
 * it lies. What the kernel does is not seen, and stepping makes no difference to what is executed but for time going
 * by: a device has long answered when it is looked at. */
#ifndef FARLOG_BENCH_VERBS_COUNT_H
#define FARLOG_BENCH_VERBS_COUNT_H

#include <stdint.h>

enum count_owner {
	COUNT_OURS = 0,  /* this program */
	COUNT_VERBS = 1, /* libibverbs and the device's provider: whatever is not named here */
	COUNT_LIBC = 2,  /* with the dynamic linker, and the functions that the kernel maps */
	COUNT_OWNER_COUNT,
};

struct count {
	uint64_t instructions[COUNT_OWNER_COUNT];
	uint64_t call_count; /* from ours into verbs */
};

/* count_calls -- step through `count` calls of `function`, each behind a count_next in `run`, which a child runs. Exits
 * with a text when that fails. */
void count_calls(void (*run)(void *context), void *context, const void *function, struct count *counts, unsigned count);

/* count_next -- in `run`: the next call is to be counted. */
void count_next(void);

#endif
