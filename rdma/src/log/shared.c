/* log/shared.c -- one writer for many threads.
 *
 * A thread takes its place in the ring under a short spin lock, builds and writes its record beside the others, and
 * seals it (a fence covers only the stores of its own core). Then records are published in LSN order. Where a sealed
 * record is durable that is all; elsewhere one thread becomes the leader and flushes for everybody: group commit.
 *
 * Owners: ring, fence state and the counters of what was appended by the holder of `reserve`;
 * `published_lsn`, and where sealed is durable the latencies, by the thread whose turn it is; the flush state by the
 * holder of `flush`. `flush` may be held across a flush, `reserve` never. All other counters are added to atomically.
 *
 * A thread whose deadline comes before its turn leaves its turn: its record is whole, and whoever looks next when the
 * turn comes publishes it. Until then no further place is taken, so that there are never more turns left than there are
 * threads. */
#include "farlog/heartbeat.h"
#include "farlog/host.h"

#include <linux/futex.h>
#include <limits.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "log/late.h"
#include "log/shared_handle.h"

void shared_wake_waiters(struct farlog_shared *shared)
{
	__atomic_add_fetch(&shared->wakeup, 1, __ATOMIC_RELEASE);
	if (!shared->writer->region->caps.is_seal_durable)
		syscall(SYS_futex, &shared->wakeup, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

struct reservation {
	struct ring_place place;
	struct gather gather;
	struct farlog_position position;
	uint64_t start_lsn; /* of the PAD, when there is one */
	uint8_t level;      /* that the record is acknowledged at */
	bool is_large;      /* we hold `staging` for it */
};

static int reject_append(struct farlog_writer *writer, int result, struct farlog_position *position)
{
	memset(position, 0, sizeof(*position));
	position->epoch = result == FARLOG_FENCED ? (uint32_t)atomic_load_relaxed(&writer->fenced_epoch) : writer->epoch;
	if (result == FARLOG_FULL)
		atomic_add(&writer->counters->full_count, 1);
	if (result == FARLOG_FENCED)
		atomic_add(&writer->counters->fenced_count, 1);
	if (result == FARLOG_TOO_LARGE)
		atomic_add(&writer->counters->too_large_count, 1);
	return result;
}

/* publish_record -- the record at published_lsn, by who has its turn and so owns the histogram: no locked instruction
 * for it. */
static inline void publish_record(struct farlog_shared *shared, uint64_t end_lsn, uint64_t start_ticks)
{
	struct farlog_writer *writer = shared->writer;
	uint64_t now_ticks = clock_ticks();

	if (writer->region->caps.is_seal_durable) {
		stats_latency(writer->counters, clock_elapsed_ns(now_ticks - start_ticks));
		atomic_store_relaxed(&writer->counters->durable_lsn, end_lsn);
		if (now_ticks - writer->hint_ticks > writer->hint_interval_ticks)
			writer_store_hints(writer, now_ticks, end_lsn, end_lsn);
		atomic_store_release(&shared->durable_lsn, end_lsn);
	}
	atomic_store_release(&shared->published_lsn, end_lsn);
}

/* shared_publish_pending -- the turns that have come of those that were left. Of two threads that find the same one,
 * one gets it, and until it is published the position does not move. */
__attribute__((noinline)) void shared_publish_pending(struct farlog_shared *shared)
{
	for (unsigned i = 0; i < PENDING_COUNT_MAX; i++) {
		struct pending_publish *left = &shared->pending[i];
		uint64_t mark = atomic_load_acquire(&shared->published_lsn) | 1;
		struct pending_publish mine;

		if (atomic_load_relaxed(&left->mark) != mark || !atomic_swap_if(&left->mark, mark, PENDING_CLAIMED))
			continue;
		mine = *left;
		atomic_store_release(&left->mark, 0);
		publish_record(shared, mine.end_lsn, mine.start_ticks);
		atomic_add(&shared->pending_count, (uint64_t)-1);
		i = UINT_MAX; /* the next may be anywhere */
	}
}

/* defer_publish -- what lies from start_lsn on is whole and sealed, its turn has not come, and we wait no longer. */
static void defer_publish(struct farlog_shared *shared, uint64_t start_lsn, uint64_t end_lsn, uint64_t start_ticks)
{
	unsigned i = 0;

	atomic_add(&shared->pending_count, 1);
	while (i < PENDING_COUNT_MAX && !atomic_swap_if(&shared->pending[i].mark, 0, PENDING_CLAIMED))
		i++;
	if (i == PENDING_COUNT_MAX) { /* more threads than it is for: nothing behind this record is published any more */
		atomic_store_release(&shared->is_failed, 1);
		return;
	}
	shared->pending[i].end_lsn = end_lsn;
	shared->pending[i].start_ticks = start_ticks;
	atomic_store_release(&shared->pending[i].mark, start_lsn | 1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* the thread that published before us may not have seen the entry */
	shared_publish_pending(shared);
}

/* wait_for_pending -- until nobody's turn is left behind: what would be published after it could be acknowledged to
 * nobody. */
__attribute__((noinline)) static bool wait_for_pending(struct farlog_shared *shared, struct deadline *deadline)
{
	for (unsigned spins = 1;
		atomic_load_acquire(&shared->pending_count) != 0 && !atomic_load_relaxed(&shared->is_failed); spins++) {
		shared_publish_pending(shared);
		if (!shared_pause(spins, deadline))
			return false;
	}
	return true;
}

/* place_record -- the caller holds `reserve`. */
static int place_record(struct farlog_shared *shared, const struct farlog_entry *entry, uint64_t flags, uint64_t extent,
	struct reservation *reservation)
{
	struct farlog_writer *writer = shared->writer;
	int result;

	if (atomic_load_relaxed(&shared->is_failed))
		return FARLOG_CLOSED;
	if (writer_is_fenced(writer))
		return FARLOG_FENCED;
	result = writer_find_place(writer, extent, &reservation->place);
	if (result != FARLOG_OK)
		return result;
	if (__builtin_expect(atomic_load_relaxed(&writer->settings.is_change_pending) != 0, 0))
		writer_apply_settings(writer);
	reservation->level = writer->level;
	reservation->start_lsn = writer->ring.appended_lsn;
	writer_gather(writer, &reservation->place, entry, flags, clock_ticks(), &reservation->gather);
	writer_fill_position(writer, &reservation->place, writer->ring.next_seq, &reservation->position);
	ring_advance(&writer->ring, &reservation->place);
	writer_update_counters(writer, 1, (uint64_t)entry->len + entry->key_len);
	return FARLOG_OK;
}

/* reserve_place -- take a place; the time is taken inside, so that it does not go back along the log. What a large
 * record needs besides is taken before: who has a place fills it, whatever its deadline. FULL also when the deadline
 * came before the locks were free. */
static int reserve_place(struct farlog_shared *shared, const struct farlog_entry *entry, uint64_t flags,
	struct deadline *deadline, struct reservation *reservation)
{
	uint64_t extent = 0;
	int result = writer_check_entry(shared->writer, entry, flags, &extent);

	if (result != FARLOG_OK)
		return result;
	reservation->is_large = extent > WRITER_SMALL_LEN;
	if (__builtin_expect(atomic_load_relaxed(&shared->pending_count) != 0, 0) && !wait_for_pending(shared, deadline))
		return FARLOG_FULL;
	if (reservation->is_large && !shared_lock(&shared->staging, deadline))
		return FARLOG_FULL;
	result = FARLOG_FULL;
	if (shared_lock(&shared->reserve, deadline)) {
		result = place_record(shared, entry, flags, extent, reservation);
		shared_unlock(&shared->reserve);
	}
	if (result != FARLOG_OK && reservation->is_large)
		shared_unlock(&shared->staging);
	return result;
}

/* write_record -- OK; UNKNOWN: it could not be encrypted, and as its turn never comes, nothing behind it is published
 * any more. */
static int write_record(struct farlog_shared *shared, struct reservation *reservation)
{
	struct farlog_writer *writer = shared->writer;
	bool is_written = writer_write(writer, &reservation->place, &reservation->gather);

	if (reservation->is_large)
		shared_unlock(&shared->staging);
	if (!is_written) {
		atomic_store_release(&shared->is_failed, 1);
		return FARLOG_UNKNOWN;
	}
	writer->region->ops->data.seal(writer->region);
	return FARLOG_OK;
}

/* publish_in_order -- in LSN order. UNKNOWN: the deadline came before the turn, which is left. */
static int publish_in_order(struct farlog_shared *shared, const struct reservation *reservation, uint64_t start_ticks,
	struct deadline *deadline)
{
	for (unsigned spins = 1; atomic_load_acquire(&shared->published_lsn) != reservation->start_lsn; spins++) {
		if (__builtin_expect(atomic_load_relaxed(&shared->pending_count) != 0, 0))
			shared_publish_pending(shared);
		if (!shared_pause(spins, deadline)) {
			defer_publish(shared, reservation->start_lsn, reservation->place.end_lsn, start_ticks);
			return FARLOG_UNKNOWN;
		}
	}
	publish_record(shared, reservation->place.end_lsn, start_ticks);
	return FARLOG_OK;
}

/* end_commit -- on blocks: all that has a place, and a PAD up to the end of its last LBA. Whoever has a place and is
 * not through with it is copying its record. The caller holds `flush`. False: the deadline came first, and nothing is
 * to be flushed. */
static bool end_commit(struct farlog_shared *shared, struct deadline *deadline, uint64_t *end_lsn)
{
	struct farlog_writer *writer = shared->writer;
	struct writer_pad pad;
	uint64_t start_lsn;
	bool has_pad;

	if (!shared_lock(&shared->reserve, deadline))
		return false;
	start_lsn = writer->ring.appended_lsn;
	has_pad = writer_reserve_pad(writer, clock_ticks(), &pad);
	*end_lsn = writer->ring.appended_lsn;
	shared_unlock(&shared->reserve);
	if (has_pad) {
		writer_write_pad(writer, &pad);
		writer->region->ops->data.seal(writer->region);
	}
	for (unsigned spins = 1; atomic_load_acquire(&shared->published_lsn) < start_lsn; spins++) {
		if (__builtin_expect(atomic_load_relaxed(&shared->pending_count) != 0, 0))
			shared_publish_pending(shared);
		if (!shared_pause(spins, deadline)) {
			if (has_pad)
				defer_publish(shared, start_lsn, *end_lsn, clock_ticks());
			return false;
		}
	}
	if (has_pad)
		atomic_store_release(&shared->published_lsn, *end_lsn); /* nobody else's turn comes before */
	return true;
}

/* start_flush -- everything published and not yet durable, one flush. The caller holds `flush`. */
static int start_flush(struct farlog_shared *shared, uint64_t to_lsn)
{
	struct farlog_writer *writer = shared->writer;
	struct region_span spans[2];
	uint64_t capacity = writer->identity.capacity;
	uint64_t off = writer->durable_lsn % capacity;
	uint64_t len = to_lsn - writer->durable_lsn;
	unsigned span_count = off + len > capacity ? 2 : 1;

	spans[0] = (struct region_span){LAYOUT_DATA_OFF + off, span_count == 2 ? capacity - off : len};
	spans[1] = (struct region_span){LAYOUT_DATA_OFF, len - spans[0].len};
	writer->persist_tag = ++writer->region->tag;
	writer->persisting_lsn = to_lsn;
	writer->is_persisting = true;
	return writer->region->ops->data.persist(writer->region, spans, span_count, writer->persist_tag);
}

/* lead_flush -- one round of the leader: reap the flush under way, or start one. */
static void lead_flush(struct farlog_shared *shared, uint64_t until_ns)
{
	struct deadline deadline = {.at_ns = until_ns};
	struct farlog_writer *writer = shared->writer;
	uint64_t to_lsn = atomic_load_acquire(&shared->published_lsn);
	uint64_t ticks;
	int result = FARLOG_OK;

	if (!writer->is_persisting && to_lsn != writer->durable_lsn) {
		if (writer->is_packed && !end_commit(shared, &deadline, &to_lsn))
			return;
		result = start_flush(shared, to_lsn);
	}
	if (result == FARLOG_OK)
		result = writer->region->ops->data.poll(writer->region);
	if (result != FARLOG_OK) {
		atomic_store_release(&shared->is_failed, 1);
		shared_wake_waiters(shared);
		return;
	}
	if (!writer->is_persisting || !region_is_done(writer->region, writer->persist_tag))
		return;
	writer->is_persisting = false;
	atomic_store_relaxed(&writer->durable_lsn, writer->persisting_lsn); /* farlog_shared_cursors passes by it */
	atomic_bump(&writer->counters->flush_count, 1);
	atomic_store_relaxed(&writer->counters->durable_lsn, writer->durable_lsn);
	late_end(writer, writer->durable_lsn);
	ticks = clock_ticks();
	if (ticks - writer->hint_ticks > writer->hint_interval_ticks)
		writer_store_hints(writer, ticks, writer->durable_lsn, writer->durable_lsn);
	atomic_store_release(&shared->durable_lsn, writer->durable_lsn);
	shared_wake_waiters(shared);
}

static void wait_for_leader(struct farlog_shared *shared, uint32_t seen, uint64_t timeout_ns)
{
	struct timespec timeout = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};

	syscall(SYS_futex, &shared->wakeup, FUTEX_WAIT_PRIVATE, seen, &timeout, NULL, 0);
}

/* wait until end_lsn is durable, leading the flush when nobody else does. However late the call is, it looks once: a
 * flush that was left behind by a call before may be done. */
int shared_wait_durable(struct farlog_shared *shared, uint64_t end_lsn, uint64_t until_ns)
{
	struct region *region = shared->writer->region;

	while (atomic_load_acquire(&shared->durable_lsn) < end_lsn) {
		uint32_t seen = __atomic_load_n(&shared->wakeup, __ATOMIC_ACQUIRE);
		uint64_t now_ns = clock_monotonic_ns();
		bool is_late = now_ns >= until_ns;

		if (atomic_load_acquire(&shared->is_failed))
			return FARLOG_UNKNOWN;
		if (atomic_load_relaxed(&shared->pending_count) != 0)
			shared_publish_pending(shared);
		if (atomic_load_acquire(&shared->durable_lsn) >= end_lsn)
			break;
		if (region->caps.is_seal_durable || !atomic_swap_if(&shared->flush, 0, 1)) {
			if (is_late)
				return FARLOG_UNKNOWN;
			if (region->caps.is_seal_durable)
				shared_sleep(); /* for the turns that were left: publishing makes durable */
			else
				wait_for_leader(shared, seen, until_ns - now_ns);
			continue;
		}
		lead_flush(shared, until_ns);
		if (atomic_load_acquire(&shared->durable_lsn) < end_lsn && !region->caps.is_spinning && !is_late) {
			region->ops->data.wait(region, until_ns - now_ns);
			late_touch(shared->writer);
			lead_flush(shared, until_ns);
		}
		late_touch(shared->writer);
		region_push(region); /* the next leader may be asleep, too */
		shared_unlock(&shared->flush);
		shared_wake_waiters(shared); /* the next leader may be asleep */
		if (is_late)
			break;
	}
	return atomic_load_acquire(&shared->durable_lsn) >= end_lsn ? FARLOG_OK : FARLOG_UNKNOWN;
}

/* hint_when_full -- no append may follow that would tell readers of the last records, and a drain releases what it was
 * told of. */
static void hint_when_full(struct farlog_shared *shared)
{
	struct farlog_writer *writer = shared->writer;
	uint64_t *lock = writer->region->caps.is_seal_durable ? &shared->reserve : &shared->flush;
	uint64_t end_lsn;
	bool is_mine = true;

	if (!atomic_swap_if(lock, 0, 1))
		return; /* its holder does, or the next look */
	if (!writer->region->caps.is_seal_durable) {
		lead_flush(shared, 1); /* a deadline that has passed */
		end_lsn = writer->durable_lsn;
	} else {
		end_lsn = writer->ring.appended_lsn;
		/* it is nobody's turn, and nobody takes a place */
		is_mine = atomic_load_acquire(&shared->published_lsn) == end_lsn;
	}
	if (is_mine && clock_ticks() - writer->hint_ticks > writer->hint_interval_ticks)
		writer_store_hints(writer, clock_ticks(), end_lsn, end_lsn);
	region_push(writer->region);
	shared_unlock(lock);
	if (!writer->region->caps.is_seal_durable)
		shared_wake_waiters(shared); /* who wanted to lead may be asleep */
}

static int append_record(struct farlog_shared *shared, const struct farlog_entry *entry, uint64_t flags,
	uint64_t deadline_ns, struct farlog_position *position)
{
	struct farlog_writer *writer = shared->writer;
	uint64_t start_ticks = clock_ticks();
	struct deadline deadline = deadline_make(writer, deadline_ns);
	bool is_waiting = farlog_writer_policy(writer) == FARLOG_POLICY_BLOCK;
	struct reservation reservation;
	int result = reserve_place(shared, entry, flags, &deadline, &reservation);

	while (result == FARLOG_FULL) {
		hint_when_full(shared);
		if (!is_waiting || !deadline_pause(&deadline, writer, false) || deadline_has_passed(&deadline))
			break;
		result = reserve_place(shared, entry, flags, &deadline, &reservation);
	}
	if (result != FARLOG_OK)
		return reject_append(writer, result, position);
	*position = reservation.position;
	if (write_record(shared, &reservation) != FARLOG_OK ||
		publish_in_order(shared, &reservation, start_ticks, &deadline) != FARLOG_OK) {
		atomic_add(&writer->counters->unknown_count, 1);
		return FARLOG_UNKNOWN;
	}
	if (!writer->region->caps.is_seal_durable) {
		/* What waiting for free space has used up of the deadline is gone. */
		uint64_t until_ns = deadline.at_ns != 0 ? deadline.at_ns : clock_after_ns(deadline.duration_ns);

		result = shared_wait_durable(shared, position->end_lsn, until_ns);
		if (result != FARLOG_OK) {
			if (!atomic_load_acquire(&shared->is_failed))
				late_begin(
					writer, position->end_lsn, clock_monotonic_ns() - clock_elapsed_ns(clock_ticks() - start_ticks));
			atomic_add(&writer->counters->unknown_count, 1);
			return result;
		}
		stats_latency_shared(writer->counters, clock_elapsed_ns(clock_ticks() - start_ticks));
	}
	position->level = reservation.level;
	position->copies = writer_copies(writer);
	return FARLOG_OK;
}

int shared_submit(
	struct farlog_shared *shared, const struct farlog_entry *entry, uint64_t flags, struct farlog_position *position)
{
	struct deadline deadline = deadline_make(shared->writer, 0);
	struct reservation reservation;
	int result = reserve_place(shared, entry, flags, &deadline, &reservation);

	if (result != FARLOG_OK)
		return reject_append(shared->writer, result, position);
	*position = reservation.position;
	if (write_record(shared, &reservation) != FARLOG_OK)
		return FARLOG_UNKNOWN;
	/* Left or not, it is whole: what waits for it settles it. */
	may_fail(publish_in_order(shared, &reservation, clock_ticks(), &deadline));
	return FARLOG_OK;
}

static int append_checked(farlog_shared *shared, const struct farlog_entry *entry, uint64_t flags, uint64_t deadline_ns,
	struct farlog_position *position)
{
	int result;

	memset(position, 0, sizeof(*position));
	if (!shared_enter(shared))
		return FARLOG_CLOSED;
	result = append_record(shared, entry, flags, deadline_ns, position);
	shared_leave(shared);
	return result;
}

int farlog_shared_append(
	farlog_shared *shared, const struct farlog_entry *entry, uint64_t deadline_ns, struct farlog_position *position)
{
	return append_checked(shared, entry, 0, deadline_ns, position);
}

int farlog_shared_heartbeat(farlog_shared *shared, uint64_t deadline_ns, struct farlog_position *position)
{
	return append_checked(shared, &(struct farlog_entry){0}, RECORD_FLAG_HEARTBEAT, deadline_ns, position);
}
