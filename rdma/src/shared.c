/* shared.c -- one writer for many threads.
 *
 * A thread takes its place in the ring under a short spin lock, builds and writes its record beside the others, and seals it
 * (a fence covers only the stores of its own core). Then records are published in LSN order. Where a sealed record is
 * durable that is all; elsewhere one thread becomes the leader and flushes for everybody: group commit.
 *
 * Owners: ring, last_lsn, fence state and the counters of what was appended by the holder of `reserve`; `published_lsn`, and where
 * sealed is durable the latencies, by the thread whose turn it is; the flush state by the holder of `flush`. `flush` may be
 * held across a flush, `reserve` never. All other counters are added to atomically. */
#include "farlog/heartbeat.h"
#include "farlog/host.h"

#include <linux/futex.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "err.h"
#include "mutant.h"
#include "shared.h"
#include "writer.h"

#define SPIN_COUNT 500u
#define YIELD_COUNT 50u

struct farlog_shared {
	struct farlog_writer *writer;
	uint64_t reserve __attribute__((aligned(64))); /* lock word: 0 free */
	uint64_t published_lsn __attribute__((aligned(64)));
	uint64_t durable_lsn __attribute__((aligned(64)));
	uint64_t flush __attribute__((aligned(64)));   /* lock word of the leader */
	uint64_t staging __attribute__((aligned(64))); /* lock word of the one buffer for large records */
	uint64_t user_count __attribute__((aligned(64)));
	uint64_t is_closing;
	uint64_t is_failed;
	struct shared_beat *beat; /* NULL = no heartbeats by themselves */
	uint32_t bell; /* futex word: raised when durable_lsn moves or the region fails */
};

static void nap(void)
{
	nanosleep(&(struct timespec){0, 1}, NULL);
}

/* pause_turn -- the spins-th look at a word that another thread will change soon. Naps come late, because two threads that take
 * turns and both nap would find each other asleep at every record for as long as they run (measured: 62 us a record). */
static void pause_turn(unsigned spins)
{
	if (spins % SPIN_COUNT != 0)
		cpu_relax();
	else if (spins / SPIN_COUNT <= YIELD_COUNT)
		sched_yield(); /* whoever we wait for may want this core */
	else
		nap();
}

/* lock_word -- what is guarded is a few dozen instructions; a holder that lost its core is waited for politely. */
static void lock_word(uint64_t *word)
{
	for (unsigned spins = 1;; spins++) {
		if (atomic_load_relaxed(word) == 0 && atomic_swap_if(word, 0, 1))
			return;
		pause_turn(spins);
	}
}

/* lock_until -- as lock_word, for a lock that is held across a flush. False: the time has come. */
static bool lock_until(uint64_t *word, uint64_t until_ns)
{
	while (!atomic_swap_if(word, 0, 1)) {
		if (clock_monotonic_ns() >= until_ns)
			return false;
		nap();
	}
	return true;
}

static void unlock_word(uint64_t *word)
{
	atomic_store_release(word, 0);
}

static void ring_bell(struct farlog_shared *shared)
{
	__atomic_add_fetch(&shared->bell, 1, __ATOMIC_RELEASE);
	if (!shared->writer->region->is_seal_durable)
		syscall(SYS_futex, &shared->bell, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

struct reservation {
	struct ring_place place;
	struct gather gather;
	struct farlog_position position;
	uint64_t start_lsn; /* of the PAD, when there is one */
	uint8_t level;      /* that the record is acknowledged at */
};

static int refuse(struct farlog_writer *writer, int result, struct farlog_position *position)
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

/* reserve -- take a place; the time is taken inside, so that it does not go back along the log. */
static int reserve(struct farlog_shared *shared, const struct farlog_entry *entry, uint64_t flags, struct reservation *reservation)
{
	struct farlog_writer *writer = shared->writer;
	uint64_t extent;
	int result = writer_check_entry(writer, entry, &extent);

	lock_word(&shared->reserve);
	if (result == FARLOG_OK && atomic_load_relaxed(&shared->is_failed))
		result = FARLOG_CLOSED;
	if (result == FARLOG_OK && writer_is_fenced(writer))
		result = FARLOG_FENCED;
	if (result == FARLOG_OK)
		result = writer_find_room(writer, extent, &reservation->place);
	if (result == FARLOG_OK) {
		if (__builtin_expect(atomic_load_relaxed(&writer->terms.is_news) != 0, 0))
			writer_take_terms(writer);
		reservation->level = writer->level;
		reservation->start_lsn = writer->ring.appended_lsn;
		writer_gather(writer, &reservation->place, entry, flags, clock_ticks(), &reservation->gather);
		writer_position(writer, &reservation->place, writer->ring.next_seq, &reservation->position);
		ring_advance(&writer->ring, &reservation->place);
		writer_account(writer, 1, (uint64_t)entry->len + entry->key_len);
	}
	unlock_word(&shared->reserve);
	return result;
}

static void write_record(struct farlog_shared *shared, struct reservation *reservation)
{
	struct farlog_writer *writer = shared->writer;
	bool is_large = reservation->gather.len > WRITER_SMALL_LEN;

	if (is_large)
		lock_word(&shared->staging);
	writer_write(writer, &reservation->place, &reservation->gather);
	if (is_large)
		unlock_word(&shared->staging);
	writer->region->ops->seal(writer->region);
}

/* publish -- in LSN order. Whoever's turn it is owns the histogram: no locked instruction for it. */
static void publish(struct farlog_shared *shared, const struct reservation *reservation, uint64_t start_ticks)
{
	struct farlog_writer *writer = shared->writer;
	uint64_t now_ticks;

	for (unsigned spins = 1; atomic_load_acquire(&shared->published_lsn) != reservation->start_lsn; spins++)
		pause_turn(spins);
	now_ticks = clock_ticks();
	if (writer->region->is_seal_durable) {
		stats_latency(writer->counters, clock_elapsed_ns(now_ticks - start_ticks));
		atomic_store_relaxed(&writer->counters->durable_lsn, reservation->place.end_lsn);
		if (now_ticks - writer->hint_ticks > writer->hint_interval_ticks)
			writer_hint(writer, now_ticks, reservation->place.end_lsn, reservation->place.end_lsn);
		atomic_store_release(&shared->durable_lsn, reservation->place.end_lsn);
	}
	atomic_store_release(&shared->published_lsn, reservation->place.end_lsn);
}

/* end_commit -- on blocks: all that has a place, and a PAD up to the end of its last LBA. Whoever has a place and is not through with it is copying its record.
 * The caller holds `flush`. */
static uint64_t end_commit(struct farlog_shared *shared)
{
	struct farlog_writer *writer = shared->writer;
	struct writer_pad pad;
	uint64_t start_lsn;
	uint64_t end_lsn;
	bool has_pad;

	lock_word(&shared->reserve);
	start_lsn = writer->ring.appended_lsn;
	has_pad = writer_take_pad(writer, clock_ticks(), &pad);
	end_lsn = writer->ring.appended_lsn;
	unlock_word(&shared->reserve);
	for (unsigned spins = 1; atomic_load_acquire(&shared->published_lsn) < start_lsn; spins++)
		pause_turn(spins);
	if (has_pad && !MUTANT(PAD_MISSING)) {
		writer_put_pad(writer, &pad);
		writer->region->ops->seal(writer->region);
	}
	if (has_pad)
		atomic_store_release(&shared->published_lsn, end_lsn); /* nobody else's turn comes before */
	return end_lsn;
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
	return writer->region->ops->persist(writer->region, spans, span_count, writer->persist_tag);
}

/* lead -- one round of the leader: reap the flush under way, or start one. */
static void lead(struct farlog_shared *shared)
{
	struct farlog_writer *writer = shared->writer;
	uint64_t to_lsn = atomic_load_acquire(&shared->published_lsn);
	uint64_t ticks;
	int result = FARLOG_OK;

	if (!writer->is_persisting && to_lsn != writer->durable_lsn) {
		if (writer->is_packed)
			to_lsn = end_commit(shared);
		result = start_flush(shared, to_lsn);
	}
	if (result == FARLOG_OK)
		result = writer->region->ops->poll(writer->region);
	if (result != FARLOG_OK) {
		atomic_store_release(&shared->is_failed, 1);
		ring_bell(shared);
		return;
	}
	if (!writer->is_persisting || !region_is_done(writer->region, writer->persist_tag))
		return;
	writer->is_persisting = false;
	atomic_store_relaxed(&writer->durable_lsn, writer->persisting_lsn); /* farlog_shared_cursors passes by it */
	atomic_bump(&writer->counters->flush_count, 1);
	atomic_store_relaxed(&writer->counters->durable_lsn, writer->durable_lsn);
	ticks = clock_ticks();
	if (ticks - writer->hint_ticks > writer->hint_interval_ticks)
		writer_hint(writer, ticks, writer->durable_lsn, writer->durable_lsn);
	atomic_store_release(&shared->durable_lsn, writer->durable_lsn);
	ring_bell(shared);
}

static void follow(struct farlog_shared *shared, uint32_t seen, uint64_t timeout_ns)
{
	struct timespec timeout = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};

	syscall(SYS_futex, &shared->bell, FUTEX_WAIT_PRIVATE, seen, &timeout, NULL, 0);
}

/* wait until end_lsn is durable, leading the flush when nobody else does. */
int shared_settle(struct farlog_shared *shared, uint64_t end_lsn, uint64_t until_ns)
{
	struct region *region = shared->writer->region;

	while (atomic_load_acquire(&shared->durable_lsn) < end_lsn) {
		uint32_t seen = __atomic_load_n(&shared->bell, __ATOMIC_ACQUIRE);
		uint64_t now_ns = clock_monotonic_ns();

		if (atomic_load_acquire(&shared->is_failed) || now_ns >= until_ns)
			return FARLOG_UNKNOWN;
		if (atomic_load_acquire(&shared->durable_lsn) >= end_lsn)
			break;
		if (!atomic_swap_if(&shared->flush, 0, 1)) {
			follow(shared, seen, until_ns - now_ns);
			continue;
		}
		lead(shared);
		if (atomic_load_acquire(&shared->durable_lsn) < end_lsn && region->ops->wait != NULL) {
			region->ops->wait(region, until_ns - now_ns);
			lead(shared);
		}
		region_push(region); /* the next leader may be asleep, too */
		unlock_word(&shared->flush);
		ring_bell(shared); /* the next leader may be asleep */
	}
	return FARLOG_OK;
}

/* tell_when_full -- no append may follow that would tell readers of the last records, and a drain releases what it was told of. */
static void tell_when_full(struct farlog_shared *shared)
{
	struct farlog_writer *writer = shared->writer;
	uint64_t *lock = writer->region->is_seal_durable ? &shared->reserve : &shared->flush;
	uint64_t end_lsn;
	bool is_mine = true;

	if (!atomic_swap_if(lock, 0, 1))
		return; /* its holder does, or the next look */
	if (!writer->region->is_seal_durable) {
		lead(shared);
		end_lsn = writer->durable_lsn;
	} else {
		end_lsn = writer->ring.appended_lsn;
		is_mine = atomic_load_acquire(&shared->published_lsn) == end_lsn; /* it is nobody's turn, and nobody takes a place */
	}
	if (is_mine && clock_ticks() - writer->hint_ticks > writer->hint_interval_ticks)
		writer_hint(writer, clock_ticks(), end_lsn, end_lsn);
	region_push(writer->region);
	unlock_word(lock);
	if (!writer->region->is_seal_durable)
		ring_bell(shared); /* who wanted to lead may be asleep */
}

static int append(struct farlog_shared *shared, const struct farlog_entry *entry, uint64_t flags, uint64_t deadline_ns, struct farlog_position *position)
{
	struct farlog_writer *writer = shared->writer;
	uint64_t start_ticks = clock_ticks();
	struct deadline deadline = {.duration_ns = deadline_ns != 0 ? deadline_ns : atomic_load_relaxed(&writer->deadline_ns)};
	bool is_waiting = farlog_writer_policy(writer) == FARLOG_POLICY_BLOCK;
	struct reservation reservation;
	int result = reserve(shared, entry, flags, &reservation);

	while (result == FARLOG_FULL) {
		tell_when_full(shared);
		if (!is_waiting || !deadline_pause(&deadline, writer, false))
			break;
		result = reserve(shared, entry, flags, &reservation);
	}
	if (result != FARLOG_OK)
		return refuse(writer, result, position);
	*position = reservation.position;
	write_record(shared, &reservation);
	publish(shared, &reservation, start_ticks);
	if (!writer->region->is_seal_durable) {
		/* What waiting for room has used up of the deadline is gone. */
		uint64_t until_ns = deadline.at_ns != 0 ? deadline.at_ns : clock_after_ns(deadline.duration_ns);

		result = shared_settle(shared, position->end_lsn, until_ns);
		if (result != FARLOG_OK) {
			atomic_add(&writer->counters->unknown_count, 1);
			return result;
		}
		stats_latency_shared(writer->counters, clock_elapsed_ns(clock_ticks() - start_ticks));
	}
	position->level = reservation.level;
	position->copies = writer_copies(writer);
	return FARLOG_OK;
}

int shared_submit(struct farlog_shared *shared, const struct farlog_entry *entry, uint64_t flags, struct farlog_position *position)
{
	struct reservation reservation;
	int result = reserve(shared, entry, flags, &reservation);

	if (result != FARLOG_OK)
		return refuse(shared->writer, result, position);
	*position = reservation.position;
	write_record(shared, &reservation);
	publish(shared, &reservation, clock_ticks());
	return FARLOG_OK;
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

static bool enter(struct farlog_shared *shared)
{
	atomic_add(&shared->user_count, 1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* close stores is_closing, then looks at user_count: one of us sees the other */
	if (!atomic_load_acquire(&shared->is_closing))
		return true;
	atomic_add(&shared->user_count, (uint64_t)-1);
	return false;
}

static void leave(struct farlog_shared *shared)
{
	__atomic_fetch_sub(&shared->user_count, 1, __ATOMIC_RELEASE); /* all we did is done before close may free it */
}

static int append_any(farlog_shared *shared, const struct farlog_entry *entry, uint64_t flags, uint64_t deadline_ns, struct farlog_position *position)
{
	int result;

	memset(position, 0, sizeof(*position));
	if (!enter(shared))
		return FARLOG_CLOSED;
	result = append(shared, entry, flags, deadline_ns, position);
	leave(shared);
	return result;
}

int farlog_shared_append(farlog_shared *shared, const struct farlog_entry *entry, uint64_t deadline_ns,
	struct farlog_position *position)
{
	return append_any(shared, entry, 0, deadline_ns, position);
}

int farlog_shared_heartbeat(farlog_shared *shared, uint64_t deadline_ns, struct farlog_position *position)
{
	return append_any(shared, &(struct farlog_entry){0}, RECORD_FLAG_HEARTBEAT, deadline_ns, position);
}

struct shared_beat **shared_beat(struct farlog_shared *shared)
{
	return &shared->beat;
}

int farlog_shared_open(const char *uri, const struct farlog_writer_config *config, farlog_shared **opened,
	struct farlog_error *error)
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

int farlog_shared_resolve(farlog_shared *shared, uint64_t lsn, uint64_t deadline_ns, struct farlog_position *position)
{
	struct farlog_writer *writer = shared->writer;
	uint64_t until_ns = clock_after_ns(deadline_ns != 0 ? deadline_ns : atomic_load_relaxed(&writer->deadline_ns));
	uint64_t published_lsn;
	int result = FARLOG_NOT_FOUND;

	*position = (struct farlog_position){.lsn = lsn, .copies = 1};
	if (!enter(shared))
		return FARLOG_CLOSED;
	/* Beyond this nobody has been given a position yet, and what lies there may be half written: resolve must not flush it. */
	published_lsn = atomic_load_acquire(&shared->published_lsn);
	if (lsn < published_lsn)
		result = shared_settle(shared, published_lsn, until_ns);
	/* The leader may be inside a flush for longer than we may wait; appenders must not wait with us. */
	if (!lock_until(&shared->flush, until_ns)) {
		leave(shared);
		return FARLOG_UNKNOWN;
	}
	lock_word(&shared->reserve);
	if (writer->region->is_seal_durable)
		atomic_store_relaxed(&writer->durable_lsn, atomic_load_acquire(&shared->durable_lsn));
	/* Everything below the shared durable position is settled: resolve finds it so without a flush of its own. */
	if (lsn < published_lsn && (result == FARLOG_OK || lsn < atomic_load_acquire(&shared->durable_lsn)))
		result = farlog_resolve(writer, lsn, deadline_ns, position);
	unlock_word(&shared->reserve);
	unlock_word(&shared->flush);
	ring_bell(shared);
	leave(shared);
	return result;
}

void farlog_shared_cursors(farlog_shared *shared, struct farlog_cursors *cursors)
{
	lock_word(&shared->reserve);
	farlog_writer_cursors(shared->writer, cursors);
	cursors->durable_lsn = atomic_load_acquire(&shared->durable_lsn);
	unlock_word(&shared->reserve);
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
		nap();
	if (shared->writer->region->is_seal_durable)
		shared->writer->durable_lsn = shared->durable_lsn;
	shared->writer->is_failed |= shared->is_failed != 0;
	result = farlog_writer_close(shared->writer);
	free(shared);
	return result;
}
