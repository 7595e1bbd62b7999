/* carved.c -- see carved.h. */
#include "carved.h"

#include <stdio.h>

#include "ring/record.h"

static char text[500];

const char *carved_at(const char *uri, const char *ring)
{
	snprintf(text, sizeof(text), "%s?ring=%s&size=%u", uri, ring, REGION_LEN);
	return text;
}

int carved_format_sized(
	const char *uri, const char *ring, uint64_t size_bytes, bool is_forced, struct farlog_error *error)
{
	struct farlog_ring_config config = {
		.size_bytes = size_bytes, .is_forced = is_forced, .stream_name = ring, .salt = 0x5A175A175A17ull};

	memset(error, 0, sizeof(*error));
	return farlog_ring_format(carved_at(uri, ring), &config, error);
}

void carved_make(const char *uri, const char *ring)
{
	struct farlog_error error;

	if (carved_format_sized(uri, ring, RING_LEN, false, &error) != FARLOG_OK)
		fail_msg("format: %s", error.text);
}

int carved_list(const char *uri, struct farlog_region_ring rings[LIST_MAX], struct farlog_region_status *status)
{
	struct farlog_error error = {0};
	int result = farlog_region_list(uri, status, rings, LIST_MAX, &error);

	if (result == FARLOG_NOT_FOUND)
		return -1;
	if (result != FARLOG_OK)
		fail_msg("list: %s", error.text);
	return (int)status->ring_count;
}

void carved_append(const char *uri, const char *ring, unsigned count, uint8_t fill)
{
	farlog_writer *writer = unit_open(carved_at(uri, ring));
	struct farlog_position position;

	for (unsigned i = 0; i < count; i++)
		assert_int_equal(unit_append(writer, 100, fill, &position), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

unsigned carved_count_records(const char *uri, const char *ring, uint8_t fill)
{
	static uint8_t buffer[RING_LEN];
	farlog_reader *reader = unit_read(carved_at(uri, ring), FARLOG_START_HEAD, false);
	struct farlog_batch batch;
	unsigned count = 0;

	while (farlog_reader_read(reader, buffer, sizeof(buffer), &batch) == FARLOG_OK)
		for (uint64_t off = 0; off < batch.len;) {
			struct record_header header;

			memcpy(&header, buffer + off, sizeof(header));
			off += record_extent(64, header.key_len, header.payload_len);
			if (header.flags != 0)
				continue;
			assert_int_equal(header.class_id, fill);
			count++;
		}
	farlog_reader_close(reader);
	return count;
}
