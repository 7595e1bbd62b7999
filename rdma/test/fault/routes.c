/* routes.c -- a route whose process dies at any operation, with spills and rings on adversarial memories that come and
 * go.
 *
 * What is proved: every record that the route acknowledged comes to each of its legs' streams, once and in order,
 * whether it went straight there, by way of the spill, or both, and whatever dies between: the process, the host with
 * its spills, the targets with the rings, or a ring alone while the route goes on. How: one thread plays appender,
 * carriers, drains and time; route, ring and recovery are the real ones. What the drains stored is compared with what
 * was acknowledged.
 *
 * usage: routes; SEED=n, RUNS=n (400), RUN=n one of them, TRACE=1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "farlog/heartbeat.h"
#include "ring/record.h"
#include "adversary/clock.h"
#include "adversary/memory.h"
#include "route/route.h"
#include "runs.h"

#define RUNS_DEFAULT 400u
#define LEG_COUNT 2u
#define NUMBER_MAX 8192u
#define SPILL_BYTES_SMALL (LAYOUT_DATA_OFF + (16u << 10)) /* less than a batch may want */
#define PAYLOAD_LEN_MAX 400u
#define RING_BYTES (LAYOUT_DATA_OFF + (16u << 10))
#define RING_BYTES_LARGE (LAYOUT_DATA_OFF + (48u << 10))
#define SPILL_BYTES (LAYOUT_DATA_OFF + (32u << 10))
#define BATCH_MAX 60u
#define DEADLINE_NS 100000u

struct stored {
	uint64_t lsn;
	uint64_t number;
};

struct leg {
	char far_name[24], far_uri[32], spill_name[24], spill_uri[32];
	uint8_t is_acked[NUMBER_MAX];
	/* of the optional one: in the spill, which the death of the process alone does not take */
	uint8_t is_offered[NUMBER_MAX];
	struct stored stored[NUMBER_MAX];
	unsigned stored_count;
	bool is_away;
	unsigned slowness;
};

static struct {
	uint64_t random;
	uint64_t clock_ns;
	struct leg legs[LEG_COUNT];
	farlog_route *route;
	uint64_t next_number;
	uint32_t payload_len_max;
	uint64_t runs, acks, spilled, crashes, openings, unknowns;
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

#define FAIL(...) \
	do { \
		if (world.failure[0] == '\0') \
			snprintf(world.failure, sizeof(world.failure), __VA_ARGS__); \
	} while (0)
#define TRACE(...) (world.is_traced ? (void)printf(__VA_ARGS__) : (void)0)

/* ---------------------------------------------------------------- memories */

static void make_ring(const char *uri, uint64_t size_bytes, const char *name)
{
	struct farlog_ring_config config = {.size_bytes = size_bytes,
		.record_len_max = 1024,
		.is_forced = 1,
		.salt = below(UINT64_MAX) | 1,
		.stream_name = name};
	struct farlog_error error;

	if (farlog_ring_format(uri, &config, &error) != FARLOG_OK)
		FAIL("format: %.300s", error.text);
}

static void make_world(void)
{
	static const char *const names[LEG_COUNT] = {"required", "optional"};
	uint64_t spill_bytes = below(2) ? SPILL_BYTES : SPILL_BYTES_SMALL;

	for (unsigned i = 0; i < LEG_COUNT; i++) {
		struct leg *leg = &world.legs[i];

		memset(leg, 0, sizeof(*leg));
		leg->slowness = 128;
		snprintf(leg->far_name, sizeof(leg->far_name), "route-far-%u", i);
		snprintf(leg->spill_name, sizeof(leg->spill_name), "route-spill-%u", i);
		snprintf(leg->far_uri, sizeof(leg->far_uri), "fault:%s", leg->far_name);
		snprintf(leg->spill_uri, sizeof(leg->spill_uri), "fault:%s", leg->spill_name);
		farlog_fault_drop(leg->far_name);
		farlog_fault_drop(leg->spill_name);
		make_ring(leg->far_uri, spill_bytes == SPILL_BYTES ? RING_BYTES : RING_BYTES_LARGE, names[i]);
		make_ring(leg->spill_uri, spill_bytes, names[i]);
		farlog_fault_set_remote(leg->far_name, 1);
		farlog_fault_reseed(leg->far_name, below(UINT64_MAX) | 1);
		farlog_fault_reseed(leg->spill_name, below(UINT64_MAX) | 1);
	}
	world.next_number = 1;
}

/* die -- everything at once, when one memory has. */
static void die(void *context)
{
	(void)context;
	for (unsigned i = 0; i < LEG_COUNT; i++) {
		farlog_fault_arm(world.legs[i].far_name, 0);
		farlog_fault_arm(world.legs[i].spill_name, 0);
	}
}

static bool is_dead(void)
{
	for (unsigned i = 0; i < LEG_COUNT; i++)
		if (farlog_fault_is_dead(world.legs[i].far_name) || farlog_fault_is_dead(world.legs[i].spill_name))
			return true;
	return false;
}

static void arm(uint64_t operations)
{
	const struct leg *leg = &world.legs[below(LEG_COUNT)];
	const char *name = below(2) ? leg->far_name : leg->spill_name;

	farlog_fault_arm(name, operations);
	farlog_fault_call(name, operations, die, NULL);
}

static void disarm(void)
{
	for (unsigned i = 0; i < LEG_COUNT; i++) {
		farlog_fault_arm(world.legs[i].far_name, UINT64_MAX);
		farlog_fault_arm(world.legs[i].spill_name, UINT64_MAX);
		farlog_fault_call(world.legs[i].far_name, UINT64_MAX, die, NULL);
		farlog_fault_call(world.legs[i].spill_name, UINT64_MAX, die, NULL);
	}
}

static void advance(uint64_t ns)
{
	uint64_t now_ns = clock_monotonic_ns();

	world.clock_ns = (now_ns > world.clock_ns ? now_ns : world.clock_ns) + ns;
	farlog_fault_set_clock(world.clock_ns);
}

static void end_or_cut(const char *name, bool is_cut)
{
	if (is_cut)
		farlog_fault_crash(name);
	else
		farlog_fault_kill(name);
}

static void set_slowness(unsigned i, unsigned of_256)
{
	world.legs[i].slowness = of_256;
	farlog_fault_set_slowness(world.legs[i].far_name, of_256);
}

static void set_away(unsigned i, bool is_away)
{
	if (world.legs[i].is_away == is_away)
		return;
	TRACE("leg %u %s\n", i, is_away ? "away" : "back");
	world.legs[i].is_away = is_away;
	if (!is_away)
		/* as a target does, which tears a connection down before it lets the next one in */
		farlog_fault_exorcise(world.legs[i].far_name);
	farlog_fault_set_away(world.legs[i].far_name, is_away);
}

/* ---------------------------------------------------------------- the drains */

/* store -- what a batch holds; what was stored of a log that went back is replaced. */
static void store(struct leg *leg, const uint8_t *buf, const struct farlog_batch *batch)
{
	while (leg->stored_count > 0 && leg->stored[leg->stored_count - 1].lsn >= batch->first_lsn)
		leg->stored_count--;
	for (size_t at = 0; at < batch->len;) {
		struct record_header header;
		struct stored *next = &leg->stored[leg->stored_count];

		memcpy(&header, buf + at, sizeof(header));
		if (header.flags == 0 && leg->stored_count < NUMBER_MAX) {
			next->lsn = header.lsn;
			memcpy(&next->number, buf + at + RECORD_HEADER_LEN, sizeof(next->number));
			leg->stored_count++;
		}
		at += header.flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN :
											   record_extent(64, header.key_len, header.payload_len);
	}
}

/* drain -- a leg's ring, whole. Nothing dies meanwhile: the drain's own crashes are tested elsewhere. */
static void drain(unsigned i)
{
	static uint8_t buf[64 << 10];
	struct leg *leg = &world.legs[i];
	struct farlog_reader_config config = {.is_drain = 1};
	struct farlog_batch batch;
	farlog_reader *reader;
	int result;

	if (leg->is_away || is_dead())
		return;
	disarm();
	if (farlog_reader_open(leg->far_uri, &config, &reader, NULL) != FARLOG_OK)
		return;
	farlog_fault_set_slowness(leg->far_name, 128);
	while (farlog_reader_read(reader, buf, sizeof(buf), &batch) == FARLOG_OK) {
		unsigned turns = 0;

		store(leg, buf, &batch);
		while (
			(result = farlog_reader_release(reader, batch.next_lsn, batch.next_seq, batch.last_epoch)) != FARLOG_OK &&
			++turns < 50)
			;
		if (result != FARLOG_OK)
			FAIL("leg %u: a drain cannot release: %s", i, farlog_result_name(result));
	}
	farlog_fault_set_slowness(leg->far_name, leg->slowness);
	farlog_reader_close(reader);
}

/* ---------------------------------------------------------------- the route */

static bool open_route(void)
{
	struct farlog_route_leg legs[LEG_COUNT] = {{.name = "required", .is_required = 1}, {.name = "optional"}};
	struct farlog_route_config config = {.name = "route", .legs = legs, .leg_count = LEG_COUNT};
	struct farlog_error error = {0};

	for (unsigned i = 0; i < LEG_COUNT; i++) {
		legs[i].uri = world.legs[i].far_uri;
		legs[i].spill_uri = world.legs[i].spill_uri;
		legs[i].policy = FARLOG_ROUTE_SPILL;
		legs[i].config = (struct farlog_writer_config){
			.policy = FARLOG_POLICY_REJECT, .deadline_ns = DEADLINE_NS, .counters_dir = ""};
	}
	if (route_open(&config, false, &world.route, &error) != FARLOG_OK) {
		if (!is_dead())
			FAIL("open: %.300s", error.text);
		return false;
	}
	TRACE("opened\n");
	world.openings++;
	/* What the spill had survived, and recovery has made it durable. */
	for (uint64_t number = 1; number < world.next_number; number++)
		world.legs[1].is_acked[number] |= world.legs[1].is_offered[number];
	return true;
}

/* note -- what is promised of a record that the route has taken. */
static void note(uint64_t number, bool is_acked, const struct farlog_route_position *position)
{
	if (is_acked) {
		world.legs[0].is_acked[number] = 1;
		world.acks++;
		world.spilled += position->legs[0].is_buffered;
	}
	/* An optional leg promises what its position says; the death of the process alone takes nothing of it. */
	world.legs[1].is_offered[number] = !is_dead() && position->legs[1].result == FARLOG_OK;
	if (world.legs[1].is_offered[number] && position->legs[1].position.level >= FARLOG_LEVEL_PERSISTENT)
		world.legs[1].is_acked[number] = 1;
}

/* append_some -- one record, or a batch of several. */
static void append_some(void)
{
	static uint8_t payloads[BATCH_MAX][PAYLOAD_LEN_MAX];
	static struct farlog_route_position positions[BATCH_MAX];
	struct farlog_entry entries[BATCH_MAX];
	uint64_t first = world.next_number;
	size_t count = below(4) == 0 ? 1 + below(BATCH_MAX) : 1;
	size_t done, submitted;
	int result;

	if (first + count > NUMBER_MAX)
		return;
	for (uint64_t i = 0; i < count; i++) {
		uint64_t number = world.next_number++;

		entries[i] = (struct farlog_entry){
			.data = payloads[i], .len = (uint32_t)(8 + below(world.payload_len_max - 8)), .class_id = 1};
		memcpy(payloads[i], &number, sizeof(number));
	}
	if (count == 1) {
		result = farlog_route_append(world.route, entries, 0, 0, positions);
		done = result == FARLOG_OK;
		submitted = result == FARLOG_OK || result == FARLOG_UNKNOWN;
	} else
		result = farlog_route_append_batch(world.route, entries, NULL, count, 0, positions, &done, &submitted);
	TRACE("append %lu to %lu: %s, %zu of %zu%s\n", first, first + count - 1, farlog_result_name(result), done,
		submitted, submitted > 0 && positions[submitted - 1].legs[0].is_buffered ? ", spilled" : "");
	world.unknowns += submitted - done;
	if (done > submitted || submitted > count || (result == FARLOG_OK) != (done == count))
		FAIL("append of %zu: %s, %zu acknowledged of %zu", count, farlog_result_name(result), done, submitted);
	for (size_t i = 0; i < submitted; i++)
		note(first + i, i < done, &positions[i]);
}

static void bury(void)
{
	if (world.route != NULL)
		(void)farlog_route_close(world.route, 1);
	world.route = NULL;
}

/* crash -- whoever dies, the process does. */
static void crash(void)
{
	bool is_host_cut = below(2) == 0;

	TRACE("crash%s\n", is_host_cut ? " of the host" : "");
	disarm();
	die(NULL);
	bury();
	if (is_host_cut)
		memset(world.legs[1].is_offered, 0, sizeof(world.legs[1].is_offered));
	for (unsigned i = 0; i < LEG_COUNT; i++) {
		farlog_fault_exorcise(world.legs[i].far_name);
		farlog_fault_set_away(world.legs[i].far_name, 0);
		world.legs[i].is_away = false;
		end_or_cut(world.legs[i].far_name, below(3) == 0);
		end_or_cut(world.legs[i].spill_name, is_host_cut);
	}
	disarm();
	advance(2000000000u);
	world.crashes++;
}

/* tear_down -- what a target does before it lets anybody in again: nothing of a former connection lands any more. */
static void tear_down(void)
{
	for (unsigned i = 0; i < LEG_COUNT && world.route != NULL; i++)
		if (world.route->legs[i].writer == NULL)
			farlog_fault_exorcise(world.legs[i].far_name);
}

static void step(void)
{
	unsigned i = (unsigned)below(LEG_COUNT);

	switch (below(21)) {
	case 0:
		set_away(i, !world.legs[i].is_away);
		break;
	case 1:
		set_slowness(i, below(3) == 0 ? 256 : 128);
		break;
	case 2:
		drain(i);
		arm(below(400));
		break;
	case 3:
		advance(1500000000u);
		break;
	case 4:
		if (!world.legs[i].is_away) { /* the target loses its power, the route goes on */
			TRACE("leg %u without power\n", i);
			farlog_fault_exorcise(world.legs[i].far_name);
			farlog_fault_crash(world.legs[i].far_name);
		}
		break;
	case 5:
		TRACE("heartbeat\n");
		may_fail(farlog_route_heartbeat(world.route, DEADLINE_NS));
		break;
	case 6:
	case 7:
	case 8:
	case 9:
		tear_down();
		(void)route_carry(&world.route->legs[i]);
		break;
	default:
		append_some();
		break;
	}
}

/* ---------------------------------------------------------------- what must hold */

static void check_leg(unsigned i)
{
	const struct leg *leg = &world.legs[i];
	unsigned at = 0;

	for (unsigned j = 1; j < leg->stored_count; j++)
		if (leg->stored[j].number <= leg->stored[j - 1].number)
			FAIL("leg %u: record %lu comes after %lu%s", i, leg->stored[j].number, leg->stored[j - 1].number,
				leg->stored[j].number == leg->stored[j - 1].number ? ": twice" : "");
	for (uint64_t number = 1; number < world.next_number; number++) {
		while (at < leg->stored_count && leg->stored[at].number < number)
			at++;
		if (leg->is_acked[number] && (at == leg->stored_count || leg->stored[at].number != number))
			FAIL("leg %u: record %lu was acknowledged and is lost", i, number);
	}
}

/* finish -- everybody is back, the route has caught up, the drains have stored it all. */
static void finish(void)
{
	disarm();
	for (unsigned i = 0; i < LEG_COUNT; i++) {
		set_away(i, false);
		set_slowness(i, 128);
	}
	if (world.route == NULL && !open_route())
		return;
	tear_down();
	for (unsigned turn = 0; turn < 200 && farlog_route_catch_up(world.route, 3000000) != FARLOG_OK; turn++) {
		advance(1500000000u);
		tear_down();
		for (unsigned i = 0; i < LEG_COUNT; i++)
			drain(i);
		if (turn == 199)
			FAIL("the route does not catch up");
	}
	bury();
	for (unsigned i = 0; i < LEG_COUNT; i++)
		drain(i);
	for (unsigned i = 0; i < LEG_COUNT; i++)
		check_leg(i);
}

static void play_run(uint64_t seed)
{
	world.random = seed;
	world.route = NULL;
	world.clock_ns = 0;
	make_world();
	world.payload_len_max = below(2) ? PAYLOAD_LEN_MAX : 16;
	advance(1000000000u);
	for (uint64_t lives = 1 + below(5); lives > 0 && world.failure[0] == '\0'; lives--) {
		uint64_t left = 10 + below(120);

		if (below(8) != 0)
			arm(below(below(2) ? 60 : 700));
		if (open_route())
			while (left-- > 0 && !is_dead() && world.failure[0] == '\0')
				step();
		crash();
	}
	if (world.failure[0] == '\0')
		finish();
	bury();
	farlog_fault_set_clock(0);
	world.runs++;
}

/* ---------------------------------------------------------------- gaps */

/* play_gap -- a leg that drops, and whose ring comes and goes: records and gaps together are all that was offered. */
static void play_gap(uint64_t seed)
{
	struct farlog_route_leg leg = {.name = "dropping",
		.uri = "fault:route-far-0",
		.policy = FARLOG_ROUTE_DROP,
		.buffer_bytes = SPILL_BYTES,
		.config = {.counters_dir = ""}};
	struct farlog_route_config config = {.name = "route", .legs = &leg, .leg_count = 1};
	struct farlog_route_position position;
	uint64_t number, offered = 0, taken = 0, told = 0;
	struct farlog_entry entry = {.data = &number, .len = sizeof(number)};
	struct farlog_leg_stats stats;
	struct farlog_error error;

	world.random = seed;
	world.clock_ns = 0;
	make_world();
	advance(1000000000u);
	if (route_open(&config, false, &world.route, &error) != FARLOG_OK) {
		FAIL("open: %.300s", error.text);
		return;
	}
	for (unsigned turn = 0; turn < 6; turn++) {
		set_away(0, below(2) == 0);
		for (uint64_t left = below(900); left > 0; left--) {
			number = ++offered;
			may_fail(farlog_route_append(world.route, &entry, 0, 0, &position));
			taken += position.dropped == 0;
		}
		set_away(0, false);
		for (unsigned i = 0; i < 40; i++, advance(1500000000u)) {
			if (world.route->legs[0].writer == NULL)
				farlog_fault_exorcise(world.legs[0].far_name);
			drain(0);
			may_fail(farlog_route_catch_up(world.route, 1000000));
		}
	}
	may_fail(farlog_route_stats(world.route, 0, &stats));
	told = world.route->legs[0].gap.count;
	bury();
	drain(0);
	farlog_fault_set_clock(0);
	for (unsigned i = 0; i < world.legs[0].stored_count; i++)
		if (world.legs[0].stored[i].number <= (i > 0 ? world.legs[0].stored[i - 1].number : 0))
			FAIL("record %lu stands in the wrong place", world.legs[0].stored[i].number);
	if (told != 0 || world.legs[0].stored_count != taken || (stats.dropped_count != 0) != (stats.gap_count != 0) ||
		offered != taken + stats.dropped_count)
		FAIL("offered %lu: %u stored of %lu taken, %lu dropped, %lu gaps told, %lu not told", offered,
			world.legs[0].stored_count, taken, stats.dropped_count, stats.gap_count, told);
}

static void play(uint64_t run, uint64_t seed)
{
	run % 64 == 63 ? play_gap(seed) : play_run(seed);
	bury();
}

static void report(void)
{
	printf("routes: %lu runs, %lu openings, %lu crashes, %lu acknowledged, %lu of them by the spill, %lu unknown\n",
		world.runs, world.openings, world.crashes, world.acks, world.spilled, world.unknowns);
}

int main(void)
{
	struct runs runs = {"routes", RUNS_DEFAULT, play, world.failure, report, NULL};

	world.is_traced = getenv("TRACE") != NULL;
	return runs_main(&runs);
}
