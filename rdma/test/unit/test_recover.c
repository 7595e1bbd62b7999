/* Bugs that the crash test found, each with a test named after its cause; and what recovery tells. */
#include "ring/layout.h"
#include "ring/record.h"
#include "region/region.h"
#include "unit.h"

#define CAPACITY 4096u
#define SIZE (LAYOUT_DATA_OFF + CAPACITY)

static uint8_t buffer[SIZE];

/* Only the stores of one submit are kept of those that were never flushed. */
static void flush_span(uint64_t lsn, uint64_t len)
{
	struct region *region;

	assert_int_equal(
		region_open(FAULT_URI, &(struct region_options){.access = REGION_WRITE}, &region, NULL), FARLOG_OK);
	assert_int_equal(region->ops->data.flush(region, LAYOUT_DATA_OFF + lsn % CAPACITY, len), FARLOG_OK);
	region->ops->close(region);
}

/* lose_unflushed -- a power cut after which none of the unflushed words survives: what is not flushed is overwritten by
 * what is durable. */
static void lose_unflushed(uint64_t from_lsn, uint64_t len)
{
	static const uint8_t zeros[CAPACITY] __attribute__((aligned(64)));
	struct region *region;

	farlog_fault_crash(FAULT_NAME);
	assert_int_equal(
		region_open(FAULT_URI, &(struct region_options){.access = REGION_WRITE}, &region, NULL), FARLOG_OK);
	region->ops->data.write(region, LAYOUT_DATA_OFF + from_lsn % CAPACITY, zeros, len);
	assert_int_equal(region->ops->data.flush(region, 0, SIZE), FARLOG_OK);
	region->ops->close(region);
}

static void resolve__of_the_writers_own_records(void **state)
{
	struct farlog_position appended;
	struct farlog_position position;
	farlog_writer *writer;

	(void)state;
	unit_fault(SIZE, 1024);
	writer = unit_open(FAULT_URI);
	assert_int_equal(unit_submit(writer, 300, 1, &appended), FARLOG_OK);
	assert_int_equal(farlog_resolve(writer, appended.lsn, 0, &position), FARLOG_OK);
	assert_int_equal(position.seq, 1);
	assert_int_equal(position.end_lsn, appended.end_lsn);
	assert_int_equal(position.level, FARLOG_LEVEL_PERSISTENT);
	assert_int_equal(farlog_resolve(writer, appended.lsn + 64, 0, &position), FARLOG_NOT_FOUND); /* inside it */
	assert_int_equal(farlog_resolve(writer, appended.end_lsn, 0, &position), FARLOG_NOT_FOUND);
	assert_int_equal(farlog_resolve(writer, appended.lsn + 1, 0, &position), FARLOG_INVALID);
	farlog_writer_close(writer);
}

static void resolve__on_a_reopened_writer(void **state)
{
	struct farlog_position kept;
	struct farlog_position lost;
	struct farlog_position position;
	struct farlog_batch batch;
	farlog_writer *writer;
	farlog_reader *drain;

	(void)state;
	unit_fault(SIZE, 1024);
	writer = unit_open(FAULT_URI);
	assert_int_equal(unit_append(writer, 64, 1, &kept), FARLOG_OK);
	assert_int_equal(unit_submit(writer, 64, 2, &lost), FARLOG_OK);
	lose_unflushed(lost.lsn, 128);
	farlog_writer_close(writer);
	writer = unit_open(FAULT_URI);
	assert_int_equal(farlog_resolve(writer, kept.lsn, 0, &position), FARLOG_OK);
	assert_int_equal(position.epoch, kept.epoch);
	/* The new epoch's first record begins where the lost one did: the epoch tells them apart. */
	assert_int_equal(farlog_resolve(writer, lost.lsn, 0, &position), FARLOG_OK);
	assert_int_not_equal(position.epoch, lost.epoch);
	assert_int_equal(farlog_resolve(writer, kept.lsn + 64, 0, &position), FARLOG_NOT_FOUND);
	/* Drained: the ring no longer knows, and does not guess. */
	drain = unit_read(FAULT_URI, FARLOG_START_HEAD, true);
	assert_int_equal(farlog_reader_read(drain, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	assert_int_equal(farlog_resolve(writer, kept.lsn, 0, &position), FARLOG_UNKNOWN);
	assert_int_equal(farlog_resolve(writer, lost.lsn, 0, &position), FARLOG_OK); /* this writer's own EPOCH record */
	assert_int_equal(position.level, FARLOG_LEVEL_STORED);
	assert_int_equal(position.epoch, 2);
	farlog_reader_close(drain);
	farlog_writer_close(writer);
}

/* A PAD skips bytes without writing them: the header of a record that recovery dropped lies there still. */
static void resolve__record_dropped_by_recovery_lies_below_a_pad(void **state)
{
	struct farlog_position torn;
	struct farlog_position first;
	struct farlog_position second;
	struct farlog_position position;
	farlog_writer *writer;

	(void)state;
	unit_fault(SIZE, 1024);
	writer = unit_open(FAULT_URI);
	assert_int_equal(unit_append(writer, 960, 1, &position), FARLOG_OK);
	assert_int_equal(unit_append(writer, 960, 1, &position), FARLOG_OK);
	assert_int_equal(unit_append(writer, 960, 1, &position), FARLOG_OK); /* ends at 3200 */
	assert_int_equal(unit_submit(writer, 320, 2, &torn), FARLOG_OK);     /* 3200..3584 */
	assert_int_equal(unit_submit(writer, 128, 3, &first), FARLOG_OK);    /* 3584..3776 */
	assert_int_equal(unit_submit(writer, 128, 3, &second), FARLOG_OK);   /* 3776..3968 */
	flush_span(first.lsn, 384);
	lose_unflushed(torn.lsn, 64);
	farlog_writer_close(writer);
	writer = unit_open(FAULT_URI);
	assert_int_equal(farlog_writer_recovery(writer)->orphan_count, 2);
	assert_int_equal(farlog_writer_recovery(writer)->tail_lsn, torn.lsn);
	assert_int_equal(unit_append(writer, 130, 4, &position), FARLOG_OK); /* after the EPOCH record: 3328..3584 */
	{
		farlog_reader *drain = unit_read(FAULT_URI, FARLOG_START_HEAD, true);
		struct farlog_batch batch;

		assert_int_equal(farlog_reader_read(drain, buffer, 2600, &batch), FARLOG_OK);
		assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
		farlog_reader_close(drain);
	}
	assert_int_equal(unit_append(writer, 700, 5, &position), FARLOG_OK); /* PAD over 3584..4096 */
	assert_int_equal(position.lsn, CAPACITY);
	assert_int_equal(farlog_resolve(writer, first.lsn, 0, &position), FARLOG_NOT_FOUND);
	assert_int_equal(farlog_resolve(writer, second.lsn, 0, &position), FARLOG_NOT_FOUND);
	farlog_writer_close(writer);
	writer = unit_open(FAULT_URI); /* and when it has become somebody else's PAD */
	assert_int_equal(farlog_resolve(writer, first.lsn, 0, &position), FARLOG_NOT_FOUND);
	assert_int_equal(farlog_resolve(writer, second.lsn, 0, &position), FARLOG_NOT_FOUND);
	farlog_writer_close(writer);
}

/* A tail below what the durable hint says was acknowledged is refused, whatever lies between them: one alignment is
 * enough. One that is just there is not. */
static void recover__tail_below_the_durable_hint(void **state)
{
	static const uint8_t zeros[CAPACITY] __attribute__((aligned(64)));

	(void)state;
	for (uint64_t lost = 0; lost < 20; lost++) {
		struct farlog_position position;
		struct farlog_error error = {0};
		struct region *region;
		farlog_writer *writer;

		unit_fault(SIZE, 1024);
		writer = unit_open(FAULT_URI);
		for (unsigned i = 0; i < 20; i++) {
			assert_int_equal(unit_append(writer, 0, 0, &position), FARLOG_OK);
			assert_int_equal(position.end_lsn - position.lsn, 64); /* the alignment of this ring */
		}
		assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
		assert_int_equal(
			region_open(FAULT_URI, &(struct region_options){.access = REGION_WRITE}, &region, NULL), FARLOG_OK);
		region->ops->data.write(region, LAYOUT_DATA_OFF + position.end_lsn - 64 * lost, zeros, 64 * lost);
		region->ops->data.store_word(region, LAYOUT_DURABLE_HINT_OFF, position.end_lsn);
		region->ops->close(region);
		assert_int_equal(
			farlog_writer_open(FAULT_URI, CONFIG(.epoch = 0), &writer, &error), lost == 0 ? FARLOG_OK : FARLOG_CORRUPT);
		if (lost == 0)
			assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	}
}

static const struct CMUnitTest resolve_tests[] = {
	cmocka_unit_test(recover__tail_below_the_durable_hint),
	cmocka_unit_test(resolve__of_the_writers_own_records),
	cmocka_unit_test(resolve__on_a_reopened_writer),
	cmocka_unit_test(resolve__record_dropped_by_recovery_lies_below_a_pad),
};
RUN_GROUP(resolve, resolve_tests)

/* A reader of far memory survives the power cut of the memory. Everything below begins alike: it has read a record that
 * was visible and not acknowledged, which is then undone. */
struct scene {
	farlog_writer *writer;
	farlog_reader *reader;
	struct farlog_position undone;
};

static void undo_what_was_read(struct scene *scene)
{
	struct farlog_batch batch;
	struct farlog_position position;

	unit_fault(SIZE, 1024);
	scene->writer = unit_open(FAULT_URI);
	scene->reader = unit_read(FAULT_URI, FARLOG_START_HEAD, false);
	assert_int_equal(unit_append(scene->writer, 64, 1, &position), FARLOG_OK);
	assert_int_equal(unit_submit(scene->writer, 64, 2, &scene->undone), FARLOG_OK);
	assert_int_equal(farlog_reader_read(scene->reader, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_int_equal(batch.next_lsn, scene->undone.end_lsn);
	assert_int_equal(batch.is_rewound, 0);
	lose_unflushed(scene->undone.lsn, 128);
	farlog_writer_close(scene->writer);
}

static void leave(struct scene *scene)
{
	farlog_reader_close(scene->reader);
	farlog_writer_close(scene->writer);
}

static void rewind__newer_epoch_begins_below(void **state)
{
	struct farlog_position position;
	struct farlog_batch batch;
	struct scene scene;

	(void)state;
	undo_what_was_read(&scene);
	assert_int_equal(farlog_reader_read(scene.reader, buffer, sizeof(buffer), &batch), FARLOG_NOT_YET);
	scene.writer = unit_open(FAULT_URI);
	assert_int_equal(unit_append(scene.writer, 64, 3, &position), FARLOG_OK);
	assert_int_equal(farlog_reader_read(scene.reader, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_int_equal(batch.is_rewound, 1);
	assert_int_equal(batch.first_lsn, scene.undone.lsn);
	assert_int_equal(batch.record_count, 2);
	assert_int_equal(batch.last_epoch, 2);
	leave(&scene);
}

static void drain_all(void)
{
	farlog_reader *drain = unit_read(FAULT_URI, FARLOG_START_HEAD, true);
	struct farlog_batch batch;

	assert_int_equal(farlog_reader_read(drain, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	farlog_reader_close(drain);
}

/* The new epoch's records are drained up to exactly the reader's position: nothing is left that would show the
 * change. */
static void rewind__head_reached_the_reader_meanwhile(void **state)
{
	struct farlog_batch batch;
	struct scene scene;

	(void)state;
	undo_what_was_read(&scene);
	scene.writer = unit_open(FAULT_URI); /* its EPOCH record is as long as the undone one */
	drain_all();
	assert_int_equal(farlog_reader_read(scene.reader, buffer, sizeof(buffer), &batch), FARLOG_OVERRUN);
	leave(&scene);
}

/* The newer epoch began below us and the head has passed that place, not yet us. */
static void rewind__head_passed_the_newer_epochs_start(void **state)
{
	struct farlog_position position;
	struct farlog_batch batch;
	farlog_writer *writer;
	farlog_reader *reader;
	struct farlog_position undone[2];

	(void)state;
	unit_fault(SIZE, 1024);
	writer = unit_open(FAULT_URI);
	reader = unit_read(FAULT_URI, FARLOG_START_HEAD, false);
	assert_int_equal(unit_append(writer, 64, 1, &position), FARLOG_OK);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(unit_submit(writer, 64, 2, &undone[i]), FARLOG_OK);
	assert_int_equal(farlog_reader_read(reader, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_int_equal(batch.next_lsn, undone[1].end_lsn);
	lose_unflushed(undone[0].lsn, 256);
	farlog_writer_close(writer);
	writer = unit_open(FAULT_URI);
	drain_all(); /* up to the end of the EPOCH record, which took the place of undone[0] */
	assert_int_equal(farlog_reader_read(reader, buffer, sizeof(buffer), &batch), FARLOG_OVERRUN);
	farlog_reader_close(reader);
	farlog_writer_close(writer);
}

static void rewind__head_passed_the_reader_meanwhile(void **state)
{
	struct farlog_position position;
	struct farlog_batch batch;
	struct scene scene;

	(void)state;
	undo_what_was_read(&scene);
	scene.writer = unit_open(FAULT_URI);
	assert_int_equal(unit_append(scene.writer, 64, 3, &position), FARLOG_OK);
	drain_all();
	assert_int_equal(farlog_reader_read(scene.reader, buffer, sizeof(buffer), &batch), FARLOG_OVERRUN);
	leave(&scene);
}

/* A slow reader behind the head of an ordinary restart is not disturbed: what it has read is still the log. */
static void rewind__ordinary_restart_is_none(void **state)
{
	struct farlog_position position;
	struct farlog_batch batch;
	farlog_writer *writer;
	farlog_reader *reader;

	(void)state;
	unit_fault(SIZE, 1024);
	writer = unit_open(FAULT_URI);
	reader = unit_read(FAULT_URI, FARLOG_START_HEAD, false);
	assert_int_equal(unit_append(writer, 64, 1, &position), FARLOG_OK);
	farlog_writer_close(writer);
	drain_all();
	writer = unit_open(FAULT_URI);
	assert_int_equal(farlog_reader_read(reader, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_int_equal(batch.record_count, 3);
	assert_int_equal(batch.is_rewound, 0);
	farlog_reader_close(reader);
	farlog_writer_close(writer);
}

/* A superblock that was visible is undone; the next writer gives its generation number to another epoch start. */
static void rewind__superblock_undone_and_its_generation_used_again(void **state)
{
	struct farlog_position position;
	struct farlog_batch batch;
	struct scene scene;

	(void)state;
	undo_what_was_read(&scene);
	farlog_fault_arm(FAULT_NAME, 4); /* dies after the superblock became visible */
	assert_int_not_equal(farlog_writer_open(FAULT_URI, CONFIG(.level = 0), &scene.writer, NULL), FARLOG_OK);
	may_fail(farlog_reader_read(scene.reader, buffer, sizeof(buffer), &batch));
	farlog_fault_crash(FAULT_NAME);
	scene.writer = unit_open(FAULT_URI);
	assert_int_equal(unit_append(scene.writer, 64, 3, &position), FARLOG_OK);
	assert_int_equal(farlog_reader_read(scene.reader, buffer, sizeof(buffer), &batch), FARLOG_OK);
	assert_int_equal(batch.is_rewound, 1);
	assert_int_equal(batch.next_lsn, position.end_lsn);
	leave(&scene);
}

/* After a power cut the credit is older than the head slot; a reader below the head was overtaken all the same. */
static void rewind__credit_older_than_the_head(void **state)
{
	struct farlog_position position;
	struct farlog_batch batch;
	struct region *region;
	farlog_writer *writer;
	farlog_reader *reader;

	(void)state;
	unit_fault(SIZE, 1024);
	writer = unit_open(FAULT_URI);
	assert_int_equal(unit_append(writer, 900, 1, &position), FARLOG_OK);
	reader = unit_read(FAULT_URI, FARLOG_START_HEAD, false);
	drain_all();
	farlog_writer_close(writer);
	writer = unit_open(FAULT_URI);
	while (unit_append(writer, 900, 1, &position) == FARLOG_OK)
		;
	assert_int_equal(
		region_open(FAULT_URI, &(struct region_options){.access = REGION_WRITE}, &region, NULL), FARLOG_OK);
	region->ops->data.store_word(region, LAYOUT_CREDIT_OFF, 0);
	region->ops->close(region);
	assert_int_equal(farlog_reader_read(reader, buffer, sizeof(buffer), &batch), FARLOG_OVERRUN);
	farlog_reader_close(reader);
	farlog_writer_close(writer);
}

static const struct CMUnitTest rewind_tests[] = {
	cmocka_unit_test(rewind__newer_epoch_begins_below),
	cmocka_unit_test(rewind__head_reached_the_reader_meanwhile),
	cmocka_unit_test(rewind__head_passed_the_newer_epochs_start),
	cmocka_unit_test(rewind__head_passed_the_reader_meanwhile),
	cmocka_unit_test(rewind__ordinary_restart_is_none),
	cmocka_unit_test(rewind__superblock_undone_and_its_generation_used_again),
	cmocka_unit_test(rewind__credit_older_than_the_head),
};
RUN_GROUP(rewind, rewind_tests)
