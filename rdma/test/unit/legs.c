/* legs.c -- see legs.h. */
#include "legs.h"

#include "ring/record.h"
#include "route/route.h"

struct farlog_route_leg legs_leg_of(const char *name, const char *uri)
{
	return (struct farlog_route_leg){.name = name,
		.uri = uri,
		.config = {.level = FARLOG_LEVEL_VISIBLE, .deadline_ns = 20000000, .counters_dir = ""}};
}

farlog_route *legs_open_legs(const struct farlog_route_leg *legs, uint32_t count, bool is_threaded)
{
	struct farlog_route_config config = {.name = "desk7", .legs = legs, .leg_count = count};
	struct farlog_error error = {0};
	farlog_route *route;

	if (route_open(&config, is_threaded, &route, &error) != FARLOG_OK)
		fail_msg("open route: %s", error.text);
	return route;
}

int legs_append(farlog_route *route, uint16_t class_id, uint32_t criticality, uint64_t number,
	struct farlog_route_position *position)
{
	struct farlog_entry entry = {.data = &number, .len = sizeof(number), .class_id = class_id};

	return farlog_route_append(route, &entry, criticality, 0, position);
}

const char *legs_fault_ring(const char *uri, uint64_t seed)
{
	farlog_fault_drop(uri + strlen("fault:"));
	unit_format(uri, SIZE, 0);
	farlog_fault_reseed(uri + strlen("fault:"), seed);
	return uri;
}

unsigned legs_numbers_in(const char *uri, uint64_t *numbers, unsigned room, struct farlog_gap *gap)
{
	farlog_reader *reader = unit_read(uri, FARLOG_START_HEAD, false);
	static uint8_t buf[256 << 10];
	struct farlog_batch batch;
	unsigned count = 0;

	while (farlog_reader_read(reader, buf, sizeof(buf), &batch) == FARLOG_OK)
		for (size_t at = 0; at < batch.len;) {
			struct record_header header;

			memcpy(&header, buf + at, sizeof(header));
			if (header.flags == RECORD_FLAG_GAP && gap != NULL)
				memcpy(gap, buf + at + RECORD_HEADER_LEN, sizeof(*gap));
			if (header.flags == 0) {
				assert_true(count < room);
				memcpy(&numbers[count++], buf + at + RECORD_HEADER_LEN + header.key_len, sizeof(numbers[0]));
			}
			at += header.flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN :
												   record_extent(64, header.key_len, header.payload_len);
		}
	farlog_reader_close(reader);
	return count;
}

void legs_assert_numbers(const char *uri, uint64_t first, uint64_t last)
{
	uint64_t numbers[2048];
	unsigned count = legs_numbers_in(uri, numbers, 2048, NULL);

	assert_int_equal(count, last - first + 1);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(numbers[i], first + i);
}

void legs_drain_all(const char *uri)
{
	farlog_reader *reader = unit_read(uri, FARLOG_START_HEAD, true);
	static uint8_t buf[256 << 10];
	struct farlog_batch batch;

	while (farlog_reader_read(reader, buf, sizeof(buf), &batch) == FARLOG_OK)
		assert_int_equal(farlog_reader_release(reader, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	farlog_reader_close(reader);
}
