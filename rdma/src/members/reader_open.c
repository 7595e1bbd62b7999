/* members/reader_open.c -- opens the members of a stream for reading, each in a thread of its own: one that does not
 * answer delays no other, and is tried again until it does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"
#include "members/members.h"
#include "members/reader.h"

#define RESPONSE_TIMEOUT_NS 400000000u /* of a member that does not answer: there are others */
#define OPEN_GRACE_NS 300000000u       /* for the other members, when enough are open */
#define OPEN_TIMEOUT_NS 10000000000u   /* until enough are open */
#define SEEK_LEN (1u << 20)
#define RETRY_PAUSE_NS 500000000u /* between two attempts to open a member */

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

/* try_open -- one attempt, without the mutex. True: it is open. */
static bool try_open(struct reader_member *member)
{
	struct reader_members *members = member->members;
	struct farlog_reader_config config = {
		.is_drain = members->is_drain, .ring_uuid = member->ring_uuid, .grant_token = member->token};
	struct farlog_error error = {0};
	struct farlog_reader *reader;

	if (reader_open_ring(member->uri, &config, members->renewal, &reader, &error) == FARLOG_OK &&
		reader->region->caps.is_remote)
		reader->region->patience_ns = RESPONSE_TIMEOUT_NS;
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
		is_open = try_open(member);
		pthread_mutex_lock(&members->mutex);
		if (!is_open)
			wait_retry(members);
	}
	pthread_mutex_unlock(&members->mutex);
	return NULL;
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
		members->identity = reader->identity;
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
		if (MEMBERS_ARE_TENDED && member->is_wanted)
			(void)try_open(member);
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

/* is_enough -- can find_start succeed with the members that are open? */
static bool is_enough(const struct reader_members *members)
{
	unsigned open_count = 0;
	unsigned known_count = 0;

	for (unsigned i = 0; i < members->count; i++) {
		const struct farlog_reader *opened = members->member[i].opened;

		open_count += opened != NULL;
		known_count += opened != NULL && opened->superblock.writer_epoch != 0;
	}
	return open_count >= member_quorum(members->count, members->needed) &&
		(known_count == 0 || known_count >= members->count - members->needed + 1);
}

/* wait_for_openers -- until all have tried once; for OPEN_GRACE_NS only when enough are open. */
static void wait_for_openers(struct reader_members *members)
{
	uint64_t until_ns = clock_after_ns(OPEN_TIMEOUT_NS);
	bool has_enough = false;

	pthread_mutex_lock(&members->mutex);
	while (clock_monotonic_ns() < until_ns) {
		unsigned tried_count = 0;

		for (unsigned i = 0; i < members->count; i++)
			tried_count += members->member[i].attempt_count > 0;
		if (tried_count == members->count)
			break;
		if (!has_enough && is_enough(members)) {
			has_enough = true;
			until_ns = clock_after_ns(OPEN_GRACE_NS);
		}
		wait_ns(members, OPEN_GRACE_NS / 4);
	}
	pthread_mutex_unlock(&members->mutex);
}

/* reject_count -- too few members are open: the error of the first of the others. */
static int reject_count(const struct reader_members *members, unsigned open_count, struct farlog_error *error)
{
	const struct reader_member *worst = NULL;

	for (unsigned i = 0; i < members->count; i++) {
		const struct reader_member *member = &members->member[i];

		if (member->reader == NULL &&
			(worst == NULL || (member->trouble.result == FARLOG_HELD && worst->trouble.result != FARLOG_HELD)))
			worst = member;
	}
	return error_set(error, worst->trouble.result != FARLOG_OK ? worst->trouble.result : FARLOG_IO, 0,
		"%u of the stream's %u members could be opened, expected %u at least; member %u: %.300s", open_count,
		members->count, member_quorum(members->count, members->needed), (unsigned)(worst - members->member) + 1,
		worst->trouble.text[0] != '\0' ? worst->trouble.text : "it does not answer");
}

/* reject_new -- a ring that never had an epoch, while others have, may have replaced the one that knew how far the
 * stream is stored. */
static int reject_new(const struct reader_members *members, unsigned known_count, struct farlog_error *error)
{
	return error_set(error, FARLOG_IO, 0,
		"%u of the stream's %u members could be opened that know its log, expected %u at least: others are new and "
		"were not written yet, or are away",
		known_count, members->count, members->count - members->needed + 1);
}

/* is_further -- than the member that is read from first: a newer epoch, or more records of the same. */
static bool is_further(const struct reader_members *members, unsigned i)
{
	const struct farlog_reader *one = members->member[i].reader;
	const struct farlog_reader *other = members->member[members->current].reader;

	if (one->superblock.writer_epoch != other->superblock.writer_epoch)
		return one->superblock.writer_epoch > other->superblock.writer_epoch;
	return region_load_word(one->region, LAYOUT_TAIL_HINT_OFF) > region_load_word(other->region, LAYOUT_TAIL_HINT_OFF);
}

/* find_start -- where the stream is read from: the highest head, or the highest that a writer found when it opened its
 * epoch. Each of them is valid, also that of a member which missed an epoch: a drain stores heads only behind records
 * that all later writers find. */
static int find_start(
	struct reader_members *members, const struct farlog_reader_config *config, struct farlog_error *error)
{
	unsigned open_count = 0;
	unsigned known_count = 0;
	struct head_slot head;

	for (unsigned i = 0; i < members->count; i++) {
		const struct reader_member *member = &members->member[i];

		if (member->is_copy)
			return error_set(error, member->trouble.result, 0, "%s", member->trouble.text);
		if (member->reader == NULL) {
			if (member->trouble.result == FARLOG_HELD && members->is_drain)
				return reject_count(members, open_count, error);
			continue;
		}
		head = member->reader->released;
		head_start(&member->reader->superblock, &head);
		open_count++;
		known_count += member->reader->superblock.writer_epoch != 0 || members->epoch == 0;
		if (open_count == 1 || head.head_lsn > members->released.head_lsn)
			members->released = head;
	}
	for (unsigned i = 0; i < members->count; i++)
		if (members->member[i].reader != NULL &&
			(members->member[members->current].reader == NULL || is_further(members, i)))
			members->current = i;
	if (open_count < member_quorum(members->count, members->needed))
		return reject_count(members, open_count, error);
	if (known_count < members->count - members->needed + 1)
		return reject_new(members, known_count, error);
	members->cursor = (struct record_cursor){
		.lsn = members->released.head_lsn, .seq = members->released.head_seq, .epoch = members->released.last_epoch};
	for (unsigned i = 0; i < members->count && members->is_drain; i++)
		if (members->member[i].reader != NULL)
			may_fail(
				reader_members_store_head(members, &members->member[i])); /* it is tried again with the next release */
	return config->start == FARLOG_START_HEAD ? FARLOG_OK : FARLOG_NOT_YET;
}

/* seek_tail -- read over all records. */
static int seek_tail(struct reader_members *members)
{
	uint8_t *bytes = malloc(SEEK_LEN + members->identity.record_len_max);
	struct farlog_batch batch;
	int result = bytes == NULL ? FARLOG_NO_MEMORY : FARLOG_OK;

	while (result == FARLOG_OK)
		result = reader_members_read(&members->front, bytes, SEEK_LEN + members->identity.record_len_max, &batch);
	free(bytes);
	return result == FARLOG_NOT_YET ? FARLOG_OK : result;
}

static int seek(struct reader_members *members, const struct farlog_reader_config *config, struct farlog_error *error)
{
	struct reader_member *best = &members->member[members->current];
	int result;

	if (config->start == FARLOG_START_TAIL) {
		result = seek_tail(members);
		return result == FARLOG_OK ? result :
									 error_set(error, result, 0, "read ring \"%s\" from its head on", best->uri);
	}
	reader_members_set_position(members, best);
	result = reader_seek(best->reader, best->uri, config, error);
	if (result == FARLOG_OK)
		members->cursor = best->reader->cursor;
	return result;
}

static const uint8_t *unless_zero(const uint8_t *bytes)
{
	static const uint8_t zero[16];

	return memcmp(bytes, zero, sizeof(zero)) != 0 ? bytes : NULL;
}

/* start_openers -- of all members. */
static int start_openers(
	struct reader_members *members, const struct farlog_reader_config *config, struct farlog_error *error)
{
	pthread_mutex_init(&members->mutex, NULL);
	condition_init(&members->changed);
	members->front.members = members;
	members->front.ops = &reader_members_ops;
	members->count = members->uri->count;
	members->needed = members->uri->needed;
	members->is_drain = config->is_drain;
	if (config->ring_uuid != NULL)
		memcpy(members->uuids, config->ring_uuid, 16 * members->count);
	if (config->grant_token != NULL)
		memcpy(members->tokens, config->grant_token, FARLOG_TOKEN_LEN * members->count);
	for (unsigned i = 0; i < members->count; i++) {
		struct reader_member *member = &members->member[i];

		member->members = members;
		member->uri = members->uri->uris[i];
		member->ring_uuid = unless_zero(members->uuids[i]);
		member->token = unless_zero(members->tokens[i]);
		member->is_wanted = true;
	}
	for (unsigned i = 0; i < members->count; i++) {
		struct reader_member *member = &members->member[i];
		int failure;

		if (MEMBERS_ARE_TENDED) {
			(void)try_open(member);
			continue;
		}
		failure = pthread_create(&member->opener, NULL, open_loop, member);
		if (failure != 0)
			return error_set(error, FARLOG_NO_MEMORY, failure, "start a thread that opens ring \"%s\"", member->uri);
		member->has_opener = true;
	}
	return FARLOG_OK;
}

int reader_members_open(const char *uri, const struct farlog_reader_config *config, struct region_renewal *renewal,
	farlog_reader **opened, struct farlog_error *error)
{
	struct reader_members *members = calloc(1, sizeof(*members));
	int result = FARLOG_NO_MEMORY;

	*opened = NULL;
	if (members != NULL)
		members->uri = malloc(sizeof(*members->uri));
	if (members == NULL || members->uri == NULL) {
		free(members);
		return error_set(error, result, 0, "read the members of a stream: out of memory");
	}
	result = member_uri_parse(uri, members->uri, error);
	if (result != FARLOG_OK) {
		free(members->uri);
		free(members);
		return result;
	}
	members->renewal = renewal;
	result = start_openers(members, config, error);
	if (result == FARLOG_OK) {
		wait_for_openers(members);
		reader_members_adopt(members);
		result = find_start(members, config, error);
	}
	if (result == FARLOG_NOT_YET)
		result = seek(members, config, error);
	if (result != FARLOG_OK) {
		reader_members_close(members);
		return result;
	}
	*opened = &members->front;
	return FARLOG_OK;
}

void reader_members_close(struct reader_members *members)
{
	pthread_mutex_lock(&members->mutex);
	members->is_closing = true;
	pthread_cond_broadcast(&members->changed);
	pthread_mutex_unlock(&members->mutex);
	for (unsigned i = 0; i < members->count; i++) {
		struct reader_member *member = &members->member[i];

		if (member->has_opener)
			pthread_join(member->opener, NULL);
		reader_close_ring(member->reader);
		reader_close_ring(member->opened);
	}
	pthread_cond_destroy(&members->changed);
	pthread_mutex_destroy(&members->mutex);
	explicit_bzero(members->tokens, sizeof(members->tokens));
	free(members->uri);
	free(members);
}
