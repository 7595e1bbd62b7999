/* takeover.c -- writers of two hosts that take one ring from each other, on adversarial blocks with reservations: what
 * the device's fence is worth.
 *
 * What is proved: with commands of the former writer under way at every point of a takeover, and with that writer going
 * on afterwards, nothing acknowledged by either is lost, nothing is in the log that its writer was told is not, and
 * what resolve says is so. How: a third host drains into a model of a store; after each round its content is compared
 * with what the writers were told. Rounds with a restart of the target let it forget the reservations while both
 * writers' connections come back; there the former writer rests, and has to find out by itself.
 *
 * usage: takeover; SEED=n, ROUNDS=n (3000), ROUND=n one of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "adversary/blocks.h"
#include "adversary/memory.h"
#include "ring/layout.h"
#include "ring/record.h"
#include "runs.h"

#define NAME "takeover-blocks"
#define URI "block-fault:" NAME
#define RECORD_COUNT_MAX 4096u
#define OPEN_COUNT_MAX 16u /* records of a writer whose outcome is open */
#define DEADLINE_NS 10000000000u
#define CLOSE_DEADLINE_NS 200000000u
/* in the middle of a takeover, which stands still meanwhile: where the log ended is not known before it goes on */
#define INSIDE_DEADLINE_NS 1000000u
#define ROUNDS_DEFAULT 3000u
#define DRAIN_HOST 2

enum outcome { OUTCOME_OPEN = 0, OUTCOME_ACKED = 1, OUTCOME_FENCED = 2 };

struct appended {
	uint8_t outcome;
	uint8_t stored_count;
	uint64_t lsn;
};

struct side {
	farlog_writer *writer;
	int host;
	uint64_t open_ids[OPEN_COUNT_MAX];
	unsigned open_count;
};

static struct {
	uint64_t random;
	struct appended records[RECORD_COUNT_MAX];
	uint64_t record_count;
	struct side now;
	struct side former;
	uint32_t align;
	bool is_inside;
	bool is_restarted;
	uint64_t takeovers;
	uint64_t fenced;
	uint64_t acked;
	char failure[700];
} world;

static uint64_t below(uint64_t limit)
{
	world.random ^= world.random >> 12;
	world.random ^= world.random << 25;
	world.random ^= world.random >> 27;
	return world.random * 0x2545F4914F6CDD1Dull % limit;
}

#define FAIL(...) \
	do { \
		if (world.failure[0] == '\0') \
			snprintf(world.failure, sizeof(world.failure), __VA_ARGS__); \
	} while (0)

static void note(struct side *side, uint64_t id, int result, const struct farlog_position *position)
{
	struct appended *record = &world.records[id];

	if (result == FARLOG_OK || result == FARLOG_UNKNOWN)
		record->lsn = position->lsn;
	record->outcome = result == FARLOG_OK ? OUTCOME_ACKED : result == FARLOG_UNKNOWN ? OUTCOME_OPEN : OUTCOME_FENCED;
	world.acked += result == FARLOG_OK;
	world.fenced += result == FARLOG_FENCED;
	if (result == FARLOG_UNKNOWN && side->open_count < OPEN_COUNT_MAX)
		side->open_ids[side->open_count++] = id;
}

/* append -- one record; submitted only, its outcome is open. False: nothing more goes by this writer. */
static bool append(struct side *side, bool is_submitted)
{
	uint64_t payload[40] = {world.record_count};
	struct farlog_entry entry = {.data = payload, .len = 8 + 8 * (uint32_t)below(40)};
	struct farlog_position position;
	int result;

	if (world.record_count == RECORD_COUNT_MAX || side->open_count == OPEN_COUNT_MAX)
		return true;
	result = is_submitted ?
		farlog_submit(side->writer, &entry, &position) :
		farlog_append(side->writer, &entry, world.is_inside ? INSIDE_DEADLINE_NS : DEADLINE_NS, &position);
	if (is_submitted && result == FARLOG_OK)
		result = FARLOG_UNKNOWN;
	if (result != FARLOG_OK && result != FARLOG_UNKNOWN && result != FARLOG_FENCED && result != FARLOG_CLOSED &&
		result != FARLOG_FULL)
		FAIL("append of record %lu: %s", world.record_count, farlog_result_name(result));
	note(side, world.record_count++, result, &position);
	return result == FARLOG_OK || (is_submitted && result == FARLOG_UNKNOWN);
}

static void settle_open(struct side *side)
{
	for (unsigned i = 0; i < side->open_count; i++) {
		struct appended *record = &world.records[side->open_ids[i]];
		struct farlog_position position;
		int result = farlog_resolve(side->writer, record->lsn, DEADLINE_NS, &position);

		if (result == FARLOG_OK)
			record->outcome = OUTCOME_ACKED;
		if (result == FARLOG_FENCED)
			record->outcome = OUTCOME_FENCED;
	}
	side->open_count = 0;
}

static void drain(bool is_all)
{
	static uint8_t buffer[256 << 10];
	struct farlog_reader_config config = {.is_drain = 1, .start = FARLOG_START_HEAD};
	struct farlog_error error = {0};
	struct farlog_batch batch = {0};
	farlog_reader *reader;

	farlog_block_host(DRAIN_HOST);
	if (farlog_reader_open(URI, &config, &reader, &error) != FARLOG_OK) {
		FAIL("the drain is shut out: %s", error.text);
		return;
	}
	for (unsigned turn = 0;
		turn < (is_all ? 200u : 3u) && farlog_reader_read(reader, buffer, sizeof(buffer), &batch) == FARLOG_OK;
		turn++) {
		for (uint64_t off = 0; off < batch.len;) {
			const struct record_header *header = (const struct record_header *)(buffer + off);
			uint64_t id;

			if (header->flags & RECORD_FLAG_PAD) {
				off += RECORD_PAD_STORED_LEN;
				continue;
			}
			memcpy(&id, buffer + off + RECORD_HEADER_LEN, sizeof(id));
			if (!(header->flags & RECORD_FLAG_EPOCH) && id < world.record_count)
				world.records[id].stored_count++;
			off += record_extent(world.align, header->key_len, header->payload_len);
		}
		if (farlog_reader_release(reader, batch.next_lsn, batch.next_seq, batch.last_epoch) != FARLOG_OK)
			FAIL("the drain may not move the head");
	}
	farlog_reader_close(reader);
}

static void go_on(struct side *side)
{
	for (uint64_t count = 1 + below(2); count > 0 && append(side, false); count--)
		continue;
}

/* go_on_inside -- at any moment of the takeover. */
static void go_on_inside(void *context)
{
	world.is_inside = true;
	go_on(context);
	world.is_inside = false;
}

static void open_on(struct side *side, int host)
{
	struct farlog_writer_config config = {
		.counters_dir = "", .policy = FARLOG_POLICY_REJECT, .deadline_ns = CLOSE_DEADLINE_NS};
	struct farlog_error error = {0};
	int result;

	side->host = host;
	side->open_count = 0;
	for (unsigned turn = 0; turn < 20; turn++) {
		farlog_block_host(host);
		result = farlog_writer_open(URI, &config, &side->writer, &error);
		if (result == FARLOG_OK)
			return;
		drain(true); /* full, perhaps */
	}
	FAIL("a takeover does not succeed: %s", error.text);
}

/* take_over -- by the other host, while the former writer has commands under way and perhaps appends in the middle. */
static void take_over(void)
{
	struct side *former = &world.former;

	*former = world.now;
	for (uint64_t count = below(4); count > 0 && append(former, true); count--)
		continue;
	if (former->open_count > 0 && below(2)) {
		uint64_t durable_lsn;

		for (uint64_t count = 1 + below(12); count > 0; count--)
			may_fail(farlog_poll(former->writer, &durable_lsn)); /* the look before it comes back, and it goes out */
	}
	if (below(2))
		farlog_block_call(NAME, below(60), go_on_inside, former);
	open_on(&world.now, 1 - former->host);
	farlog_block_call(NAME, UINT64_MAX, NULL, NULL);
	world.takeovers++;
	for (uint64_t count = below(6); count > 0 && world.failure[0] == '\0'; count--)
		append(&world.now, false);
}

/* bury -- the former writer wakes up. */
static void bury(void)
{
	struct side *former = &world.former;
	uint64_t acked = world.acked;

	if (below(4) != 0)
		go_on(former);
	if (world.acked != acked && world.failure[0] == '\0')
		FAIL("the former writer got an acknowledgement after the takeover");
	settle_open(former);
	farlog_writer_close(former->writer);
	former->writer = NULL;
}

/* restart -- of the target, between two appends: nothing is under way. */
static void restart(void)
{
	uint64_t durable_lsn;

	settle_open(&world.now);
	for (unsigned i = 0; i < 100; i++) {
		may_fail(farlog_poll(world.now.writer, &durable_lsn));
		may_fail(farlog_poll(world.former.writer, &durable_lsn));
	}
	farlog_block_restart(NAME);
	world.is_restarted = true;
}

static void check(void)
{
	for (uint64_t id = 0; id < world.record_count; id++) {
		const struct appended *record = &world.records[id];

		if (record->outcome == OUTCOME_ACKED && record->stored_count == 0)
			FAIL("LOST: record %lu at lsn %lu was acknowledged", id, record->lsn);
		if (!world.is_restarted && record->stored_count > 1)
			FAIL("record %lu is in the store twice", id);
		if (!world.is_restarted && record->outcome == OUTCOME_FENCED && record->stored_count > 0)
			FAIL("record %lu at lsn %lu is in the store, and its writer was told that it is not", id, record->lsn);
	}
}

static void play_round(uint64_t seed)
{
	struct farlog_ring_config config = {
		.size_bytes = 0x3000 + 4096 * (16 + (seed % 7)), .record_len_max = 4096, .is_forced = 1, .salt = seed | 1};
	bool is_big = seed % 5 == 0;

	world.random = seed | 1;
	world.record_count = 0;
	world.is_restarted = false;
	world.failure[0] = '\0';
	memset(world.records, 0, sizeof(world.records));
	memset(&world.now, 0, sizeof(world.now));
	memset(&world.former, 0, sizeof(world.former));
	farlog_block_drop(NAME);
	farlog_block_hosts(1);
	farlog_block_shape(is_big ? 4096 : 512, seed % 3 != 0);
	world.align = seed % 11 != 0 ? 64 : is_big ? 4096 : 512; /* packed, or a record an LBA */
	config.align = world.align;
	farlog_block_host(DRAIN_HOST);
	if (farlog_ring_format(URI, &config, NULL) != FARLOG_OK)
		FAIL("format");
	farlog_block_reseed(NAME, seed | 1);
	open_on(&world.now, 0);
	for (uint64_t turns = 2 + below(5); turns > 0 && world.failure[0] == '\0'; turns--) {
		for (uint64_t count = below(8); count > 0; count--)
			append(&world.now, false);
		if (below(3) == 0)
			drain(false);
		take_over();
		if (world.failure[0] == '\0' && below(4) == 0)
			drain(false);
		if (world.failure[0] == '\0' && below(8) == 0)
			restart();
		if (world.former.writer != NULL && world.failure[0] == '\0')
			bury();
		if (world.is_restarted)
			break; /* of the writer that goes on the kernel has let no command come back */
	}
	if (world.failure[0] == '\0') {
		settle_open(&world.now);
		farlog_writer_close(world.now.writer);
		drain(true); /* room for an epoch */
		open_on(&world.now, world.now.host);
		drain(true);
		check();
	}
}

/* play -- rounds, until one fails. True: one has. */
static bool play(uint64_t seed, uint64_t round_count, uint64_t *failed_round)
{
	uint64_t only = runs_number("ROUND", UINT64_MAX);

	for (uint64_t round = only != UINT64_MAX ? only : 0; round < round_count || only == round; round++) {
		play_round(seed * 0x9E3779B97F4A7C15ull + round * 0x2545F4914F6CDD1Dull + 1);
		if (world.now.writer != NULL)
			farlog_writer_close(world.now.writer);
		if (world.former.writer != NULL)
			farlog_writer_close(world.former.writer);
		*failed_round = round;
		if (world.failure[0] != '\0')
			return true;
		if (only != UINT64_MAX)
			break;
	}
	return false;
}

int main(void)
{
	uint64_t seed = runs_number("SEED", clock_monotonic_ns() & 0xFFFFFFFF);
	uint64_t round_count = runs_number("ROUNDS", ROUNDS_DEFAULT);
	uint64_t round = 0;
	bool has_failed;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("takeover: SEED=%lu\n", seed);
	may_fail(clock_start()); /* one sampler for all, so that an opening does not wait for its first sample */
	has_failed = play(seed, round_count, &round);
	printf("takeover: %lu rounds, %lu takeovers, %lu acknowledged, %lu fenced\n", round + 1, world.takeovers,
		world.acked, world.fenced);
	if (has_failed)
		printf("takeover: FAILED: %s\ntakeover: reproduce: SEED=%lu ROUND=%lu\n", world.failure, seed, round);
	printf("takeover: %d passed, %d failed\n", !has_failed, has_failed);
	return has_failed;
}
