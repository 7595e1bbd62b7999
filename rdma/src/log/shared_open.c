/* log/shared_open.c -- a shared writer's cold calls: open, resolve, the positions, close. */
#include <stdlib.h>
#include <string.h>

#include "farlog/host.h"

#include "base/err.h"
#include "log/shared_handle.h"

/* lock_until -- as shared_lock, for a lock that is held across a flush. False: the time has come. */
static bool lock_until(uint64_t *word, uint64_t until_ns)
{
	while (!atomic_swap_if(word, 0, 1)) {
		if (clock_monotonic_ns() >= until_ns)
			return false;
		shared_sleep();
	}
	return true;
}

int farlog_shared_open(
	const char *uri, const struct farlog_writer_config *config, farlog_shared **opened, struct farlog_error *error)
{
	struct farlog_writer *writer;
	struct farlog_shared *shared;
	int result = farlog_writer_open(uri, config, &writer, error);

	*opened = NULL;
	if (result != FARLOG_OK)
		return result;
	shared = aligned_alloc(64, sizeof(*shared));
	if (shared == NULL) {
		farlog_writer_close(writer);
		return error_set(error, FARLOG_NO_MEMORY, 0, "open ring \"%s\": out of memory", uri);
	}
	memset(shared, 0, sizeof(*shared));
	shared->writer = writer;
	shared->published_lsn = writer->ring.appended_lsn;
	shared->durable_lsn = writer->durable_lsn;
	*opened = shared;
	return FARLOG_OK;
}

void farlog_shared_ring(const farlog_shared *shared, struct farlog_ring_status *status)
{
	farlog_writer_ring(shared->writer, status);
}

/* resolve_inherited -- without `reserve`, so that appends go on while the header is fetched and records are walked
 * over. What they have written over meanwhile is looked at again: a far writer's head may lie behind its credit for
 * ever, and all from it on be there. Each lap is by a later head, and none by one beyond the position. */
static int resolve_inherited(struct farlog_shared *shared, struct deadline *deadline, struct farlog_position *position)
{
	struct farlog_writer *writer = shared->writer;
	bool is_whole = false;
	int result = FARLOG_UNKNOWN;

	while (!is_whole) {
		struct resolve_bounds bounds;
		uint64_t lsn = position->lsn;

		if (!shared_lock(&shared->reserve, deadline))
			return FARLOG_UNKNOWN;
		writer_read_credit(writer, true);
		bounds = writer_resolve_bounds(writer, lsn);
		shared_unlock(&shared->reserve);
		*position = (struct farlog_position){.lsn = lsn, .copies = 1};
		result = writer_resolve_inherited(writer, &bounds, deadline, position);
		if (!shared_lock(&shared->reserve, deadline))
			return FARLOG_UNKNOWN;
		is_whole = result == FARLOG_UNKNOWN || writer->ring.appended_lsn - bounds.head_lsn <= writer->identity.capacity;
		shared_unlock(&shared->reserve);
	}
	return result;
}

/* resolve_own -- what lies below the shared durable position is settled: resolve finds it so without a flush. */
static int resolve_own(struct farlog_shared *shared, struct deadline *deadline, struct farlog_position *position)
{
	struct farlog_writer *writer = shared->writer;
	int result;

	if (!shared_lock(&shared->reserve, deadline))
		return FARLOG_UNKNOWN;
	if (writer->region->caps.is_seal_durable)
		atomic_store_relaxed(&writer->durable_lsn, atomic_load_acquire(&shared->durable_lsn));
	result = writer_resolve(writer, deadline, position);
	shared_unlock(&shared->reserve);
	return result;
}

int farlog_shared_resolve(farlog_shared *shared, uint64_t lsn, uint64_t deadline_ns, struct farlog_position *position)
{
	struct farlog_writer *writer = shared->writer;
	struct deadline deadline = deadline_make(writer, deadline_ns);
	uint64_t published_lsn;
	int result = FARLOG_NOT_FOUND;

	*position = (struct farlog_position){.lsn = lsn, .copies = 1};
	if (!shared_enter(shared))
		return FARLOG_CLOSED;
	deadline.at_ns = clock_after_ns(deadline.duration_ns);
	shared_publish_pending(shared);
	/* Beyond this nothing is published: it may be half written, and resolve must not flush it. */
	published_lsn = atomic_load_acquire(&shared->published_lsn);
	if (lsn < published_lsn)
		result = shared_wait_durable(shared, published_lsn, deadline.at_ns);
	else if (atomic_load_acquire(&shared->pending_count) != 0)
		result = FARLOG_UNKNOWN; /* it may be one whose turn was left */
	/* The leader may be inside a flush for longer than we may wait; appenders must not wait with us. */
	if (!lock_until(&shared->flush, deadline.at_ns)) {
		shared_leave(shared);
		return FARLOG_UNKNOWN;
	}
	if (lsn < published_lsn && (result == FARLOG_OK || lsn < atomic_load_acquire(&shared->durable_lsn)))
		result = lsn % writer->identity.align == 0 && lsn < writer->recovery.tail_lsn ?
			resolve_inherited(shared, &deadline, position) :
			resolve_own(shared, &deadline, position);
	shared_unlock(&shared->flush);
	shared_wake_waiters(shared);
	shared_leave(shared);
	return result;
}

void farlog_shared_cursors(farlog_shared *shared, struct farlog_cursors *cursors)
{
	while (!shared_lock(&shared->reserve, &(struct deadline){.at_ns = UINT64_MAX}))
		;
	farlog_writer_cursors(shared->writer, cursors);
	cursors->durable_lsn = atomic_load_acquire(&shared->durable_lsn);
	shared_unlock(&shared->reserve);
}

const struct farlog_recovery *farlog_shared_recovery(const farlog_shared *shared)
{
	return farlog_writer_recovery(shared->writer);
}

const struct farlog_contract *farlog_shared_contract(const farlog_shared *shared)
{
	return farlog_writer_contract(shared->writer);
}

int farlog_shared_close(farlog_shared *shared)
{
	int result;

	if (shared == NULL)
		return FARLOG_OK;
	shared_end_beat(shared);
	__atomic_store_n(&shared->is_closing, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&shared->user_count, __ATOMIC_SEQ_CST) != 0)
		shared_sleep();
	shared_publish_pending(shared);
	if (shared->writer->region->caps.is_seal_durable)
		shared->writer->durable_lsn = shared->durable_lsn;
	shared->writer->is_failed |= shared->is_failed != 0;
	result = farlog_writer_close(shared->writer);
	free(shared);
	return result;
}

uint64_t shared_published_lsn(const struct farlog_shared *shared)
{
	return atomic_load_acquire(&shared->published_lsn);
}

uint64_t shared_durable_lsn(const struct farlog_shared *shared)
{
	return atomic_load_acquire(&shared->durable_lsn);
}

struct farlog_writer *shared_writer(const struct farlog_shared *shared)
{
	return shared->writer;
}

struct shared_beat **shared_beat(struct farlog_shared *shared)
{
	return &shared->beat;
}
