/* members.c -- writers that take a stream with several members from each other, on adversarial memories that come and go.
 *
 * What is proved: whatever members are away, slow, cut off or without power, in the middle of an opening, an append or a takeover, and though a former writer goes
 * on trying, nothing acknowledged is lost or changed, no LSN and no epoch is given twice, a fenced writer gets no acknowledgement, what is acknowledged is durable on as many
 * members as is said, and no call takes longer than its deadline. How: one thread plays all hosts, and its own time; the ring, the members and the recovery are the real ones. Each opening is
 * compared with what was acknowledged before. A drain moves the heads of some of the members.
 *
 * usage: members [--mutants]; SEED=n, RUNS=n (10000), RUN=n one of them, TRACE=1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "mutant.h"
#include "region_fault.h"
#include "region_members.h"
#include "runs.h"
#include "superblock.h"
#include "writer.h"

#define RUNS_DEFAULT 10000u
#define RUNS_OF_A_MUTANT 10000u
#define ACKED_COUNT_MAX 4096u
#define EPOCH_COUNT_MAX 256u
#define DEADLINE_NS 150000u
#define SLACK_NS 60000u /* looks at the clock between the last pause and the return */
#define PAYLOAD_LEN_MAX 600u

struct acked {
	uint64_t lsn;
	uint64_t id;
	uint32_t epoch;
};

struct side {
	farlog_writer *writer;
	bool is_fenced; /* by so many that it must get no acknowledgement any more */
};

static struct {
	uint64_t random;
	unsigned count;
	unsigned needed;
	char names[MEMBER_COUNT_MAX][24];
	char uris[MEMBER_COUNT_MAX][32];
	char uri[512];
	bool is_away[MEMBER_COUNT_MAX];
	bool is_remote[MEMBER_COUNT_MAX];
	bool is_replaced; /* one of them has been */
	struct farlog_ring_config config;
	struct side now;
	struct side former;
	struct acked acked[ACKED_COUNT_MAX];
	unsigned acked_count;
	uint32_t epochs[EPOCH_COUNT_MAX]; /* that were opened */
	unsigned epoch_count;
	uint32_t granted;
	struct record_cursor drained;
	uint64_t next_id;
	uint64_t acks, opens, takeovers, unknowns, joins, runs;
	bool is_traced;
	char failure[400];
} world;

static uint64_t below(uint64_t bound)
{
	uint64_t value = world.random += 0x9E3779B97F4A7C15ull;

	value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
	value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
	return (value ^ (value >> 31)) % bound;
}

#define FAIL(...)                                                                                     \
	do {                                                                                          \
		if (world.failure[0] == '\0')                                                         \
			snprintf(world.failure, sizeof(world.failure), __VA_ARGS__);                  \
	} while (0)
#define TRACE(...) (world.is_traced ? (void)printf(__VA_ARGS__) : (void)0)

/* ---------------------------------------------------------------- members */

static void take_away(unsigned i)
{
	TRACE("member %u away\n", i + 1);
	world.is_away[i] = true;
	farlog_fault_set_away(world.names[i], 1);
}

static void bring_back(unsigned i)
{
	TRACE("member %u back\n", i + 1);
	world.is_away[i] = false;
	farlog_fault_set_away(world.names[i], 0);
}

static void cut_power(unsigned i)
{
	TRACE("member %u without power\n", i + 1);
	farlog_fault_exorcise(world.names[i]);
	farlog_fault_crash(world.names[i]);
}

/* replace -- an empty ring, formatted alike, stands where a member was: once a run, since what two of them held may be gone. */
static void replace(unsigned i)
{
	if (world.is_replaced)
		return;
	TRACE("member %u replaced\n", i + 1);
	world.is_replaced = true;
	farlog_fault_set_away(world.names[i], 1);
	farlog_fault_set_away(world.names[i], 0);
	farlog_fault_exorcise(world.names[i]);
	farlog_fault_call(world.names[i], UINT64_MAX, NULL, NULL);
	farlog_fault_set_slowness(world.names[i], 0);
	if (farlog_ring_format(world.uris[i], &world.config, NULL) != FARLOG_OK)
		FAIL("format %s anew", world.uris[i]);
	farlog_fault_set_slowness(world.names[i], 128);
	farlog_fault_set_away(world.names[i], world.is_away[i]);
}

/* strike -- something happens to a member, without a context in the middle of what a writer does. */
static void strike(void *context)
{
	unsigned i = (unsigned)below(world.count);

	switch (below(10)) {
	case 9: context != NULL && below(8) == 0 ? replace(i) : cut_power(i); break;
	case 0: take_away(i); break;
	case 1: cut_power(i); break;
	case 2: farlog_fault_set_slowness(world.names[i], below(3) == 0 && world.is_remote[i] ? 256 : (unsigned)below(256)); break;
	case 3: /* its connections break */
		farlog_fault_set_away(world.names[i], 1);
		farlog_fault_set_away(world.names[i], world.is_away[i]);
		break;
	default:
		farlog_fault_set_slowness(world.names[i], 128);
		if (world.is_away[i])
			bring_back(i);
		break;
	}
}

static void strike_later(void)
{
	farlog_fault_call(world.names[below(world.count)], below(60), strike, NULL);
}

static void mend_all(void)
{
	for (unsigned i = 0; i < world.count; i++) {
		farlog_fault_call(world.names[i], UINT64_MAX, NULL, NULL);
		farlog_fault_set_slowness(world.names[i], 128);
		if (world.is_away[i])
			bring_back(i);
	}
}

/* ---------------------------------------------------------------- appending */

/* check_copies -- what was just acknowledged is durable on as many members as was said. */
static void check_copies(const struct farlog_writer *writer, const struct farlog_position *position)
{
	uint64_t off = LAYOUT_DATA_OFF + position->lsn % writer->identity.capacity;
	uint64_t len = position->end_lsn - position->lsn;
	uint8_t there[4096];
	unsigned count = 0;

	for (unsigned i = 0; i < world.count; i++) {
		farlog_fault_media(world.names[i], off, there, len);
		count += memcmp(there, writer->region->base + off, len) == 0;
	}
	if (count < position->copies || position->copies < world.needed)
		FAIL("COPIES: lsn %lu was acknowledged with %u copies of %u needed, and is durable on %u", position->lsn, position->copies, world.needed, count);
}

static void note_ack(const struct side *side, uint64_t id, const struct farlog_position *position)
{
	const struct acked *last = world.acked_count > 0 ? &world.acked[world.acked_count - 1] : NULL;

	if (side->is_fenced)
		FAIL("FENCED: a fenced writer of epoch %u got an acknowledgement at lsn %lu", position->epoch, position->lsn);
	if (last != NULL && position->lsn <= last->lsn)
		FAIL("TWICE: lsn %lu of epoch %u is acknowledged behind lsn %lu of epoch %u", position->lsn, position->epoch, last->lsn, last->epoch);
	check_copies(side->writer, position);
	if (world.acked_count < ACKED_COUNT_MAX)
		world.acked[world.acked_count++] = (struct acked){position->lsn, id, position->epoch};
	world.acks++;
}

static void append(struct side *side)
{
	uint64_t payload[PAYLOAD_LEN_MAX / 8] = {world.next_id++};
	struct farlog_entry entry = {.data = payload, .len = (uint32_t)(8 + 8 * below(PAYLOAD_LEN_MAX / 8 - 1))};
	struct farlog_position position;
	uint64_t start_ns = clock_monotonic_ns();
	uint64_t taken_ns;
	int result;

	if (below(4) == 0) {
		(void)farlog_submit(side->writer, &entry, &position); /* its outcome is nobody's business */
		payload[0] = world.next_id++;
	}
	result = farlog_append(side->writer, &entry, DEADLINE_NS, &position);
	taken_ns = clock_monotonic_ns() - start_ns;
	TRACE("append %lu by epoch %u: %s lsn %lu\n", payload[0], side->writer->epoch, farlog_result_name(result), position.lsn);
	if (taken_ns > DEADLINE_NS + SLACK_NS)
		FAIL("LATE: an append took %lu ns, its deadline was %u", taken_ns, DEADLINE_NS);
	if (result == FARLOG_OK)
		note_ack(side, payload[0], &position);
	else if (result != FARLOG_UNKNOWN && result != FARLOG_FULL && result != FARLOG_FENCED)
		FAIL("append: %s", farlog_result_name(result));
	world.unknowns += result == FARLOG_UNKNOWN;
}

static void tend(struct side *side)
{
	if (side->writer == NULL)
		return;
	members_tend(side->writer->region);
	if (below(2))
		(void)side->writer->region->ops->poll(side->writer->region);
	for (unsigned i = 0; i < members_of(side->writer->region)->count; i++)
		world.joins += members_of(side->writer->region)->members[i].rejoin_count > 0;
}

/* ---------------------------------------------------------------- opening */

/* check_log -- what opening found, against what was acknowledged and is not drained. */
static void check_log(const struct farlog_writer *writer)
{
	const struct region_members *whole = members_of(writer->region);
	const uint8_t *data = whole->copy + LAYOUT_DATA_OFF;
	struct record_cursor cursor = {.lsn = whole->start.head_lsn, .seq = whole->start.head_seq, .epoch = whole->start.last_epoch, .epoch_max = writer->epoch};
	struct record_found found;
	unsigned at = 0;

	while (at < world.acked_count && world.acked[at].lsn < world.drained.lsn)
		at++;
	for (;;) {
		uint64_t off = cursor.lsn % writer->identity.capacity;
		uint64_t id;

		if (cursor.lsn >= writer->ring.appended_lsn ||
			record_check(&writer->identity, &cursor, data + off, writer->identity.capacity - off, &found) != RECORD_VALID)
			break;
		memcpy(&id, data + off + RECORD_HEADER_LEN, sizeof(id));
		if (at < world.acked_count && cursor.lsn == world.acked[at].lsn) {
			if (found.epoch != world.acked[at].epoch || id != world.acked[at].id)
				FAIL("CHANGED: lsn %lu was record %lu of epoch %u, and is record %lu of epoch %u", cursor.lsn, world.acked[at].id,
					world.acked[at].epoch, id, found.epoch);
			at++;
		}
		record_advance(&cursor, &found);
	}
	if (at < world.acked_count)
		FAIL("LOST: lsn %lu of epoch %u was acknowledged; the log from lsn %lu ends at %lu, drained up to %lu", world.acked[at].lsn, world.acked[at].epoch,
			whole->start.head_lsn, cursor.lsn, world.drained.lsn);
}

static void note_epoch(uint32_t epoch)
{
	for (unsigned i = 0; i < world.epoch_count; i++)
		if (world.epochs[i] == epoch)
			FAIL("EPOCH: %u was opened twice", epoch);
	if (world.epoch_count < EPOCH_COUNT_MAX)
		world.epochs[world.epoch_count++] = epoch;
	if (epoch > world.granted)
		world.granted = epoch;
}

static bool open_side(struct side *side, uint32_t epoch)
{
	struct farlog_writer_config config = {.counters_dir = "", .policy = below(2) ? FARLOG_POLICY_REJECT : FARLOG_POLICY_BLOCK, .epoch = epoch,
		.deadline_ns = DEADLINE_NS};
	struct farlog_error error = {0};
	int result;

	side->is_fenced = false;
	if (below(3) == 0)
		strike_later();
	result = farlog_writer_open(world.uri, &config, &side->writer, &error);
	TRACE("open epoch %u: %s %s\n", epoch, farlog_result_name(result), error.text);
	if (result != FARLOG_OK) {
		side->writer = NULL;
		return false;
	}
	side->writer->hint_interval_ticks = below(2) ? 0 : UINT64_MAX; /* not by the time that really goes by: a seed plays the same again */
	world.opens++;
	note_epoch(side->writer->epoch);
	check_log(side->writer);
	return true;
}

/* bury -- a writer's process ends. What it had sent lands or not, and its connections are down before another one is let in. */
static void bury(struct side *side)
{
	if (side->writer == NULL)
		return;
	TRACE("writer of epoch %u dies\n", side->writer->epoch);
	if (below(2))
		for (unsigned i = 0; i < world.count; i++)
			if (!world.is_away[i] && side == &world.now && world.former.writer == NULL)
				farlog_fault_kill(world.names[i]);
	farlog_writer_close(side->writer);
	side->writer = NULL;
	for (unsigned i = 0; i < world.count; i++)
		farlog_fault_exorcise(world.names[i]);
}

/* fence -- what a control plane does before it grants: on so many members that no acknowledgement is left for the former writer. */
static bool fence(uint32_t epoch)
{
	unsigned wanted = world.count - world.needed + 1;
	unsigned first = (unsigned)below(world.count);
	unsigned fenced = 0;

	if (below(3) == 0)
		wanted = world.count;
	for (unsigned turn = 0; turn < world.count && fenced < wanted; turn++) {
		unsigned i = (first + turn) % world.count;

		if (world.is_away[i] || farlog_ring_fence(world.uris[i], epoch, NULL) != FARLOG_OK)
			continue;
		farlog_fault_kill(world.names[i]);
		farlog_fault_exorcise(world.names[i]);
		TRACE("member %u fenced for epoch %u\n", i + 1, epoch);
		fenced++;
	}
	return fenced >= world.count - world.needed + 1;
}

static void take_over(void)
{
	uint32_t epoch = ++world.granted;

	bury(&world.former);
	world.former = world.now;
	world.now.writer = NULL;
	world.takeovers++;
	if (fence(epoch))
		world.former.is_fenced = true;
	(void)open_side(&world.now, epoch);
}

static void reopen(void)
{
	bury(&world.former);
	bury(&world.now);
	(void)open_side(&world.now, below(2) ? ++world.granted : 0);
}

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
static void drain(void)
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
	case 4: strike_later(); break;
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
	case 1: farlog_fault_set_slowness(world.names[i], 128 + (unsigned)below(128)); break;
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
	int used;

	world.config = (struct farlog_ring_config){
		.size_bytes = LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN * (1 + below(2)), .record_len_max = 1024, .is_forced = 1, .salt = seed | 1};
	world.count = shapes[shape].count;
	world.needed = shapes[shape].needed;
	used = snprintf(world.uri, sizeof(world.uri), "members:%u", world.needed);
	for (unsigned i = 0; i < world.count; i++) {
		snprintf(world.names[i], sizeof(world.names[i]), "member-%u", i + 1);
		snprintf(world.uris[i], sizeof(world.uris[i]), "fault:member-%u", i + 1);
		used += snprintf(world.uri + used, sizeof(world.uri) - (size_t)used, " fault:member-%u", i + 1);
		if (farlog_ring_format(world.uris[i], &world.config, NULL) != FARLOG_OK)
			FAIL("format %s", world.uris[i]);
		farlog_fault_reseed(world.names[i], below(UINT64_MAX) | 1);
		world.is_remote[i] = below(2) != 0;
		farlog_fault_set_remote(world.names[i], world.is_remote[i]);
	}
}

static void forget_members(void)
{
	for (unsigned i = 0; i < MEMBER_COUNT_MAX; i++)
		farlog_fault_drop(world.names[i]);
}

static void play_run(uint64_t seed)
{
	bool is_calm;

	memset(world.names, 0, sizeof(world.names));
	memset(world.is_away, 0, sizeof(world.is_away));
	memset(&world.drained, 0, sizeof(world.drained));
	world.acked_count = world.epoch_count = world.granted = 0;
	world.next_id = 1;
	world.now = world.former = (struct side){0};
	world.random = seed;
	world.is_replaced = false;
	make_members(seed);
	farlog_fault_set_clock(1000000000u);
	if (below(8) == 0)
		take_away((unsigned)below(world.count));
	(void)open_side(&world.now, 0);
	is_calm = below(8) == 0;
	for (uint64_t left = is_calm ? 150 : 12 + below(40); left > 0 && world.failure[0] == '\0'; left--)
		is_calm ? step_calmly() : step();
	if (world.failure[0] == '\0') { /* all come back, and what was acknowledged is there */
		mend_all();
		bury(&world.former);
		bury(&world.now);
		if (below(2))
			for (unsigned i = 0; i < world.count; i++)
				cut_power(i);
		if (!open_side(&world.now, 0) && world.failure[0] == '\0' && world.acked_count > 0)
			drain();
	}
	mend_all();
	bury(&world.former);
	bury(&world.now);
	farlog_fault_set_clock(0);
	forget_members();
	world.runs++;
}

static const struct runs_mutant mutants[] = {
	{MUTANT_RECOVERED_ON_FEW, "fenced and recovered on fewer than n - k + 1", 13},
	{MUTANT_EPOCH_ON_FEW, "an epoch used before k members know it", 9},
	{MUTANT_JOINER_COUNTED, "a member counts that is catching up", 4},
	{MUTANT_REUSED_EARLY, "a member opened again before its teardown", 9},
	{MUTANT_LONGEST_LOG, "the longest log without epoch order", 9},
	{MUTANT_HIGHEST_CREDIT, "credit by the highest head", 16},
	{MUTANT_ACKED_ON_FEW, "acknowledged at k - 1", 1},
	{MUTANT_NO_FLOOR, "no floor in the superblock", 9},
	{MUTANT_RECOVERY_NO_FLUSH, "recovery builds on what is not flushed", 36},
};

static void play(uint64_t run, uint64_t seed)
{
	(void)run;
	play_run(seed);
}

static void report(void)
{
	printf("members: %lu runs, %lu openings, %lu takeovers, %lu acknowledged, %lu unknown, %lu times a member had come back\n", world.runs, world.opens, world.takeovers,
		world.acks, world.unknowns, world.joins);
}

int main(int argc, char **argv)
{
	struct runs runs = {"members", RUNS_DEFAULT, RUNS_OF_A_MUTANT, play, world.failure, report, mutants, sizeof(mutants) / sizeof(mutants[0])};

	world.is_traced = getenv("TRACE") != NULL;
	members_are_tended = true;
	return runs_main(&runs, argc, argv);
}
