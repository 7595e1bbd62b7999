/* far/region.c -- a ring on another host, as a region: a copy of it here, and a link that carries bytes both ways.
 *
 * The writer stages records in the copy and persist sends them; a drain reads through a window behind its copy of the
 * header. When the link breaks, a thread of the region connects again (far/open.c), and what was not acknowledged is
 * sent again from the copy: the same bytes to the same places. The caller sees only time go by, and its own deadline
 * decides. A target that knows a higher epoch refuses the reconnection, and that is how a writer that was stopped for a
 * while learns that it has been fenced. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "far/region.h"

#define MISS_COUNT 1024u /* fruitless polls between two looks at how long a persist has been on its way */

void far_break_link(struct region_far *far)
{
	atomic_store_relaxed(&far->is_torn, 0);
	atomic_store_release(&far->state, FAR_BROKEN);
	far_wake_connector(far);
}

/* resume_persist -- the first act on a new one: what the old one did not confirm. Not a drain's: its head slot and its
 * credit are right only while nobody else has drained, which it has to look for first. */
static void resume_persist(struct region_far *far)
{
	struct far_link *link = far->link;
	int result = FARLOG_OK;

	atomic_store_release(&far->state, FAR_UP);
	far->region.reconnect_count++;
	if (far->tag_asked != link->done.persist_tag && far->role == REGION_ROLE_DRAIN)
		far->region.tag_lost = far->tag_asked;
	else if (far->tag_asked != link->done.persist_tag)
		result = link->ops->persist(link, far->spans, far->span_count, far->tag_asked);
	if (result != FARLOG_OK)
		far_break_link(far);
}

/* look -- what has come back by a link that is up. The caller has taken it. */
static inline __attribute__((always_inline)) void look(struct region_far *far)
{
	if (__builtin_expect(far->link->ops->poll(far->link) != FARLOG_OK, 0))
		far_break_link(far);
	atomic_store_relaxed(&far->region.tag_done, far->link->done.persist_tag);
}

/* turn -- progress of whatever state the link is in. The caller has taken it. */
static inline __attribute__((always_inline)) void turn(struct region_far *far)
{
	uint64_t state = atomic_load_acquire(&far->state);

	if (__builtin_expect(state != FAR_UP, 0)) {
		if (state != FAR_BACK)
			return;
		resume_persist(far);
		if (atomic_load_relaxed(&far->state) != FAR_UP)
			return;
	}
	look(far);
}

void far_advance(struct region_far *far)
{
	turn(far);
}

static void far_write(struct region *region, uint64_t off, const void *src, size_t len)
{
	memcpy(far_of(region)->link->copy + off, src, len);
}

static void far_gather(struct region *region, uint64_t off, struct gather *gather)
{
	gather_build(far_of(region)->link->copy + off, gather);
}

static int far_persist(struct region *region, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	struct region_far *far = far_of(region);

	far_lock_link(far);
	/* A cold call gave up on the last one: with a new connection nothing of it is on its way any more. */
	if (__builtin_expect(far->tag_asked != far->link->done.persist_tag, 0) && far->tag_asked != far->region.tag_lost &&
		atomic_load_acquire(&far->state) == FAR_UP)
		far_break_link(far);
	for (unsigned i = 0; i < span_count; i++)
		far->spans[i] = spans[i];
	far->span_count = span_count;
	far->tag_asked = tag;
	/* A link that is not up sends it when it is back. The first look is taken while we have the link. */
	if (__builtin_expect(atomic_load_acquire(&far->state) == FAR_UP, 1)) {
		if (__builtin_expect(far->link->ops->persist(far->link, spans, span_count, tag) != FARLOG_OK, 0))
			far_break_link(far);
		else if (!far->region.is_member)
			look(far);
	}
	far_unlock_link(far);
	return FARLOG_OK;
}

static int far_poll(struct region *region)
{
	struct region_far *far = far_of(region);
	bool is_lost = false;

	if (far_try_lock_link(far)) {
		turn(far);
		if (__builtin_expect(far->tag_asked != far->link->done.persist_tag, 0)) {
			is_lost = far->tag_asked == far->region.tag_lost;
			if (!is_lost && ++far->miss_count % MISS_COUNT == 0)
				far_break_link_if_silent(far);
		}
		far_unlock_link(far);
	}
	if (__builtin_expect(atomic_load_acquire(&far->state) == FAR_FAILED, 0))
		return far->verdict;
	return __builtin_expect(is_lost, 0) ? FARLOG_IO : FARLOG_OK;
}

static bool is_read(const struct region_far *far, uint64_t tag)
{
	return far->link->done.read_tag == tag;
}

static bool is_answered(const struct region_far *far, uint64_t tag)
{
	return region_load_word(&far->region, FAR_ANSWER_OFF) >> 32 == tag;
}

/* unreachable_result -- what a call says that finds the link not up: try again, or that there is no use. */
static int unreachable_result(const struct region_far *far)
{
	return atomic_load_acquire(&far->state) == FAR_FAILED ? far->verdict : FARLOG_IO;
}

/* acquire_link -- take the link for a cold call. False: it is not up. */
static bool acquire_link(struct region_far *far)
{
	far_lock_link(far);
	if (atomic_load_acquire(&far->state) == FAR_BACK)
		resume_persist(far);
	if (atomic_load_acquire(&far->state) == FAR_UP)
		return true;
	far_unlock_link(far);
	return false;
}

/* has_come_back -- after a cold call failed: may it be tried again? A writer's are those of its opening, which can be
 * repeated, and a connection in place of the broken one lets the same writer in: nobody else wrote meanwhile. Waits
 * until it is there, or limit_ns has come (0: none). */
static bool has_come_back(struct region_far *far, uint64_t limit_ns)
{
	uint64_t until_ns = limit_ns != 0 && limit_ns < far->opening_until_ns ? limit_ns : far->opening_until_ns;

	while (far->role == REGION_ROLE_WRITER && far->is_connecting && clock_monotonic_ns() < until_ns &&
		!far_is_connect_cancelled(far->link)) {
		enum far_state state = atomic_load_acquire(&far->state);

		if (state != FAR_BROKEN)
			return state == FAR_UP || state == FAR_BACK;
		nanosleep(&(struct timespec){0, RETRY_FIRST_NS}, NULL);
	}
	return false;
}

static int fetch_once(struct region_far *far, struct region_span span)
{
	int result;

	if (!acquire_link(far))
		return unreachable_result(far);
	far->region.read_count++;
	result = far->link->ops->read(far->link, span, ++far->read_tag);
	if (result != FARLOG_OK)
		far_break_link(far);
	far_unlock_link(far);
	if (result != FARLOG_OK)
		return FARLOG_IO;
	result = far_await(far, (struct far_await){.is_done = is_read, .tag = far->read_tag}, far->region.until_ns);
	/* Given up on: with a new connection, what comes of it late lands in no one's way. */
	if (result != FARLOG_OK && atomic_load_acquire(&far->state) == FAR_UP)
		far_break_link(far);
	return result;
}

static int fetch_piece(struct region_far *far, struct region_span span)
{
	int result;

	do
		result = fetch_once(far, span);
	while (result != FARLOG_OK && has_come_back(far, far->region.until_ns));
	return result;
}

static int far_fetch(struct region *region, uint64_t off, uint64_t len)
{
	int result = FARLOG_OK;

	if (off >= LAYOUT_DATA_OFF && far_of(region)->link->window_len != 0)
		return FARLOG_UNSUPPORTED; /* the copy has no place for it; read has */
	/* What lies behind the header's words in the copy is not the target's. */
	if (off < LAYOUT_DATA_OFF && off + len > FAR_HEADER_LEN)
		len = FAR_HEADER_LEN - off;
	for (uint64_t done = 0; done < len && result == FARLOG_OK; done += FETCH_LEN_MAX)
		result = fetch_piece(
			far_of(region), (struct region_span){off + done, len - done < FETCH_LEN_MAX ? len - done : FETCH_LEN_MAX});
	return result;
}

static int request_once(struct region_far *far, struct far_request *request, uint32_t *answer)
{
	int result;

	if (!acquire_link(far))
		return unreachable_result(far);
	request->tag = far->request_tag = far->request_tag + 1 == FAR_LINK_TAG ? 1 : far->request_tag + 1;
	result = far->link->ops->send(far->link, request);
	if (result != FARLOG_OK)
		far_break_link(far);
	far_unlock_link(far);
	if (result == FARLOG_OK)
		result = far_await(far, (struct far_await){.is_done = is_answered, .tag = request->tag}, 0);
	if (result == FARLOG_OK)
		*answer = (uint32_t)region_load_word(&far->region, FAR_ANSWER_OFF);
	/* Given up on: with a new connection the target has no request that it has not answered (FAR_UNANSWERED_MAX). */
	else if (atomic_load_acquire(&far->state) == FAR_UP && !far_is_connect_cancelled(far->link))
		far_break_link(far);
	return result;
}

static int request_answer(struct region_far *far, struct far_request *request, uint32_t *answer)
{
	int result;

	do
		result = request_once(far, request, answer);
	while (result != FARLOG_OK && has_come_back(far, 0));
	return result;
}

/* far_abort_persist -- the connector tears the connection down, and connects again. What lands late of the old one
 * does so before the target admits us again. */
static int far_abort_persist(struct region *region)
{
	struct region_far *far = far_of(region);
	enum far_state state;

	if (!far_try_lock_link(far))
		return FARLOG_NOT_YET;
	state = atomic_load_acquire(&far->state);
	if (state == FAR_UP)
		far_break_link(far);
	far_unlock_link(far);
	return state != FAR_UP && atomic_load_acquire(&far->is_torn) ? FARLOG_OK : FARLOG_NOT_YET;
}

static unsigned far_sleepers(struct region *region, int *fds, unsigned count_max)
{
	struct region_far *far = far_of(region);
	uint64_t nap_ns = UINT64_MAX;
	unsigned count = 0;

	if (!far_try_lock_link(far))
		return 0;
	if (atomic_load_acquire(&far->state) == FAR_UP && far->link->ops->sleepers != NULL)
		count = far->link->ops->sleepers(far->link, fds, count_max, &nap_ns);
	far_unlock_link(far);
	return nap_ns == UINT64_MAX ? count : 0; /* an event that wakes no poller cannot be waited for */
}

static int far_flush(struct region *region, uint64_t off, uint64_t len)
{
	struct far_request request = {.operation = FAR_FLUSH, .span_count = 1, .spans = {{off, len}}};
	uint32_t answer;
	int result = request_answer(far_of(region), &request, &answer);

	return result == FARLOG_OK ? -(int)answer : result;
}

static void far_seal(struct region *region)
{
	(void)region; /* the link reads the copy as this processor does; the leader's persist sends it */
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

static int far_read(struct region *region, uint64_t off, void *dst, size_t len)
{
	struct region_far *far = far_of(region);
	struct far_link *link = far->link;
	int result = FARLOG_OK;

	/* A writer's copy is the ring: nobody else stores records. */
	if (link->window_len == 0 || off < LAYOUT_DATA_OFF) {
		if (link->window_len != 0)
			result = far_fetch(region, off, len);
		memcpy(dst, link->copy + off, len);
		return result;
	}
	for (size_t done = 0; done < len && result == FARLOG_OK; done += link->window_len) {
		size_t piece_len = len - done < link->window_len ? len - done : link->window_len;

		link->window_off = off + done - LAYOUT_DATA_OFF;
		result = fetch_piece(far, (struct region_span){off + done, piece_len});
		if (result == FARLOG_OK)
			memcpy((uint8_t *)dst + done, far_place(link, off + done), piece_len);
	}
	return result;
}

static void far_store_word(struct region *region, uint64_t off, uint64_t value)
{
	struct region_far *far = far_of(region);

	atomic_store_release((uint64_t *)(far->link->copy + off), value);
	far_lock_link(far);
	if (atomic_load_acquire(&far->state) == FAR_UP && far->link->ops->write(far->link, off, 8) != FARLOG_OK)
		far_break_link(far);
	far_unlock_link(far);
}

static bool far_store_hints(struct region *region, uint64_t tail_lsn, uint64_t durable_lsn)
{
	struct region_far *far = far_of(region);
	bool is_up;

	if (!far_try_lock_link(far))
		return false;
	is_up = atomic_load_acquire(&far->state) == FAR_UP;
	if (is_up) {
		atomic_store_release((uint64_t *)(far->link->copy + LAYOUT_TAIL_HINT_OFF), tail_lsn);
		atomic_store_release((uint64_t *)(far->link->copy + LAYOUT_DURABLE_HINT_OFF), durable_lsn);
		if (far->link->ops->write(far->link, LAYOUT_TAIL_HINT_OFF, sizeof(tail_lsn)) != FARLOG_OK ||
			far->link->ops->write(far->link, LAYOUT_DURABLE_HINT_OFF, sizeof(durable_lsn)) != FARLOG_OK)
			far_break_link(far);
	}
	far_unlock_link(far);
	return is_up;
}

/* far_store_superblock -- from a place that a writer has a key to, the target stores it where the writer has none. */
static int far_store_superblock(struct region *region, uint64_t off, const void *src, size_t len, bool is_persisted)
{
	struct far_request request = {.operation = FAR_EPOCH, .span_count = 1, .spans = {{off, len}}};
	struct region_span span = {LAYOUT_PROPOSAL_OFF, len};
	uint32_t answer;
	int result;

	(void)is_persisted; /* the target always does */
	far_write(region, span.off, src, len);
	result = region_persist_wait(region, &span, 1);
	if (result == FARLOG_OK)
		result = request_answer(far_of(region), &request, &answer);
	if (result == FARLOG_OK)
		result = -(int)answer;
	if (result == FARLOG_OK)
		far_write(region, off, src, len);
	return result;
}

/* far_refresh_words -- the transport may need our help to put the words into the copy. */
static void far_refresh_words(struct region *region, bool is_urgent)
{
	(void)is_urgent;
	may_fail(far_poll(region)); /* who waits for the persist sees it fail */
}

static void far_populate(struct region *region)
{
	struct region_far *far = far_of(region);

	madvise(far->link->copy, far->link->copy_len, MADV_POPULATE_WRITE);
}

static int far_lock(struct region *region, enum region_role role)
{
	return role == far_of(region)->role ? FARLOG_OK : FARLOG_UNSUPPORTED; /* who was let in holds it */
}

static void far_unlock(struct region *region, enum region_role role)
{
	(void)region; /* the connection holds it */
	(void)role;
}

static int far_is_locked(struct region *region, enum region_role role)
{
	struct far_request request = {.operation = FAR_LOCKED};
	uint32_t answer;
	int result = request_answer(far_of(region), &request, &answer);

	return result == FARLOG_OK ? (int)(answer >> role & 1) : result;
}

void far_close(struct region *region)
{
	struct region_far *far = far_of(region);

	if (far->is_connecting) {
		atomic_store_release(&far->is_closing, 1);
		atomic_store_release(&far->link->is_connect_cancelled, 1);
		far_wake_connector(far);
		pthread_join(far->connector, NULL);
	}
	if (far->link != NULL) {
		uint8_t *copy = far->link->copy;
		uint64_t copy_len = far->link->copy_len;

		if (far->was_admitted && (far->state == FAR_UP || far->state == FAR_BACK))
			far_leave(far->link);
		far->link->ops->disconnect(far->link);
		far->link->ops->close(far->link);
		if (copy != NULL)
			munmap(copy, copy_len);
	}
	far_close_wakeup(far);
	free(far);
}

#define FAR_OPS(wait_op, wait_fds_op) \
	{.data = {.write = far_write, \
		 .gather = far_gather, \
		 .persist = far_persist, \
		 .poll = far_poll, \
		 .wait = wait_op, \
		 .list_wait_fds = wait_fds_op, \
		 .push = region_default_push, \
		 .flush = far_flush, \
		 .seal = far_seal, \
		 .read = far_read, \
		 .fetch = far_fetch, \
		 .prefetch = region_default_prefetch, \
		 .refresh_words = far_refresh_words, \
		 .store_word = far_store_word, \
		 .store_hints = far_store_hints, \
		 .populate = far_populate, \
		 .drop_pages = region_default_drop_pages}, \
		.fence = {.lock = far_lock, \
			.unlock = far_unlock, \
			.is_locked = far_is_locked, \
			.claim = region_default_claim, \
			.store_superblock = far_store_superblock, \
			.abort_persist = far_abort_persist}, \
		.members = REGION_SINGLE, \
		.block = REGION_BYTES(region_default_narrow, region_default_unlink), \
		.close = far_close}

const struct region_ops far_spinning_ops = FAR_OPS(region_default_wait, region_default_list_wait_fds);
const struct region_ops far_waiting_ops = FAR_OPS(far_wait, far_sleepers);
