/* crash.c -- the crash test: no acknowledged record is lost, none torn, doubled or invented, whatever a crash keeps.
 *
 * It drives the real writer, recovery, reader and drain order (store, sync, release) on adversarial memory, lets them
 * die in the middle of a random operation, of a power cut (an arbitrary subset of the unflushed words survives) or of a
 * kill (everything stays visible and unflushed, and a power cut may follow), and asks the oracle after every opening.
 * What it is worth is shown by rdma/test/mutants: the protocol broken in one way at a time.
 *
 * With --blocks first, the ring lies on adversarial blocks instead, below a real nvme region: whole LBAs survive or do
 * not. With --files first it lies in an adversarial page cache, below a real mem region of a file: pages that msync was
 * asked for survive, and any of the others.
 *
 * CRASHES=n  how many (default 100000)      SEED=n  reproduces a run      ROUND=n  only this round of it
 * TRACE=1    prints every step
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "runs.h"
#include "world.h"

#define CRASHES_DEFAULT 100000u
#define CRASHES_PER_ROUND 40u

struct tally {
	uint64_t power_cuts;
	uint64_t kills;
	uint64_t opens;
	uint64_t steps;
	uint64_t records;
	uint64_t acked;
};

static struct world world;

/* live_and_die -- some steps, then the crash: armed in the middle of an operation, or between two steps. */
static void live_and_die(struct tally *tally)
{
	uint64_t steps = 1 + below(&world, below(&world, 4) == 0 ? 120 : 30);
	uint64_t armed = below(&world, 4) == 0 ? UINT64_MAX : below(&world, below(&world, 2) ? 40 : 300);

	if (armed != UINT64_MAX)
		memory->arm(WORLD_NAME, armed);
	for (uint64_t i = 0; i < steps && !world_is_over(&world); i++)
		world_step(&world);
	if (oracle_has_failed(&world.oracle))
		return;
	if (world.is_releasing) {
		memory->arm(WORLD_NAME, 0); /* the drain dies where it stands: what it still does has no effect */
		drain_end_release(&world);
	}
	if (below(&world, 4) == 0) {
		trace(&world, "KILL%s\n", memory->is_dead(WORLD_NAME) ? " in the middle of an operation" : "");
		memory->kill(WORLD_NAME);
		tally->kills++;
	} else {
		trace(&world, "POWER CUT%s\n", memory->is_dead(WORLD_NAME) ? " in the middle of an operation" : "");
		memory->crash(WORLD_NAME);
		tally->power_cuts++;
	}
	world_bury(&world);
	if (below(&world, 2))
		oracle_cut_store(
			&world.oracle, (uint32_t)below(&world, world.oracle.entry_count - world.oracle.synced_count + 1));
}

/* finish -- after the last crash everything is drained: what was acknowledged is in the store, once. */
static void finish(void)
{
	struct oracle *oracle = &world.oracle;

	memory->arm(WORLD_NAME, UINT64_MAX);
	drain_end_release(&world);
	writer_drop(&world, false);
	for (unsigned i = 0; i < 1000 && world.writer == NULL && world.shared == NULL && !oracle_has_failed(oracle); i++) {
		drain_until_empty(&world); /* a full ring has no room for an epoch */
		writer_step(&world);
	}
	if (!oracle_has_failed(oracle) && !drain_until_empty(&world))
		oracle_fail(oracle, "the ring cannot be drained: reader at %lu", world.drain_walk.lsn);
	oracle_sync(oracle);
	for (uint32_t i = 0; i < oracle->record_count && !oracle_has_failed(oracle); i++)
		if (oracle->records[i].is_acked && oracle->records[i].stored != ORACLE_SYNCED)
			oracle_fail(oracle, "LOST: acknowledged (epoch %u, lsn %lu) is not in the store at the end",
				oracle->records[i].epoch, oracle->records[i].lsn);
}

static void count(struct tally *tally)
{
	tally->opens += world.open_count;
	tally->steps += world.step_count;
	tally->records += world.oracle.record_count;
	for (uint32_t i = 0; i < world.oracle.record_count; i++)
		tally->acked += world.oracle.records[i].is_acked;
}

/* play -- rounds of one ring's life each, until enough crashes or the first failure. True: a failure, its text in
 * world.oracle. */
static bool play(uint64_t seed, uint64_t crash_count, struct tally *tally, uint64_t *failed_round)
{
	uint64_t only = runs_number("ROUND", UINT64_MAX);

	memset(tally, 0, sizeof(*tally));
	for (uint64_t round = only != UINT64_MAX ? only : 0; tally->power_cuts + tally->kills < crash_count; round++) {
		world_start(&world, seed * 0x2545F4914F6CDD1Dull + round);
		for (unsigned i = 0; i < CRASHES_PER_ROUND && !oracle_has_failed(&world.oracle); i++)
			live_and_die(tally);
		if (!oracle_has_failed(&world.oracle))
			finish();
		count(tally);
		world_stop(&world);
		*failed_round = round;
		if (oracle_has_failed(&world.oracle))
			return true;
		if (only != UINT64_MAX)
			break;
	}
	return false;
}

static int run_crashes(uint64_t seed, uint64_t crash_count)
{
	uint64_t start_ns = clock_monotonic_ns();
	struct tally tally;
	uint64_t round = 0;
	bool has_failed;
	double seconds;

	printf("crash: SEED=%lu CRASHES=%lu\n", seed, crash_count);
	fflush(stdout);
	has_failed = play(seed, crash_count, &tally, &round);
	seconds = (double)(clock_monotonic_ns() - start_ns) / 1e9;
	printf("crash: %lu power cuts, %lu kills, %lu openings, %lu steps, %lu records, %lu acknowledged, %.1f s, %.0f "
		   "crashes/s\n",
		tally.power_cuts, tally.kills, tally.opens, tally.steps, tally.records, tally.acked, seconds,
		(double)(tally.power_cuts + tally.kills) / seconds);
	if (has_failed)
		printf("crash: FAILED: %s\ncrash: reproduce: SEED=%lu ROUND=%lu\n", world.oracle.failure, seed, round);
	printf("crash: %d passed, %d failed\n", !has_failed, has_failed);
	return has_failed;
}

int main(int argc, char **argv)
{
	uint64_t seed = runs_number("SEED", clock_monotonic_ns() & 0xFFFFFFFF);
	int result;

	setvbuf(stdout, NULL, _IOLBF, 0);
	may_fail(clock_start()); /* one sampler for all, so that an opening does not wait for its first sample */
	if (argc > 1 && strcmp(argv[1], "--blocks") == 0) {
		memory = &memory_of_blocks;
	} else if (argc > 1 && strcmp(argv[1], "--files") == 0) {
		memory = &memory_of_pages;
	}
	result = run_crashes(seed, runs_number("CRASHES", CRASHES_DEFAULT));
	clock_stop();
	return result;
}
