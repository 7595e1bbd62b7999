/* far_comeback.c -- a drain whose connections to targets break and come back between what it sees and what it does.
 * In between the target's host was without power, and what nobody had flushed is gone; or another drain was in. A
 * drain looks again before it releases anything: a record that it gave out lies, durable, on as many members as are
 * needed, and no head goes back. */
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "far_test.h"
#include "ring/layout.h"
#include "members/reader.h"
#include "ring/record.h"
#include "adversary/memory.h"

#define COUNT 2u
#define RECORD_COUNT 40u
#define BATCH_LEN 2048u /* less than an epoch of RECORD_COUNT records */
#define FIRST_LEN 128u  /* of an EPOCH record */
#define LOOKS_MAX 200u

/* Where in a release the connection to a member breaks: before its flush of that number, 0 = before none. */
struct plan {
	const char *name;
	unsigned member;
	unsigned flush;
	bool is_epoch_new; /* the records are of the epoch before the newest */
};

struct stream {
	struct bed beds[COUNT];
	farlog_reader *drain;
	uint8_t header[LAYOUT_DATA_OFF]; /* of the second ring, before the newest epoch */
	uint64_t begun_lsn;              /* of that */
	uint64_t end_lsn;
};

/* ---------------------------------------------------------------- rings in files, and what happens to them */

static void put(const struct bed *bed, uint64_t off, const void *bytes, size_t len)
{
	int fd = open(bed->path, O_WRONLY | O_CLOEXEC);

	CHECK(fd >= 0 && pwrite(fd, bytes, len, (off_t)off) == (ssize_t)len);
	close(fd);
}

static void take(const struct bed *bed, uint64_t off, void *bytes, size_t len)
{
	int fd = open(bed->path, O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0 && pread(fd, bytes, len, (off_t)off) == (ssize_t)len);
	close(fd);
}

/* forget -- what a power cut may take of a ring: words that nobody flushed, and records. */
static void forget(const struct bed *bed, uint64_t from_lsn, uint64_t to_lsn)
{
	uint8_t *zeros = calloc(1, to_lsn - from_lsn + 16);

	put(bed, LAYOUT_TAIL_HINT_OFF, zeros, 16);
	put(bed, LAYOUT_DATA_OFF + from_lsn, zeros, to_lsn - from_lsn);
	free(zeros);
}

static bool serve_drain(struct bed *bed)
{
	return CHECK_ASK(&bed->host, "grant ring 1 0 d");
}

/* return_after -- the target's host is without power, something is done to the ring, and it is there again, to the
 * same drain. */
static void return_after(struct bed *bed, void (*act)(void *context), void *context)
{
	host_kill(&bed->host);
	act(context);
	(void)(bed_again(bed) && serve_drain(bed));
}

/* await_back -- the region has found out, and has another connection. */
static void await_back(struct region *region, uint64_t reconnect_count)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);

	while (region->reconnect_count == reconnect_count && clock_monotonic_ns() < until_ns) {
		may_fail(region->ops->data.poll(region)); /* what it came to is asked below */
		usleep(1000);
	}
	CHECK(region->reconnect_count > reconnect_count);
}

/* write_epoch -- records by a writer of these rings, which dies before it can say how far they go. */
static uint64_t write_epoch(const char *uri, struct bed *beds, unsigned count, uint64_t *begun_lsn)
{
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .counters_dir = "", .deadline_ns = LONG_NS};
	struct farlog_position position = {0};
	struct farlog_error error = {0};
	farlog_writer *writer = NULL;

	if (CHECK_OK(farlog_writer_open(uri, &config, &writer, &error))) {
		*begun_lsn = farlog_writer_recovery(writer)->tail_lsn;
		for (uint64_t i = 0; i < RECORD_COUNT; i++)
			CHECK(append_number(writer, i, LONG_NS, &position) == FARLOG_OK);
	}
	(void)farlog_writer_close(writer);
	for (unsigned i = 0; i < count; i++)
		forget(&beds[i], 0, 0);
	return position.end_lsn;
}

static farlog_reader *open_drain(const char *uri)
{
	uint8_t tokens[COUNT * FARLOG_TOKEN_LEN];
	struct farlog_reader_config config = {.is_drain = 1, .grant_token = tokens};
	struct farlog_error error = {0};
	farlog_reader *drain = NULL;

	memset(tokens, 'd', sizeof(tokens));
	CHECK_OK(farlog_reader_open(uri, &config, &drain, &error));
	return drain;
}

static uint64_t head_of(const struct bed *bed)
{
	struct farlog_ring_status status = {0};
	struct farlog_error error = {0};

	CHECK_OK(farlog_ring_inspect(bed->local_uri, &status, &error));
	return status.head_lsn;
}

static uint8_t buffer[BATCH_LEN] __attribute__((aligned(64)));

/* read_batch -- until one comes: true; or it was looked for often enough. */
static bool read_batch(farlog_reader *drain, struct farlog_batch *batch)
{
	int result = FARLOG_NOT_YET;

	for (unsigned i = 0; i < LOOKS_MAX && result != FARLOG_OK; i++) {
		result = farlog_reader_read(drain, buffer, BATCH_LEN, batch);
		if (result != FARLOG_OK && result != FARLOG_NOT_YET && result != FARLOG_IO)
			break;
		if (result != FARLOG_OK)
			usleep(5000);
	}
	return result == FARLOG_OK;
}

/* ---------------------------------------------------------------- a power cut between a look and its flush */

static struct {
	struct region_ops ops;
	const struct region_ops *own;
	struct stream *stream;
	const struct plan *plan;
	unsigned flushes_left;
	uint64_t lost_lsn; /* from here on the member loses what it has */
} between;

static void lose(void *context)
{
	const struct bed *bed = &between.stream->beds[between.plan->member];

	(void)context;
	if (between.plan->is_epoch_new) /* nor was its superblock flushed */
		put(bed, 0, between.stream->header, sizeof(between.stream->header));
	forget(bed, between.lost_lsn, between.stream->end_lsn);
}

/* flush_behind_power_cut -- as the region's own, at that moment. */
static int flush_behind_power_cut(struct region *region, uint64_t off, uint64_t len)
{
	if (between.flushes_left > 0 && --between.flushes_left == 0) {
		uint64_t reconnect_count = region->reconnect_count;

		return_after(&between.stream->beds[between.plan->member], lose, NULL);
		await_back(region, reconnect_count);
	}
	return between.own->data.flush(region, off, len);
}

static void stand_between(struct stream *stream, const struct plan *plan)
{
	struct region *region = stream->drain->members->member[plan->member].reader->region;

	between.own = region->ops;
	between.ops = *region->ops;
	between.ops.data.flush = flush_behind_power_cut;
	between.stream = stream;
	between.plan = plan;
	between.flushes_left = plan->flush;
	region->ops = &between.ops;
}

static bool make(struct stream *stream, unsigned count)
{
	memset(stream, 0, sizeof(*stream));
	for (unsigned i = 0; i < count; i++)
		if (!bed_make(&stream->beds[i], "/var/tmp", "ofi:tcp://127.0.0.1:0") || !serve_drain(&stream->beds[i]))
			return false;
	return true;
}

static void unmake(struct stream *stream)
{
	farlog_reader_close(stream->drain);
	for (unsigned i = 0; i < COUNT; i++)
		if (stream->beds[i].path[0] != '\0')
			bed_free(&stream->beds[i]);
}

/* open_members -- a stream that needs both of its members, whose targets stand still while it is written. */
static bool open_members(struct stream *stream, bool is_epoch_new)
{
	char uri[512];

	snprintf(uri, sizeof(uri), "members:2 %s %s", stream->beds[0].local_uri, stream->beds[1].local_uri);
	for (unsigned i = 0; i < COUNT; i++)
		host_kill(&stream->beds[i].host);
	stream->end_lsn = write_epoch(uri, stream->beds, COUNT, &stream->begun_lsn);
	take(&stream->beds[1], 0, stream->header, sizeof(stream->header));
	if (is_epoch_new)
		stream->end_lsn = write_epoch(uri, stream->beds, COUNT, &stream->begun_lsn);
	for (unsigned i = 0; i < COUNT; i++)
		if (!bed_again(&stream->beds[i]) || !serve_drain(&stream->beds[i]))
			return false;
	snprintf(uri, sizeof(uri), "members:2 %s %s", stream->beds[0].uri, stream->beds[1].uri);
	stream->drain = open_drain(uri);
	return stream->drain != NULL;
}

/* is_given_out -- what was to be released, although one of the two members has lost it, or what shows that its log is
 * the newest. */
static bool is_given_out(const struct plan *plan)
{
	struct farlog_batch batch = {0};
	struct stream stream;
	bool is_given = false;

	snprintf(now_testing, sizeof(now_testing), "comeback: %s", plan->name);
	if (make(&stream, COUNT) && open_members(&stream, plan->is_epoch_new)) {
		stream.drain->members->current = 0;
		between.lost_lsn = plan->is_epoch_new ? stream.begun_lsn : 0;
		stand_between(&stream, plan);
		is_given = read_batch(stream.drain, &batch);
		CHECK(between.flushes_left == 0);
	}
	unmake(&stream);
	return is_given;
}

/* What a member showed before its host was without power is not what is made durable there afterwards: it counts for
 * nothing. */
void test_comeback_members(void)
{
	static const struct plan plans[] = {
		{"of the member that is read", 0, 1, false},
		{"of another one that is compared", 1, 1, false},
		{"of another one that is asked for the newest epoch", 1, 2, true},
	};

	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		bool is_given = is_given_out(&plans[i]);

		CHECK(!is_given);
	}
}

/* ---------------------------------------------------------------- a release behind a comeback */

/* drain_all -- another drain, beside the ring. */
static void drain_all(void *context)
{
	const struct bed *bed = context;
	struct farlog_reader_config config = {.is_drain = 1};
	struct farlog_error error = {0};
	struct farlog_batch batch;
	farlog_reader *drain = NULL;

	if (CHECK_OK(farlog_reader_open(bed->local_uri, &config, &drain, &error)))
		while (farlog_reader_read(drain, buffer, BATCH_LEN, &batch) == FARLOG_OK)
			CHECK(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch) == FARLOG_OK);
	farlog_reader_close(drain);
}

static int release(farlog_reader *drain, const struct farlog_batch *batch)
{
	return farlog_reader_release(drain, batch->next_lsn, batch->next_seq, batch->last_epoch);
}

/* release_behind_another -- a drain has read a batch more than it released, and another one has moved a member's head
 * further meanwhile. The member's head. */
static uint64_t release_behind_another(uint64_t *end_lsn)
{
	struct farlog_batch batch = {0};
	struct stream stream;
	uint64_t head_lsn = 0;

	snprintf(now_testing, sizeof(now_testing), "comeback: behind another drain");
	if (make(&stream, COUNT) && open_members(&stream, false)) {
		struct region *region = stream.drain->members->member[1].reader->region;
		uint64_t reconnect_count = region->reconnect_count;

		CHECK(read_batch(stream.drain, &batch) && release(stream.drain, &batch) == FARLOG_OK &&
			read_batch(stream.drain, &batch));
		return_after(&stream.beds[1], drain_all, &stream.beds[1]);
		await_back(region, reconnect_count);
		CHECK(release(stream.drain, &batch) == FARLOG_HELD);
		head_lsn = head_of(&stream.beds[1]);
		CHECK(batch.next_lsn < stream.end_lsn);
	}
	*end_lsn = stream.end_lsn;
	unmake(&stream);
	return head_lsn;
}

/* A member's head never goes back: who drains it by now is asked when the connection is another one. */
void test_comeback_head(void)
{
	uint64_t end_lsn;
	uint64_t head_lsn = release_behind_another(&end_lsn);

	CHECK(head_lsn == end_lsn);
}

/* rewrite -- a power cut takes all but the first record of the epoch, and the next writer begins behind that. */
static void rewrite(void *context)
{
	struct stream *stream = context;

	forget(&stream->beds[0], stream->begun_lsn + FIRST_LEN, stream->end_lsn);
	stream->end_lsn = write_epoch(stream->beds[0].local_uri, stream->beds, 1, &stream->begun_lsn);
}

/* release_what_was_lost -- of one ring: what the drain read is gone, and other records lie there. How far the head
 * has come. */
static uint64_t release_what_was_lost(uint64_t *begun_lsn)
{
	struct farlog_batch batch = {0};
	struct stream stream;
	uint64_t head_lsn = 0;
	int result;

	snprintf(now_testing, sizeof(now_testing), "comeback: one ring");
	if (make(&stream, 1)) {
		host_kill(&stream.beds[0].host);
		stream.end_lsn = write_epoch(stream.beds[0].local_uri, stream.beds, 1, &stream.begun_lsn);
		if (bed_again(&stream.beds[0]) && serve_drain(&stream.beds[0]))
			stream.drain = open_drain(stream.beds[0].uri);
	}
	if (stream.drain != NULL) {
		uint64_t reconnect_count = stream.drain->region->reconnect_count;

		CHECK(read_batch(stream.drain, &batch));
		return_after(&stream.beds[0], rewrite, &stream);
		await_back(stream.drain->region, reconnect_count);
		CHECK(stream.begun_lsn == FIRST_LEN && batch.next_lsn > FIRST_LEN);
		result = release(stream.drain, &batch);
		head_lsn = head_of(&stream.beds[0]);
		CHECK(result != FARLOG_OK);
		CHECK(read_batch(stream.drain, &batch) && batch.is_rewound && batch.last_epoch == 2);
	}
	*begun_lsn = stream.begun_lsn;
	unmake(&stream);
	return head_lsn;
}

/* A head is not moved over records that were never read, where those that were have gone. */
void test_comeback_ring(void)
{
	uint64_t begun_lsn;
	uint64_t head_lsn = release_what_was_lost(&begun_lsn);

	CHECK(head_lsn <= begun_lsn);
}
