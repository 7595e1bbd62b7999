/* shared.c -- one writer for many threads.
 *
 * A thread puts its entry into a slot of its own, and whoever holds the lock then carries out what lies in all slots: stages the records
 * one after another, as the writer of one thread does, and seals them by one fence. The others only watch their slots. So records
 * of several threads share a fence, no thread has to be awake in its turn for the others to go on, and the ring's state stays in one core's
 * cache while there is work for it (Hendler et al., "Flat Combining and the Synchronization-Parallelism Tradeoff", 2010). Where a sealed
 * record is durable that is all; elsewhere one thread becomes the leader and flushes for everybody: group commit.
 *
 * Owners: the writer but for its flush state by the holder of `combine`, and where sealed is durable the latencies; the flush state by the
 * holder of `flush`. `flush` may be held across a flush, `combine` never. All other counters are added to atomically. A slot is its thread's,
 * but while it is POSTED the holder of `combine` may read its entry and write its outcome. */
#include <linux/futex.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "err.h"
#include "writer.h"

#define SPIN_COUNT 500u
#define YIELD_COUNT 50u
#define SLOT_COUNT 64u
#define ROUND_COUNT 2u /* looks at the slots before what was found is sealed: others post while the first is staged */

enum slot_state {
	SLOT_FREE = 0,
	SLOT_TAKEN = 1,  /* by a thread that is inside */
	SLOT_POSTED = 2, /* its entry waits to be appended */
	SLOT_STAGED = 3, /* by the holder of `combine`, who has not sealed it yet; no other sees this */
	SLOT_DONE = 4,   /* result and position are there */
};

struct slot {
	uint64_t state __attribute__((aligned(64)));
	const struct farlog_entry *entry;
	uint64_t start_ticks;
	int result;
	struct farlog_position position;
};

struct farlog_shared {
	struct farlog_writer *writer;
	uint64_t combine __attribute__((aligned(64))); /* lock word: 0 free */
	uint64_t published_lsn __attribute__((aligned(64)));
	uint64_t durable_lsn __attribute__((aligned(64)));
	uint64_t flush __attribute__((aligned(64))); /* lock word of the leader */
	uint64_t slot_count __attribute__((aligned(64))); /* slots that were ever taken */
	uint64_t is_closing;
	uint64_t is_failed;
	uint32_t bell; /* futex word: raised when durable_lsn moves or the region fails */
	struct slot slots[SLOT_COUNT];
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

static bool try_word(uint64_t *word)
{
	return atomic_load_relaxed(word) == 0 && atomic_swap_if(word, 0, 1);
}

/* lock_word -- what is guarded is short; a holder that lost its core is waited for politely. */
static void lock_word(uint64_t *word)
{
	for (unsigned spins = 1; !try_word(word); spins++)
		pause_turn(spins);
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

/* ---------------------------------------------------------------- slots */

/* enter -- take a slot; a thread tries the one it had last first. NULL: the writer is being closed. */
static struct slot *enter(struct farlog_shared *shared)
{
	static _Thread_local unsigned last;
	struct slot *slot;

	for (unsigned spins = 1;; spins++) {
		slot = &shared->slots[last];
		if (atomic_load_relaxed(&slot->state) == SLOT_FREE && atomic_swap_if(&slot->state, SLOT_FREE, SLOT_TAKEN))
			break;
		last = (last + 1) % SLOT_COUNT;
		if (spins % SLOT_COUNT == 0)
			pause_turn(spins / SLOT_COUNT);
	}
	atomic_raise(&shared->slot_count, last + 1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* close stores is_closing, then looks at the slots: one of us sees the other */
	if (!atomic_load_acquire(&shared->is_closing))
		return slot;
	atomic_store_release(&slot->state, SLOT_FREE);
	return NULL;
}

static void leave(struct slot *slot)
{
	atomic_store_release(&slot->state, SLOT_FREE); /* all we did is done before close may free it */
}

static void stage(struct farlog_shared *shared, struct slot *slot)
{
	slot->result = atomic_load_relaxed(&shared->is_failed)
		? FARLOG_CLOSED
		: writer_stage(shared->writer, slot->entry, 0, clock_ticks(), &slot->position); /* the time is taken here, so that it does not go back */
	atomic_store_relaxed(&slot->state, SLOT_STAGED);
}

/* stage_all -- what lies in the slots now, and what is put there meanwhile. Bit n: slot n. */
static uint64_t stage_all(struct farlog_shared *shared)
{
	uint64_t staged = 0;

	for (unsigned round = 0; round < ROUND_COUNT; round++) {
		uint64_t count = atomic_load_relaxed(&shared->slot_count);
		uint64_t before = staged;

		for (unsigned i = 0; i < count; i++) {
			if (atomic_load_acquire(&shared->slots[i].state) != SLOT_POSTED)
				continue;
			stage(shared, &shared->slots[i]);
			staged |= 1ull << i;
		}
		if (staged == before)
			break;
	}
	return staged;
}

/* account -- where sealed is durable: the flush was the fence. */
static void account(struct farlog_shared *shared, uint64_t staged, uint64_t now_ticks)
{
	struct farlog_writer *writer = shared->writer;
	uint64_t end_lsn = writer->ring.appended_lsn;

	for (; staged != 0; staged &= staged - 1) {
		const struct slot *slot = &shared->slots[__builtin_ctzll(staged)];

		if (slot->result == FARLOG_OK)
			stats_latency(writer->counters, clock_elapsed_ns(now_ticks - slot->start_ticks));
	}
	atomic_store_relaxed(&writer->counters->durable_lsn, end_lsn);
	if (now_ticks - writer->hint_ticks > writer->hint_interval_ticks)
		writer_hint(writer, now_ticks, end_lsn, end_lsn);
	atomic_store_release(&shared->durable_lsn, end_lsn);
}

/* combine -- carry out what lies in the slots. The caller holds the lock. */
static void combine(struct farlog_shared *shared)
{
	struct farlog_writer *writer = shared->writer;
	uint64_t staged = stage_all(shared);

	if (staged == 0)
		return;
	writer->region->ops->seal(writer->region);
	if (writer->region->is_seal_durable)
		account(shared, staged, clock_ticks());
	atomic_store_release(&shared->published_lsn, writer->ring.appended_lsn);
	for (; staged != 0; staged &= staged - 1)
		atomic_store_release(&shared->slots[__builtin_ctzll(staged)].state, SLOT_DONE);
}

/* post -- have an entry appended, by ourselves or by whoever is at it. */
static int post(struct farlog_shared *shared, struct slot *slot, const struct farlog_entry *entry, uint64_t start_ticks)
{
	slot->entry = entry;
	slot->start_ticks = start_ticks;
	atomic_store_release(&slot->state, SLOT_POSTED);
	for (unsigned spins = 1; atomic_load_acquire(&slot->state) != SLOT_DONE; spins++) {
		if (!try_word(&shared->combine)) {
			pause_turn(spins);
			continue;
		}
		combine(shared);
		unlock_word(&shared->combine);
	}
	return slot->result;
}

/* ---------------------------------------------------------------- flushing */

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
	uint64_t published_lsn = atomic_load_acquire(&shared->published_lsn);
	uint64_t tag;
	int result = FARLOG_OK;

	if (!writer->is_persisting && published_lsn != writer->durable_lsn)
		result = start_flush(shared, published_lsn);
	if (result == FARLOG_OK)
		result = writer->region->ops->poll(writer->region, &tag);
	if (result != FARLOG_OK) {
		atomic_store_release(&shared->is_failed, 1);
		ring_bell(shared);
		return;
	}
	if (!writer->is_persisting || tag != writer->persist_tag)
		return;
	writer->is_persisting = false;
	atomic_store_relaxed(&writer->durable_lsn, writer->persisting_lsn); /* farlog_shared_cursors passes by it */
	atomic_bump(&writer->counters->flush_count, 1);
	atomic_store_relaxed(&writer->counters->durable_lsn, writer->durable_lsn);
	writer_hint(writer, clock_ticks(), writer->durable_lsn, writer->durable_lsn);
	atomic_store_release(&shared->durable_lsn, writer->durable_lsn);
	ring_bell(shared);
}

static void follow(struct farlog_shared *shared, uint32_t seen, uint64_t timeout_ns)
{
	struct timespec timeout = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};

	syscall(SYS_futex, &shared->bell, FUTEX_WAIT_PRIVATE, seen, &timeout, NULL, 0);
}

/* settle -- wait until end_lsn is durable, leading the flush when nobody else does. */
static int settle(struct farlog_shared *shared, uint64_t end_lsn, uint64_t until_ns)
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
		unlock_word(&shared->flush);
		ring_bell(shared); /* the next leader may be asleep */
	}
	return FARLOG_OK;
}

static int append(struct farlog_shared *shared, struct slot *slot, const struct farlog_entry *entry, uint64_t deadline_ns,
	struct farlog_position *position)
{
	struct farlog_writer *writer = shared->writer;
	uint64_t start_ticks = clock_ticks();
	struct deadline deadline = {.duration_ns = deadline_ns != 0 ? deadline_ns : writer->deadline_ns};
	int result = post(shared, slot, entry, start_ticks);

	while (result == FARLOG_FULL && writer->policy == FARLOG_POLICY_BLOCK && deadline_pause(&deadline, writer, false))
		result = post(shared, slot, entry, start_ticks);
	if (result != FARLOG_OK)
		return refuse(writer, result, position);
	*position = slot->position;
	if (!writer->region->is_seal_durable) {
		/* What waiting for room has used up of the deadline is gone. */
		uint64_t until_ns = deadline.at_ns != 0 ? deadline.at_ns : clock_after_ns(deadline.duration_ns);

		result = settle(shared, position->end_lsn, until_ns);
		if (result != FARLOG_OK) {
			atomic_add(&writer->counters->unknown_count, 1);
			return result;
		}
		stats_latency_shared(writer->counters, clock_elapsed_ns(clock_ticks() - start_ticks));
	}
	position->level = writer->level;
	return FARLOG_OK;
}

int farlog_shared_append(farlog_shared *shared, const struct farlog_entry *entry, uint64_t deadline_ns,
	struct farlog_position *position)
{
	struct slot *slot = enter(shared);
	int result;

	memset(position, 0, sizeof(*position));
	if (slot == NULL)
		return FARLOG_CLOSED;
	result = append(shared, slot, entry, deadline_ns, position);
	leave(slot);
	return result;
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

int farlog_shared_resolve(farlog_shared *shared, uint64_t lsn, uint64_t deadline_ns, struct farlog_position *position)
{
	struct farlog_writer *writer = shared->writer;
	uint64_t until_ns = clock_after_ns(deadline_ns != 0 ? deadline_ns : writer->deadline_ns);
	uint64_t published_lsn;
	struct slot *slot = enter(shared);
	int result = FARLOG_NOT_FOUND;

	*position = (struct farlog_position){.lsn = lsn, .copies = 1};
	if (slot == NULL)
		return FARLOG_CLOSED;
	/* Beyond this nobody has been given a position yet, and what lies there may be half written: resolve must not flush it. */
	published_lsn = atomic_load_acquire(&shared->published_lsn);
	if (lsn < published_lsn)
		result = settle(shared, published_lsn, until_ns);
	/* The leader may be inside a flush for longer than we may wait; appenders must not wait with us. */
	if (!lock_until(&shared->flush, until_ns)) {
		leave(slot);
		return FARLOG_UNKNOWN;
	}
	lock_word(&shared->combine);
	if (writer->region->is_seal_durable)
		atomic_store_relaxed(&writer->durable_lsn, atomic_load_acquire(&shared->durable_lsn));
	/* Everything below the shared durable position is settled: resolve finds it so without a flush of its own. */
	if (lsn < published_lsn && (result == FARLOG_OK || lsn < atomic_load_acquire(&shared->durable_lsn)))
		result = farlog_resolve(writer, lsn, deadline_ns, position);
	unlock_word(&shared->combine);
	unlock_word(&shared->flush);
	ring_bell(shared);
	leave(slot);
	return result;
}

void farlog_shared_cursors(farlog_shared *shared, struct farlog_cursors *cursors)
{
	lock_word(&shared->combine);
	farlog_writer_cursors(shared->writer, cursors);
	cursors->durable_lsn = atomic_load_acquire(&shared->durable_lsn);
	unlock_word(&shared->combine);
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
	__atomic_store_n(&shared->is_closing, 1, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < SLOT_COUNT; i++)
		while (__atomic_load_n(&shared->slots[i].state, __ATOMIC_SEQ_CST) != SLOT_FREE)
			nap();
	if (shared->writer->region->is_seal_durable)
		shared->writer->durable_lsn = shared->durable_lsn;
	shared->writer->is_failed |= shared->is_failed != 0;
	result = farlog_writer_close(shared->writer);
	free(shared);
	return result;
}
