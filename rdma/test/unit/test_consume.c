/* Consumers: the history in a store joined to the ring, overtaken and catching up, each record once, and what is
 * missing told. The store is made by segments.c; Go's real one is read in pkg/internal/e2e. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/atomics.h"
#include "farlog/consume.h"
#include "site.h"

/* The first record that is wanted may lie in the store, in the ring, or in both: from each of them on every record
 * comes once. */
static void consume__history_is_joined_to_the_ring_at_each_place(void **state)
{
	struct farlog_place places[200];
	struct farlog_consumed item;
	farlog_consumer *consumer;
	struct site site;
	uint64_t next = 0;

	(void)state;
	site_open(&site);
	site_append(&site, 60);
	segments_drain(&site.segments);
	site_append(&site, 40);
	site_reopen_writer(&site);
	site_append(&site, 20);
	consumer = OPEN(&site, .start = FARLOG_CONSUME_OLDEST);
	for (unsigned i = 0; i < 120; i++) {
		assert_int_equal(farlog_consumer_next(consumer, 0, &item), FARLOG_OK);
		assert_int_equal(item.is_live, i >= 60);
		places[i] = item.place;
	}
	assert_int_equal(farlog_consumer_next(consumer, 0, &item), FARLOG_NOT_YET);
	for (unsigned i = 0; i < 120; i++) {
		farlog_consumer *other = OPEN(&site, .start = FARLOG_CONSUME_PLACE, .place = places[i]);

		next = i;
		assert_int_equal(site_read(other, ALL, &next, NULL), 120 - i);
		farlog_consumer_close(other);
	}
	farlog_consumer *head = OPEN(&site, .start = FARLOG_CONSUME_HEAD), *end = OPEN(&site, .start = FARLOG_CONSUME_END);
	next = 60;
	assert_int_equal(site_read(head, ALL, &next, NULL), 60);
	assert_int_equal(site_read(end, ALL, &next, NULL), 0);
	site_append(&site, 5);
	assert_int_equal(site_read(end, ALL, &next, NULL), 5);
	next = 120;
	assert_int_equal(site_read(consumer, ALL, &next, NULL), 5);
	assert_int_equal(site_stats(consumer).record_count, 125);
	assert_int_equal(site_stats(consumer).lag_bytes, 0);
	farlog_consumer_close(head);
	farlog_consumer_close(end);
	farlog_consumer_close(consumer);
	site_close(&site);
}

/* One that reads less than writer and drain move is overtaken again and again, in the ring, while it is in its history,
 * at the ends of segments, and while drains die between storing, syncing and releasing. It has every record once. */
static void consume__overtaken_catches_up_from_the_store(void **state)
{
	unsigned told_count = 0;

	(void)state;
	for (unsigned round = 0; round < 12; round++) {
		struct told told = {0};
		farlog_consumer *consumer;
		struct site site;
		uint64_t next = 0;

		site_open(&site);
		consumer =
			OPEN(&site, .start = round % 2 == 0 ? FARLOG_CONSUME_HEAD : FARLOG_CONSUME_OLDEST, .buffer_bytes = 4096);
		for (unsigned step = 0; step < 40; step++) {
			site_append(&site, (unsigned)(1 + unit_below(60)));
			if (unit_below(3) == 0)
				site_read(consumer, (unsigned)(1 + unit_below(120)), &next, &told);
			if (unit_below(2) == 0)
				segments_store(&site.segments, 4096 + unit_below(8192));
			if (unit_below(3) == 0)
				segments_kill(&site.segments); /* what is stored is not released, and perhaps not marked */
			if (unit_below(3) == 0 || site_undrained(&site) > (32u << 10))
				segments_drain(&site.segments);
			if (unit_below(10) == 0)
				site_reopen_writer(&site);
		}
		site_read(consumer, ALL, &next, &told);
		assert_int_equal(next, site.count);
		assert_true(
			told.count == 0 || (told.first.kind == FARLOG_NOTICE_CAUGHT && told.first.from_lsn < told.first.to_lsn));
		told_count += told.count;
		assert_int_equal(site_stats(consumer).overrun_count, told.count);
		assert_int_equal(site_stats(consumer).lost_bytes, 0);
		assert_true(site.segments.number > 3);
		farlog_consumer_close(consumer);
		site_close(&site);
	}
	assert_true(told_count > 0);
}

/* Without a store what was overtaken is lost, and it says from where to where, and how many records. */
static void consume__without_a_store_the_gap_is_told_exactly(void **state)
{
	struct told told = {0};
	farlog_consumer *consumer;
	struct site site;
	uint64_t next = 0, missed_lsn, head_lsn;

	(void)state;
	site_open(&site);
	site_append(&site, 10);
	consumer = RING_ONLY(&site, .start = FARLOG_CONSUME_HEAD);
	assert_int_equal(site_read(consumer, ALL, &next, &told), 10);
	missed_lsn = site.end_lsn;
	for (unsigned i = 0; i < 5; i++) {
		site_append(&site, 100);
		segments_drain(&site.segments);
	}
	head_lsn = site.end_lsn;
	assert_int_equal(site_read(consumer, ALL, &next, &told), 0); /* nothing follows, and it is told all the same */
	assert_int_equal(told.count, 1);
	site_append(&site, 7);
	next = 510;
	assert_int_equal(site_read(consumer, ALL, &next, &told), 7);
	assert_int_equal(told.count, 1);
	assert_int_equal(told.first.kind, FARLOG_NOTICE_LOST);
	assert_int_equal(told.first.from_lsn, missed_lsn);
	assert_int_equal(told.first.to_lsn, head_lsn);
	assert_int_equal(told.first.record_count, 500);
	assert_int_equal(site_stats(consumer).lost_bytes, head_lsn - missed_lsn);
	farlog_consumer_close(consumer);
	site_close(&site);
}

/* Overtaken before it has read anything: that is a gap too. */
static void consume__overtaken_before_its_first_record(void **state)
{
	struct told told = {0};
	farlog_consumer *without, *with;
	struct site site;
	uint64_t next = 410;

	(void)state;
	site_open(&site);
	site_append(&site, 10);
	segments_drain(&site.segments);
	without = RING_ONLY(&site, .start = FARLOG_CONSUME_HEAD);
	with = OPEN(&site, .start = FARLOG_CONSUME_HEAD);
	for (unsigned i = 0; i < 4; i++) {
		site_append(&site, 100);
		segments_drain(&site.segments);
	}
	site_append(&site, 3);
	assert_int_equal(site_read(without, ALL, &next, &told), 3);
	assert_true(told.count == 1 && told.first.kind == FARLOG_NOTICE_LOST && told.first.record_count == 400);
	next = 10;
	told.count = 0;
	assert_int_equal(site_read(with, ALL, &next, &told), 403);
	assert_true(told.count == 1 && told.first.kind == FARLOG_NOTICE_CAUGHT && told.first.record_count == 400);
	farlog_consumer_close(without);
	farlog_consumer_close(with);
	site_close(&site);
}

/* The store has not got it: nothing is passed over, the trouble says from where to where, and when the store has it the
 * consumer goes on. */
static void consume__store_that_lags_is_waited_for(void **state)
{
	struct told told = {0};
	farlog_consumer *consumer;
	struct farlog_consumed item;
	struct site site;
	uint64_t next = 0;
	char away[280], text[64];

	(void)state;
	site_open(&site);
	site_append(&site, 150);
	segments_drain(&site.segments);
	consumer = OPEN(&site, .start = FARLOG_CONSUME_OLDEST);
	assert_int_equal(site_read(consumer, ALL, &next, &told), 150);
	for (unsigned i = 0; i < 3; i++) {
		site_append(&site, 150);
		segments_drain(&site.segments);
	}
	assert_true(site.segments.number >= 3);
	snprintf(away, sizeof(away), "%s.away", segments_path(&site.segments));
	assert_int_equal(rename(segments_path(&site.segments), away), 0);
	site_read(consumer, 1, &next, &told); /* from the store, after the notice */
	for (;;) {
		int result = farlog_consumer_next(consumer, 0, &item);

		if (result == FARLOG_NOT_FOUND)
			break;
		assert_int_equal(result, FARLOG_OK);
		next++;
	}
	assert_true(next < site.count);
	snprintf(text, sizeof(text), "up to lsn %lu, store", site.end_lsn);
	assert_non_null(strstr(farlog_consumer_trouble(consumer), text));
	assert_int_equal(farlog_consumer_next(consumer, 1000000, &item), FARLOG_NOT_FOUND);
	assert_int_equal(rename(away, segments_path(&site.segments)), 0);
	site_read(consumer, ALL, &next, &told);
	assert_int_equal(next, site.count);
	farlog_consumer_close(consumer);
	site_close(&site);
}

/* A byte of a stored record is another one: the consumer gives what lies before it and nothing behind it. */
static void consume__damaged_store_is_told_and_not_passed_over(void **state)
{
	struct farlog_consumed item;
	farlog_consumer *consumer;
	struct site site;
	unsigned count = 0;
	uint8_t byte;
	int result;

	(void)state;
	site_open(&site);
	site_append(&site, 80);
	segments_drain(&site.segments);
	site_append(&site, 5);
	assert_int_equal(pread(site.segments.fd, &byte, 1, (off_t)site.segments.off / 2), 1);
	byte ^= 1;
	assert_int_equal(pwrite(site.segments.fd, &byte, 1, (off_t)site.segments.off / 2), 1);
	consumer = OPEN(&site, .start = FARLOG_CONSUME_OLDEST);
	while ((result = farlog_consumer_next(consumer, 0, &item)) == FARLOG_OK)
		count++;
	assert_int_equal(result, FARLOG_CORRUPT);
	assert_true(count > 10 && count < 80);
	assert_non_null(strstr(farlog_consumer_trouble(consumer), "segment 1 in"));
	assert_int_equal(farlog_consumer_next(consumer, 0, &item), FARLOG_CORRUPT);
	farlog_consumer_close(consumer);
	site_close(&site);
}

/* A drain died in the middle of a record: the rest of it is not in the store, and the ring still has all of it. */
static void consume__torn_tail_of_the_store_comes_from_the_ring(void **state)
{
	struct told told = {0};
	farlog_consumer *consumer;
	struct site site;
	uint64_t next = 0;

	(void)state;
	site_open(&site);
	site_append(&site, 40);
	segments_drain(&site.segments);
	site_append(&site, 40);
	segments_store(&site.segments, 4096);
	segments_kill(&site.segments);
	assert_int_equal(ftruncate(site.segments.fd, (off_t)site.segments.off - 70), 0);
	consumer = OPEN(&site, .start = FARLOG_CONSUME_OLDEST);
	assert_int_equal(site_read(consumer, ALL, &next, &told), 80);
	assert_int_equal(told.count, 0);
	farlog_consumer_close(consumer);
	site_close(&site);
}

static void consume__filter_takes_class_and_key(void **state)
{
	static const uint16_t classes[] = {1, 2};
	static const struct farlog_key keys[] = {{"K0", 2}, {"K7", 2}};
	struct farlog_consumed item;
	farlog_consumer *consumer;
	struct site site;
	unsigned count = 0;

	(void)state;
	site_open(&site);
	site_append(&site, 60);
	consumer = OPEN(&site, .classes = classes, .class_count = 2, .keys = keys, .key_count = 2);
	for (; farlog_consumer_next(consumer, 0, &item) == FARLOG_OK; count++) {
		uint64_t number;

		memcpy(&number, item.payload, sizeof(number));
		assert_true((number % 4 == 1 || number % 4 == 2) && number % 3 == 0);
	}
	assert_int_equal(count, 10);
	assert_int_equal(site_stats(consumer).record_count, 10);
	assert_int_equal(site_stats(consumer).skipped_count, 51);
	farlog_consumer_close(consumer);
	consumer = OPEN(&site, .is_control = 1);
	assert_int_equal(farlog_consumer_next(consumer, 0, &item), FARLOG_OK);
	assert_int_equal(item.flags, RECORD_FLAG_EPOCH);
	farlog_consumer_close(consumer);
	site_close(&site);
}

/* A named consumer goes on behind what it committed; the file is the one that Go writes. */
static void consume__named_goes_on_where_it_committed(void **state)
{
	struct farlog_consumer_config config = {.start = FARLOG_CONSUME_OLDEST, .name = "desk-risk"};
	char text[256] = "", expected[256], path[256];
	struct farlog_place place;
	farlog_consumer *consumer;
	struct site site;
	uint64_t next = 0, committed = 0, lsn;
	FILE *file;

	(void)state;
	site_open(&site);
	config.ring_uri = site.uri;
	config.store_dir = config.state_dir = site.segments.store_dir;
	for (unsigned round = 0; round < 10; round++) {
		site_append(&site, 40);
		if (round % 2 == 0)
			segments_drain(&site.segments);
		consumer = site_consumer(&config);
		assert_int_equal(site_refuse(&config, "is in use: consumer desk-risk of process"), FARLOG_HELD);
		next = committed;
		site_read(consumer, (unsigned)(1 + unit_below(70)), &next, &(struct told){0});
		if (unit_below(2) == 0) { /* else it dies before it commits */
			assert_int_equal(farlog_consumer_commit(consumer), FARLOG_OK);
			committed = next;
		}
		farlog_consumer_close(consumer);
	}
	consumer = site_consumer(&config);
	next = committed;
	site_read(consumer, ALL, &next, &(struct told){0});
	assert_int_equal(next, site.count);
	assert_int_equal(farlog_consumer_commit(consumer), FARLOG_OK);
	place = site_stats(consumer).place;
	lsn = site_stats(consumer).next_lsn;
	assert_string_equal(site_stats(consumer).name, "desk-risk");
	farlog_consumer_close(consumer);
	snprintf(path, sizeof(path), "%s/desk-risk.json", config.state_dir);
	file = fopen(path, "r+");
	assert_non_null(fgets(text, sizeof(text), file));
	snprintf(expected, sizeof(expected),
		"{\"format\":\"farlog-position\",\"version\":1,\"stream\":\"desk7/"
		"orders\",\"generation\":%lu,\"epoch\":%u,\"lsn\":%lu,\"next_lsn\":%lu}\n",
		place.generation, place.epoch, place.lsn, lsn);
	assert_string_equal(text, expected);
	assert_int_equal(ftruncate(fileno(file), 90), 0);
	fclose(file);
	assert_int_equal(site_refuse(&config, "remove it to begin again"), FARLOG_INVALID);
	site_close(&site);
}

static void consume__bad_configuration_is_refused(void **state)
{
	struct site site;
	char text[64];

	(void)state;
	site_open(&site);
	site_append(&site, 10);
	segments_drain(&site.segments);
	const char *uri = site.uri, *dir = site.segments.store_dir;
#define REFUSE(result, text, ...) \
	assert_int_equal(site_refuse(&(struct farlog_consumer_config){__VA_ARGS__}, text), result)
	REFUSE(FARLOG_INVALID, "expected ring_uri, store_dir or both", .start = 0);
	REFUSE(FARLOG_INVALID, "expected the stream's name", .store_dir = dir);
	REFUSE(FARLOG_INVALID, "start 9", .ring_uri = uri, .start = 9);
	REFUSE(FARLOG_INVALID, "generation 0", .ring_uri = uri, .start = FARLOG_CONSUME_PLACE);
	REFUSE(FARLOG_INVALID, "name of a consumer \"../x\"", .ring_uri = uri, .name = "../x", .state_dir = dir);
	REFUSE(FARLOG_INVALID, "name of a consumer \"\"", .ring_uri = uri, .name = "", .state_dir = dir);
	REFUSE(FARLOG_NOT_FOUND, "expected a directory with a store.json", .ring_uri = uri, .store_dir = "/nowhere",
		.start = FARLOG_CONSUME_OLDEST);
	REFUSE(FARLOG_NOT_FOUND, "stream \"desk8\"", .store_dir = dir, .stream = "desk8");
	REFUSE(FARLOG_NOT_FOUND, "/nowhere", .ring_uri = "mem:/nowhere", .store_dir = dir);
	snprintf(text, sizeof(text), "is of another stream than desk8");
	farlog_consumer *named = site_consumer(&(struct farlog_consumer_config){
		.ring_uri = uri, .store_dir = dir, .name = "n", .state_dir = dir, .start = FARLOG_CONSUME_OLDEST});
	site_read(named, ALL, &(uint64_t){0}, NULL);
	assert_int_equal(farlog_consumer_commit(named), FARLOG_OK);
	farlog_consumer_close(named);
	REFUSE(FARLOG_INVALID, text, .ring_uri = uri, .stream = "desk8", .name = "n", .state_dir = dir);
#undef REFUSE
	site_close(&site);
}

#define BESIDE_COUNT 20000u

static void *write_and_drain(void *argument)
{
	struct site *site = argument;

	while (site->count < BESIDE_COUNT) {
		site_append(site, 60);
		segments_drain(&site->segments);
	}
	return NULL;
}

/* Writer and drain go on at their own pace in another thread; the consumer has all of it, and waits by its deadline. */
static void consume__writer_and_drain_run_beside(void **state)
{
	struct told told = {0};
	struct farlog_consumed item;
	farlog_consumer *consumer;
	struct site site;
	uint64_t next = 0;
	pthread_t thread;

	(void)state;
	site_open(&site);
	consumer = OPEN(&site, .start = FARLOG_CONSUME_OLDEST);
	assert_int_equal(farlog_consumer_next(consumer, 1000000, &item), FARLOG_NOT_YET);
	assert_int_equal(pthread_create(&thread, NULL, write_and_drain, &site), 0);
	while (next < BESIDE_COUNT) {
		uint64_t number;
		int result = farlog_consumer_next(consumer, 30000000000u, &item);

		if (result == FARLOG_OVERRUN) {
			told.count++;
			assert_int_equal(item.notice.kind, FARLOG_NOTICE_CAUGHT);
			continue;
		}
		if (result != FARLOG_OK)
			fail_msg("record %lu: %s: %s", next, farlog_result_name(result), farlog_consumer_trouble(consumer));
		memcpy(&number, item.payload, sizeof(number));
		assert_int_equal(number, next++);
	}
	pthread_join(thread, NULL);
	farlog_consumer_close(consumer);
	site_close(&site);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(consume__history_is_joined_to_the_ring_at_each_place),
	cmocka_unit_test(consume__overtaken_catches_up_from_the_store),
	cmocka_unit_test(consume__without_a_store_the_gap_is_told_exactly),
	cmocka_unit_test(consume__overtaken_before_its_first_record),
	cmocka_unit_test(consume__store_that_lags_is_waited_for),
	cmocka_unit_test(consume__damaged_store_is_told_and_not_passed_over),
	cmocka_unit_test(consume__torn_tail_of_the_store_comes_from_the_ring),
	cmocka_unit_test(consume__filter_takes_class_and_key),
	cmocka_unit_test(consume__named_goes_on_where_it_committed),
	cmocka_unit_test(consume__bad_configuration_is_refused),
	cmocka_unit_test(consume__writer_and_drain_run_beside),
};

RUN_GROUP(consume, tests)
