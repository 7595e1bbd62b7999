/* silent_bed.c -- see silent_bed.h. */
#include "silent_bed.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "far_links.h"
#include "log/writer.h"
#include "ring/record.h"

#define DRAIN_EVERY 16u

struct region_members *silent_members(const struct silent *silent)
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

farlog_writer *silent_open_writer(const char *uri, uint32_t epoch, char letter)
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

farlog_reader *silent_open_drain(const struct bed *bed)
{
	uint8_t token[FARLOG_TOKEN_LEN];
	struct farlog_reader_config config = {.is_drain = 1, .grant_token = token};
	struct farlog_error error = {0};
	farlog_reader *silent_drain = NULL;

	host_token('d', token);
	CHECK_OK(farlog_reader_open(bed->uri, &config, &silent_drain, &error));
	return silent_drain;
}

bool silent_make(struct silent *silent, bool has_wire, char *uri, size_t room)
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
	silent->writer = silent_open_writer(uri, 2, 'a');
	for (unsigned i = 0; i < DRAIN_COUNT; i++)
		silent->drains[i] = silent_open_drain(&silent->beds[i]);
	return failed == before;
}

void silent_free(struct silent *silent)
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

const struct farlog_member_counters *silent_counters(const struct silent *silent)
{
	return &members_of(silent->writer->region)->counters[SILENT];
}

bool silent_is(const struct silent *silent, enum farlog_member_state state)
{
	return atomic_load_relaxed(&silent_counters(silent)->state) == state;
}

void silent_await(const struct silent *silent, enum farlog_member_state state)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);

	while (!silent_is(silent, state) && clock_monotonic_ns() < until_ns)
		usleep(1000);
	CHECK(silent_is(silent, state));
}

void silent_await_whole(const struct silent *silent)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);

	while ((!silent_is(silent, FARLOG_MEMBER_UP) ||
			   atomic_load_relaxed(&silent_counters(silent)->confirmed_lsn) < silent->last.end_lsn) &&
		clock_monotonic_ns() < until_ns)
		usleep(1000);
	CHECK(silent_is(silent, FARLOG_MEMBER_UP));
	CHECK(atomic_load_relaxed(&silent_counters(silent)->confirmed_lsn) == silent->last.end_lsn);
}

uint64_t silent_slot(const struct silent *silent, uint64_t lsn)
{
	return LAYOUT_DATA_OFF + lsn % silent_members(silent)->capacity;
}

uint64_t silent_lsn_at_target(const struct silent *silent, uint64_t lsn)
{
	return word_at_target(&silent->beds[SILENT], silent_slot(silent, lsn) + offsetof(struct record_header, lsn));
}

uint64_t silent_credit(const struct silent *silent)
{
	return members_word(silent_members(silent), LAYOUT_CREDIT_OFF);
}

bool silent_is_alike(const struct silent *silent)
{
	for (uint64_t lsn = silent_credit(silent); lsn < silent->last.end_lsn; lsn += 8) {
		uint64_t off = silent_slot(silent, lsn);

		if (word_at_target(&silent->beds[0], off) != word_at_target(&silent->beds[SILENT], off))
			return false;
	}
	return true;
}

int silent_append(struct silent *silent, uint64_t deadline_ns, struct farlog_position *position)
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

void silent_drain(struct silent *silent)
{
	static uint8_t buffer[256u << 10] __attribute__((aligned(64)));
	struct farlog_batch batch;

	for (unsigned i = 0; i < DRAIN_COUNT; i++)
		while (farlog_reader_read(silent->drains[i], buffer, sizeof(buffer), &batch) == FARLOG_OK)
			CHECK(farlog_reader_release(silent->drains[i], batch.next_lsn, batch.next_seq, batch.last_epoch) ==
				FARLOG_OK);
}

void silent_append_until(struct silent *silent, uint64_t until_lsn)
{
	unsigned before = failed;

	for (unsigned i = 1; silent->last.end_lsn < until_lsn && failed == before; i++) {
		struct farlog_position position;

		CHECK(silent_append(silent, LONG_NS, &position) == FARLOG_OK);
		CHECK(position.copies >= 2);
		if (i % DRAIN_EVERY == 0)
			silent_drain(silent);
	}
}

void silent_write_over(struct silent *silent, const struct farlog_position *position)
{
	uint64_t lap = silent_members(silent)->capacity;

	silent_append_until(silent, position->lsn + lap - lap / 8);
	silent_drain(silent);
	silent_append_until(silent, position->end_lsn + lap + 2 * PAYLOAD_LEN);
}

void silent_stop(const struct silent *silent, unsigned i)
{
	int status = 0;

	kill(silent->beds[i].host.pid, SIGSTOP);
	CHECK(waitpid(silent->beds[i].host.pid, &status, WUNTRACED) == silent->beds[i].host.pid && WIFSTOPPED(status));
}

void silent_thaw(const struct silent *silent, unsigned i)
{
	kill(silent->beds[i].host.pid, SIGCONT);
}

struct farlog_position silent_begin(struct silent *silent)
{
	uint64_t deadline_ns = silent_members(silent)->members[SILENT].deadline_ns;
	uint64_t demotion_count = silent_counters(silent)->demotion_count;
	uint64_t eviction_count = silent_counters(silent)->eviction_count;
	uint64_t start_ns = clock_monotonic_ns();
	struct farlog_position position = {0};

	CHECK(silent_append(silent, LONG_NS, &position) == FARLOG_OK);
	CHECK(position.copies == 2);
	silent_await(silent, FARLOG_MEMBER_LATE);
	CHECK(deadline_ns > 0 && clock_monotonic_ns() - start_ns >= deadline_ns);
	CHECK(silent_counters(silent)->demotion_count == demotion_count + 1);
	CHECK(silent_counters(silent)->eviction_count == eviction_count);
	return position;
}
