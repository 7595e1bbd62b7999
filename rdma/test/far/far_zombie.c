/* far_zombie.c -- writers that were fenced while they did not look: they learn it whatever has happened to the target
 * meanwhile, and what they are told of their records is what the log holds.
 *
 * A writer that makes no call does not notice that its connection has ended: it is the zombie, without a process that
 * must be stopped. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "far_test.h"
#include "far/region.h"
#include "log/writer.h"

#define DEADLINE_NS 5000000000ull

farlog_writer *open_with_records(struct bed *bed, uint64_t count, struct farlog_position *position)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	if (!bed_make(bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") || !CHECK_ASK(&bed->host, "grant ring 0 2 a"))
		return NULL;
	writer = open_far_writer(bed, "", 2, 'a', &error);
	CHECK_OK(error.result);
	for (uint64_t i = 0; i < count && writer != NULL; i++)
		CHECK(append_number(writer, i, LONG_NS, position) == FARLOG_OK);
	return writer;
}

/* take_over -- as the control plane does it, at a target that has just been started, too: the fence, then who is let in
 * and who was. */
static bool take_over(struct bed *bed)
{
	if (!CHECK_ASK(&bed->host, "fence ring 5"))
		return false;
	CHECK(!host_ask(&bed->host, "grant ring 0 2 a") && strncmp(bed->host.reply, "FENCED", 6) == 0);
	return CHECK_ASK(&bed->host, "grant ring 0 5 c");
}

/* is_told -- FENCED, within the deadline, by the epoch that fenced it, and ever after. */
static void is_told(farlog_writer *zombie, uint32_t epoch)
{
	struct farlog_position position;

	for (unsigned i = 0; i < 2; i++) {
		int result = append_number(zombie, 99, DEADLINE_NS, &position);

		if (result != FARLOG_FENCED || position.epoch != epoch) {
			printf("far: %s: the zombie's append gave %s, epoch %u\n", now_testing, farlog_result_name(result),
				position.epoch);
			failed++;
		}
	}
}

static void restarted(void)
{
	struct farlog_position position;
	struct farlog_error error;
	struct bed bed;
	farlog_writer *zombie = open_with_records(&bed, 20, &position);

	snprintf(now_testing, sizeof(now_testing), "zombie: target restarted");
	if (zombie != NULL) {
		host_kill(&bed.host);
		if (bed_again(&bed) && take_over(&bed)) {
			is_told(zombie, 5);
			/* Nor does anybody else come in by that token. */
			CHECK(open_far_writer(&bed, "", 2, 'a', &error) == NULL && error.result != FARLOG_OK);
		}
	}
	farlog_writer_close(zombie);
	bed_free(&bed);
}

/* The target is started again when the next writer has gone on, and the fence is confirmed again above its records. */
static void restarted_late(void)
{
	struct farlog_position position;
	struct farlog_error error = {0};
	struct bed bed;
	farlog_writer *zombie = open_with_records(&bed, 20, &position);
	farlog_writer *next = NULL;

	snprintf(now_testing, sizeof(now_testing), "zombie: target restarted after the next writer");
	if (zombie == NULL || !take_over(&bed))
		goto done;
	next = open_far_writer(&bed, "", 5, 'c', &error);
	CHECK_OK(error.result);
	for (uint64_t i = 20; i < 50 && next != NULL; i++)
		CHECK(append_number(next, i, LONG_NS, &position) == FARLOG_OK);
	host_kill(&bed.host);
	if (!bed_again(&bed) || !take_over(&bed))
		goto done;
	is_told(zombie, 5);
	CHECK(append_number(next, 50, LONG_NS, &position) == FARLOG_OK);
done:
	farlog_writer_close(zombie);
	farlog_writer_close(next);
	bed_free(&bed);
}

static int persist_nothing(struct far_link *link, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	(void)link, (void)spans, (void)span_count, (void)tag;
	return FARLOG_IO;
}

/* break_unseen -- the connection ends, and the writer finds out at its next flush. */
static void break_unseen(farlog_writer *writer)
{
	static struct far_link_ops ops;
	struct far_link *link = far_of(writer->region)->link;

	ops = *link->ops;
	ops.persist = persist_nothing;
	link->ops->disconnect(link);
	link->ops = &ops;
}

/* land -- the bytes of a record that is staged in the writer's copy reach the ring, and nobody tells the writer. */
static void land(const struct bed *bed, farlog_writer *writer, const struct farlog_position *position)
{
	uint64_t off = LAYOUT_DATA_OFF + position->lsn; /* in the first lap */
	size_t len = position->end_lsn - position->lsn;
	int fd = open(bed->path, O_WRONLY);

	CHECK(fd >= 0 && pwrite(fd, far_of(writer->region)->link->copy + off, len, (off_t)off) == (ssize_t)len);
	close(fd);
}

/* Of two records under way when the connection broke the first one landed. The next writer, on the target's own host,
 * found it and went on behind it; no fence was asked for since the zombie was let in, and the one before that knows
 * nothing of its records. */
static void resolved(void)
{
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_VISIBLE, .counters_dir = ""};
	struct farlog_entry entry = {.data = "late", .len = 4};
	struct farlog_position position;
	struct farlog_position late[2];
	struct farlog_error error = {0};
	struct bed bed;
	farlog_writer *next = NULL;
	farlog_writer *zombie = NULL;
	uint64_t closing_ns;

	snprintf(now_testing, sizeof(now_testing), "zombie: records under way");
	if (!bed_make(&bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") || !CHECK_ASK(&bed.host, "fence ring 5") ||
		!CHECK_ASK(&bed.host, "grant ring 0 5 a"))
		goto done;
	zombie = open_far_writer(&bed, "", 5, 'a', &error);
	if (!CHECK_OK(error.result))
		goto done;
	for (uint64_t i = 0; i < 20; i++)
		CHECK(append_number(zombie, i, LONG_NS, &position) == FARLOG_OK);
	break_unseen(zombie);
	await_no_writer(&bed);
	CHECK(farlog_submit(zombie, &entry, &late[0]) == FARLOG_OK && farlog_submit(zombie, &entry, &late[1]) == FARLOG_OK);
	land(&bed, zombie, &late[0]);
	if (!CHECK_OK(farlog_writer_open(bed.local_uri, &config, &next, &error)))
		goto done;
	CHECK(farlog_writer_recovery(next)->tail_lsn == late[0].end_lsn);
	for (uint64_t i = 20; i < 30; i++)
		CHECK(append_number(next, i, LONG_NS, &position) == FARLOG_OK);
	CHECK(farlog_wait(zombie, late[0].end_lsn, DEADLINE_NS / 10) == FARLOG_UNKNOWN);
	CHECK(farlog_resolve(zombie, late[0].lsn, DEADLINE_NS, &position) == FARLOG_OK);
	CHECK(position.level == bed.level && position.epoch == 5 && position.end_lsn == late[0].end_lsn);
	CHECK(farlog_resolve(zombie, late[1].lsn, DEADLINE_NS, &position) == FARLOG_FENCED);
	is_told(zombie, 6);
	/* Nor does its close wait for what no target will answer. */
	closing_ns = clock_monotonic_ns();
	CHECK(farlog_writer_close(zombie) == FARLOG_UNKNOWN);
	CHECK(clock_monotonic_ns() - closing_ns < DEADLINE_NS);
	zombie = NULL;
done:
	farlog_writer_close(zombie);
	farlog_writer_close(next);
	bed_free(&bed);
}

/* A ring that is formatted again under its target is another one: who wrote to the one before does not come back to it,
 * and nobody is let in until the target has been told to serve it. */
void test_formatted_again(void)
{
	struct farlog_ring_config config = {
		.size_bytes = RING_BYTES, .record_len_max = 8192, .is_forced = 1, .stream_name = "far"};
	struct farlog_entry entry = {.data = "late", .len = 4};
	struct farlog_position position;
	struct farlog_error error = {0};
	struct bed bed;
	farlog_writer *next = NULL;
	farlog_writer *old = open_with_records(&bed, 20, &position);
	int result;

	if (old == NULL)
		goto done;
	break_unseen(old);
	await_no_writer(&bed);
	if (!CHECK_OK(farlog_ring_format(bed.local_uri, &config, &error)))
		goto done;
	result = farlog_append(old, &entry, DEADLINE_NS / 10, &position);
	CHECK(result == FARLOG_UNKNOWN || result == FARLOG_CLOSED);
	CHECK(!host_ask(&bed.host, "fence ring 3") && strncmp(bed.host.reply, "NOT_A_RING", 10) == 0);
	CHECK(host_ask(&bed.host, "grant ring 0 4 b"));
	CHECK(open_far_writer(&bed, "", 4, 'b', &error) == NULL && error.result == FARLOG_NOT_A_RING);
	CHECK(host_ask(&bed.host, "forget ring"));
	if (!CHECK_ASK(&bed.host, "serve ring %s tenant", bed.local_uri) || !CHECK_ASK(&bed.host, "grant ring 0 4 b"))
		goto done;
	next = open_far_writer(&bed, "", 4, 'b', &error);
	CHECK_OK(error.result);
	CHECK(next != NULL && farlog_writer_recovery(next)->tail_lsn == 0);
	old->deadline_ns = DEADLINE_NS / 10;
done:
	farlog_writer_close(old);
	farlog_writer_close(next);
	bed_free(&bed);
}

/* An opening that fails after its token was accepted leaves the token for another attempt; an opening that succeeded
 * has used the token up, also when its connection has ended. */
void test_token(void)
{
	struct farlog_error error = {0};
	farlog_writer *writer = NULL;
	struct bed asking_more;
	struct bed bed;

	if (!bed_make(&bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") || !CHECK_ASK(&bed.host, "grant ring 0 2 a"))
		goto done;
	asking_more = bed;
	asking_more.level = FARLOG_LEVEL_PERSISTENT;
	for (unsigned i = 0; i < 2; i++)
		CHECK(open_far_writer(&asking_more, "", 2, 'a', &error) == NULL && error.result == FARLOG_LEVEL);
	writer = open_far_writer(&bed, "", 2, 'a', &error);
	CHECK_OK(error.result);
	CHECK(open_far_writer(&bed, "", 2, 'a', &error) == NULL && error.result == FARLOG_HELD);
	farlog_writer_close(writer);
	CHECK(open_far_writer(&bed, "", 2, 'a', &error) == NULL && error.result == FARLOG_HELD);
done:
	bed_free(&bed);
}

/* A grant has expired: its token opens no more connections, also if an opening with it failed before. Open connections
 * stay. */
static void expired(void)
{
	struct farlog_error error = {0};
	struct farlog_position position;
	farlog_writer *writer = NULL;
	struct bed asking_more;
	struct bed bed;

	if (!bed_make(&bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") || !CHECK_ASK(&bed.host, "grant ring 0 2 a 1500"))
		goto done;
	asking_more = bed;
	asking_more.level = FARLOG_LEVEL_PERSISTENT;
	CHECK(open_far_writer(&asking_more, "", 2, 'a', &error) == NULL && error.result == FARLOG_LEVEL);
	usleep(1600000); /* what is tested is that this passes */
	CHECK(open_far_writer(&bed, "", 2, 'a', &error) == NULL && error.result == FARLOG_INVALID &&
		strstr(error.text, "expired") != NULL);
	if (!CHECK_ASK(&bed.host, "grant ring 0 3 b 1500"))
		goto done;
	writer = open_far_writer(&bed, "", 3, 'b', &error);
	CHECK_OK(error.result);
	usleep(1600000);
	CHECK(writer != NULL && append_number(writer, 0, DEADLINE_NS, &position) == FARLOG_OK);
done:
	farlog_writer_close(writer);
	bed_free(&bed);
}

/* A fence is confirmed only when the provider has closed key and endpoint; until then nobody else is let in, and nobody
 * is told that the ring is gone. */
static void unconfirmed(void)
{
	static const char *const texts[] = {
		"", "did not close the memory region", "did not close the endpoint", "did not close the memory region"};

	for (unsigned fails = 1; fails <= 3; fails++) {
		struct farlog_position position;
		struct farlog_error error = {0};
		struct bed bed;
		farlog_writer *zombie = open_with_records(&bed, 20, &position);
		farlog_writer *next = NULL;

		snprintf(now_testing, sizeof(now_testing), "zombie: revocation that fails, %u", fails);
		if (zombie == NULL || !CHECK_ASK(&bed.host, "fault %u", fails))
			goto done;
		for (unsigned i = 0; i < 2; i++) {
			CHECK(!host_ask(&bed.host, "fence ring 5") && strncmp(bed.host.reply, "IO ", 3) == 0);
			CHECK(strstr(bed.host.reply, "not confirmed") != NULL && strstr(bed.host.reply, texts[fails]) != NULL);
		}
		CHECK(!host_ask(&bed.host, "forget ring") && strncmp(bed.host.reply, "IO ", 3) == 0);
		(void)CHECK_ASK(&bed.host, "grant ring 0 5 c");
		CHECK(open_far_writer(&bed, "", 5, 'c', &error) == NULL && error.result == FARLOG_HELD);
		(void)CHECK_ASK(&bed.host, "fault 0");
		if (!CHECK_ASK(&bed.host, "fence ring 5"))
			goto done;
		is_told(zombie, 5);
		next = open_far_writer(&bed, "", 5, 'c', &error);
		CHECK_OK(error.result);
	done:
		farlog_writer_close(zombie);
		farlog_writer_close(next);
		bed_free(&bed);
	}
}

/* The zombie comes back between the order of a fence and its confirmation: that it is fenced it hears at once, where
 * its log ended when that is known, and so what became of what it had under way. */
static void told_before_confirmed(void)
{
	struct farlog_entry entry = {.data = "late", .len = 4};
	struct farlog_position acknowledged;
	struct farlog_position late;
	struct bed bed;
	farlog_writer *zombie = open_with_records(&bed, 20, &acknowledged);
	uint64_t until_ns = clock_after_ns(LONG_NS);
	uint64_t durable_lsn;

	snprintf(now_testing, sizeof(now_testing), "zombie: told before the fence is confirmed");
	if (zombie == NULL || !CHECK_ASK(&bed.host, "fault 1"))
		goto done;
	CHECK(!host_ask(&bed.host, "fence ring 5") && strstr(bed.host.reply, "not confirmed") != NULL);
	break_unseen(zombie);
	CHECK(farlog_submit(zombie, &entry, &late) == FARLOG_OK);
	while (farlog_poll(zombie, &durable_lsn) != FARLOG_FENCED && clock_monotonic_ns() < until_ns)
		usleep(1000);
	CHECK(farlog_poll(zombie, &durable_lsn) == FARLOG_FENCED && durable_lsn == acknowledged.end_lsn);
	CHECK(farlog_wait(zombie, late.end_lsn, DEADLINE_NS / 10) == FARLOG_UNKNOWN);
	(void)CHECK_ASK(&bed.host, "fault 0");
	if (!CHECK_ASK(&bed.host, "fence ring 5"))
		goto done;
	CHECK(farlog_resolve(zombie, late.lsn, DEADLINE_NS, &late) == FARLOG_FENCED);
	CHECK(farlog_resolve(zombie, acknowledged.lsn, DEADLINE_NS, &acknowledged) == FARLOG_OK);
	is_told(zombie, 5);
done:
	farlog_writer_close(zombie);
	bed_free(&bed);
}

void test_zombie(void)
{
	told_before_confirmed();
	expired();
	unconfirmed();
	resolved();
	restarted();
	restarted_late();
}
