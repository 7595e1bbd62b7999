/* agent/follow.c -- a thread of a writer that was opened by its stream's name: it asks the host agent every 5 s for the
 * stream's settings and member rings, and every 0.5 s while a member is away. */
#include "agent/grant.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"
#include "farlog/replace.h"
#include "log/writer.h"

#define ASK_TIMEOUT_NS 2000000000u
#define POLL_AWAY_NS 500000000u
#define POLL_NS 5000000000u
#define NS_PER_MS 1000000u
#define CLOSED_LINE "closed 1\n"
#define POLL_REJECTED_NS 30000000000u /* another writer has the stream */

struct agent_follower {
	struct writer_follower base; /* first */
	farlog_writer *writer;
	struct stream_uri place;
	bool is_level_given; /* by the program: takes precedence over the stream's. So the next two */
	bool is_policy_given;
	bool is_deadline_given;
	int stop_fd; /* eventfd: written when the thread is to end */
	pthread_t thread;
};

/* parse_ring -- of the member `index`. False: the reply has none, or not all of it. */
static bool parse_ring(
	const struct agent_reply *reply, unsigned index, char *uri, uint8_t *uuid, uint8_t *token, bool *has_token)
{
	char field[24];
	char text[2 * FARLOG_TOKEN_LEN + 1];

	snprintf(field, sizeof(field), "uri-%u", index);
	if (!agent_value(reply, field, uri, URI_PATH_LEN_MAX))
		return false;
	snprintf(field, sizeof(field), "uuid-%u", index);
	if (!agent_value(reply, field, text, sizeof(text)) || !agent_parse_hex(text, uuid, 16))
		return false;
	snprintf(field, sizeof(field), "token-%u", index);
	*has_token = agent_value(reply, field, text, sizeof(text));
	return !*has_token || agent_parse_hex(text, token, FARLOG_TOKEN_LEN);
}

static void replace_members(struct agent_follower *follower, const struct agent_reply *reply, unsigned count)
{
	char uri[URI_PATH_LEN_MAX];
	uint8_t uuid[16];
	uint8_t token[FARLOG_TOKEN_LEN];
	bool has_token;

	for (unsigned i = 0; i < count; i++)
		if (parse_ring(reply, i, uri, uuid, token, &has_token))
			/* On failure the member stays as it is, and the next reply names the ring again. */
			may_fail(farlog_writer_replace_member(
				follower->writer, i, &(struct farlog_member_ring){uri, uuid, has_token ? token : NULL}, NULL));
	explicit_bzero(token, sizeof(token));
}

static bool are_all_up(const struct farlog_writer_member *members, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (members[i].state != FARLOG_MEMBER_UP && members[i].state != FARLOG_MEMBER_LATE)
			return false;
	return true;
}

/* apply_settings -- the stream's, as it is declared now; without the level when the ring does not give it. An older
 * agent sends none. */
static void apply_settings(struct agent_follower *follower, const struct agent_reply *reply)
{
	struct farlog_writer_settings terms;
	uint64_t level, policy, deadline_ns;

	if (!agent_number(reply, "level", &level) || !agent_number(reply, "policy", &policy) ||
		!agent_number(reply, "deadline-ns", &deadline_ns))
		return;
	farlog_writer_settings_read(follower->writer, &terms);
	if (!follower->is_policy_given)
		terms.policy = (uint32_t)policy;
	if (!follower->is_deadline_given)
		terms.deadline_ns = deadline_ns;
	if (!follower->is_level_given && (uint32_t)level != terms.level) {
		struct farlog_writer_settings stronger = terms;

		stronger.level = (uint32_t)level;
		if (farlog_writer_settings_set(follower->writer, &stronger, NULL) == FARLOG_OK)
			return;
	}
	/* on failure the settings stay, and the agent is asked again */
	may_fail(farlog_writer_settings_set(follower->writer, &terms, NULL));
}

/* write_request -- with the rings and settings that the writer has. */
static void write_request(struct agent_follower *follower, const struct farlog_writer_member *members, unsigned count,
	char *request, size_t size)
{
	const uint8_t *only = follower->writer->superblock.ring_uuid;
	struct farlog_writer_settings terms;
	int len = snprintf(request, size, "farlog-agent 1 members\nstream %s\nepoch %u\nrings ", follower->place.stream,
		follower->writer->epoch);

	for (unsigned i = 0; i < 16 * (count != 0 ? count : 1); i++)
		len += snprintf(
			request + len, size - (size_t)len, "%02x", count != 0 ? members[i / 16].ring_uuid[i % 16] : only[i]);
	farlog_writer_settings_read(follower->writer, &terms);
	len += snprintf(request + len, size - (size_t)len, "\nlevel %u\npolicy %u\ndeadline-ns %lu\n", terms.level,
		terms.policy,
		terms.deadline_ns == follower->writer->region->contract.deadline_default_ns ? 0 :
																					  (unsigned long)terms.deadline_ns);
	if (follower->place.transport[0] != '\0')
		snprintf(request + len, size - (size_t)len, "transport %s\n", follower->place.transport);
}

/* ask_settings -- returns for how many nanoseconds not to ask again. */
static uint64_t ask_settings(
	struct agent_follower *follower, const struct farlog_writer_member *members, unsigned count)
{
	struct agent_reply reply;
	char request[1024];
	int result;

	write_request(follower, members, count, request, sizeof(request));
	result = agent_call_until(agent_socket(follower->place.socket_path), "members", request,
		clock_after_ns(ASK_TIMEOUT_NS), follower->stop_fd, &reply, NULL);
	if (result == FARLOG_OK) {
		replace_members(follower, &reply, count);
		apply_settings(follower, &reply);
	}
	explicit_bzero(&reply.text, sizeof(reply.text));
	return result == FARLOG_INVALID || result == FARLOG_UNSUPPORTED ? POLL_REJECTED_NS : 0;
}

/* is_stopped -- after a pause, which stop_fd ends. */
static bool is_stopped(struct agent_follower *follower, uint64_t pause_ns)
{
	struct pollfd stop_fd = {.fd = follower->stop_fd, .events = POLLIN};

	return poll(&stop_fd, 1, (int)(pause_ns / NS_PER_MS)) > 0;
}

static void *follow_loop(void *context)
{
	struct agent_follower *follower = context;
	struct farlog_writer_member members[MEMBER_COUNT_MAX];
	bool has_no_members = farlog_writer_members(follower->writer, members, MEMBER_COUNT_MAX) == 0;
	uint64_t ask_ns = 0;     /* when to ask while all members are up */
	uint64_t ask_min_ns = 0; /* not earlier, also while one is away */

	while (!is_stopped(follower, has_no_members ? POLL_NS : POLL_AWAY_NS)) {
		unsigned count = farlog_writer_members(follower->writer, members, MEMBER_COUNT_MAX);
		uint64_t now_ns = clock_monotonic_ns();

		if (now_ns < ask_min_ns || (now_ns < ask_ns && !has_no_members && are_all_up(members, count)))
			continue;
		ask_min_ns = clock_monotonic_ns() + ask_settings(follower, members, count);
		ask_ns = clock_after_ns(POLL_NS);
	}
	return NULL;
}

/* send_closed -- the last request, which has no reply. */
static void send_closed(struct agent_follower *follower)
{
	struct farlog_writer_member members[MEMBER_COUNT_MAX];
	unsigned count = farlog_writer_members(follower->writer, members, MEMBER_COUNT_MAX);
	char note[1024];

	write_request(follower, members, count, note, sizeof(note) - sizeof(CLOSED_LINE));
	strcat(note, CLOSED_LINE);
	agent_send_note(agent_socket(follower->place.socket_path), note);
}

static void end_follower(struct writer_follower *base, bool is_ended)
{
	struct agent_follower *follower = (struct agent_follower *)base;

	(void)eventfd_write(follower->stop_fd, 1);
	pthread_join(follower->thread, NULL);
	if (is_ended)
		send_closed(follower);
	close(follower->stop_fd);
	free(follower);
}

void agent_follow_settings(
	farlog_writer *writer, const struct farlog_writer_config *asked, const struct stream_uri *place)
{
	struct agent_follower *follower = calloc(1, sizeof(*follower));

	if (follower == NULL)
		return;
	follower->writer = writer;
	follower->place = *place;
	follower->is_level_given = asked->level != 0;
	follower->is_policy_given = asked->policy != 0;
	follower->is_deadline_given = asked->deadline_ns != 0;
	follower->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (follower->stop_fd < 0 || thread_start(&follower->thread, follow_loop, follower) != 0) {
		if (follower->stop_fd >= 0)
			close(follower->stop_fd);
		free(follower);
		return;
	}
	follower->base.end = end_follower;
	writer->follower = &follower->base;
}
