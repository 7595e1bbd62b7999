/* Consumers whose ring becomes another one: formatted again, replaced as a member, gone back. */
#include <stdio.h>
#include <unistd.h>

#include "farlog/consume.h"
#include "site.h"

/* A power cut undoes records that were never acknowledged and that store and consumer have seen: the next epoch's
 * replace them. */
static void consume__undone_records_are_replaced(void **state)
{
	static uint8_t before[RING_SIZE];

	(void)state;
	for (unsigned is_drained = 0; is_drained < 2; is_drained++) {
		struct told told = {0};
		farlog_consumer *consumer, *late;
		struct site site;
		FILE *file;
		uint64_t next = 0;

		site_open(&site);
		site_append(&site, 20);
		file = fopen(unit_path(site.uri), "r+");
		assert_int_equal(fread(before, 1, RING_SIZE, file), RING_SIZE);
		site_append(&site, 10);
		consumer = OPEN(&site, .start = FARLOG_CONSUME_OLDEST);
		assert_int_equal(site_read(consumer, ALL, &next, &told), 30);
		segments_store(&site.segments, 4096);
		segments_kill(&site.segments);
		farlog_writer_close(site.writer);
		rewind(file);
		assert_int_equal(fwrite(before, 1, RING_SIZE, file), RING_SIZE);
		fclose(file);
		site.writer = unit_open(site.uri);
		site.count = next = 100;
		site_append(&site, 5);
		for (unsigned i = 0; is_drained && i < 4; i++) {
			site_append(&site, 100);
			segments_drain(&site.segments);
		}
		site_read(consumer, ALL, &next, &told);
		assert_int_equal(next, site.count);
		assert_int_equal(told.rewound_count, 1);
		if (!is_drained)
			assert_true(told.count == 1 && told.first.kind == FARLOG_NOTICE_REWOUND && told.first.epoch == 2);
		late = OPEN(&site, .start = FARLOG_CONSUME_OLDEST);
		next = 0;
		if (is_drained) { /* the store knows which are superseded */
			assert_int_equal(site_read(late, 20, &next, NULL), 20);
			next = 100;
			site_read(late, ALL, &next, NULL);
			assert_int_equal(next, site.count);
		}
		farlog_consumer_close(late);
		farlog_consumer_close(consumer);
		site_close(&site);
	}
}

/* The ring is formatted again: lsn and epoch begin again in another generation, and the consumer goes on there. */
static void consume__ring_formatted_again_is_another_generation(void **state)
{
	struct farlog_ring_config config = {
		.size_bytes = RING_SIZE, .record_len_max = 4096, .is_forced = 1, .stream_name = SEGMENTS_STREAM};
	farlog_consumer *consumer;
	struct site site;
	uint64_t next = 0;

	(void)state;
	site_open(&site);
	site_append(&site, 90);
	site_reopen_writer(&site);
	site_append(&site, 30);
	segments_drain(&site.segments);
	segments_kill(&site.segments);
	farlog_writer_close(site.writer);
	assert_int_equal(farlog_ring_format(site.uri, &config, NULL), FARLOG_OK);
	site.writer = unit_open(site.uri);
	site_append(&site, 20);
	for (unsigned is_stored = 0; is_stored < 2; is_stored++) {
		next = 0;
		consumer = OPEN(&site, .start = FARLOG_CONSUME_OLDEST);
		assert_int_equal(site_read(consumer, ALL, &next, NULL), 140);
		assert_int_equal(site_stats(consumer).place.generation, 2);
		farlog_consumer_close(consumer);
		segments_drain(&site.segments);
	}
	site_close(&site);
}

/* The store knows a stream by the ring that its first member had when it was begun. That one is replaced: a consumer
 * goes on from the store in the rings, released up to there or, because the drain died before it could, not. */
static void consume__first_member_was_replaced(void **state)
{
	struct farlog_ring_config config = {
		.size_bytes = RING_SIZE, .record_len_max = 4096, .is_forced = 1, .stream_name = SEGMENTS_STREAM, .salt = 0x79};
	char text[2][400];
	const char *rings[4];

	(void)state;
	for (unsigned is_released = 0; is_released < 2; is_released++) {
		farlog_consumer *consumer;
		struct site site;
		uint64_t next = 0;

		site_open(&site);
		farlog_writer_close(site.writer);
		for (unsigned i = 0; i < 4; i++) {
			rings[i] = unit_tmpfs_uri((const char *[]){"of-1", "of-2", "of-3", "new-1"}[i]);
			assert_int_equal(farlog_ring_format(rings[i], &config, NULL), FARLOG_OK);
		}
		snprintf(text[0], sizeof(text[0]), "members:2 %s %s %s", rings[0], rings[1], rings[2]);
		snprintf(text[1], sizeof(text[1]), "members:2 %s %s %s", rings[3], rings[1], rings[2]);
		site.segments.uri = site.uri = text[0];
		assert_int_equal(
			farlog_writer_open(site.uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &site.writer, NULL), FARLOG_OK);
		site_append(&site, 40);
		segments_store(&site.segments, 4096);
		segments_mark(&site.segments);
		if (is_released)
			segments_release(&site.segments);
		segments_kill(&site.segments);
		site.segments.uri = site.uri = text[1];
		farlog_writer_close(site.writer);
		assert_int_equal(
			farlog_writer_open(site.uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &site.writer, NULL), FARLOG_OK);
		site_append(&site, 20);
		consumer = OPEN(&site, .start = FARLOG_CONSUME_OLDEST);
		assert_int_equal(site_read(consumer, ALL, &next, NULL), 60);
		assert_int_equal(site_stats(consumer).place.generation, 1);
		farlog_consumer_close(consumer);
		site_close(&site);
	}
}

/* Without a store nothing tells the lsns of one ring from those of the next: that it is another one is said, whether
 * the consumer is at it or comes back to it. */
static void consume__ring_formatted_again_without_a_store(void **state)
{
	struct farlog_ring_config config = {
		.size_bytes = RING_SIZE, .record_len_max = 4096, .is_forced = 1, .stream_name = SEGMENTS_STREAM};
	struct farlog_consumed item;
	farlog_consumer *consumer;
	struct site site;
	uint64_t next = 0;

	(void)state;
	site_open(&site);
	site_append(&site, 10);
	consumer = RING_ONLY(&site, .start = FARLOG_CONSUME_HEAD);
	assert_int_equal(site_read(consumer, ALL, &next, NULL), 10);
	farlog_writer_close(site.writer);
	site.writer = NULL;
	assert_int_equal(farlog_ring_format(site.uri, &config, NULL), FARLOG_OK);
	for (unsigned n = 0; n < 3; n++) {
		assert_int_equal(farlog_consumer_next(consumer, 0, &item), FARLOG_NOT_A_RING);
		assert_non_null(strstr(farlog_consumer_trouble(consumer), "it was formatted again"));
		if (n == 0)
			site_reopen_writer(&site); /* who has records that it might take for its own */
		if (n == 1)
			assert_int_equal(unit_append(site.writer, 100, 1, &(struct farlog_position){0}), FARLOG_OK);
	}
	farlog_consumer_close(consumer);
	site_close(&site);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(consume__undone_records_are_replaced),
	cmocka_unit_test(consume__ring_formatted_again_is_another_generation),
	cmocka_unit_test(consume__first_member_was_replaced),
	cmocka_unit_test(consume__ring_formatted_again_without_a_store),
};
RUN_GROUP(consume_ring, tests)
