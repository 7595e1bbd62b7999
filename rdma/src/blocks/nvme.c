/* blocks/nvme.c -- a ring on raw blocks, as a region: commits (blocks/nvme_commit.c), calls that wait, and the words
 * that others store. See blocks/nvme.h.
 *
 * A commit is one write of whole fresh LBAs for each span, in pieces where it is long; it is done when every piece has
 * come back, in whatever order. Nothing that was acknowledged is written again: a commit begins where an LBA does,
 * because a PAD ends the one before there. persist only prepares; the waiting that follows sends and waits by one
 * system call. Beside a commit, and not waited for, now and then go the hints for readers, and a look at fence and
 * credit. All else is a call: one command that is waited for with patience. A command that has not come back keeps its
 * buffer: what would need it is refused until then. */
#include "base/err.h"
#include "blocks/nvme.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"

#define OPEN_PATIENCE_NS 100000000u /* of an open writer that asks for the header: resolve has a deadline */
#define LOOK_INTERVAL_NS 2000000u
#define CLOSE_PATIENCE_NS 1000000000u
#define LOCK_PATIENCE_NS 1000000000u

/* ---------------------------------------------------------------- the region */

static void nvme_write(struct region *region, uint64_t off, const void *src, size_t len)
{
	memcpy(nvme_of(region)->copy + off, src, len);
}

static void nvme_gather(struct region *region, uint64_t off, struct gather *gather)
{
	gather_build(nvme_of(region)->copy + off, gather);
}

static int nvme_persist(struct region *region, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	struct region_nvme *nvme = nvme_of(region);
	int result = FARLOG_OK;

	nvme_lock_queue(&nvme->is_busy);
	if (region->is_write_fenced) {
		nvme->failure = EBADE; /* nothing goes out any more */
	} else if (nvme->flying_count > 0 || nvme->is_held) {
		result = FARLOG_IO; /* one that was given up on: its bytes may still be on their way */
	} else {
		nvme_set_commit_spans(nvme, spans, span_count);
		nvme->failure = 0;
		nvme->tag_asked = tag;
		nvme_hold_commit(nvme);
		if (!nvme->is_held)
			nvme_put_pieces(nvme);
		nvme_put_side_commands(nvme);
	}
	nvme_unlock_queue(&nvme->is_busy);
	return result;
}

static int nvme_poll(struct region *region)
{
	struct region_nvme *nvme = nvme_of(region);
	int failure;
	int result;

	if (!nvme_try_lock_queue(&nvme->is_busy))
		return FARLOG_OK; /* who has it sees to it */
	nvme_collect_answers(nvme);
	failure = nvme->failure;
	result = failure != 0 ? FARLOG_IO : FARLOG_OK;
	if (region->is_write_fenced)
		result = nvme_find_log_end(nvme); /* what waits goes on to wait: for where the log ended */
	nvme_unlock_queue(&nvme->is_busy);
	return result;
}

static void nvme_wait(struct region *region, uint64_t timeout_ns)
{
	struct region_nvme *nvme = nvme_of(region);
	struct block_device *device = nvme->device;

	if (!nvme_try_lock_queue(&nvme->is_busy)) {
		nvme_sleep(timeout_ns);
		return;
	}
	if (region->is_write_fenced && nvme->flying_count == 0 && !nvme->is_log_end_flying)
		nvme_sleep(timeout_ns);
	else if ((nvme_commit_is_under_way(nvme) || nvme->is_log_end_flying) &&
		device->ops->wait(device, BLOCK_COMMITS, timeout_ns) != FARLOG_OK)
		nvme->failure = nvme_note_errno(nvme);
	nvme_unlock_queue(&nvme->is_busy);
}

static void nvme_push(struct region *region)
{
	struct region_nvme *nvme = nvme_of(region);

	if (!nvme_try_lock_queue(&nvme->is_busy))
		return;
	if (nvme->device->ops->send(nvme->device, BLOCK_COMMITS) != FARLOG_OK)
		nvme->failure = nvme_note_errno(nvme);
	nvme_unlock_queue(&nvme->is_busy);
}

/* wait_all -- until nothing is under way. False: it still is. */
static bool wait_all(struct region_nvme *nvme, uint64_t until_ns)
{
	struct block_device *device = nvme->device;

	while (nvme_commit_is_under_way(nvme) || nvme->is_held || nvme->is_hints_flying || nvme->is_words_read_flying ||
		nvme->is_log_end_flying) {
		uint64_t now_ns = clock_monotonic_ns();

		if (now_ns >= until_ns || device->ops->wait(device, BLOCK_COMMITS, until_ns - now_ns) != FARLOG_OK)
			return false;
		nvme_collect_answers(nvme);
		if (nvme->failure != 0)
			nvme->span_at = nvme->span_count; /* nothing more of it goes out */
	}
	return true;
}

/* wait_hints_written -- those that went beside a commit have landed: what is written now is not older than they. */
static int wait_hints_written(struct region_nvme *nvme)
{
	bool is_settled;

	nvme_lock_queue(&nvme->is_busy);
	is_settled = !nvme->is_hints_flying || wait_all(nvme, clock_after_ns(CLOSE_PATIENCE_NS));
	nvme_unlock_queue(&nvme->is_busy);
	return is_settled ? FARLOG_OK : FARLOG_IO;
}

static int nvme_flush(struct region *region, uint64_t off, uint64_t len)
{
	struct region_nvme *nvme = nvme_of(region);
	bool has_hints = nvme->role == REGION_ROLE_WRITER && atomic_load_acquire(&nvme->are_hints_due) &&
		off <= LAYOUT_TAIL_HINT_OFF && off + len > LAYOUT_DURABLE_HINT_OFF;
	int result = has_hints ? wait_hints_written(nvme) : FARLOG_OK;

	nvme_lock_queue(&nvme->are_calls_busy);
	if (has_hints && result == FARLOG_OK)
		result = nvme_write_hints(nvme);
	if (result == FARLOG_OK && nvme->is_fence_due && off <= LAYOUT_FENCE_OFF && off + len > LAYOUT_FENCE_OFF)
		result = nvme_write_fence(nvme);
	if (result == FARLOG_OK)
		result = nvme_call(nvme, BLOCK_FLUSH, 0, NULL, 0, NVME_PATIENCE_NS);
	nvme_unlock_queue(&nvme->are_calls_busy);
	return result;
}

static void nvme_seal(struct region *region)
{
	(void)region; /* commands take their bytes from the copy as this processor does */
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

/* read_window -- a piece of the ring's data that lies inside one window. */
static int read_window(struct region_nvme *nvme, uint64_t off, uint8_t *dst, uint64_t len)
{
	uint64_t mask = nvme->device->lba_len - 1;
	uint64_t from = nvme_data_at(nvme, off) & ~mask;
	uint64_t to = (nvme_data_at(nvme, off) + len + mask) & ~mask;
	int result;

	nvme_lock_queue(&nvme->are_calls_busy);
	nvme->region.read_count++;
	result = nvme_call(nvme, BLOCK_READ, from, nvme->window, to - from, NVME_PATIENCE_NS);
	if (result == FARLOG_OK)
		memcpy(dst, nvme->window + (nvme_data_at(nvme, off) - from), len);
	nvme_unlock_queue(&nvme->are_calls_busy);
	return result;
}

/* copy_ahead -- what has been read ahead, from the first byte on. */
static size_t copy_ahead(struct region_nvme *nvme, uint64_t off, uint8_t *dst, size_t len)
{
	size_t done = 0;
	size_t copied;

	if (nvme->ahead.bytes == NULL)
		return 0;
	nvme_lock_queue(&nvme->are_calls_busy);
	nvme_ahead_begin(nvme, off);
	do {
		copied = nvme_ahead_copy(nvme, off + done, dst + done, len - done);
		done += copied;
	} while (copied > 0 && done < len);
	nvme_unlock_queue(&nvme->are_calls_busy);
	return done;
}

static int nvme_read(struct region *region, uint64_t off, void *dst, size_t len)
{
	struct region_nvme *nvme = nvme_of(region);
	uint64_t piece_max = nvme_window_len(nvme) - 2 * LAYOUT_BLOCK_LEN;
	size_t copied;
	int result = FARLOG_OK;

	if (nvme->role == REGION_ROLE_WRITER || off < LAYOUT_DATA_OFF) {
		if (nvme->role != REGION_ROLE_WRITER)
			result = nvme_load(nvme);
		memcpy(dst, nvme->copy + off, len);
		return result;
	}
	copied = copy_ahead(nvme, off, dst, len);
	for (size_t done = copied; done < len && result == FARLOG_OK; done += piece_max)
		result = read_window(nvme, off + done, (uint8_t *)dst + done, len - done < piece_max ? len - done : piece_max);
	return result;
}

static int fetch_data(struct region_nvme *nvme, uint64_t off, uint64_t len)
{
	uint64_t mask = nvme->device->lba_len - 1;
	uint64_t to = (off + len + mask) & ~mask;
	uint64_t window_len = nvme_window_len(nvme);
	int result = FARLOG_OK;

	nvme_lock_queue(&nvme->are_calls_busy);
	for (uint64_t at = off & ~mask; at < to && result == FARLOG_OK; at += window_len)
		result = nvme_call(nvme, BLOCK_READ, nvme_data_at(nvme, at), nvme->copy + at,
			to - at < window_len ? to - at : window_len, NVME_PATIENCE_NS);
	nvme_unlock_queue(&nvme->are_calls_busy);
	return result;
}

static int nvme_fetch(struct region *region, uint64_t off, uint64_t len)
{
	struct region_nvme *nvme = nvme_of(region);

	return off < LAYOUT_DATA_OFF ? nvme_load(nvme) : fetch_data(nvme, off, len);
}

static void nvme_refresh_words(struct region *region, bool is_urgent)
{
	struct region_nvme *nvme = nvme_of(region);
	uint64_t now_ns = clock_monotonic_ns();

	if (!is_urgent && !nvme->device->is_clockless && now_ns - nvme->words_read_ns < LOOK_INTERVAL_NS)
		return;
	if (!nvme_try_lock_queue(&nvme->are_calls_busy))
		return;
	nvme_call_words(nvme);
	if (!nvme->device->is_clockless)
		nvme->words_read_ns = now_ns;
	nvme_unlock_queue(&nvme->are_calls_busy);
}

static void nvme_store_word(struct region *region, uint64_t off, uint64_t value)
{
	struct region_nvme *nvme = nvme_of(region);

	atomic_store_release(nvme_word_at(nvme, off), value);
	if (off == LAYOUT_TAIL_HINT_OFF || off == LAYOUT_DURABLE_HINT_OFF)
		atomic_store_release(&nvme->are_hints_due, 1);
	if (off == LAYOUT_FENCE_OFF)
		nvme->is_fence_due = true;
	if (off != LAYOUT_CREDIT_OFF || nvme->role != REGION_ROLE_DRAIN)
		return;
	nvme_lock_queue(&nvme->are_calls_busy);
	nvme->is_credit_due = true;
	may_fail(nvme_write_credit(nvme)); /* what fails is done again when the header is fetched */
	nvme_unlock_queue(&nvme->are_calls_busy);
}

/* nvme_store_hints -- a command of its own: no commit comes with which the hints could go. */
static bool nvme_store_hints(struct region *region, uint64_t tail_lsn, uint64_t durable_lsn)
{
	struct region_nvme *nvme = nvme_of(region);
	bool is_told = false;

	if (nvme->device->is_clockless)
		return true;
	if (!nvme_try_lock_queue(&nvme->is_busy))
		return false;
	nvme_collect_answers(nvme);
	if (!nvme_commit_is_under_way(nvme) && !nvme->is_held && !nvme->is_hints_flying && nvme->failure == 0 &&
		!region->is_write_fenced) {
		atomic_store_release(nvme_word_at(nvme, LAYOUT_TAIL_HINT_OFF), tail_lsn);
		atomic_store_release(nvme_word_at(nvme, LAYOUT_DURABLE_HINT_OFF), durable_lsn);
		nvme_put_hints(nvme);
		is_told = nvme->device->ops->send(nvme->device, BLOCK_COMMITS) == FARLOG_OK;
	}
	nvme_unlock_queue(&nvme->is_busy);
	return is_told;
}

static int nvme_zero(struct region *region)
{
	struct region_nvme *nvme = nvme_of(region);
	struct block_device *device = nvme->device;
	int result;

	if (!wait_all(nvme, clock_after_ns(CLOSE_PATIENCE_NS)))
		return FARLOG_IO; /* what a failed call left would land on the zeros */
	/* The header first, and durably: a crash in the middle leaves no ring rather than a damaged one. */
	result = device->ops->zero(device, device->ring_off, NVME_DATA_OFF);
	if (result == FARLOG_OK)
		result =
			device->ops->zero(device, device->ring_off + NVME_DATA_OFF, region->contract.size_bytes - LAYOUT_DATA_OFF);
	if (result == FARLOG_IO)
		may_fail(nvme_note_errno(nvme)); /* the result is said already */
	madvise(nvme->copy, nvme->copy_len, MADV_DONTNEED);
	nvme->fence_slot = 0;
	return result;
}

static int nvme_name_foreign(struct region *region, char *text, size_t size)
{
	struct block_device *device = nvme_of(region)->device;

	text[0] = '\0';
	return device->ops->name_foreign != NULL ? device->ops->name_foreign(device, text, size) : FARLOG_OK;
}

/* nvme_populate -- the writer's copy, which its commands take their bytes from. */
static void nvme_populate(struct region *region)
{
	struct region_nvme *nvme = nvme_of(region);
	struct farlog_contract *contract = &region->contract;
	size_t used = strlen(contract->probe);

	if (nvme->role != REGION_ROLE_WRITER)
		return;
	nvme->persist_timeout_ns = OPEN_PATIENCE_NS;
	madvise(nvme->copy, nvme->copy_len, MADV_POPULATE_WRITE);
	if (nvme->device->ops->use_buffer != NULL &&
		!nvme->device->ops->use_buffer(nvme->device, nvme->copy, nvme->copy_len, nvme->own, NVME_CONTROL_LEN * 2))
		snprintf(contract->probe + used, sizeof(contract->probe) - used,
			"; buffers not registered: more than this process may lock");
}

static int nvme_lock(struct region *region, enum region_role role)
{
	struct region_nvme *nvme = nvme_of(region);
	uint64_t until_ns = clock_after_ns(LOCK_PATIENCE_NS);
	int result = nvme->device->ops->lock(nvme->device, role);

	/* Of a process that has just died the kernel holds it until its last command is back and its queues are gone. */
	while (result == FARLOG_HELD && !nvme->device->is_clockless && clock_monotonic_ns() < until_ns) {
		nvme_sleep(LOCK_PATIENCE_NS);
		result = nvme->device->ops->lock(nvme->device, role);
	}
	if (result == FARLOG_OK && role == REGION_ROLE_WRITER && region->directory == NULL) {
		int has_parts = nvme->device->ops->has_parts(nvme->device);

		result = has_parts > 0 ? FARLOG_HELD : has_parts;
		if (result != FARLOG_OK)
			nvme->device->ops->unlock(nvme->device, role); /* who writes to all of a device has no others in it */
	}
	if (result == FARLOG_IO)
		may_fail(nvme_note_errno(nvme)); /* the result is said already */
	/* What the former holder has stored since we opened. */
	if (result == FARLOG_OK && nvme_load(nvme) != FARLOG_OK) {
		nvme->device->ops->unlock(nvme->device, role);
		result = FARLOG_IO;
	}
	return result;
}

static void nvme_unlock(struct region *region, enum region_role role)
{
	nvme_of(region)->device->ops->unlock(nvme_of(region)->device, role);
}

static int nvme_is_locked(struct region *region, enum region_role role)
{
	struct region_nvme *nvme = nvme_of(region);
	int result = nvme->device->ops->is_locked(nvme->device, role);

	if (result < 0)
		may_fail(nvme_note_errno(nvme)); /* the result is said already */
	return result;
}

/* finish_commands -- what is under way may come back, and the last hints go out: where it matters that this writer is
 * gone, behind all else, and durably. */
static void finish_commands(struct region_nvme *nvme)
{
	uint64_t until_ns = clock_after_ns(CLOSE_PATIENCE_NS);
	bool is_closable;

	nvme_ahead_end(nvme, CLOSE_PATIENCE_NS);
	nvme_shared_claim_end(nvme);
	nvme_collect_answers(nvme);
	is_closable = nvme_is_closable(nvme);
	if (is_closable && !wait_all(nvme, until_ns))
		return;
	nvme->is_closing = is_closable && nvme->failure == 0 && !nvme->region.is_write_fenced;
	if (nvme->role == REGION_ROLE_WRITER && (atomic_load_acquire(&nvme->are_hints_due) || nvme->is_closing) &&
		!nvme->is_hints_flying && nvme->failure == 0)
		nvme_put_hints(nvme);
	(void)wait_all(nvme, until_ns);
}

void nvme_close(struct region *region)
{
	struct region_nvme *nvme = nvme_of(region);

	if (nvme->copy != NULL && nvme->own != NULL)
		finish_commands(nvme);
	nvme->device->ops->close(nvme->device);
	if (nvme->copy != NULL)
		munmap(nvme->copy, nvme->copy_len);
	if (nvme->own != NULL)
		munmap(nvme->own, 3 * NVME_CONTROL_LEN + NVME_WINDOW_LEN);
	if (nvme->ahead.bytes != NULL)
		munmap(nvme->ahead.bytes, (uint64_t)NVME_AHEAD_COUNT * NVME_AHEAD_LEN);
	free(nvme->directory);
	free(nvme);
}

const struct region_ops nvme_ops = {
	.data = {.write = nvme_write,
		.gather = nvme_gather,
		.persist = nvme_persist,
		.poll = nvme_poll,
		.wait = nvme_wait,
		.list_wait_fds = region_default_list_wait_fds,
		.push = nvme_push,
		.flush = nvme_flush,
		.seal = nvme_seal,
		.read = nvme_read,
		.fetch = nvme_fetch,
		.prefetch = nvme_prefetch,
		.refresh_words = nvme_refresh_words,
		.store_word = nvme_store_word,
		.store_hints = nvme_store_hints,
		.populate = nvme_populate,
		.drop_pages = region_default_drop_pages},
	.fence = {.lock = nvme_lock,
		.unlock = nvme_unlock,
		.is_locked = nvme_is_locked,
		.claim = nvme_claim,
		.store_superblock = region_default_store_superblock,
		.abort_persist = region_default_abort_persist},
	.members = REGION_SINGLE,
	.block = {.narrow = nvme_narrow,
		.fetch_directory = nvme_fetch_directory,
		.store_directory = nvme_store_directory,
		.zero = nvme_zero,
		.name_foreign = nvme_name_foreign,
		.unlink = region_default_unlink},
	.close = nvme_close,
};
