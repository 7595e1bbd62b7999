/* log/writer.c -- the append path of one thread.
 *
 * One append is one write of a self-proving record and one flush. While a flush is under way further records gather
 * behind it, and the next flush takes them all: group commit without a timer. */
#include "log/writer.h"

#include <string.h>
#include <time.h>

#include "base/err.h"
#include "log/late.h"

#define TURN_DEFAULT_NS 1000000000u
#define SPIN_COUNT 2000u
#define YIELD_COUNT 200u
#define SLEEP_NS 50000
#define BATCH_RUN_COUNT 32u /* records of a batch that share one reading of the clock */

bool deadline_pause(struct deadline *deadline, const struct farlog_writer *writer, bool is_for_region)
{
	struct timespec nap = {0, SLEEP_NS};
	uint64_t now_ns;

	if (deadline->at_ns == 0) {
		deadline->at_ns = clock_after_ns(deadline->duration_ns);
		return true;
	}
	deadline->pauses++;
	if (deadline->pauses < SPIN_COUNT && deadline->pauses % 64 != 0 && writer->region->caps.is_spinning) {
		cpu_relax();
		return true;
	}
	now_ns = clock_monotonic_ns();
	if (now_ns >= deadline->at_ns)
		return false;
	if (is_for_region && !writer->region->caps.is_spinning)
		writer->region->ops->data.wait(writer->region, deadline->at_ns - now_ns);
	else if (writer->wait == FARLOG_WAIT_SPIN || deadline->pauses < SPIN_COUNT)
		cpu_relax();
	else if (deadline->pauses < SPIN_COUNT + YIELD_COUNT)
		/* gives the core away without the lottery of sched_yield */
		nanosleep(&(struct timespec){0, CLOCK_NAP_NS}, NULL);
	else
		nanosleep(&nap, NULL);
	return true;
}

unsigned writer_spans(
	const struct farlog_writer *writer, uint64_t from_lsn, uint64_t to_lsn, struct region_span spans[2])
{
	uint64_t capacity = writer->identity.capacity;
	uint64_t len = to_lsn - from_lsn;
	uint64_t off = writer->ring.appended_off; /* that of appended_lsn */
	uint64_t back = writer->ring.appended_lsn - from_lsn;

	off = off >= back ? off - back : off + capacity - back;
	spans[0] = (struct region_span){LAYOUT_DATA_OFF + off, len};
	if (off + len <= capacity)
		return 1;
	spans[0].len = capacity - off;
	spans[1] = (struct region_span){LAYOUT_DATA_OFF, len - spans[0].len};
	return 2;
}

void writer_store_hints(struct farlog_writer *writer, uint64_t ticks, uint64_t appended_lsn, uint64_t durable_lsn)
{
	writer->hint_ticks = ticks;
	writer->region->ops->data.store_word(writer->region, LAYOUT_TAIL_HINT_OFF, appended_lsn);
	if (region_hint_implies_records(writer->region))
		writer->region->ops->data.store_word(writer->region, LAYOUT_DURABLE_HINT_OFF, durable_lsn);
}

/* store_idle_hints -- the writer's own thread stores hints while it appends. When it rests, nobody would say that the
 * last records were acknowledged; so once neither the durable position nor its hint has moved for a whole turn, this
 * thread does. */
static void store_idle_hints(void *context)
{
	struct farlog_writer *writer = context;
	uint64_t durable_lsn = atomic_load_acquire(&writer->counters->durable_lsn);
	uint64_t hint_lsn = region_load_word(writer->region, LAYOUT_DURABLE_HINT_OFF);
	bool is_still = durable_lsn == writer->seen_durable_lsn || hint_lsn == writer->seen_hint_lsn;

	writer->seen_durable_lsn = durable_lsn;
	writer->seen_hint_lsn = hint_lsn;
	if (is_still && durable_lsn != writer->hinted_lsn &&
		writer->region->ops->data.store_hints(
			writer->region, atomic_load_relaxed(&writer->counters->appended_lsn), durable_lsn))
		writer->hinted_lsn = durable_lsn;
}

void writer_start_hints(struct farlog_writer *writer)
{
	if (!writer->region->caps.can_store_hints || !region_hint_implies_records(writer->region))
		return;
	writer->guest = (struct clock_task){.turn = store_idle_hints, .context = writer};
	clock_add_task(&writer->guest);
}

static int mark_failed(struct farlog_writer *writer)
{
	writer->is_failed = true;
	writer->plain_len_max = 0;
	writer->is_persisting = false;
	return FARLOG_UNKNOWN;
}

/* finish_flush -- has the flush under way come back, as far as the region has seen? */
static inline void finish_flush(struct farlog_writer *writer)
{
	writer->is_persisting = !region_is_done(writer->region, writer->persist_tag);
	if (writer->is_persisting)
		return;
	writer->durable_lsn = writer->persisting_lsn;
	atomic_bump(&writer->counters->flush_count, 1);
	atomic_store_relaxed(&writer->counters->durable_lsn, writer->durable_lsn);
}

/* finish_awaited_flush -- the same of a flush that was not done at once. */
static void finish_awaited_flush(struct farlog_writer *writer)
{
	finish_flush(writer);
	if (!writer->is_persisting)
		late_end(writer, writer->durable_lsn);
}

/* start_flush -- all from from_lsn on. */
static inline __attribute__((always_inline)) int start_flush(
	struct farlog_writer *writer, uint64_t from_lsn, uint64_t to_lsn)
{
	struct region_span spans[2];
	unsigned span_count = writer_spans(writer, from_lsn, to_lsn, spans);

	writer->persisting_lsn = writer->ring.appended_lsn;
	writer->persist_tag = ++writer->region->tag;
	if (writer->region->ops->data.persist(writer->region, spans, span_count, writer->persist_tag) != FARLOG_OK)
		return mark_failed(writer);
	finish_flush(writer);
	return FARLOG_OK;
}

/* advance_flush_apart -- of a writer that has failed, or on blocks: there a commit is whole LBAs. After recovery the
 * first one may begin inside an LBA that holds recovered records: that LBA is written as it was with a PAD behind them,
 * and alone, so that it is never torn. */
__attribute__((noinline)) static int advance_flush_apart(struct farlog_writer *writer)
{

	if (writer->is_failed)
		return FARLOG_UNKNOWN;
	if (writer->is_persisting) {
		if (writer->region->ops->data.poll(writer->region) != FARLOG_OK)
			return mark_failed(writer);
		finish_awaited_flush(writer);
	}
	if (writer->is_persisting || writer->durable_lsn == writer->ring.appended_lsn)
		return FARLOG_OK;
	writer_end_commit(writer);
	return start_flush(writer, writer->durable_lsn, writer->ring.appended_lsn);
}

/* advance_flush -- writer_advance_flush, in line where nearly every append passes. */
static inline __attribute__((always_inline)) int advance_flush(struct farlog_writer *writer)
{
	if (__builtin_expect(writer->is_apart, 0))
		return advance_flush_apart(writer);
	if (__builtin_expect(writer->is_persisting, 0)) {
		if (writer->region->ops->data.poll(writer->region) != FARLOG_OK)
			return mark_failed(writer);
		finish_awaited_flush(writer);
	}
	if (writer->is_persisting || writer->durable_lsn == writer->ring.appended_lsn)
		return FARLOG_OK;
	return start_flush(writer, writer->durable_lsn, writer->ring.appended_lsn);
}

int writer_advance_flush(struct farlog_writer *writer)
{
	return advance_flush(writer);
}

int writer_fenced_result(struct farlog_writer *writer)
{
	if (!region_can_fence_writer(writer->region) || !writer_is_fenced(writer) ||
		atomic_load_acquire(&writer->region->is_fence_lsn_pending))
		return FARLOG_OK;
	return writer->durable_lsn >= writer->region->fence_lsn ? FARLOG_FENCED : FARLOG_UNKNOWN;
}

int writer_wait_durable(struct farlog_writer *writer, uint64_t end_lsn, struct deadline *deadline)
{
	while (writer->durable_lsn < end_lsn) {
		int result = writer_advance_flush(writer);

		if (writer->durable_lsn >= end_lsn)
			break;
		if (result == FARLOG_OK)
			result = writer_fenced_result(writer);
		if (result == FARLOG_FENCED)
			return result;
		if (result == FARLOG_OK && !deadline_pause(deadline, writer, true)) {
			region_push(writer->region);
			late_begin(writer, end_lsn, deadline->at_ns - deadline->duration_ns);
			result = FARLOG_UNKNOWN;
		}
		late_touch(writer);
		if (result != FARLOG_OK) {
			atomic_bump(&writer->counters->unknown_count, 1);
			return result;
		}
	}
	return FARLOG_OK;
}

/* deadline_make -- where nobody has named one, the region's default says how long the media may take. That of memory, 1
 * ms, is less than a scheduler takes a thread off its core for, so a turn behind such a thread is given a second
 * more. */
struct deadline deadline_make(const struct farlog_writer *writer, uint64_t deadline_ns)
{
	uint64_t own_ns = atomic_load_relaxed(&writer->deadline_ns);
	bool is_default = deadline_ns == 0 && own_ns == writer->region->contract.deadline_default_ns;

	return (struct deadline){
		.duration_ns = deadline_ns != 0 ? deadline_ns : own_ns, .turn_ns = is_default ? TURN_DEFAULT_NS : 0};
}

/* stage_after_wait -- and stage what found none. FULL: at the deadline, or the policy is not to wait. */
__attribute__((noinline)) static int stage_after_wait(struct farlog_writer *writer, const struct farlog_entry *entry,
	uint64_t flags, struct deadline *deadline, struct farlog_position *position)
{
	bool is_waiting = writer->policy == FARLOG_POLICY_BLOCK; /* for this append, whatever is taken in meanwhile */
	uint64_t ticks = clock_ticks();
	int result = FARLOG_FULL;

	/* No append may follow that would store hints for the last records, and a drain releases only what hints cover. */
	if (ticks - writer->hint_ticks > writer->hint_interval_ticks && writer_advance_flush(writer) == FARLOG_OK)
		writer_store_hints(writer, ticks, writer->ring.appended_lsn, writer->durable_lsn);
	while (result == FARLOG_FULL && is_waiting) {
		/* What is staged must not wait for a flush that nobody starts while we wait for free space. */
		if (writer_advance_flush(writer) != FARLOG_OK)
			return FARLOG_CLOSED;
		region_push(writer->region);
		if (!deadline_pause(deadline, writer, false))
			break;
		result = writer_stage(writer, entry, flags, clock_ticks(), position);
	}
	return result;
}

/* stage_or_wait -- as writer_stage, waiting for the drain when the policy says so. */
static inline __attribute__((always_inline)) int stage_or_wait(struct farlog_writer *writer,
	const struct farlog_entry *entry, uint64_t flags, uint64_t ticks, struct deadline *deadline,
	struct farlog_position *position)
{
	int result = writer_stage(writer, entry, flags, ticks, position);

	return __builtin_expect(result == FARLOG_FULL, 0) ? stage_after_wait(writer, entry, flags, deadline, position) :
														result;
}

static inline __attribute__((always_inline)) int acknowledge_append(
	struct farlog_writer *writer, uint64_t start_ticks, struct deadline *deadline, struct farlog_position *position)
{
	uint64_t end_ticks;

	/* One step is enough over memory, and where a device has answered when we look. */
	if (__builtin_expect(advance_flush(writer) != FARLOG_OK || writer->durable_lsn < position->end_lsn, 0)) {
		int result = writer_wait_durable(writer, position->end_lsn, deadline);

		if (result != FARLOG_OK)
			return result == FARLOG_FENCED ? writer_reject_append(writer, result, position) : result;
	}
	position->level = writer->level;
	position->copies = writer_copies(writer);
	end_ticks = clock_ticks();
	if (end_ticks - writer->hint_ticks > writer->hint_interval_ticks)
		writer_store_hints(writer, end_ticks, writer->ring.appended_lsn, writer->durable_lsn);
	stats_latency(writer->counters, clock_elapsed_ns(end_ticks - start_ticks));
	return FARLOG_OK;
}

static inline __attribute__((always_inline)) int append_entry(struct farlog_writer *writer,
	const struct farlog_entry *entry, uint64_t flags, uint64_t deadline_ns, struct farlog_position *position)
{
	uint64_t start_ticks = clock_ticks();
	struct deadline deadline = deadline_make(writer, deadline_ns);
	int result = stage_or_wait(writer, entry, flags, start_ticks, &deadline, position);

	if (__builtin_expect(result != FARLOG_OK, 0))
		return writer_reject_append(writer, result, position);
	return acknowledge_append(writer, start_ticks, &deadline, position);
}

NO_STACK_PROTECTOR int farlog_append(
	farlog_writer *writer, const struct farlog_entry *entry, uint64_t deadline_ns, struct farlog_position *position)
{
	writer->has_claim = false;
	return append_entry(writer, entry, 0, deadline_ns, position);
}

int farlog_heartbeat(farlog_writer *writer, uint64_t deadline_ns, struct farlog_position *position)
{
	struct farlog_entry nothing = {0};

	writer->has_claim = false;
	return append_entry(writer, &nothing, RECORD_FLAG_HEARTBEAT, deadline_ns, position);
}

int farlog_try_append(farlog_writer *writer, const struct farlog_entry *entry, struct farlog_position *position)
{
	uint64_t start_ticks = clock_ticks();
	struct deadline deadline = deadline_make(writer, 0);
	int result;

	writer->has_claim = false;
	result = writer_stage(writer, entry, 0, start_ticks, position);
	if (result != FARLOG_OK)
		return writer_reject_append(writer, result, position);
	return acknowledge_append(writer, start_ticks, &deadline, position);
}

int farlog_poll(farlog_writer *writer, uint64_t *durable_lsn)
{
	int result = writer_advance_flush(writer);
	uint64_t ticks = clock_ticks();

	*durable_lsn = writer->durable_lsn;
	if (result != FARLOG_OK)
		return result;
	region_push(writer->region);
	if (ticks - writer->hint_ticks > writer->hint_interval_ticks)
		writer_store_hints(writer, ticks, writer->durable_lsn, writer->durable_lsn);
	return writer_is_fenced(writer) ? FARLOG_FENCED : FARLOG_OK;
}

int farlog_wait(farlog_writer *writer, uint64_t end_lsn, uint64_t deadline_ns)
{
	struct deadline deadline = deadline_make(writer, deadline_ns);

	if (end_lsn > writer->ring.appended_lsn)
		return FARLOG_INVALID;
	return writer_wait_durable(writer, end_lsn, &deadline);
}

int farlog_append_batch(farlog_writer *writer, const struct farlog_entry *entries, size_t count, uint64_t deadline_ns,
	struct farlog_position *positions, size_t *done, size_t *submitted)
{
	uint64_t start_ticks = clock_ticks();
	struct deadline deadline = deadline_make(writer, deadline_ns);
	int refused = FARLOG_OK;
	int result = FARLOG_OK;
	size_t acknowledged;

	if (__builtin_expect(atomic_load_relaxed(&writer->settings.is_change_pending) != 0, 0))
		writer_apply_settings(writer);
	writer->has_claim = false;
	for (*submitted = 0; *submitted < count && refused == FARLOG_OK;) {
		struct farlog_position *position = &positions[*submitted];
		size_t run_count = count - *submitted < BATCH_RUN_COUNT ? count - *submitted : BATCH_RUN_COUNT;
		size_t taken = writer_stage_many(writer, &entries[*submitted], run_count, clock_ticks(), position);

		if (taken == 0) {
			refused = stage_or_wait(writer, &entries[*submitted], 0, clock_ticks(), &deadline, position);
			taken = refused == FARLOG_OK;
		}
		*submitted += taken;
	}
	if (refused != FARLOG_OK)
		may_fail(writer_reject_append(writer, refused, &positions[*submitted])); /* it only counts */
	if (*submitted > 0)
		result = acknowledge_append(writer, start_ticks, &deadline, &positions[*submitted - 1]);
	/* One that was refused has end_lsn 0: it is not below anything. */
	for (acknowledged = 0; acknowledged < *submitted && positions[acknowledged].end_lsn - 1 < writer->durable_lsn;
		acknowledged++) {
		positions[acknowledged].level = writer_level_at(writer, positions[acknowledged].lsn);
		positions[acknowledged].copies = writer_copies(writer);
	}
	*done = acknowledged;
	return result != FARLOG_OK ? result : refused;
}

int farlog_claim(
	farlog_writer *writer, uint32_t len, uint16_t class_id, const void *key, uint16_t key_len, void **payload)
{
	uint64_t extent = record_extent(writer->identity.align, key_len + writer->envelope_len, len);

	*payload = NULL;
	writer->has_claim = false;
	if (writer->is_failed)
		return FARLOG_CLOSED;
	if (writer_is_fenced(writer))
		return FARLOG_FENCED;
	if (extent > writer->identity.record_len_max)
		return FARLOG_TOO_LARGE;
	if (key_len > 0 && key == NULL)
		return FARLOG_INVALID;
	if (key_len > 0)
		memcpy(writer->staging + RECORD_HEADER_LEN, key, key_len);
	writer->has_claim = true;
	writer->claim_len = len;
	writer->claim_class = class_id;
	writer->claim_key_len = key_len;
	*payload = writer->staging + RECORD_HEADER_LEN + key_len;
	return FARLOG_OK;
}

int farlog_commit(farlog_writer *writer, uint64_t deadline_ns, struct farlog_position *position)
{
	struct farlog_entry entry = {
		.data = writer->staging + RECORD_HEADER_LEN + writer->claim_key_len,
		.len = writer->claim_len,
		.class_id = writer->claim_class,
		.key_len = writer->claim_key_len,
		.key = writer->staging + RECORD_HEADER_LEN,
	};
	int result;

	if (!writer->has_claim)
		return writer_reject_append(writer, FARLOG_INVALID, position);
	result = append_entry(writer, &entry, 0, deadline_ns, position);
	if (result != FARLOG_FULL)
		writer->has_claim = false;
	return result;
}

void farlog_writer_cursors(farlog_writer *writer, struct farlog_cursors *cursors)
{
	writer_read_credit(writer, false);
	*cursors = (struct farlog_cursors){
		.head_lsn = writer->ring.credit_lsn,
		.durable_lsn = atomic_load_relaxed(&writer->durable_lsn), /* a shared writer's leader may be storing it */
		.appended_lsn = writer->ring.appended_lsn,
		.capacity_bytes = writer->identity.capacity,
		.next_seq = writer->ring.next_seq,
		.epoch = writer->epoch,
		.pressure = ring_pressure(&writer->ring),
	};
}
