/* runs.h -- a simulation plays run after run, each from a seed of its own, so that what it printed plays a run
 * again. */
#ifndef FARLOG_TEST_RUNS_H
#define FARLOG_TEST_RUNS_H

#include <stddef.h>
#include <stdint.h>

struct runs {
	const char *name;
	uint64_t run_count; /* RUNS=n has others */
	void (*play)(uint64_t run, uint64_t seed);
	char *failure; /* of the run that was played last; "" = none */
	void (*report)(void);
	/* behind the last run, which of its figures shows that the runs have done too little to prove anything; NULL: none.
	 * NULL: nobody asks */
	const char *(*too_little)(void);
};

/* runs_number -- a setting of the environment. */
uint64_t runs_number(const char *name, uint64_t otherwise);

/* runs_main -- SEED=n, RUN=n one of its runs. The exit code. */
int runs_main(const struct runs *runs);

#endif
