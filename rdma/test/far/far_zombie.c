/* far_zombie.c -- writers that were fenced while they did not look: they learn it whatever has happened to the target meanwhile, and what they
 * are told of their records is what the log holds.
 *
 * A writer that makes no call does not notice that its connection has ended: it is the zombie, without a process that must be stopped. */
#include <string.h>
#include <time.h>

#include "far_test.h"
#include "writer.h"

#define DEADLINE_NS 5000000000ull

static farlog_writer *open_zombie(struct bed *bed, uint64_t count, struct farlog_position *position)
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

/* take_over -- as the control plane does it, at a target that has just been started, too: the fence, then who is let in and who was. */
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
			printf("far: %s: the zombie's append gave %s, epoch %u\n", now_testing, farlog_result_name(result), position.epoch);
			failed++;
		}
	}
}

static void restarted(void)
{
	struct farlog_position position;
	struct farlog_error error;
	struct bed bed;
	farlog_writer *zombie = open_zombie(&bed, 20, &position);

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
	farlog_writer *zombie = open_zombie(&bed, 20, &position);
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

void test_zombie(void)
{
	restarted();
	restarted_late();
}
