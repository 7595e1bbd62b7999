/* members_drain.c -- the drain of members.c: the reader of all members, in a process of its own that dies like any
 * other, and the store that it fills.
 *
 * Whatever was given out once is in the store for good: it is never given out as anything else, and what was
 * acknowledged is given out as that. A writer's process may end, and another one open, while the drain goes on. Its
 * host has its own time. */
#include "base/clock.h"
#include "adversary/clock.h"
#include "members_world.h"
#include "adversary/memory.h"
#include "region/superblock.h"

#define LOOK_NS 25000000u     /* a little longer than a reader waits before it looks at all members again */
#define REOPEN_NS 2600000000u /* and before it opens one again, and looks whether it is open */
#define TURNS_OF_ALL 400u

/* take_time -- of the drain's host: time is played by the thread, which is on one host at a time. */
static uint64_t take_time(void)
{
	uint64_t elsewhere_ns = clock_monotonic_ns();

	world.drain_ns += below(2) ? LOOK_NS : 0;
	farlog_fault_set_clock(world.drain_ns);
	return elsewhere_ns;
}

static void give_back_time(uint64_t elsewhere_ns)
{
	world.drain_ns = clock_monotonic_ns();
	farlog_fault_set_clock(elsewhere_ns);
}

static void wait_ns(uint64_t ns)
{
	farlog_fault_set_clock(clock_monotonic_ns() + ns);
}

/* ---------------------------------------------------------------- the store */

/* find_stored -- by its place. NULL: none begins there. */
static const struct stored *find_stored(uint64_t lsn)
{
	unsigned low = 0;
	unsigned high = world.stored_count;

	while (low < high) {
		unsigned middle = (low + high) / 2;

		if (world.stored[middle].lsn < lsn)
			low = middle + 1;
		else
			high = middle;
	}
	return low < world.stored_count && world.stored[low].lsn == lsn ? &world.stored[low] : NULL;
}

static void keep_one(const struct stored *one)
{
	const struct stored *there;

	if (one->lsn >= world.stored_lsn) {
		if (world.stored_count == STORED_COUNT_MAX)
			FAIL("the store of the simulation is full: a run is longer than it was meant to be");
		else
			world.stored[world.stored_count++] = *one;
		return;
	}
	there = find_stored(one->lsn);
	if (there == NULL || there->crc32c != one->crc32c || there->epoch != one->epoch)
		FAIL("UNDONE: lsn %lu was given out as record %lu of epoch %u, and is now record %lu of epoch %u", one->lsn,
			there != NULL ? there->id : 0, there != NULL ? there->epoch : 0, one->id, one->epoch);
}

/* keep -- what a batch holds, before any of it is released. */
static void keep(const uint8_t *buf, const struct farlog_batch *batch)
{
	if (batch->first_lsn > world.stored_lsn)
		FAIL("GAP: the store ends at lsn %lu, and the drain goes on at lsn %lu", world.stored_lsn, batch->first_lsn);
	for (size_t at = 0; at < batch->len && world.failure[0] == '\0';) {
		struct record_header header;
		struct stored one;

		memcpy(&header, buf + at, sizeof(header));
		one = (struct stored){.lsn = header.lsn, .epoch = header.epoch, .crc32c = header.crc32c};
		if (header.flags == 0)
			memcpy(&one.id, buf + at + RECORD_HEADER_LEN, sizeof(one.id));
		keep_one(&one);
		at += header.flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN :
											   record_extent(RECORD_ALIGN, header.key_len, header.payload_len);
	}
	if (batch->next_lsn > world.stored_lsn)
		world.stored_lsn = batch->next_lsn;
}

void check_stored(void)
{
	for (unsigned i = 0; i < world.acked_count && world.acked[i].lsn < world.stored_lsn; i++) {
		const struct acked *acked = &world.acked[i];
		const struct stored *there = find_stored(acked->lsn);

		if (there == NULL || there->id != acked->id || there->epoch != acked->epoch)
			FAIL("STORED: lsn %lu was acknowledged as record %lu of epoch %u, and is in the store as record %lu of "
				 "epoch %u",
				acked->lsn, acked->id, acked->epoch, there != NULL ? there->id : 0, there != NULL ? there->epoch : 0);
	}
}

/* ---------------------------------------------------------------- its process */

void end_drain(void)
{
	if (world.reader == NULL)
		return;
	TRACE("drain ends\n");
	farlog_reader_close(world.reader);
	world.reader = NULL;
	world.is_drain_dead = false;
}

/* die -- in the middle of what it does: whatever it had stored is visible, and no more durable than it was. */
static void die(void *context)
{
	(void)context;
	if (world.is_over)
		return;
	TRACE("drain dies\n");
	for (unsigned i = 0; i < world.count; i++)
		farlog_fault_kill_drain(world.names[i]);
	world.is_drain_dead = true;
}

static bool begin_drain(struct farlog_error *error)
{
	struct farlog_reader_config config = {.is_drain = 1};
	int result = farlog_reader_open(world.uri, &config, &world.reader, error);

	TRACE("drain opens: %s %s\n", farlog_result_name(result), error->text);
	world.is_drain_dead = false;
	if (result != FARLOG_OK) {
		world.reader = NULL;
		return false;
	}
	strcpy(world.drain_uri, world.uri);
	world.drain_opens++;
	return true;
}

/* read_some -- into the store. */
static int read_some(uint64_t room, struct farlog_batch *batch)
{
	static uint8_t buf[LAYOUT_BLOCK_LEN + RECORD_PAD_STORED_LEN]; /* as much as drain asks for */
	int result = farlog_reader_read(world.reader, buf, room, batch);

	if (result == FARLOG_TOO_LARGE)
		result = farlog_reader_read(world.reader, buf, sizeof(buf), batch);
	TRACE("drain reads lsn %lu to %lu: %s\n", batch->first_lsn, batch->next_lsn, farlog_result_name(result));
	if (result == FARLOG_OK) {
		keep(buf, batch);
		check_stored();
	} else if (result == FARLOG_HELD) {
		/* one before it went further, as a member tells that was away when this one began */
		world.is_drain_dead = true;
	} else if (result != FARLOG_NOT_YET && result != FARLOG_IO) {
		FAIL("the drain cannot read behind lsn %lu: %s", world.stored_lsn, farlog_result_name(result));
	}
	return result;
}

static void release(const struct farlog_batch *batch)
{
	int result = farlog_reader_release(world.reader, batch->next_lsn, batch->next_seq, batch->last_epoch);

	TRACE("drain releases lsn %lu: %s\n", batch->next_lsn, farlog_result_name(result));
	if (result == FARLOG_OK)
		world.releases++;
	else if (result != FARLOG_IO)
		FAIL("the drain cannot release lsn %lu: %s", batch->next_lsn, farlog_result_name(result));
}

/* drain -- some of what is there goes to the store, and heads move over it; or the process ends before, behind or
 * within that. */
void drain(void)
{
	uint64_t elsewhere_ns = take_time();
	struct farlog_error error = {0};
	struct farlog_batch batch;

	if (below(12) == 0 || (strcmp(world.drain_uri, world.uri) != 0 && below(2)))
		end_drain(); /* it may be told late that a ring is in another one's place */
	if (below(6) == 0)
		strike_later();
	if (below(6) == 0)
		farlog_fault_call(world.names[below(world.count)], below(16), die, NULL);
	if (world.reader != NULL || begin_drain(&error))
		for (uint64_t left = 1 + below(4); left > 0 && !world.is_drain_dead && world.failure[0] == '\0'; left--) {
			int result = read_some(RECORD_PAD_STORED_LEN + below(1u << below(13)), &batch);

			if (result == FARLOG_OK && !world.is_drain_dead && below(4) != 0)
				release(&batch);
			else if (result != FARLOG_OK)
				wait_ns(below(8) == 0 ? REOPEN_NS : LOOK_NS);
		}
	if (world.is_drain_dead)
		end_drain();
	give_back_time(elsewhere_ns);
}

/* drain_all -- of members that are all there, up to where the log ended before; or as far as it goes, for room. */
bool drain_all(uint64_t to_lsn)
{
	uint64_t elsewhere_ns = take_time();
	struct farlog_error error = {0};
	struct farlog_batch batch;
	unsigned idle = 0;

	if (strcmp(world.drain_uri, world.uri) != 0 || to_lsn == UINT64_MAX || below(2))
		end_drain(); /* it may have stored all, and died before it released that */
	for (unsigned left = TURNS_OF_ALL; left > 0 && idle < 8 && world.stored_lsn < to_lsn && world.failure[0] == '\0';
		left--) {
		int result = world.reader != NULL || begin_drain(&error) ? read_some(LAYOUT_BLOCK_LEN, &batch) : FARLOG_IO;

		if (world.is_drain_dead)
			end_drain();
		if (result == FARLOG_OK && world.reader != NULL)
			release(&batch);
		else
			wait_ns(REOPEN_NS);
		idle = result == FARLOG_OK ? 0 : idle + 1;
	}
	give_back_time(elsewhere_ns);
	if (world.stored_lsn < to_lsn && to_lsn != UINT64_MAX)
		FAIL("STUCK: all members are there, and the drain stops at lsn %lu of %lu: %.200s", world.stored_lsn, to_lsn,
			error.text);
	return world.failure[0] == '\0';
}
