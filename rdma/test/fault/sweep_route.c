/* sweep_route.c -- a route with a leg that spills, while a call fails: its ring is there, or another writer has it, and
 * what was spilled is carried later. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "farlog/route.h"
#include "sweep_world.h"

#define CATCH_UP_NS 20000000000u
#define NO_TIME_NS 1u

static farlog_writer *holder; /* of the leg's ring, so that records are spilled */

static const char *spill_path(void)
{
	static char path[sizeof(run.paths[0]) + 8];

	snprintf(path, sizeof(path), "%s-spill", run.paths[0]);
	return path;
}

static int open_route(farlog_route **route)
{
	char spill_uri[160];
	struct farlog_route_leg leg = {.name = "orders",
		.uri = run.uri,
		.is_required = 1,
		.policy = FARLOG_ROUTE_SPILL,
		.spill_uri = spill_uri,
		.spill_level = FARLOG_LEVEL_VISIBLE,
		.buffer_bytes = RING_SIZE,
		.config = sweep_writer};
	struct farlog_route_config config = {.name = "desk7", .legs = &leg, .leg_count = 1};

	snprintf(spill_uri, sizeof(spill_uri), "mem:%s", spill_path());
	return farlog_route_open(&config, route, &run.error);
}

static int append_routed(farlog_route *route, uint64_t number)
{
	struct farlog_entry entry = {.data = &number, .len = sizeof(number)};
	struct farlog_route_position position;
	int result = farlog_route_append(route, &entry, 0, 0, &position);

	if (result == FARLOG_UNKNOWN) {
		int outcome = farlog_route_resolve(route, &position, 0);

		run.is_absent[number] = outcome == FARLOG_NOT_FOUND;
		result = outcome == FARLOG_OK ? outcome : result;
	}
	if (result == FARLOG_OK)
		run.is_acked[number] = true;
	return result;
}

/* append_all -- by a route of its own. */
static int append_all(uint64_t first, uint64_t close_ns)
{
	farlog_route *route;
	int result = open_route(&route);
	int closed;

	if (result != FARLOG_OK)
		return result;
	for (unsigned i = 0; i < APPENDS && result == FARLOG_OK; i++)
		result = append_routed(route, first + i);
	closed = farlog_route_close(route, close_ns);
	return result != FARLOG_OK ? result : closed;
}

int make_route(void)
{
	unlink(spill_path());
	return FARLOG_OK;
}

int run_route(void)
{
	return append_all(RECORDS + 1, CATCH_UP_NS);
}

/* make_held -- the ring has another writer. */
int make_held(void)
{
	int result = make_route();

	if (result == FARLOG_OK)
		result = farlog_writer_open(run.uri, &sweep_writer, &holder, &run.error);
	return result;
}

static int end_holder(void)
{
	int result = holder != NULL ? farlog_writer_close(holder) : FARLOG_OK;

	holder = NULL;
	return result;
}

int run_spill(void)
{
	int result = append_all(RECORDS + 1, NO_TIME_NS);

	return result == FARLOG_UNKNOWN ? FARLOG_OK : result; /* it is in the spill */
}

/* make_spilled -- and is there no more. */
int make_spilled(void)
{
	int result = make_held();

	if (result == FARLOG_OK)
		result = run_spill();
	return result == FARLOG_OK ? end_holder() : result;
}

int run_carry(void)
{
	farlog_route *route;
	int result = open_route(&route);

	return result == FARLOG_OK ? farlog_route_close(route, CATCH_UP_NS) : result;
}

/* judge_route -- the next route finds what was left in the spill, and carries it: all that was acknowledged is in the
 * ring once, in order. */
void judge_route(int result)
{
	int ended = end_holder();

	for (unsigned i = RECORDS + 1; result == FARLOG_OK && i <= RECORDS + APPENDS; i++)
		if (!run.is_acked[i])
			FAIL("OK, and record %u was not acknowledged", i);
	result = ended == FARLOG_OK ? run_carry() : ended;
	if (result != FARLOG_OK)
		FAIL("carried by the next route: %s: %s", farlog_result_name(result), run.error.text);
	else if (run.failure[0] == '\0')
		judge_records(0, NULL);
	unlink(spill_path());
}
