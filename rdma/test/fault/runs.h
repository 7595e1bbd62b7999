/* runs.h -- a simulation plays run after run, each from a seed of its own, so that what it printed plays a run again;
 * then each of its mutants, which a run must find. */
#ifndef FARLOG_TEST_RUNS_H
#define FARLOG_TEST_RUNS_H

#include <stddef.h>
#include <stdint.h>

struct runs_mutant {
	int mutant;
	const char *name;
	uint64_t seed; /* by which one of the first runs catches it, wherever it is played; 0 = any does */
};

struct runs {
	const char *name;
	uint64_t run_count; /* RUNS=n has others, of a mutant too */
	uint64_t mutant_run_count;
	void (*play)(uint64_t run, uint64_t seed);
	char *failure; /* of the run that was played last; "" = none */
	void (*report)(void);
	const struct runs_mutant *mutants;
	size_t mutant_count;
	/* behind the last run, which of its figures shows that the runs have done too little to prove anything; NULL: none.
	 * NULL: nobody asks */
	const char *(*too_little)(void);
};

/* runs_number -- a setting of the environment. */
uint64_t runs_number(const char *name, uint64_t otherwise);

/* runs_main -- SEED=n, RUN=n one of its runs, MUTANT=n; --mutants. The exit code. */
int runs_main(const struct runs *runs, int argc, char **argv);

#endif
