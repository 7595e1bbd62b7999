/* members/members.c -- several rings as one region: what the writer calls. See members/members.h.
 *
 * An error of a member is no error here: a persist that too few members complete stays incomplete until the writer's
 * deadline. */
#include "members/members.h"

#include <poll.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"

#define SPIN_NS 20000u
#define NAP_NS 20000u
#define NAP_LAST_NS 1000000u
#define POPULATE_LEN (4u << 20) /* between two checks of is_closing */

static bool try_acquire(struct region_members *whole)
{
	return __atomic_exchange_n(&whole->is_busy, 1, __ATOMIC_ACQUIRE) == 0;
}

/* ---------------------------------------------------------------- the region */

static void members_copy_in(struct region *region, uint64_t off, const void *src, size_t len)
{
	memcpy(members_of(region)->copy + off, src, len);
}

static void members_gather(struct region *region, uint64_t off, struct gather *gather)
{
	gather_build(members_of(region)->copy + off, gather);
}

/* members_persist -- of records alone, each persist continuing where the last one ended; the header is stored by other
 * calls. IO: it does not continue there, and would be sent from another place of the copy. */
static int members_persist(struct region *region, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	struct region_members *whole = members_of(region);
	int result = FARLOG_IO;

	members_acquire(whole);
	if (span_count > 0 && spans[0].off == LAYOUT_DATA_OFF + whole->requested_lsn % whole->capacity) {
		for (unsigned i = 0; i < span_count; i++)
			whole->requested_lsn += spans[i].len;
		whole->requested_tag = tag;
		members_advance(whole, false);
		result = FARLOG_OK;
	}
	members_release(whole);
	return result;
}

static int members_poll(struct region *region)
{
	struct region_members *whole = members_of(region);

	if (try_acquire(whole)) {
		members_advance(whole, false);
		members_release(whole);
	}
	return FARLOG_OK;
}

/* raise_hints -- of an idle writer, which stores none: all that it requested is on as many members as an
 * acknowledgement needs. */
static void raise_hints(struct region_members *whole)
{
	if (whole->region.contract.level < FARLOG_LEVEL_PERSISTENT || !region_is_done(&whole->region, whole->requested_tag))
		return;
	if (members_word(whole, LAYOUT_DURABLE_HINT_OFF) >= whole->requested_lsn)
		return;
	if (members_word(whole, LAYOUT_TAIL_HINT_OFF) < whole->requested_lsn)
		members_set_word(whole, LAYOUT_TAIL_HINT_OFF, whole->requested_lsn);
	members_set_word(whole, LAYOUT_DURABLE_HINT_OFF, whole->requested_lsn);
}

void members_advance_idle(struct region_members *whole)
{
	if (!try_acquire(whole))
		return;
	raise_hints(whole);
	members_advance(whole, true);
	members_release(whole);
}

static void members_refresh_words(struct region *region, bool is_urgent)
{
	struct region_members *whole = members_of(region);

	members_acquire(whole);
	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];

		if (member_state(member) == MEMBER_ACTIVE &&
			!member->region->caps.words_by_poll) /* else members_advance does */
			member->region->ops->data.refresh_words(member->region, is_urgent);
	}
	members_advance(whole, is_urgent);
	members_update_credit(whole, is_urgent);
	members_release(whole);
}

/* find_sleepers -- descriptors of the active members with a persist in flight. *is_spinning: one of them polls without
 * a pause, or has completed. *has_unpollable: one has no descriptor. The caller holds is_busy. */
static unsigned find_sleepers(struct region_members *whole, struct pollfd *fds, bool *is_spinning, bool *has_unpollable)
{
	unsigned count = 0;

	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];
		struct region *region = member->region;
		int found[4];
		unsigned found_count;

		if (member_state(member) != MEMBER_ACTIVE || !member->is_inflight)
			continue;
		*is_spinning |= region->caps.is_spinning;
		found_count = region->ops->data.list_wait_fds(region, found, 4);
		*has_unpollable |= found_count == 0;
		for (unsigned j = 0; j < found_count; j++)
			fds[count++] = (struct pollfd){.fd = found[j], .events = POLLIN};
	}
	return count;
}

static void sleep_until_event(struct region_members *whole, uint64_t limit_ns)
{
	struct pollfd fds[4 * MEMBER_COUNT_MAX];
	bool is_spinning = false;
	bool has_unpollable = false;
	unsigned count = 0;
	uint64_t nap_ns;

	if (try_acquire(whole)) {
		count = find_sleepers(whole, fds, &is_spinning, &has_unpollable);
		members_release(whole);
	}
	nap_ns = has_unpollable || count == 0 ? NAP_NS : NAP_LAST_NS;
	if (nap_ns > limit_ns)
		nap_ns = limit_ns;
	if (is_spinning)
		cpu_relax();
	else
		(void)clock_poll(fds, count, nap_ns);
}

static void members_wait(struct region *region, uint64_t timeout_ns)
{
	struct region_members *whole = members_of(region);
	uint64_t start_ns = clock_monotonic_ns();
	uint64_t waited_ns = 0;

	while (!region_is_done(region, whole->requested_tag) && waited_ns < timeout_ns &&
		members_word(whole, LAYOUT_FENCE_OFF) <= whole->epoch) {
		if (waited_ns < SPIN_NS)
			cpu_relax();
		else
			sleep_until_event(whole, timeout_ns - waited_ns);
		if (try_acquire(whole)) {
			members_advance(whole, waited_ns >= SPIN_NS);
			members_release(whole);
		}
		waited_ns = clock_monotonic_ns() - start_ns;
	}
}

/* is_behind -- an active member lacks records and is not late. */
static bool is_behind(const struct region_members *whole)
{
	bool is_any = false;

	for (unsigned i = 0; i < whole->count; i++) {
		const struct member *member = &whole->members[i];

		is_any |= member_state(member) == MEMBER_ACTIVE && !member->is_late && member->fence <= whole->epoch &&
			member->durable_lsn < whole->requested_lsn;
	}
	return is_any;
}

/* members_finish_copies -- when the writer closes: wait for the members that an acknowledgement does not wait for,
 * which would lack the last records until the next opening. */
static void members_finish_copies(struct region *region, uint64_t timeout_ns)
{
	struct region_members *whole = members_of(region);
	uint64_t start_ns = clock_monotonic_ns();
	uint64_t waited_ns = 0;
	bool is_lacking = true;

	while (is_lacking && waited_ns < timeout_ns) {
		if (waited_ns >= SPIN_NS)
			sleep_until_event(whole, timeout_ns - waited_ns);
		members_acquire(whole);
		members_advance(whole, true);
		is_lacking = is_behind(whole);
		members_release(whole);
		waited_ns = clock_monotonic_ns() - start_ns;
	}
}

static int members_flush(struct region *region, uint64_t off, uint64_t len)
{
	(void)region; /* members_recover has flushed each member */
	(void)off, (void)len;
	return FARLOG_OK;
}

static void members_seal(struct region *region)
{
	(void)region; /* the persisting thread sends from the copy */
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

static int members_read(struct region *region, uint64_t off, void *dst, size_t len)
{
	memcpy(dst, members_of(region)->copy + off, len);
	return FARLOG_OK;
}

/* pin -- keep member i open until unpin. False: it is not open. */
static bool pin(struct region_members *whole, unsigned i)
{
	bool is_open;

	members_acquire(whole);
	is_open = member_is_open(&whole->members[i]);
	atomic_add(&whole->members[i].pin_count, is_open);
	members_release(whole);
	return is_open;
}

static void unpin(struct region_members *whole, unsigned i)
{
	__atomic_sub_fetch(&whole->members[i].pin_count, 1, __ATOMIC_RELEASE);
}

/* members_fetch -- the header, of the members that answer; IO when none does. members_recover has fetched the
 * records. */
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
		/* on failure its last header counts */
		result = region_fetch(child, 0, LAYOUT_DATA_OFF);
		child->until_ns = 0;
		has_answer |= result == FARLOG_OK;
		unpin(whole, i);
	}
	members_acquire(whole);
	members_build_header(whole);
	members_release(whole);
	return has_answer ? FARLOG_OK : result;
}

/* members_store_word -- hints for readers of a single member: not above its durable_lsn. The fence goes to members that
 * fence other hosts by it. */
static void members_store_word(struct region *region, uint64_t off, uint64_t value)
{
	struct region_members *whole = members_of(region);

	members_acquire(whole);
	members_set_word(whole, off, value);
	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];

		if (!member_is_open(member) || (off == LAYOUT_FENCE_OFF && !member->region->caps.is_claimable))
			continue;
		if (off == LAYOUT_FENCE_OFF)
			member->region->ops->data.store_word(member->region, off, value);
		else if (member_state(member) == MEMBER_ACTIVE)
			members_hint(whole, member, off);
	}
	members_release(whole);
}

static void members_push(struct region *region)
{
	struct region_members *whole = members_of(region);

	members_acquire(whole);
	for (unsigned i = 0; i < whole->count; i++)
		if (member_state(&whole->members[i]) == MEMBER_ACTIVE)
			region_push(whole->members[i].region);
	members_release(whole);
}

/* members_populate -- of local members, where it prepares more than pages. An opening touches only undrained records:
 * the pages of the copy and of remote members are touched by a thread after the epoch is opened. */
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
	uint64_t start_lsn = whole->superblock.epoch_start_lsn; /* the first appends go there */

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
	/* on failure pages are touched by the appends */
	whole->is_populating = thread_start(&whole->populator, populate_loop, whole) == 0;
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
			may_fail(region_set_lock_error(member->region, why.result, member->uri, &why)); /* it only sets the text */
		if (why.result != FARLOG_OK)
			members_close_one(whole, member, &why);
	}
	return FARLOG_OK; /* members_recover reports it when too few are left */
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
			members_close_one(whole, member, &why);
	}
	return FARLOG_OK;
}

const struct region_ops members_ops = {
	.data = {.write = members_copy_in,
		.gather = members_gather,
		.persist = members_persist,
		.poll = members_poll,
		.wait = members_wait,
		.list_wait_fds = region_default_list_wait_fds,
		.push = members_push,
		.flush = members_flush,
		.seal = members_seal,
		.read = members_read,
		.fetch = members_fetch,
		.prefetch = region_default_prefetch,
		.refresh_words = members_refresh_words,
		.store_word = members_store_word,
		.store_hints = region_default_store_hints,
		.populate = members_populate,
		.drop_pages = region_default_drop_pages}, /* members send from there */
	.fence = {.lock = members_lock,
		.unlock = members_unlock,
		.is_locked = members_is_locked,
		.claim = members_claim,
		.store_superblock = members_store_superblock,
		.abort_persist = region_default_abort_persist},
	.members = {.recover = members_recover,
		.check_level = members_check_level,
		.set_level = members_set_level,
		.finish_copies = members_finish_copies,
		.list_members = members_list,
		.replace_member = members_replace_member,
		.attach_counters = members_attach_counters},
	.block = REGION_BYTES(region_default_narrow, region_default_unlink),
	.close = members_close,
};
