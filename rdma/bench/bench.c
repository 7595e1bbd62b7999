/* bench.c -- the C half of `make bench`: main, result lines, samples.
 *
 * Every figure stands beside a floor that ran in the same process, in short blocks that alternate with ours, so that a
 * noisy machine disturbs both. */
#include "bench.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

double bench_seconds = 2.0;

void bench_fail(const char *what, const char *text)
{
	fprintf(stderr, "bench: %s: %s\n", what, text);
	exit(1);
}

static const char *environment(const char *name)
{
	const char *value = getenv(name);

	return value != NULL ? value : "unknown";
}

void bench_report(const struct bench_case *result)
{
	printf("{\"name\":\"%s\",\"ours\":%.2f,", result->name, result->ours);
	if (result->floor > 0)
		printf("\"floor\":%.2f,\"ratio\":%.3f,", result->floor, result->ours / result->floor);
	else
		printf("\"floor\":null,\"ratio\":null,");
	printf("\"unit\":\"%s\",\"flush\":\"%s\",\"level\":\"%s\",\"note\":\"%s\",\"machine\":\"%s\",\"date\":\"%s\"}\n",
		result->unit, result->flush, result->level, result->note, environment("FARLOG_BENCH_MACHINE"),
		environment("FARLOG_BENCH_DATE"));
	fflush(stdout);
	if (result->floor > 0)
		fprintf(stderr, "%-28s %10.1f %10.1f %7.2f  %-10s %s\n", result->name, result->ours, result->floor,
			result->ours / result->floor, result->unit, result->note);
	else
		fprintf(stderr, "%-28s %10.1f %10s %7s  %-10s %s\n", result->name, result->ours, "-", "-", result->unit,
			result->note);
}

void bench_samples_make(struct bench_samples *samples, size_t count_max)
{
	*samples = (struct bench_samples){.ticks = malloc(count_max * sizeof(uint32_t)), .count_max = count_max};
	if (samples->ticks == NULL)
		bench_fail("samples", "out of memory");
	memset(samples->ticks, 0, count_max * sizeof(uint32_t)); /* mapped before the clock runs */
}

void bench_samples_free(struct bench_samples *samples)
{
	free(samples->ticks);
}

static int compare_ticks(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a;
	uint32_t y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* The counter may step in tens of nanoseconds: within a run of equal samples the quantile lies in proportion between
 * this step and the next, as for grouped data. */
double bench_quantile_ns(struct bench_samples *samples, double quantile)
{
	size_t rank = (size_t)(quantile * (double)samples->count);
	size_t first, last;
	double step, value;

	if (samples->count == 0)
		return 0;
	qsort(samples->ticks, samples->count, sizeof(uint32_t), compare_ticks);
	if (rank >= samples->count)
		rank = samples->count - 1;
	for (first = rank; first > 0 && samples->ticks[first - 1] == samples->ticks[rank];)
		first--;
	for (last = rank; last + 1 < samples->count && samples->ticks[last + 1] == samples->ticks[rank];)
		last++;
	step = last + 1 < samples->count ? samples->ticks[last + 1] - samples->ticks[rank] : 0;
	value = samples->ticks[rank] + step * ((double)(rank - first) / (double)(last - first + 1) - 0.5);
	return (double)clock_elapsed_ns((uint64_t)(value * 1000)) / 1000;
}

/* The cores of the process: what one thread is allowed after it has been pinned is inherited by those that it
 * starts. */
static cpu_set_t allowed;

void bench_pin(unsigned from_last)
{
	cpu_set_t one;
	int chosen = -1;

	for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
		if (CPU_ISSET(cpu, &allowed) && from_last-- == 0)
			chosen = cpu;
	if (chosen < 0)
		return;
	CPU_ZERO(&one);
	CPU_SET(chosen, &one);
	(void)sched_setaffinity(0, sizeof(one), &one);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"append", bench_append},
	{"encrypt", bench_encrypt},
	{"submit", bench_submit},
	{"shared", bench_shared},
	{"recover", bench_recover},
	{"clean", bench_clean},
	{"far", bench_far},
	{"members", bench_members},
	{"blocks", bench_blocks},
	{"blocks-append", bench_blocks_append}, /* by its name only: a part of blocks */
};

int main(int argc, char **argv)
{
	const char *seconds = getenv("FARLOG_BENCH_SECONDS");
	unsigned ran = 0;

	if (argc > 1 && strcmp(argv[1], BENCH_MEMBERS_WRITER) == 0)
		return bench_members_writer(argc - 2, argv + 2);
	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
		bench_fail("cores", "cannot be told");
	if (seconds != NULL && atof(seconds) > 0)
		bench_seconds = atof(seconds);
	if (clock_start() != 0)
		bench_fail("clock", "cannot start its sampler");
	fprintf(stderr, "%-28s %10s %10s %7s  %s\n", "case", "ours", "floor", "ratio", "unit");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (argc > 1 ? strcmp(argv[1], cases[i].name) != 0 : cases[i].run == bench_blocks_append)
			continue;
		cases[i].run();
		ran++;
	}
	clock_stop();
	if (ran == 0)
		bench_fail(argv[1],
			"no such case; expected append, encrypt, submit, shared, recover, clean, far, members, blocks or "
			"blocks-append");
	return 0;
}
