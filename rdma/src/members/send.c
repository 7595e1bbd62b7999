/* members/send.c -- what each member is sent, and what of it is acknowledged. The caller has taken is_busy. See
 * members/members.h.
 *
 * A member's log has no hole: what is sent to it begins where the last that it confirmed ended. So a member counts as
 * soon as it has confirmed all that was asked for, and one that was away or slow is sent what it lacks from the copy,
 * piece by piece, by the same way. */
#include "members/members.h"

#include "base/clock.h"
#include "base/stats.h"

#define PIECE_NEAR_LEN (256u << 10) /* is copied while the writer waits */
#define PIECE_FAR_LEN (1u << 20)
#define PIECES_A_TURN 2u
#define LOOKS_A_CLOCK 64u  /* fruitless looks between two at the clock */
#define HINT_NS 10000000u  /* how long one that has caught up keeps a hint of before */
#define CUT_NS 1000000000u /* what is under way for so long keeps its place in the copy no longer */

/* nth_highest -- of one number of each member, the first being the highest. */
static uint64_t nth_highest(
	const struct region_members *whole, unsigned nth, uint64_t (*number)(const struct member *member))
{
	uint64_t sorted[MEMBER_COUNT_MAX] = {0};

	for (unsigned i = 0; i < whole->count; i++) {
		uint64_t value = number(&whole->members[i]);
		unsigned place = i;

		for (; place > 0 && sorted[place - 1] < value; place--)
			sorted[place] = sorted[place - 1];
		sorted[place] = value;
	}
	return sorted[nth - 1];
}

static uint64_t credit_of(const struct member *member)
{
	return atomic_load_relaxed(&member->credit_lsn);
}

static uint64_t fence_of(const struct member *member)
{
	return atomic_load_relaxed(&member->fence);
}

uint64_t members_fence(const struct region_members *whole, unsigned nth)
{
	return nth_highest(whole, nth, fence_of);
}

unsigned members_spans(
	const struct region_members *whole, uint64_t from_lsn, uint64_t to_lsn, struct region_span spans[2])
{
	uint64_t off = from_lsn % whole->capacity;
	uint64_t len = to_lsn - from_lsn;

	spans[0] = (struct region_span){LAYOUT_DATA_OFF + off, len};
	if (off + len <= whole->capacity)
		return len > 0;
	spans[0].len = whole->capacity - off;
	spans[1] = (struct region_span){LAYOUT_DATA_OFF, len - spans[0].len};
	return 2;
}

void members_write(
	struct region_members *whole, struct member *member, const struct region_span *spans, unsigned span_count)
{
	for (unsigned i = 0; i < span_count && !member->region->caps.has_copy; i++) /* else it sends from the copy itself */
		member->region->ops->data.write(member->region, spans[i].off, whole->copy + spans[i].off, spans[i].len);
}

/* ---------------------------------------------------------------- one member: is_busy is taken */

static bool is_fenced(const struct region_members *whole, const struct member *member)
{
	return member->fence > whole->epoch;
}

void members_evict(struct region_members *whole, struct member *member)
{
	pthread_mutex_lock(&whole->mutex);
	member->eviction_count++;
	atomic_store_release(&member->state, MEMBER_LEAVING);
	pthread_cond_broadcast(&whole->changed);
	pthread_mutex_unlock(&whole->mutex);
}

/* take_in -- one that has joined. What it has not confirmed in this epoch it is sent from where undrained records
 * begin. */
static void take_in(struct region_members *whole, struct member *member)
{
	uint64_t from_lsn = nth_highest(whole, whole->needed, credit_of);

	if (member->is_new && !member->is_of_epoch) {
		if (!member_find_floor(whole, member))
			return; /* it waits */
		if (from_lsn < member->floor.head_lsn)
			from_lsn = member->floor.head_lsn;
	}
	if (member->done_lsn < from_lsn)
		member->done_lsn = from_lsn;
	member->is_going = false;
	member->is_cut = false;
	member->started_ns = 0;
	member->hinted_lsn = 0;
	member->has_been_in = true;
	member->rejoin_count += member->is_of_epoch; /* else it has to be told first, and comes once more */
	atomic_store_release(&member->state, MEMBER_IN);
}

/* let_tell -- it has all that was asked for: from now on it may know that it is of this epoch. */
static void let_tell(struct region_members *whole, struct member *member)
{
	pthread_mutex_lock(&whole->mutex);
	atomic_store_release(&member->state, MEMBER_TOLD);
	pthread_cond_broadcast(&whole->changed);
	pthread_mutex_unlock(&whole->mutex);
}

static void look_at_fence(struct member *member)
{
	uint64_t fence = region_fence(member->region);

	if (fence > member->fence)
		member->fence = fence;
}

/* send -- what it lacks, or the first piece of that. */
static void send(struct region_members *whole, struct member *member)
{
	uint64_t piece_len = member->region->caps.has_copy ? PIECE_FAR_LEN : PIECE_NEAR_LEN;
	uint64_t drained_lsn = nth_highest(whole, whole->needed, credit_of);
	struct region_span spans[2];
	unsigned span_count;

	if (member->done_lsn < drained_lsn)
		member->done_lsn = drained_lsn; /* no recovery asks for what lies below */
	if (member->done_lsn >= whole->asked_lsn)
		return;
	if (whole->asked_lsn - member->done_lsn > whole->capacity)
		member->done_lsn = whole->asked_lsn - whole->capacity; /* the copy has no more */
	member->going_from_lsn = member->done_lsn;
	member->going_lsn = whole->asked_lsn;
	if (member->going_lsn - member->done_lsn > piece_len)
		/* an LBA is sent once */
		member->going_lsn = (member->done_lsn + piece_len) & ~((uint64_t)LAYOUT_BLOCK_LEN - 1);
	span_count = members_spans(whole, member->going_from_lsn, member->going_lsn, spans);
	members_write(whole, member, spans, span_count);
	member->going_tag = ++member->region->tag;
	member->started_ns = 0;
	member->is_cut = false;
	member->is_going = true;
	if (member->region->ops->data.persist(member->region, spans, span_count, member->going_tag) != FARLOG_OK) {
		members_evict(whole, member);
		return;
	}
	region_push(member->region); /* the writer waits for all, not for this one */
}

static void look_at(struct region_members *whole, struct member *member)
{
	struct region *region = member->region;

	if (region->ops->data.poll(region) != FARLOG_OK) {
		members_evict(whole, member);
		return;
	}
	look_at_fence(member);
	for (unsigned turn = 0; turn < PIECES_A_TURN && member_state(member) == MEMBER_IN; turn++) {
		if (member->is_going && !region_is_done(region, member->going_tag))
			return;
		if (member->is_going)
			member->done_lsn = member->going_lsn;
		member->is_going = false;
		if (is_fenced(whole, member))
			return;
		if (member->done_lsn >= whole->asked_lsn) {
			if (!member->is_of_epoch && member_may_know(whole, member))
				let_tell(whole, member);
			return;
		}
		send(whole, member);
	}
}

/* watch -- how long something is under way. Late, it is not waited for to be called that; later, it is given up, and
 * what it was sent is sent again. */
static void watch(struct member *member, uint64_t now_ns)
{
	struct region *region;
	int cut;

	if (member_state(member) != MEMBER_IN || !member->is_going)
		return;
	region = member->region;
	if (member->started_ns == 0)
		member->started_ns = now_ns;
	if (now_ns - member->started_ns < member->deadline_ns)
		return;
	member->demotion_count += !member->is_late;
	member->is_late = true;
	if (now_ns - member->started_ns < CUT_NS || member->is_cut)
		return;
	cut = region->ops->fence.cut(region);
	member->is_cut = cut == FARLOG_OK;
	if (cut == FARLOG_NOT_YET)
		/* a link that is back before we look again has sent it once more, and gets the time for an answer */
		member->started_ns = now_ns;
}

void members_hint(const struct region_members *whole, struct member *member, uint64_t off)
{
	uint64_t value = members_word(whole, off);
	uint64_t lsn = value < member->done_lsn ? value : member->done_lsn;

	if (off == LAYOUT_DURABLE_HINT_OFF)
		member->hinted_lsn = lsn;
	member->region->ops->data.store_word(member->region, off, lsn);
}

/* hint_again -- one that lacked something when all were told how far the log goes, and has it now: when nothing more is
 * appended, as in a ring that is full, nobody is told again, and who reads this member alone would not find what it
 * has. */
static void hint_again(const struct region_members *whole, struct member *member, uint64_t now_ns)
{
	if (member_state(member) != MEMBER_IN || member->done_lsn < whole->asked_lsn ||
		members_word(whole, LAYOUT_DURABLE_HINT_OFF) <= member->hinted_lsn)
		return;
	if (now_ns - member->hinted_ns < HINT_NS)
		return;
	member->hinted_ns = now_ns;
	members_hint(whole, member, LAYOUT_TAIL_HINT_OFF);
	members_hint(whole, member, LAYOUT_DURABLE_HINT_OFF);
	region_push(member->region);
}

/* ---------------------------------------------------------------- the whole: is_busy is taken */

/* is_weak -- it gives less than the level asked for. Its region is open. */
static bool is_weak(const struct region_members *whole, const struct member *member)
{
	return member->region->contract.level < whole->level;
}

static bool counts(const struct region_members *whole, const struct member *member)
{
	/* The state first: while it is not MEMBER_IN, the rest is its thread's, which may just put another ring there. */
	return member_state(member) == MEMBER_IN && member->is_of_epoch && !is_weak(whole, member) &&
		!is_fenced(whole, member) && member->done_lsn >= whole->asked_lsn;
}

/* take_weaker -- what was asked for is complete. */
static void take_weaker(struct region_members *whole)
{
	if (whole->level_next == 0 || whole->asked_lsn < whole->level_next_lsn)
		return;
	whole->level = whole->level_next;
	whole->level_next = 0;
}

/* settle -- is what was asked for complete? In LSN order, because each member's log is. */
static void settle(struct region_members *whole)
{
	unsigned count = 0;

	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];

		if (!counts(whole, member))
			continue;
		member->is_late = false;
		count++;
	}
	if (count < whole->needed)
		return;
	atomic_store_relaxed(&whole->region.more_copies, count - 1);
	atomic_store_relaxed(&whole->region.tag_done, whole->tag_asked);
	take_weaker(whole);
}

/* kept_of -- up to where a member that fenced this writer has, durably, all that was written; 0: it does not tell. */
static uint64_t kept_of(const struct member *member)
{
	const struct region *region = member_state(member) == MEMBER_IN ? member->region : NULL;

	if (region == NULL || !is_fenced(member->whole, member) || !member->is_of_epoch || is_weak(member->whole, member) ||
		!region_can_be_shut(region))
		return 0;
	if (atomic_load_acquire(&region->is_fence_open) || !region->is_fence_exact || region->fence_lsn == UINT64_MAX)
		return 0;
	return region->fence_lsn;
}

/* find_end -- where a fenced writer's log ended: known when each member that may have records of it says so. */
static void find_end(struct region_members *whole)
{
	struct region *region = &whole->region;
	bool is_open = false;
	bool is_known = true;
	uint64_t end_lsn = 0;

	for (unsigned i = 0; i < whole->count; i++) {
		const struct member *member = &whole->members[i];
		const struct region *child = member_state(member) == MEMBER_IN ? member->region : NULL;

		if (!member->is_of_epoch && !member->has_been_in)
			continue;
		if (child == NULL || !region_can_be_shut(child) || !member->is_of_epoch) {
			is_known = false;
			continue;
		}
		is_open |= !is_fenced(whole, member) || atomic_load_acquire(&child->is_fence_open);
		/* who finds it shorter than it is has not looked at all of it */
		is_known &= child->fence_lsn != UINT64_MAX && child->fence_lsn >= member->done_lsn;
		if (child->fence_lsn > end_lsn)
			end_lsn = child->fence_lsn;
	}
	region->fence_lsn = is_known && !is_open ? end_lsn : UINT64_MAX;
	/* as if it had been acknowledged: every later writer finds it */
	atomic_store_release(&region->kept_lsn, nth_highest(whole, whole->needed, kept_of));
	atomic_store_release(&region->is_fence_open, is_open);
}

/* take_fence -- fewer than k are left that take records of this writer: it is fenced. */
static void take_fence(struct region_members *whole)
{
	uint64_t fence = members_fence(whole, whole->count - whole->needed + 1);

	if (fence > whole->epoch)
		find_end(whole);
	if (fence > members_word(whole, LAYOUT_FENCE_OFF))
		members_set_word(whole, LAYOUT_FENCE_OFF, fence);
}

/* ---------------------------------------------------------------- counters */

enum farlog_member_state members_tell_state(const struct region_members *whole, const struct member *member)
{
	switch (member_state(member)) {
	case MEMBER_IN:
		break;
	case MEMBER_JOINED:
	case MEMBER_TOLD:
		return FARLOG_MEMBER_STALE;
	case MEMBER_FENCED:
	case MEMBER_OTHER:
		return FARLOG_MEMBER_OUT;
	default:
		return FARLOG_MEMBER_AWAY;
	}
	if (is_fenced(whole, member))
		return FARLOG_MEMBER_OUT;
	if (!member->is_of_epoch)
		return FARLOG_MEMBER_STALE;
	return member->is_late ? FARLOG_MEMBER_LATE : FARLOG_MEMBER_UP;
}

void members_count(struct region *region, struct farlog_counters *counters)
{
	struct region_members *whole = members_of(region);

	members_take(whole);
	whole->counters = stats_members(counters, whole->count);
	members_give(whole);
}

void members_tell_counters(struct region_members *whole)
{
	uint64_t drained_lsn;

	if (whole->counters == NULL)
		return;
	drained_lsn = nth_highest(whole, whole->needed, credit_of);
	for (unsigned i = 0; i < whole->count; i++) {
		struct farlog_member_counters *told = &whole->counters[i];
		const struct member *member = &whole->members[i];
		uint64_t confirmed_lsn = member_state(member) == MEMBER_IN ? member->done_lsn : told->confirmed_lsn;
		uint64_t from_lsn = confirmed_lsn > drained_lsn ? confirmed_lsn : drained_lsn;

		atomic_store_relaxed(&told->state, members_tell_state(whole, member));
		atomic_store_relaxed(&told->confirmed_lsn, confirmed_lsn);
		atomic_store_relaxed(&told->lag_bytes, from_lsn < whole->asked_lsn ? whole->asked_lsn - from_lsn : 0);
		atomic_store_relaxed(&told->head_lsn, credit_of(member));
		atomic_store_relaxed(&told->demotion_count, member->demotion_count);
		atomic_store_relaxed(&told->eviction_count, member->eviction_count);
		atomic_store_relaxed(&told->rejoin_count, member->rejoin_count);
	}
}

/* ---------------------------------------------------------------- a turn */

/* All that wait for something are sent to before any answer is looked for: a look costs a system call, and the answers
 * come side by side. */
void members_turn(struct region_members *whole, bool is_clock_due)
{
	uint64_t now_ns = 0;

	atomic_bump(&whole->poll_count, 1);
	if (whole->poll_count % LOOKS_A_CLOCK == 0)
		is_clock_due = true;
	if (is_clock_due)
		now_ns = clock_monotonic_ns();

	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];

		if (__builtin_expect(member_state(member) == MEMBER_JOINED, 0))
			take_in(whole, member);
		if (member_state(member) == MEMBER_IN && !member->is_going && member->done_lsn < whole->asked_lsn &&
			!is_fenced(whole, member))
			send(whole, member);
	}
	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];

		if (member_state(member) == MEMBER_IN)
			look_at(whole, member);
		if (!is_clock_due)
			continue;
		watch(member, now_ns);
		hint_again(whole, member, now_ns);
	}
	take_fence(whole);
	settle(whole);
	if (is_clock_due)
		members_tell_counters(whole);
}

/* free_limit -- the first place in the copy that a member may still be sent from; UINT64_MAX: none is. Where room is
 * wanted, one that is late gives it up. */
static uint64_t free_limit(struct region_members *whole, bool is_urgent)
{
	uint64_t limit_lsn = UINT64_MAX;

	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];
		enum member_state state = member_state(member);

		if ((state != MEMBER_IN && state != MEMBER_LEAVING) || !member->is_going || member->is_cut)
			continue;
		if (is_urgent && state == MEMBER_IN && member->is_late)
			member->is_cut = member->region->ops->fence.cut(member->region) == FARLOG_OK;
		if (!member->is_cut && member->going_from_lsn < limit_lsn)
			limit_lsn = member->going_from_lsn;
	}
	return limit_lsn;
}

/* members_take_credit -- space is free when k members' heads have passed it: every later recovery asks one of those. */
void members_take_credit(struct region_members *whole, bool is_urgent)
{
	uint64_t limit_lsn;
	uint64_t credit_lsn;

	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];
		uint64_t seen_lsn = member_state(member) == MEMBER_IN ? region_load_word(member->region, LAYOUT_CREDIT_OFF) : 0;

		if (seen_lsn > member->credit_lsn && seen_lsn <= whole->asked_lsn)
			member->credit_lsn = seen_lsn;
	}
	credit_lsn = nth_highest(whole, whole->needed, credit_of);
	limit_lsn = free_limit(whole, is_urgent);
	if (credit_lsn > limit_lsn)
		credit_lsn = limit_lsn;
	if (credit_lsn > members_word(whole, LAYOUT_CREDIT_OFF))
		members_set_word(whole, LAYOUT_CREDIT_OFF, credit_lsn);
}
