/* site.c -- a ring with its writer and its store, and consumers of it that are checked record by record. */
#include "site.h"

#include <stdio.h>

void site_open(struct site *site)
{
	struct farlog_ring_config config = {
		.size_bytes = RING_SIZE, .record_len_max = 4096, .is_forced = 1, .stream_name = SEGMENTS_STREAM};

	memset(site, 0, sizeof(*site));
	site->uri = unit_tmpfs_uri("consume");
	assert_int_equal(farlog_ring_format(site->uri, &config, NULL), FARLOG_OK);
	segments_open(&site->segments, site->uri, SEGMENT_LEN);
	site->writer = unit_open(site->uri);
}

void site_close(struct site *site)
{
	if (site->writer != NULL)
		farlog_writer_close(site->writer);
	segments_close(&site->segments);
}

void site_reopen_writer(struct site *site)
{
	if (site->writer != NULL)
		farlog_writer_close(site->writer);
	site->writer = unit_open(site->uri);
}

/* append -- records of different lengths, classes 0 to 3, keys K0 to K2. */
void site_append(struct site *site, unsigned count)
{
	static uint8_t filler[512];

	for (unsigned i = 0; i < count; i++, site->count++) {
		char key[8];
		struct farlog_position position;
		struct farlog_entry entry = {.data = filler,
			.len = (uint32_t)(8 + site->count * 37 % 300),
			.class_id = (uint16_t)(site->count % 4),
			.key = key,
			.key_len = 2};

		snprintf(key, sizeof(key), "K%lu", site->count % 3);
		memcpy(filler, &site->count, sizeof(site->count));
		assert_int_equal(farlog_append(site->writer, &entry, 0, &position), FARLOG_OK);
		site->end_lsn = position.end_lsn;
	}
}

uint64_t site_undrained(struct site *site)
{
	struct farlog_cursors cursors;

	farlog_writer_cursors(site->writer, &cursors);
	return cursors.appended_lsn - cursors.head_lsn;
}

farlog_consumer *site_consumer(const struct farlog_consumer_config *config)
{
	struct farlog_error error = {0};
	farlog_consumer *consumer;

	if (farlog_consumer_open(config, &consumer, &error) != FARLOG_OK)
		fail_msg("open consumer: %s", error.text);
	return consumer;
}

int site_refuse(const struct farlog_consumer_config *config, const char *text)
{
	struct farlog_error error = {0};
	farlog_consumer *consumer;
	int result = farlog_consumer_open(config, &consumer, &error);

	assert_null(consumer);
	if (strstr(error.text, text) == NULL)
		fail_msg("\"%s\", expected \"%s\" in it", error.text, text);
	return result;
}

/* read_numbers -- at most max records, which must be *next and on, in order and each once. Gives how many. */
unsigned site_read(farlog_consumer *consumer, unsigned max, uint64_t *next, struct told *told)
{
	struct farlog_consumed item;
	unsigned count = 0;

	while (count < max) {
		uint64_t number;
		int result = farlog_consumer_next(consumer, 0, &item);

		if (result == FARLOG_NOT_YET)
			return count;
		if (result == FARLOG_OVERRUN && told != NULL) {
			told->rewound_count += item.notice.kind == FARLOG_NOTICE_REWOUND;
			if (told->count++ == 0)
				told->first = item.notice;
			continue;
		}
		if (result != FARLOG_OK)
			fail_msg("%s: %s", farlog_result_name(result), farlog_consumer_trouble(consumer));
		memcpy(&number, item.payload, sizeof(number));
		assert_int_equal(number, *next);
		assert_int_equal(item.payload_len, 8 + number * 37 % 300);
		assert_int_equal(((const char *)item.key)[1] - '0', number % 3);
		*next += 1;
		count++;
	}
	return count;
}

struct farlog_consumer_stats site_stats(farlog_consumer *consumer)
{
	struct farlog_consumer_stats stats;

	farlog_consumer_stats_read(consumer, &stats);
	return stats;
}
