/* agent/follow.c -- a writer that was opened by its stream's name asks the host agent, now and then, how the stream is
 * declared by now; and which rings its members are, often while one of them is not there. */
#include "agent/place.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "farlog/replace.h"
#include "log/writer.h"

#define ASK_NS 2000000000u /* for an answer */
#define PAUSE_AWAY_NS 500000000u
#define PAUSE_ALL_NS 5000000000u
#define NS_PER_MS 1000000u
#define END_LINE "closed 1\n"
#define PAUSE_REFUSED_NS 30000000000u /* another writer has the stream */

struct agent_follower {
	struct writer_follower base; /* first */
	farlog_writer *writer;
	struct stream_uri place;
	bool is_level_given; /* by the program, whose word goes before the stream's; and the next two */
	bool is_policy_given;
	bool is_deadline_given;
	int stop_fd; /* eventfd: written when the thread is to end */
	pthread_t thread;
};

/* take_ring -- what the agent says of one of them. False: nothing, or nothing that can be used. */
static bool take_ring(
	const struct agent_reply *reply, unsigned index, char *uri, uint8_t *uuid, uint8_t *token, bool *has_token)
{
	char word[24];
	char text[2 * FARLOG_TOKEN_LEN + 1];

	snprintf(word, sizeof(word), "uri-%u", index);
	if (!agent_value(reply, word, uri, URI_PATH_LEN_MAX))
		return false;
	snprintf(word, sizeof(word), "uuid-%u", index);
	if (!agent_value(reply, word, text, sizeof(text)) || !agent_take_hex(text, uuid, 16))
		return false;
	snprintf(word, sizeof(word), "token-%u", index);
	*has_token = agent_value(reply, word, text, sizeof(text));
	return !*has_token || agent_take_hex(text, token, FARLOG_TOKEN_LEN);
}

static void take_all(struct agent_follower *follower, const struct agent_reply *reply, unsigned count)
{
	char uri[URI_PATH_LEN_MAX];
	uint8_t uuid[16];
	uint8_t token[FARLOG_TOKEN_LEN];
	bool has_token;

	for (unsigned i = 0; i < count; i++)
		if (take_ring(reply, i, uri, uuid, token, &has_token))
			/* What fails is asked for again: the former member stays. */
			may_fail(farlog_writer_replace_member(
				follower->writer, i, &(struct farlog_member_ring){uri, uuid, has_token ? token : NULL}, NULL));
	explicit_bzero(token, sizeof(token));
}

/* are_all_there -- then nobody is in a hurry. */
static bool are_all_there(const struct farlog_writer_member *members, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (members[i].state != FARLOG_MEMBER_UP && members[i].state != FARLOG_MEMBER_LATE)
			return false;
	return true;
}

/* take_terms -- how the stream is declared; of a level that the ring does not give, all but that. Nothing is said by an
 * older agent. */
static void take_terms(struct agent_follower *follower, const struct agent_reply *reply)
{
	struct farlog_writer_terms terms;
	uint64_t level, policy, deadline_ns;

	if (!agent_take_number(reply, "level", &level) || !agent_take_number(reply, "policy", &policy) ||
		!agent_take_number(reply, "deadline-ns", &deadline_ns))
		return;
	farlog_writer_terms_read(follower->writer, &terms);
	if (!follower->is_policy_given)
		terms.policy = (uint32_t)policy;
	if (!follower->is_deadline_given)
		terms.deadline_ns = deadline_ns;
	if (!follower->is_level_given && (uint32_t)level != terms.level) {
		struct farlog_writer_terms stronger = terms;

		stronger.level = (uint32_t)level;
		if (farlog_writer_set_terms(follower->writer, &stronger, NULL) == FARLOG_OK)
			return;
	}
	/* the former ones stay, and the agent is asked again */
	may_fail(farlog_writer_set_terms(follower->writer, &terms, NULL));
}

/* write_request -- what the writer has. */
static void write_request(struct agent_follower *follower, const struct farlog_writer_member *members, unsigned count,
	char *request, size_t room)
{
	const uint8_t *alone = follower->writer->superblock.ring_uuid;
	struct farlog_writer_terms terms;
	int len = snprintf(request, room, "farlog-agent 1 members\nstream %s\nepoch %u\nrings ", follower->place.stream,
		follower->writer->epoch);

	for (unsigned i = 0; i < 16 * (count != 0 ? count : 1); i++)
		len += snprintf(
			request + len, room - (size_t)len, "%02x", count != 0 ? members[i / 16].ring_uuid[i % 16] : alone[i]);
	farlog_writer_terms_read(follower->writer, &terms);
	len += snprintf(request + len, room - (size_t)len, "\nlevel %u\npolicy %u\ndeadline-ns %lu\n", terms.level,
		terms.policy,
		terms.deadline_ns == follower->writer->region->contract.deadline_default_ns ? 0 :
																					  (unsigned long)terms.deadline_ns);
	if (follower->place.transport[0] != '\0')
		snprintf(request + len, room - (size_t)len, "transport %s\n", follower->place.transport);
}

/* ask_once -- and how long to leave the agent alone. */
static uint64_t ask_once(struct agent_follower *follower, const struct farlog_writer_member *members, unsigned count)
{
	struct agent_reply reply;
	char request[1024];
	int result;

	write_request(follower, members, count, request, sizeof(request));
	result = agent_call_until(agent_socket(follower->place.socket_path), "members", request, clock_after_ns(ASK_NS),
		follower->stop_fd, &reply, NULL);
	if (result == FARLOG_OK) {
		take_all(follower, &reply, count);
		take_terms(follower, &reply);
	}
	explicit_bzero(&reply.text, sizeof(reply.text));
	return result == FARLOG_INVALID || result == FARLOG_UNSUPPORTED ? PAUSE_REFUSED_NS : 0;
}

/* is_over -- after a pause, which stop_fd ends. */
static bool is_over(struct agent_follower *follower, uint64_t pause_ns)
{
	struct pollfd stop_fd = {.fd = follower->stop_fd, .events = POLLIN};

	return poll(&stop_fd, 1, (int)(pause_ns / NS_PER_MS)) > 0;
}

static void *follow_loop(void *context)
{
	struct agent_follower *follower = context;
	struct farlog_writer_member members[MEMBER_COUNT_MAX];
	bool is_alone = farlog_writer_members(follower->writer, members, MEMBER_COUNT_MAX) == 0;
	uint64_t ask_ns = 0;   /* the next time, when all are there */
	uint64_t least_ns = 0; /* not before */

	while (!is_over(follower, is_alone ? PAUSE_ALL_NS : PAUSE_AWAY_NS)) {
		unsigned count = farlog_writer_members(follower->writer, members, MEMBER_COUNT_MAX);
		uint64_t now_ns = clock_monotonic_ns();

		if (now_ns < least_ns || (now_ns < ask_ns && !is_alone && are_all_there(members, count)))
			continue;
		least_ns = clock_monotonic_ns() + ask_once(follower, members, count);
		ask_ns = clock_after_ns(PAUSE_ALL_NS);
	}
	return NULL;
}

/* start -- its thread takes no signal: those are the program's. */
static bool start(struct agent_follower *follower)
{
	sigset_t all, before;
	int failure;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	failure = pthread_create(&follower->thread, NULL, follow_loop, follower);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return failure == 0;
}

/* tell_end -- as the last question, which has no answer. */
static void tell_end(struct agent_follower *follower)
{
	struct farlog_writer_member members[MEMBER_COUNT_MAX];
	unsigned count = farlog_writer_members(follower->writer, members, MEMBER_COUNT_MAX);
	char note[1024];

	write_request(follower, members, count, note, sizeof(note) - sizeof(END_LINE));
	strcat(note, END_LINE);
	agent_tell(agent_socket(follower->place.socket_path), note);
}

static void end(struct writer_follower *base, bool is_ended)
{
	struct agent_follower *follower = (struct agent_follower *)base;

	(void)eventfd_write(follower->stop_fd, 1);
	pthread_join(follower->thread, NULL);
	if (is_ended)
		tell_end(follower);
	close(follower->stop_fd);
	free(follower);
}

void agent_follow(farlog_writer *writer, const struct farlog_writer_config *asked, const struct stream_uri *place)
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
	if (follower->stop_fd < 0 || !start(follower)) {
		if (follower->stop_fd >= 0)
			close(follower->stop_fd);
		free(follower);
		return;
	}
	follower->base.end = end;
	writer->follower = &follower->base;
}
