/* far_silent.c -- a stream with three members, each at a target in a process of its own, of which some fall silent:
 * stopped, or behind a wire that holds what it carries. The one that is silent is demoted by its own deadline, and
 * counted; appends go on by the others; what it was sent keeps its place until nothing of it can land any more; and
 * with too few no append says more than it knows. */
#include "silent_bed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "far/region.h"
#include "far_links.h"
#include "log/writer.h"
#include "ofi_faults.h"
#include "ring/record.h"

/* ---------------------------------------------------------------- behind a wire */

static struct {
	const struct far_link_ops *real;
	struct far_link_ops ops;
	uint64_t is_write_fenced;
} gate; /* before the end of the writer's own side of the connection */

static void disconnect_behind_gate(struct far_link *link)
{
	while (atomic_load_acquire(&gate.is_write_fenced))
		usleep(1000);
	gate.real->disconnect(link);
}

static void shut_gate(const struct silent *silent)
{
	struct far_link *link = far_of(silent_members(silent)->members[SILENT].region)->link;

	gate.real = link->ops;
	gate.ops = *gate.real;
	gate.ops.disconnect = disconnect_behind_gate;
	atomic_store_release(&gate.is_write_fenced, 1);
	link->ops = &gate.ops;
}

/* come_to_the_place -- of a record that is still being sent to the silent one: all is drained but that, and it is not
 * written over. */
static void come_to_the_place(struct silent *silent, const struct farlog_position *ghost)
{
	const struct record_header *header = (const void *)(silent_members(silent)->copy + silent_slot(silent, ghost->lsn));
	uint64_t end_lsn = ghost->lsn + silent_members(silent)->capacity;
	uint64_t demotion_count = silent_counters(silent)->demotion_count;
	uint64_t until_ns = clock_after_ns(LONG_NS);
	struct farlog_position position;
	int result = FARLOG_OK;

	while ((result != FARLOG_FULL || silent_credit(silent) < ghost->lsn) && silent->last.end_lsn <= end_lsn &&
		clock_monotonic_ns() < until_ns) {
		result = silent_append(silent, SHORT_NS, &position);
		silent_drain(silent);
	}
	CHECK(result == FARLOG_FULL);
	CHECK(silent_credit(silent) == ghost->lsn && silent->last.end_lsn <= end_lsn);
	CHECK(header->lsn == ghost->lsn);
	CHECK(silent_counters(silent)->demotion_count == demotion_count); /* it is late for the same thing as before */
}

/* await_refusals -- the target has been asked again and again to let the writer in again. */
static void await_refusals(struct silent *silent)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);
	unsigned admitted = 0;
	unsigned refused = 0;

	while (refused < 3 && clock_monotonic_ns() < until_ns)
		CHECK(host_ask(&silent->beds[SILENT].host, "counters ring") &&
			sscanf(silent->beds[SILENT].host.reply, "OK %u %u", &admitted, &refused) == 2);
	CHECK(refused >= 3 && admitted == 1);
}

/* await_landing -- of what the wire has let go: true when it landed, false when the target had shut its end before. */
static bool await_landing(const struct silent *silent, const struct farlog_position *ghost)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);

	while (silent_lsn_at_target(silent, ghost->lsn) != ghost->lsn && !wire_is_shut(&silent->wire) &&
		clock_monotonic_ns() < until_ns)
		usleep(1000);
	CHECK(clock_monotonic_ns() < until_ns);
	return silent_lsn_at_target(silent, ghost->lsn) == ghost->lsn;
}

/* What a silent member was sent keeps its place in the writer's copy until the connection is down, and the target lets
 * this writer in again only when nothing of the former connection can land there any more: until then it does land, and
 * the member is none. */
static void unconfirmed(void)
{
	struct farlog_position ghost;
	struct silent silent;
	char uri[512];

	snprintf(now_testing, sizeof(now_testing), "silent: a teardown that is not confirmed");
	atomic_store_relaxed(&ofi_carries_nothing, 1);
	if (silent_make(&silent, true, uri, sizeof(uri)) && CHECK_ASK(&silent.beds[SILENT].host, "fault 3")) {
		silent_append_until(&silent, 20 * PAYLOAD_LEN);
		silent_await_whole(&silent);
		shut_gate(&silent);
		wire_hold(&silent.wire);
		ghost = silent_begin(&silent);
		come_to_the_place(&silent, &ghost);
		atomic_store_release(&gate.is_write_fenced, 0);
		silent_write_over(&silent, &ghost);
		await_refusals(&silent);
		CHECK(!silent_is(&silent, FARLOG_MEMBER_UP));
		wire_let_go(&silent.wire);
		CHECK(await_landing(&silent, &ghost));
		CHECK(!silent_is(&silent, FARLOG_MEMBER_UP));
		(void)CHECK_ASK(&silent.beds[SILENT].host, "fault 0");
		silent_await_whole(&silent);
		CHECK(silent_is_alike(&silent));
	}
	atomic_store_release(&gate.is_write_fenced, 0);
	silent_free(&silent);
	atomic_store_relaxed(&ofi_carries_nothing, 0);
}

/* A member is back by a new connection, and has newer records where the wire still holds an old one: what it lets go
 * then does not land. */
static void let_go_late(void)
{
	struct farlog_position ghost;
	struct silent silent;
	char uri[512];

	snprintf(now_testing, sizeof(now_testing), "silent: let go late");
	if (silent_make(&silent, true, uri, sizeof(uri))) {
		silent_append_until(&silent, 20 * PAYLOAD_LEN);
		silent_await_whole(&silent);
		wire_hold(&silent.wire);
		ghost = silent_begin(&silent);
		silent_write_over(&silent, &ghost);
		silent_await_whole(&silent);
		CHECK(silent_lsn_at_target(&silent, ghost.lsn) != ghost.lsn && silent_is_alike(&silent));
		wire_let_go(&silent.wire);
		CHECK(!await_landing(&silent, &ghost));
		CHECK(silent_is_alike(&silent));
	}
	silent_free(&silent);
}

/* What a wire keeps is given up, and sent once more by another connection, while nothing is appended: by the looks of
 * an idle writer alone, which are further apart than a connection takes. It is not given up again before it was
 * answered. */
static void given_up_while_idle(void)
{
	uint64_t reconnect_count;
	struct silent silent;
	char uri[512];

	snprintf(now_testing, sizeof(now_testing), "silent: given up while idle");
	if (silent_make(&silent, true, uri, sizeof(uri))) {
		silent_append_until(&silent, 20 * PAYLOAD_LEN);
		silent_await_whole(&silent);
		reconnect_count = silent_members(&silent)->members[SILENT].region->reconnect_count;
		wire_hold(&silent.wire);
		silent.last = silent_begin(&silent);
		silent_await_whole(&silent);
		CHECK(silent_members(&silent)->members[SILENT].region->reconnect_count - reconnect_count <= 2);
		CHECK(silent_is_alike(&silent));
	}
	silent_free(&silent);
}

/* ---------------------------------------------------------------- stopped */

/* A target stands, with a record on its way to it, for longer than it takes to write over that. It thaws, and has what
 * all have. */
static void thawed_late(void)
{
	struct farlog_position ghost;
	struct silent silent;
	char uri[512];

	snprintf(now_testing, sizeof(now_testing), "silent: thawed late");
	if (silent_make(&silent, false, uri, sizeof(uri))) {
		silent_append_until(&silent, 20 * PAYLOAD_LEN);
		silent_await_whole(&silent);
		silent_stop(&silent, SILENT);
		ghost = silent_begin(&silent);
		silent_write_over(&silent, &ghost);
		CHECK(silent_lsn_at_target(&silent, ghost.lsn) != ghost.lsn && silent_is(&silent, FARLOG_MEMBER_LATE));
		silent_thaw(&silent, SILENT);
		silent_await_whole(&silent);
		CHECK(silent_is_alike(&silent));
	}
	silent_free(&silent);
}

/* expect_unknown -- by its deadline, which is all the time that it had. */
static void expect_unknown(struct silent *silent, struct farlog_position *position)
{
	uint64_t start_ns = clock_monotonic_ns();

	CHECK(silent_append(silent, SHORT_NS, position) == FARLOG_UNKNOWN);
	CHECK(clock_monotonic_ns() - start_ns >= SHORT_NS && clock_monotonic_ns() - start_ns < LONG_NS / 2);
}

/* One of three is left, where two are needed: UNKNOWN, and FULL when there is no room, each by its deadline. When one
 * more is back all that was unknown is there. */
static void too_few(void)
{
	struct farlog_position unknown[2] = {0};
	struct farlog_position position;
	struct silent silent;
	int result = FARLOG_UNKNOWN;
	char uri[512];

	snprintf(now_testing, sizeof(now_testing), "silent: too few");
	if (silent_make(&silent, false, uri, sizeof(uri))) {
		silent_append_until(&silent, 20 * PAYLOAD_LEN);
		silent_stop(&silent, 1);
		silent_stop(&silent, SILENT);
		expect_unknown(&silent, &unknown[0]);
		CHECK(farlog_resolve(silent.writer, unknown[0].lsn, SHORT_NS, &position) == FARLOG_UNKNOWN);
		for (unsigned i = 0; i < RING_BYTES / PAYLOAD_LEN && result == FARLOG_UNKNOWN; i++) {
			result = silent_append(&silent, 1000000u, &position);
			if (result == FARLOG_UNKNOWN)
				unknown[1] = position;
		}
		CHECK(result == FARLOG_FULL && unknown[1].lsn > unknown[0].lsn);
		silent_thaw(&silent, 1);
		for (unsigned i = 0; i < 2; i++)
			CHECK(farlog_resolve(silent.writer, unknown[i].lsn, LONG_NS, &position) == FARLOG_OK &&
				position.end_lsn == unknown[i].end_lsn);
	}
	silent_free(&silent);
}

/* And when the writer is shut out while it is unknown: what was acknowledged is in the next one's log, and what was not
 * is there as the former one is told. */
static void taken_over(void)
{
	struct farlog_position unknown = {0};
	struct farlog_position position;
	struct silent silent;
	farlog_writer *next = NULL;
	char uri[512];
	int told;

	snprintf(now_testing, sizeof(now_testing), "silent: taken over");
	if (silent_make(&silent, false, uri, sizeof(uri))) {
		silent_append_until(&silent, 20 * PAYLOAD_LEN);
		silent_stop(&silent, 1);
		silent_stop(&silent, SILENT);
		expect_unknown(&silent, &unknown);
		for (unsigned i = 0; i < COUNT; i++) {
			silent_thaw(&silent, i);
			CHECK(
				CHECK_ASK(&silent.beds[i].host, "fence ring 3") && CHECK_ASK(&silent.beds[i].host, "grant ring 0 3 b"));
		}
		/* UNKNOWN: too few have it, and not none: the next one decides */
		told = farlog_resolve(silent.writer, unknown.lsn, SHORT_NS, &position);
		next = silent_open_writer(uri, 3, 'b');
		CHECK(next != NULL && farlog_writer_recovery(next)->tail_lsn >= silent.last.end_lsn);
		CHECK(told == FARLOG_UNKNOWN ||
			(next != NULL &&
				told == (farlog_writer_recovery(next)->tail_lsn >= unknown.end_lsn ? FARLOG_OK : FARLOG_FENCED)));
	}
	(void)farlog_writer_close(next);
	silent_free(&silent);
}

void test_silent(void)
{
	unconfirmed();
	let_go_late();
	given_up_while_idle();
	thawed_late();
	too_few();
	taken_over();
}
