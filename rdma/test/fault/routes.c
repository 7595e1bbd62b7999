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
#include "routes_world.h"

#include <stdlib.h>
#include <string.h>

#include "adversary/clock.h"
#include "adversary/memory.h"
#include "runs.h"

#define RUNS_DEFAULT 400u
#define PAYLOAD_LEN_MAX 400u
#define BATCH_MAX 60u
#define DEADLINE_NS 100000u

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
		if (!routes_is_dead())
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
	world.legs[1].is_offered[number] = !routes_is_dead() && position->legs[1].result == FARLOG_OK;
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
	size_t count = routes_below(4) == 0 ? 1 + routes_below(BATCH_MAX) : 1;
	size_t done, submitted;
	int result;

	if (first + count > NUMBER_MAX)
		return;
	for (uint64_t i = 0; i < count; i++) {
		uint64_t number = world.next_number++;

		entries[i] = (struct farlog_entry){
			.data = payloads[i], .len = (uint32_t)(8 + routes_below(world.payload_len_max - 8)), .class_id = 1};
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
	bool is_host_cut = routes_below(2) == 0;

	TRACE("crash%s\n", is_host_cut ? " of the host" : "");
	routes_disarm();
	routes_die(NULL);
	bury();
	if (is_host_cut)
		memset(world.legs[1].is_offered, 0, sizeof(world.legs[1].is_offered));
	for (unsigned i = 0; i < LEG_COUNT; i++) {
		farlog_fault_exorcise(world.legs[i].far_name);
		farlog_fault_set_away(world.legs[i].far_name, 0);
		world.legs[i].is_away = false;
		routes_end_or_cut(world.legs[i].far_name, routes_below(3) == 0);
		routes_end_or_cut(world.legs[i].spill_name, is_host_cut);
	}
	routes_disarm();
	routes_advance(2000000000u);
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
	unsigned i = (unsigned)routes_below(LEG_COUNT);

	switch (routes_below(21)) {
	case 0:
		routes_set_away(i, !world.legs[i].is_away);
		break;
	case 1:
		routes_set_slowness(i, routes_below(3) == 0 ? 256 : 128);
		break;
	case 2:
		routes_drain(i);
		routes_arm(routes_below(400));
		break;
	case 3:
		routes_advance(1500000000u);
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
	routes_disarm();
	for (unsigned i = 0; i < LEG_COUNT; i++) {
		routes_set_away(i, false);
		routes_set_slowness(i, 128);
	}
	if (world.route == NULL && !open_route())
		return;
	tear_down();
	for (unsigned turn = 0; turn < 200 && farlog_route_catch_up(world.route, 3000000) != FARLOG_OK; turn++) {
		routes_advance(1500000000u);
		tear_down();
		for (unsigned i = 0; i < LEG_COUNT; i++)
			routes_drain(i);
		if (turn == 199)
			FAIL("the route does not catch up");
	}
	bury();
	for (unsigned i = 0; i < LEG_COUNT; i++)
		routes_drain(i);
	for (unsigned i = 0; i < LEG_COUNT; i++)
		check_leg(i);
}

static void play_run(uint64_t seed)
{
	world.random = seed;
	world.route = NULL;
	world.clock_ns = 0;
	routes_make_world();
	world.payload_len_max = routes_below(2) ? PAYLOAD_LEN_MAX : 16;
	routes_advance(1000000000u);
	for (uint64_t lives = 1 + routes_below(5); lives > 0 && world.failure[0] == '\0'; lives--) {
		uint64_t left = 10 + routes_below(120);

		if (routes_below(8) != 0)
			routes_arm(routes_below(routes_below(2) ? 60 : 700));
		if (open_route())
			while (left-- > 0 && !routes_is_dead() && world.failure[0] == '\0')
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
	routes_make_world();
	routes_advance(1000000000u);
	if (route_open(&config, false, &world.route, &error) != FARLOG_OK) {
		FAIL("open: %.300s", error.text);
		return;
	}
	for (unsigned turn = 0; turn < 6; turn++) {
		routes_set_away(0, routes_below(2) == 0);
		for (uint64_t left = routes_below(900); left > 0; left--) {
			number = ++offered;
			may_fail(farlog_route_append(world.route, &entry, 0, 0, &position));
			taken += position.dropped == 0;
		}
		routes_set_away(0, false);
		for (unsigned i = 0; i < 40; i++, routes_advance(1500000000u)) {
			if (world.route->legs[0].writer == NULL)
				farlog_fault_exorcise(world.legs[0].far_name);
			routes_drain(0);
			may_fail(farlog_route_catch_up(world.route, 1000000));
		}
	}
	may_fail(farlog_route_stats(world.route, 0, &stats));
	told = world.route->legs[0].gap.count;
	bury();
	routes_drain(0);
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
