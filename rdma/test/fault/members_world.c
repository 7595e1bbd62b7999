/* members_world.c -- what happens to members and writers in members.c, and what must hold whenever a writer is answered
 * or opens. */
#include "members_world.h"

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/err.h"
#include "log/writer.h"
#include "adversary/memory.h"
#include "tended.h"
#include "region/superblock.h"

struct members_world world;

uint64_t below(uint64_t bound)
{
	uint64_t value = world.random += 0x9E3779B97F4A7C15ull;

	value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
	value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
	return (value ^ (value >> 31)) % bound;
}

/* ---------------------------------------------------------------- members */

void make_ring(const char *uri, const char *name, bool is_remote)
{
	if (farlog_ring_format(uri, &world.config, NULL) != FARLOG_OK)
		FAIL("format %s", uri);
	farlog_fault_reseed(name, below(UINT64_MAX) | 1);
	farlog_fault_set_remote(name, is_remote);
}

void name_all(void)
{
	int used = snprintf(world.uri, sizeof(world.uri), "members:%u", world.needed);

	for (unsigned i = 0; i < world.count; i++)
		used += snprintf(world.uri + used, sizeof(world.uri) - (size_t)used, " %s", world.uris[i]);
}

void take_away(unsigned i)
{
	TRACE("member %u away\n", i + 1);
	world.is_away[i] = true;
	farlog_fault_set_away(world.names[i], 1);
}

void bring_back(unsigned i)
{
	TRACE("member %u back\n", i + 1);
	world.is_away[i] = false;
	farlog_fault_set_away(world.names[i], 0);
}

void cut_power(unsigned i)
{
	TRACE("member %u without power\n", i + 1);
	farlog_fault_exorcise(world.names[i]);
	farlog_fault_crash(world.names[i]);
}

/* replace -- an empty ring, formatted alike, stands where a member was: once a run, since what two of them held may be
 * gone. */
static void replace(unsigned i)
{
	if (world.is_replaced || world.swap_count > 0 || (world.epoch_count > 0 && !do_others_know(i)))
		return;
	TRACE("member %u replaced\n", i + 1);
	world.is_replaced = true;
	world.replaced = i;
	farlog_fault_set_away(world.names[i], 1);
	farlog_fault_set_away(world.names[i], 0);
	farlog_fault_exorcise(world.names[i]);
	farlog_fault_call(world.names[i], UINT64_MAX, NULL, NULL);
	farlog_fault_set_slowness(world.names[i], 0);
	if (farlog_ring_format(world.uris[i], &world.config, NULL) != FARLOG_OK)
		FAIL("format %s again", world.uris[i]);
	/* who makes a ring for a stream lets none of before into it: these have the uuid of the one that is lost, and would
	 * not take this one */
	if (world.granted > 0)
		may_fail(farlog_ring_fence(world.uris[i], world.granted, NULL));
	farlog_fault_set_slowness(world.names[i], 128);
	farlog_fault_set_away(world.names[i], world.is_away[i]);
}

/* strike -- something happens to a member, without a context in the middle of what a writer does. */
void strike(void *context)
{
	unsigned i = (unsigned)below(world.count);

	if (world.is_over)
		return;
	switch (below(10)) {
	case 9:
		context != NULL &&below(8) == 0 ? replace(i) : cut_power(i);
		break;
	case 0:
		take_away(i);
		break;
	case 1:
		cut_power(i);
		break;
	case 2:
		farlog_fault_set_slowness(world.names[i], below(3) == 0 && world.is_remote[i] ? 256 : (unsigned)below(256));
		break;
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

void strike_later(void)
{
	farlog_fault_call(world.names[below(world.count)], below(60), strike, NULL);
}

void mend_all(void)
{
	for (unsigned i = 0; i < world.count; i++) {
		farlog_fault_call(world.names[i], UINT64_MAX, NULL, NULL);
		farlog_fault_set_slowness(world.names[i], 128);
		if (world.is_away[i])
			bring_back(i);
	}
}

/* ---------------------------------------------------------------- appending */

/* name_known -- the memory of a member, as the writer was told last. */
const char *name_known(const struct farlog_writer *writer, unsigned i)
{
	const struct member *member = &members_of(writer->region)->members[i];

	return strchr(member->is_replaced ? member->next.uri : member->ring.uri, ':') + 1;
}

/* durable_epoch -- that a ring knows, also behind a power cut. */
static uint32_t durable_epoch(const char *name)
{
	struct superblock slot;
	uint32_t epoch = 0;

	for (unsigned at = 0; at < 2; at++) {
		farlog_fault_media(name, at == 0 ? LAYOUT_SUPERBLOCK_A_OFF : LAYOUT_SUPERBLOCK_B_OFF, &slot, sizeof(slot));
		if (slot.writer_epoch > epoch && slot.crc32c == crc32c_update(0, &slot, offsetof(struct superblock, crc32c)))
			epoch = slot.writer_epoch;
	}
	return epoch;
}

/* check_copies -- what was just acknowledged is durable on as many members as was said, and these know the epoch,
 * durably: one that does not is not asked for the log. Bits of all that have it. */
static unsigned check_copies(const struct farlog_writer *writer, const struct farlog_position *position)
{
	uint64_t off = LAYOUT_DATA_OFF + position->lsn % writer->identity.capacity;
	uint64_t len = position->end_lsn - position->lsn;
	uint8_t there[4096];
	unsigned holders = 0;
	unsigned told = 0;
	unsigned count;

	for (unsigned i = 0; i < world.count; i++) {
		farlog_fault_media(name_known(writer, i), off, there, len);
		holders |= (unsigned)(memcmp(there, writer->region->base + off, len) == 0) << i;
		told |= (unsigned)(durable_epoch(name_known(writer, i)) >= writer->epoch) << i;
	}
	count = (unsigned)__builtin_popcount(holders & told);
	if (count < position->copies || position->copies < world.needed)
		FAIL("COPIES: lsn %lu was acknowledged with %u copies of %u needed, and is durable on %u that know the epoch",
			position->lsn, position->copies, world.needed, count);
	return holders;
}

static void note_ack(const struct side *side, uint64_t id, const struct farlog_position *position)
{
	unsigned holders = check_copies(side->writer, position);
	const struct acked *last = world.acked_count > 0 ? &world.acked[world.acked_count - 1] : NULL;

	if (side->is_fenced)
		FAIL("FENCED: a fenced writer of epoch %u got an acknowledgement at lsn %lu", position->epoch, position->lsn);
	if (last != NULL && position->lsn <= last->lsn)
		FAIL("TWICE: lsn %lu of epoch %u is acknowledged behind lsn %lu of epoch %u", position->lsn, position->epoch,
			last->lsn, last->epoch);
	if (world.acked_count < ACKED_COUNT_MAX)
		world.acked[world.acked_count++] = (struct acked){position->lsn, id, position->epoch, holders};
	world.acks++;
}

void append(struct side *side)
{
	uint64_t payload[PAYLOAD_LEN_MAX / 8] = {world.next_id++};
	struct farlog_entry entry = {.data = payload, .len = (uint32_t)(8 + 8 * below(PAYLOAD_LEN_MAX / 8 - 1))};
	struct farlog_position position;
	uint64_t start_ns = clock_monotonic_ns();
	uint64_t taken_ns;
	int result;

	if (below(4) == 0) {
		may_fail(farlog_submit(side->writer, &entry, &position)); /* its outcome is nobody's business */
		payload[0] = world.next_id++;
	}
	result = farlog_append(side->writer, &entry, DEADLINE_NS, &position);
	taken_ns = clock_monotonic_ns() - start_ns;
	TRACE("append %lu by epoch %u: %s lsn %lu\n", payload[0], side->writer->epoch, farlog_result_name(result),
		position.lsn);
	if (taken_ns > DEADLINE_NS + SLACK_NS)
		FAIL("LATE: an append took %lu ns, its deadline was %u", taken_ns, DEADLINE_NS);
	if (result == FARLOG_OK)
		note_ack(side, payload[0], &position);
	else if (result != FARLOG_UNKNOWN && result != FARLOG_FULL && result != FARLOG_FENCED)
		FAIL("append: %s", farlog_result_name(result));
	world.unknowns += result == FARLOG_UNKNOWN;
}

/* check_taken -- a ring that was put in the place of another is taken in when it is new. */
static void check_taken(const struct farlog_writer *writer)
{
	for (unsigned i = 0; i < members_of(writer->region)->count; i++) {
		const struct member *member = &members_of(writer->region)->members[i];

		if (strstr(member->ring.uri, USED_NAME) != NULL && member_state(member) != MEMBER_AWAY &&
			member_state(member) != MEMBER_WRONG_RING)
			FAIL("USED: a ring that knew an epoch was taken for a new one");
		world.taken += member->is_new && member->knows_epoch && member_state(member) == MEMBER_ACTIVE;
	}
}

void tend(struct side *side)
{
	if (side->writer == NULL)
		return;
	members_tend(side->writer->region);
	if (below(2))
		may_fail(side->writer->region->ops->data.poll(side->writer->region));
	for (unsigned i = 0; i < members_of(side->writer->region)->count; i++)
		world.joins += members_of(side->writer->region)->members[i].rejoin_count > 0;
	check_taken(side->writer);
}

/* ---------------------------------------------------------------- opening */

/* check_log -- what opening found, against what was acknowledged; below its head all is in the store. */
static void check_log(const struct farlog_writer *writer)
{
	const struct region_members *whole = members_of(writer->region);
	const uint8_t *data = whole->copy + LAYOUT_DATA_OFF;
	struct record_cursor cursor = {.lsn = whole->start.head_lsn,
		.seq = whole->start.head_seq,
		.epoch = whole->start.last_epoch,
		.epoch_max = writer->epoch};
	struct record_found found;
	unsigned at = 0;

	if (cursor.lsn > world.stored_lsn)
		FAIL("RELEASED: the log begins at lsn %lu, and the store ends at lsn %lu", cursor.lsn, world.stored_lsn);
	check_stored();
	while (at < world.acked_count && world.acked[at].lsn < cursor.lsn)
		at++;
	for (;;) {
		uint64_t off = cursor.lsn % writer->identity.capacity;
		uint64_t id;

		if (cursor.lsn >= writer->ring.appended_lsn ||
			record_check(&writer->identity, &cursor, data + off, writer->identity.capacity - off, &found) !=
				RECORD_VALID)
			break;
		memcpy(&id, data + off + RECORD_HEADER_LEN, sizeof(id));
		if (at < world.acked_count && cursor.lsn == world.acked[at].lsn) {
			if (found.epoch != world.acked[at].epoch || id != world.acked[at].id)
				FAIL("CHANGED: lsn %lu was record %lu of epoch %u, and is record %lu of epoch %u", cursor.lsn,
					world.acked[at].id, world.acked[at].epoch, id, found.epoch);
			at++;
		}
		record_advance(&cursor, &found);
	}
	if (at < world.acked_count)
		FAIL("LOST: lsn %lu of epoch %u was acknowledged; the log from lsn %lu ends at %lu, drained up to %lu",
			world.acked[at].lsn, world.acked[at].epoch, whole->start.head_lsn, cursor.lsn, world.stored_lsn);
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

int open_calmly(struct side *side, const char *uri, uint32_t epoch, struct farlog_error *error)
{
	struct farlog_writer_config config = {.counters_dir = "",
		.policy = below(2) ? FARLOG_POLICY_REJECT : FARLOG_POLICY_BLOCK,
		.epoch = epoch,
		.deadline_ns = DEADLINE_NS};
	int result = farlog_writer_open(uri, &config, &side->writer, error);

	side->is_fenced = false;
	TRACE("open epoch %u: %s %s\n", epoch, farlog_result_name(result), error->text);
	if (result != FARLOG_OK) {
		side->writer = NULL;
		return result;
	}
	/* not by the time that really goes by: a seed plays the same again */
	side->writer->hint_interval_ticks = below(2) ? 0 : UINT64_MAX;
	world.opens++;
	note_epoch(side->writer->epoch);
	check_log(side->writer);
	return FARLOG_OK;
}

bool open_side(struct side *side, const char *uri, uint32_t epoch)
{
	struct farlog_error error = {0};

	if (below(3) == 0)
		strike_later();
	return open_calmly(side, uri, epoch, &error) == FARLOG_OK;
}

/* bury -- a writer's process ends. What it had sent lands or not, and its connections are down before another one is
 * let in. */
void bury(struct side *side)
{
	if (side->writer == NULL)
		return;
	TRACE("writer of epoch %u dies\n", side->writer->epoch);
	if (below(2))
		for (unsigned i = 0; i < world.count; i++)
			if (!world.is_away[i] && side == &world.now && world.former.writer == NULL)
				farlog_fault_kill_writer(world.names[i]);
	farlog_writer_close(side->writer);
	side->writer = NULL;
	for (unsigned i = 0; i < world.count; i++)
		farlog_fault_exorcise(world.names[i]);
}

/* knows_epoch -- does a ring say so? It is asked however it is reached. */
bool knows_epoch(unsigned i)
{
	struct farlog_ring_status status;
	bool is_known;

	if (world.is_away[i])
		farlog_fault_set_away(world.names[i], 0);
	is_known = farlog_ring_inspect(world.uris[i], &status, NULL) == FARLOG_OK && status.writer_epoch != 0;
	if (world.is_away[i])
		farlog_fault_set_away(world.names[i], 1);
	return is_known;
}

/* do_others_know -- R4: too few would be left who know what was acknowledged, where another ring knows no epoch either:
 * it is new itself, or missed all of them. */
bool do_others_know(unsigned i)
{
	for (unsigned other = 0; other < world.count; other++)
		if (other != i && durable_epoch(world.names[other]) == 0)
			return false;
	return true;
}

/* is_new -- a ring that was put in the place of another, and counts in no quorum. */
bool is_new(unsigned i)
{
	return world.swap_count > 0 && i == world.swapped && !knows_epoch(i);
}

/* fence -- what a control plane does before it grants: on so many members that no acknowledgement is left for the
 * former writer. */
bool fence(uint32_t epoch)
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
		farlog_fault_kill_writer(world.names[i]);
		farlog_fault_exorcise(world.names[i]);
		TRACE("member %u fenced for epoch %u\n", i + 1, epoch);
		fenced += !is_new(i);
	}
	return fenced >= world.count - world.needed + 1;
}

void take_over(void)
{
	uint32_t epoch = ++world.granted;

	bury(&world.former);
	world.former = world.now;
	world.now.writer = NULL;
	world.takeovers++;
	if (fence(epoch))
		world.former.is_fenced = true;
	(void)open_side(&world.now, world.uri, epoch);
}

void reopen(void)
{
	bury(&world.former);
	bury(&world.now);
	(void)open_side(&world.now, world.uri, below(2) ? ++world.granted : 0);
}
