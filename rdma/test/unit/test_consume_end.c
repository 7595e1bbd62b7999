/* The end of a store's history, as a consumer finds it: it is where the last mark says, and nowhere before. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "farlog/consume.h"
#include "site.h"

/* record_off_in -- where a record of this segment begins, counted from its first one. */
static uint64_t record_off_in(const struct segments *segments, int fd, unsigned count)
{
	struct record_header header;
	uint64_t off = STORE_DATA_OFF;

	while (count-- > 0) {
		assert_int_equal(pread(fd, &header, sizeof(header), (off_t)off), sizeof(header));
		off += header.flags & RECORD_FLAG_PAD ? 64 :
												record_extent(segments->ring.align, header.key_len, header.payload_len);
	}
	return off;
}

/* record_off -- of the store's only segment, whose first record is the EPOCH record. */
static uint64_t record_off(const struct segments *segments, unsigned count)
{
	return record_off_in(segments, segments->fd, count);
}

/* Synced bytes are cut off, or zeroed, where a record begins: it looks as the end of the stream does, and lies below
 * the mark. */
static void consume__synced_bytes_that_are_gone_are_no_end(void **state)
{
	static const uint8_t zeros[SEGMENT_LEN];
	const unsigned records[] = {0, 1, 20, 40};

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		farlog_consumer *consumer;
		struct site site;
		uint64_t off, next = 0;
		int result;

		site_open(&site);
		site_append(&site, 40);
		segments_drain(&site.segments);
		off = record_off(&site.segments, records[i / 2]);
		if (i % 2 == 0)
			assert_int_equal(ftruncate(site.segments.fd, (off_t)off), 0);
		else
			assert_int_equal(
				pwrite(site.segments.fd, zeros, site.segments.off - off, (off_t)off), site.segments.off - off);
		consumer = OPEN(&site, .start = FARLOG_CONSUME_OLDEST);
		do {
			struct farlog_consumed item;

			result = farlog_consumer_next(consumer, 0, &item);
			next += result == FARLOG_OK;
		} while (result == FARLOG_OK);
		assert_int_equal(result, FARLOG_CORRUPT);
		assert_int_equal(next, records[i / 2] == 0 ? 0 : records[i / 2] - 1);
		farlog_consumer_close(consumer);
		site_close(&site);
	}
}

/* read_all -- the records of the store, in order and each once. What ended it. */
static int read_all(const struct site *site, uint64_t *count)
{
	struct farlog_consumer_config config = {.store_dir = site->segments.store_dir,
		.stream = SEGMENTS_STREAM,
		.ring_uri = site->uri,
		.start = FARLOG_CONSUME_OLDEST};
	struct farlog_error error = {0};
	farlog_consumer *consumer;
	int result = farlog_consumer_open(&config, &consumer, &error);

	for (*count = 0; result == FARLOG_OK;) {
		struct farlog_consumed item;
		uint64_t number;

		result = farlog_consumer_next(consumer, 0, &item);
		if (result != FARLOG_OK)
			break;
		memcpy(&number, item.payload, sizeof(number));
		assert_int_equal(number, (*count)++);
	}
	farlog_consumer_close(consumer);
	return result;
}

enum damage { DAMAGE_FILE_MISSING, DAMAGE_RECORDS_ZEROED, DAMAGE_LAST_ZEROED, DAMAGE_COUNT };

/* put_damage -- on a segment that is full. */
static void put_damage(const struct segments *segments, const char *path, enum damage damage)
{
	static const uint8_t zeros[SEGMENT_LEN];
	int fd = open(path, O_RDWR);
	uint64_t off = STORE_DATA_OFF;

	assert_true(fd >= 0);
	if (damage == DAMAGE_LAST_ZEROED)
		off = record_off_in(segments, fd, 20);
	if (damage != DAMAGE_FILE_MISSING)
		assert_int_equal(pwrite(fd, zeros, SEGMENT_LEN - off, (off_t)off), SEGMENT_LEN - off);
	close(fd);
	if (damage == DAMAGE_FILE_MISSING)
		assert_int_equal(unlink(path), 0);
}

/* A segment that is not the last is gone, or its records are: the reader does not go on with the one behind it. */
static void consume__no_segment_is_passed_over(void **state)
{
	uint8_t bytes[SEGMENT_LEN];
	struct site site;
	uint64_t count;

	(void)state;
	site_open(&site);
	for (unsigned i = 0; i < 5; i++) {
		site_append(&site, 80);
		segments_drain(&site.segments);
	}
	assert_int_equal(read_all(&site, &count), FARLOG_NOT_YET);
	assert_int_equal(count, site.count);
	assert_true(site.segments.number >= 3);
	for (uint64_t number = 1; number < site.segments.number; number++) {
		char path[256];
		int fd;

		snprintf(path, sizeof(path), "%s/%010lu.seg", site.segments.stream_dir, number);
		for (unsigned damage = 0; damage < DAMAGE_COUNT; damage++) {
			int result;

			fd = open(path, O_RDONLY);
			assert_int_equal(read(fd, bytes, sizeof(bytes)), sizeof(bytes));
			close(fd);
			put_damage(&site.segments, path, damage);
			result = read_all(&site, &count);
			if (result != FARLOG_CORRUPT)
				fail_msg(
					"segment %lu, damage %u: %s behind %lu records", number, damage, farlog_result_name(result), count);
			assert_true(count < site.count);
			fd = open(path, O_WRONLY | O_CREAT, 0644);
			assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
			close(fd);
		}
	}
	assert_int_equal(read_all(&site, &count), FARLOG_NOT_YET);
	assert_int_equal(count, site.count);
	site_close(&site);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(consume__no_segment_is_passed_over),
	cmocka_unit_test(consume__synced_bytes_that_are_gone_are_no_end),
};

RUN_GROUP(consume_end, tests)
