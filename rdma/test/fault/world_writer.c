/* world_writer.c -- what the writer does in a crash test. */
#include <string.h>

#include "world.h"

#define BATCH_MAX 8u

/* Content lives here until the core has copied it. */
static uint8_t content[BATCH_MAX][4096];

static void make_entry(struct world *world, unsigned slot, struct farlog_entry *entry)
{
	uint64_t len_max = world->record_len_max - 64;
	uint64_t extent = world->quantum * (1 + below(world, 3));
	uint64_t body_len = extent - 64 - below(world, 24);
	uint16_t key_len;

	if (below(world, 8) == 0)
		body_len = below(world, len_max + 1);
	if (body_len > len_max)
		body_len = len_max;
	if (body_len > sizeof(content[0]))
		body_len = sizeof(content[0]);
	key_len = (uint16_t)(below(world, 4) == 0 ? below(world, body_len + 1) : 0);
	*entry = (struct farlog_entry){
		.data = content[slot] + key_len,
		.len = (uint32_t)(body_len - key_len),
		.class_id = (uint16_t)below(world, 5),
		.key_len = key_len,
		.key = content[slot],
	};
	oracle_content(world->oracle.next_id, content[slot], key_len, content[slot] + key_len, entry->len);
}

static void remember(struct world *world, const struct farlog_entry *entry, const struct farlog_position *position)
{
	trace(world, "  submitted epoch %u lsn %lu..%lu seq %lu\n", position->epoch, position->lsn, position->end_lsn,
		position->seq);
	oracle_submitted(&world->oracle, entry, world->oracle.next_id, position);
	world->oracle.next_id++;
}

static void note_outcome(struct world *world, const char *call, int result, const struct farlog_position *position)
{
	trace(world, "  %s: %s, up to %lu\n", call, farlog_result_name(result), position->end_lsn);
	if (result == FARLOG_OK)
		oracle_acked(&world->oracle, position->end_lsn);
	else if (result == FARLOG_FENCED && position->epoch <= world->oracle.epoch_opened)
		oracle_fail(&world->oracle, "%s: fenced by epoch %u, the writer has %u", call, position->epoch,
			world->oracle.epoch_opened);
	else if (result == FARLOG_FENCED)
		writer_drop(world, true);
	else if (result != FARLOG_FULL && !memory->is_dead(WORLD_NAME))
		oracle_fail(&world->oracle, "%s: %s although nothing had died", call, farlog_result_name(result));
}

static void append_one(struct world *world)
{
	struct farlog_entry entry;
	struct farlog_position position;
	int result;

	make_entry(world, 0, &entry);
	if (world->shared != NULL)
		result = farlog_shared_append(world->shared, &entry, 0, &position);
	else if (below(world, 2))
		result = farlog_append(world->writer, &entry, 0, &position);
	else
		result = farlog_try_append(world->writer, &entry, &position);
	if (result == FARLOG_OK || result == FARLOG_UNKNOWN)
		remember(world, &entry, &position);
	note_outcome(world, "append", result, &position);
}

static void submit_some(struct world *world)
{
	uint64_t count = 1 + below(world, 6);
	int result = FARLOG_OK;

	for (uint64_t i = 0; i < count && result == FARLOG_OK && !memory->is_dead(WORLD_NAME); i++) {
		struct farlog_entry entry;
		struct farlog_position position;

		make_entry(world, 0, &entry);
		result = farlog_submit(world->writer, &entry, &position);
		if (result == FARLOG_OK)
			remember(world, &entry, &position);
		else
			note_outcome(world, "submit", result, &position);
	}
}

static void poll_durable(struct world *world)
{
	uint64_t durable_lsn;
	int result = farlog_poll(world->writer, &durable_lsn);

	trace(world, "  poll: %s, durable %lu\n", farlog_result_name(result), durable_lsn);
	if (result == FARLOG_OK)
		oracle_acked(&world->oracle, durable_lsn);
	else if (result == FARLOG_FENCED)
		writer_drop(world, true);
	else if (!memory->is_dead(WORLD_NAME))
		oracle_fail(&world->oracle, "poll: %s although nothing had died", farlog_result_name(result));
}

static void wait_durable(struct world *world)
{
	struct oracle *oracle = &world->oracle;
	struct farlog_position position = {.epoch = oracle->epoch_opened};
	uint32_t left = oracle->record_count - oracle->unacked_from;

	if (left == 0)
		return;
	position.end_lsn = oracle->records[oracle->unacked_from + below(world, left)].end_lsn;
	note_outcome(world, "wait", farlog_wait(world->writer, position.end_lsn, 0), &position);
}

static void append_batch(struct world *world)
{
	struct farlog_entry entries[BATCH_MAX];
	struct farlog_position positions[BATCH_MAX];
	size_t count = 1 + below(world, BATCH_MAX);
	uint64_t first_id = world->oracle.next_id;
	size_t submitted;
	size_t done;
	int result;

	for (unsigned i = 0; i < count; i++) {
		make_entry(world, i, &entries[i]);
		world->oracle.next_id++;
	}
	result = farlog_append_batch(world->writer, entries, count, 0, positions, &done, &submitted);
	world->oracle.next_id = first_id;
	for (size_t i = 0; i < submitted; i++)
		remember(world, &entries[i], &positions[i]);
	if (done > 0)
		oracle_acked(&world->oracle, positions[done - 1].end_lsn);
	if (result == FARLOG_OK && done != count)
		oracle_fail(&world->oracle, "batch of %zu: OK with %zu done", count, done);
	if (result != FARLOG_OK)
		note_outcome(world, "batch", result, &positions[submitted < count ? submitted : count - 1]);
}

static void claim_and_commit(struct world *world)
{
	struct farlog_entry entry;
	struct farlog_position position;
	void *payload;
	int result;

	make_entry(world, 0, &entry);
	result = farlog_claim(world->writer, entry.len, entry.class_id, entry.key, entry.key_len, &payload);
	if (result == FARLOG_OK) {
		memcpy(payload, entry.data, entry.len);
		result = farlog_commit(world->writer, 0, &position);
		if (result == FARLOG_OK || result == FARLOG_UNKNOWN)
			remember(world, &entry, &position);
		note_outcome(world, "commit", result, &position);
	} else if (result == FARLOG_FENCED) {
		writer_drop(world, true);
	} else if (!memory->is_dead(WORLD_NAME)) {
		oracle_fail(&world->oracle, "claim: %s although nothing had died", farlog_result_name(result));
	}
}

static void resolve_one(struct world *world)
{
	struct oracle *oracle = &world->oracle;
	const struct oracle_record *record;
	struct farlog_position position;
	int result;

	if (oracle->record_count == 0)
		return;
	record =
		&oracle
			 ->records[oracle->record_count - 1 - below(world, oracle->record_count < 24 ? oracle->record_count : 24)];
	result = farlog_resolve(world->writer, record->lsn, 0, &position);
	if (memory->is_dead(WORLD_NAME))
		return;
	if (result == FARLOG_OK && position.epoch == record->epoch && record->is_dropped)
		oracle_fail(
			oracle, "resolve: OK for (epoch %u, lsn %lu), which a recovery dropped", record->epoch, record->lsn);
	if (result == FARLOG_OK && position.epoch == record->epoch)
		oracle_acked(oracle, record->end_lsn);
	if (result == FARLOG_UNKNOWN && record->lsn >= world->released_lsn && record->lsn >= world->releasing_lsn)
		oracle_fail(
			oracle, "resolve: UNKNOWN for (epoch %u, lsn %lu), which is not drained", record->epoch, record->lsn);
	if (result == FARLOG_NOT_FOUND && !record->is_dropped)
		oracle_fail(oracle, "resolve: NOT_FOUND for (epoch %u, lsn %lu), which is there", record->epoch, record->lsn);
}

static void check_cursors(struct world *world)
{
	struct farlog_cursors cursors;

	if (world->shared != NULL)
		farlog_shared_cursors(world->shared, &cursors);
	else
		farlog_writer_cursors(world->writer, &cursors);
	if (cursors.head_lsn > cursors.appended_lsn || cursors.durable_lsn > cursors.appended_lsn ||
		cursors.appended_lsn - cursors.head_lsn > cursors.capacity_bytes)
		oracle_fail(&world->oracle, "cursors: head %lu, durable %lu, appended %lu, capacity %lu", cursors.head_lsn,
			cursors.durable_lsn, cursors.appended_lsn, cursors.capacity_bytes);
}

/* check_opened -- the epoch is new, the log holds what it must, and the walk of a reader ends where the writer goes
 * on. */
static void check_opened(struct world *world, const struct farlog_recovery *recovery)
{
	struct oracle *oracle = &world->oracle;
	uint64_t head_lsn;
	uint64_t tail_lsn;
	struct farlog_cursors cursors;

	if (recovery->epoch <= oracle->epoch_opened || recovery->epoch < world->epoch_min)
		oracle_fail(oracle, "epoch %u was opened after epoch %u (fence %u)", recovery->epoch, oracle->epoch_opened,
			world->epoch_min);
	trace(world, "  epoch %u, head %lu, tail %lu, next seq %lu, orphans %lu\n", recovery->epoch, recovery->head_lsn,
		recovery->tail_lsn, recovery->next_seq, recovery->orphan_count);
	oracle->epoch_opened = recovery->epoch;
	oracle_recovering(oracle);
	walk_ring(world, &head_lsn, &tail_lsn);
	if (memory->is_dead(WORLD_NAME))
		return; /* blocks die in the middle of a read, too */
	oracle_recovered(oracle, head_lsn);
	if (world->shared != NULL)
		farlog_shared_cursors(world->shared, &cursors);
	else
		farlog_writer_cursors(world->writer, &cursors);
	/* A drain that releases beside the opening may have moved the head on since. */
	if (recovery->head_lsn > head_lsn || (recovery->head_lsn < head_lsn && head_lsn != world->releasing_lsn) ||
		tail_lsn != cursors.appended_lsn)
		oracle_fail(oracle, "recovery found head %lu and goes on at %lu, a reader sees %lu to %lu", recovery->head_lsn,
			cursors.appended_lsn, head_lsn, tail_lsn);
	if (head_lsn < world->released_lsn || (head_lsn > world->released_lsn && head_lsn != world->releasing_lsn))
		oracle_fail(
			oracle, "head is at %lu; %lu was released, %lu tried", head_lsn, world->released_lsn, world->releasing_lsn);
}

static void open_one(struct world *world)
{
	struct farlog_writer_config config = {.policy = FARLOG_POLICY_REJECT, .counters_dir = "", .writer_name = "crash"};
	struct farlog_error error = {0};
	bool is_shared = below(world, 8) == 0;
	int result;

	if (below(world, 2))
		drain_begin_release(world);
	result = is_shared ? farlog_shared_open(memory->uri, &config, &world->shared, &error) :
						 farlog_writer_open(memory->uri, &config, &world->writer, &error);
	drain_stand_still();
	trace(world, "writer open%s: %s%s %s\n", is_shared ? " (shared)" : "", farlog_result_name(result),
		memory->is_dead(WORLD_NAME) ? ", died" : "", error.text);
	if (memory->is_dead(WORLD_NAME))
		return;
	world->open_count++;
	if (result == FARLOG_OK) {
		/* The time between two hints would make a run depend on the clock; always and never are both wanted. */
		if (!is_shared)
			world->writer->hint_interval_ticks = below(world, 2) ? UINT64_MAX / 2 : 0;
		check_opened(world, is_shared ? farlog_shared_recovery(world->shared) : farlog_writer_recovery(world->writer));
	} else if (result != FARLOG_FULL) {
		oracle_fail(&world->oracle, "open: %s: %s", farlog_result_name(result), error.text);
	}
}

void writer_drop(struct world *world, bool is_clean)
{
	int result = FARLOG_UNKNOWN;

	if (world->writer != NULL) {
		if (!is_clean)
			world->writer->is_failed = true; /* the death of this process alone: nothing is flushed any more */
		result = farlog_writer_close(world->writer);
	}
	if (world->shared != NULL)
		result = farlog_shared_close(world->shared);
	trace(world, "writer close (%s): %s\n", is_clean ? "clean" : "death", farlog_result_name(result));
	world->writer = NULL;
	world->shared = NULL;
	if (result == FARLOG_OK && is_clean && !memory->is_dead(WORLD_NAME))
		oracle_acked(&world->oracle, UINT64_MAX);
}

static void fence(struct world *world)
{
	uint32_t epoch_min = world->oracle.epoch_opened + 1 + (uint32_t)below(world, 2);

	trace(world, "fence %u\n", epoch_min);
	if (farlog_ring_fence(memory->uri, epoch_min, NULL) == FARLOG_OK && !memory->is_dead(WORLD_NAME))
		world->epoch_min = epoch_min;
}

void writer_step(struct world *world)
{
	uint64_t lot = below(world, 128);

	if (world->writer == NULL && world->shared == NULL) {
		open_one(world);
		return;
	}
	if (lot == 0)
		fence(world);
	else if (lot < 3)
		writer_drop(world, lot == 1);
	else if (world->shared != NULL || lot < 40)
		append_one(world);
	else if (lot < 70)
		submit_some(world);
	else if (lot < 80)
		poll_durable(world);
	else if (lot < 90)
		wait_durable(world);
	else if (lot < 105)
		append_batch(world);
	else if (lot < 115)
		claim_and_commit(world);
	else
		resolve_one(world);
	if (!world_is_over(world) && (world->writer != NULL || world->shared != NULL))
		check_cursors(world);
}
