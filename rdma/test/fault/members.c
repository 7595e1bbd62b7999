/* members.c -- writers that take a stream with several members from each other, on adversarial memories that come and
 * go.
 *
 * What is proved: whatever members are away, slow, cut off or without power, in the middle of an opening, an append or
 * a takeover, and though a former writer goes on trying, nothing acknowledged is lost or changed, no LSN and no epoch
 * is given twice, a fenced writer gets no acknowledgement, what is acknowledged is durable on as many members as is
 * said, and no call takes longer than its deadline. How: one thread plays all hosts, and its own time; the ring, the
 * members and the recovery are the real ones. Each opening is compared with what was acknowledged before. A drain in a
 * process of its own reads all members, keeps what it is given, and moves the heads (members_drain.c). At the end all
 * members are there: the stream must open, and all of it come to the store. In some runs a ring is put in the place of
 * a member's for good, as the control plane does: openings by later grants have the new one, a grant of before may
 * still be opened, and the writer is told at some time, when no epoch after its own has been granted. One of sixteen
 * runs is of nothing else (members_replace.c), and one of 64 of a first opening that is cut short.
 *
 * usage: members; SEED=n, RUNS=n (10000), RUN=n one of them, TRACE=1. */
#include <stdlib.h>

#include "base/clock.h"
#include "adversary/clock.h"
#include "members_world.h"
#include "adversary/memory.h"
#include "runs.h"
#include "tended.h"
#include "region/superblock.h"
#include "log/writer.h"

#define RUNS_DEFAULT 10000u
#define KEPT_LEN 256u         /* that appends leave free for an EPOCH record */
#define RUNS_THAT_COUNT 256u  /* fewer may have come to less by chance */
#define REPLACEMENT_EVERY 16u /* runs, one is of nothing else */
#define FIRST_CUT_EVERY 64u   /* runs, one is of nothing else */

/* ---------------------------------------------------------------- a run */

static void step(void)
{
	switch (below(16)) {
	case 0:
		take_over();
		break;
	case 1:
		reopen();
		break;
	case 2:
	case 3:
		strike(&world);
		break;
	case 4:
		world.is_swapping ? change() : strike_later();
		break;
	case 5:
	case 6:
	case 7:
		drain();
		break;
	case 8:
	case 9:
		tend(&world.now);
		tend(&world.former);
		break;
	case 10:
		if (world.former.writer != NULL)
			append(&world.former);
		break;
	default:
		if (world.now.writer != NULL)
			append(&world.now);
		break;
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
	case 1:
		world.is_swapping ? change() : farlog_fault_set_slowness(world.names[i], 128 + (unsigned)below(128));
		break;
	case 2:
	case 3:
	case 4:
		drain();
		break;
	case 5:
	case 6:
	case 7:
		tend(&world.now);
		break;
	default:
		if (world.now.writer != NULL)
			append(&world.now);
		break;
	}
}

static void make_members(uint64_t seed)
{
	static const struct {
		unsigned count;
		unsigned needed;
	} shapes[] = {{3, 2}, {3, 2}, {3, 2}, {2, 1}, {2, 2}, {3, 1}, {3, 3}, {4, 2}, {5, 3}};
	unsigned shape = (unsigned)below(sizeof(shapes) / sizeof(shapes[0]));

	world.config = (struct farlog_ring_config){.size_bytes = LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN * (1 + below(2)),
		.record_len_max = 1024,
		.is_forced = 1,
		.salt = seed | 1};
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
	world.acked_count = world.epoch_count = world.granted = world.stored_count = 0;
	world.stored_lsn = 0;
	world.drain_uri[0] = '\0';
	world.drain_ns = 500000000u;
	world.next_id = 1;
	world.now = world.former = (struct side){0};
	world.random = seed;
	world.is_replaced = world.is_over = false;
	world.swap_count = 0;
	world.late.epoch = 0;
	world.is_swapping = below(4) == 0;
	make_members(seed);
	farlog_fault_set_clock(1000000000u);
}

/* holds -- has a member the record yet, durably? */
static bool holds(unsigned i, const struct acked *acked)
{
	uint64_t off = LAYOUT_DATA_OFF + acked->lsn % (world.config.size_bytes - LAYOUT_DATA_OFF);
	struct record_header header;
	uint64_t id;

	farlog_fault_media(world.names[i], off, &header, sizeof(header));
	farlog_fault_media(world.names[i], off + RECORD_HEADER_LEN, &id, sizeof(id));
	return header.lsn == acked->lsn && header.epoch == acked->epoch && id == acked->id;
}

/* accept_loss -- with k = 1 nobody but an operator opens a stream of which a ring is new: it was put in the place of
 * another one, or the first opening was cut short before all knew its epoch. What is lost is what such a one's former
 * ring alone had. */
static void accept_loss(unsigned new_ones)
{
	world.refusals++;
	for (unsigned at = 0; at < world.acked_count; at++) {
		const struct acked *acked = &world.acked[at];
		bool is_held = acked->lsn < world.stored_lsn;

		for (unsigned i = 0; i < world.count && !is_held; i++)
			is_held = (new_ones & 1u << i) == 0 && holds(i, acked);
		world.accepted += !is_held;
		if (!is_held && (acked->holders & ~new_ones) != 0)
			FAIL("LOST: lsn %lu of epoch %u was acknowledged, and not only on members that are new: on %x of these %x",
				acked->lsn, acked->epoch, acked->holders, new_ones);
	}
}

/* find_new -- bits of the members whose rings know no epoch, each for a reason. */
static unsigned find_new(void)
{
	unsigned new_ones = 0;

	for (unsigned i = 0; i < world.count; i++) {
		bool was_put = (world.is_replaced && i == world.replaced) || (world.swap_count > 0 && i == world.swapped);

		if (knows_epoch(i))
			continue;
		new_ones |= 1u << i;
		for (unsigned at = 0; at < world.acked_count && !was_put; at++)
			if ((world.acked[at].holders & 1u << i) != 0)
				FAIL("FORGOTTEN: member %u had lsn %lu of epoch %u, and knows no epoch", i + 1, world.acked[at].lsn,
					world.acked[at].epoch);
	}
	return new_ones;
}

/* is_first_cut -- the first opening ended before enough members knew its epoch, and none has come to its end since: who
 * are blank cannot be told from rings that were formatted again, so that nobody but an operator opens the stream
 * (docs/explanation/members.md). Where none knows an epoch, that is again a first opening, which nothing hinders. */
static bool is_first_cut(unsigned new_ones)
{
	unsigned new_count = (unsigned)__builtin_popcount(new_ones);

	return world.epoch_count == 0 && world.acked_count == 0 && new_count < world.count && new_count >= world.needed;
}

/* last_append -- by the member's log, where the last record of an application ends above that LSN; 0: none does.
 * *head_lsn: its head. */
static uint64_t last_append(unsigned i, uint64_t above_lsn, uint64_t *head_lsn)
{
	struct region_options options = {.access = REGION_READ, .role = REGION_ROLE_READER};
	struct superblock superblock;
	struct record_found found;
	struct head_slot head;
	struct region *region;
	uint64_t end_lsn = 0;

	*head_lsn = 0;
	if (region_open(world.uris[i], &options, &region, NULL) != FARLOG_OK)
		return 0;
	if (superblock_load(region, world.uris[i], &superblock, NULL) == FARLOG_OK &&
		head_load(region, &superblock, &head)) {
		struct record_identity identity = superblock_identity(&superblock);
		struct record_cursor cursor;

		head_raise_to_floor(&superblock, &head);
		*head_lsn = head.head_lsn;
		cursor = (struct record_cursor){
			.lsn = head.head_lsn, .seq = head.head_seq, .epoch = head.last_epoch, .epoch_max = UINT32_MAX};
		for (uint64_t off = cursor.lsn % identity.capacity; cursor.lsn - head.head_lsn < identity.capacity &&
			record_check(&identity, &cursor, region->base + LAYOUT_DATA_OFF + off, identity.capacity - off, &found) ==
				RECORD_VALID;
			off = cursor.lsn % identity.capacity) {
			record_advance(&cursor, &found);
			if (found.flags == 0 && cursor.lsn > above_lsn)
				end_lsn = cursor.lsn;
		}
	}
	region->ops->close(region);
	return end_lsn;
}

/* check_room -- it is full: of openings, which alone may have used the room that appends leave to them. */
static void check_room(const char *text)
{
	uint64_t highest_lsn = 0;
	uint64_t head_lsn;

	for (unsigned i = 0; i < world.count; i++) {
		(void)last_append(i, 0, &head_lsn);
		highest_lsn = head_lsn > highest_lsn ? head_lsn : highest_lsn;
	}
	for (unsigned i = 0; i < world.count; i++)
		if (last_append(i, highest_lsn + world.config.size_bytes - LAYOUT_DATA_OFF - KEPT_LEN, &head_lsn) != 0)
			FAIL("REFUSED: all members are there, a record of an application lies where an epoch has its room, and "
				 "opening them says FULL: %.200s",
				text);
	world.filled++;
}

/* open_last -- all members are there: the stream is opened, behind a drain where it is full, has what was acknowledged,
 * goes on, and all of it comes to the store. */
static void open_last(void)
{
	struct farlog_error error = {0};
	int result = open_calmly(&world.now, world.uri, 0, &error);

	if (result == FARLOG_FULL) {
		check_room(error.text);
		if (drain_all(UINT64_MAX))
			result = open_calmly(&world.now, world.uri, 0, &error);
	}
	if (result == FARLOG_IO && strstr(error.text, "it is new and does not know the log") != NULL &&
		(world.needed == 1 || is_first_cut(find_new())))
		accept_loss(find_new());
	else if (result != FARLOG_OK)
		FAIL(
			"REFUSED: all members are there, and opening them says %s: %.300s", farlog_result_name(result), error.text);
	if (result == FARLOG_OK && drain_all(world.now.writer->durable_lsn))
		check_stored();
	world.stored_total += world.stored_count;
}

/* end_run -- all come back, and what was acknowledged is there. */
static void end_run(void)
{
	world.is_over = true;
	if (world.failure[0] == '\0') {
		mend_all();
		bury(&world.former);
		bury(&world.now);
		if (below(2))
			for (unsigned i = 0; i < world.count; i++)
				cut_power(i);
		open_last();
	}
	mend_all();
	end_drain();
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

static void go_dark(void *context)
{
	(void)context;
	for (unsigned i = 0; i < world.count; i++)
		if (below(3) != 0)
			take_away(i);
}

/* play_first_cut -- the stream's first opening ends at any of its steps, and with it some members: the epoch is known
 * to all, some or none. */
static void play_first_cut(void)
{
	struct farlog_error error = {0};

	farlog_fault_call(world.names[below(world.count)], below(40), go_dark, NULL);
	(void)open_calmly(&world.now, world.uri, 0, &error);
}

static void play(uint64_t run, uint64_t seed)
{
	bool is_replacement = run % REPLACEMENT_EVERY == REPLACEMENT_EVERY - 1;

	if (!is_replacement && run % FIRST_CUT_EVERY != FIRST_CUT_EVERY / 2) {
		play_run(seed);
		return;
	}
	begin_run(seed);
	if (is_replacement)
		play_replacement();
	else
		play_first_cut();
	end_run();
}

static void report(void)
{
	printf("members: %lu runs, %lu openings, %lu takeovers, %lu acknowledged, %lu unknown, %lu times a member had come "
		   "back, %lu rings replaced, %lu times seen in use by the writer of before\n"
		   "members: %lu drains, %lu heads moved, %lu records stored, %lu streams refused whose one copy is gone, with "
		   "%lu records, %lu drained to be opened\n",
		world.runs, world.opens, world.takeovers, world.acks, world.unknowns, world.joins, world.swaps, world.taken,
		world.drain_opens, world.releases, world.stored_total, world.refusals, world.accepted, world.filled);
}

/* too_little -- each floor is half of what the runs have come to, or less. */
static const char *too_little(void)
{
	const struct {
		uint64_t count;
		uint64_t of_256_runs;
		const char *name;
	} floors[] = {
		{world.opens, 512, "openings"},
		{world.acks, 1024, "acknowledgements"},
		{world.takeovers, 128, "takeovers"},
		{world.drain_opens, 256, "drains"},
		{world.releases, 512, "heads moved"},
		{world.stored_total, 2048, "records stored"},
		{world.joins, 256, "members that came back"},
		{world.swaps, 16, "rings replaced"},
	};

	for (size_t i = 0; i < sizeof(floors) / sizeof(floors[0]); i++)
		if (world.runs >= RUNS_THAT_COUNT && floors[i].count * 256 < floors[i].of_256_runs * world.runs)
			return floors[i].name;
	return world.runs >= RUNS_THAT_COUNT && world.refusals * 10 > world.runs ?
		"streams opened at the end: too many refusals" :
		NULL;
}

int main(void)
{
	struct runs runs = {"members", RUNS_DEFAULT, play, world.failure, report, too_little};

	world.is_traced = getenv("TRACE") != NULL;
	members_are_tended = true;
	return runs_main(&runs);
}
