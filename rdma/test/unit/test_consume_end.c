/* The end of a store's history, as a consumer finds it: it is where the last mark says, and nowhere before. */
#include <unistd.h>

#include "farlog/consume.h"
#include "site.h"

/* record_off -- where a record of the store's only segment begins, counted from its EPOCH record. */
static uint64_t record_off(const struct segments *segments, unsigned count)
{
	struct record_header header;
	uint64_t off = STORE_DATA_OFF;

	while (count-- > 0) {
		assert_int_equal(pread(segments->fd, &header, sizeof(header), (off_t)off), sizeof(header));
		off += header.flags & RECORD_FLAG_PAD ? 64 : record_extent(segments->ring.align, header.key_len, header.payload_len);
	}
	return off;
}

/* Synced bytes are cut off, or zeroed, where a record begins: it looks as the end of the stream does, and lies below the mark. */
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
			assert_int_equal(pwrite(site.segments.fd, zeros, site.segments.off - off, (off_t)off), site.segments.off - off);
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

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(consume__synced_bytes_that_are_gone_are_no_end),
};

RUN_GROUP(consume_end, tests)
