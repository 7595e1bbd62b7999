/* agent_members.c -- a writer that was opened by its stream's name asks the host agent which rings its members are: often while one of them is not there, now and then otherwise. */
#include "agent_place.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "err.h"
#include "region_members.h"
#include "writer.h"

#define ASK_NS 2000000000u          /* for an answer; closing the writer waits no longer */
#define PAUSE_AWAY_NS 500000000u
#define PAUSE_ALL_NS 5000000000u
#define PAUSE_REFUSED_NS 30000000000u /* another writer has the stream */

struct agent_follower {
	struct members_follower members;
	farlog_writer *writer;
	struct agent_place place;
	pthread_t thread;
};

/* take_ring -- what the agent says of one of them. False: nothing, or nothing that can be used. */
static bool take_ring(const struct agent_reply *reply, unsigned index, char *uri, uint8_t *uuid, uint8_t *token, bool *has_token)
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
			(void)farlog_writer_replace_member(follower->writer, i, &(struct farlog_member_ring){uri, uuid, has_token ? token : NULL}, NULL);
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

/* ask_once -- and how long to leave the agent alone. */
static uint64_t ask_once(struct agent_follower *follower, const struct farlog_writer_member *members, unsigned count)
{
	struct agent_reply reply;
	char request[1024];
	int len = snprintf(request, sizeof(request), "farlog-agent 1 members\nstream %s\nepoch %u\nrings ", follower->place.stream, follower->writer->epoch);
	int result;

	for (unsigned i = 0; i < 16 * count; i++)
		len += snprintf(request + len, sizeof(request) - (size_t)len, "%02x", members[i / 16].ring_uuid[i % 16]);
	len += snprintf(request + len, sizeof(request) - (size_t)len, "\n");
	if (follower->place.transport[0] != '\0')
		snprintf(request + len, sizeof(request) - (size_t)len, "transport %s\n", follower->place.transport);
	result = agent_call(agent_socket(follower->place.socket_path), "members", request, clock_after_ns(ASK_NS), &reply, NULL);
	if (result == FARLOG_OK)
		take_all(follower, &reply, count);
	explicit_bzero(&reply.text, sizeof(reply.text));
	return result == FARLOG_INVALID || result == FARLOG_UNSUPPORTED ? PAUSE_REFUSED_NS : 0;
}

static void *follow_loop(void *context)
{
	struct agent_follower *follower = context;
	struct region_members *whole = members_of(follower->writer->region);
	struct farlog_writer_member members[MEMBER_COUNT_MAX];
	uint64_t look_ns = clock_after_ns(PAUSE_AWAY_NS);
	uint64_t ask_ns = look_ns;  /* the next time, when all are there */
	uint64_t least_ns = 0;      /* not before */
	unsigned count;

	pthread_mutex_lock(&whole->mutex);
	while (!whole->is_closing) {
		uint64_t now_ns = clock_monotonic_ns();

		if (now_ns < look_ns) {
			members_pause(whole, look_ns - now_ns);
			continue;
		}
		pthread_mutex_unlock(&whole->mutex);
		count = farlog_writer_members(follower->writer, members, MEMBER_COUNT_MAX);

		if (now_ns >= least_ns && (now_ns >= ask_ns || !are_all_there(members, count))) {
			least_ns = clock_monotonic_ns() + ask_once(follower, members, count);
			ask_ns = clock_after_ns(PAUSE_ALL_NS);
		}
		look_ns = clock_after_ns(PAUSE_AWAY_NS);
		pthread_mutex_lock(&whole->mutex);
	}
	pthread_mutex_unlock(&whole->mutex);
	return NULL;
}

static void stop(struct members_follower *members)
{
	struct agent_follower *follower = (struct agent_follower *)members;

	pthread_join(follower->thread, NULL);
	free(follower);
}

void agent_follow_members(farlog_writer *writer, const struct agent_place *place)
{
	struct agent_follower *follower = writer->region->are_members ? calloc(1, sizeof(*follower)) : NULL;

	if (follower == NULL)
		return; /* it goes on with the rings of its grant */
	follower->members.stop = stop;
	follower->writer = writer;
	follower->place = *place;
	if (pthread_create(&follower->thread, NULL, follow_loop, follower) != 0) {
		free(follower);
		return;
	}
	members_of(writer->region)->follower = &follower->members;
}
