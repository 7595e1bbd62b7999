/* runs.c -- see runs.h. */
#include "runs.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "adversary/memory.h"

uint64_t runs_number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

/* play -- until one fails. True: one has. */
static bool play(const struct runs *runs, uint64_t seed, uint64_t run_count, uint64_t *failed)
{
	uint64_t only = runs_number("RUN", UINT64_MAX);

	for (uint64_t run = only != UINT64_MAX ? only : 0; run < run_count || run == only; run++) {
		runs->failure[0] = '\0';
		runs->play(run, seed * 0x9E3779B97F4A7C15ull + run * 0x2545F4914F6CDD1Dull + 1);
		*failed = run;
		if (runs->failure[0] != '\0')
			return true;
		if (only != UINT64_MAX)
			break;
	}
	return false;
}

int runs_main(const struct runs *runs)
{
	uint64_t seed = runs_number("SEED", clock_monotonic_ns() & 0xFFFFFFFF);
	uint64_t run = 0;
	const char *too_little;
	bool has_failed;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("%s: SEED=%lu\n", runs->name, seed);
	may_fail(clock_start()); /* one sampler for all, so that an opening does not wait for its first sample */
	has_failed = play(runs, seed, runs_number("RUNS", runs->run_count), &run);
	runs->report();
	too_little = !has_failed && runs->too_little != NULL ? runs->too_little() : NULL;
	if (too_little != NULL) {
		printf("%s: FAILED: the runs prove nothing: too few %s\n", runs->name, too_little);
		printf("%s: 0 passed, 1 failed\n", runs->name);
		return 1;
	}
	if (has_failed)
		printf("%s: FAILED: %s\n%s: reproduce: SEED=%lu RUN=%lu\n", runs->name, runs->failure, runs->name, seed, run);
	printf("%s: %d passed, %d failed\n", runs->name, !has_failed, has_failed);
	return has_failed;
}
