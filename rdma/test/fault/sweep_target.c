/* sweep_target.c -- a target over libfabric and its clients, in one process, while a call fails at either end. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "calls.h"
#include "sweep_world.h"

#define LISTEN_URI "ofi:tcp://127.0.0.1:0"

static farlog_target *target;
static farlog_writer *remote; /* one that was opened before a call fails */
static char remote_uri[160];

static struct farlog_grant grant_of(uint32_t epoch)
{
	struct farlog_grant grant = {.role = FARLOG_GRANT_WRITER, .epoch = epoch};

	memset(grant.token, (int)epoch, sizeof(grant.token));
	return grant;
}

static int grant(uint32_t epoch)
{
	struct farlog_grant granted = grant_of(epoch);

	return farlog_target_grant(target, "ring", &granted, &run.error);
}

bool target_is_possible(void)
{
	int result = farlog_target_open(LISTEN_URI, &target, &run.error);

	if (result == FARLOG_OK)
		farlog_target_close(target);
	target = NULL;
	return result != FARLOG_UNSUPPORTED;
}

static int open_remote(uint32_t epoch, farlog_writer **writer)
{
	struct farlog_grant granted = grant_of(epoch);
	struct farlog_writer_config config = sweep_writer;

	config.epoch = epoch;
	config.grant_token = granted.token;
	return farlog_writer_open(remote_uri, &config, writer, &run.error);
}

static void end_target(void)
{
	farlog_target_close(target);
	target = NULL;
}

int run_listen(void)
{
	int result = farlog_target_open(LISTEN_URI, &target, &run.error);

	if (result == FARLOG_OK)
		result = farlog_target_serve(target, "ring", run.uri, NULL, &run.error);
	if (result == FARLOG_OK)
		result = grant(5);
	if (result == FARLOG_OK)
		snprintf(remote_uri, sizeof(remote_uri), "%s/ring", farlog_target_uri(target));
	return result;
}

int make_target(void)
{
	calls_follow_threads();
	return run_listen();
}

/* append_remote -- by a writer of its own. */
static int append_remote(uint32_t epoch, uint64_t first)
{
	farlog_writer *writer;
	int result = open_remote(epoch, &writer);
	int closed;

	if (result != FARLOG_OK)
		return result;
	for (unsigned i = 0; i < APPENDS && result == FARLOG_OK; i++)
		result = append_one(writer, first + i);
	closed = farlog_writer_close(writer);
	return result != FARLOG_OK ? result : closed;
}

int run_remote(void)
{
	return append_remote(5, RECORDS + 1);
}

int make_remote(void)
{
	int result = make_target();

	if (result == FARLOG_OK)
		result = open_remote(5, &remote);
	return result == FARLOG_OK ? append_one(remote, RECORDS + 1) : result;
}

int run_remote_living(void)
{
	int result = FARLOG_OK;

	for (unsigned i = 1; i < APPENDS && result == FARLOG_OK; i++)
		result = append_one(remote, RECORDS + 1 + i);
	return result;
}

int run_remote_fence(void)
{
	return farlog_target_fence(target, "ring", 6, NULL, &run.error);
}

/* judge_listen -- a target that listens lets its client in; one that does not can be started once more. */
void judge_listen(int result)
{
	if (result != FARLOG_OK) {
		end_target();
		result = run_listen();
	}
	if (result == FARLOG_OK)
		result = append_remote(5, RECORDS + 1);
	end_target();
	if (result != FARLOG_OK)
		FAIL("listened, and appended: %s: %s", farlog_result_name(result), run.error.text);
	else
		judge_records(0, NULL);
}

/* judge_remote -- a client that was not let in, or has lost its connection, is let in by the next grant. */
void judge_remote(int result)
{
	for (unsigned i = RECORDS + 1; result == FARLOG_OK && i <= RECORDS + APPENDS; i++)
		if (!run.is_acked[i])
			FAIL("OK, and record %u was not acknowledged", i);
	if (remote != NULL)
		may_fail(farlog_writer_close(remote)); /* what it was told before counts */
	remote = NULL;
	result = run_remote_fence();
	if (result == FARLOG_OK)
		result = grant(6);
	if (result == FARLOG_OK)
		result = append_remote(6, RECORDS + 1 + APPENDS);
	end_target();
	if (result != FARLOG_OK)
		FAIL("fenced, and appended by the next writer: %s: %s", farlog_result_name(result), run.error.text);
	else if (run.failure[0] == '\0')
		judge_records(0, NULL);
}

/* judge_remote_fence -- behind a confirmed fence nothing of the old writer is acknowledged any more; one that was not
 * confirmed can be ordered again, and the next writer is let in behind one alone. */
void judge_remote_fence(int result)
{
	int appended = append_one(remote, RECORDS + 2);

	if (result == FARLOG_OK && appended == FARLOG_OK)
		FAIL("a writer of epoch 5 appends to a ring fenced below 6");
	run.is_acked[RECORDS + 2] &= appended == FARLOG_OK;
	if (run.failure[0] == '\0')
		judge_remote(FARLOG_NOT_YET);
	else
		end_target();
}
