/* members/reader_opener.c -- opens the rings of a stream for a reader, each in a thread of its own: one that does not
 * answer delays no other, and is tried again until it does. The reader's thread adopts what they have opened. */
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"
#include "members/reader.h"

#define RESPONSE_TIMEOUT_NS 400000000u /* of a member that does not answer: there are others */
#define RETRY_PAUSE_NS 500000000u      /* between two attempts to open a member */

static void wait_ns(struct reader_members *members, uint64_t duration_ns)
{
	condition_wait_until(&members->changed, &members->mutex, clock_after_ns(duration_ns));
}

/* wait_until_wanted -- false: the reader is being closed. The caller holds the mutex. */
static bool wait_until_wanted(struct reader_member *member)
{
	while (!member->is_wanted && !member->members->is_closing)
		pthread_cond_wait(&member->members->changed, &member->members->mutex);
	return !member->members->is_closing;
}

/* wait_retry -- before the next attempt. The caller holds the mutex. */
static void wait_retry(struct reader_members *members)
{
	uint64_t until_ns = clock_after_ns(RETRY_PAUSE_NS);

	while (!members->is_closing && clock_monotonic_ns() < until_ns)
		wait_ns(members, RETRY_PAUSE_NS);
}

bool reader_member_try_open(struct reader_member *member)
{
	struct reader_members *members = member->members;
	struct farlog_reader_config config = {
		.is_drain = members->is_drain, .ring_uuid = member->ring_uuid, .grant_token = member->token};
	struct farlog_error error = {0};
	struct farlog_reader *reader;

	if (reader_open_ring(member->uri, &config, members->renewal, &reader, &error) == FARLOG_OK &&
		reader->region->caps.is_remote)
		reader->region->persist_timeout_ns = RESPONSE_TIMEOUT_NS;
	if (error.result == FARLOG_INVALID && members->renewal != NULL && member->token != NULL &&
		member->ring_uuid != NULL)
		(void)members->renewal->renew(members->renewal, member->ring_uuid, members->tokens[member - members->member]);
	pthread_mutex_lock(&members->mutex);
	member->opened = reader;
	member->is_wanted = reader == NULL;
	member->opening_error = error;
	member->attempt_count++;
	pthread_cond_broadcast(&members->changed);
	pthread_mutex_unlock(&members->mutex);
	return reader != NULL;
}

static void *open_loop(void *of)
{
	struct reader_member *member = of;
	struct reader_members *members = member->members;

	pthread_mutex_lock(&members->mutex);
	while (wait_until_wanted(member)) {
		bool is_open;

		pthread_mutex_unlock(&members->mutex);
		is_open = reader_member_try_open(member);
		pthread_mutex_lock(&members->mutex);
		if (!is_open)
			wait_retry(members);
	}
	pthread_mutex_unlock(&members->mutex);
	return NULL;
}

int reader_member_start(struct reader_member *member, struct farlog_error *error)
{
	int failure = thread_start(&member->opener, open_loop, member);

	if (failure != 0)
		return error_set(error, FARLOG_NO_MEMORY, failure, "start a thread that opens ring \"%s\"", member->uri);
	member->has_opener = true;
	return FARLOG_OK;
}

/* find_difference -- why a ring is not of this stream, or NULL. */
static const char *find_difference(const struct reader_members *members, const struct farlog_reader *reader)
{
	const struct record_identity *all = &members->identity;
	const struct record_identity *one = &reader->identity;

	if (all->salt != one->salt || all->stream_id != one->stream_id)
		return "it is of another stream";
	if (all->capacity != one->capacity || all->align != one->align || all->record_len_max != one->record_len_max)
		return "it has another size, align or record_len_max";
	/* As in members_check_ring: where every record fills whole blocks, there is no PAD that a ring in memory does not
	 * know. */
	if (all->block_len != one->block_len && (all->align < all->block_len || all->align < one->block_len))
		return "its blocks are of another size, and its records fill no whole ones; format the rings with an align of "
			   "the largest block at least";
	return NULL;
}

/* twin_of -- another member with the same uuid, or NULL: one ring is a copy, and its records would count twice. */
static const struct reader_member *twin_of(
	const struct reader_members *members, const struct reader_member *member, const struct farlog_reader *reader)
{
	for (unsigned i = 0; i < members->count; i++) {
		const struct reader_member *other = &members->member[i];

		if (other != member && memcmp(other->known_uuid, reader->superblock.ring_uuid, sizeof(other->known_uuid)) == 0)
			return other;
	}
	return NULL;
}

/* accept_reader -- use an opened reader, if its ring is of the stream. */
static void accept_reader(struct reader_members *members, struct reader_member *member, struct farlog_reader *reader)
{
	const struct reader_member *twin = twin_of(members, member, reader);
	const char *why;

	if (members->identity.capacity == 0)
		members->identity = members->front.identity = reader->identity;
	why = find_difference(members, reader);
	if (why != NULL) {
		reader_close_ring(reader);
		error_set(
			&member->trouble, FARLOG_NOT_A_RING, 0, "ring \"%s\" is no member of this stream: %s", member->uri, why);
		return;
	}
	member->is_copy = twin != NULL;
	if (twin != NULL) {
		reader_close_ring(reader);
		error_set(&member->trouble, FARLOG_NOT_A_RING, 0, MEMBER_TWINS, (unsigned)(twin - members->member) + 1,
			twin->uri, (unsigned)(member - members->member) + 1, member->uri);
		return;
	}
	memcpy(member->known_uuid, reader->superblock.ring_uuid, sizeof(member->known_uuid));
	reader->is_member = true;
	if (reader->superblock.encryption != FARLOG_ENCRYPTION_NONE)
		members->front.superblock.encryption = reader->superblock.encryption;
	member->reader = reader;
	member->reached_epoch = 0;
	member->is_away = false;
	member->trouble = (struct farlog_error){0};
	if (reader->superblock.writer_epoch > members->epoch)
		members->epoch = reader->superblock.writer_epoch;
}

void reader_members_adopt(struct reader_members *members)
{
	for (unsigned i = 0; i < members->count; i++) {
		struct reader_member *member = &members->member[i];
		struct farlog_reader *reader;

		if (member->reader != NULL)
			continue;
		pthread_mutex_lock(&members->mutex);
		reader = member->opened;
		member->opened = NULL;
		if (reader == NULL && member->opening_error.result != FARLOG_OK)
			member->trouble = member->opening_error;
		pthread_mutex_unlock(&members->mutex);
		if (reader != NULL)
			accept_reader(members, member, reader);
		if (member->reader != NULL && members->is_drain)
			may_fail(reader_members_store_head(members, member)); /* the next release tries again */
	}
}

void reader_members_reopen(struct reader_member *member, int result)
{
	error_set(&member->trouble, result, 0, "ring \"%s\": %s", member->uri, farlog_result_text(result));
	reader_close_ring(member->reader);
	member->reader = NULL;
	pthread_mutex_lock(&member->members->mutex);
	member->is_wanted = true;
	pthread_cond_broadcast(&member->members->changed);
	pthread_mutex_unlock(&member->members->mutex);
}
