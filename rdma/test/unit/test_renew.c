/* What proves that a reader's grant is renewed as it should be: an agent that answers as farlogd host does, with a
 * token that tells how often it was asked, or not at all. How a reader goes on with it is pkg/internal/e2e's to
 * show. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "agent/renew.h"
#include "base/clock.h"
#include "log/reader.h"
#include "log/reader_grant.h"
#include "unit.h"

#define PATIENCE_NS 30000000000u

struct fake_agent {
	struct stream_uri place;
	int listener;
	bool is_silent;
	uint64_t asked_count;
	pthread_t thread;
};

static void *answer_all(void *of)
{
	struct fake_agent *agent = of;
	int conn;

	while ((conn = accept(agent->listener, NULL, NULL)) >= 0) {
		char asked[AGENT_PACKET_LEN_MAX];
		char answer[512];
		uint64_t count = __atomic_add_fetch(&agent->asked_count, 1, __ATOMIC_RELEASE);

		assert_true(recv(conn, asked, sizeof(asked), 0) > 0);
		snprintf(answer, sizeof(answer),
			"ok\nuri members:1 ofi:tcp://127.0.0.1:1/a ofi:tcp://127.0.0.1:1/b\nuuid %032x%032x\ntoken %032x%032x\n", 1,
			2, 0, 100 + (unsigned)count);
		if (agent->is_silent)
			(void)recv(conn, asked, sizeof(asked), 0); /* until it has gone */
		else
			assert_true(send(conn, answer, strlen(answer), MSG_NOSIGNAL) > 0);
		close(conn);
	}
	return NULL;
}

static void start_agent(struct fake_agent *agent)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(agent->place.socket_path, sizeof(agent->place.socket_path), "/tmp/farlog-unit-%ld", (long)getpid());
	snprintf(agent->place.stream, sizeof(agent->place.stream), "desk7/orders");
	strcpy(address.sun_path, agent->place.socket_path);
	unlink(address.sun_path);
	agent->listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	assert_int_equal(bind(agent->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(agent->listener, 8), 0);
	assert_int_equal(pthread_create(&agent->thread, NULL, answer_all, agent), 0);
}

static void end_agent(struct fake_agent *agent)
{
	shutdown(agent->listener, SHUT_RDWR);
	pthread_join(agent->thread, NULL);
	close(agent->listener);
	unlink(agent->place.socket_path);
}

/* granted -- what the agent gave when the reader was opened: two rings, of which the first is on this host. */
static struct agent_rings granted(void)
{
	struct agent_rings rings = {.is_remote = true};

	rings.uuid[15] = 1;
	rings.uuid[31] = 2;
	rings.token[31] = 99;
	return rings;
}

/* refuse -- until there is another token, or, when none is wanted, for as long as the agent takes to be asked. */
static bool refuse(
	struct fake_agent *agent, struct region_renewal *renewal, const uint8_t *uuid, uint8_t *token, uint64_t until_asked)
{
	uint64_t until_ns = clock_after_ns(PATIENCE_NS);
	bool is_other = false;

	while (!is_other && clock_monotonic_ns() < until_ns &&
		__atomic_load_n(&agent->asked_count, __ATOMIC_ACQUIRE) < until_asked) {
		is_other = renewal->renew(renewal, uuid, token);
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	return is_other;
}

/* A token that is refused is replaced by what the agent says; who has an older one gets that without another question;
 * a ring on this host has none, and one that is not the stream's any more neither. */
static void renew__gives_another_token(void **state)
{
	struct fake_agent agent = {0};
	struct region_renewal *renewal;
	struct agent_rings rings = granted();
	uint8_t uuid[16] = {[15] = 2};
	uint8_t token[FARLOG_TOKEN_LEN] = {[15] = 99};
	uint64_t began_ns = clock_monotonic_ns();

	(void)state;
	start_agent(&agent);
	renewal = agent_renewal_new(&agent.place, &rings);
	assert_non_null(renewal);
	assert_true(refuse(&agent, renewal, uuid, token, 1000));
	assert_int_equal(token[15], 101);
	/* a target that was just started may still hear of the first one */
	assert_true(clock_monotonic_ns() - began_ns >= 1000000000u);
	token[15] = 99;
	assert_true(renewal->renew(renewal, uuid, token));
	assert_int_equal(token[15], 101);
	assert_int_equal(agent.asked_count, 1);
	uuid[15] = 1;
	assert_false(renewal->renew(renewal, uuid, token));
	uuid[15] = 3;
	assert_false(renewal->renew(renewal, uuid, token));
	renewal->free(renewal);
	end_agent(&agent);
	assert_true(agent.asked_count <= 2);
}

/* An agent that does not answer holds up neither who connects again nor who closes. */
static void renew__waits_for_nobody(void **state)
{
	struct fake_agent agent = {.is_silent = true};
	struct region_renewal *renewal;
	struct agent_rings rings = granted();
	uint8_t uuid[16] = {[15] = 2};
	uint8_t token[FARLOG_TOKEN_LEN] = {[15] = 99};
	uint64_t asked_ns;

	(void)state;
	start_agent(&agent);
	renewal = agent_renewal_new(&agent.place, &rings);
	assert_non_null(renewal);
	assert_false(refuse(&agent, renewal, uuid, token, 1));
	assert_int_equal(agent.asked_count, 1);
	asked_ns = clock_monotonic_ns();
	assert_false(renewal->renew(renewal, uuid, token));
	renewal->free(renewal);
	assert_true(clock_monotonic_ns() - asked_ns < 10000000000u); /* it would have waited for 15 s */
	assert_int_equal(token[15], 99);
	end_agent(&agent);
}

/* A reader that was opened by a token takes another one from its owner, for the ring that it is said for; where nothing
 * was said, or nothing new, a refusal stays one. One that was opened without has no use for any. */
static void renew__by_the_owner(void **state)
{
	struct reader_grants *grants = reader_grants_new();
	struct farlog_reader reader = {.grants = grants};
	uint8_t uuid[16] = {[15] = 2};
	uint8_t token[FARLOG_TOKEN_LEN] = {[15] = 99};
	uint8_t other[FARLOG_TOKEN_LEN] = {[15] = 100};
	struct region_renewal *renewal;

	(void)state;
	assert_non_null(grants);
	renewal = reader_grants_renewal(grants);
	assert_false(renewal->renew(renewal, uuid, token));
	assert_int_equal(farlog_reader_renew(&reader, uuid, other), FARLOG_OK);
	assert_true(renewal->renew(renewal, uuid, token));
	assert_int_equal(token[15], 100);
	assert_false(renewal->renew(renewal, uuid, token));
	other[15] = 101;
	assert_int_equal(farlog_reader_renew(&reader, uuid, other), FARLOG_OK);
	uuid[15] = 3;
	assert_false(renewal->renew(renewal, uuid, token));
	for (unsigned i = 1; i < FARLOG_MEMBER_COUNT_MAX; i++, uuid[15]++)
		assert_int_equal(farlog_reader_renew(&reader, uuid, other), FARLOG_OK);
	assert_int_equal(farlog_reader_renew(&reader, uuid, other), FARLOG_INVALID);
	assert_int_equal(farlog_reader_renew(&reader, NULL, other), FARLOG_INVALID);
	reader.grants = NULL;
	assert_int_equal(farlog_reader_renew(&reader, uuid, other), FARLOG_UNSUPPORTED);
	reader_grants_renewal(grants)->free(reader_grants_renewal(grants));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(renew__gives_another_token),
	cmocka_unit_test(renew__waits_for_nobody),
	cmocka_unit_test(renew__by_the_owner),
};

RUN_GROUP(renew, tests)
