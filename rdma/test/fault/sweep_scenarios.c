/* sweep_scenarios.c -- what the sweep plays while a call fails, and what must hold behind it. See sweep_world.h. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "farlog/former.h"
#include "farlog/member.h"
#include "sweep_world.h"

int run_format(void)
{
	struct farlog_ring_config config = {
		.size_bytes = run.kind->is_device ? 0 : RING_SIZE, .salt = 7, .stream_name = "desk/orders"};
	int first = FARLOG_OK;

	for (unsigned i = 0; i < run.kind->file_count; i++) {
		struct farlog_error error = {0};
		int result = farlog_ring_format(run.uris[i], &config, &error);

		if (first == FARLOG_OK && result != FARLOG_OK) {
			first = result;
			run.error = error;
		}
	}
	return first;
}

/* A writer that was opened before a call fails. */
static farlog_writer *living;

static int open_living(void)
{
	int result = farlog_writer_open(run.uri, &sweep_writer, &living, &run.error);

	return result == FARLOG_OK ? append_one(living, RECORDS + 1) : result;
}

static int close_living(void)
{
	int result = farlog_writer_close(living);

	living = NULL;
	return result;
}

static int run_append_living(void)
{
	int result = FARLOG_OK;

	for (unsigned i = 1; i < APPENDS && result == FARLOG_OK; i++)
		result = append_one(living, RECORDS + 1 + i);
	return result;
}

static int run_append(void)
{
	return append_some(RECORDS + 1, APPENDS, true);
}

static int run_shared(void)
{
	farlog_shared *shared;
	int result = farlog_shared_open(run.uri, &sweep_writer, &shared, &run.error);
	int closed;

	if (result != FARLOG_OK)
		return result;
	for (uint64_t number = RECORDS + 1; number <= RECORDS + APPENDS && result == FARLOG_OK; number++) {
		struct farlog_entry entry = {.data = &number, .len = sizeof(number)};
		struct farlog_position position;

		result = farlog_shared_append(shared, &entry, 0, &position);
		run.is_acked[number] = result == FARLOG_OK;
	}
	closed = farlog_shared_close(shared);
	return result != FARLOG_OK ? result : closed;
}

static int run_fence(void)
{
	return farlog_ring_fence(run.uri, 5, &run.error);
}

static struct farlog_ring_status seen;

static int run_inspect(void)
{
	return farlog_ring_inspect(run.uri, &seen, &run.error);
}

static int run_remove(void)
{
	return farlog_ring_remove(run.uri, 0, &run.error);
}

static struct {
	uint64_t numbers[NUMBERS];
	unsigned count;
} drained;

static int run_drain(void)
{
	return drain_ring(drained.numbers, &drained.count);
}

static struct farlog_region_status region;

static int run_list(void)
{
	struct farlog_region_ring rings[4];

	return farlog_region_list(run.uri, &region, rings, 4, &run.error);
}

static int run_accept_loss(void)
{
	return farlog_ring_accept_loss(run.uri, &run.error);
}

static struct farlog_former former;

static int run_former(void)
{
	return farlog_ring_former(run.uri, &former, &run.error);
}

static int run_cut(void)
{
	return farlog_ring_cut(run.uri, images.damaged_lsn, &run.error);
}

/* take_over -- by an epoch that leaves room between: who held the ring is fenced first. */
static int take_over(uint32_t epoch, uint64_t first)
{
	struct farlog_writer_config config = sweep_writer;
	int result = farlog_ring_fence(run.uri, epoch, &run.error);
	farlog_writer *writer;
	int closed;

	if (living != NULL)
		may_fail(close_living()); /* it is fenced, or the fence failed */
	if (result != FARLOG_OK)
		return result;
	config.epoch = epoch;
	result = farlog_writer_open(run.uri, &config, &writer, &run.error);
	if (result != FARLOG_OK)
		return result;
	for (unsigned i = 0; i < APPENDS && result == FARLOG_OK; i++)
		result = append_one(writer, first + i);
	closed = farlog_writer_close(writer);
	return result != FARLOG_OK ? result : closed;
}

static int run_takeover(void)
{
	return take_over(5, RECORDS + 2);
}

/* other_uri -- of a second ring in the directory. */
static const char *other_uri(void)
{
	static char uri[sizeof(run.uris[0])];

	snprintf(uri, sizeof(uri), "mem:%s?ring=desk/quotes&size=1048576", run.paths[0]);
	return uri;
}

static int run_second(void)
{
	struct farlog_ring_config config = {.size_bytes = RING_SIZE, .salt = 9, .stream_name = "desk/quotes"};

	return farlog_ring_format(other_uri(), &config, &run.error);
}

static void judge_format(int result)
{
	int again = result == FARLOG_OK ? result : run_format();

	if (result == FARLOG_EXISTS || (again != FARLOG_OK && again != FARLOG_EXISTS))
		FAIL("formatted once more: %s: %s", farlog_result_name(again), run.error.text);
	else if ((again = append_some(1, 1, true)) != FARLOG_OK)
		FAIL("appended afterwards: %s: %s", farlog_result_name(again), run.error.text);
	else
		judge_records(0, NULL);
}

static void judge_second(int result)
{
	int again = result == FARLOG_OK ? result : run_second();

	if (result == FARLOG_EXISTS || (again != FARLOG_OK && again != FARLOG_EXISTS))
		FAIL("made once more: %s: %s", farlog_result_name(again), run.error.text);
	else if ((again = farlog_ring_inspect(other_uri(), &seen, &run.error)) != FARLOG_OK || seen.lag_records != 0)
		FAIL("the second ring: %s with lag %lu: %s", farlog_result_name(again), seen.lag_records, run.error.text);
	else
		judge_records(0, NULL);
}

static void judge_former(int result)
{
	if (result == FARLOG_OK && former.epoch != 1)
		FAIL("OK with epoch %u, expected 1", former.epoch);
}

static void judge_left(int result)
{
	(void)result; /* it may say what it will: nothing is lost by it */
	judge_records(0, NULL);
}

/* judge_append_living -- the record that was under way when a call failed may be unknown; the writer is still closed in
 * an orderly way. */
static void judge_append_living(int result)
{
	(void)result;
	may_fail(close_living()); /* what it was told before counts */
	judge_records(0, NULL);
}

/* judge_spared -- one member is enough: whatever fails of the other is not seen by who appends. */
static void judge_spared(int result)
{
	int closed = close_living();

	if (result != FARLOG_OK || closed != FARLOG_OK)
		FAIL("%s, and closed %s, with a member to spare", farlog_result_name(result), farlog_result_name(closed));
	else
		judge_records(0, NULL);
}

/* judge_fence_living -- who was fenced is told so, and nobody else; on blocks by a look that goes with one of the next
 * commits. */
static void judge_fence_living(int result)
{
	uint64_t number = RECORDS + 2;
	int appended = append_one(living, number++);

	while (run.kind->is_device && result == FARLOG_OK && appended == FARLOG_OK && number < NUMBERS) {
		usleep(6000); /* of two looks */
		appended = append_one(living, number++);
	}
	may_fail(close_living()); /* of a fenced writer it says so again */
	if (result == FARLOG_OK && appended != FARLOG_FENCED)
		FAIL("a writer of epoch 2 appends to a ring fenced below 5: %s", farlog_result_name(appended));
	else if (appended != FARLOG_OK && appended != FARLOG_FENCED)
		FAIL("appended beside a fence: %s", farlog_result_name(appended));
	else
		judge_records(0, NULL);
}

static void judge_append(int result)
{
	for (unsigned i = RECORDS + 1; result == FARLOG_OK && i <= RECORDS + APPENDS; i++)
		if (!run.is_acked[i])
			FAIL("OK, and record %u was not acknowledged", i);
	if (run.failure[0] == '\0')
		judge_records(0, NULL);
}

static void judge_fence(int result)
{
	struct farlog_writer_config config = sweep_writer;
	farlog_writer *writer;

	if (result != FARLOG_OK)
		result = run_fence();
	if (result != FARLOG_OK) {
		FAIL("fenced once more: %s: %s", farlog_result_name(result), run.error.text);
		return;
	}
	config.epoch = 3;
	result = farlog_writer_open(run.uri, &config, &writer, &run.error);
	if (result == FARLOG_OK)
		farlog_writer_close(writer);
	if (result != FARLOG_FENCED)
		FAIL("a writer of epoch 3 opens a ring fenced below 5: %s", farlog_result_name(result));
	else
		judge_records(0, NULL);
}

/* judge_takeover -- whoever comes with a lower epoch is refused, by the fence or by the epoch that was opened. */
static void judge_takeover(int result)
{
	struct farlog_writer_config config = sweep_writer;
	farlog_writer *writer;
	int lower;

	if (result != FARLOG_OK && (result = take_over(6, RECORDS + 2 + APPENDS)) != FARLOG_OK) {
		FAIL("taken over once more: %s: %s", farlog_result_name(result), run.error.text);
		return;
	}
	config.epoch = 4;
	lower = farlog_writer_open(run.uri, &config, &writer, &run.error);
	if (lower == FARLOG_OK)
		may_fail(farlog_writer_close(writer)); /* it should not have been opened */
	if (lower != FARLOG_FENCED)
		FAIL("a writer of epoch 4 opens a ring that epoch 5 took over: %s", farlog_result_name(lower));
	else
		judge_records(0, NULL);
}

/* cut_again -- where the opening says, if it is refused: the new epoch may have begun when the call failed. */
static int cut_again(void)
{
	static const char place[] = "the record at lsn ";
	farlog_writer *writer;
	int result = farlog_writer_open(run.uri, &sweep_writer, &writer, &run.error);
	const char *found = strstr(run.error.text, place);

	if (result == FARLOG_OK)
		return farlog_writer_close(writer);
	if (result != FARLOG_CORRUPT || found == NULL)
		return result;
	return farlog_ring_cut(run.uri, strtoull(found + strlen(place), NULL, 10), &run.error);
}

/* judge_cut -- what lies below the place is kept, what lies from there on is dropped, and by nothing but a cut. */
static void judge_cut(int result)
{
	for (unsigned i = DAMAGED_RECORD; i <= RECORDS; i++) {
		run.is_acked[i] = false;
		run.is_absent[i] = true;
	}
	if (result != FARLOG_OK)
		result = cut_again();
	if (result == FARLOG_OK)
		result = append_some(RECORDS + 1, 1, true);
	if (result != FARLOG_OK)
		FAIL("cut once more, and appended: %s: %s", farlog_result_name(result), run.error.text);
	else
		judge_records(0, NULL);
}

static void judge_inspect(int result)
{
	if (result == FARLOG_OK && seen.lag_records != images.lag_records)
		FAIL("OK with lag %lu, expected %lu", seen.lag_records, images.lag_records);
}

static void judge_remove_left(int result)
{
	if (result == FARLOG_OK)
		FAIL("a ring with undrained records was removed");
	else
		judge_records(0, NULL);
}

static void judge_remove_drained(int result)
{
	int left = farlog_ring_inspect(run.uri, &seen, &run.error);

	if (left != FARLOG_NOT_FOUND && (result == FARLOG_OK || left != FARLOG_OK))
		FAIL("removal said %s, and the ring is %s: %s", farlog_result_name(result), farlog_result_name(left),
			run.error.text);
	else if (left == FARLOG_OK && (result = run_remove()) != FARLOG_OK)
		FAIL("removed once more: %s: %s", farlog_result_name(result), run.error.text);
}

static void judge_drain(int result)
{
	for (unsigned i = 0; i < drained.count && run.failure[0] == '\0'; i++)
		if (drained.numbers[i] != i + 1)
			FAIL("record %u of the drain is %lu", i + 1, drained.numbers[i]);
	if (result == FARLOG_OK && drained.count != RECORDS)
		FAIL("OK with %u of %u records", drained.count, RECORDS);
	if (run.failure[0] == '\0')
		judge_records(drained.count, drained.numbers);
}

static void judge_list(int result)
{
	if (result == FARLOG_OK && region.ring_count != 1)
		FAIL("OK with %u rings, expected 1", region.ring_count);
}

const struct scenario scenarios[] = {
	{"format", START_NONE, run_format, judge_format, NEAR | MEMBERS, NULL},
	{"recover and append", START_LEFT, run_append, judge_append, NEAR | MEMBERS, NULL},
	{"shared append", START_LEFT, run_shared, judge_append, NEAR | MEMBERS, NULL},
	{"fence", START_LEFT, run_fence, judge_fence, NEAR, NULL},
	{"inspect", START_LEFT, run_inspect, judge_inspect, NEAR, NULL},
	{"drain", START_LEFT, run_drain, judge_drain, NEAR | MEMBERS, NULL},
	{"remove undrained", START_LEFT, run_remove, judge_remove_left, ONE | MANY, NULL},
	{"remove drained", START_DRAINED, run_remove, judge_remove_drained, ONE | MANY, NULL},
	{"list", START_LEFT, run_list, judge_list, MANY, NULL},
	{"append to an empty ring", START_DRAINED, run_append, judge_append, ONE | DEVICE, NULL},
	{"append by a living writer", START_LEFT, run_append_living, judge_append_living, NEAR | MEMBERS, open_living},
	{"append beside a failing member", START_LEFT, run_append_living, judge_spared, SPARE, open_living},
	{"fence a living writer", START_LEFT, run_fence, judge_fence_living, NEAR, open_living},
	{"accept loss", START_LEFT, run_accept_loss, judge_left, NEAR, NULL},
	{"take over", START_LEFT, run_takeover, judge_takeover, NEAR, open_living},
	{"cut", START_DAMAGED, run_cut, judge_cut, NEAR, NULL},
	{"former", START_LEFT, run_former, judge_former, NEAR, NULL},
	{"make a second ring", START_LEFT, run_second, judge_second, MANY, NULL},
	{"listen and serve", START_LEFT, run_listen, judge_listen, TARGET, NULL},
	{"append from another host", START_LEFT, run_remote, judge_remote, TARGET, make_target},
	{"append by a living remote writer", START_LEFT, run_remote_living, judge_remote, TARGET, make_remote},
	{"fence a remote writer", START_LEFT, run_remote_fence, judge_remote_fence, TARGET, make_remote},
	{"route", START_LEFT, run_route, judge_route, ROUTE, make_route},
	{"spill", START_LEFT, run_spill, judge_route, ROUTE, make_held},
	{"carry what was spilled", START_LEFT, run_carry, judge_route, ROUTE, make_spilled},
	{NULL, START_NONE, NULL, NULL, 0, NULL},
};
