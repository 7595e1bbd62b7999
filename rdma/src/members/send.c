/* members/send.c -- what each member is sent, and which of it is acknowledged. The caller holds is_busy. See
 * members/members.h.
 *
 * A member's log has no hole: each send begins at its durable_lsn. So a member counts as soon as it has confirmed all
 * that was requested, and one that was away or slow is sent what it lacks from the copy, piece by piece. */
#include "members/members.h"

#include "base/clock.h"
#include "base/stats.h"

#define PIECE_COPIED_LEN (256u << 10) /* copied while the writer waits */
#define PIECE_SENT_LEN (1u << 20)
#define PIECES_PER_POLL 2u
#define POLLS_PER_CLOCK 64u /* polls between two readings of the clock */
#define HINT_NS 10000000u   /* before a hint is repeated to a member that has caught up */
#define CUT_NS 1000000000u  /* a persist that takes longer gives up its bytes in the copy */

/* nth_highest -- value of a function over all members, 1 being the highest. */
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

/* admit -- a member that has joined. What it has not confirmed in this epoch is sent from the first undrained record
 * on. */
static void admit(struct region_members *whole, struct member *member)
{
	uint64_t from_lsn = nth_highest(whole, whole->needed, credit_of);

	if (member->is_new && !member->knows_epoch) {
		if (!member_find_floor(whole, member))
			return; /* it waits */
		if (from_lsn < member->floor.head_lsn)
			from_lsn = member->floor.head_lsn;
	}
	if (member->durable_lsn < from_lsn)
		member->durable_lsn = from_lsn;
	member->is_inflight = false;
	member->is_cut = false;
	member->started_ns = 0;
	member->hinted_lsn = 0;
	member->has_been_in = true;
	member->rejoin_count += member->knows_epoch; /* else its epoch is stored first, and it joins once more */
	atomic_store_release(&member->state, MEMBER_ACTIVE);
}

/* request_epoch -- it has all that was requested: its thread stores the epoch there. */
static void request_epoch(struct region_members *whole, struct member *member)
{
	pthread_mutex_lock(&whole->mutex);
	atomic_store_release(&member->state, MEMBER_INSTALLING_EPOCH);
	pthread_cond_broadcast(&whole->changed);
	pthread_mutex_unlock(&whole->mutex);
}

static void read_fence(struct member *member)
{
	uint64_t fence = region_load_fence(member->region);

	if (fence > member->fence)
		member->fence = fence;
}

/* send_missing -- all that it lacks, or the first piece of it. */
static void send_missing(struct region_members *whole, struct member *member)
{
	uint64_t piece_len = member->region->caps.has_copy ? PIECE_SENT_LEN : PIECE_COPIED_LEN;
	uint64_t drained_lsn = nth_highest(whole, whole->needed, credit_of);
	struct region_span spans[2];
	unsigned span_count;

	if (member->durable_lsn < drained_lsn)
		member->durable_lsn = drained_lsn; /* no recovery reads below */
	if (member->durable_lsn >= whole->requested_lsn)
		return;
	if (whole->requested_lsn - member->durable_lsn > whole->capacity)
		member->durable_lsn = whole->requested_lsn - whole->capacity; /* the copy has no older records */
	member->inflight_from_lsn = member->durable_lsn;
	member->inflight_end_lsn = whole->requested_lsn;
	if (member->inflight_end_lsn - member->durable_lsn > piece_len)
		/* an LBA is sent once */
		member->inflight_end_lsn = (member->durable_lsn + piece_len) & ~((uint64_t)LAYOUT_BLOCK_LEN - 1);
	span_count = members_spans(whole, member->inflight_from_lsn, member->inflight_end_lsn, spans);
	members_write(whole, member, spans, span_count);
	member->inflight_tag = ++member->region->tag;
	member->started_ns = 0;
	member->is_cut = false;
	member->is_inflight = true;
	if (member->region->ops->data.persist(member->region, spans, span_count, member->inflight_tag) != FARLOG_OK) {
		members_evict(whole, member);
		return;
	}
	region_push(member->region); /* the writer does not wait for this member alone */
}

static void poll_member(struct region_members *whole, struct member *member)
{
	struct region *region = member->region;

	if (region->ops->data.poll(region) != FARLOG_OK) {
		members_evict(whole, member);
		return;
	}
	read_fence(member);
	for (unsigned turn = 0; turn < PIECES_PER_POLL && member_state(member) == MEMBER_ACTIVE; turn++) {
		if (member->is_inflight && !region_is_done(region, member->inflight_tag))
			return;
		if (member->is_inflight)
			member->durable_lsn = member->inflight_end_lsn;
		member->is_inflight = false;
		if (is_fenced(whole, member))
			return;
		if (member->durable_lsn >= whole->requested_lsn) {
			if (!member->knows_epoch && member_may_install_epoch(whole, member))
				request_epoch(whole, member);
			return;
		}
		send_missing(whole, member);
	}
}

/* check_late -- how long its persist takes. After its deadline it is late and no longer waited for; after CUT_NS the
 * persist is given up and sent again. */
static void check_late(struct member *member, uint64_t now_ns)
{
	struct region *region;
	int cut;

	if (member_state(member) != MEMBER_ACTIVE || !member->is_inflight)
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
	cut = region->ops->fence.abort_persist(region);
	member->is_cut = cut == FARLOG_OK;
	if (cut == FARLOG_NOT_YET)
		/* a link that reconnected meanwhile has sent it again, and gets the same time */
		member->started_ns = now_ns;
}

void members_hint(const struct region_members *whole, struct member *member, uint64_t off)
{
	uint64_t value = members_word(whole, off);
	uint64_t lsn = value < member->durable_lsn ? value : member->durable_lsn;

	if (!member->knows_epoch)
		return; /* a former writer may still put its own records there: the member would seem to have lost these */
	if (off == LAYOUT_DURABLE_HINT_OFF)
		member->hinted_lsn = lsn;
	member->region->ops->data.store_word(member->region, off, lsn);
}

/* repeat_hint -- to a member that lacked records when the last hint was stored, and has them now. When nothing more is
 * appended, as in a full ring, no other hint follows, and readers of this member alone would not find its last
 * records. */
static void repeat_hint(const struct region_members *whole, struct member *member, uint64_t now_ns)
{
	if (member_state(member) != MEMBER_ACTIVE || member->durable_lsn < whole->requested_lsn ||
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

/* is_weak -- it gives less than the requested level. Its region is open. */
static bool is_weak(const struct region_members *whole, const struct member *member)
{
	return member->region->contract.level < whole->level;
}

static bool is_counted(const struct region_members *whole, const struct member *member)
{
	/* The state first: in other states the fields are those of its thread, which may be replacing the ring. */
	return member_state(member) == MEMBER_ACTIVE && member->knows_epoch && !is_weak(whole, member) &&
		!is_fenced(whole, member) && member->durable_lsn >= whole->requested_lsn;
}

/* lower_level -- once all that needed the stronger level is complete. */
static void lower_level(struct region_members *whole)
{
	if (whole->level_next == 0 || whole->requested_lsn < whole->level_next_lsn)
		return;
	whole->level = whole->level_next;
	whole->level_next = 0;
}

/* complete_persist -- if enough members have all that was requested. In LSN order, since each log is. */
static void complete_persist(struct region_members *whole)
{
	unsigned count = 0;

	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];

		if (!is_counted(whole, member))
			continue;
		member->is_late = false;
		count++;
	}
	if (count < whole->needed)
		return;
	atomic_store_relaxed(&whole->region.extra_copies, count - 1);
	atomic_store_relaxed(&whole->region.tag_done, whole->requested_tag);
	lower_level(whole);
}

/* kept_lsn_of -- the LSN below which a member that fenced this writer has all records, durably; 0: not known. */
static uint64_t kept_lsn_of(const struct member *member)
{
	const struct region *region = member_state(member) == MEMBER_ACTIVE ? member->region : NULL;

	if (region == NULL || !is_fenced(member->whole, member) || !member->knows_epoch || is_weak(member->whole, member) ||
		!region_can_fence_writer(region))
		return 0;
	if (atomic_load_acquire(&region->is_fence_lsn_pending) || !region->is_fence_exact ||
		region->fence_lsn == UINT64_MAX)
		return 0;
	return region->fence_lsn;
}

/* find_fence_lsn -- where a fenced writer's log ended: known when each member that may have records of it says so. */
static void find_fence_lsn(struct region_members *whole)
{
	struct region *region = &whole->region;
	bool is_open = false;
	bool is_known = true;
	uint64_t end_lsn = 0;

	for (unsigned i = 0; i < whole->count; i++) {
		const struct member *member = &whole->members[i];
		const struct region *child = member_state(member) == MEMBER_ACTIVE ? member->region : NULL;

		if (!member->knows_epoch && !member->has_been_in)
			continue;
		if (child == NULL || !region_can_fence_writer(child) || !member->knows_epoch) {
			is_known = false;
			continue;
		}
		is_open |= !is_fenced(whole, member) || atomic_load_acquire(&child->is_fence_lsn_pending);
		/* a member that answers less than its durable_lsn has not read all of its log */
		is_known &= child->fence_lsn != UINT64_MAX && child->fence_lsn >= member->durable_lsn;
		if (child->fence_lsn > end_lsn)
			end_lsn = child->fence_lsn;
	}
	region->fence_lsn = is_known && !is_open ? end_lsn : UINT64_MAX;
	/* as acknowledged: every later writer finds it */
	atomic_store_release(&region->quorum_durable_lsn, nth_highest(whole, whole->needed, kept_lsn_of));
	atomic_store_release(&region->is_fence_lsn_pending, is_open);
}

/* update_fence -- the writer is fenced when fewer than k members accept its records. */
static void update_fence(struct region_members *whole)
{
	uint64_t fence = members_fence(whole, whole->count - whole->needed + 1);

	if (fence > whole->epoch)
		find_fence_lsn(whole);
	if (fence > members_word(whole, LAYOUT_FENCE_OFF))
		members_set_word(whole, LAYOUT_FENCE_OFF, fence);
}

/* ---------------------------------------------------------------- counters */

enum farlog_member_state members_public_state(const struct region_members *whole, const struct member *member)
{
	switch (member_state(member)) {
	case MEMBER_ACTIVE:
		break;
	case MEMBER_JOINED:
	case MEMBER_INSTALLING_EPOCH:
		return FARLOG_MEMBER_STALE;
	case MEMBER_FENCED:
	case MEMBER_WRONG_RING:
		return FARLOG_MEMBER_OUT;
	default:
		return FARLOG_MEMBER_AWAY;
	}
	if (is_fenced(whole, member))
		return FARLOG_MEMBER_OUT;
	if (!member->knows_epoch)
		return FARLOG_MEMBER_STALE;
	return member->is_late ? FARLOG_MEMBER_LATE : FARLOG_MEMBER_UP;
}

void members_attach_counters(struct region *region, struct farlog_counters *counters)
{
	struct region_members *whole = members_of(region);

	members_acquire(whole);
	whole->counters = stats_members(counters, whole->count);
	members_release(whole);
}

void members_publish_counters(struct region_members *whole)
{
	uint64_t drained_lsn;

	if (whole->counters == NULL)
		return;
	drained_lsn = nth_highest(whole, whole->needed, credit_of);
	for (unsigned i = 0; i < whole->count; i++) {
		struct farlog_member_counters *counters = &whole->counters[i];
		const struct member *member = &whole->members[i];
		uint64_t confirmed_lsn = member_state(member) == MEMBER_ACTIVE ? member->durable_lsn : counters->confirmed_lsn;
		uint64_t from_lsn = confirmed_lsn > drained_lsn ? confirmed_lsn : drained_lsn;

		atomic_store_relaxed(&counters->state, members_public_state(whole, member));
		atomic_store_relaxed(&counters->confirmed_lsn, confirmed_lsn);
		atomic_store_relaxed(
			&counters->lag_bytes, from_lsn < whole->requested_lsn ? whole->requested_lsn - from_lsn : 0);
		atomic_store_relaxed(&counters->head_lsn, credit_of(member));
		atomic_store_relaxed(&counters->demotion_count, member->demotion_count);
		atomic_store_relaxed(&counters->eviction_count, member->eviction_count);
		atomic_store_relaxed(&counters->rejoin_count, member->rejoin_count);
	}
}

/* All members are sent to before any is polled: a poll costs a system call, and the answers arrive in parallel. */
void members_advance(struct region_members *whole, bool is_clock_due)
{
	uint64_t now_ns = 0;

	atomic_bump(&whole->poll_count, 1);
	if (whole->poll_count % POLLS_PER_CLOCK == 0)
		is_clock_due = true;
	if (is_clock_due)
		now_ns = clock_monotonic_ns();

	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];

		if (__builtin_expect(member_state(member) == MEMBER_JOINED, 0))
			admit(whole, member);
		if (member_state(member) == MEMBER_ACTIVE && !member->is_inflight &&
			member->durable_lsn < whole->requested_lsn && !is_fenced(whole, member))
			send_missing(whole, member);
	}
	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];

		if (member_state(member) == MEMBER_ACTIVE)
			poll_member(whole, member);
		if (!is_clock_due)
			continue;
		check_late(member, now_ns);
		repeat_hint(whole, member, now_ns);
	}
	update_fence(whole);
	complete_persist(whole);
	if (is_clock_due)
		members_publish_counters(whole);
}

/* free_limit -- the lowest LSN of the copy that a member may still be sent from; UINT64_MAX: none. is_urgent: a late
 * member gives up its persist. */
static uint64_t free_limit(struct region_members *whole, bool is_urgent)
{
	uint64_t limit_lsn = UINT64_MAX;

	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];
		enum member_state state = member_state(member);

		if ((state != MEMBER_ACTIVE && state != MEMBER_LEAVING) || !member->is_inflight || member->is_cut)
			continue;
		if (is_urgent && state == MEMBER_ACTIVE && member->is_late)
			member->is_cut = member->region->ops->fence.abort_persist(member->region) == FARLOG_OK;
		if (!member->is_cut && member->inflight_from_lsn < limit_lsn)
			limit_lsn = member->inflight_from_lsn;
	}
	return limit_lsn;
}

/* members_update_credit -- space is free when k members' heads have passed it: every later recovery asks one of
 * those. */
void members_update_credit(struct region_members *whole, bool is_urgent)
{
	uint64_t limit_lsn;
	uint64_t credit_lsn;

	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];
		uint64_t seen_lsn =
			member_state(member) == MEMBER_ACTIVE ? region_load_word(member->region, LAYOUT_CREDIT_OFF) : 0;

		if (seen_lsn > member->credit_lsn && seen_lsn <= whole->requested_lsn)
			member->credit_lsn = seen_lsn;
	}
	credit_lsn = nth_highest(whole, whole->needed, credit_of);
	limit_lsn = free_limit(whole, is_urgent);
	if (credit_lsn > limit_lsn)
		credit_lsn = limit_lsn;
	if (credit_lsn > members_word(whole, LAYOUT_CREDIT_OFF))
		members_set_word(whole, LAYOUT_CREDIT_OFF, credit_lsn);
}
