/* members/replace_member.c -- a ring that takes the place of a member's while the writer runs
 * (docs/explanation/members.md, R6). See members/members.h.
 *
 * The old ring is evicted first. When its connection is closed, its thread continues with the new ring. The new ring
 * joins as a member that was away, but no other member's record says what it has: it is sent records from a head on
 * that is above all that was ever overwritten, and its superblock says so; and the epoch is stored there only when no
 * earlier epoch can be opened any more, wherever the old ring is. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "members/members.h"
#include "ring/record.h"

#define UNREACHED_NS 60000000000u /* a token that was not used for so long may have expired */

static bool is_same_uuid(const struct member_ring *one, const struct member_ring *other)
{
	return one->has_uuid && other->has_uuid && memcmp(one->uuid, other->uuid, sizeof(one->uuid)) == 0;
}

/* evict_open -- the old ring. In states that its thread owns, the thread closes it. */
static void evict_open(struct region_members *whole, struct member *member)
{
	enum member_state state;

	members_acquire(whole);
	state = member_state(member);
	if ((state == MEMBER_ACTIVE || state == MEMBER_JOINED) && atomic_load_acquire(&member->is_replaced))
		members_evict(whole, member);
	members_release(whole);
}

/* make_ring -- a copy of what was given. */
static struct member_ring make_ring(const struct farlog_member_ring *given)
{
	struct member_ring ring = {.has_uuid = true, .has_token = given->grant_token != NULL};

	snprintf(ring.uri, sizeof(ring.uri), "%s", given->uri);
	memcpy(ring.uuid, given->ring_uuid, sizeof(ring.uuid));
	if (ring.has_token)
		memcpy(ring.token, given->grant_token, sizeof(ring.token));
	return ring;
}

/* set_next_ring -- the ring that the member becomes. False: it is that ring already. */
static bool set_next_ring(struct member *member, const struct member_ring *ring)
{
	struct region_members *whole = member->whole;
	const struct member_ring *present;
	bool is_news;

	pthread_mutex_lock(&whole->mutex);
	present = member->is_replaced ? &member->next : &member->ring;
	is_news = !is_same_uuid(present, ring) ||
		(member_state(member) == MEMBER_AWAY &&
			(strcmp(present->uri, ring->uri) != 0 || memcmp(present->token, ring->token, sizeof(ring->token)) != 0));
	if (is_news) {
		member->next = *ring;
		member->replaced_ns = clock_monotonic_ns();
		atomic_store_release(&member->is_replaced, 1);
		atomic_store_release(&member->cancel_requested, 1);
	}
	pthread_cond_broadcast(&whole->changed);
	pthread_mutex_unlock(&whole->mutex);
	return is_news;
}

int members_replace_member(
	struct region *region, unsigned index, const struct farlog_member_ring *given, struct farlog_error *error)
{
	struct region_members *whole = members_of(region);
	struct member_ring ring;

	if (index >= whole->count || !whole->is_opened)
		return error_set(error, FARLOG_INVALID, 0,
			"members \"%s\": member %u is replaced: expected one of %u, of a stream that is open", whole->text,
			index + 1, whole->count);
	ring = make_ring(given);
	if (set_next_ring(&whole->members[index], &ring))
		evict_open(whole, &whole->members[index]);
	explicit_bzero(&ring, sizeof(ring));
	return FARLOG_OK;
}

/* reset_state -- all that was known of the old ring. Its records are of no log that is ever read again. */
static void reset_state(struct member *member)
{
	member->is_new = true;
	atomic_store_release(&member->was_empty, 0);
	member->durable_lsn = 0;
	member->reopen_after_ns = 0;
	atomic_store_relaxed(&member->credit_lsn, 0); /* these two are read of all members */
	atomic_store_relaxed(&member->fence, 0);
	member->is_inflight = member->is_cut = member->is_late = false;
	member->has_been_in = member->knows_epoch = false;
	atomic_store_release(&member->has_epoch, 0);
	memset(&member->floor, 0, sizeof(member->floor));
	memset(member->known_uuid, 0, sizeof(member->known_uuid)); /* the caller holds the mutex */
}

bool member_adopt_ring(struct member *member)
{
	enum member_state state = member_state(member);

	if (!member->is_replaced || (state != MEMBER_AWAY && state != MEMBER_WRONG_RING && state != MEMBER_FENCED))
		return false;
	if (!is_same_uuid(&member->ring, &member->next))
		reset_state(member);
	member->ring = member->next;
	explicit_bzero(&member->next.token, sizeof(member->next.token));
	atomic_store_release(&member->cancel_requested, atomic_load_acquire(&member->whole->is_closing));
	atomic_store_release(&member->is_replaced, 0);
	atomic_store_release(&member->state, MEMBER_AWAY);
	return true;
}

/* The head of the old ring may have released what was overwritten. So the floor is the highest head of the others: a
 * record begins there, and the copy has all behind it. */
bool member_find_floor(struct region_members *whole, struct member *member)
{
	struct record_header header;
	uint64_t lsn = 0;

	for (unsigned i = 0; i < whole->count; i++)
		if (&whole->members[i] != member && whole->members[i].credit_lsn > lsn)
			lsn = whole->members[i].credit_lsn;
	if (lsn < members_word(whole, LAYOUT_CREDIT_OFF) || lsn >= whole->requested_lsn)
		return false;
	memcpy(&header, whole->copy + LAYOUT_DATA_OFF + lsn % whole->capacity, sizeof(header));
	if (header.magic != RECORD_MAGIC || header.lsn != lsn)
		return false;
	member->floor = (struct head_slot){.head_lsn = lsn, .head_seq = header.seq, .last_epoch = header.epoch};
	return true;
}

bool member_may_install_epoch(const struct region_members *whole, const struct member *member)
{
	unsigned wanted = whole->count - whole->needed + 1;
	unsigned count = 0;

	if (!member->is_new)
		return true;
	if (wanted > whole->count - 1)
		wanted = whole->count - 1;
	for (unsigned i = 0; i < whole->count; i++)
		count += &whole->members[i] != member && atomic_load_acquire(&whole->members[i].has_epoch);
	return count >= wanted;
}

unsigned members_list(struct region *region, struct farlog_writer_member *members, unsigned count_max)
{
	struct region_members *whole = members_of(region);
	unsigned count = count_max < whole->count ? count_max : whole->count;

	memset(members, 0, count * sizeof(*members));
	pthread_mutex_lock(&whole->mutex);
	for (unsigned i = 0; i < count; i++) {
		const struct member *member = &whole->members[i];
		const struct member_ring *ring = member->is_replaced ? &member->next : &member->ring;
		bool is_unusable = (member->is_new || member->is_replaced) && !atomic_load_acquire(&member->was_empty) &&
			clock_monotonic_ns() - member->replaced_ns > UNREACHED_NS;

		if (ring->has_uuid && !is_unusable)
			memcpy(members[i].ring_uuid, ring->uuid, sizeof(ring->uuid));
	}
	pthread_mutex_unlock(&whole->mutex);
	members_acquire(whole);
	for (unsigned i = 0; i < count; i++)
		members[i].state = atomic_load_acquire(&whole->members[i].is_replaced) ?
			FARLOG_MEMBER_AWAY :
			members_public_state(whole, &whole->members[i]);
	members_release(whole);
	return whole->count;
}
