/* far_kept.c -- a stream with three members, each at a target in a process of its own, is fenced while a record of
 * its writer has come to one of them and is still on its way to the others. Nobody can promise that record: the next
 * writer does not find it when that one member is lost. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "far_links.h"
#include "held_wire.h"
#include "ring/record.h"
#include "adversary/memory.h"
#include "members/members.h"
#include "log/writer.h"

#define COUNT 3u
#define HELD_COUNT 2u /* of them, that a record does not come to */
#define EPOCH 2u
#define SHORT_NS 300000000u /* of what is never decided */

struct kept {
	struct bed beds[COUNT];
	struct wire wires[HELD_COUNT];
	farlog_writer *writer;
};

static bool make(struct kept *kept)
{
	uint8_t tokens[COUNT * FARLOG_TOKEN_LEN];
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE,
		.epoch = EPOCH,
		.counters_dir = "",
		.grant_token = tokens,
		.deadline_ns = LONG_NS};
	struct farlog_error error = {0};
	char uri[512];
	int used = snprintf(uri, sizeof(uri), "members:2");

	memset(kept, 0, sizeof(*kept));
	memset(tokens, 'a', sizeof(tokens));
	for (unsigned i = 0; i < COUNT; i++) {
		struct bed *bed = &kept->beds[i];

		if (!bed_make(bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") || !CHECK_ASK(&bed->host, "grant ring 0 %u a", EPOCH))
			return false;
		if (i < HELD_COUNT && !wire_open(&kept->wires[i], (uint16_t)atoi(strrchr(bed->host.uri, ':') + 1)))
			return false;
		if (i < HELD_COUNT)
			used +=
				snprintf(uri + used, sizeof(uri) - (size_t)used, " ofi:tcp://127.0.0.1:%u/ring", kept->wires[i].port);
		else
			used += snprintf(uri + used, sizeof(uri) - (size_t)used, " %s", bed->uri);
	}
	return CHECK_OK(farlog_writer_open(uri, &config, &kept->writer, &error));
}

/* await_whole -- all of them have what was acknowledged. */
static void await_whole(const struct kept *kept, uint64_t end_lsn)
{
	const struct farlog_member_counters *counters = members_of(kept->writer->region)->counters;
	uint64_t until_ns = clock_after_ns(LONG_NS);
	unsigned count = 0;

	while (count < COUNT && clock_monotonic_ns() < until_ns) {
		count = 0;
		for (unsigned i = 0; i < COUNT; i++)
			count += atomic_load_relaxed(&counters[i].state) == FARLOG_MEMBER_UP &&
				atomic_load_relaxed(&counters[i].confirmed_lsn) == end_lsn;
		usleep(1000);
	}
	CHECK(count == COUNT);
}

static bool has_record(const struct kept *kept, unsigned i, uint64_t lsn)
{
	return word_at_target(&kept->beds[i], LAYOUT_DATA_OFF + lsn + offsetof(struct record_header, lsn)) == lsn;
}

/* come_to_one -- a record, to the last member alone. */
static struct farlog_position come_to_one(struct kept *kept)
{
	struct farlog_entry entry = {.data = "kept", .len = 4, .class_id = 1};
	uint64_t until_ns = clock_after_ns(LONG_NS);
	struct farlog_position position = {0};
	uint64_t durable_lsn;

	for (unsigned i = 0; i < HELD_COUNT; i++)
		wire_hold(&kept->wires[i]);
	CHECK(farlog_submit(kept->writer, &entry, &position) == FARLOG_OK);
	CHECK(farlog_poll(kept->writer, &durable_lsn) == FARLOG_OK);
	while (!has_record(kept, HELD_COUNT, position.lsn) && clock_monotonic_ns() < until_ns)
		usleep(1000);
	for (unsigned i = 0; i < COUNT; i++)
		CHECK(has_record(kept, i, position.lsn) == (i == HELD_COUNT));
	return position;
}

/* fence_all -- and what the wires hold comes to connections that are shut. The writer hears where each of the logs
 * ended. */
static void fence_all(struct kept *kept)
{
	const struct region *region = kept->writer->region;
	uint64_t until_ns = clock_after_ns(LONG_NS);
	uint64_t durable_lsn;

	for (unsigned i = 0; i < COUNT; i++)
		(void)CHECK_ASK(&kept->beds[i].host, "fence ring %u", EPOCH + 1);
	for (unsigned i = 0; i < HELD_COUNT; i++)
		wire_let_go(&kept->wires[i]);
	do {
		may_fail(farlog_poll(kept->writer, &durable_lsn)); /* what it came to is asked below */
		usleep(1000);
	} while ((atomic_load_acquire(&region->is_fence_lsn_pending) || region->fence_lsn == UINT64_MAX ||
				 !writer_is_fenced(kept->writer)) &&
		clock_monotonic_ns() < until_ns);
	CHECK(clock_monotonic_ns() < until_ns);
}

/* is_found_without_last -- by the next writer, when the last member is lost. */
static bool is_found_without_last(struct kept *kept, uint64_t lsn)
{
	struct farlog_writer_config config = {
		.level = FARLOG_LEVEL_VISIBLE, .epoch = EPOCH + 1, .counters_dir = "", .deadline_ns = LONG_NS};
	struct farlog_error error = {0};
	struct farlog_position found;
	farlog_writer *next = NULL;
	char uri[640];
	bool is_found = false;

	for (unsigned i = 0; i < COUNT; i++)
		host_kill(&kept->beds[i].host);
	unlink(kept->beds[HELD_COUNT].path);
	snprintf(uri, sizeof(uri), "members:2 %s %s %s", kept->beds[0].local_uri, kept->beds[1].local_uri,
		kept->beds[2].local_uri);
	if (CHECK_OK(farlog_writer_open(uri, &config, &next, &error)))
		is_found = farlog_resolve(next, lsn, LONG_NS, &found) == FARLOG_OK && found.epoch == EPOCH;
	(void)farlog_writer_close(next);
	return is_found;
}

/* What one member has is not acknowledged where two are needed, and resolve does not say that it is. */
void test_kept_by_one(void)
{
	struct farlog_position position = {0};
	struct farlog_position found;
	struct kept kept;

	if (make(&kept)) {
		for (uint64_t i = 0; i < 20; i++)
			CHECK(append_number(kept.writer, i, LONG_NS, &position) == FARLOG_OK);
		await_whole(&kept, position.end_lsn);
		position = come_to_one(&kept);
		fence_all(&kept);
		CHECK(farlog_resolve(kept.writer, position.lsn, SHORT_NS, &found) == FARLOG_UNKNOWN);
		kept.writer->deadline_ns = SHORT_NS; /* of its close */
		(void)farlog_writer_close(kept.writer);
		kept.writer = NULL;
		CHECK(!is_found_without_last(&kept, position.lsn));
	}
	(void)farlog_writer_close(kept.writer);
	for (unsigned i = 0; i < HELD_COUNT; i++)
		wire_close(&kept.wires[i]);
	for (unsigned i = 0; i < COUNT; i++)
		bed_free(&kept.beds[i]);
}
