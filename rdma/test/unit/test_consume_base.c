/* The beginning of a store's history, as a consumer finds it, when the oldest segments were removed. */
#include <stdio.h>
#include <unistd.h>

#include "farlog/consume.h"
#include "site.h"

/* write_base -- the base manifest of a stream whose segments before the one at first_lsn were removed. */
static void write_base(const struct site *site, const struct store_segment *first, uint64_t next_lsn)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%010lu.base", site->segments.stream_dir, first->number);
	file = fopen(path, "w");
	assert_non_null(file);
	fprintf(file,
		"{\"base\":{\"format\":\"farlog-base\",\"version\":1,\"policy\":\"\\\"next_lsn\\\":7\",\"segment\":%lu,"
		"\"generation\":%lu,\"last_epoch\":%u,\"last_lsn\":%lu,\"next_lsn\":%lu,\"last_seq\":%lu,\"next_seq\":%lu,"
		"\"removed_segments\":%lu}}\n",
		first->number, first->generation, first->prev_epoch, next_lsn - 64, next_lsn, first->prev_next_seq - 1,
		first->prev_next_seq, first->number - 1);
	assert_int_equal(fclose(file), 0);
}

/* remove_before -- the files of the segments before one. */
static void remove_before(const struct site *site, uint64_t number)
{
	struct store_dir dir;
	char path[PATH_MAX + 32];

	assert_int_equal(store_dir_open(&dir, site->segments.store_dir, SEGMENTS_STREAM, NULL), FARLOG_OK);
	for (uint64_t i = 1; i < number; i++) {
		store_segment_path(&dir, i, ".seg", path);
		assert_int_equal(unlink(path), 0);
		store_segment_path(&dir, i, ".json", path);
		unlink(path); /* there is none of one that is not sealed */
	}
}

/* The oldest segments were removed: the stream begins where its base manifest says, who stood before that learns of it,
 * and without the manifest, or with one that does not fit, segments are missing. */
static void consume__stream_begins_at_its_base(void **state)
{
	struct farlog_consumed item;
	farlog_consumer *consumer, *before;
	struct store_segment first;
	struct store_dir dir;
	struct site site;
	int result;

	(void)state;
	site_open(&site);
	while (site.segments.number < 4) {
		site_append(&site, 30);
		segments_drain(&site.segments);
	}
	before = OPEN(&site, .start = FARLOG_CONSUME_OLDEST);
	assert_int_equal(farlog_consumer_next(before, 0, &item), FARLOG_OK);
	assert_int_equal(store_dir_open(&dir, site.segments.store_dir, SEGMENTS_STREAM, NULL), FARLOG_OK);
	assert_int_equal(store_segment_look(&dir, 3, &first, NULL), FARLOG_OK);
	remove_before(&site, 3);
	assert_int_equal(site_refuse(&(struct farlog_consumer_config){.stream = SEGMENTS_STREAM,
									 .store_dir = site.segments.store_dir,
									 .start = FARLOG_CONSUME_OLDEST},
						 "segment"),
		FARLOG_CORRUPT);
	write_base(&site, &first, first.prev_next_lsn + 64);
	site_refuse(
		&(struct farlog_consumer_config){
			.stream = SEGMENTS_STREAM, .store_dir = site.segments.store_dir, .start = FARLOG_CONSUME_OLDEST},
		"its base manifest says");
	write_base(&site, &first, first.prev_next_lsn);
	consumer = site_consumer(&(struct farlog_consumer_config){
		.stream = SEGMENTS_STREAM, .store_dir = site.segments.store_dir, .start = FARLOG_CONSUME_OLDEST});
	assert_int_equal(farlog_consumer_next(consumer, 0, &item), FARLOG_OK);
	assert_int_equal(item.place.lsn, first.first_lsn);
	farlog_consumer_close(consumer);
	while ((result = farlog_consumer_next(before, 0, &item)) == FARLOG_OK)
		;
	assert_int_equal(result, FARLOG_NOT_FOUND);
	assert_non_null(strstr(farlog_consumer_trouble(before), "removed by retention"));
	farlog_consumer_close(before);
	site_close(&site);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(consume__stream_begins_at_its_base),
};

RUN_GROUP(consume_base, tests)
