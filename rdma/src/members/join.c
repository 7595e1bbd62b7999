/* members/join.c -- a thread for each member, which opens it, closes it after a failure, and opens it again.
 *
 * A member that opens after the epoch joins: it is sent what it lacks, and then the epoch is persisted there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"
#include "members/members.h"
#include "region/superblock.h"

#define PAUSE_FIRST_NS 5000000u
#define PAUSE_LAST_NS 500000000u
#define TICK_NS 10000000u /* between two passes over an idle writer's members */

/* ---------------------------------------------------------------- one member */

static unsigned number_of(const struct member *member)
{
	return (unsigned)(member - member->whole->members) + 1;
}

#define REJECT_DIFFERENT(field, format) \
	if (own->field != first->field) \
	return error_set(error, FARLOG_NOT_A_RING, 0, \
		"members \"%s\": member %u, \"%s\", has " #field " " format ", and the others have " format \
		"; format the members of a stream alike", \
		whole->text, number_of(member), member->uri, own->field, first->field)

int members_check_ring(struct region_members *whole, struct member *member, struct farlog_error *error)
{
	const struct superblock *own = &member->superblock;
	const struct superblock *first = &whole->superblock;
	static const uint8_t any[16];
	const uint8_t *uuid = member->ring.uuid;

	if (memcmp(uuid, any, 16) != 0 && memcmp(uuid, own->ring_uuid, 16) != 0)
		return error_set(error, FARLOG_NOT_A_RING, 0,
			"members \"%s\": member %u, \"%s\", is another ring than the one asked for (its uuid begins "
			"%02x%02x%02x%02x, expected %02x%02x%02x%02x)",
			whole->text, number_of(member), member->uri, own->ring_uuid[0], own->ring_uuid[1], own->ring_uuid[2],
			own->ring_uuid[3], uuid[0], uuid[1], uuid[2], uuid[3]);
	REJECT_DIFFERENT(salt, "%lx");
	REJECT_DIFFERENT(stream_id, "%u");
	REJECT_DIFFERENT(capacity, "%lu");
	REJECT_DIFFERENT(align, "%u");
	REJECT_DIFFERENT(record_len_max, "%u");
	REJECT_DIFFERENT(encryption, "%u");
	/* On blocks a commit ends with an LBA, by a PAD that a ring in memory does not know. Where every record does, there
	 * is none. */
	if (own->block_len != first->block_len && (own->align < own->block_len || own->align < first->block_len))
		return error_set(error, FARLOG_NOT_A_RING, 0,
			"members \"%s\": member %u, \"%s\", has blocks of %u bytes, and others of %u (0: memory); that needs rings "
			"with an align of that many at least, and "
			"this has %u",
			whole->text, number_of(member), member->uri, own->block_len, first->block_len, own->align);
	return FARLOG_OK;
}

int members_check_twin(struct region_members *whole, struct member *member, struct farlog_error *error)
{
	int result = FARLOG_OK;

	pthread_mutex_lock(&whole->mutex);
	for (unsigned i = 0; i < whole->count && result == FARLOG_OK; i++) {
		const struct member *other = &whole->members[i];

		if (other != member && memcmp(other->known_uuid, member->superblock.ring_uuid, sizeof(other->known_uuid)) == 0)
			result = error_set(error, FARLOG_NOT_A_RING, 0, MEMBER_TWINS, number_of(other), other->uri,
				number_of(member), member->uri);
	}
	if (result == FARLOG_OK)
		memcpy(member->known_uuid, member->superblock.ring_uuid, sizeof(member->known_uuid));
	pthread_mutex_unlock(&whole->mutex);
	return result;
}

static void publish_error(struct member *member, const struct farlog_error *why)
{
	uint64_t own = atomic_load_relaxed(&member->whole->epoch);
	uint64_t epoch = own != 0 ? own : member->whole->requested_epoch;

	if (why != &member->error)
		member->error = *why;
	if (why->result == FARLOG_FENCED && member->fence <= epoch)
		member->fence = epoch + 1;
	pthread_mutex_lock(&member->whole->mutex);
	member->public_error = member->error;
	pthread_mutex_unlock(&member->whole->mutex);
}

void member_close(struct member *member)
{
	if (member->region != NULL)
		member->region->ops->close(member->region);
	member->region = NULL;
}

void members_close_one(struct region_members *whole, struct member *member, const struct farlog_error *why)
{
	(void)whole;
	member_close(member);
	publish_error(member, why);
	member->is_sound = false;
	atomic_store_release(&member->state, why->result == FARLOG_FENCED ? MEMBER_FENCED : MEMBER_AWAY);
}

/* open_ring -- the region, and the header of its ring. */
static int open_ring(struct member *member)
{
	struct region_members *whole = member->whole;
	struct region_options options = {.access = REGION_WRITE,
		.role = REGION_ROLE_WRITER,
		.epoch = whole->requested_epoch,
		.staging = &whole->staging,
		.cancel_requested = &member->cancel_requested,
		.client_id = member->client_id,
		.token = member->ring.has_token ? member->ring.token : NULL};
	int result = region_open(member->uri, &options, &member->region, &member->error);

	if (result != FARLOG_OK) {
		member->region = NULL;
		return result;
	}
	member->region->is_member = true;
	result = members_load_header(member, &member->error);
	member->deadline_ns = member->region->contract.deadline_default_ns;
	return result;
}

/* acquire_roles -- as the opener does: the lock, and the device. */
static int acquire_roles(struct member *member)
{
	struct region_members *whole = member->whole;
	struct region *region = member->region;
	struct region_claim claim = {.kind = REGION_CLAIM_EXCLUSIVE,
		.epoch = (uint32_t)whole->epoch,
		.ring_uuid = member->superblock.ring_uuid,
		.uri = member->uri};
	int result = region_lock(region, REGION_ROLE_WRITER);

	if (result == FARLOG_HELD)
		return error_set(&member->error, result, 0, "it has another living writer");
	if (result != FARLOG_OK)
		return region_set_lock_error(region, result, member->uri, &member->error);
	result = region_claim(region, &claim, &member->error);
	return result == FARLOG_OK ? members_flush_header(member, &member->error) : result;
}

/* is_own_epoch -- this writer stored the epoch there, perhaps without a confirmation. */
static bool is_own_epoch(const struct region_members *whole, const struct superblock *superblock)
{
	return superblock->writer_epoch == whole->epoch &&
		superblock->epoch_opened_ns == whole->superblock.epoch_opened_ns &&
		memcmp(superblock->writer_id, whole->superblock.writer_id, sizeof(superblock->writer_id)) == 0;
}

/* check_empty -- before this writer stores anything there. A ring that knows an epoch would count at the next opening
 * although it lacks records. */
static int check_empty(struct member *member)
{
	if (member->superblock.writer_epoch == 0)
		atomic_store_release(&member->was_empty, 1);
	return member->was_empty ? FARLOG_OK :
							   error_set(&member->error, FARLOG_NOT_A_RING, 0,
								   "it stands in the place of another ring, and is not new: it knows epoch %u",
								   member->superblock.writer_epoch);
}

/* check_successor -- FENCED: a later writer has opened an epoch. */
static int check_successor(struct member *member)
{
	const struct region_members *whole = member->whole;
	bool is_told = member->superblock.writer_epoch >= whole->epoch && !is_own_epoch(whole, &member->superblock);

	return is_told || member->fence > whole->epoch ?
		error_set(&member->error, FARLOG_FENCED, 0, "it knows epoch %u, and demands %lu",
			member->superblock.writer_epoch, member->fence) :
		FARLOG_OK;
}

/* join_epoch -- after the epoch was opened. A member that knows the epoch continues at its durable_lsn: nobody else has
 * written to it since. Any other is sent what it lacks before the epoch is stored there; until then every reader sees
 * its older epoch. A member that knew the epoch and no longer does is not the ring that it was: its confirmations are
 * void, and only the next opening can find what the stream still has. */
static int join_epoch(struct member *member)
{
	struct region_members *whole = member->whole;
	int result = members_check_ring(whole, member, &member->error);

	if (result == FARLOG_OK)
		result = members_check_twin(whole, member, &member->error);
	if (result == FARLOG_OK && member->is_new)
		result = check_empty(member);
	if (result == FARLOG_OK)
		result = check_successor(member); /* else it would fence a later writer by the device */
	if (result == FARLOG_OK)
		result = acquire_roles(member);
	if (result == FARLOG_OK)
		result = check_successor(member); /* in the last moment */
	if (result != FARLOG_OK)
		return result;
	if (is_own_epoch(whole, &member->superblock)) {
		member->knows_epoch = true;
		atomic_store_release(&member->has_epoch, 1);
		return FARLOG_OK;
	}
	if (member->knows_epoch)
		return error_set(&member->error, FARLOG_NOT_A_RING, 0,
			"it has lost the epoch that it knew: it is no longer the ring that it was");
	member->durable_lsn = 0;
	return FARLOG_OK;
}

void member_install_epoch(struct member *member)
{
	struct region_members *whole = member->whole;
	int result = members_store_epoch(whole, member);

	if (result != FARLOG_OK)
		error_set(&member->error, result, 0, "it did not store the epoch");
	pthread_mutex_lock(&whole->mutex);
	atomic_store_release(&member->state, result == FARLOG_OK && !member->is_replaced ? MEMBER_JOINED : MEMBER_LEAVING);
	pthread_mutex_unlock(&whole->mutex);
}

/* wait_for_epoch -- of an opening that continues without this member. False: it has ended. */
static bool wait_for_epoch(struct region_members *whole)
{
	while (!whole->is_opened && !whole->is_closing)
		pthread_cond_wait(&whole->changed, &whole->mutex);
	return whole->is_opened && !whole->is_closing;
}

void member_try_open(struct member *member)
{
	struct region_members *whole = member->whole;
	enum member_state state = MEMBER_AWAY;
	bool is_joining;
	int result;

	if (clock_monotonic_ns() < member->reopen_after_ns)
		return;
	result = open_ring(member);

	pthread_mutex_lock(&whole->mutex);
	if (result == FARLOG_OK && !whole->is_gathered)
		state = MEMBER_READY;
	is_joining = result == FARLOG_OK && whole->is_gathered && wait_for_epoch(whole);
	pthread_mutex_unlock(&whole->mutex);
	if (is_joining) {
		result = join_epoch(member);
		state = result == FARLOG_OK ? MEMBER_JOINED : MEMBER_AWAY;
	}
	if (result == FARLOG_FENCED && is_joining)
		state = MEMBER_FENCED;
	if (result == FARLOG_NOT_A_RING && is_joining) {
		state = MEMBER_WRONG_RING;
		atomic_store_release(&member->has_epoch, 0);
		member->credit_lsn = 0; /* its head is unknown as well */
	}
	if (state != MEMBER_READY && state != MEMBER_JOINED) {
		member_close(member);
		member->error.result = result;
		publish_error(member, &member->error);
	}
	pthread_mutex_lock(&whole->mutex);
	member->has_tried = true;
	/* the opening has continued meanwhile, or the ring was replaced */
	if ((state == MEMBER_READY && whole->is_gathered) || member->is_replaced) {
		member_close(member);
		state = MEMBER_AWAY;
	}
	atomic_store_release(&member->state, state);
	pthread_cond_broadcast(&whole->changed);
	pthread_mutex_unlock(&whole->mutex);
}

bool member_try_close(struct member *member)
{
	struct region *region = member->region;

	if (atomic_load_acquire(&member->pin_count) > 0)
		return false;
	if (region->ops->fence.abort_persist(region) == FARLOG_NOT_YET)
		return false;
	/* A command that the device has not answered keeps the lock, which the next opening needs. One that failed with its
	 * connection may have reached the target, and land at any later time: it must not find that place overwritten. */
	if (member->is_inflight)
		member->reopen_after_ns = clock_monotonic_ns() + region->caps.reopen_delay_ns;
	member_close(member);
	atomic_store_release(&member->state, MEMBER_AWAY);
	return true;
}

/* ---------------------------------------------------------------- threads */

void members_pause(struct region_members *whole, uint64_t pause_ns)
{
	condition_wait_until(&whole->changed, &whole->mutex, clock_after_ns(pause_ns));
}

static void *member_loop(void *context)
{
	struct member *member = context;
	struct region_members *whole = member->whole;
	uint64_t pause_ns = PAUSE_FIRST_NS;

	pthread_mutex_lock(&whole->mutex);
	while (!whole->is_closing) {
		enum member_state state;

		if (member_adopt_ring(member))
			pause_ns = PAUSE_FIRST_NS;
		state = member_state(member);
		if (state == MEMBER_AWAY) {
			pthread_mutex_unlock(&whole->mutex);
			member_try_open(member);
			pthread_mutex_lock(&whole->mutex);
			if (member_state(member) == MEMBER_AWAY && !whole->is_closing && !member->is_replaced)
				members_pause(whole, pause_ns);
			pause_ns = 2 * pause_ns < PAUSE_LAST_NS ? 2 * pause_ns : PAUSE_LAST_NS;
		} else if (state == MEMBER_LEAVING) {
			pause_ns = PAUSE_FIRST_NS;
			pthread_mutex_unlock(&whole->mutex);
			if (!member_try_close(member))
				nanosleep(&(struct timespec){0, 1000000}, NULL);
			pthread_mutex_lock(&whole->mutex);
		} else if (state == MEMBER_INSTALLING_EPOCH) {
			pthread_mutex_unlock(&whole->mutex);
			member_install_epoch(member);
			pthread_mutex_lock(&whole->mutex);
		} else {
			pause_ns = PAUSE_FIRST_NS;
			pthread_cond_wait(&whole->changed, &whole->mutex);
		}
	}
	pthread_mutex_unlock(&whole->mutex);
	return NULL;
}

/* tick_loop -- an idle writer makes no calls: send late members what they lack, and admit joined ones. */
static void *tick_loop(void *context)
{
	struct region_members *whole = context;
	uint64_t poll_count = 0;

	pthread_mutex_lock(&whole->mutex);
	while (!whole->is_closing) {
		members_pause(whole, TICK_NS);
		pthread_mutex_unlock(&whole->mutex);
		if (atomic_load_acquire(&whole->is_opened) && atomic_load_relaxed(&whole->poll_count) == poll_count)
			members_advance_idle(whole);
		poll_count = atomic_load_relaxed(&whole->poll_count);
		pthread_mutex_lock(&whole->mutex);
	}
	pthread_mutex_unlock(&whole->mutex);
	return NULL;
}

int members_start_threads(struct region_members *whole, struct farlog_error *error)
{
	int failure = thread_start(&whole->ticker, tick_loop, whole);

	whole->is_ticking = failure == 0;
	for (unsigned i = 0; i < whole->count && failure == 0; i++) {
		failure = thread_start(&whole->members[i].thread, member_loop, &whole->members[i]);
		whole->members[i].is_threaded = failure == 0;
	}
	return failure == 0 ? FARLOG_OK :
						  error_set(error, FARLOG_IO, failure, "start a thread for each member of \"%s\"", whole->text);
}

void members_request_stop(struct region_members *whole)
{
	pthread_mutex_lock(&whole->mutex);
	atomic_store_release(&whole->is_closing, 1);
	for (unsigned i = 0; i < whole->count; i++)
		atomic_store_release(&whole->members[i].cancel_requested, 1);
	pthread_cond_broadcast(&whole->changed);
	pthread_mutex_unlock(&whole->mutex);
}

void members_stop_threads(struct region_members *whole)
{
	for (unsigned i = 0; i < whole->count; i++)
		if (whole->members[i].is_threaded)
			pthread_join(whole->members[i].thread, NULL);
	if (whole->is_ticking)
		pthread_join(whole->ticker, NULL);
	if (whole->is_populating)
		pthread_join(whole->populator, NULL);
}
