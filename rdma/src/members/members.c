/* members/members.c -- several rings as one region: what the writer calls. See members/members.h.
 *
 * Nothing that fails in a member fails here: what too few have is not complete, and the writer's deadline decides. */
#include "members/members.h"

#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"

#define SPIN_NS 20000u
#define NAP_NS 20000u
#define NAP_LAST_NS 1000000u
#define POPULATE_LEN (4u << 20) /* between two looks whether the region is being closed */

static bool take(struct region_members *whole)
{
	return __atomic_exchange_n(&whole->is_busy, 1, __ATOMIC_ACQUIRE) == 0;
}

/* ---------------------------------------------------------------- the region */

static void members_put(struct region *region, uint64_t off, const void *src, size_t len)
{
	memcpy(members_of(region)->copy + off, src, len);
}

static void members_gather(struct region *region, uint64_t off, struct gather *gather)
{
	gather_build(members_of(region)->copy + off, gather);
}

/* members_persist -- of records alone, one behind the other: the header is stored by other ways. What does not go on
 * where the last one ended would be sent from another place than it is in. */
static int members_persist(struct region *region, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	struct region_members *whole = members_of(region);
	int result = FARLOG_IO;

	members_take(whole);
	if (span_count > 0 && spans[0].off == LAYOUT_DATA_OFF + whole->asked_lsn % whole->capacity) {
		for (unsigned i = 0; i < span_count; i++)
			whole->asked_lsn += spans[i].len;
		whole->tag_asked = tag;
		members_turn(whole, false);
		result = FARLOG_OK;
	}
	members_give(whole);
	return result;
}

static int members_poll(struct region *region)
{
	struct region_members *whole = members_of(region);

	if (take(whole)) {
		members_turn(whole, false);
		members_give(whole);
	}
	return FARLOG_OK;
}

/* rest -- the writer stores hints while it appends; here it does not: all that it asked for is on as many as an
 * acknowledgement needs, and they are told so. */
static void rest(struct region_members *whole)
{
	if (whole->region.contract.level < FARLOG_LEVEL_PERSISTENT || !region_is_done(&whole->region, whole->tag_asked))
		return;
	if (members_word(whole, LAYOUT_DURABLE_HINT_OFF) >= whole->asked_lsn)
		return;
	if (members_word(whole, LAYOUT_TAIL_HINT_OFF) < whole->asked_lsn)
		members_set_word(whole, LAYOUT_TAIL_HINT_OFF, whole->asked_lsn);
	members_set_word(whole, LAYOUT_DURABLE_HINT_OFF, whole->asked_lsn);
}

void members_tick(struct region_members *whole)
{
	if (!take(whole))
		return;
	rest(whole);
	members_turn(whole, true);
	members_give(whole);
}

static void members_look(struct region *region, bool is_urgent)
{
	struct region_members *whole = members_of(region);

	members_take(whole);
	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];

		if (member_state(member) == MEMBER_IN && !member->region->caps.words_by_poll) /* else the turn does */
			member->region->ops->data.look(member->region, is_urgent);
	}
	members_turn(whole, is_urgent);
	members_take_credit(whole, is_urgent);
	members_give(whole);
}

/* find_sleepers -- what to poll for, of those that have something under way. *is_spinning: one of them wants to be
 * looked at without a pause, or has an answer. *is_blind: one cannot be polled for. is_busy is taken. */
static unsigned find_sleepers(struct region_members *whole, struct pollfd *fds, bool *is_spinning, bool *is_blind)
{
	unsigned count = 0;

	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];
		struct region *region = member->region;
		int found[4];
		unsigned found_count;

		if (member_state(member) != MEMBER_IN || !member->is_going)
			continue;
		*is_spinning |= region->caps.is_spinning;
		found_count = region->ops->data.sleepers(region, found, 4);
		*is_blind |= found_count == 0;
		for (unsigned j = 0; j < found_count; j++)
			fds[count++] = (struct pollfd){.fd = found[j], .events = POLLIN};
	}
	return count;
}

static void sleep_a_while(struct region_members *whole, uint64_t limit_ns)
{
	struct pollfd fds[4 * MEMBER_COUNT_MAX];
	bool is_spinning = false;
	bool is_blind = false;
	unsigned count = 0;
	uint64_t nap_ns;

	if (take(whole)) {
		count = find_sleepers(whole, fds, &is_spinning, &is_blind);
		members_give(whole);
	}
	nap_ns = is_blind || count == 0 ? NAP_NS : NAP_LAST_NS;
	if (nap_ns > limit_ns)
		nap_ns = limit_ns;
	if (is_spinning || MEMBERS_ARE_TENDED)
		cpu_relax();
	else
		(void)ppoll(fds, count, &(struct timespec){0, (long)nap_ns}, NULL);
}

static void members_wait(struct region *region, uint64_t timeout_ns)
{
	struct region_members *whole = members_of(region);
	uint64_t start_ns = clock_monotonic_ns();
	uint64_t waited_ns = 0;

	while (!region_is_done(region, whole->tag_asked) && waited_ns < timeout_ns &&
		members_word(whole, LAYOUT_FENCE_OFF) <= whole->epoch) {
		if (waited_ns < SPIN_NS)
			cpu_relax();
		else
			sleep_a_while(whole, timeout_ns - waited_ns);
		if (take(whole)) {
			members_turn(whole, waited_ns >= SPIN_NS);
			members_give(whole);
		}
		waited_ns = clock_monotonic_ns() - start_ns;
	}
}

/* is_behind -- one that takes records and lacks some, without having been called late. */
static bool is_behind(const struct region_members *whole)
{
	bool is_any = false;

	for (unsigned i = 0; i < whole->count; i++) {
		const struct member *member = &whole->members[i];

		is_any |= member_state(member) == MEMBER_IN && !member->is_late && member->fence <= whole->epoch &&
			member->done_lsn < whole->asked_lsn;
	}
	return is_any;
}

/* members_finish -- an acknowledgement waits for k. Who was about to confirm the last records when the writer is closed
 * would lack them until the next opening. */
static void members_finish(struct region *region, uint64_t timeout_ns)
{
	struct region_members *whole = members_of(region);
	uint64_t start_ns = clock_monotonic_ns();
	uint64_t waited_ns = 0;
	bool is_lacking = true;

	while (is_lacking && waited_ns < timeout_ns) {
		if (waited_ns >= SPIN_NS)
			sleep_a_while(whole, timeout_ns - waited_ns);
		members_take(whole);
		members_turn(whole, true);
		is_lacking = is_behind(whole) && !MEMBERS_ARE_TENDED;
		members_give(whole);
		waited_ns = clock_monotonic_ns() - start_ns;
	}
}

static int members_flush(struct region *region, uint64_t off, uint64_t len)
{
	(void)region; /* members_recover has: each for itself */
	(void)off, (void)len;
	return FARLOG_OK;
}

static void members_seal(struct region *region)
{
	(void)region; /* the leader's persist sends from the copy */
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

static int members_read(struct region *region, uint64_t off, void *dst, size_t len)
{
	memcpy(dst, members_of(region)->copy + off, len);
	return FARLOG_OK;
}

/* pin -- member i is not closed until it is unpinned. False: it is not open. */
static bool pin(struct region_members *whole, unsigned i)
{
	bool is_open;

	members_take(whole);
	is_open = member_is_open(&whole->members[i]);
	atomic_add(&whole->members[i].pin_count, is_open);
	members_give(whole);
	return is_open;
}

static void unpin(struct region_members *whole, unsigned i)
{
	__atomic_sub_fetch(&whole->members[i].pin_count, 1, __ATOMIC_RELEASE);
}

/* members_fetch -- the header as the members that answer have it now; as none answers, what the last one said. What
 * they have of records came with members_recover. */
static int members_fetch(struct region *region, uint64_t off, uint64_t len)
{
	struct region_members *whole = members_of(region);
	int result = FARLOG_IO;
	bool has_answer = false;
	struct region *child;

	(void)len;
	if (off >= LAYOUT_DATA_OFF)
		return FARLOG_OK;
	for (unsigned i = 0; i < whole->count; i++) {
		if (!pin(whole, i))
			continue;
		child = whole->members[i].region;
		child->until_ns = region->until_ns;
		/* one that cannot says what it said before */
		result = region_fetch(child, 0, LAYOUT_DATA_OFF);
		child->until_ns = 0;
		has_answer |= result == FARLOG_OK;
		unpin(whole, i);
	}
	members_take(whole);
	members_show_header(whole);
	members_give(whole);
	return has_answer ? FARLOG_OK : result;
}

/* members_store_word -- hints for those who read a member alone: never more than it has. The fence is for members that
 * keep other hosts out by it. */
static void members_store_word(struct region *region, uint64_t off, uint64_t value)
{
	struct region_members *whole = members_of(region);

	members_take(whole);
	members_set_word(whole, off, value);
	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];

		if (!member_is_open(member) || (off == LAYOUT_FENCE_OFF && !member->region->caps.is_claimable))
			continue;
		if (off == LAYOUT_FENCE_OFF)
			member->region->ops->data.store_word(member->region, off, value);
		else if (member_state(member) == MEMBER_IN)
			members_hint(whole, member, off);
	}
	members_give(whole);
}

static void members_push(struct region *region)
{
	struct region_members *whole = members_of(region);

	members_take(whole);
	for (unsigned i = 0; i < whole->count; i++)
		if (member_state(&whole->members[i]) == MEMBER_IN)
			region_push(whole->members[i].region);
	members_give(whole);
}

/* members_populate -- those of this host, which make more ready than pages. The copy and those that are far are not in
 * the way of an opening, which is waited for and touches no more of the ring than what is undrained: a thread makes
 * their pages when the epoch is open. */
static void members_populate(struct region *region)
{
	struct region_members *whole = members_of(region);

	for (unsigned i = 0; i < whole->count; i++)
		if (member_is_open(&whole->members[i]) && !whole->members[i].region->caps.is_remote)
			whole->members[i].region->ops->data.populate(whole->members[i].region);
}

static void *populate_loop(void *context)
{
	struct region_members *whole = context;
	uint64_t start_lsn = whole->superblock.epoch_start_lsn; /* here the first appends come */

	for (uint64_t done = 0; done < whole->capacity && !atomic_load_acquire(&whole->is_closing);) {
		uint64_t off = ((start_lsn + done) % whole->capacity) & ~((uint64_t)LAYOUT_BLOCK_LEN - 1);
		uint64_t len = whole->capacity - off < POPULATE_LEN ? whole->capacity - off : POPULATE_LEN;

		madvise(whole->copy + LAYOUT_DATA_OFF + off, len, MADV_POPULATE_WRITE);
		done += len;
	}
	for (unsigned i = 0; i < whole->count && !atomic_load_acquire(&whole->is_closing); i++)
		if (pin(whole, i)) {
			if (whole->members[i].region->caps.is_remote)
				whole->members[i].region->ops->data.populate(whole->members[i].region);
			unpin(whole, i);
		}
	return NULL;
}

void members_start_populator(struct region_members *whole)
{
	/* else pages are made where they are touched */
	whole->is_populating = pthread_create(&whole->populator, NULL, populate_loop, whole) == 0;
}

static int members_lock(struct region *region, enum region_role role)
{
	struct region_members *whole = members_of(region);

	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];
		struct farlog_error why = {.result = FARLOG_HELD, .text = "it has a living writer; stop it first"};

		if (member_state(member) != MEMBER_READY)
			continue;
		why.result = region_lock(member->region, role);
		if (why.result != FARLOG_OK && why.result != FARLOG_HELD)
			may_fail(region_refuse_lock(member->region, why.result, member->uri, &why)); /* it only words why */
		if (why.result != FARLOG_OK)
			members_drop(whole, member, &why);
	}
	return FARLOG_OK; /* members_recover says it when too few are left, and why */
}

static void members_unlock(struct region *region, enum region_role role)
{
	struct region_members *whole = members_of(region);

	for (unsigned i = 0; i < whole->count; i++)
		if (member_is_open(&whole->members[i]))
			whole->members[i].region->ops->fence.unlock(whole->members[i].region, role);
}

static int members_is_locked(struct region *region, enum region_role role)
{
	struct region_members *whole = members_of(region);
	int result = FARLOG_OK;

	for (unsigned i = 0; i < whole->count && result == FARLOG_OK; i++)
		if (member_is_open(&whole->members[i]))
			result = whole->members[i].region->ops->fence.is_locked(whole->members[i].region, role);
	return result;
}

/* members_claim -- each by its device. */
static int members_claim(struct region *region, const struct region_claim *claim, struct farlog_error *error)
{
	struct region_members *whole = members_of(region);

	(void)error; /* as with locks */
	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];
		struct region_claim own = *claim;
		struct farlog_error why = {0};

		if (member_state(member) != MEMBER_READY)
			continue;
		own.ring_uuid = member->superblock.ring_uuid;
		own.uri = member->uri;
		if (region_claim(member->region, &own, &why) != FARLOG_OK)
			members_drop(whole, member, &why);
	}
	return FARLOG_OK;
}

const struct region_ops members_ops = {
	.data = {.write = members_put,
		.gather = members_gather,
		.persist = members_persist,
		.poll = members_poll,
		.wait = members_wait,
		.sleepers = region_plain_sleepers,
		.push = members_push,
		.flush = members_flush,
		.seal = members_seal,
		.read = members_read,
		.fetch = members_fetch,
		.expect = region_plain_expect,
		.look = members_look,
		.store_word = members_store_word,
		.tell = region_plain_tell,
		.populate = members_populate,
		.forget = region_plain_forget}, /* members send from there */
	.fence = {.lock = members_lock,
		.unlock = members_unlock,
		.is_locked = members_is_locked,
		.claim = members_claim,
		.propose = members_propose,
		.cut = region_plain_cut},
	.members = {.recover = members_recover,
		.check_level = members_check_level,
		.set_level = members_set_level,
		.finish = members_finish,
		.view = members_view,
		.replace = members_replace,
		.count = members_count},
	.block = REGION_BYTES(region_plain_narrow, region_plain_unlink),
	.close = members_close,
};
