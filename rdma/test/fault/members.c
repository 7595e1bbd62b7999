/* members.c -- writers that take a stream with several members from each other, on adversarial memories that come and go.
 *
 * What is proved: whatever members are away, slow, cut off or without power, in the middle of an opening, an append or a takeover, and though a former writer goes
 * on trying, nothing acknowledged is lost or changed, no LSN and no epoch is given twice, a fenced writer gets no acknowledgement, what is acknowledged is durable on as many
 * members as is said, and no call takes longer than its deadline. How: one thread plays all hosts, and its own time; the ring, the members and the recovery are the real ones. Each opening is
 * compared with what was acknowledged before. A drain moves the heads of some of the members. In some runs a ring is put in the place of a member's for good, as the control plane does:
 * openings by later grants have the new one, a grant of before may still be opened, and the writer is told at some time, when no epoch after its own has been granted. One
 * of sixteen runs is of nothing else (members_replace.c).
 *
 * usage: members [--mutants]; SEED=n, RUNS=n (10000), RUN=n one of them, TRACE=1. */
#include <stdlib.h>

#include "clock.h"
#include "members_world.h"
#include "mutant.h"
#include "region_fault.h"
#include "runs.h"
#include "superblock.h"
#include "writer.h"

#define RUNS_DEFAULT 10000u
#define RUNS_OF_A_MUTANT 10000u
#define REPLACEMENT_EVERY 16u /* runs, one is of nothing else */

/* ---------------------------------------------------------------- drain */

static void move_head(unsigned i, const struct head_slot *slot)
{
	struct region_ask ask = {.access = REGION_WRITE, .role = REGION_ROLE_DRAIN};
	struct superblock superblock;
	struct head_slot present;
	struct region *region;

	if (region_open(world.uris[i], &ask, &region, NULL) != FARLOG_OK)
		return;
	/* The last one may be there and not durable: it is flushed, or the other slot is the only sound one. */
	if (superblock_load(region, world.uris[i], &superblock, NULL) == FARLOG_OK && head_load(region, &superblock, &present) &&
		region->ops->flush(region, LAYOUT_HEAD_A_OFF, 2 * LAYOUT_LINE_LEN) == FARLOG_OK && present.head_lsn < slot->head_lsn && head_store(region, &superblock, slot) == FARLOG_OK) {
		region->ops->store_word(region, LAYOUT_CREDIT_OFF, slot->head_lsn);
		TRACE("head of member %u at %lu\n", i + 1, slot->head_lsn);
	}
	region->ops->close(region);
}

/* drain -- some of what is acknowledged goes to the store; then some of the heads. */
void drain(void)
{
	const struct farlog_writer *writer = world.now.writer;
	struct record_cursor *cursor = &world.drained;
	struct head_slot slot;

	if (writer == NULL || world.now.is_fenced || cursor->lsn < members_of(writer->region)->start.head_lsn)
		return;
	cursor->epoch_max = writer->epoch;
	for (uint64_t left = below(16); left > 0 && cursor->lsn < writer->durable_lsn; left--) {
		uint64_t off = cursor->lsn % writer->identity.capacity;
		struct record_found found;

		if (record_check(&writer->identity, cursor, writer->region->base + LAYOUT_DATA_OFF + off, writer->identity.capacity - off, &found) != RECORD_VALID) {
			FAIL("the drain cannot read lsn %lu of what is durable up to %lu", cursor->lsn, writer->durable_lsn);
			return;
		}
		if (cursor->lsn + found.extent > writer->durable_lsn)
			break;
		record_advance(cursor, &found);
	}
	slot = (struct head_slot){.head_lsn = cursor->lsn, .head_seq = cursor->seq, .last_epoch = cursor->epoch};
	for (unsigned i = 0; i < world.count; i++)
		if (!world.is_away[i] && below(4) != 0)
			move_head(i, &slot);
}

/* ---------------------------------------------------------------- a run */

static void step(void)
{
	switch (below(16)) {
	case 0: take_over(); break;
	case 1: reopen(); break;
	case 2: case 3: strike(&world); break;
	case 4: world.is_swapping ? change() : strike_later(); break;
	case 5: case 6: case 7: drain(); break;
	case 8: case 9: tend(&world.now); tend(&world.former); break;
	case 10: if (world.former.writer != NULL) append(&world.former); break;
	default: if (world.now.writer != NULL) append(&world.now); break;
	}
}

/* step_calmly -- one writer, whose connections break now and then, goes round the ring many times. */
static void step_calmly(void)
{
	unsigned i = (unsigned)below(world.count);

	switch (below(16)) {
	case 0:
		farlog_fault_set_away(world.names[i], 1);
		farlog_fault_set_away(world.names[i], 0);
		break;
	case 1: world.is_swapping ? change() : farlog_fault_set_slowness(world.names[i], 128 + (unsigned)below(128)); break;
	case 2: case 3: case 4: drain(); break;
	case 5: case 6: case 7: tend(&world.now); break;
	default: if (world.now.writer != NULL) append(&world.now); break;
	}
}

static void make_members(uint64_t seed)
{
	static const struct {
		unsigned count;
		unsigned needed;
	} shapes[] = {{3, 2}, {3, 2}, {3, 2}, {2, 1}, {2, 2}, {3, 1}, {3, 3}, {4, 2}, {5, 3}};
	unsigned shape = (unsigned)below(sizeof(shapes) / sizeof(shapes[0]));

	world.config = (struct farlog_ring_config){
		.size_bytes = LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN * (1 + below(2)), .record_len_max = 1024, .is_forced = 1, .salt = seed | 1};
	world.count = shapes[shape].count;
	world.needed = shapes[shape].needed;
	for (unsigned i = 0; i < world.count; i++) {
		snprintf(world.names[i], sizeof(world.names[i]), "member-%u", i + 1);
		snprintf(world.uris[i], sizeof(world.uris[i]), "fault:member-%u", i + 1);
		world.is_remote[i] = below(2) != 0;
		make_ring(world.uris[i], world.names[i], world.is_remote[i]);
	}
	name_all();
}

static void forget_members(void)
{
	char name[32];

	for (unsigned i = 0; i < world.count; i++) {
		snprintf(name, sizeof(name), "member-%u", i + 1);
		farlog_fault_drop(name);
	}
	for (unsigned i = 0; i < world.swap_count; i++) {
		snprintf(name, sizeof(name), "swap-%u", i + 1);
		farlog_fault_drop(name);
	}
	farlog_fault_drop(USED_NAME);
}

static void begin_run(uint64_t seed)
{
	memset(world.names, 0, sizeof(world.names));
	memset(world.is_away, 0, sizeof(world.is_away));
	memset(&world.drained, 0, sizeof(world.drained));
	world.acked_count = world.epoch_count = world.granted = 0;
	world.next_id = 1;
	world.now = world.former = (struct side){0};
	world.random = seed;
	world.is_replaced = false;
	world.swap_count = 0;
	world.late.epoch = 0;
	world.is_swapping = below(4) == 0;
	make_members(seed);
	farlog_fault_set_clock(1000000000u);
}

/* end_run -- all come back, and what was acknowledged is there. */
static void end_run(void)
{
	if (world.failure[0] == '\0') {
		mend_all();
		bury(&world.former);
		bury(&world.now);
		if (below(2))
			for (unsigned i = 0; i < world.count; i++)
				cut_power(i);
		if (!open_side(&world.now, world.uri, 0) && world.failure[0] == '\0' && world.acked_count > 0)
			drain();
	}
	mend_all();
	bury(&world.former);
	bury(&world.now);
	farlog_fault_set_clock(0);
	forget_members();
	world.runs++;
}

static void play_run(uint64_t seed)
{
	bool is_calm;

	begin_run(seed);
	if (below(8) == 0)
		take_away((unsigned)below(world.count));
	(void)open_side(&world.now, world.uri, 0);
	is_calm = below(8) == 0;
	for (uint64_t left = is_calm ? 150 : 12 + below(40); left > 0 && world.failure[0] == '\0'; left--)
		is_calm ? step_calmly() : step();
	end_run();
}

static const struct runs_mutant mutants[] = {
	{MUTANT_RECOVERED_ON_FEW, "fenced and recovered on fewer than n - k + 1", 14},
	{MUTANT_EPOCH_ON_FEW, "an epoch used before k members know it", 16},
	{MUTANT_JOINER_COUNTED, "a member counts that is catching up", 4},
	{MUTANT_REUSED_EARLY, "a member opened again before its teardown", 5},
	{MUTANT_LONGEST_LOG, "the longest log without epoch order", 8},
	{MUTANT_HIGHEST_CREDIT, "credit by the highest head", 38},
	{MUTANT_ACKED_ON_FEW, "acknowledged at k - 1", 1},
	{MUTANT_NO_FLOOR, "no floor in the superblock", 8},
	{MUTANT_OLD_RING_COUNTED, "a ring counts that was replaced", 5},
	{MUTANT_NEW_RING_USED, "the ring in its place is not new", 7},
	{MUTANT_NEW_RING_EARLY, "the ring in its place is told too early", 102},
	{MUTANT_NEW_RING_FLOOR_LOW, "and with a floor too low", 334},
	{MUTANT_NEW_RING_ALONE, "and alone", 43},
	{MUTANT_RECOVERY_NO_FLUSH, "recovery builds on what is not flushed", 346},
};

static void play(uint64_t run, uint64_t seed)
{
	if (run % REPLACEMENT_EVERY != REPLACEMENT_EVERY - 1) {
		play_run(seed);
		return;
	}
	begin_run(seed);
	play_replacement();
	end_run();
}

static void report(void)
{
	printf("members: %lu runs, %lu openings, %lu takeovers, %lu acknowledged, %lu unknown, %lu times a member had come back, %lu rings replaced, %lu times seen in use by the writer of before\n", world.runs, world.opens, world.takeovers,
		world.acks, world.unknowns, world.joins, world.swaps, world.taken);
}

int main(int argc, char **argv)
{
	struct runs runs = {"members", RUNS_DEFAULT, RUNS_OF_A_MUTANT, play, world.failure, report, mutants, sizeof(mutants) / sizeof(mutants[0])};

	world.is_traced = getenv("TRACE") != NULL;
	members_are_tended = true;
	return runs_main(&runs, argc, argv);
}
