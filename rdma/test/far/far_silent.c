/* far_silent.c -- a stream with three members, each at a target in a process of its own, of which some fall silent:
 * stopped, or behind a wire that holds what it carries. The one that is silent is demoted by its own deadline, and
 * counted; appends go on by the others; what it was sent keeps its place until nothing of it can land any more; and
 * with too few no append says more than it knows. */
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "far_links.h"
#include "ofi_faults.h"
#include "held_wire.h"
#include "ring/record.h"
#include "far/region.h"
#include "members/members.h"
#include "log/writer.h"

#define COUNT 3u
#define SILENT 2u /* the one that is, by its index */
#define DRAIN_COUNT 2u
#define PAYLOAD_LEN 8000u
#define SHORT_NS 300000000u
#define DRAIN_EVERY 16u

struct silent {
	struct bed beds[COUNT];
	struct wire wire;
	farlog_writer *writer;
	farlog_reader *drains[DRAIN_COUNT];
	struct farlog_position last; /* the last that was acknowledged */
	uint64_t number;
};

/* ---------------------------------------------------------------- the bed */

static struct region_members *whole_of(const struct silent *silent)
{
	return members_of(silent->writer->region);
}

/* name_members -- the last one by the wire, when there is one. */
static bool name_members(struct silent *silent, bool has_wire, char *uri, size_t room)
{
	int used = snprintf(uri, room, "members:2");

	for (unsigned i = 0; i < COUNT; i++) {
		const char *text = silent->beds[i].uri;

		if (i == SILENT && has_wire) {
			if (!wire_open(&silent->wire, (uint16_t)atoi(strrchr(silent->beds[i].host.uri, ':') + 1)))
				return false;
			used += snprintf(uri + used, room - (size_t)used, " ofi:tcp://127.0.0.1:%u/ring", silent->wire.port);
		} else {
			used += snprintf(uri + used, room - (size_t)used, " %s", text);
		}
	}
	return true;
}

static farlog_writer *open_members(const char *uri, uint32_t epoch, char letter)
{
	uint8_t tokens[COUNT * FARLOG_TOKEN_LEN];
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE,
		.epoch = epoch,
		.counters_dir = "",
		.grant_token = tokens,
		.deadline_ns = LONG_NS};
	struct farlog_error error = {0};
	farlog_writer *writer = NULL;

	memset(tokens, letter, sizeof(tokens));
	CHECK_OK(farlog_writer_open(uri, &config, &writer, &error));
	return writer;
}

static farlog_reader *open_drain(const struct bed *bed)
{
	uint8_t token[FARLOG_TOKEN_LEN];
	struct farlog_reader_config config = {.is_drain = 1, .grant_token = token};
	struct farlog_error error = {0};
	farlog_reader *drain = NULL;

	host_token('d', token);
	CHECK_OK(farlog_reader_open(bed->uri, &config, &drain, &error));
	return drain;
}

static bool make(struct silent *silent, bool has_wire, char *uri, size_t room)
{
	unsigned before = failed;

	memset(silent, 0, sizeof(*silent));
	for (unsigned i = 0; i < COUNT; i++)
		if (!bed_make(&silent->beds[i], "/dev/shm", "ofi:tcp://127.0.0.1:0") ||
			!CHECK_ASK(&silent->beds[i].host, "grant ring 0 2 a") ||
			!CHECK_ASK(&silent->beds[i].host, "grant ring 1 0 d"))
			return false;
	if (!name_members(silent, has_wire, uri, room))
		return false;
	silent->writer = open_members(uri, 2, 'a');
	for (unsigned i = 0; i < DRAIN_COUNT; i++)
		silent->drains[i] = open_drain(&silent->beds[i]);
	return failed == before;
}

static void unmake(struct silent *silent)
{
	if (silent->writer != NULL)
		silent->writer->deadline_ns = SHORT_NS; /* of its close */
	(void)farlog_writer_close(silent->writer);
	for (unsigned i = 0; i < DRAIN_COUNT; i++)
		farlog_reader_close(silent->drains[i]);
	wire_close(&silent->wire);
	for (unsigned i = 0; i < COUNT; i++)
		bed_free(&silent->beds[i]);
}

/* ---------------------------------------------------------------- what is looked at */

static const struct farlog_member_counters *counters_of(const struct silent *silent)
{
	return &members_of(silent->writer->region)->counters[SILENT];
}

static bool is_silent_in(const struct silent *silent, enum farlog_member_state state)
{
	return atomic_load_relaxed(&counters_of(silent)->state) == state;
}

static void await_state(const struct silent *silent, enum farlog_member_state state)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);

	while (!is_silent_in(silent, state) && clock_monotonic_ns() < until_ns)
		usleep(1000);
	CHECK(is_silent_in(silent, state));
}

/* await_whole -- it has all that was acknowledged. */
static void await_whole(const struct silent *silent)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);

	while ((!is_silent_in(silent, FARLOG_MEMBER_UP) ||
			   atomic_load_relaxed(&counters_of(silent)->confirmed_lsn) < silent->last.end_lsn) &&
		clock_monotonic_ns() < until_ns)
		usleep(1000);
	CHECK(is_silent_in(silent, FARLOG_MEMBER_UP));
	CHECK(atomic_load_relaxed(&counters_of(silent)->confirmed_lsn) == silent->last.end_lsn);
}

static uint64_t slot_of(const struct silent *silent, uint64_t lsn)
{
	return LAYOUT_DATA_OFF + lsn % whole_of(silent)->capacity;
}

/* lsn_at_target -- of the record that lies where this one did, or is to. */
static uint64_t lsn_at_target(const struct silent *silent, uint64_t lsn)
{
	return word_at_target(&silent->beds[SILENT], slot_of(silent, lsn) + offsetof(struct record_header, lsn));
}

static uint64_t credit_of(const struct silent *silent)
{
	return members_word(whole_of(silent), LAYOUT_CREDIT_OFF);
}

/* are_alike -- word by word, the silent one's ring and another one's, of all that is undrained. */
static bool are_alike(const struct silent *silent)
{
	for (uint64_t lsn = credit_of(silent); lsn < silent->last.end_lsn; lsn += 8) {
		uint64_t off = slot_of(silent, lsn);

		if (word_at_target(&silent->beds[0], off) != word_at_target(&silent->beds[SILENT], off))
			return false;
	}
	return true;
}

/* ---------------------------------------------------------------- what is done */

static int append(struct silent *silent, uint64_t deadline_ns, struct farlog_position *position)
{
	static uint64_t words[PAYLOAD_LEN / 8];
	struct farlog_entry entry = {.data = words, .len = PAYLOAD_LEN, .class_id = 1};
	int result;

	for (size_t i = 0; i < PAYLOAD_LEN / 8; i++)
		words[i] = silent->number;
	silent->number++;
	result = farlog_append(silent->writer, &entry, deadline_ns, position);
	if (result == FARLOG_OK)
		silent->last = *position;
	return result;
}

/* drain -- by those that are not silent: all that they have. */
static void drain(struct silent *silent)
{
	static uint8_t buffer[256u << 10] __attribute__((aligned(64)));
	struct farlog_batch batch;

	for (unsigned i = 0; i < DRAIN_COUNT; i++)
		while (farlog_reader_read(silent->drains[i], buffer, sizeof(buffer), &batch) == FARLOG_OK)
			CHECK(farlog_reader_release(silent->drains[i], batch.next_lsn, batch.next_seq, batch.last_epoch) ==
				FARLOG_OK);
}

/* go_on -- appends, none of which waits for who is silent, until the ring has come so far. */
static void go_on(struct silent *silent, uint64_t until_lsn)
{
	unsigned before = failed;

	for (unsigned i = 1; silent->last.end_lsn < until_lsn && failed == before; i++) {
		struct farlog_position position;

		CHECK(append(silent, LONG_NS, &position) == FARLOG_OK);
		CHECK(position.copies >= 2);
		if (i % DRAIN_EVERY == 0)
			drain(silent);
	}
}

/* write_over -- until other records lie where this one did, undrained. */
static void write_over(struct silent *silent, const struct farlog_position *position)
{
	uint64_t lap = whole_of(silent)->capacity;

	go_on(silent, position->lsn + lap - lap / 8);
	drain(silent);
	go_on(silent, position->end_lsn + lap + 2 * PAYLOAD_LEN);
}

static void stop(const struct silent *silent, unsigned i)
{
	int status = 0;

	kill(silent->beds[i].host.pid, SIGSTOP);
	CHECK(waitpid(silent->beds[i].host.pid, &status, WUNTRACED) == silent->beds[i].host.pid && WIFSTOPPED(status));
}

static void thaw(const struct silent *silent, unsigned i)
{
	kill(silent->beds[i].host.pid, SIGCONT);
}

/* fall_silent -- one record more, which the silent one is sent and does not confirm: that is found out when its own
 * deadline is over, and waited for by nobody. */
static struct farlog_position fall_silent(struct silent *silent)
{
	uint64_t deadline_ns = whole_of(silent)->members[SILENT].deadline_ns;
	uint64_t demotion_count = counters_of(silent)->demotion_count;
	uint64_t eviction_count = counters_of(silent)->eviction_count;
	uint64_t start_ns = clock_monotonic_ns();
	struct farlog_position position = {0};

	CHECK(append(silent, LONG_NS, &position) == FARLOG_OK);
	CHECK(position.copies == 2);
	await_state(silent, FARLOG_MEMBER_LATE);
	CHECK(deadline_ns > 0 && clock_monotonic_ns() - start_ns >= deadline_ns);
	CHECK(counters_of(silent)->demotion_count == demotion_count + 1);
	CHECK(counters_of(silent)->eviction_count == eviction_count);
	return position;
}

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
	struct far_link *link = far_of(whole_of(silent)->members[SILENT].region)->link;

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
	const struct record_header *header = (const void *)(whole_of(silent)->copy + slot_of(silent, ghost->lsn));
	uint64_t end_lsn = ghost->lsn + whole_of(silent)->capacity;
	uint64_t until_ns = clock_after_ns(LONG_NS);
	struct farlog_position position;
	int result = FARLOG_OK;

	while ((result != FARLOG_FULL || credit_of(silent) < ghost->lsn) && silent->last.end_lsn <= end_lsn &&
		clock_monotonic_ns() < until_ns) {
		result = append(silent, SHORT_NS, &position);
		drain(silent);
	}
	CHECK(result == FARLOG_FULL);
	CHECK(credit_of(silent) == ghost->lsn && silent->last.end_lsn <= end_lsn);
	CHECK(header->lsn == ghost->lsn);
	CHECK(counters_of(silent)->demotion_count == 1); /* it is late for the same thing as before */
}

/* await_refusals -- the target has been asked again and again to let the writer in anew. */
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

	while (lsn_at_target(silent, ghost->lsn) != ghost->lsn && !wire_is_shut(&silent->wire) &&
		clock_monotonic_ns() < until_ns)
		usleep(1000);
	CHECK(clock_monotonic_ns() < until_ns);
	return lsn_at_target(silent, ghost->lsn) == ghost->lsn;
}

/* What a silent member was sent keeps its place in the writer's copy until the connection is down, and the target lets
 * this writer in anew only when nothing of the former connection can land there any more: until then it does land, and
 * the member is none. */
static void unconfirmed(void)
{
	struct farlog_position ghost;
	struct silent silent;
	char uri[512];

	snprintf(now_testing, sizeof(now_testing), "silent: a teardown that is not confirmed");
	atomic_store_relaxed(&ofi_carries_nothing, 1);
	if (make(&silent, true, uri, sizeof(uri)) && CHECK_ASK(&silent.beds[SILENT].host, "fault 3")) {
		go_on(&silent, 20 * PAYLOAD_LEN);
		await_whole(&silent);
		shut_gate(&silent);
		wire_hold(&silent.wire);
		ghost = fall_silent(&silent);
		come_to_the_place(&silent, &ghost);
		atomic_store_release(&gate.is_write_fenced, 0);
		write_over(&silent, &ghost);
		await_refusals(&silent);
		CHECK(!is_silent_in(&silent, FARLOG_MEMBER_UP));
		wire_let_go(&silent.wire);
		CHECK(await_landing(&silent, &ghost));
		CHECK(!is_silent_in(&silent, FARLOG_MEMBER_UP));
		(void)CHECK_ASK(&silent.beds[SILENT].host, "fault 0");
		await_whole(&silent);
		CHECK(are_alike(&silent));
	}
	atomic_store_release(&gate.is_write_fenced, 0);
	unmake(&silent);
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
	if (make(&silent, true, uri, sizeof(uri))) {
		go_on(&silent, 20 * PAYLOAD_LEN);
		await_whole(&silent);
		wire_hold(&silent.wire);
		ghost = fall_silent(&silent);
		write_over(&silent, &ghost);
		await_whole(&silent);
		CHECK(lsn_at_target(&silent, ghost.lsn) != ghost.lsn && are_alike(&silent));
		wire_let_go(&silent.wire);
		CHECK(!await_landing(&silent, &ghost));
		CHECK(are_alike(&silent));
	}
	unmake(&silent);
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
	if (make(&silent, true, uri, sizeof(uri))) {
		go_on(&silent, 20 * PAYLOAD_LEN);
		await_whole(&silent);
		reconnect_count = whole_of(&silent)->members[SILENT].region->reconnect_count;
		wire_hold(&silent.wire);
		silent.last = fall_silent(&silent);
		await_whole(&silent);
		CHECK(whole_of(&silent)->members[SILENT].region->reconnect_count - reconnect_count <= 2);
		CHECK(are_alike(&silent));
	}
	unmake(&silent);
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
	if (make(&silent, false, uri, sizeof(uri))) {
		go_on(&silent, 20 * PAYLOAD_LEN);
		await_whole(&silent);
		stop(&silent, SILENT);
		ghost = fall_silent(&silent);
		write_over(&silent, &ghost);
		CHECK(lsn_at_target(&silent, ghost.lsn) != ghost.lsn && is_silent_in(&silent, FARLOG_MEMBER_LATE));
		thaw(&silent, SILENT);
		await_whole(&silent);
		CHECK(are_alike(&silent));
	}
	unmake(&silent);
}

/* expect_unknown -- by its deadline, which is all the time that it had. */
static void expect_unknown(struct silent *silent, struct farlog_position *position)
{
	uint64_t start_ns = clock_monotonic_ns();

	CHECK(append(silent, SHORT_NS, position) == FARLOG_UNKNOWN);
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
	if (make(&silent, false, uri, sizeof(uri))) {
		go_on(&silent, 20 * PAYLOAD_LEN);
		stop(&silent, 1);
		stop(&silent, SILENT);
		expect_unknown(&silent, &unknown[0]);
		CHECK(farlog_resolve(silent.writer, unknown[0].lsn, SHORT_NS, &position) == FARLOG_UNKNOWN);
		for (unsigned i = 0; i < RING_BYTES / PAYLOAD_LEN && result == FARLOG_UNKNOWN; i++) {
			result = append(&silent, 1000000u, &position);
			if (result == FARLOG_UNKNOWN)
				unknown[1] = position;
		}
		CHECK(result == FARLOG_FULL && unknown[1].lsn > unknown[0].lsn);
		thaw(&silent, 1);
		for (unsigned i = 0; i < 2; i++)
			CHECK(farlog_resolve(silent.writer, unknown[i].lsn, LONG_NS, &position) == FARLOG_OK &&
				position.end_lsn == unknown[i].end_lsn);
	}
	unmake(&silent);
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
	if (make(&silent, false, uri, sizeof(uri))) {
		go_on(&silent, 20 * PAYLOAD_LEN);
		stop(&silent, 1);
		stop(&silent, SILENT);
		expect_unknown(&silent, &unknown);
		for (unsigned i = 0; i < COUNT; i++) {
			thaw(&silent, i);
			CHECK(
				CHECK_ASK(&silent.beds[i].host, "fence ring 3") && CHECK_ASK(&silent.beds[i].host, "grant ring 0 3 b"));
		}
		/* UNKNOWN: too few have it, and not none: the next one decides */
		told = farlog_resolve(silent.writer, unknown.lsn, SHORT_NS, &position);
		next = open_members(uri, 3, 'b');
		CHECK(next != NULL && farlog_writer_recovery(next)->tail_lsn >= silent.last.end_lsn);
		CHECK(told == FARLOG_UNKNOWN ||
			(next != NULL &&
				told == (farlog_writer_recovery(next)->tail_lsn >= unknown.end_lsn ? FARLOG_OK : FARLOG_FENCED)));
	}
	(void)farlog_writer_close(next);
	unmake(&silent);
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
