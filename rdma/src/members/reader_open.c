/* members/reader_open.c -- opens a stream with several members for reading: waits until enough of them are open, and
 * finds where the stream begins. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"
#include "members/reader.h"

#define OPEN_GRACE_NS 300000000u     /* for the other members, when enough are open */
#define OPEN_TIMEOUT_NS 10000000000u /* until enough are open */
#define SEEK_LEN (1u << 20)

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
		condition_wait_until(&members->changed, &members->mutex, clock_after_ns(OPEN_GRACE_NS / 4));
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
		head_raise_to_floor(&member->reader->superblock, &head);
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

static int seek_start(
	struct reader_members *members, const struct farlog_reader_config *config, struct farlog_error *error)
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
	int result = FARLOG_OK;

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
	for (unsigned i = 0; i < members->count && result == FARLOG_OK; i++)
		result = reader_member_start(&members->member[i], error);
	return result;
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
		result = seek_start(members, config, error);
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
