/* world_reader.c -- what the drain and the follower do in a crash test. */
#include <ucontext.h>

#include "world.h"

/* read_some -- one read into a buffer of random size; a second one when the core says what it needs. */
static int read_some(struct world *world, farlog_reader *reader, struct farlog_batch *batch)
{
	static const uint32_t lens[] = {64, 128, 200, 512, 1024, 4096, WORLD_BUFFER_LEN};
	uint64_t buffer_len = lens[below(world, sizeof(lens) / sizeof(lens[0]))];
	int result = farlog_reader_read(reader, world->buffer, buffer_len, batch);

	if (result != FARLOG_TOO_LARGE)
		return result;
	if (batch->len <= buffer_len || batch->len > world->record_len_max)
		oracle_fail(&world->oracle,
			"read: a buffer of %lu is too small, %lu are said to be needed, a record is at most %u", buffer_len,
			batch->len, world->record_len_max);
	result = farlog_reader_read(reader, world->buffer, batch->len, batch);
	if (result == FARLOG_TOO_LARGE)
		oracle_fail(&world->oracle, "read: too large a second time");
	return result;
}

static void check_batch(struct world *world, struct oracle_walk *walk, const struct farlog_batch *batch)
{
	if (batch->is_rewound) {
		walk->has_seq = false;
		walk->pad_epoch = 0;
		if (batch->first_lsn > walk->lsn)
			oracle_fail(&world->oracle, "read: rewound forward from %lu to %lu", walk->lsn, batch->first_lsn);
		walk->lsn = batch->first_lsn;
	}
	if (batch->first_lsn != walk->lsn)
		oracle_fail(&world->oracle, "read: batch begins at %lu, expected %lu", batch->first_lsn, walk->lsn);
}

static void check_end(struct world *world, const struct oracle_walk *walk, const struct farlog_batch *batch)
{
	if (walk->lsn != batch->next_lsn || walk->seq != batch->next_seq || walk->epoch != batch->last_epoch)
		oracle_fail(&world->oracle, "read: batch says next lsn %lu, seq %lu, epoch %u; its records say %lu, %lu, %u",
			batch->next_lsn, batch->next_seq, batch->last_epoch, walk->lsn, walk->seq, walk->epoch);
}

static uint64_t appended_lsn(struct world *world)
{
	struct farlog_cursors cursors = {0};

	if (world->writer != NULL)
		farlog_writer_cursors(world->writer, &cursors);
	else if (world->shared != NULL)
		farlog_shared_cursors(world->shared, &cursors);
	return cursors.appended_lsn;
}

/* has_died -- blocks die in the middle of a read, too. */
static bool has_died(int result)
{
	return result == FARLOG_IO && memory->is_blocks && memory->is_dead(WORLD_NAME);
}

/* must_be_seen_lsn -- in memory what was appended is seen at once, on blocks when it is durable. */
static uint64_t must_be_seen_lsn(struct world *world)
{
	if (!memory->is_blocks)
		return appended_lsn(world);
	return world->writer != NULL ? world->writer->durable_lsn : 0;
}

/* check_caught_up -- NOT_YET beside a living writer means that everything it appended has been read. */
static void check_caught_up(struct world *world, const char *who, const struct oracle_walk *walk)
{
	if ((world->writer == NULL && world->shared == NULL) || memory->is_dead(WORLD_NAME))
		return;
	if (walk->lsn < must_be_seen_lsn(world) || walk->lsn > appended_lsn(world))
		oracle_fail(&world->oracle, "%s: nothing new at %lu, but the writer has appended up to %lu", who, walk->lsn,
			appended_lsn(world));
}

void walk_ring(struct world *world, uint64_t *head_lsn, uint64_t *tail_lsn)
{
	struct oracle_walk walk = {0};
	struct farlog_error error;
	farlog_reader *reader;
	struct farlog_batch batch;
	int result = farlog_reader_open(memory->uri, NULL, &reader, &error);

	*head_lsn = *tail_lsn = 0;
	if (has_died(result))
		return;
	if (result != FARLOG_OK) {
		oracle_fail(&world->oracle, "open reader: %s", error.text);
		return;
	}
	result = farlog_reader_read(reader, world->buffer, sizeof(world->buffer), &batch);
	*head_lsn = walk.lsn = batch.first_lsn;
	while (result == FARLOG_OK && !oracle_has_failed(&world->oracle)) {
		oracle_walked(&world->oracle, &walk, world->buffer, batch.len, false);
		check_end(world, &walk, &batch);
		result = farlog_reader_read(reader, world->buffer, sizeof(world->buffer), &batch);
	}
	if (result != FARLOG_NOT_YET && !has_died(result))
		oracle_fail(&world->oracle, "walk: %s at lsn %lu", farlog_result_name(result), walk.lsn);
	*tail_lsn = walk.lsn;
	farlog_reader_close(reader);
}

static void open_drain(struct world *world)
{
	struct farlog_reader_config config = {.is_drain = 1};
	struct farlog_ring_status status;
	struct farlog_error error = {0};
	int result = farlog_reader_open(memory->uri, &config, &world->drain, &error);

	trace(world, "drain open: %s%s\n", farlog_result_name(result), memory->is_dead(WORLD_NAME) ? ", died" : "");
	if (memory->is_dead(WORLD_NAME))
		return;
	if (result != FARLOG_OK) {
		oracle_fail(&world->oracle, "open drain: %s: %s", farlog_result_name(result), error.text);
		return;
	}
	result = farlog_reader_status(world->drain, &status);
	if (has_died(result))
		return;
	if (result != FARLOG_OK)
		oracle_fail(&world->oracle, "status of the drain: no head");
	if (status.head_lsn < world->released_lsn ||
		(status.head_lsn > world->released_lsn && status.head_lsn != world->releasing_lsn))
		oracle_fail(&world->oracle, "drain: head is at %lu; %lu was released, %lu tried", status.head_lsn,
			world->released_lsn, world->releasing_lsn);
	oracle_head(&world->oracle, status.head_lsn);
	world->released_lsn = status.head_lsn;
	world->releasing_lsn = status.head_lsn;
	world->drain_walk = (struct oracle_walk){.lsn = status.head_lsn, .epoch = status.last_epoch};
	world->has_read = false;
	world->has_synced = false;
}

static void drain_read(struct world *world)
{
	struct farlog_batch batch;
	int result = read_some(world, world->drain, &batch);

	trace(world, "drain read: %s, lsn %lu..%lu%s\n", farlog_result_name(result), batch.first_lsn, batch.next_lsn,
		batch.is_rewound ? ", rewound" : "");
	if (has_died(result))
		return;
	if (result == FARLOG_NOT_YET) {
		check_caught_up(world, "drain", &world->drain_walk);
		return;
	}
	if (result != FARLOG_OK) {
		oracle_fail(&world->oracle, "drain: read at lsn %lu: %s", world->drain_walk.lsn, farlog_result_name(result));
		return;
	}
	check_batch(world, &world->drain_walk, &batch);
	oracle_walked(&world->oracle, &world->drain_walk, world->buffer, batch.len, true);
	check_end(world, &world->drain_walk, &batch);
	world->read = batch;
	world->has_read = true;
}

static void drain_sync(struct world *world)
{
	if (!world->has_read)
		return;
	oracle_sync(&world->oracle);
	trace(world, "drain sync up to %lu\n", world->read.next_lsn);
	world->synced = world->read;
	world->has_synced = true;
}

static void drain_release(struct world *world)
{
	int result;

	if (!world->has_synced)
		return;
	world->releasing_lsn = world->synced.next_lsn;
	result =
		farlog_reader_release(world->drain, world->synced.next_lsn, world->synced.next_seq, world->synced.last_epoch);
	trace(world, "drain release of %lu: %s%s\n", world->synced.next_lsn, farlog_result_name(result),
		memory->is_dead(WORLD_NAME) ? ", died" : "");
	if (memory->is_dead(WORLD_NAME))
		return;
	if (result != FARLOG_OK) {
		oracle_fail(&world->oracle, "release of %lu: %s", world->synced.next_lsn, farlog_result_name(result));
		return;
	}
	world->released_lsn = world->releasing_lsn;
	world->has_synced = false;
	oracle_head(&world->oracle, world->released_lsn);
}

static struct world *releasing_world;
static ucontext_t writer_context;
static ucontext_t drain_context;
static uint8_t drain_stack[256 << 10] __attribute__((aligned(64)));
static bool is_drains_turn;

static void run_drain(void)
{
	is_drains_turn = true;
	swapcontext(&writer_context, &drain_context);
	is_drains_turn = false;
}

/* take_turns -- after an operation of either: the other one's turn. */
static void take_turns(void *context)
{
	(void)context;
	memory->call(WORLD_NAME, below(releasing_world, 3), take_turns, NULL);
	if (is_drains_turn)
		swapcontext(&drain_context, &writer_context);
	else if (releasing_world->is_releasing)
		run_drain();
}

static void release_in_turns(void)
{
	drain_release(releasing_world);
	releasing_world->is_releasing = false;
}

void drain_begin_release(struct world *world)
{
	if (world->drain == NULL || world->is_releasing)
		return;
	if (!world->has_synced) {
		drain_read(world);
		drain_sync(world);
	}
	if (!world->has_synced || world_is_over(world))
		return;
	trace(world, "drain begins a release beside the writer\n");
	releasing_world = world;
	world->is_releasing = true;
	getcontext(&drain_context);
	drain_context.uc_stack.ss_sp = drain_stack;
	drain_context.uc_stack.ss_size = sizeof(drain_stack);
	drain_context.uc_link = &writer_context;
	makecontext(&drain_context, release_in_turns, 0);
	memory->call(WORLD_NAME, below(world, 12), take_turns, NULL);
}

void drain_stand_still(void)
{
	memory->call(WORLD_NAME, UINT64_MAX, NULL, NULL);
}

void drain_end_release(struct world *world)
{
	drain_stand_still();
	while (world->is_releasing)
		run_drain();
}

/* drain_dies -- its process alone, or its host with the store's disk. */
static void drain_dies(struct world *world)
{
	trace(world, "drain dies\n");
	farlog_reader_close(world->drain);
	world->drain = NULL;
	if (below(world, 2))
		oracle_cut_store(
			&world->oracle, (uint32_t)below(world, world->oracle.entry_count - world->oracle.synced_count + 1));
}

void drain_step(struct world *world)
{
	uint64_t lot = below(world, 64);

	if (below(world, 16) < world->drain_laziness)
		return;
	if (world->is_releasing && below(world, 16) == 0)
		drain_end_release(world);
	else if (world->is_releasing)
		return; /* it stands long enough for the writer to go around the ring */
	else if (world->drain == NULL)
		open_drain(world);
	else if (lot == 0)
		drain_dies(world);
	else if (lot < 34)
		drain_read(world);
	else if (lot < 48)
		drain_sync(world);
	else
		drain_release(world);
}

bool drain_until_empty(struct world *world)
{
	for (unsigned i = 0; i < 100000 && !oracle_has_failed(&world->oracle); i++) {
		uint64_t before_lsn = world->drain_walk.lsn;

		if (world->drain == NULL)
			open_drain(world);
		drain_read(world);
		if (world->writer == NULL && world->shared == NULL && world->drain_walk.lsn == before_lsn &&
			world->released_lsn == before_lsn)
			return true;
		drain_sync(world);
		oracle_sync(&world->oracle);
		drain_release(world);
		if (world->drain_walk.lsn == appended_lsn(world) && world->released_lsn == world->drain_walk.lsn)
			return true;
	}
	return false;
}

/* The follower survives crashes of the memory, as a reader of far memory does. */
void follower_step(struct world *world)
{
	struct farlog_batch batch;
	int result;

	if (world->follower == NULL || below(world, 64) == 0) {
		farlog_reader_close(world->follower);
		result = farlog_reader_open(memory->uri, NULL, &world->follower, NULL);
		if (result != FARLOG_OK && !has_died(result))
			oracle_fail(&world->oracle, "open follower");
		world->follower_walk.pad_lsn = UINT64_MAX; /* its first batch says where it is */
		return;
	}
	result = read_some(world, world->follower, &batch);
	trace(world, "follower read: %s, lsn %lu..%lu%s\n", farlog_result_name(result), batch.first_lsn, batch.next_lsn,
		batch.is_rewound ? ", rewound" : "");
	if (has_died(result))
		return;
	if (result == FARLOG_OVERRUN) {
		farlog_reader_close(world->follower);
		world->follower = NULL;
		return;
	}
	if (world->follower_walk.pad_lsn == UINT64_MAX)
		world->follower_walk = (struct oracle_walk){.lsn = batch.first_lsn};
	if (result == FARLOG_NOT_YET)
		check_caught_up(world, "follower", &world->follower_walk);
	else if (result != FARLOG_OK)
		oracle_fail(
			&world->oracle, "follower: read at lsn %lu: %s", world->follower_walk.lsn, farlog_result_name(result));
	if (result != FARLOG_OK)
		return;
	check_batch(world, &world->follower_walk, &batch);
	oracle_walked(&world->oracle, &world->follower_walk, world->buffer, batch.len, false);
	check_end(world, &world->follower_walk, &batch);
}
